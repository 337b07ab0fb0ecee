"Off-policy estimates: against exact values, against plain loops, and what is said where something is missing"
import numpy as np
import pytest

import rlbench
from benchmarks.estimates import CASES, GAMMA, coverage, policies, watched
from rlbench import Trainer
from rlbench.core.words import ConfigError
from rlbench.envs.tabular import evaluate_policy
from rlbench.training.actor import Policy
from rlbench.training.estimate import METHODS, doubly_robust, episodes_in_time, estimate, evidence_of
from tests.cases import demonstrations


@pytest.fixture(scope="module")
def seen():
    "(world, the policy in question, a memory)"
    world = CASES["garden"].world
    behaviour, wanted = policies(world)
    return world, wanted, watched(world, behaviour, 200, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["walk, 20 episodes", "garden, policy far away"])
def test_intervals_hold_the_truth(name):
    found, _ = coverage(CASES[name], repeats=20)
    assert min(held for held, *_ in found.values()) >= .8
    width, error = found["dr"][1:3]
    assert error < width < 2                            # and do not hold everything


def test_one_episode_promises_nothing(seen):
    world, wanted, _ = seen
    alone = watched(world, np.full((7, 3), 1 / 3), 1, np.random.default_rng(0))
    found = estimate(lambda obs: wanted[obs], alone, "wpdis", GAMMA)
    assert (found.low, found.high) == (-np.inf, np.inf)


def test_groups_of_episodes_tell_much_the_same(seen):
    world, wanted, memory = seen
    each = estimate(lambda obs: wanted[obs], memory, "dr", GAMMA)
    some = estimate(lambda obs: wanted[obs], memory, "dr", GAMMA, groups=50)
    assert each.value == some.value
    assert .6 < (some.high - some.low) / (each.high - each.low) < 1.7
    with pytest.raises(ValueError, match="groups = 1: expected a whole number of at least 2"):
        estimate(lambda obs: wanted[obs], memory, "dr", GAMMA, groups=1)


@pytest.mark.parametrize("method", METHODS)
def test_near_the_truth(seen, method):
    world, wanted, memory = seen
    truth = world.initial_state_distrib @ evaluate_policy(world.model(), wanted, GAMMA)
    found = estimate(lambda obs: wanted[obs], memory, method, GAMMA)
    assert found.low <= found.value <= found.high
    assert abs(found.value - truth) < .35
    assert 0 < found.effective <= found.episodes == 200
    again = estimate(lambda obs: wanted[obs], memory, method, GAMMA)
    assert found == again                   # nothing is left to chance


def test_doubly_robust_row_by_row(seen):
    world, wanted, memory = seen
    trials = episodes_in_time(memory)
    evidence = evidence_of(trials, lambda obs: wanted[obs], world.observation_space, GAMMA)
    ones = np.ones(trials.valid.shape[1])
    q, v, _ = evidence.values(ones)
    total = []
    for e in range(len(ones)):
        value = 0.
        for t in reversed(range(trials.valid[:, e].sum())):
            ratio = wanted[trials.obs[t, e], trials.act[t, e]] * 3      # the behaviour took one of three
            value = v[t, e] + ratio * (trials.rew[t, e] + GAMMA * value - q[t, e])
        total.append(value)
    assert np.isclose(np.mean(total), doubly_robust(evidence, ones))


def test_values_of_a_table_are_those_of_its_empirical_model(seen):
    "Linear values with a feature for each pair: what iteration over the same rows ends with"
    world, wanted, memory = seen
    trials = episodes_in_time(memory)
    evidence = evidence_of(trials, lambda obs: wanted[obs], world.observation_space, GAMMA)
    rows = trials[trials.valid]
    q = np.zeros(wanted.shape)
    for _ in range(200):
        target = rows.rew + GAMMA * ~rows.term * (wanted * q).sum(1)[rows.next_obs]
        for s, a in np.ndindex(6, 3):
            q[s, a] = target[(rows.obs == s) & (rows.act == a)].mean()
    done, _, _ = evidence.values(np.ones(trials.valid.shape[1]))
    np.testing.assert_allclose(done[trials.valid], q[rows.obs, rows.act], atol=1e-3)


def test_a_trainer_is_judged_by_a_memory_and_a_clone():
    memory = demonstrations("CartPole-v1", 4, steps=200)
    trainer = Trainer("CartPole-v1", "dqn", seed=0, hidden=(8,), gamma=.9)
    with pytest.raises(ConfigError, match="no column logp"):
        rlbench.estimate(trainer, memory)
    clone = Trainer("CartPole-v1", "bc", memory=memory, n_epochs=3, seed=0)
    clone.run(updates=30)
    found = rlbench.estimate(trainer, memory, "dm", behaviour=clone)
    assert 1 < found.value < 10             # 1 / (1 - γ) is the most
    assert found == rlbench.estimate(Policy(trainer.actors["agent"]), memory, "dm", behaviour=clone)
    with pytest.raises(ConfigError, match="dqn tells no probabilities"):
        rlbench.estimate(trainer, memory, greedy=False, behaviour=clone)


def test_what_is_missing_is_said(seen):
    world, wanted, memory = seen
    with pytest.raises(ConfigError, match="unknown method 'drr'; did you mean 'dr'"):
        estimate(lambda obs: wanted[obs], memory, "drr", GAMMA)
    with pytest.raises(ConfigError, match="which discount"):
        estimate(lambda obs: wanted[obs], memory)
    with pytest.raises(ConfigError, match="expected a Ring"):
        estimate(lambda obs: wanted[obs], 3, gamma=GAMMA)
    with pytest.raises(ConfigError, match="needs Discrete actions"):
        estimate(Trainer("Pendulum-v1", "ppo"), memory)
    never = np.zeros((7, 3))
    never[:, 0] = 1
    always = watched(world, np.tile([0., .5, .5], (7, 1)), 5, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="none of them counts"):
        estimate(lambda obs: never[obs], always, gamma=GAMMA)
