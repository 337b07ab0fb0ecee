"""Exact resume: interrupted after any event, saved, loaded in a new process and continued = never interrupted, bit for bit."""
import subprocess
import sys
import zlib

import numpy as np
import pytest

import rlbench.envs.tabular  # noqa: F401
from rlbench.algos.algorithm import algorithms
from rlbench.core.state import load as load_file, same
from rlbench.envs.env import EnvProblem, make
from rlbench.training.trainer import Trainer, load
from tests.conftest import small

CASES = [("bandit", "rlbench/Bandit-v0", 3), ("qlearning", "FrozenLake-v1", 1), ("qlearning", "rlbench/CliffWalk-v0", 3), ("monte_carlo", "FrozenLake-v1", 2),
         ("td", "FrozenLake-v1", 2), ("double_q", "rlbench/CliffWalk-v0", 3), ("dyna", "rlbench/BlockingMaze-v0", 2), ("prioritised_sweeping", "rlbench/DynaMaze-v0", 1),
         ("linear_sarsa", "MountainCar-v0", 1), ("dqn", "CartPole-v1", 1), ("dqn", "FrozenLake-v1", 2), ("dqn", "LunarLander-v3", 1),
         ("ppo", "CartPole-v1", 4), ("ppo", "Pendulum-v1", 2), ("ppo", "rlbench/FourRooms-v0", 2), ("ppo", "LunarLander-v3", 2),
         ("ppo", "rlbench/Forbidden-v0", 2), ("ppo", "rlbench/SideAndForce-v0", 2), ("recurrent_ppo", "rlbench/StatelessCartPole-v0", 2), ("reinforce", "CartPole-v1", 2)]

CONTINUE = """
import sys, torch
torch.set_num_threads(1)
import rlbench
from rlbench.training.trainer import load
for source, target, events in zip(*[iter(sys.argv[1:])] * 3):
    trainer = load(source)
    for _ in range(int(events)): trainer.advance()
    trainer.save(target)
"""


@pytest.mark.parametrize("algo,env,num_envs", CASES)
def test_a_new_process_continues_to_the_bit(algo, env, num_envs, tmp_path):
    rng, jobs, ahead = np.random.default_rng(zlib.crc32(f"{algo} {env}".encode())), [], 25
    trainer = Trainer(env, algo, num_envs=num_envs, **small(algorithms()[algo]))
    trainer.until("update")
    kinds = set()
    for k in range(5):  # five random places; PPO's 4 updates in an iteration make places inside an epoch likely, asserted below
        for _ in range(rng.integers(3, 30)):
            trainer.advance()
        kinds.add("owed" if trainer.learner.todo else "free")
        trainer.save(tmp_path / f"{k}.rlb")
        for _ in range(ahead):
            trainer.advance()
        jobs += [tmp_path / f"{k}.rlb", tmp_path / f"{k}.out.rlb", ahead]
        trainer.save(tmp_path / f"{k}.want.rlb")
    trainer.until("update")
    if trainer.learner.todo:  # in the middle of an epoch, for certain
        trainer.save(tmp_path / "mid.rlb")
        for _ in range(ahead):
            trainer.advance()
        trainer.save(tmp_path / "mid.want.rlb")
        jobs += [tmp_path / "mid.rlb", tmp_path / "mid.out.rlb", ahead]
    subprocess.run([sys.executable, "-c", CONTINUE, *map(str, jobs)], check=True, timeout=120)
    for want in tmp_path.glob("*.want.rlb"):
        got = load_file(want.with_name(want.name.replace("want", "out")), "checkpoint")
        assert same(load_file(want, "checkpoint"), got), want.name


def test_between_a_step_and_its_update(tmp_path):
    trainer = Trainer("CartPole-v1", "dqn", **small(algorithms()["dqn"]))
    trainer.until(lambda event: event.kind == "process")
    assert len(trainer.learner.todo) == 1  # the step is taken, its update is owed
    trainer.save(tmp_path / "a.rlb")
    twin = load(tmp_path / "a.rlb")
    for t in (trainer, twin):
        t.run(steps=30)
    assert same(trainer.state(), twin.state())


def test_metrics_and_streams_are_part_of_it(tmp_path):
    whole = Trainer("CartPole-v1", "ppo", **small(algorithms()["ppo"])).run(steps=1000)
    half = Trainer("CartPole-v1", "ppo", **small(algorithms()["ppo"])).run(steps=500)
    half.save(tmp_path / "half.rlb")
    half = load(tmp_path / "half.rlb").run(steps=1000 - half.steps)
    assert same(whole.metrics.rows, half.metrics.rows) and len(whole.metrics.rows) >= 15
    assert same(whole.state(), half.state())


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "rlbench/CliffWalk-v0", "LunarLander-v3", "Acrobot-v1", "MountainCar-v0", "Taxi-v4"])
@pytest.mark.parametrize("native", [True, False])
def test_environments_are_put_back(id, native):
    env, other, rng = make(id, 3, native=native), make(id, 3, native=native), np.random.default_rng(0)
    env.reset(1), other.reset(2)
    env.action_space.seed(0)
    act = lambda: np.stack([env.action_space.sample() for _ in range(3)])
    for _ in range(rng.integers(20, 120)):
        env.step(act())
    other.restore(env.state())
    for _ in range(60):
        a = act()
        for x, y in zip(env.step(a), other.step(a)):
            np.testing.assert_array_equal(x, y)


def test_an_environment_that_is_not_reproducible_says_so_by_name():
    import gymnasium as gym

    class Sloppy(gym.Env):
        observation_space, action_space = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Discrete(2)
        def reset(self, seed=None, options=None): return np.zeros(1, np.float32), {}
        def step(self, act): return np.random.randn(1).astype(np.float32), 0., False, False, {}

    trainer = Trainer(Sloppy, "dqn", **small(algorithms()["dqn"]))
    trainer.run(steps=5)
    with pytest.raises(EnvProblem, match="Sloppy is not reproducible"):
        trainer.restore(trainer.snapshot())
