"""What must hold for every registered algorithm, on every environment whose spaces it accepts. A new algorithm is picked up by its registration."""
import gymnasium as gym
import numpy as np
import pytest
import torch

import rlbench.envs.tabular  # noqa: F401  (registers the grid worlds)
from rlbench.algos.algorithm import algorithms
from rlbench.core.batch import NAMES
from rlbench.core.state import same
from rlbench.policies.distributions import SpaceProblem
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer
from tests.conftest import small

ENVS = ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "rlbench/CliffWalk-v0"]
SHORT = dict(max_episode_steps=25)  # some methods learn at the ends of episodes only


def trainer_for(env, algo, **settings):
    try:
        return Trainer(env, algo, env_settings=SHORT, **small(algorithms()[algo], **settings))
    except SpaceProblem:
        return None


PAIRS = [(env, algo) for algo in algorithms() for env in ENVS if trainer_for(env, algo)]


def test_every_algorithm_has_an_environment_here():
    assert {algo for _, algo in PAIRS} == set(algorithms())


@pytest.mark.parametrize("env,algo", PAIRS)
def test_losses_are_finite_and_their_parts_are_in_the_glossary(env, algo):
    trainer, kinds = trainer_for(env, algo, num_envs=2), set()
    for _, event in zip(range(200), trainer):
        kinds.add(event.kind)
        if event.kind == "learn":
            assert torch.isfinite(trainer.learner.last["loss"])
            assert set(event.data) <= set(NAMES)
        elif event.kind == "collect":
            assert set(event.data) <= set(NAMES)
    assert kinds == {"collect", "process", "learn"} or algorithms()[algo].exact and kinds == {"process", "learn"}  # a plan comes before the first step


@pytest.mark.parametrize("env,algo", PAIRS)
def test_snapshot_and_restore_at_random_events(env, algo):
    trainer, rng = trainer_for(env, algo), np.random.default_rng(0)
    trainer.until("update")
    for _ in range(12):
        for _ in range(rng.integers(1, 15)):
            trainer.advance()
        there = trainer.snapshot()
        ahead = [trainer.advance().kind for _ in range(9)]
        away = trainer.snapshot()
        trainer.restore(there)
        assert same(trainer.state(), there)
        assert [trainer.advance().kind for _ in range(9)] == ahead
        assert same(trainer.state(), away)


@pytest.mark.parametrize("env,algo", PAIRS)
def test_equal_seeds_equal_runs_and_other_seeds_other_runs(env, algo):
    one, two, three = (trainer_for(env, algo, seed=seed) for seed in (5, 5, 6))
    for trainer in (one, two, three):
        trainer.run(steps=150)
    assert same(one.state(), two.state())
    if not algorithms()[algo].exact:  # a plan has nothing random; and where nothing was paid yet, values stay as they were, but not what was seen
        one, three = (trainer.state()["learners"]["agent"] for trainer in (one, three))
        assert not same([one["nets"], one["buffer"]["rows"]], [three["nets"], three["buffer"]["rows"]])


@pytest.mark.parametrize("env,algo", PAIRS)
def test_evaluation_never_changes_training(env, algo):
    one, two = trainer_for(env, algo), trainer_for(env, algo)
    for _ in range(3):
        one.run(steps=40)
        two.run(steps=40)
        evaluate(two, episodes=2, num_envs=2)
    assert same(one.state(), two.state())


@pytest.mark.parametrize("env,algo", PAIRS)
def test_switches(env, algo):
    trainer = trainer_for(env, algo)
    trainer.until("iteration")
    trainer.learning = False
    weights = trainer.learner.weights.clone()
    assert {event.kind for _, event in zip(range(60), trainer)} == {"collect"}
    assert torch.equal(weights, trainer.learner.weights)
    trainer.learning, trainer.collecting = True, False
    steps = trainer.steps
    assert {event.kind for event in trainer} == {"process", "learn"} and trainer.steps == steps


@pytest.mark.parametrize("env,algo", PAIRS)
def test_more_updates_from_what_is_stored(env, algo):
    trainer = trainer_for(env, algo)
    trainer.until("iteration")
    trainer.collecting, updates, steps = False, trainer.updates, trainer.steps
    trainer.learner.owe(7)
    for _ in trainer:
        pass
    assert trainer.updates >= updates + 7 and trainer.steps == steps


@pytest.mark.parametrize("env,algo", PAIRS)
def test_acting_on_one_or_on_a_batch_agrees(env, algo):
    trainer = trainer_for(env, algo, num_envs=3).run(steps=60)
    batch = trainer.policy.act(trainer.obs)
    one = np.stack([trainer.policy.act(obs) for obs in trainer.obs])
    np.testing.assert_allclose(batch, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("env,algo", PAIRS)
def test_fork_stands_at_the_same_place(env, algo):
    trainer = trainer_for(env, algo).run(steps=70)
    twin = trainer.fork()
    trainer.run(steps=50), twin.run(steps=50)
    assert same(trainer.state()["learners"], twin.state()["learners"])


def continuous(env):
    return isinstance(gym.make(env).action_space, gym.spaces.Box)


def test_no_algorithm_accepts_what_it_cannot_do():
    assert ("Pendulum-v1", "dqn") not in PAIRS and ("CartPole-v1", "qlearning") not in PAIRS and ("Pendulum-v1", "ppo") in PAIRS
    assert continuous("Pendulum-v1")
