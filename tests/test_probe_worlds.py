"Probe environments themselves: their rules, and the formulas of their values"
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlbench.envs.probes import PROBES, Probe

EITHER = [name for name, row in PROBES.items() if row["actions"] == "either"]


def probe_of(name, **how):
    "A probe without wrappers"
    return gym.make(PROBES[name]["id"], **how).unwrapped


@pytest.mark.parametrize("name", PROBES)
def test_limits_are_registered(name):
    assert gym.make(PROBES[name]["id"]).spec.max_episode_steps == PROBES[name]["limit"]


# ---- the rules of gymnasium --------------------------------------------------------------------

@pytest.mark.parametrize("name", PROBES)
def test_gymnasium_checker(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(gym.make(PROBES[name]["id"]).unwrapped)


@pytest.mark.parametrize("name", EITHER)
@pytest.mark.parametrize("how", [dict(tabular=True), dict(continuous=True), dict(tabular=True, continuous=True)])
def test_checker_on_variants(name, how):
    check_env(gym.make(PROBES[name]["id"], **how).unwrapped, skip_render_check=True)


# ---- known values ------------------------------------------------------------------------------

@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("gamma", [0., .5, .99])
def test_known_values_satisfy_bellman(name, gamma):
    probe = probe_of(name)
    assert probe.known_q(gamma).max(1) == pytest.approx(probe.known_value(gamma))
    assert len(probe.seen) == len(probe.known_value(gamma))


def best_act(probe):
    "The best action in the state where a probe is, in the form of its action space"
    best = 0 if probe.best is None else probe.best[probe.state]
    return best if probe.action_space.shape == () else np.array([best], np.float32)


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("gamma", [.5, .9])
def test_known_values_are_what_the_best_actions_earn(name, gamma):
    "Returns of episodes played with the best action, against the formula; where one is cut the formula goes on"
    env = gym.make(PROBES[name]["id"])
    inner = env.unwrapped
    for seed in range(8):
        env.reset(seed=seed)
        start = inner.state
        ret, scale = 0., 1.
        done = False
        while not done:
            _, rew, term, trunc, _ = env.step(best_act(inner))
            ret += scale * rew
            scale *= gamma
            done = term or trunc
        if not term: ret += scale * inner.known_value(gamma)[inner.state]
        assert ret == pytest.approx(inner.known_value(gamma)[start], abs=1e-6)


# ---- single probes -----------------------------------------------------------------------------

def test_probe_of_a_time_limit_is_only_cut():
    env = gym.make(PROBES["Endless"]["id"])
    env.reset(seed=0)
    flags = [env.step(1)[2:4] for _ in range(8)]
    assert flags == [(False, False)] * 7 + [(False, True)]


def test_staggered_lengths_differ_by_seed_and_are_reproducible():
    env = gym.make(PROBES["Staggered"]["id"], tabular=True)
    lengths = [env.reset(seed=seed)[0] + 1 for seed in range(40)]
    again = [env.reset(seed=seed)[0] + 1 for seed in range(40)]
    assert set(lengths) == {1, 2, 3, 4, 5} and lengths == again


# ---- state, and errors -------------------------------------------------------------------------

def test_observations_are_not_shared():
    probe = Probe("Match")
    obs, _ = probe.reset(seed=0)
    obs[:] = 9
    assert (probe.seen != 9).all() and (PROBES["Match"]["seen"] != 9).all()


@pytest.mark.parametrize("name", PROBES)
def test_probes_are_plain_data(name):
    probe = probe_of(name)
    probe.reset(seed=0)
    twin = pickle.loads(pickle.dumps(probe))
    act = probe.action_space.sample()
    for one, other in zip(probe.step(act), twin.step(act)):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("tabular", [False, True])
def test_placing_a_probe(name, tabular):
    probe = probe_of(name, tabular=tabular)
    for state, seen in enumerate(probe.seen):
        assert np.array_equal(probe.place(seen), seen) and probe.state == state


def test_errors():
    with pytest.raises(ValueError, match="did you mean 'Match'"):
        Probe("match")
    with pytest.raises(ValueError, match="no continuous form"):
        gym.make("rlbench/Probe-Choice-v0", continuous=True)
    with pytest.raises(ValueError, match="never shows"):
        Probe("Constant").place([5.])
