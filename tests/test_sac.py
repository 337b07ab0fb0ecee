"SAC beside one written out plainly, with an optimiser for each of its three parts"
import copy
import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlbench import Trainer
from rlbench.algos.sac import SAC, bootstrapped, soft_value, usual_entropy
from rlbench.core.batch import Batch
from rlbench.core.spaces import Spec
from rlbench.core.words import ConfigError
from rlbench.training.actor import Actor, NoiseStream
from rlbench.training.learner import Learner

OBS = gym.spaces.Box(-1, 1, (3,))
ACT = gym.spaces.Box(np.float32([-2, -.1]), np.float32([2, .3]))
SPEC = Spec(OBS, ACT, num_envs=1)
SMALL = dict(hidden=(16, 16), batch_size=8, learning_starts=30)


def made_up(rng, n=40):
    "A stream of transitions"
    rows = Batch(
        obs=rng.uniform(-1, 1, (n, 1, 3)).astype(np.float32),
        act=rng.uniform(ACT.low, ACT.high, (n, 1, 2)).astype(np.float32),
        rew=rng.normal(size=(n, 1)).astype(np.float32),
        term=rng.random((n, 1)) < .2,
        trunc=np.zeros((n, 1), bool),
        next_obs=rng.uniform(-1, 1, (n, 1, 3)).astype(np.float32))
    return rows


def learner_for(settings, seed=0):
    return learner_of(SAC(**SMALL, **settings), seed)


def learner_of(algo, seed=0):
    "A learner with a memory of what was made up"
    nets = algo.nets(SPEC, torch.Generator().manual_seed(seed))
    rng = np.random.default_rng(seed)
    learner = Learner("agent", algo, Actor(algo, nets, SPEC, rng), rng)
    learner.fresh += learner.memory.extend(made_up(np.random.default_rng(seed)))
    return learner


class Plain:
    "Soft actor-critic as one would write it down, on copies of the networks"

    def __init__(self, nets, algo):
        self.nets = copy.deepcopy(nets)
        self.algo = algo
        adam = torch.optim.Adam
        self.critic = adam(self.nets.critic.parameters(), lr=algo.critic_lr)
        self.policy = adam(self.nets.policy.parameters(), lr=algo.lr)
        self.temperature = adam([self.nets.temperature.log], lr=algo.lr)
        self.updates = 0

    def alpha(self):
        return self.nets.temperature.log.exp().detach() if self.algo.ent_coef is None else self.algo.ent_coef

    def move(self, optimiser, loss):
        self.nets.zero_grad()
        loss.backward()
        optimiser.step()

    def update(self, batch):
        nets = self.nets
        with torch.no_grad():
            next_act, next_logp = nets.policy(batch.next_obs).act(batch.next_noise)
            next_q = nets.target(batch.next_obs, next_act)
            if self.algo.critics_in_target:               # row by row, those that are picked
                asked = batch.picks.argsort(-1)[:, :self.algo.critics_in_target]
                next_q = next_q.gather(-1, asked)
            next_val = next_q.min(-1).values - self.alpha() * next_logp
            target = batch.rew + self.algo.gamma * (1 - batch.term.float()) * next_val
        q = nets.critic(batch.obs, batch.act)
        heads = range(self.algo.n_critics)
        self.move(self.critic, sum(.5 * torch.nn.functional.mse_loss(q[:, k], target) for k in heads))
        self.updates += 1
        if self.updates % self.algo.policy_delay == 0: self.climb(batch)
        with torch.no_grad():
            for slow, quick in zip(nets.target.parameters(), nets.critic.parameters()):
                slow += self.algo.tau * (quick - slow)

    def climb(self, batch):
        nets = self.nets
        act, logp = nets.policy(batch.obs).act(batch.noise)
        worth = nets.critic(batch.obs, act)
        worth = worth.mean(-1) if self.algo.critics_in_target else worth.min(-1).values
        alpha = self.alpha()
        self.move(self.policy, (alpha * logp - worth).mean())

        if self.algo.ent_coef is None:
            wanted = usual_entropy(ACT)
            self.move(self.temperature, -(nets.temperature.log * (logp.detach() + wanted)[:, None]).mean())


@pytest.mark.parametrize("settings", [
    {}, dict(ent_coef=.3), dict(gradient_steps=3, policy_delay=2), dict(n_critics=5, critics_in_target=2)], ids=str)
def test_updates_equal_those_written_out_plainly(settings):
    learner = learner_for(settings)
    plain = Plain(learner.nets, learner.algo)
    for _ in range(5):
        learner.process()
        while learner.todo:
            index = learner.todo[0]
            plain.update(learner.data if index is None else learner.data[index])
            learner.learn()
    found = dict(learner.nets.named_parameters())
    for name, weight in plain.nets.named_parameters():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-6, msg=name)


def test_log_probability_of_a_squashed_action_by_change_of_variables():
    "density of act = density of the normal before / slope of the squashing into the box"
    nets = SAC(**SMALL).nets(SPEC, torch.Generator().manual_seed(0))
    obs = torch.rand(500, 3, generator=torch.Generator().manual_seed(1))
    noise = torch.randn(500, 2, generator=torch.Generator().manual_seed(2))
    act, logp = nets.policy(obs).act(noise)
    low = torch.from_numpy(ACT.low)
    half = torch.from_numpy(ACT.high - ACT.low) / 2
    inside = (act - low) / half - 1
    assert inside.abs().max() < 1
    by_noise = torch.distributions.Normal(0., 1.).log_prob(noise)

    steps = 1e-3 * torch.eye(2)
    slopes = []
    for j in range(2):                                        # how far the action moves with its noise, by differences
        more, _ = nets.policy(obs).act(noise + steps[j])
        less, _ = nets.policy(obs).act(noise - steps[j])
        slopes.append((more - less)[:, j] / 2e-3)
    expected = (by_noise - torch.stack(slopes, -1).log()).sum(-1)
    unsaturated = inside.abs().amax(-1) < .95
    torch.testing.assert_close(logp[unsaturated], expected[unsaturated], rtol=1e-2, atol=1e-2)


def test_temperature_follows_the_entropy():
    "An undecided policy makes it fall, a certain one makes it rise"
    for wanted, falls in ((-50., True), (50., False)):
        learner = learner_for(dict(target_entropy=wanted))
        for _ in range(20):
            learner.process()
            learner.learn()
        assert (learner.nets.temperature().item() < 1) == falls


def test_targets_follow_the_critics_by_tau():
    learner = learner_for(dict(tau=.25))
    before = [weight.clone() for weight in learner.nets.target.parameters()]
    learner.process()
    learner.learn()
    for slow, was, quick in zip(learner.nets.target.parameters(), before, learner.nets.critic.parameters()):
        torch.testing.assert_close(slow, was + .25 * (quick - was))


def test_only_a_termination_ends_the_future():
    next_val = soft_value(torch.ones(2), torch.zeros(2, 1), 1.)
    assert bootstrapped(torch.zeros(2), torch.tensor([True, False]), next_val, .5).tolist() == [0, .5]


def test_wanted_entropy_of_a_box():
    assert usual_entropy(ACT) == pytest.approx(math.log(2) + math.log(.2) - 2, abs=1e-5)


def test_settings_of_the_batch_are_checked():
    with pytest.raises(ConfigError, match="here it is 'ent_coef'"):
        Trainer("Pendulum-v1", "sac", initial_alpha=.2)


# ---- choices

MIXED = gym.spaces.Dict(gear=gym.spaces.Discrete(3), force=ACT)


def made_up_rows(rng, act, n=12):
    "Transitions (n, ...) with these actions"
    numbers = dict(obs=rng.uniform(-1, 1, (n, 3)), rew=rng.normal(size=n), next_obs=rng.uniform(-1, 1, (n, 3)))
    rows = {name: torch.from_numpy(column).float() for name, column in numbers.items()}
    return Batch(rows, act=act, term=torch.from_numpy(rng.random(n) < .3))


def worth_by_loops(nets, critic, obs, noise, alpha):
    "Soft value of one row, written out over choices as in Christodoulou's and Delalleau's papers; and its entropies"
    pi = nets.policy(obs)
    choice = pi.parts["gear"] if noise else pi
    force, logp = pi.parts["force"].act(noise["force"]) if noise else (None, None)
    total = 0.
    for gear in range(3):
        act = Batch(gear=torch.tensor([gear]), force=force) if noise else torch.tensor([gear])
        prob = choice.probs[0, gear]
        total += prob * (critic(obs, act).min() - alpha[0] * prob.log())
    entropies = [choice.entropy()[0]]
    if noise:
        total -= alpha[1] * logp[0]
        entropies.append(-logp[0])
    return total, torch.stack(entropies)


@pytest.mark.parametrize("space", [gym.spaces.Discrete(3), MIXED], ids=["choice", "mixed"])
def test_losses_of_choices_equal_the_sums_of_their_papers(space):
    rng = np.random.default_rng(0)
    algo = SAC(**SMALL)
    nets = algo.nets(Spec(OBS, space, 1), torch.Generator().manual_seed(0))
    with torch.no_grad():
        nets.temperature.log += torch.tensor([-.5, .3])[:len(nets.temperature.log)]
        for weight in nets.policy.parameters():
            weight += .2 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    gear = torch.from_numpy(rng.integers(3, size=12))
    mixed = Batch(gear=gear, force=torch.from_numpy(rng.uniform(ACT.low, ACT.high, (12, 2))).float())
    rows = made_up_rows(rng, mixed if space is MIXED else gear)
    data, _ = algo.targets(nets, rows, NoiseStream(rng, "cpu"))

    alpha = nets.temperature()
    critic = policy = temperature = 0.
    for i in range(12):
        row = data[i:i + 1]
        noise = row.noise if space is MIXED else None
        with torch.no_grad():
            next_val, _ = worth_by_loops(nets, nets.target, row.next_obs, noise and row.next_noise, alpha)
            target = row.rew + algo.gamma * (1 - row.term.float()) * next_val
        critic += .5 * (nets.critic(row.obs, row.act) - target).square().sum() / 12
        val, ent = worth_by_loops(nets, nets.critic, row.obs, noise, alpha)
        policy -= val / 12
        temperature += (nets.temperature.log * (ent.detach() - nets.temperature.wanted)).sum() / 12
    losses = {group: loss for group, loss, _ in algo.losses(nets, data)}
    for group, expected in dict(critic=critic, policy=policy, temperature=temperature).items():
        torch.testing.assert_close(losses[group], expected, rtol=1e-4, atol=1e-5, msg=group)


def test_forbidden_choices_are_never_taken_and_their_loss_is_finite():
    trainer = Trainer("rlbench/Forbidden-v0", "sac", seed=0, num_envs=2, **SMALL)
    trainer.until("update", 5)
    rows = trainer.learner.memory.rows[:15]
    assert np.take_along_axis(rows.obs["action_mask"], rows.act[..., None].astype(int), -1).all()
    assert all(np.isfinite(float(loss)) for loss, _ in trainer.learner.last.groups.values())


@pytest.mark.parametrize("space", [gym.spaces.Discrete(3), MIXED], ids=["choice", "mixed"])
def test_an_entropy_is_wanted_of_what_is_allowed_in_a_row(space):
    rng = np.random.default_rng(0)
    algo = SAC(**SMALL)
    seen = gym.spaces.Dict(x=OBS, action_mask=gym.spaces.MultiBinary(3))
    nets = algo.nets(Spec(seen, space, 1), torch.Generator().manual_seed(0))
    gear = torch.tensor([2, 0, 2, 1])
    mixed = Batch(gear=gear, force=torch.from_numpy(rng.uniform(ACT.low, ACT.high, (4, 2))).float())
    rows = made_up_rows(rng, mixed if space is MIXED else gear, 4)
    mask = torch.tensor([[0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 0]])
    rows.obs, rows.next_obs = (Batch(x=one, action_mask=mask) for one in (rows.obs, rows.next_obs))
    data = algo.judged(nets, rows, NoiseStream(rng, "cpu"))

    pi = nets.policy(data.obs)
    choice = pi.parts["gear"] if space is MIXED else pi
    missing = choice.entropy() - algo.target_entropy_scale * torch.tensor([1., 2., 3., 1.]).log()
    if space is MIXED:
        _, logp = pi.parts["force"].act(data.noise["force"])
        missing = torch.stack([missing, -logp - usual_entropy(ACT)], -1)
    loss = {group: loss for group, loss, _ in algo.losses(nets, data)}["temperature"]
    loss.backward()
    torch.testing.assert_close(nets.temperature.log.grad, missing.reshape(4, -1).mean(0), rtol=1e-4, atol=1e-5)


def test_no_more_nats_are_wanted_than_a_mask_leaves():
    algo = SAC(**SMALL, target_entropy=1.)
    seen = gym.spaces.Dict(x=OBS, action_mask=gym.spaces.MultiBinary(3))
    nets = algo.nets(Spec(seen, gym.spaces.Discrete(3), 1), torch.Generator().manual_seed(0))
    obs = Batch(x=torch.zeros(3, 3), action_mask=torch.tensor([[0, 0, 1], [1, 0, 1], [1, 1, 1]]))
    torch.testing.assert_close(algo.wanted(nets, obs), torch.tensor([[0.], [math.log(2)], [1.]]))
    assert algo.wanted(nets, torch.zeros(3, 3)).tolist() == [1.]
