"Runs side by side: who keeps up with whom, and what becomes of them"
import pytest

from rlbench import Trainer, Workbench
from rlbench.algos.algorithm import algorithms
from rlbench.core.state import same
from tests.conftest import small

RUNS = [
    ("CartPole-v1", "dqn"),
    ("CartPole-v1", "recurrent_ppo"),
    ("Pendulum-v1", "sac"),
    ("FrozenLake-v1", "qlearning"),
    ("CartPole-v1", "stream_q"),
    ("rlbench/Pennies-v0", "ppo"),
]


def bench(env, algo, **settings):
    return Workbench(env, algo, driver="sync", views=[], seed=0, **small(algorithms()[algo]), **settings)


@pytest.mark.parametrize("env, algo", RUNS)
def test_a_twin_stays_the_same_to_the_bit(env, algo):
    wb = bench(env, algo)
    wb.step("event", 60)
    run = wb.beside("twin")
    wb.step("event", 200)
    assert run.pair.events == 200 and not run.pair.parted
    assert same(run.trainer.state(), wb.trainer.state())
    wb.close()


@pytest.mark.parametrize("env, algo", RUNS)
def test_looking_at_forks_changes_neither_run(env, algo):
    wb = Workbench(env, algo, driver="sync", seed=0, **small(algorithms()[algo]))
    wb.step("event", 60)
    alone = [wb.trainer.fork(), wb.trainer.fork(gamma=.5)]
    run = wb.beside(gamma=.5)
    wb.step("step", 20)
    alone[0].until("step", 20)
    assert same(wb.trainer.state(), alone[0].state())
    while (alone[1].steps, alone[1].updates) < (run.trainer.steps, run.trainer.updates):
        alone[1].advance()
    assert same(run.trainer.state(), alone[1].state())
    wb.close()


def test_the_better_one_is_gone_on_with_and_has_its_own_past():
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 5)
    wb.beside("bold", lr=.01)
    wb.step("update", 5)
    wb.go_on("bold")
    assert wb.trainer.learner.settings.lr == .01
    assert "trainer.set(lr=0.01)" in wb.snippet()
    there = wb.trainer.snapshot()
    wb.step("update", 3).rewind("update", -3)
    assert same(wb.trainer.snapshot(), there)
    space = {}
    exec(str(wb.snippet()), space)
    again, here = (trainer.state() | dict(config=None) for trainer in (space["trainer"], wb.trainer))
    assert same(again, here)                                # but for who said which setting
    wb.go_on("run")
    assert wb.trainer.learner.settings.lr != .01
    wb.close()


def test_a_trainer_that_was_given_is_nobody_elses_to_close():
    trainer = Trainer("CartPole-v1", "dqn", seed=0, learning_starts=10)
    wb = Workbench(trainer, driver="sync", views=[])
    wb.step("step", 20)
    wb.beside("other")
    wb.go_on("other")
    wb.drop("run")
    wb.close()
    trainer.run(10)
    assert not trainer.watchers


def test_what_is_started_again_has_no_forks():
    wb = bench("CartPole-v1", "dqn")
    wb.step("step", 20)
    run = wb.beside("other")
    wb.reset()
    assert not wb.forks.others and not run.trainer.watchers
    wb.close()


def test_a_fork_that_fails_stands_still_and_says_why():
    wb = bench("CartPole-v1", "dqn")
    wb.step("step", 20)
    run = wb.beside("other")

    def fail(trainer, event):
        raise RuntimeError("a cable broke")

    run.trainer.watchers.append(fail)
    wb.step("step", 5)
    assert "stands still: a cable broke" in repr(wb.forks)
    wb.close()


@pytest.mark.parametrize("wrong, words", [
    (lambda wb: wb.go_on("bald"), "did you mean 'bold'"),
    (lambda wb: wb.drop("run"), "'run' is the run in hand"),
    (lambda wb: wb.beside(gama=.5), "did you mean 'gamma'"),
    (lambda wb: wb.beside(hidden=[8]), "hidden"),
])
def test_refusals_say_what_would_do(wrong, words):
    wb = bench("CartPole-v1", "dqn")
    wb.step("step", 20).beside("bold")
    with pytest.raises(ValueError, match=words): wrong(wb)
    assert list(wb.forks.known) == ["run", "bold"]
    wb.close()
