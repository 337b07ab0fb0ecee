"The player: three drivers and one sequence of events, orders from anywhere, and threads that end"
import gc
import math
import threading
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from rlbench.algos.qlearning import QLearning
from rlbench.core.state import same
from rlbench.lab.hands.hands import Hands
from rlbench.lab.time.owner import Closed
from rlbench.lab.time.player import DRIVERS, Player
from rlbench.training.trainer import Trainer

SMALL = dict(seed=0, num_envs=2, n_steps=16, batch_size=16, n_epochs=2)


def short_run(**more):
    "PPO on the pole with four updates in an iteration"
    return Trainer("CartPole-v1", "ppo", **SMALL | more)


def workers():
    return [thread for thread in threading.enumerate() if thread.name == "rlbench player"]


def eventually(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(.005)


def events_of(driver, trainer):
    "Kinds and marks of everything that happened under the same orders"
    seen = []

    def note(trainer, event):
        seen.append((event.kind, event.who, event.marks, trainer.steps))

    def is_processing(event):
        return event.kind == "process"

    trainer.watchers.append(note)
    player = Player(trainer, driver)
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
        lambda: player.until(is_processing),
    ]
    for order in orders:
        order()
        assert player.wait(30)
    player.close()
    return seen, trainer.state()


def test_equal_seeds_give_equal_events_under_every_driver():
    runs = {driver: events_of(driver, short_run(seed=5)) for driver in DRIVERS}
    assert {kind for kind, *_ in runs["sync"][0]} == {"collect", "process", "learn"}
    for driver in DRIVERS:
        assert runs[driver][0] == runs["sync"][0], driver
        assert same(runs[driver][1], runs["sync"][1]), driver
    assert events_of("sync", short_run(seed=6))[0] != runs["sync"][0]


def test_two_behaviours_under_every_driver():
    def hunt():
        cast = dict(chaser="dqn", runner="ppo")
        own = {"chaser.learning_starts": 20, "runner.n_steps": 16, "runner.batch_size": 16}
        return Trainer("rlbench/Chase-v0", cast, seed=0, num_envs=2, **own)

    runs = {driver: events_of(driver, hunt()) for driver in DRIVERS}
    assert {who for kind, who, *_ in runs["sync"][0] if kind == "learn"} == {"chaser", "runner"}
    for driver in DRIVERS:
        assert runs[driver][0] == runs["sync"][0], driver
        assert same(runs[driver][1], runs["sync"][1]), driver


def test_the_player_adds_nothing_to_a_plain_loop():
    by_hand = short_run()
    played = short_run()
    for _ in range(200):
        by_hand.advance()
    player = Player(played, "thread")
    player.step("event", 200).result(30)
    player.close()
    assert same(by_hand.state(), played.state())


def test_several_clicks_are_several_steps_however_fast_they_come():
    seen = []
    player = Player(short_run(), "thread")
    player.trainer.watchers.append(lambda trainer, event: seen.append(event.kind))
    promises = [player.step("step") for _ in range(25)]
    assert all(promise.result(20) for promise in promises)
    assert seen.count("collect") == 25 and seen[-1] == "collect"
    player.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_nothing_moves_after_a_pause(driver):
    player = Player(short_run(), driver)
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
    player = Player(short_run(), "thread")
    endless = player.play()
    assert player.step("update").result(20) and endless.result(5) is False
    assert player.wait(5) and "update" in player.event.marks
    player.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_goal_that_cannot_come_is_refused(driver):
    player = Player(short_run(), driver)
    player.switch(learning=False)
    with pytest.raises(ValueError, match="no update will come while learning is switched off"):
        player.step("update").result(20)
    player.switch(learning=True)
    assert player.wait(20) and player.state == "idle"
    player.close()


@dataclass(frozen=True)
class Settling(QLearning):
    "Has learned enough after ten steps"
    def due(self, memory, own, fresh):
        settled = len(memory) >= 10 and not fresh.any()
        return math.inf if settled else super().due(memory, own, fresh)


@pytest.mark.parametrize("driver", DRIVERS)
def test_who_waits_for_an_update_of_a_settled_run_does_not_wait_for_ever(driver):
    player = Player(Trainer("FrozenLake-v1", Settling(), seed=0), driver)
    promise = player.step("update", 99)
    assert player.wait(20) and promise.result(20) is False
    assert (player.state, player.trainer.updates) == ("done", 10)
    with pytest.raises(ValueError, match="nothing more will be learned"):
        player.step("iteration").result(20)
    assert player.step("step", 3).result(20) and player.trainer.steps == 13
    player.close()


def test_callbacks_from_two_threads_are_all_heard():
    seen = []
    player = Player(short_run(), "thread")
    player.trainer.watchers.append(lambda trainer, event: seen.append(threading.current_thread().name))
    player.play()

    def hammer(values):
        for value in values:
            player.set("lr", value)
            player.switch(learning=value > .5)
            player.step("event")
            player.play()
            player.pause()

    hands = [threading.Thread(target=hammer, args=(np.linspace(start, .9, 100),)) for start in (.1, .2)]
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
    player = Player(short_run(), "thread")
    player.speed(50).result(5)
    player.play()
    time.sleep(1)
    assert 20 <= player.count <= 75
    player.speed(None).result(5)
    eventually(lambda: player.count > 500)
    player.close()


def test_a_slow_pace_does_not_make_a_pause_wait():
    player = Player(short_run(), "thread")
    player.speed(.1).result(5)
    player.play()
    start = time.perf_counter()
    player.pause().result(5)
    assert player.wait(5) and time.perf_counter() - start < 1
    player.close()


def test_a_closed_player_says_so_and_breaks_its_promises():
    player = Player(short_run(), "thread")
    promise = player.play()
    player.close()
    with pytest.raises(Closed, match="run its cell again"):
        player.step()
    assert isinstance(promise.exception(5), Closed) and not player.worker.is_alive()


def test_no_thread_stays():
    before = len(workers())
    made = [Player(short_run(), "thread") for _ in range(3)]
    for player in made: player.play()
    assert len(workers()) == before + 3
    made[0].close()
    del made, player
    gc.collect()
    eventually(lambda: len(workers()) <= before)


def pins_and_no(w, trainer, event):
    "A condition that asks the workbench for something"
    w.pin(row=0)
    return False


def looks_on(w):
    "A watcher that asks the workbench for something"
    w.trainer.watchers.append(lambda trainer, event: w.snapshot())
    w.step("event", 3)


def breaks(w):
    w.break_when(partial(pins_and_no, w))
    w.step("event", 5)


INSIDE = dict(
    until=lambda w: w.until(partial(pins_and_no, w, w.trainer)),
    breaks=breaks, looks_on=looks_on)
for verb in ("step", "play", "wait", "pause", "snapshot"):
    INSIDE[verb] = lambda w, verb=verb: w.call(partial(asks, w, verb))


def asks(w, verb, trainer):
    getattr(w, verb)()


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("how", INSIDE)
def test_who_is_called_by_the_run_cannot_wait_for_it(how, driver):
    w = Hands(Player(Trainer("CartPole-v1", "dqn", seed=0, learning_starts=10), driver=driver))
    w.player.step("event", 3)
    assert w.wait(20)
    found = []

    def ask():
        try: INSIDE[how](w)
        except ValueError as problem:
            found.append(str(problem))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(30)
    assert not asking.is_alive() and len(found) == 1 and "cannot wait for the run" in found[0]
    assert not w.player.mail and not w.player.goals
    w.player.stops.drop(None)
    w.trainer.watchers = [one for one in w.trainer.watchers if "lambda" not in repr(one)]
    w.player.step("event", 2)
    assert w.wait(20) and not w.pins
    w.player.close()
