"TD3 and DDPG beside their papers written out plainly"
import copy

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlbench import Trainer
from rlbench.algos.sac import critic_loss
from rlbench.algos.td3 import DDPG, TD3
from rlbench.core.batch import Batch
from rlbench.core.spaces import AGENT, Spec
from rlbench.training.actor import NoiseStream
from tests.test_sac import learner_of

OBS = gym.spaces.Box(-1, 1, (3,))
ACT = gym.spaces.Box(np.float32([-2, -.1]), np.float32([2, .3]))
SPEC = Spec(OBS, ACT, num_envs=1)
LOW = torch.from_numpy(ACT.low)
HIGH = torch.from_numpy(ACT.high)
SMALL = dict(hidden=(16, 16), batch_size=8, learning_starts=30)


def made_up(rng, n=8):
    "Transitions (n, ...)"
    rows = dict(
        obs=rng.uniform(-1, 1, (n, 3)),
        act=rng.uniform(ACT.low, ACT.high, (n, 2)),
        rew=rng.normal(size=n),
        next_obs=rng.uniform(-1, 1, (n, 3)),
    )
    rows = {name: torch.from_numpy(column).float() for name, column in rows.items()}
    return Batch(rows, term=torch.from_numpy(rng.random(n) < .3), trunc=torch.zeros(n, dtype=bool))


def target_row_by_row(algo, nets, batch):
    "As in Stable-Baselines3, whose actions are stretched to [-1, 1] everywhere: noise, clip, clip again, lowest value"
    targets = []
    for row in range(len(batch)):
        act = nets.target_policy(batch.next_obs[row:row + 1]).mode()[0]
        scaled = 2 * (act - LOW) / (HIGH - LOW) - 1
        limit = algo.target_noise_clip
        noise = (batch.next_noise[row] * algo.target_policy_noise).clamp(-limit, limit)
        scaled = (scaled + noise).clamp(-1, 1)
        unscaled = LOW + (scaled + 1) / 2 * (HIGH - LOW)
        next_q = nets.target(batch.next_obs[row:row + 1], unscaled[None]).min()
        targets.append(batch.rew[row] + (1 - batch.term[row].float()) * algo.gamma * next_q)
    return torch.stack(targets)


@pytest.mark.parametrize("cls", [TD3, DDPG])
def test_target_equals_the_formula_of_stable_baselines(cls):
    algo = cls(**SMALL)
    rng = np.random.default_rng(0)
    nets = algo.nets(SPEC, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for weight in nets.parameters():                      # far from the middle of the box, and from each other
            weight += .3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
        data, _ = algo.targets(nets, made_up(rng), NoiseStream(rng, "cpu"))
        expected = target_row_by_row(algo, nets, data)
    torch.testing.assert_close(algo.target(nets, data, data.next_noise), expected, rtol=1e-4, atol=1e-5)


class Plain:
    "Twin delayed DDPG as one would write it down, on copies of the networks"

    def __init__(self, nets, algo):
        self.nets = copy.deepcopy(nets)
        self.algo = algo
        self.critic = torch.optim.Adam(self.nets.critic.parameters(), lr=algo.critic_lr)
        self.policy = torch.optim.Adam(self.nets.policy.parameters(), lr=algo.lr)
        self.count = 0

    def move(self, optimiser, loss):
        self.nets.zero_grad()
        loss.backward()
        optimiser.step()

    def follow(self, slow, quick):
        for mine, other in zip(slow.parameters(), quick.parameters()):
            mine += self.algo.tau * (other - mine)

    def update(self, batch):
        nets = self.nets
        with torch.no_grad():
            target = target_row_by_row(self.algo, nets, batch)
        q = nets.critic(batch.obs, batch.act)
        heads = range(self.algo.n_critics)
        self.move(self.critic, sum(.5 * torch.nn.functional.mse_loss(q[:, k], target) for k in heads))
        self.count += 1
        if self.count % self.algo.policy_delay: return
        self.move(self.policy, -nets.critic(batch.obs, nets.policy(batch.obs).mode())[:, 0].mean())
        with torch.no_grad():
            self.follow(nets.target, nets.critic)
            self.follow(nets.target_policy, nets.policy)


@pytest.mark.parametrize("algo", [TD3(**SMALL), TD3(**SMALL, policy_delay=3, gradient_steps=2), DDPG(**SMALL)], ids=str)
def test_updates_equal_those_written_out_plainly(algo):
    learner = learner_of(algo)
    plain = Plain(learner.nets, learner.algo)
    for _ in range(6):
        learner.process()
        while learner.todo:
            index = learner.todo[0]
            plain.update(learner.data if index is None else learner.data[index])
            learner.learn()
    for name, weight in plain.nets.named_parameters():
        torch.testing.assert_close(learner.nets.get_parameter(name), weight, rtol=1e-4, atol=1e-6, msg=name)


def test_loss_of_critics_equals_that_of_torch():
    q = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    target = torch.randn(7, generator=torch.Generator().manual_seed(1))
    loss, _ = critic_loss(q, target)
    torch.testing.assert_close(loss, .5 * sum(torch.nn.functional.mse_loss(q[:, k], target) for k in range(3)))


def test_actions_come_from_anywhere_until_the_first_update():
    trainer = Trainer("Pendulum-v1", "td3", seed=0, exploration_noise=0., **SMALL | dict(learning_starts=300))
    trainer.until("update")
    acts = trainer.learner.memory.rows.act[:300].ravel()
    counts, _ = np.histogram(acts, 4, (-2, 2))
    assert counts.sum() == 300 and counts.min() > 50
    trainer.run(steps=50)                                     # from now on what the policy says, without noise
    assert np.abs(np.diff(trainer.learner.memory.rows.act[301:340].ravel())).max() < .5


def test_wandering_noise_begins_anew_with_an_episode():
    trainer = Trainer("Pendulum-v1", "ddpg", seed=0, exploration="ou", env_settings=dict(max_episode_steps=10), **SMALL)
    actor = trainer.actors[AGENT]
    carried = []
    for _, event in zip(range(25), trainer):
        if event.kind == "collect": carried.append(actor.carry.item())
    assert [step for step, carry in enumerate(carried, 1) if carry == 0] == [10, 20]
