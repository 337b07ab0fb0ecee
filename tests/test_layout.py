"A page that is arranged: looks, cards, controls, by a hand and by a script, and what is refused"
import json
import re
from itertools import count

import pytest

from rlbench.algos.algorithm import REGISTRY
from rlbench.lab.page import board
from rlbench.lab.page.board import for_page
from rlbench.lab.pictures.components import as_page, read_asset, tips_of
from rlbench.lab.page.looks import CONTROLS, BARE, LOOKS, checked_layout, keep_look, kept_looks, left_of, looks_file
from rlbench.lab.page.workbench import Workbench
from tests.test_workbench import SMALL, bench, part                # noqa: F401  bench is a fixture

CSS = read_asset("lab.css")


@pytest.fixture(autouse=True)
def own_looks(tmp_path, monkeypatch):
    monkeypatch.setenv("RLBENCH_CONFIG_DIR", str(tmp_path / "config"))


def seen(wb):
    return [card.view.name for card in wb.page.on_page()]


def hand(wb, **fields):
    "Arrange as the page does"
    as_page(wb.page.arrangement.board, plan=for_page(wb.page.arrangement.layout | fields))


# what has nothing to show

def test_what_has_nothing_to_show_is_not_there_until_it_has(bench):                     # noqa: F811
    wb = bench(**SMALL)
    assert {"update", "targets", "buffer", "hindsight", "pins"}.isdisjoint(seen(wb))
    wb.step("step")
    assert "buffer" in seen(wb) and "update" not in seen(wb)
    wb.step("update")
    assert {"update", "targets"} <= set(seen(wb)) and "pins" not in seen(wb)
    wb.pin(name="start")
    assert "pins" in seen(wb)
    wb.unpin()
    wb.reset()
    assert {"update", "targets", "buffer", "pins"}.isdisjoint(seen(wb)) and not wb.page.complaint


def test_a_card_that_is_opened_by_hand_is_there_without_anything_to_show(bench):        # noqa: F811
    wb = bench(**SMALL)
    as_page(part(wb, "show-hindsight"), value=True)
    assert "hindsight" in seen(wb) and "rl-away" not in part(wb, "view-hindsight")._dom_classes
    as_page(part(wb, "show-hindsight"), value=False)
    assert "hindsight" not in seen(wb)


def test_the_picture_for_the_file_holds_what_is_seen(bench):                            # noqa: F811
    wb = bench(**SMALL)
    wb.step("iteration")
    small = len(wb.arrange(cards=["curve"], others=False).image())
    assert small < len(wb.look("debug").image())


# looks

@pytest.mark.parametrize("look", LOOKS)
def test_a_look_can_be_put_on_and_taken_off(bench, look):                              # noqa: F811
    wb = bench(look=look, **SMALL)
    wb.step("iteration")
    at_first = wb.layout
    assert at_first["look"] == look and not wb.page.complaint
    for other in LOOKS: wb.look(other)
    assert wb.look(look).layout == at_first
    hidden = {name for name in CONTROLS if f"rl-no-{name}" in wb.page.widget._dom_classes}
    assert hidden == set(at_first["hidden"])


@pytest.mark.parametrize("algo", ["ppo", "dqn", "qlearning", "sac"])
def test_teaching_shows_few_things_that_are_there(bench, algo):                        # noqa: F811
    env = dict(qlearning="FrozenLake-v1", sac="Pendulum-v1").get(algo, "CartPole-v1")
    assert algo in REGISTRY
    wb = Workbench(env, algo, seed=0, driver="sync", look="teach")
    wb.step("step", 5)
    assert set(seen(wb)) <= {"frame", "values", "curve", "actions"} and len(seen(wb)) >= 3
    assert wb.layout["size"] > 1.2 and wb.layout["side"] == "shut"
    wb.show("speed", "buffer", "settings")
    assert "buffer" in wb.layout["cards"] and "settings" not in wb.layout["hidden"]
    wb.close()


def test_forks_are_compared_on_one_chart_and_the_same_scales(bench):                    # noqa: F811
    wb = bench(algo="dqn", look="compare", learning_starts=20, batch_size=8)
    assert "curve" in seen(wb)
    wb.step("step", 40)
    wb.beside("short sight", gamma=.1)
    wb.step("step", 60)
    assert seen(wb)[0] == "forks" and {"both-values", "both-actions", "gap"} <= set(seen(wb))
    assert {"curve", "values", "actions", "frame"}.isdisjoint(seen(wb))
    bars = next(card.view for card in wb.page.cards if card.view.name == "both-actions")
    assert len({view.limits for view in bars.views}) == 1
    third = wb.beside("third", gamma=.5)
    assert len(next(card.view for card in wb.page.cards if card.view.name == "both-actions").views) == 3
    wb.drop(third.name).drop("short sight")
    assert "curve" in seen(wb) and not wb.page.complaint


def test_twins_in_other_places_show_the_same_states_in_the_same_colours(bench):         # noqa: F811
    wb = bench(algo="dqn", look="compare", learning_starts=20, batch_size=8)
    wb.step("step", 100).switch(learning=False)
    wb.beside("greedy", epsilon=0.)
    wb.step("step", 30)
    assert (wb.trainer.obs["agent"] != wb.forks["greedy"].trainer.obs["agent"]).any()
    assert next(card for card in wb.page.cards if card.view.name == "gap").view.text() == "no difference"
    both = next(card.view for card in wb.page.cards if card.view.name == "both-values")
    as_page(both.views[0].plane.others.follow, value=False)
    slider = both.views[0].plane.others.sliders[3]
    for value in (slider.value, slider.max):
        as_page(slider, value=value)
        assert len({image.tobytes() for view in both.views for image, _ in view.picture.planes.values()}) == 1
        assert len({view.text() for view in both.views}) == 1


def test_the_ends_of_a_difference_are_told_by_their_colours(bench):                     # noqa: F811
    wb = bench(algo="dqn", look="compare", learning_starts=20, batch_size=8)
    wb.step("step", 30)
    wb.beside("short sight", gamma=.1)
    wb.step("step", 60)
    words = next(card for card in wb.page.cards if card.view.name == "gap").view.text()
    assert re.search("blue -.* … red ", words) and "dark" not in words and "bright" not in words


def test_scales_stay_equal_when_an_axis_is_changed_at_rest(bench):                      # noqa: F811
    wb = bench(algo="dqn", look="compare", learning_starts=20, batch_size=8)
    wb.step("step", 100)
    wb.beside("short sight", gamma=.1)
    wb.step("step", 200)
    both = next(card.view for card in wb.page.cards if card.view.name == "both-values")
    for place in (1, 3):
        as_page(both.views[0].picks[0], index=place)
        shown = [(view.axes, view.picture.range, view.picture.ax.xlim, view.picture.ax.xlabel) for view in both.views]
        assert shown[0] == shown[1]
        assert both.text().count("bright") == 2


@pytest.mark.parametrize("stored", [400, 8])      # the past is known, or the regret is counted from the fork on
def test_bandits_are_compared_by_what_they_lost(bench, stored):                         # noqa: F811
    wb = bench("rlbench/Bandit-v0", "bandit", look="compare", num_envs=4, buffer_size=stored)
    wb.step("step", 60)
    assert seen(wb) == ["bandit"]
    own = next(card.view for card in wb.page.cards if card.view.name == "bandit")
    wb.beside("greedy", epsilon=0.)
    wb.step("step", 100)
    assert seen(wb) == ["forks", "both-actions", "bandit"]
    both = next(card.view for card in wb.page.cards if card.view.name == "forks")
    told = both.told()
    steps, lost = told["run"]
    at, _, known, _ = own.pulls.tally.totals.T
    assert (steps[0] > 0) == (stored == 8)
    assert lost[-1] - lost[0] == pytest.approx((known[-1] - known[at == steps[0]][0]) / 4)
    assert told["greedy"][1][0] == pytest.approx(lost[0])
    assert "regret" in both.shown.svg and all(len(line.get_ydata()) > 9 for line in both.lines.values())
    wb.rewind(120)
    steps, later = both.told()["run"]
    assert steps[-1] <= wb.trainer.steps and later[-1] <= lost[-1] and not wb.page.complaint


def test_a_look_of_ones_own_is_there_for_the_next_workbench(bench):                    # noqa: F811
    wb = bench(**SMALL)
    wb.step("iteration")
    wb.arrange(cards=dict(buffer=2, curve=[1, 320]), others=False, size=1.2).hide("speed").keep_look("mine")
    again = bench(algo="dqn", look="mine")
    again.step("step", 3)
    assert seen(again) == ["buffer", "curve"] and again.layout["size"] == 1.2
    again.drop_look("mine")
    assert [*again.looks] == [*LOOKS]
    with pytest.raises(ValueError, match="unknown look 'mine'"):
        bench(look="mine")


def test_views_that_were_asked_for_are_there_in_any_look(bench):                        # noqa: F811
    wb = bench(views=["gradients", "curve"], **SMALL)
    wb.step("iteration")
    assert set(seen(wb)) == {"gradients", "curve"}


# by hand

def test_what_a_hand_does_on_the_page_is_the_kernels_and_the_browser_remembers(bench):  # noqa: F811
    wb = bench(**SMALL)
    wb.step("iteration")
    names = seen(wb)
    moved = [names[-1], *names[:-1]]
    hand(wb, cards={name: [1.5, 0] for name in moved})
    assert seen(wb) == moved and wb.layout["cards"][moved[0]] == [1.5, 0]
    board = wb.page.arrangement.board
    assert [name for name, *_ in board.kept["cards"]] == moved and board.kept["look"] == "explore"
    part(wb, "look-again").click()
    assert seen(wb) == names and board.kept == {}
    as_page(part(wb, "look"), index=1)
    assert wb.layout["look"] == "teach" and board.kept["look"] == "teach"


def test_who_opens_the_side_has_a_way_to_another_look(bench):                          # noqa: F811
    wb = bench(look="teach", **SMALL)
    hidden = wb.layout["hidden"]
    assert "looks" in hidden
    hand(wb, side="open")
    assert set(hidden) - set(wb.layout["hidden"]) == {"looks"} and "rl-no-looks" not in wb.page.widget._dom_classes
    wb.hide("looks")
    assert "looks" in wb.layout["hidden"]               # a script has its way
    hand(wb, size=1.1)
    assert "looks" in wb.layout["hidden"]
    wb.look("teach")
    as_page(wb.page.arrangement.board, brought=for_page(wb.layout) | dict(look="teach"))
    hand(wb, side="open")
    as_page(part(wb, "look"), index=0)
    assert wb.layout["look"] == "explore" and not wb.layout["hidden"]


def test_each_workbench_of_a_notebook_has_a_place_of_its_own_in_the_browsers_memory(bench, monkeypatch):    # noqa: F811
    def run(cell, by="cellId"):
        "Two workbenches and one of another algorithm, made by one run of a cell"
        told = dict(metadata=dict(cellId=cell)) if by == "cellId" else dict(content=dict(code=cell))
        made = run_of(told | dict(header=dict(msg_id=next(number))))
        return [wb.page.arrangement.board.label for wb in made]

    def run_of(asked):
        monkeypatch.setattr(board, "request_here", lambda: asked)
        return [bench(algo=algo, look="debug") for algo in ("dqn", "dqn", "a2c")]

    monkeypatch.setattr(board, "_made", {})
    monkeypatch.setattr(board, "_places", {})
    number = count(1)
    first, second = run("a"), run("b")
    assert len({*first, *second}) == 6
    assert (run("b"), run("a")) == (second, first)          # run again, in whatever order
    board._made.clear()
    board._places.clear()
    assert (run("c", "code"), run("d", "code")) == (first, second)      # reopened, in a host that tells no cells


def test_what_the_browser_brings_back_is_taken_as_far_as_it_goes(bench):                # noqa: F811
    wb = bench(**SMALL)
    wb.step("iteration")
    board = wb.page.arrangement.board
    as_page(board, brought=dict(look="gone", cards=[["radar", 1, 0], ["buffer", 2, 0]], away=["curve"], size=1.1))
    assert seen(wb)[0] == "buffer" and "curve" not in seen(wb) and wb.layout["size"] == 1.1
    as_page(board, brought=dict(look=3, cards="no", hidden=3))
    assert not wb.page.complaint and wb.layout["size"] == 1
    wb.look("debug")
    assert board.fresh is False


def test_a_hand_on_a_closed_page_is_told_so(bench):                                     # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.close()
    hand(wb, side="shut")
    assert "this workbench is closed" in wb.page.complaint.widget.value


def test_arranging_does_not_touch_the_run(bench):                                       # noqa: F811
    wb, alone = bench(**SMALL), bench(**SMALL)
    for one in (wb, alone): one.step("iteration")
    wb.look("teach").hide("play").arrange(side="open")
    hand(wb, size=1.5)
    assert wb.snippet() == alone.snippet()
    for one in (wb, alone): one.step("iteration")
    weights = [run.trainer.learner.nets.state_dict() for run in (wb, alone)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


def test_a_control_is_hidden_on_the_page_and_shown_again(bench):                        # noqa: F811
    wb = bench(**SMALL)
    menu = part(wb, "hide")
    assert menu.value == ""
    assert {name for _, name in menu.options} == {"", *CONTROLS}
    for hidden in (True, False):
        as_page(menu, index=[name for _, name in menu.options].index("speed"))
        assert ("speed" in wb.layout["hidden"]) == hidden and menu.value == ""
        assert ("rl-no-speed" in wb.page.widget._dom_classes) == hidden
        assert any(words.startswith("show speed" if hidden else "hide speed") for words, _ in menu.options)
        assert wb.page.arrangement.board.kept.get("hidden", []) == ["speed"] * hidden


def test_who_compares_one_run_alone_is_told_how_to_fork(bench):                        # noqa: F811
    wb = bench(look="compare", **SMALL)
    forks = part(wb, "forks-panel")
    told = part(wb, "fork-said").value
    assert "rl-gone" not in forks._dom_classes and "fork" in told and "wb.beside(lr=0.001)" in told
    wb.beside(lr=1e-3)
    assert "one run so far" not in part(wb, "fork-said").value
    wb.drop("lr=0.001")
    assert "one run so far" in part(wb, "fork-said").value
    wb.look("explore")
    assert "rl-gone" in forks._dom_classes


# refusals

WRONG = [
    (dict(away=["bufer"]), "did you mean 'buffer'"), (dict(hidden=["lern"]), "did you mean 'learn'"),
    (dict(hidden="learn"), "expected a list of names"), (dict(cards=dict(curve="wide")), "expected a width"),
    (dict(cards=dict(curve=[1, 2, 3])), "expected a width"), (dict(cards=dict(curve=[1, True])), "expected a width"),
    (dict(side="left"), "unknown side"), (dict(size=99), "from 0.7 to 2"), (dict(others="yes"), "True or False"),
    (dict(colums=2), "unknown field"),
]


@pytest.mark.parametrize("fields, words", WRONG)
def test_a_wrong_layout_is_refused_and_nothing_changes(bench, fields, words):           # noqa: F811
    wb = bench(views=["curve", "buffer"], **SMALL)
    before = wb.layout
    with pytest.raises(ValueError, match=words): wb.arrange(fields)
    assert wb.layout == before


def test_wrong_names_are_refused_with_the_nearest(bench):                               # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    refusals = [
        (wb.look, "tech", "did you mean 'teach'"), (wb.hide, "switchs", "did you mean 'switches'"),
        (wb.show, "curv", "did you mean 'curve'"), (wb.keep_look, "teach", "not one of explore"),
        (wb.keep_look, " ", "expected a name"), (wb.drop_look, "debug", "always there"),
        (wb.drop_look, "monday", "look of your own"), (wb.name_observations, ["a,b"], "without commas"),
        (wb.name_observations, ["a"], "numbers in a row: 4"), (wb.arrange, [1], "a layout is a dictionary"),
    ]
    for verb, given, words in refusals:
        with pytest.raises(ValueError, match=words): verb(given)


def test_a_broken_file_of_looks_is_said_and_stops_nobody(bench):                       # noqa: F811
    looks_file().parent.mkdir(parents=True)
    looks_file().write_text("[", "utf-8")
    wb = bench(views=["curve"], **SMALL)
    with pytest.raises(ValueError, match="not a file of looks"): wb.look("mine")
    part(wb, "look-name").value = "mine"
    part(wb, "look-keep").click()
    assert "not a file of looks" in part(wb, "look-said").value
    assert list(part(wb, "look").options) == [*LOOKS]


def test_looks_in_a_file_are_read_with_care():
    keep_look("mine", BARE | dict(hidden=["learn"]))
    file = json.loads(looks_file().read_text("utf-8"))
    looks_file().write_text(json.dumps(file | dict(odd=3)), "utf-8")
    assert left_of(kept_looks()["mine"], []) == BARE | dict(hidden=["learn"])
    assert left_of(kept_looks()["odd"], []) == BARE


# names that hang together

def test_every_control_has_a_line_in_the_style_sheet():
    for name in CONTROLS:
        assert re.search(rf"\.rl-no-{name} \S", CSS), name
    assert all(checked_layout(look, [*look["cards"], *look["away"]]) == look for look in LOOKS.values())


def test_no_control_has_the_name_of_a_card(bench):                                      # noqa: F811
    wb = bench(**SMALL)
    assert not CONTROLS.keys() & set(wb.page.known())


# tips and names, which the page hands out by class

def below(widget):
    "A widget and all below it"
    yield widget
    for child in getattr(widget, "children", ()): yield from below(child)


@pytest.mark.parametrize("env, algo", [("CartPole-v1", "dqn"), ("FrozenLake-v1", "qlearning"), ("Pendulum-v1", "sac")])
def test_every_control_is_told_its_own_tip_and_nobody_elses(bench, env, algo):          # noqa: F811
    wb = bench(env, algo, seed=0)
    wb.step("step", 3)
    wb.break_when("nan")
    wb.beside()
    tips = tips_of(wb.page.widget)
    for one in below(wb.page.widget):
        told = {tips[name] for name in one._dom_classes if name in tips}
        assert told == {one.tooltip} if getattr(one, "tooltip", None) else not told, one
    assert tips["rl-event"].startswith("events so far")


# observations by their names

def test_names_of_observations_reach_the_page_and_the_snippet(bench):                   # noqa: F811
    wb = bench(**SMALL)
    wb.step("iteration")
    wb.name_observations(["place (m)", "speed (m/s)", "lean (rad)", "turning (rad/s)"])
    assert "observation_names='place (m), speed (m/s), lean (rad), turning (rad/s)'" in wb.snippet()
    assert wb.reset().trainer.env.named.startswith("place (m)")
    assert not wb.page.complaint
