"PQN beside the same written out plainly: returns by a loop, torch's own loss, optimiser and clipping"
import copy

import numpy as np
import pytest
import torch

from rlbench.buffers.ring import minibatches
from rlbench.training.trainer import Trainer

HOW = dict(gamma=.9, q_lambda=.7, n_steps=8, batch_size=6, n_epochs=2, hidden=(16,), epsilon=.5, num_envs=3, lr=.01,
           max_grad_norm=.5)


def returns(rows, best, gamma, lam):
    "λ-returns (T, N) of a rollout, one number after another"
    ret = np.zeros(rows.rew.shape)
    for t in reversed(range(len(ret))):
        for env in range(ret.shape[1]):
            follows = best[t, env]
            goes_on = t + 1 < len(ret) and not (rows.term[t, env] or rows.trunc[t, env])
            if goes_on:
                follows = lam * ret[t + 1, env] + (1 - lam) * follows
            ret[t, env] = rows.rew[t, env] + gamma * (not rows.term[t, env]) * follows
    return ret


@pytest.mark.parametrize("body", ["layer_norm", "mlp"])
def test_an_iteration_is_the_plain_loop(body):
    trainer = Trainer("CartPole-v1", "pqn", env_settings=dict(max_episode_steps=11), seed=1, body=body, **HOW)
    learner = trainer.learner
    net = copy.deepcopy(learner.nets.q)
    optimiser = torch.optim.RAdam(net.parameters(), lr=.01)
    for _ in range(3):
        while not learner.ready:
            trainer.advance()
        rng = copy.deepcopy(learner.rng)
        rows = learner.memory.gather(learner.memory.newest(8).reshape(8, 3))
        assert learner.memory.sizes.tolist() == [8, 8, 8]
        with torch.no_grad():
            best = net(torch.from_numpy(rows.next_obs).flatten(0, 1)).amax(-1).view(8, 3).numpy()
        ret = torch.from_numpy(returns(rows, best, .9, .7)).float().flatten()
        valid = np.flatnonzero(learner.algo.draw(learner.memory, {}, learner.fresh, rng).valid)
        trainer.until("iteration")
        obs = torch.from_numpy(rows.obs).flatten(0, 1)
        act = torch.from_numpy(rows.act).flatten()
        for part in minibatches(len(valid), 6, 2, rng):
            where = torch.from_numpy(valid[part])
            q = net(obs[where])[torch.arange(len(part)), act[where]]
            optimiser.zero_grad()
            (.5 * torch.nn.functional.mse_loss(q, ret[where])).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), .5)
            optimiser.step()
    for mine, theirs in zip(learner.nets.q.parameters(), net.parameters()):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_masks_are_obeyed_when_acting_and_in_returns():
    trainer = Trainer("rlbench/Forbidden-v0", "pqn", seed=0, **HOW)
    trainer.until("iteration", 2)
    rows = trainer.learner.memory.rows
    allowed = np.take_along_axis(rows.obs["action_mask"], rows.act[..., None].astype(int), -1)
    assert allowed.all()
    assert np.isfinite(trainer.learner.last.parts.ret.numpy()).all()
