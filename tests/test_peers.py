"What DQN, PPO and ways to explore are made of, against another implementation of it (rlax) on random numbers"
import numpy as np
import pytest
import torch

from rlbench.algos.dqn import dqn_target
from rlbench.algos.ppo import clipped_surrogate
from rlbench.policies.exploration import Exploring

ROWS, ACTIONS = 8, 5
seeds = pytest.mark.parametrize("seed", range(3))


def columns(seed):
    "Random values, actions, rewards, discounts (some steps end an episode), advantages, ratios"
    rng = np.random.default_rng(seed)
    q, next_q, next_target = rng.normal(size=(3, ROWS, ACTIONS)).astype(np.float32)
    rew, adv, log_ratio = rng.normal(size=(3, ROWS)).astype(np.float32)
    act = rng.integers(ACTIONS, size=ROWS)
    disc = (.9 * (rng.random(ROWS) < .7)).astype(np.float32)
    return dict(q=q, next_q=next_q, next_target=next_target, rew=rew, adv=adv, act=act, disc=disc,
                ratio=np.exp(log_ratio))


def tensors(found):
    return {name: torch.from_numpy(column) for name, column in found.items()}


@seeds
@pytest.mark.parametrize("double", [False, True])
def test_errors_of_dqn(rlax, seed, double):
    one = columns(seed)
    mine = tensors(one)
    target = dqn_target(mine["rew"], mine["disc"], mine["next_q"], mine["next_target"], double)
    got = target - mine["q"].gather(1, mine["act"][:, None]).squeeze(1)
    chooser = one["next_q"] if double else one["next_target"]
    want = [rlax.double_q_learning(one["q"][i], one["act"][i], one["rew"][i], one["disc"][i], one["next_target"][i],
                                   chooser[i]) for i in range(ROWS)]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@seeds
def test_the_clipped_surrogate_and_its_slope(rlax, seed):
    import jax
    one = columns(seed)
    ratio = torch.from_numpy(one["ratio"]).requires_grad_()
    loss = -clipped_surrogate(ratio, torch.from_numpy(one["adv"]), .2).mean()
    slope, = torch.autograd.grad(loss, ratio)
    want, want_slope = jax.value_and_grad(rlax.clipped_surrogate_pg_loss)(one["ratio"], one["adv"], .2)
    np.testing.assert_allclose(loss.item(), want, rtol=1e-5)
    np.testing.assert_allclose(slope, want_slope, rtol=1e-5, atol=1e-7)


@seeds
def test_chances_of_actions(rlax, seed):
    q = columns(seed)["q"]
    q[0, :2] = q[0].max() + 1                                   # two are equally good
    epsilon = Exploring(epsilon=.3).chances_of(torch.from_numpy(q))
    boltzmann = Exploring(exploration="boltzmann", temperature=.5).chances_of(torch.from_numpy(q))
    np.testing.assert_allclose(epsilon, rlax.epsilon_greedy(.3).probs(q), rtol=1e-5)
    np.testing.assert_allclose(boltzmann, rlax.softmax(.5).probs(q), rtol=1e-5)
