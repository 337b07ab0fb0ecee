"A bonus for rare states, beside dictionaries"
from collections import Counter, defaultdict

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from rlbench import Trainer, evaluate
from rlbench.algos.count_bonus import CountBonus, count
from rlbench.core.batch import Batch
from rlbench.core.spaces import Spec

LAKE = dict(map_name="8x8", is_slippery=False)


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), max_size=8))
@settings(deadline=None)
def test_counts_equal_a_counter(rounds):
    n = torch.zeros(5, dtype=torch.float64)
    by_hand = Counter()
    for arrivals in rounds:
        by_hand.update(arrivals)
        assert count(n, torch.tensor(arrivals)).tolist() == [by_hand[s] for s in arrivals]


def test_tables_equal_dictionaries():
    algo = CountBonus(gamma=.9, bonus_gamma=.7, bonus_coef=.3, lr=.25)
    nets = algo.nets(Spec(gym.spaces.Discrete(4), gym.spaces.Discrete(3), 1), None)
    q = defaultdict(float)
    e = defaultdict(lambda: .3 / (1 - .7))
    visits = Counter()
    rng = np.random.default_rng(0)
    for _ in range(400):
        s, after = rng.integers(4, size=2)
        a = rng.integers(3)
        rew = rng.normal()
        term = rng.random() < .1
        visits[after] += 1
        best = max(range(3), key=lambda b: q[after, b] + e[after, b])
        more = 0 if term else 1
        q[s, a] += .25 * (rew + more * .9 * q[after, best] - q[s, a])
        e[s, a] += .25 * (.3 / visits[after] ** .5 + more * .7 * e[after, best] - e[s, a])
        row = Batch(obs=s[None], act=a[None], rew=np.array([rew]), term=np.array([term]), next_obs=after[None])
        algo.update(nets, row.torch())
    for s in range(4):
        for a in range(3):
            assert nets.q.values[s, a].item() == pytest.approx(q[s, a])
            assert nets.bonus.values[s, a].item() == pytest.approx(e[s, a])


def test_every_arrival_in_many_environments_counts():
    trainer = Trainer("FrozenLake-v1", "count_bonus", env_settings=LAKE, num_envs=16).run(steps=3200)
    while trainer.owed: trainer.advance()
    assert trainer.learner.nets.visits.values.sum() == trainer.steps


def test_finds_what_chance_does_not():
    trainer = Trainer("FrozenLake-v1", "count_bonus", env_settings=LAKE, seed=1).run(steps=8000)
    assert evaluate(trainer, episodes=1).mean == 1


def test_with_no_bonus_it_is_greedy_q_learning():
    same_world = dict(env_settings=LAKE, seed=3, epsilon=.2, gamma=.9)
    none = Trainer("FrozenLake-v1", "count_bonus", bonus_coef=0., **same_world).run(steps=500)
    plain = Trainer("FrozenLake-v1", "qlearning", initial=0., **same_world).run(steps=500)
    torch.testing.assert_close(none.learner.nets.q.values, plain.learner.nets.q.values)
