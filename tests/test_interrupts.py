"Ctrl-C and errors may come at any moment; a run is whole afterwards, or says that it is not"
import signal

import gymnasium as gym
import pytest
import torch

import rlbench
from rlbench.core.state import same
from rlbench.training.rule import BrokenOff
from rlbench.training.trainer import Trainer

SMALL = dict(num_envs=2, n_steps=8, batch_size=8, n_epochs=2)


class Struck(gym.Wrapper):
    "CartPole in whose k-th step, counted over all copies, something happens"
    count = 0
    at = 41                 # in the first of two environments, so that the second has not moved

    def step(self, action):
        Struck.count += 1
        if Struck.count == self.at: self.strike()
        return super().step(action)


class Signalled(Struck):
    def strike(self):
        signal.raise_signal(signal.SIGINT)


class Failing(Struck):
    def strike(self):
        raise TimeoutError("the simulator does not answer")


def made(kind):
    "A trainer in a world of this kind"
    Struck.count = -1_000_000       # how it can be put back is tried out first
    trainer = Trainer(lambda: kind(gym.make("CartPole-v1")), "ppo", **SMALL)
    Struck.count = 0
    return trainer


def calm(steps):
    "The same run, in which nothing happens, after some steps"
    trainer = Trainer(lambda: gym.make("CartPole-v1"), "ppo", **SMALL)
    while trainer.steps < steps or trainer.owed: trainer.advance()
    return trainer


def iterate(trainer):
    for _ in trainer: pass


def workbench(trainer):
    rlbench.Workbench(trainer, driver="sync").until(lambda event: False)


def run(trainer):
    trainer.run(steps=200)


def until(trainer):
    trainer.until("step", 100)


WAYS = dict(run=run, until=until, iterate=iterate, workbench=workbench)


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_waits_for_the_end_of_the_event(way, tmp_path):
    trainer = made(Signalled)
    with pytest.raises(KeyboardInterrupt):
        WAYS[way](trainer)
    assert trainer.steps == 42                              # both environments have moved
    trainer.save(tmp_path / "here.rlb")
    again = rlbench.load(tmp_path / "here.rlb", env=lambda: gym.make("CartPole-v1"))
    for one in (trainer, again):
        while one.steps < 96 or one.owed: one.advance()
        assert same(one.state(), calm(96).state())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_ctrl_c_does_not_wait():
    trainer = made(Signalled)
    inner = trainer.env.envs[1]
    while not isinstance(inner, Signalled): inner = inner.env
    inner.at = 42
    with pytest.raises(KeyboardInterrupt):
        trainer.run(steps=200)
    assert trainer.steps == 40
    with pytest.raises(BrokenOff): trainer.advance()


@pytest.mark.parametrize("way", WAYS)
def test_an_error_inside_an_event_is_not_hidden(way, tmp_path):
    trainer = made(Failing)
    trainer.run(steps=32)
    there = trainer.snapshot()
    with pytest.raises(TimeoutError):
        WAYS[way](trainer)
    for refused in (trainer.advance, trainer.snapshot, trainer.fork, lambda: trainer.save(tmp_path / "x.rlb")):
        with pytest.raises(BrokenOff, match="did not come to its end"):
            refused()
    assert not list(tmp_path.iterdir())
    trainer.restore(there)
    while trainer.steps < 96 or trainer.owed: trainer.advance()
    assert same(trainer.state(), calm(96).state())


def test_a_watcher_that_raises_leaves_the_run_at_an_event():
    trainer = made(Failing)
    def watch(trainer, event): raise ValueError("enough")
    trainer.watchers.append(watch)
    with pytest.raises(ValueError, match="enough"): trainer.advance()
    trainer.watchers.clear()
    while trainer.steps < 32 or trainer.owed: trainer.advance()
    assert same(trainer.state(), calm(32).state())


@pytest.mark.parametrize("algo", ["ppo", "dqn", "stream_q", "trpo", "r2d2"])
@pytest.mark.parametrize("traced", [False, True])
def test_learns_where_gradients_were_left_switched_off(algo, traced):
    as_ever = Trainer("CartPole-v1", algo, traced=traced)
    as_ever.until("update", 2)
    trainer = Trainer("CartPole-v1", algo, traced=traced)
    with torch.no_grad():                                   # as Ctrl-C in its last line leaves them
        trainer.until("update", 2)
        assert not torch.is_grad_enabled()
    assert same(trainer.state(), as_ever.state())
