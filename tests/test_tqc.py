"TQC and CrossQ beside their papers written out plainly"
import numpy as np
import pytest
import torch

from rlbench.algos.crossq import CrossQ, RenormStack
from rlbench.buffers.off_policy import quantile_huber
from rlbench.algos.tqc import TQC, quantile_critic_loss, truncated
from rlbench.training.actor import NoiseStream
from tests.test_sac import learner_of
from tests.test_td3 import SPEC, made_up

SMALL = dict(hidden=(16, 16), batch_size=8, learning_starts=30)


def huber_by_loops(guess, target, tau):
    "Of one row: the sum over quantiles of the mean over targets"
    total = 0.
    for theta, t in zip(guess.tolist(), tau.tolist()):
        for wanted in target.tolist():
            error = wanted - theta
            huber = error**2 / 2 if abs(error) < 1 else abs(error) - .5
            total += abs(t - (error < 0)) * huber / len(target)
    return total


def test_quantile_huber_equals_its_sum_and_a_known_value():
    rng = torch.Generator().manual_seed(0)
    guess = torch.randn(5, 4, generator=rng)
    target = 2 * torch.randn(5, 6, generator=rng)
    tau = torch.rand(4, generator=rng)
    expected = [huber_by_loops(*row, tau) for row in zip(guess, target)]
    torch.testing.assert_close(quantile_huber(guess, target, tau), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_target_of_tqc_equals_that_of_its_paper():
    "As in sb3-contrib: the quantiles of all critics, sorted, the highest dropped, less what certainty costs"
    algo = TQC(**SMALL, quantiles=5, top_quantiles_to_drop=2, n_critics=3)
    rng = np.random.default_rng(0)
    nets = algo.nets(SPEC, torch.Generator().manual_seed(0))
    with torch.no_grad():
        nets.temperature.log.fill_(-1.)
        data, _ = algo.targets(nets, made_up(rng), NoiseStream(rng, "cpu"))
        next_act, next_logp = nets.policy(data.next_obs).act(data.next_noise)
        z = nets.target(data.next_obs, next_act)
    assert z.shape == (8, 3, 5)
    target = algo.target(nets, data, data.next_noise)
    for i in range(8):
        kept = np.sort(z[i].numpy().ravel())[:15 - 6]
        soft = kept - np.exp(-1) * next_logp[i].item()
        expected = data.rew[i].item() + (not data.term[i]) * algo.gamma * soft
        np.testing.assert_allclose(target[i].numpy(), expected, rtol=1e-5, atol=1e-5)

    loss, _ = quantile_critic_loss(z, target)
    tau = (torch.arange(5) + .5) / 5
    by_hand = sum(huber_by_loops(z[i, k], target[i], tau) for i in range(8) for k in range(3)) / 8 / 5
    assert loss.item() == pytest.approx(by_hand, rel=1e-4)


def test_one_quantile_at_least_is_believed():
    assert truncated(torch.arange(4.).view(1, 2, 2), 2).tolist() == [[0.]]


def test_critics_of_crossq_learn_from_a_target_of_the_same_batch():
    "As in the paper: one forward pass of both kinds, cut in two, no gradient through the second"
    algo = CrossQ(**SMALL, critic_hidden=(16,), policy_delay=1)
    rng = np.random.default_rng(0)
    nets = algo.nets(SPEC, torch.Generator().manual_seed(0))
    data, _ = algo.targets(nets, made_up(rng), NoiseStream(rng, "cpu"))
    losses = {group: (loss, named) for group, loss, named in algo.losses(nets, data)}
    q, next_q, _ = nets.critic.jointly(data, nets.policy(data.next_obs).act(data.next_noise)[0], 1.)
    logp = nets.policy(data.next_obs).act(data.next_noise)[1]
    target = (data.rew + (1 - data.term.float()) * algo.gamma * (next_q.min(1).values - logp)).detach()
    expected = sum(.5 * torch.nn.functional.mse_loss(q[:, k], target) for k in range(2))
    torch.testing.assert_close(losses["critic"][0], expected)
    got = torch.autograd.grad(losses["critic"][0], list(nets.critic.parameters()), retain_graph=True)
    want = torch.autograd.grad(expected, list(nets.critic.parameters()))
    for one, other in zip(got, want):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_running_statistics_change_after_an_update_and_come_back_with_it():
    learner = learner_of(CrossQ(**SMALL, critic_hidden=(16,)))
    norms = learner.nets.critic.norms
    learner.process()
    there = learner.state()
    before = [norm.mean.clone() for norm in norms]
    learner.learn()
    seen = learner.last.parts.stats
    assert not torch.equal(norms[0].mean, before[0])
    learner.nets.critic.remember(seen, 1.)
    first = norms[0].mean.numel()
    torch.testing.assert_close(norms[0].mean.flatten(), seen[:first])
    count = there["actor"]["nets"]["updates._extra_state"]
    assert count == 1                                     # the tree names the very tensors; a snapshot copies them


def test_a_stack_renormalises_as_a_layer_alone():
    stack = RenormStack(heads=2, units=3)
    x = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0))
    out, _ = stack(x, most=1.)
    alone = torch.nn.BatchNorm1d(3, eps=1e-3)
    torch.testing.assert_close(out[1], alone(x[1]), rtol=1e-4, atol=1e-5)
    many = RenormStack(heads=2, units=3)
    for _ in range(500):
        many.remember(stack(x, most=1.)[1], .05)
    torch.testing.assert_close(many(x, most=100.)[0], many(x)[0], rtol=1e-4, atol=1e-5)    # far limits: as when acting
