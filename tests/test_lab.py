"The lab without a browser: the same messages as a page would send, pixels and traits as a page would show them"
import gc
import hashlib
import io
import threading
import time

import ipywidgets as widgets
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from PIL import Image

import rlbench
from rlbench.algos.algorithm import Algorithm, algorithms
from rlbench.core.state import same
from rlbench.envs.tabular import GridWorld
from rlbench.lab import player as players
from rlbench.lab.components import as_page, press
from rlbench.lab.drawing import short
from rlbench.lab.owner import Closed
from rlbench.lab.player import DRIVERS, Player
from rlbench.lab.workbench import VIEWS, Workbench
from rlbench.policies.distributions import SpaceProblem
from rlbench.training.trainer import Trainer
from tests.conftest import small

SMALL = dict(seed=0, num_envs=2, horizon=16, minibatches=2, epochs=2)


@pytest.fixture
def bench():
    "Makes workbenches and closes them"
    made = []
    def make(env="CartPole-v1", algo="ppo", driver="sync", **settings):
        made.append(Workbench(env, algo, driver=driver, **(settings if settings or algo != "ppo" else SMALL)))
        return made[-1]
    yield make
    for wb in made: wb.close()


def view(wb, name): return next(card.view for card in wb.screen.cards if card.view.name == name)
def find(widget, name):
    "The widget with a class, anywhere below"
    if name in getattr(widget, "_dom_classes", ()): return widget
    return next((hit for child in getattr(widget, "children", ()) if (hit := find(child, name))), None)
def pixels(image): return hashlib.sha1(np.asarray(Image.open(io.BytesIO(image.value)).convert("RGB")).tobytes()).hexdigest()
def workers(): return [t for t in threading.enumerate() if t.name == "rlbench player"]
def eventually(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(.005)


# drivers

def events_of(driver, seed):
    "Kinds and marks of everything that happened under the same orders"
    trainer, seen = Trainer("CartPole-v1", "ppo", **SMALL | dict(seed=seed)), []
    trainer.watchers.append(lambda trainer, event: seen.append((event.kind, event.marks, trainer.steps)))
    player = Player(trainer, driver)
    processed = lambda event: event.kind == "process"
    orders = [
        lambda: player.step("event"),
        lambda: player.step("step", 3),
        lambda: player.step("update", 2),
        lambda: player.step("iteration"),
        lambda: player.switch(learning=False),
        lambda: player.step("step", 40),
        lambda: player.switch(learning=True),
        lambda: player.set("lr", .01),
        lambda: player.step("episode", 2),
        lambda: player.until(processed),
    ]
    for order in orders:
        order()
        assert player.wait(30)
    player.close()
    return seen, trainer.state()


def test_equal_seeds_give_equal_events_under_every_driver():
    runs = {driver: events_of(driver, seed=5) for driver in DRIVERS}
    assert {kind for kind, *_ in runs["sync"][0]} == {"collect", "process", "learn"}
    for driver in DRIVERS:
        assert runs[driver][0] == runs["sync"][0], driver
        assert same(runs[driver][1], runs["sync"][1]), driver
    assert events_of("sync", seed=6)[0] != runs["sync"][0]


def test_the_player_adds_nothing_to_a_plain_loop():
    by_hand, played = (Trainer("CartPole-v1", "ppo", **SMALL) for _ in range(2))
    for _ in range(200): by_hand.advance()
    player = Player(played, "thread")
    player.step("event", 200).result(30)
    player.close()
    assert same(by_hand.state(), played.state())


def test_several_clicks_are_several_steps_however_fast_they_come():
    player, seen = Player(Trainer("CartPole-v1", "ppo", **SMALL), "thread"), []
    player.trainer.watchers.append(lambda trainer, event: seen.append(event.kind))
    promises = [player.step("step") for _ in range(25)]
    assert all(promise.result(20) for promise in promises)
    assert seen.count("collect") == 25 and seen[-1] == "collect"
    player.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_nothing_moves_after_a_pause(driver):
    player = Player(Trainer("CartPole-v1", "ppo", **SMALL), driver)
    player.play()
    if driver == "thread": eventually(lambda: player.count > 200)
    else: player.tick(.3)

    player.pause().result(20)
    assert player.wait(20) and player.state == "paused"
    before = player.look(lambda trainer: trainer.snapshot()).result(20)
    time.sleep(.2)
    assert same(before, player.trainer.state())
    player.close()


def test_a_step_while_playing_stops_after_it():
    player = Player(Trainer("CartPole-v1", "ppo", **SMALL), "thread")
    endless = player.play()
    assert player.step("update").result(20) and endless.result(5) is False
    assert player.wait(5) and "update" in player.event.marks
    player.close()


def test_callbacks_from_two_threads_are_all_heard():
    player, seen = Player(Trainer("CartPole-v1", "ppo", **SMALL), "thread"), []
    player.trainer.watchers.append(lambda trainer, event: seen.append(threading.current_thread().name))
    player.play()
    def hammer(values):
        for value in values:
            player.set("lr", value)
            player.switch(learning=value > .5)
            player.step("event")
            player.play()
            player.pause()
    hands = [threading.Thread(target=hammer, args=(np.linspace(a, .9, 100),)) for a in (.1, .2)]
    for hand in hands: hand.start()
    for hand in hands: hand.join()
    player.switch(learning=True).result(20)
    player.set("lr", .125).result(20)
    player.pause().result(20)
    assert player.step("event").result(20)
    assert player.wait(20) and player.state != "failed" and player.trainer.learner.algo.lr == .125
    assert set(seen) == {"rlbench player"}          # whoever asked, one thread did it
    player.close()


def test_pace_is_kept_and_can_be_left():
    player = Player(Trainer("CartPole-v1", "ppo", **SMALL), "thread")
    player.speed(50).result(5)
    player.play()
    time.sleep(1)
    assert 20 <= player.count <= 75
    player.speed(None).result(5)
    eventually(lambda: player.count > 500)
    player.close()


def test_a_slow_pace_does_not_make_a_pause_wait():
    player = Player(Trainer("CartPole-v1", "ppo", **SMALL), "thread")
    player.speed(.1).result(5)
    player.play()
    start = time.perf_counter()
    player.pause().result(5)
    assert player.wait(5) and time.perf_counter() - start < 1
    player.close()


def test_a_closed_player_says_so_and_breaks_its_promises():
    player = Player(Trainer("CartPole-v1", "ppo", **SMALL), "thread")
    promise = player.play()
    player.close()
    with pytest.raises(Closed, match="run its cell again"):
        player.step()
    assert isinstance(promise.exception(5), Closed) and not player.worker.is_alive()


def test_no_thread_stays():
    before = len(workers())
    made = [Player(Trainer("CartPole-v1", "ppo", **SMALL), "thread") for _ in range(3)]
    for player in made: player.play()
    assert len(workers()) == before + 3
    made[0].close()
    del made, player
    gc.collect()
    eventually(lambda: len(workers()) <= before)


def test_a_cell_that_runs_again_closes_what_it_made(monkeypatch, bench):
    cell = ["cell", "run 1"]
    monkeypatch.setattr("rlbench.lab.workbench.this_cell", lambda: tuple(cell))
    one = bench(driver="thread")
    two = bench(driver="thread")                    # another one in the same cell
    one.play()
    two.play()
    cell[1] = "run 2"
    three = bench(driver="thread")
    assert not one.player.worker.is_alive() and not two.player.worker.is_alive() and three.player.worker.is_alive()
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
    assert wb.controls.switches[0].value is False


# the page

def test_every_control_has_its_class_and_does_what_its_method_does(bench):
    one, two = bench(), bench()
    for unit in ("event", "step", "update", "episode", "iteration"):
        find(one.widget, f"rl-step-{unit}").click()
        two.step(unit)
        assert same(one.trainer.state(), two.trainer.state()), unit
    as_page(find(one.widget, "rl-learning"), value=False)
    assert one.trainer.learning is False
    as_page(find(one.widget, "rl-speed"), index=0)
    assert one.player.pace == 1
    for name in ("play", "pause", "reset", "save", "load", "collecting", "status", "error", "hp-gamma", "view-curve", "view-buffer", "show-curve", "path"): assert find(one.widget, f"rl-{name}"), name


def test_keys(bench):
    wb = bench()
    for key, name in (("step", "count"), ("update", "updates"), ("episode", "total"), ("iteration", "updates")):
        before = (wb.player.count, wb.trainer.updates, wb.trainer.episodes.total)
        press(wb.keys, key)
        assert (wb.player.count, wb.trainer.updates, wb.trainer.episodes.total) > before, (key, name)
    press(wb.keys, "reset")
    assert wb.trainer.steps == 0
    press(wb.keys, "play")
    assert wb.player.state == "playing"
    press(wb.keys, "play")
    assert wb.player.state == "paused"


def test_pictures_change_with_a_step_and_come_before_the_words(bench):
    wb = bench(lr=.05, **SMALL)                          # large enough for every bar to move by a pixel
    wb.step("iteration", 2)
    seen, before = [], {card.view.name: pixels(card.view.image) for card in wb.screen.cards if card.view.image.value}
    wb.status.widget.observe(lambda change: seen.append({card.view.name: pixels(card.view.image) for card in wb.screen.cards if card.view.image.value}), "value")
    wb.step("iteration")
    changed = {name for name in before if seen[-1][name] != before[name]}
    assert changed >= {"curve", "frame", "values", "actions", "update", "gradients"}
    assert seen[-1] == {card.view.name: pixels(card.view.image) for card in wb.screen.cards if card.view.image.value}


def test_looking_changes_nothing(bench):
    wb, alone = bench(), Trainer("CartPole-v1", "ppo", **SMALL)
    buffer, surface = view(wb, "buffer"), view(wb, "values")
    for i in range(12):
        wb.step("event", 9)
        for _ in range(9): alone.advance()
        as_page(buffer.table, order=("random", "TD error", "obs", "newest", "last", "row")[i % 6], draws=i)
        if buffer.table.ids: as_page(buffer.table, selected=buffer.table.ids[0], opened=i + 1)
        surface.picks[1].value = i % 4 if i % 4 != surface.picks[0].value else 3
        as_page(wb.keys, dark=i % 2 == 0)
        wb.image()
    assert same(alone.state(), wb.trainer.state()) and wb.error.value == ""


def test_a_closed_card_is_not_drawn(bench):
    wb = bench()
    curve, drawn = view(wb, "curve"), []
    curve.draw = lambda trainer, moving: drawn.append(moving)
    as_page(find(wb.widget, "rl-show-curve"), value=False)
    wb.step("step")
    assert drawn == [] and find(wb.widget, "rl-view-curve") is None
    as_page(find(wb.widget, "rl-show-curve"), value=True)
    assert drawn == [False] and find(wb.widget, "rl-view-curve")


def test_hyper_parameters_reach_the_trainer_between_events(bench):
    wb = bench()
    as_page(find(wb.widget, "rl-hp-gamma"), value="0.5")
    as_page(find(wb.widget, "rl-hp-lr"), value="linear(0.01, 0, 1000)")
    as_page(find(wb.widget, "rl-hp-normalise_adv"), value=False)
    algo = wb.trainer.learner.algo
    assert (algo.gamma, str(algo.lr), algo.normalise_adv) == (.5, "linear(0.01, 0, 1000)", False)
    assert wb.trainer.config.where("gamma") == "widget"
    field = next(field for field in wb.fields if field.setting.name == "gamma")
    for wrong in ("2", "much", ""):
        as_page(field.widget, value=wrong)
        assert "gamma" in field.problem.value and "from 0 to 1" in field.problem.value and field.problem.layout.display == ""
    assert wb.trainer.learner.algo.gamma == .5
    as_page(field.widget, value="0.75")
    assert (wb.trainer.learner.algo.gamma, field.problem.layout.display) == (.75, "none")
    wb.set(gamma=.25)
    assert field.widget.value == "0.25"
    assert find(wb.widget, "rl-hp-horizon") is None   # cannot change during a run
    fields = {f.setting.name for f in wb.fields}
    assert {name for name, setting in {s.name: s for s in rlbench.core.config.fields_of(type(algo))}.items() if setting.live} == fields


def test_an_error_in_the_loop_is_shown_and_stops_the_run(bench):
    wb = bench(driver="thread")
    def broken(trainer, event):
        if trainer.steps > 50: raise RuntimeError("<b>sensor</b> unplugged")
    wb.trainer.watchers.append(broken)
    wb.play()
    with pytest.raises(RuntimeError, match="unplugged"): wb.wait(20)
    assert wb.player.state == "failed" and wb.error.layout.display == ""
    assert "Traceback" in wb.error.value and "&lt;b&gt;sensor" in wb.error.value and "<b>sensor" not in wb.error.value
    assert "data-state='failed'" in wb.status.widget.value
    steps = wb.trainer.steps
    time.sleep(.1)
    assert wb.trainer.steps == steps and wb.player.worker.is_alive()
    wb.trainer.watchers.clear()
    wb.step("step")                                  # and it can go on
    assert wb.player.state == "paused" and wb.trainer.steps > steps
    wb.reset()
    assert wb.trainer.steps == 0


def test_a_view_that_fails_does_not_stop_the_run(bench):
    class Wrong(rlbench.lab.views.View):
        name = title = "wrong"
        def draw(self, trainer, moving): raise KeyError("no such thing")
    wb = Workbench("CartPole-v1", "ppo", driver="sync", views=["curve", Wrong], **SMALL)
    wb.step("step", 3)
    assert wb.player.state == "paused" and "wrong cannot be drawn" in wb.error.value and "no such thing" in wb.error.value
    wb.close()


def test_reset_repeats_the_run_and_a_file_continues_it(bench, tmp_path):
    wb = bench()
    wb.step("update", 5)
    first = wb.snapshot()
    wb.reset().step("update", 5)
    assert same(wb.snapshot(), first)
    find(wb.widget, "rl-path").value = str(tmp_path / "run.rlb")
    find(wb.widget, "rl-save").click()
    wb.step("iteration", 2)
    after = wb.snapshot()
    find(wb.widget, "rl-load").click()
    assert same(wb.snapshot(), first) and "mean_return" not in find(wb.widget, "rl-file-said").value
    wb.step("iteration", 2)
    assert same(wb.snapshot(), after)
    find(wb.widget, "rl-path").value = str(tmp_path / "nothing.rlb")
    find(wb.widget, "rl-load").click()
    assert "nothing.rlb" in find(wb.widget, "rl-file-said").value and same(wb.snapshot(), after)


def test_a_file_of_another_environment_brings_its_own_views(bench, tmp_path):
    Trainer("FrozenLake-v1", "qlearning", seed=0).run(steps=30).save(tmp_path / "lake.rlb")
    wb = bench()
    wb.load(tmp_path / "lake.rlb")
    assert (wb.trainer.env.id, wb.trainer.steps) == ("FrozenLake-v1", 30) and find(wb.widget, "rl-hp-eps") and find(wb.widget, "rl-grid-truth")
    wb.step("update")
    assert wb.error.value == ""


def test_the_snippet_runs_and_says_the_same(bench):
    wb = bench(algo="dqn", seed=4, start=50)
    wb.step("step", 60).set(eps="linear(1, 0.1, 500)", gamma=.9)
    scope, code = {}, wb.snippet()
    assert "rlbench.Trainer('CartPole-v1', 'dqn', seed=4" in repr(code)
    exec(code, scope)
    twin = scope["trainer"]
    assert (twin.learner.algo, twin.settings.seed, twin.env.num_envs, twin.steps) == (wb.trainer.learner.algo, 4, 1, 60)


def test_it_wraps_a_trainer_and_shows_what_stays(bench):
    trainer = Trainer("CartPole-v1", "ppo", **SMALL).run(steps=100)
    wb = Workbench(trainer, driver="sync")
    bundle = wb._repr_mimebundle_()
    assert wb.trainer is trainer and bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == wb.widget.model_id
    assert Image.open(io.BytesIO(bundle["image/png"])).format == "PNG" and len(bundle["image/png"]) < 60_000
    assert "CartPole-v1, ppo" in bundle["text/plain"]
    wb.close()


def test_the_theme_changes_every_picture(bench):
    wb = bench()
    wb.step("update")
    before = {card.view.name: pixels(card.view.image) for card in wb.screen.cards if card.view.image.value}
    as_page(wb.keys, dark=True)
    after = {card.view.name: pixels(card.view.image) for card in wb.screen.cards if card.view.image.value}
    assert {name for name in before if before[name] != after[name]} >= {"curve", "values", "actions", "update", "gradients"}
    corner = Image.open(io.BytesIO(view(wb, "curve").image.value)).getpixel((0, 0))
    assert max(corner) < 60


def test_less_motion_is_respected(bench):
    wb = bench()
    as_page(wb.keys, still=True)
    assert wb.screen.rate == 2.
    wb.reset()
    assert wb.screen.rate == 2.


def test_nothing_is_displayed_or_started_by_importing():
    assert issubclass(Workbench, object) and not any(t.name == "rlbench player" and not t.daemon for t in threading.enumerate())
    assert len({view.name for view in VIEWS}) == 11 and isinstance(widgets.Button(), widgets.Widget)


def test_at_most_ten_pictures_a_second(bench):
    wb = bench(driver="thread")
    times = {card.view.name: [] for card in wb.screen.cards}

    for card in wb.screen.cards:
        def counted(trainer, moving, draw=card.view.draw, seen=times[card.view.name]):
            seen.append((time.perf_counter(), moving))
            draw(trainer, moving)
        card.view.draw = counted

    def moved_twice(seen):
        return sum(moving for _, moving in seen) > 1

    wb.play()
    eventually(lambda: all(map(moved_twice, times.values())))
    wb.pause()
    for name, seen in times.items():
        moments = [at for at, moving in seen if moving]
        assert (np.diff(moments) > .099).all(), name
    assert {seen[-1][1] for seen in times.values()} == {False}     # and one good one at rest


def test_a_broken_screen_does_not_take_the_worker_with_it(bench):
    wb = bench(driver="thread")
    wb.status.show = lambda owner, moving: 1 / 0
    with pytest.raises(ZeroDivisionError): wb.step("step")
    assert wb.player.worker.is_alive() and wb.player.state == "failed"
    del wb.status.show
    wb.step("step")
    assert wb.player.state == "paused"
