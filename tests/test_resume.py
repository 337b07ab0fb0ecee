"Interrupted after any event, saved, loaded in a new process and continued = never interrupted, to the bit"
import subprocess
import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest

from rlbench.algos.algorithm import REGISTRY, algorithms, register
from rlbench.algos.dqn import DQN
from rlbench.core.spaces import AGENT
from rlbench.core.state import FileProblem, read_tree, same
from rlbench.envs.env import EnvProblem
from rlbench.envs.find import make
from rlbench.training.trainer import Trainer, load
from tests.cases import CASES, Case, differs
from tests.conftest import small

FURTHER = [     # worlds with something of their own to put back
    ("qlearning", "FrozenLake-v1", 3),
    ("dqn", "FrozenLake-v1", 2),
    ("dqn", "LunarLander-v3", 1),
    ("ppo", "LunarLander-v3", 2),
    ("sac", "BipedalWalker-v3", 2),
    ("ppo", "rlbench/FourRooms-v0", 2),
    ("ppo", "rlbench/Forbidden-v0", 2),
    ("ppo", "rlbench/SideAndForce-v0", 2),
    ("sac", "rlbench/Probe-Targets-v0", 3),
    ("sac", "rlbench/SideAndForce-v0", 2),
    ("sac", "rlbench/Forbidden-v0", 2),
    ("bandit", "rlbench/Bandit-v0", 3),
    ("dyna", "rlbench/BlockingMaze-v0", 2),
    ("prioritised_sweeping", "rlbench/DynaMaze-v0", 1),
    ("linear_sarsa", "MountainCar-v0", 1),
    ("recurrent_ppo", "rlbench/StatelessCartPole-v0", 2),
    ("recurrent_ppo", "rlbench/RepeatAfterMe-v0", 2),
    ("reinforce", "CartPole-v1", 3),
]
FURTHER_RUNS = [Case(algo, env, (("num_envs", num_envs),)) for algo, env, num_envs in FURTHER if algo in algorithms()]
RUNS = CASES + FURTHER_RUNS
AHEAD = 12      # events after each place
PLACES = 2

CONTINUE = f"""
import sys
from dataclasses import dataclass
from pathlib import Path
from rlbench import load
for path in sorted(Path(sys.argv[1]).glob("*.start")):
    trainer = load(path)
    for _ in range({AHEAD}):
        trainer.advance()
    trainer.save(path.with_suffix(".got"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    "Every run at some places, what it became without a pause, and what a new process made of it"
    folder = tmp_path_factory.mktemp("resume")
    rng = np.random.default_rng(0)
    for number, case in enumerate(RUNS):
        trainer = case.begun()
        for place in range(PLACES):
            trainer.save(folder / f"{number}-{place}.start")
            for _ in range(AHEAD):
                trainer.advance()
            trainer.save(folder / f"{number}-{place}.want")
            for _ in range(rng.integers(1, 12)):
                trainer.advance()
    subprocess.run([sys.executable, "-c", CONTINUE, folder], check=True, timeout=120)
    return folder


@pytest.mark.parametrize("number", range(len(RUNS)), ids=lambda number: str(RUNS[number]))
def test_a_new_process_continues_to_the_bit(number, folder):
    for place in range(PLACES):
        want = read_tree(folder / f"{number}-{place}.want", "checkpoint")
        got = read_tree(folder / f"{number}-{place}.got", "checkpoint")
        assert differs(want, got) == "", f"place {place}"


def test_between_a_step_and_its_update(tmp_path):
    trainer = Trainer("CartPole-v1", "dqn", gradient_steps=1, **small(algorithms()["dqn"]))
    trainer.until(lambda event: event.kind == "process")
    assert len(trainer.learner.todo) == 1   # the step is taken, its update is owed
    trainer.save(tmp_path / "a.rlb")
    twin = load(tmp_path / "a.rlb")
    trainer.run(steps=30)
    twin.run(steps=30)
    assert differs(trainer.state(), twin.state()) == ""


def test_in_the_middle_of_an_epoch(tmp_path):
    trainer = Trainer("CartPole-v1", "ppo", **small(algorithms()["ppo"]))
    trainer.until("update", 3)
    assert trainer.learner.todo
    trainer.save(tmp_path / "a.rlb")
    twin = load(tmp_path / "a.rlb")
    trainer.run(steps=200)
    twin.run(steps=200)
    assert differs(trainer.state(), twin.state()) == ""


def test_metrics_and_streams_are_part_of_it(tmp_path):
    settings = small(algorithms()["ppo"], log_every=50)
    whole = Trainer("CartPole-v1", "ppo", **settings).run(steps=1000)
    half = Trainer("CartPole-v1", "ppo", **settings).run(steps=500)
    half.save(tmp_path / "half.rlb")
    half = load(tmp_path / "half.rlb")
    half.run(steps=1000 - half.steps)
    assert same(whole.metrics.rows, half.metrics.rows) and len(whole.metrics.rows) >= 15
    assert differs(whole.state(), half.state()) == ""


# ---- environments

WORLDS = ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "rlbench/CliffWalk-v0", "LunarLander-v3", "Acrobot-v1",
          "MountainCar-v0", "Taxi-v4", "BipedalWalker-v3", "BipedalWalkerHardcore-v3")


@pytest.mark.parametrize("id", WORLDS)
@pytest.mark.parametrize("native", [True, False])
def test_environments_are_put_back(id, native):
    env = make(id, 3, native=native)
    other = make(id, 3, native=native)
    env.reset(1)
    other.reset(2)
    space = env.behaviours[AGENT].action_space
    space.seed(0)
    def act():
        return {AGENT: np.stack([space.sample() for _ in range(3)])}

    for _ in range(70):
        env.step(act())
    other.restore(env.state())
    for _ in range(40):
        chosen = act()
        one = env.step(chosen)[AGENT]
        two = other.step(chosen)[AGENT]
        assert differs(one._asdict(), two._asdict()) == ""


class Sloppy(gym.Env):
    "An environment that draws from the global generator"
    observation_space = gym.spaces.Box(-9, 9, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, act):
        return np.random.randn(1).astype(np.float32), 0., False, False, {}


def test_an_environment_that_is_not_reproducible_says_so_by_name():
    trainer = Trainer(Sloppy, "dqn", check_env=False, **small(algorithms()["dqn"]))
    trainer.run(steps=5)
    with pytest.raises(EnvProblem, match="Sloppy cannot be put back into an episode"):
        trainer.restore(trainer.snapshot())


def test_a_snapshot_of_another_run_is_refused_by_the_setting_that_differs():
    one, two = (Trainer("CartPole-v1", "dqn", normalize_obs=on, learning_starts=10) for on in (True, False))
    before = two.digest()
    with pytest.raises(FileProblem, match="normalize_obs = True, and this one began with False"):
        two.restore(one.snapshot())
    assert two.digest() == before


@dataclass(frozen=True)
class Uphill(DQN):
    "Goes up its loss, and nobody has filed it"

    def losses(self, nets, batch):
        for group, loss, named in super().losses(nets, batch):
            yield group, -loss, named


def test_an_algorithm_that_nobody_has_filed_is_not_taken_for_another(tmp_path):
    run = Trainer("CartPole-v1", Uphill(learning_starts=10)).run(steps=20)
    path = tmp_path / "own.rlb"
    run.save(path)
    with pytest.raises(FileProblem, match="played by 'Uphill'.*@register\\('Uphill'\\)"):
        load(path)
    register("Uphill")(Uphill)
    try: again = load(path)
    finally: REGISTRY.pop("Uphill")
    assert again.run(steps=20).digest() == run.run(steps=20).digest()
    assert "Uphill" in repr(run)
