"The workbench without a browser: the same messages as a page would send, pixels and traits as a page would show them"
import gc
import hashlib
import io
import re
import threading
import time
import weakref

import comm
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from ipywidgets import Layout, Style
from ipywidgets.widgets.widget import _instances
from PIL import Image

from rlbench.core.settings import fields_of
from rlbench.core.state import same
from rlbench.lab.time import player as players
from rlbench.lab.pictures.components import Pane, as_page, is_revealed, press
from rlbench.lab.views.views import View
from rlbench.lab.page.workbench import Workbench
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer
from tests.test_player import SMALL, eventually


@pytest.fixture
def bench():
    "Makes workbenches and closes them"
    made = []

    def make(env="CartPole-v1", algo="ppo", driver="sync", **settings):
        if isinstance(env, Trainer): algo = None
        elif algo == "ppo" and not settings: settings = SMALL
        made.append(Workbench(env, algo, driver=driver, **settings))
        return made[-1]

    yield make
    for wb in made: wb.close()


def hunt(**more):
    "A chaser that learns, and a runner that only acts"
    trained = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), seed=0, num_envs=2)
    cast = dict(chaser="dqn", runner=trained.actors["runner"])
    return Trainer("rlbench/Chase-v0", cast, **dict(seed=0, num_envs=2, learning_starts=20, batch_size=8) | more)


def view(wb, name):
    return next(card.view for card in wb.page.cards if card.view.name == name)


def names(wb):
    return {card.view.name for card in wb.page.cards}


def find(widget, name):
    "The widget with a class, anywhere below; None if there is none"
    if name in getattr(widget, "_dom_classes", ()): return widget
    for child in getattr(widget, "children", ()):
        hit = find(child, name)
        if hit is not None: return hit


def part(wb, name):
    "A widget of the page by its class"
    return find(wb.page.widget, f"rl-{name}")


def is_hidden(line):
    return not is_revealed(line)


def seen_of(image):
    "What the page shows of a picture: its SVG, or a hash of its pixels"
    if isinstance(image, Pane): return image.sent
    picture = Image.open(io.BytesIO(image.value)).convert("RGB")
    return hashlib.sha1(np.asarray(picture).tobytes()).hexdigest()


def has_picture(card):
    "Whether there is anything to see on a card but words and tables"
    image = card.view.image
    return bool(image.sent if isinstance(image, Pane) else image.value)


def shown(wb):
    "{view: what the page shows of its picture}"
    return {card.view.name: seen_of(card.view.image) for card in wb.page.cards if has_picture(card)}


# what is opened is closed

def held():
    "How many widgets are held for a page, but for the layouts and styles that all pages share"
    gc.collect()
    return sum(not isinstance(one, (Layout, Style)) for one in _instances.values())


def test_resets_loads_and_closing_leave_no_widgets_and_no_trainers(bench, tmp_path):
    before = held()
    wb = bench("FrozenLake-v1", "qlearning", views=["values", "actions", "buffer", "targets"])
    begun = held()
    first = weakref.ref(wb.trainer)
    wb.step("step", 3).save(tmp_path / "run.rlb")
    for _ in range(2): wb.reset().load(tmp_path / "run.rlb")
    assert (held(), first()) == (begun, None)
    wb.close()
    assert held() == before


def test_a_page_is_few_messages(bench, monkeypatch):
    "Between kernel and page is a queue of a thousand, and what is beyond it is lost: one closed, one opened, and room"
    sent = []
    monkeypatch.setattr(comm.DummyComm, "publish_msg", lambda self, kind, **told: sent.append(kind))
    wb = bench("CartPole-v1", "dqn")
    wb._repr_mimebundle_()
    opened = sent.count("comm_open")
    assert 200 < opened < 450
    assert len(sent) < opened + 200                 # all that a part has become is in the message that opens it
    wb.close()
    assert len(sent) < 1000


@pytest.mark.parametrize("env, algo", [("CartPole-v1", "ppo"), ("MountainCar-v0", "dqn"), ("Pendulum-v1", "sac")])
def test_sliders_and_menus_that_nobody_saw_are_closed_too(bench, env, algo):
    before = held()
    bench(env, algo).close()
    assert held() == before


def test_the_menu_of_behaviours_is_closed_with_its_page(bench, tmp_path):
    before = held()
    wb = bench(hunt(), views=["curve"])
    for who in ("runner", "chaser"): wb.look_at(who)
    begun = held()                      # both have been shown, and their histories are kept
    for who in ("runner", "chaser", "runner", "chaser"): wb.look_at(who)
    assert held() == begun
    wb.close()
    assert held() == before


class Counted(CartPoleEnv):
    "Counts how many of it are open"
    open = set()

    def __init__(self, **settings):
        super().__init__(**settings)
        self.open.add(id(self))

    def close(self):
        self.open.discard(id(self))


def test_a_workbench_closes_the_environments_that_it_opened_and_no_other(bench):
    given = Trainer(Counted, "dqn")                 # one, and one to ask
    mine = set(Counted.open)
    wb = bench(given)
    other = wb.fork()
    assert len(Counted.open) == 4
    other.close()
    wb.reset()
    assert Counted.open == mine                     # the same ones, at their start
    for _ in range(2): wb.player.replace(lambda old: old.fresh()).result()
    assert mine < Counted.open and len(Counted.open) == 4
    wb.close()
    assert Counted.open == mine
    given.run(steps=5)


def test_what_is_closed_can_still_be_looked_at(bench, capsys):
    wb = bench(views=["curve"])
    wb.close()
    wb.close()
    assert sorted(wb._repr_mimebundle_()) == ["image/png", "text/plain"]
    wb._ipython_display_()
    assert "Closed" in repr(wb)


# drivers

def test_a_cell_that_runs_again_closes_what_it_made(monkeypatch, bench):
    cell = ["cell", "run 1"]
    monkeypatch.setattr("rlbench.lab.page.workbench.this_cell", lambda: tuple(cell))
    one = bench(driver="thread")
    two = bench(driver="thread")                    # another one in the same cell
    one.play()
    two.play()
    cell[1] = "run 2"
    three = bench(driver="thread")
    alive = [wb.player.worker.is_alive() for wb in (one, two, three)]
    assert alive == [False, False, True]
    players._cells.pop("cell")


def test_learning_without_collecting_and_collecting_without_learning(bench):
    wb = bench()
    wb.switch(learning=False).step("step", 50)
    assert (wb.trainer.updates, wb.player.count) == (0, 50)
    wb.switch(collecting=False, learning=True)
    steps = wb.trainer.steps
    wb.play().wait(20)
    assert (wb.player.state, wb.trainer.steps) == ("done", steps)
    assert wb.trainer.updates == 4                  # what was owed, and no more
    with pytest.raises(ValueError, match="no step will come while collecting is switched off"):
        wb.step("step")
    assert part(wb, "collecting").value is False


# the page

PARTS = ["play", "pause", "reset", "save", "load", "collecting", "status", "error", "hp-gamma", "view-curve",
         "view-buffer", "show-curve", "path"]


def test_every_control_has_its_class_and_does_what_its_method_does(bench):
    one = bench()
    two = bench()
    for unit in ("event", "step", "update", "episode", "iteration"):
        part(one, f"step-{unit}").click()
        two.step(unit)
        assert same(one.trainer.state(), two.trainer.state()), unit
    as_page(part(one, "learning"), value=False)
    assert one.trainer.learning is False
    as_page(part(one, "speed"), index=0)
    assert one.player.pace == 1
    for name in PARTS:
        assert part(one, name) is not None, name
    assert part(one, "who") is None                 # nobody to choose from


def test_keys(bench):
    wb = bench()
    for key in ("step", "update", "episode", "iteration"):
        before = wb.player.count, wb.trainer.updates, wb.trainer.episodes.total
        press(wb.page.keys, key)
        assert (wb.player.count, wb.trainer.updates, wb.trainer.episodes.total) > before, key
    press(wb.page.keys, "reset")
    assert wb.trainer.steps == 0
    press(wb.page.keys, "play")
    assert wb.player.state == "playing"
    press(wb.page.keys, "play")
    assert wb.player.state == "paused"


ALWAYS = {"curve", "evaluations", "frame", "values", "update", "parts", "targets", "buffer", "pins", "hindsight"}
DEEP = ALWAYS | {"actions", "gradients"}
TABLE = ALWAYS | {"actions", "backup", "lengths"}
CASES = [
    ("CartPole-v1", "ppo", DEEP | {"policy_map", "unit"}),
    ("CartPole-v1", "dqn", DEEP | {"policy_map"}),
    ("Pendulum-v1", "ppo", DEEP - {"actions"} | {"policy_map", "density", "unit"}),
    ("FrozenLake-v1", "qlearning", TABLE | {"visits"}),
    ("Taxi-v4", "qlearning", TABLE),
    ("rlbench/CliffWalk-v0", "dqn", DEEP | {"lengths", "visits"}),
    ("rlbench/FourRooms-v0", "ppo", DEEP | {"lengths", "visits", "unit"})]


@pytest.mark.parametrize("env, algo, expected", CASES)
def test_views_follow_from_what_there_is_and_none_fails(bench, env, algo, expected):
    settings = dict(ppo=dict(n_steps=16, num_envs=2), dqn=dict(learning_starts=50)).get(algo, {})
    wb = bench(env, algo, seed=0, **settings)
    wb.step("update", 3)
    assert names(wb) == expected
    assert [card.broken for card in wb.page.cards if card.broken] == [] and not wb.page.complaint
    assert len(wb.image()) < 60_000


def test_pictures_change_with_a_step_and_come_before_the_words(bench):
    wb = bench(lr=.05, look="debug", **SMALL)       # large enough for every bar to move by a pixel
    wb.step("iteration", 2)
    seen = []
    before = shown(wb)
    wb.page.status.widget.observe(lambda change: seen.append(shown(wb)), "value")
    wb.step("iteration")
    changed = {name for name in before if seen[-1][name] != before[name]}
    assert changed >= {"curve", "frame", "values", "actions", "update", "gradients"}
    assert seen[-1] == shown(wb)


def test_looking_changes_nothing(bench):
    wb = bench()
    alone = Trainer("CartPole-v1", "ppo", **SMALL)
    buffer = view(wb, "buffer")
    surface = view(wb, "values")
    for i in range(12):
        wb.step("event", 9)
        for _ in range(9): alone.advance()

        order = ("random", "TD error", "obs", "newest", "last", "row")[i % 6]
        as_page(buffer.table, order=order, draws=i)
        if buffer.table.ids:
            as_page(buffer.table, selected=buffer.table.ids[0], opened=i + 1)
        other = i % 4
        surface.picks[1].value = 3 if other == surface.picks[0].value else other
        as_page(wb.page.keys, dark=i % 2 == 0)
        wb.image()
        wb.snippet()
    assert same(alone.state(), wb.trainer.state()) and not wb.page.complaint


def test_a_closed_card_is_not_drawn(bench):
    wb = bench()
    drawn = []
    view(wb, "curve").draw = lambda trainer, moving: drawn.append(moving)
    as_page(part(wb, "show-curve"), value=False)
    wb.step("step")
    assert drawn == [] and "rl-away" in part(wb, "view-curve")._dom_classes
    as_page(part(wb, "show-curve"), value=True)
    assert drawn == [False] and "rl-away" not in part(wb, "view-curve")._dom_classes


def field_of(wb, name):
    return next(field for field in wb.page.settings[0].fields if field.setting.name == name)


def test_hyper_parameters_reach_the_trainer_between_events(bench):
    wb = bench()
    as_page(part(wb, "hp-gamma"), value="0.5")
    as_page(part(wb, "hp-lr"), value="linear(0.01, 0, 1000)")
    as_page(part(wb, "hp-normalize_advantage"), value=False)
    settings = wb.trainer.learner.settings
    assert (settings.gamma, str(settings.lr), settings.normalize_advantage) == (.5, "linear(0.01, 0, 1000)", False)
    assert wb.trainer.config.where("gamma") == "widget"
    field = field_of(wb, "gamma")
    for wrong in ("2", "much", ""):
        as_page(field.widget, value=wrong)
        said = field.problem.value
        assert "gamma" in said and "from 0 to 1" in said and not is_hidden(field.problem)
    assert wb.trainer.learner.algo.gamma == .5
    as_page(field.widget, value="0.75")
    assert wb.trainer.learner.algo.gamma == .75 and is_hidden(field.problem)
    wb.set(gamma=.25)
    assert field.widget.value == "0.25"


def test_there_is_a_field_for_all_that_may_change_and_for_nothing_else(bench):
    wb = bench()
    live = {setting.name for setting in fields_of(type(wb.trainer.learner.settings)) if setting.live}
    assert {field.setting.name for field in wb.page.settings[0].fields} == live
    assert part(wb, "hp-n_steps") is None            # cannot change during a run


def test_a_row_is_closed_when_others_have_taken_its_number(bench):
    wb = bench(algo="dqn", seed=0, learning_starts=50)
    wb.step("step", 60)
    buffer = view(wb, "buffer")
    as_page(buffer.table, selected=58, opened=1)
    wb.step("step", 1)
    assert is_revealed(buffer.transition.widget) and buffer.table.selected == 58
    wb.delete("age < 5")
    assert not is_revealed(buffer.transition.widget) and buffer.table.selected == -1


def test_a_row_opens_its_transition(bench):
    wb = bench(algo="dqn", seed=0, learning_starts=50)
    wb.step("step", 60)
    buffer = view(wb, "buffer")
    memory = wb.trainer.learner.memory
    assert buffer.table.total == 60 and buffer.table.ids[0] == 59
    as_page(buffer.table, start=8)
    assert buffer.table.ids[0] == 51
    as_page(buffer.table, order="obs", down=True, start=0)
    assert buffer.table.ids[0] == memory.rows.obs[:60, 0, 0].argmax()

    row = buffer.table.ids[2]
    as_page(buffer.table, selected=row, opened=1)
    words = buffer.transition.words.value
    assert f"row</th><td>{row}, of environment 0" in words and "TD error" in words
    assert f"{memory.rows.obs[row, 0, 0]:.3g}" in words
    assert all(frame.html.startswith("<svg") for frame in buffer.transition.frames)

    wb.reset()
    assert view(wb, "buffer").table.total == 0
    as_page(view(wb, "buffer").table, selected=7, opened=1)
    assert "row 7 is not held" in wb.page.complaint.widget.value


def test_an_error_in_the_loop_is_shown_and_stops_the_run(bench):
    wb = bench(driver="thread")

    def broken(trainer, event):
        if trainer.steps > 50: raise RuntimeError("<b>sensor</b> unplugged")

    wb.trainer.watchers.append(broken)
    wb.play()
    with pytest.raises(RuntimeError, match="unplugged"):
        wb.wait(20)
    said = wb.page.complaint.widget
    assert wb.player.state == "failed" and not is_hidden(said)
    assert "Traceback" in said.value and "&lt;b&gt;sensor" in said.value and "<b>sensor" not in said.value
    assert "data-state='failed'" in wb.page.status.widget.value
    steps = wb.trainer.steps
    time.sleep(.1)
    assert wb.trainer.steps == steps and wb.player.worker.is_alive()
    wb.trainer.watchers.clear()
    wb.step("step")                                  # and it can go on
    assert wb.player.state == "paused" and wb.trainer.steps > steps
    wb.reset()
    assert wb.trainer.steps == 0


def test_a_view_that_fails_does_not_stop_the_run(bench):
    class Wrong(View):
        name = title = "wrong"
        def draw(self, trainer, moving):
            raise KeyError("no such thing")

    wb = bench(views=["curve", Wrong], **SMALL)
    wb.step("step", 3)
    said = wb.page.complaint.widget.value
    assert wb.player.state == "paused" and "wrong cannot be drawn" in said and "no such thing" in said


def test_reset_repeats_the_run_and_a_file_continues_it(bench, tmp_path):
    wb = bench()
    wb.step("update", 5)
    first = wb.snapshot()
    wb.reset().step("update", 5)
    assert same(wb.snapshot(), first)
    part(wb, "path").value = str(tmp_path / "run.rlb")
    part(wb, "save").click()
    wb.step("iteration", 2)
    after = wb.snapshot()
    part(wb, "load").click()
    assert same(wb.snapshot(), first) and "loaded" in part(wb, "file-said").value
    wb.step("iteration", 2)
    assert same(wb.snapshot(), after)
    part(wb, "path").value = str(tmp_path / "nothing.rlb")
    part(wb, "load").click()
    assert "nothing.rlb" in part(wb, "file-said").value and same(wb.snapshot(), after)


def test_a_file_of_another_environment_brings_its_own_views(bench, tmp_path):
    Trainer("FrozenLake-v1", "qlearning", seed=0).run(steps=30).save(tmp_path / "lake.rlb")
    wb = bench()
    wb.load(tmp_path / "lake.rlb")
    assert (wb.trainer.env.id, wb.trainer.steps) == ("FrozenLake-v1", 30)
    assert part(wb, "hp-epsilon") and part(wb, "grid-truth")
    wb.step("update")
    assert not wb.page.complaint


# orders without a button

@pytest.mark.parametrize("algo, settings", [("ppo", SMALL), ("dqn", dict(seed=0, learning_starts=20, num_envs=2))])
def test_rewinding_is_exact_and_the_views_forget_the_future(bench, algo, settings):
    wb = bench(algo=algo, **settings)
    wb.step("step", 60)
    here = wb.snapshot()
    curve = len(view(wb, "curve").returns.points)
    wb.step("event", 400)
    ahead = wb.snapshot()
    assert len(view(wb, "curve").returns.points) > curve
    wb.rewind(here)
    assert same(wb.snapshot(), here) and len(view(wb, "curve").returns.points) <= curve and not wb.page.complaint
    wb.step("event", 400)
    assert same(wb.snapshot(), ahead)


def test_a_fork_goes_its_own_way_and_leaves_the_other_alone(bench):
    wb = bench()
    wb.step("iteration")
    here = wb.snapshot()
    twin = wb.fork(gamma=.5)
    twin.step("iteration", 2)
    assert same(wb.snapshot(), here)
    assert (twin.trainer.learner.algo.gamma, wb.trainer.learner.algo.gamma) == (.5, .99)
    twin.close()


def test_memory_surgery(bench):
    wb = bench(algo="dqn", seed=0, learning_starts=20)
    wb.step("step", 30).edit(7, rew=10., term=True)
    cells = wb.call(lambda trainer: trainer.learner.memory.gather(np.array(7)))
    assert (float(cells.rew), bool(cells.term)) == (10., True)
    with pytest.raises(ValueError, match="row 30 is not held"):
        wb.edit(30, rew=1.)
    with pytest.raises(ValueError, match="did you mean 'rew'"):
        wb.edit(7, rev=1.)


def test_taking_over_by_hand(bench):
    wb = bench(algo="dqn", seed=0, learning_starts=20, num_envs=2)
    alone = Trainer("CartPole-v1", "dqn", seed=0, learning_starts=20, num_envs=2)
    wb.step("step", 40)
    alone.until("step", 40)
    for act in (0, 0, 1):
        alone.until("step")
        wb.act(act)
        newest = wb.trainer.learner.memory.newest(1).ravel()
        assert wb.trainer.learner.memory.gather(newest).act[0] == act
    assert wb.trainer.steps == alone.steps                 # a step by hand is a step
    with pytest.raises(ValueError, match="action 2: expected one of"):
        wb.act(2)
    assert type(wb.trainer.actors["agent"]).__name__ == "Actor"
    assert wb.step("update").player.state == "paused"


def test_taking_over_by_the_name_of_an_action(bench):
    wb = bench("rlbench/CliffWalk-v0", "qlearning", views=["buffer"])
    assert wb.act("up").trainer.obs["agent"].tolist() == [24]
    with pytest.raises(ValueError, match="did you mean 'right'"):
        wb.act("rigth")


def test_taking_over_where_actions_are_numbers_in_a_box(bench):
    wb = bench("Pendulum-v1", "sac", seed=0)
    wb.act([1.5])
    assert wb.trainer.learner.memory.places.act[0].tolist() == [1.5]
    for wrong in ([9.], [0., 0.], "left"):
        with pytest.raises(ValueError, match="expected one of Box"):
            wb.act(wrong)
    wb.switch(collecting=False)
    with pytest.raises(ValueError, match="no step will come while collecting is switched off"):
        wb.act([0.])


def test_who_learns_only_from_its_own_actions_is_not_overruled(bench):
    wb = bench()
    before = wb.snapshot()
    with pytest.raises(ValueError, match="ppo learns only from actions that its own policy chose"):
        wb.act(1)
    assert same(wb.snapshot(), before)
    watched = bench(Trainer("CartPole-v1", wb.trainer.actors["agent"], seed=0, num_envs=2))
    watched.act(1).act(0)
    assert watched.trainer.steps == 4


def test_breakpoints(bench):
    wb = bench(driver="thread")
    wb.until(lambda event: event.kind == "learn" and float(event.data.ratio.max()) > 1.02)
    assert wb.player.state == "paused" and float(wb.trainer.learner.last.parts.ratio.max()) > 1.02
    wb.until(lambda event: any(episode.length > 20 for episode in event.ended))
    assert max(episode.length for episode in wb.player.event.ended) > 20


def test_evaluating_changes_nothing(bench):
    wb = bench()
    before = wb.step("iteration").snapshot()
    found = wb.evaluate(episodes=5)
    assert same(wb.snapshot(), before)
    assert (found.returns == evaluate(wb.trainer, episodes=5).returns).all()


def test_the_snippet_runs_and_says_the_same(bench):
    wb = bench(algo="dqn", seed=4, learning_starts=50)
    wb.step("step", 60).set(epsilon="linear(1, 0.1, 500)", gamma=.9)
    scope = {}
    code = wb.snippet()
    assert "rlbench.Trainer('CartPole-v1', 'dqn', seed=4" in repr(code)
    exec(code, scope)
    twin = scope["trainer"]
    assert twin.learner.settings == wb.trainer.learner.settings
    assert (twin.settings.seed, twin.env.num_envs, twin.steps) == (4, 1, 60)


def test_it_wraps_a_trainer_and_shows_what_stays(bench):
    trainer = Trainer("CartPole-v1", "ppo", **SMALL).run(steps=100)
    wb = bench(trainer)
    bundle = wb._repr_mimebundle_()
    model = bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert wb.trainer is trainer and model == wb.page.widget.model_id
    assert Image.open(io.BytesIO(bundle["image/png"])).format == "PNG" and len(bundle["image/png"]) < 60_000
    assert "CartPole-v1, ppo" in bundle["text/plain"]


# several behaviours

def test_one_behaviour_is_shown_at_a_time(bench):
    wb = bench(hunt())
    wb.step("update", 3)
    assert {"buffer", "update", "gradients"} <= names(wb) and part(wb, "hp-epsilon")
    as_page(part(wb, "who"), index=1)
    assert wb.page.choice.who == "runner" and not {"buffer", "update", "gradients", "targets"} & names(wb)
    assert part(wb, "hp") is None and part(wb, "files")
    assert "in memory" not in wb.page.status.widget.value
    wb.step("event", 40)
    assert not wb.page.complaint and [card for card in wb.page.cards if card.broken] == []
    wb.look_at("chaser")
    assert "buffer" in names(wb) and "in memory" in wb.page.status.widget.value
    assert {card.view.who for card in wb.page.cards} == {"chaser"}


def two_learn(bench, **more):
    "A chaser and a runner, who both learn"
    cast = dict(chaser="dqn", runner="ppo")
    return bench("rlbench/Chase-v0", cast, seed=0, num_envs=2, n_steps=8, learning_starts=8, batch_size=8, **more)


def since(wb):
    "From which update on the history of parts is told"
    return int(view(wb, "parts").text().split()[1])


@pytest.mark.parametrize("views", [None, ["parts", "curve"]])
def test_histories_of_those_who_are_not_shown_go_on(bench, views):
    wb = two_learn(bench, views=views)
    wb.step("iteration", 6)
    curve, began = view(wb, "curve"), since(wb)
    wb.look_at("runner")
    assert since(wb) < wb.trainer.updates and view(wb, "curve") is not curve
    wb.step("iteration", 4).step("episode")
    wb.look_at("chaser")
    assert since(wb) == began and view(wb, "curve") is curve
    reads = [row[0] for row in view(wb, "parts").stories.told("loss")]
    assert len(reads) > 6 and "last episode" in curve.text()
    wb.reset().step(lambda event: event.kind == "learn" and event.who == "runner")
    wb.look_at("runner")
    assert since(wb) == wb.trainer.updates and view(wb, "curve").returns.points == []


def test_whoever_is_shown_nothing_stays_when_it_is_closed(bench):
    before = held()
    wb = two_learn(bench, views=["parts", "curve"])
    wb.look_at("runner")
    wb.step("step", 3)
    wb.look_at("chaser")
    cards = wb.page.held
    assert {card.view.who for card in cards} == {"chaser", "runner"}
    wb.reset()
    assert wb.page.held == cards
    wb.close()
    assert held() <= before


def test_a_verdict_says_whose_it_is(bench):
    wb = two_learn(bench, views=["curve"])
    wb.step("step", 3)
    part(wb, "judge").click()
    assert "chaser: greedy" in part(wb, "judged").value
    assert [flag.words[:14] for flag in wb.timeline.branch.flags] == ["chaser: greedy"]
    wb.look_at("runner")
    assert "chaser: greedy" in part(wb, "judged").value
    part(wb, "judge").click()
    assert "runner: greedy" in part(wb, "judged").value


def test_whose_update_comes_next_is_said_where_several_learn(bench):
    wb = two_learn(bench, views=["curve"])
    wb.step("iteration", 3)
    while not wb.trainer.owed: wb.step()
    who = [name for name, learner in wb.trainer.learners.items() if learner.todo or learner.ready][0]
    assert f"Next: {who}&#x27;s " in wb.page.status.widget.value
    wb.step("update")
    for one in [one for one in wb.trainer.learners.values() if one.todo or one.ready][:1]:
        assert f"Next: {one.name}&#x27;s " in wb.page.status.widget.value


def test_settings_on_the_page_are_those_of_who_is_shown(bench):
    wb = bench("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), seed=0, num_envs=2, n_steps=16)
    wb.look_at("runner")
    as_page(part(wb, "hp-gamma"), value="0.5")
    gammas = {who: learner.algo.gamma for who, learner in wb.trainer.learners.items()}
    assert gammas == dict(chaser=.99, runner=.5)
    assert wb.trainer.config.where("runner.gamma") == "widget"


def test_the_choice_outlives_a_reset(bench):
    wb = bench(hunt())
    wb.look_at("runner")
    wb.step("step", 5).reset()
    assert wb.page.choice.who == "runner" and part(wb, "who").value == "runner"


def test_several_behaviours_are_asked_for_by_name(bench):
    wb = bench(hunt())
    wb.step("step", 30)
    with pytest.raises(ValueError, match="which behaviour"):
        wb.act(1)
    wb.act(1, who="chaser").edit(0, who="chaser", rew=5.)
    assert wb.trainer.learners["chaser"].memory.places.rew[0] == 5
    assert set(wb.evaluate(episodes=2)) == {"chaser", "runner"}


def test_the_snippet_of_two_behaviours(bench):
    cast = dict(chaser="dqn", runner="ppo")
    wb = bench("rlbench/Chase-v0", cast, seed=3, num_envs=2, n_steps=16, **{"chaser.lr": .002})
    wb.step("step", 30)
    scope = {}
    exec(wb.snippet(), scope)
    twin = scope["trainer"]
    for who, learner in wb.trainer.learners.items():
        assert twin.learners[who].settings == learner.settings


# looks

FIXED = re.compile(r'(?:fill|stroke)="(?!none|var|white|black)[^"]*"')


def test_the_theme_changes_every_picture(bench):
    "On the page by the style sheet, so that nothing must be drawn anew; in the file by the painter"
    wb = bench(look="debug")
    wb.step("update")
    before = shown(wb)
    light = wb.image()
    assert {name for name, svg in before.items() if "var(--rl-" in svg} >= {"curve", "values", "actions", "update"}
    for name in ("curve", "actions", "update", "gradients"):
        assert not FIXED.search(before[name]), name     # no colour that would not follow the theme
    as_page(wb.page.keys, dark=True)
    assert shown(wb) == before
    assert max(Image.open(io.BytesIO(wb.image())).convert("RGB").getpixel((0, 0))) < 60
    assert min(Image.open(io.BytesIO(light)).convert("RGB").getpixel((0, 0))) > 200
    assert max(view(wb, "curve").tile().getpixel((0, 0))) < 60


def test_less_motion_is_respected(bench):
    wb = bench()
    as_page(wb.page.keys, still=True)
    assert wb.page.rate == 2.
    wb.reset()
    assert wb.page.rate == 2.


def test_nothing_is_started_by_importing():
    assert not any(thread.name == "rlbench player" and not thread.daemon for thread in threading.enumerate())


def count_pictures(card, seen):
    "Note when a card's view is drawn, and whether while moving"
    draw = card.view.draw

    def counted(trainer, moving):
        seen.append((time.perf_counter(), moving))
        draw(trainer, moving)

    card.view.draw = counted


def test_at_most_ten_pictures_a_second(bench):
    wb = bench(driver="thread", look="debug")
    times = {card.view.name: [] for card in wb.page.cards}
    for card in wb.page.cards:
        count_pictures(card, times[card.view.name])

    def moved_twice(seen):
        return sum(moving for _, moving in seen) > 1

    wb.play()
    eventually(lambda: all(map(moved_twice, times.values())), seconds=90)     # drawing has a small share of the time
    wb.pause()
    for name, seen in times.items():
        moments = [at for at, moving in seen if moving]
        assert (np.diff(moments) > .099).all(), name
    assert {seen[-1][1] for seen in times.values()} == {False}     # and one good one at rest


def test_a_broken_screen_does_not_take_the_worker_with_it(bench):
    wb = bench(driver="thread")
    wb.page.status.show = lambda owner, moving, who: 1 / 0
    with pytest.raises(ZeroDivisionError):
        wb.step("step")
    assert wb.player.worker.is_alive() and wb.player.state == "failed"
    del wb.page.status.show
    wb.step("step")
    assert wb.player.state == "paused"


@pytest.mark.parametrize("verb", ["evaluate", "value_against_return"])
def test_what_is_played_without_end_is_given_up_when_the_workbench_is_closed(bench, verb):
    wb = bench(driver="thread")
    found = []
    asking = threading.Thread(target=lambda: found.append(getattr(wb, verb)(episodes=10**12)))
    asking.start()
    time.sleep(.3)
    wb.close()
    asking.join(20)
    assert found == [None]


@pytest.mark.parametrize("verb", ["evaluate", "value_against_return"])
def test_what_is_played_without_end_is_given_up_by_whoever_interrupts_its_cell(bench, monkeypatch, verb):
    wb = bench(driver="thread")

    def interrupted(future):
        time.sleep(.3)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(wb, "waited", interrupted)
        with pytest.raises(KeyboardInterrupt):
            getattr(wb, verb)(episodes=10**12)
    assert wb.step("step").trainer.steps and not wb.evaluations["greedy"]


def test_an_evaluation_that_was_given_up_leaves_the_page_as_it_was(bench):
    wb = bench()
    wb.step("iteration").show("evaluations")
    assert wb.evaluate(episodes=5, most=3) is None
    wb.step("step")
    assert not wb.page.complaint and not wb.timeline.branch.flags


def test_of_stacked_frames_only_what_a_row_is_made_of_can_be_written(bench):
    wb = bench("MinAtar/Breakout-v1", "dqn", env_settings=dict(frame_stack=3), seed=0, learning_starts=40)
    wb.step("step", 60)
    before = wb.snapshot()
    for name in ("depth", "tail"):
        with pytest.raises(ValueError, match=f"unknown column '{name}'") as problem:
            wb.edit("age >= 0", **{name: 0})
        assert "There are: act, rew" in str(problem.value)
    with pytest.raises(ValueError, match="each stacked frame is kept once"):
        wb.edit(3, obs=wb.trainer.obs["agent"][0])
    assert same(wb.snapshot(), before)
    assert wb.edit(3, rew=2.).trainer.learner.memory.gather(np.array([3])).rew.tolist() == [2]


@pytest.mark.parametrize("algo, settings", [("ppo", SMALL), ("dqn", dict(buffer_size=8, learning_starts=8))])
def test_a_row_that_came_later_was_not_in_the_last_update(bench, algo, settings):
    wb = bench(algo=algo, **dict(seed=0) | settings)
    wb.step("update", 3)
    while wb.trainer.owed: wb.step("update")
    wb.step("step")
    row = int(wb.rows("age == 0 and env == 0").numbers[0])
    last = wb.trainer.learner.last.batch.index
    facts = dict(wb.why_drawn(row, since=0).facts)
    assert facts["used"].startswith("0 times") and "last update" not in facts
    assert row in last.numpy()                            # by its number


def test_a_planner_learns_from_no_rows(bench):
    wb = bench("rlbench/CliffWalk-v0", "value_iteration").step("step", 3)
    assert "plans with a model, and learns from no rows" in repr(wb.why_drawn(0))


def test_an_observation_with_parts_of_unlike_shapes_is_placed(bench):
    parts = gym.spaces.Tuple((gym.spaces.Box(0, 1, (1,)), gym.spaces.MultiBinary(2)))

    class Parts(gym.Env):
        observation_space = gym.spaces.Dict(a=gym.spaces.Box(-1, 1, (2,)), t=parts)
        action_space = gym.spaces.Discrete(2)

        def seen(self):
            return dict(a=self.a, t=(np.abs(self.a[:1]), np.array([1, 0], np.int8)))

        def reset(self, *, seed=None, options=None):
            self.a = np.zeros(2, np.float32)
            return self.seen(), {}

        def step(self, act):
            return self.seen(), 1., False, False, {}

        def place(self, obs):
            self.a = np.float32(obs["a"])

    wb = bench(Parts, "dqn", seed=0).step("step", 3)
    obs = dict(a=np.float32([.5, .25]), t=(np.float32([.5]), np.array([1, 0], np.int8)))
    wb.place(obs=obs)
    assert "trainer.place({'a': [0.5, 0.25], 't': ([0.5], [1, 0])})" in wb.script()
    again = Trainer(Parts, "dqn", seed=0)
    again.until("step", 3)
    again.place({'a': [0.5, 0.25], 't': ([0.5], [1, 0])})
    assert same(again.snapshot()["env"], wb.trainer.snapshot()["env"])
