"What is of the wrong kind, or misspelt, is told in one message that says what was expected"
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import rlbench
from rlbench.buffers.datasets import (digest, filtered, merged, returns_in, save_ring, subset, to_minari, write_lines)
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.core.words import ConfigError, nearest
from rlbench.envs.env import EnvProblem
from rlbench.training.pictures import kind_of_film


def refused(call, kind, words):
    "A call raises an error of a kind, with words in it"
    with pytest.raises(kind) as problem:
        call()
    assert words in str(problem.value)


def ring_of(rows):
    "A memory of one column of rewards"
    ring = Ring(rows, 1)
    no = np.zeros((rows, 1), bool)
    ring.extend(Batch(rew=np.arange(rows, dtype=np.float32)[:, None], term=no, trunc=no))
    return ring


@pytest.mark.parametrize("word, known, meant", [
    ("PPO", ["a2c", "ppo"], "ppo"),
    ("RecurrentPPO", ["recurrent_ppo", "ppo"], "recurrent_ppo"),
    ("cartpole-v1", ["CartPole-v1", "Pole-v0"], "CartPole-v1"),
    ("GAMMA", ["gamma"], "gamma"),
    ("x", ["gamma"], None),
    ("", ["gamma"], None),
    (3, ["gamma"], None),
])
def test_capitals_do_not_count(word, known, meant):
    assert nearest(word, known) == meant


def test_an_algorithm_in_capitals_is_named():
    refused(lambda: rlbench.Trainer("CartPole-v1", "PPO"), ConfigError, "did you mean 'ppo'")
    refused(lambda: rlbench.Trainer("cartpole-v1", "ppo"), EnvProblem, "did you mean 'CartPole-v1'")


@pytest.mark.parametrize("name", [3, None, rlbench.Trainer])
def test_what_is_explained_has_a_name(name):
    for explain in (rlbench.explain, rlbench.Trainer("CartPole-v1", "ppo").explain):
        refused(partial(explain, name), ConfigError, "which setting or number")


def positive(rows):
    return rows.rew > 0


@pytest.mark.parametrize("given", [3, None, "a.rlb", dict(rew=3), [ring_of(3)], rlbench.Trainer("CartPole-v1", "ppo")],
                         ids=lambda given: type(given).__name__)
def test_what_is_no_memory(given, tmp_path):
    calls = [
        partial(subset, given, [1]),
        partial(filtered, given, positive),
        partial(merged, ring_of(3), given),
        partial(digest, given),
        partial(returns_in, given),
        partial(to_minari, given, "a/b-v0", None, None),
        partial(save_ring, tmp_path / "a.rlb", given),
        partial(write_lines, tmp_path / "a.jsonl", given),
    ]
    for call in calls:
        refused(call, ConfigError, f"{call.func.__name__}: expected a Ring, such as trainer.learner.memory")
    assert not list(tmp_path.iterdir())


def one_answer(rows):
    return True


def rewards(rows):
    return rows.rew


def first_two(rows):
    return rows.rew[:2] > 0


def test_which_rows_are_meant():
    ring = ring_of(5)
    for index in ("x", [.5], [[1, 2]], [True]):
        refused(partial(subset, ring, index), ValueError, "subset: expected numbers of rows")
    for keep in (one_answer, rewards, first_two):
        refused(partial(filtered, ring, keep), ValueError, "expected true or false for each")
    refused(partial(filtered, ring, 3), ValueError, "filtered: keep = 3: expected a function of rows")
    refused(merged, ValueError, "merged: no memories were given")
    assert len(filtered(ring, positive)) == 4


def test_an_estimate_reads_its_memory_from_a_file(tmp_path):
    trainer = rlbench.Trainer("CartPole-v1", "ppo")
    ring = rlbench.record(trainer, episodes=10, greedy=False)
    file = tmp_path / "seen.rlb"
    save_ring(file, ring)
    estimate = partial(rlbench.estimate, trainer, behaviour=trainer, greedy=False)
    assert repr(estimate(file)) == repr(estimate(str(file))) == repr(estimate(ring))
    refused(partial(estimate, tmp_path / "none.rlb"), rlbench.FileProblem, "no such file")
    refused(partial(estimate, 3), ConfigError, "estimate: memory: expected a Ring")


class Yard(gym.Env):
    "Takes a size"
    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, size=3):
        self.size = size


def test_a_constructors_misspelt_setting_is_named():
    refused(partial(rlbench.make, Yard, szie=4), EnvProblem, "did you mean 'size'")
    pole = partial(rlbench.make, "CartPole-v1", sutton_reward=True)
    refused(pole, EnvProblem, "did you mean 'sutton_barto_reward'")
    refused(partial(pole, num_envs=4), EnvProblem, "did you mean 'sutton_barto_reward'")


def test_a_runs_folder_is_no_file(tmp_path):
    rlbench.train("CartPole-v1", "ppo", steps=300, run_id="first", folder=tmp_path, progress=False)
    kept = tmp_path / "first" / "checkpoints"
    words = f"is a run's folder, expected a file in it such as {kept}"
    refused(partial(rlbench.load, tmp_path / "first"), rlbench.FileProblem, words)


def test_a_film_says_which_endings_there_are():
    refused(partial(kind_of_film, "a.xyz"), ConfigError, "a.xyz: expected a name that ends in .gif")
