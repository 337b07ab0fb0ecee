"What was opened is closed: by hand, when it is forgotten, when something fails, and at the end of Python"
import gc
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from rlbench.envs.env import EnvProblem
from rlbench.envs.native import NativeVec
from rlbench.envs.find import make
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer, load

SMALL = dict(num_envs=2, n_steps=4, batch_size=4, n_epochs=1)


class Simulator(gym.Env):
    "As one that runs at the other end of a line: it is there until it is closed"
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)
    running = set()

    def __init__(self):
        self.running.add(id(self))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, act):
        return np.zeros(2, np.float32), 1., False, False, {}

    def close(self):
        self.running.remove(id(self))       # KeyError: closed twice


def one_pole():
    return gym.make("CartPole-v1")


@pytest.fixture
def running():
    "How many simulators run"
    def count():
        gc.collect()
        return len(Simulator.running)

    Simulator.running.clear()
    yield count
    assert count() == 0


def test_forks_and_evaluations_end_what_they_began(running):
    with_three = Trainer(Simulator, "ppo", **SMALL)         # two, and one to ask
    assert running() == 3
    fork = with_three.fork()
    assert running() == 6
    fork.close()
    fork.close()
    assert running() == 3
    evaluate(with_three, episodes=2, longest=3)
    assert running() == 3
    fork = with_three.fork(gamma=.5)
    del fork                                                # forgotten is closed as well
    assert running() == 3
    del with_three


@pytest.mark.filterwarnings("ignore::rlbench.training.trainer.CannotGoBack")
def test_copies_that_a_run_goes_back_by_open_and_close_nothing(running):
    class Counting(Simulator):
        steps = 0

        def step(self, act):
            self.steps += 1
            return np.zeros(2, np.float32), self.steps, False, False, {}

    trainer = Trainer(Counting, "ppo", **SMALL).run(steps=8)
    assert trainer.env.ways == ("copy",)
    there = trainer.snapshot()
    fork = trainer.fork()
    trainer.restore(there)
    fork.restore(there)
    assert running() == 6
    fork.close()
    assert running() == 3
    trainer.run(steps=8)
    trainer.close()
    assert running() == 0


@pytest.mark.parametrize("wrong", [
    lambda trainer, path: trainer.fork(gama=.5),
    lambda trainer, path: Trainer(Simulator, "qlearning"),
    lambda trainer, path: Trainer(Simulator, "ppo", device="cuda:77"),
    lambda trainer, path: evaluate(trainer, longest=0),
    lambda trainer, path: load(path, env=one_pole),
])
def test_what_fails_leaves_nothing_running(running, tmp_path, wrong):
    trainer = Trainer(Simulator, "ppo", **SMALL)
    trainer.save(tmp_path / "run.rlb")
    with pytest.raises(Exception):
        wrong(trainer, tmp_path / "run.rlb")
    assert running() == 3
    del trainer


def test_an_environment_that_cannot_be_made_a_second_time_leaves_nothing_running(running):
    made = []

    def scarce():
        if len(made) == 4: raise RuntimeError("no licence left")
        made.append(1)
        return Simulator()

    with pytest.raises(RuntimeError):
        make(scarce, 3)


def test_a_function_that_gives_the_same_environment_again_is_refused():
    only = gym.make("CartPole-v1")
    with pytest.raises(EnvProblem, match="the same environment again"):
        make(lambda: only, 2)


AT_EXIT = """
import tests.test_closing as there
from rlbench.training.trainer import Trainer
begin = there.Simulator.__init__
there.Simulator.__init__ = lambda self: (print("opened"), begin(self))[1]
there.Simulator.close = lambda self: print("closed")
trainer = Trainer(there.Simulator, "dqn")
print("the end of the script")
"""


def test_the_end_of_python_closes_what_is_open():
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=True)
    before, after = done.stdout.split("the end of the script")
    assert done.stdout.count("opened") == done.stdout.count("closed")
    assert (after.split(), done.stderr) == (["closed"] * 2, "")     # the trainer's, and the one to ask


def poles():
    "Two poles in processes of their own"
    return NativeVec("poles", gym.make("CartPole-v1"), gym.vector.AsyncVectorEnv([one_pole] * 2))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_of_a_vector_outlive_what_others_tried_with_it():
    given = poles()
    workers = list(given.env.processes)
    with pytest.warns(UserWarning, match="poles cannot be put back into an episode: its attribute"):
        trainer = Trainer(given, "ppo", n_steps=4, batch_size=4)
    for attempt in (trainer.fork, trainer.fresh, lambda: evaluate(trainer, episodes=2)):
        with pytest.raises(EnvProblem, match="pass a function that makes it"):
            attempt()
    gc.collect()
    trainer.run(steps=8)                                    # no copy has taken its lines away
    trainer.close()
    assert all(worker.is_alive() for worker in workers)     # they are not the trainer's
    given.close()
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_function_may_make_a_vector():
    trainer = Trainer(poles, "ppo", n_steps=4, batch_size=4)
    workers = trainer.env.env.unwrapped.processes
    assert trainer.run(steps=8).env.num_envs == 2
    assert len(evaluate(trainer, episodes=4, longest=50).returns) == 4
    assert all(worker.is_alive() for worker in workers)
    trainer.close()
    assert not any(worker.is_alive() for worker in workers)


def test_a_vector_that_is_given_is_copied_for_forks_and_evaluation():
    given = make("CartPole-v1", 2)
    trainer = Trainer(given, "ppo", n_steps=4, batch_size=4).run(steps=8)
    before = given.state()
    fork = trainer.fork()
    fork.run(steps=8)
    assert len(evaluate(trainer, episodes=5).returns) == 6  # three in each of two
    assert given.env is not fork.env.env and given.state()["counts"]["steps"] == before["counts"]["steps"]
    fork.close()
    trainer.run(steps=8)
    trainer.close()

