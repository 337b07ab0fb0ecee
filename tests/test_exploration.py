"""Ways to explore: their frequencies against what they promise, masks, strengths for each environment, and no state but what is handed in."""
import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from rlbench.core.batch import Batch
from rlbench.core.config import Config, Cosine, Linear, at
from rlbench.algos.algorithm import Spec
from rlbench.algos.dqn import DQN
from rlbench.policies.distributions import Categorical, SpaceProblem
from rlbench.policies.exploration import Exploring, Policy, Shaken, adapt, boltzmann, distance, epsilon_greedy, epsilon_noise, jitter, ou, perturb, spread, ucb

spaces = gym.spaces
N = 60_000


def uniform(*shape, seed=0): return torch.from_numpy(np.random.default_rng(seed).random(shape, np.float32))


def shares(act, n): return torch.bincount(act, minlength=n) / len(act)


def close(share, expected):
    "Within five deviations of a frequency over N draws; the seeds are fixed"
    expected = torch.as_tensor(expected, dtype=torch.float32)
    return bool(((share - expected).abs() <= 5 * (expected * (1 - expected) / N).sqrt() + 1e-6).all())


# ---- epsilon greedy

@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(2, 6), st.integers(0, 10**6), st.floats(0, 1))
def test_one_epsilon_for_all_is_the_same_epsilon_for_each(rows, n, seed, eps):
    rng = np.random.default_rng(seed)
    q, noise = torch.from_numpy(rng.integers(0, 3, (rows, n)).astype(np.float32)), epsilon_noise(spaces.Discrete(n), rng, rows)
    assert torch.equal(epsilon_greedy(q, noise, eps), epsilon_greedy(q, noise, torch.full((rows,), eps)))
    mixed = torch.where(torch.arange(rows) % 2 == 0, 0., 1.)
    act = epsilon_greedy(q, noise, mixed)
    assert torch.equal(act[::2], epsilon_greedy(q, noise, 0.)[::2]) and torch.equal(act[1::2], epsilon_greedy(q, noise, 1.)[1::2])
    assert torch.equal(epsilon_greedy(q, noise, eps, torch.ones(rows, n, dtype=torch.bool)), epsilon_greedy(q, noise, eps))


def test_forbidden_actions_are_taken_neither_by_greed_nor_by_chance():
    q, noise = torch.tensor([[5., 1., 1., 0.]]).expand(N, 4), uniform(N, 5)
    mask = torch.tensor([[False, True, True, True]]).expand(N, 4)
    assert close(shares(epsilon_greedy(q, noise, .3, mask), 4), [0, .35 + .1, .35 + .1, .1])
    assert q.max() == 5                                                     # the values handed in are as they were
    noise[:, 1:] = 0                                                        # equal luck for all, the worst there is
    assert 0 not in epsilon_greedy(q, noise, 1., mask)


def test_epsilons_spread_as_in_ape_x():
    assert torch.allclose(spread(.4, 8, 7), torch.tensor([.4**(1 + 7 * i / 7) for i in range(8)]))
    assert spread(.4, 1, 7).tolist() == pytest.approx([.4])


# ---- other choices among values

@pytest.mark.parametrize("temperature", [.1, 1., 10.])
def test_boltzmann_frequencies(temperature):
    q, noise = torch.tensor([[0., .5, -1.]]), Categorical.noise(spaces.Discrete(3), np.random.default_rng(0), N)
    assert close(shares(boltzmann(q.expand(N, 3), noise, temperature), 3), (q[0] / temperature).softmax(-1))
    mask = torch.tensor([[True, False, True]]).expand(N, 3)
    left = (q[0, [0, 2]] / temperature).softmax(-1)
    assert close(shares(boltzmann(q.expand(N, 3), noise, temperature, mask), 3), [left[0], 0, left[1]])
    each = torch.where(torch.arange(N) % 2 == 0, temperature, 1e-3)[:, None] # one temperature for each environment
    assert (boltzmann(q.expand(N, 3), noise, each)[1::2] == 1).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(-2, 2, width=32), st.integers(0, 50)), min_size=2, max_size=6), st.floats(0, 3))
def test_ucb_is_its_formula(arms, c):
    q, counts = torch.tensor([[a for a, _ in arms]]), torch.tensor([[n for _, n in arms]])
    t = 1 + sum(n for _, n in arms)
    assert ucb(q, counts, c)[0].tolist() == pytest.approx([math.inf if n == 0 else value + c * math.sqrt(math.log(t) / n) for value, n in arms], rel=1e-5, abs=1e-5)


def test_ucb_breaks_ties_evenly_and_finds_the_best_arm():
    greedy = lambda hope, rng: epsilon_greedy(hope, epsilon_noise(spaces.Discrete(hope.shape[1]), rng, len(hope)), 0.)
    rng, means = np.random.default_rng(0), torch.tensor([.2, .8, .5])
    assert close(shares(greedy(ucb(torch.zeros(N, 4), torch.zeros(N, 4), 1.), rng), 4), [.25] * 4)
    sums, counts = torch.zeros(1, 3), torch.zeros(1, 3)
    for t in range(500):
        act = greedy(ucb(sums / counts.clamp(min=1), counts, 1.), rng)[0]
        sums[0, act] += float(rng.random() < means[act])
        counts[0, act] += 1
    assert counts.argmax() == 1 and counts.min() > 1


@pytest.mark.parametrize("how", [dict(eps=.3), dict(eps=1.), dict(explore="boltzmann", temperature=.7)])
def test_choices_come_as_often_as_their_chances(how):
    way, q = Exploring(**how), torch.tensor([[.5, 2., 2., -1.]])
    spec = Spec(spaces.Discrete(1), spaces.Discrete(4), 1)
    rng = np.random.default_rng(1)
    assert close(shares(way.choose(q.expand(N, 4), way.noise(spec, rng, N)), 4), way.chances(q)[0])
    mask = torch.tensor([[True, False, True, True]])
    masked = way.choose(q.expand(N, 4), way.noise(spec, rng, N), mask.expand(N, 4))
    assert not (masked == 1).any() and len(masked.unique()) == 3
    assert way.choose(q, None).item() == 1


def test_shaken_policies_are_as_far_apart_as_epsilon_says():
    net, rng = nn.Linear(4, 3), np.random.default_rng(0)
    obs, shaken = torch.from_numpy(rng.standard_normal((64, 4), np.float32)), Shaken(net)
    weight = net.weight.detach().clone()
    for eps in (.1, .6):                                                    # live: another ε finds another strength
        for _ in range(150): shaken.shake(net, obs, eps, rng)
        apart = []
        for _ in range(200):
            shaken.shake(net, obs, eps, rng)
            apart.append(Categorical(net(obs)).kl(Categorical(shaken(obs))).mean().item())
        assert np.median(apart) == pytest.approx(-math.log(1 - eps + eps / 3), rel=.25)
    assert torch.equal(net.weight, weight) and shaken.shakes == 700 and not any(p.requires_grad for p in shaken.parameters())


# ---- noise on actions

BOX = spaces.Box(np.float32([-2, 0]), np.float32([2, 1]))


def test_jitter_is_counted_in_half_widths_and_stays_inside():
    act, noise = torch.tensor([[0., .5]]).expand(N, 2), torch.from_numpy(np.random.default_rng(0).standard_normal((N, 2), np.float32))
    assert torch.allclose(jitter(act, noise, .1, BOX).std(0), torch.tensor([.2, .05]), rtol=.02)
    assert all(BOX.contains(a) for a in jitter(act[:500], noise[:500], 9., BOX).numpy())
    assert torch.equal(jitter(act, noise, 0., BOX), act)
    two = jitter(act[:2], noise[:2], torch.tensor([[0.], [.1]]), BOX)       # one deviation for each environment
    assert torch.equal(two[0], act[0]) and not torch.equal(two[1], act[1])
    with pytest.raises(SpaceProblem, match="finite bounds"): jitter(act, noise, .1, spaces.Box(-np.inf, np.inf, (2,)))


def test_the_ou_process_is_its_recursion_and_only_its_carry():
    rng = np.random.default_rng(0)
    kicks, first = rng.standard_normal((30, 3, 2)).astype(np.float32), rng.random((30, 3)) < .2
    carry, x = torch.zeros(3, 2), np.zeros((3, 2))
    for kick, start in zip(kicks, first):
        kept = carry.clone()
        after = ou(carry, torch.from_numpy(kick), torch.from_numpy(start), .15, .2)
        assert torch.equal(carry, kept)
        x[start] = 0
        x += -.15 * x + .2 * kick
        assert torch.allclose(after, torch.from_numpy(x).float(), atol=1e-5)
        carry = after


# ---- noise on weights

def nets():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in net.parameters(): p.copy_(torch.randn(p.shape, generator=rng))
    return net, nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def test_perturbed_weights_are_weights_and_noise():
    net, copy = nets()
    before, noise = torch.cat([p.detach().reshape(-1) for p in net.parameters()]), torch.arange(26.)
    perturb(copy, net, noise, .5)
    assert torch.equal(torch.cat([p.detach().reshape(-1) for p in copy.parameters()]), before + .5 * noise)
    assert torch.equal(torch.cat([p.detach().reshape(-1) for p in net.parameters()]), before)
    perturb(copy, net, noise, 0.)
    obs = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    assert distance(net(obs), copy(obs)) == 0
    with pytest.raises(ValueError, match="25 noise numbers for 26 weights"): perturb(copy, net, noise[1:], 1.)


@pytest.mark.parametrize("start", [.01, 5.])
def test_the_deviation_adapts_until_actions_are_as_far_apart_as_wanted(start):
    net, copy = nets()
    rng, sigma = torch.Generator().manual_seed(2), start
    obs, apart = torch.randn(200, 3, generator=rng), []
    for i in range(1500):
        perturb(copy, net, torch.randn(26, generator=rng), sigma)
        apart.append(distance(net(obs), copy(obs)).item())
        sigma = adapt(sigma, apart[-1], .3, 1.01)
    assert np.median(apart[-300:]) == pytest.approx(.3, rel=.15)
    assert adapt(1., .2, .3, 1.5) == 1.5 and adapt(1., .4, .3, 2.) == .5


# ---- strengths are settings

def test_strengths_change_in_the_middle_of_a_run():
    config = Config(dict(algo=DQN))
    config.add("python", dict(eps="cosine(1, 0, 100)"))
    assert at(config.values["algo"], 50).eps == pytest.approx(.5) and at(config.values["algo"], 100).eps == 0
    config.add("widget", dict(eps=.25))
    assert at(config.values["algo"], 50).eps == .25
    assert config.explain("eps").setting.live and Cosine(1, 0, 100).at(0) == Linear(1, 0, 100).at(0)


# ---- the finished policy

PARTS = spaces.Dict(place=spaces.Box(-9, 9, (2,)), more=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]))


def test_a_policy_takes_and_gives_parts_alone_or_in_a_batch():
    def choose(obs, noise, carry): return Batch(go=obs.place.sum(-1), why=Batch({"0": obs.more["0"]})) if noise is None else noise, carry
    policy = Policy(choose, lambda n: torch.zeros(n), PARTS)
    one = dict(place=[1., 5.], more=(2, [0, 1]))
    act = policy.act(one)
    assert act.go == 6 and act.why["0"] == 2 and np.ndim(act.go) == 0
    many = dict(place=np.ones((4, 2)), more={"0": np.arange(4) % 3, "1": np.zeros((4, 2), np.int8)})
    assert policy.act(many).go.tolist() == [2] * 4 and policy.act(many, greedy=False).shape == (4,)
    for wrong, message in [(dict(place=[1., 5.]), r"expected \['more', 'place'\]"), (dict(place=[1.], more=(2, [0, 1])), r"shape \(1,\), expected \(2,\)")]:
        with pytest.raises(ValueError, match=message): policy.act(wrong)


@pytest.mark.parametrize("space,one,many", [(spaces.Discrete(3), 2, [2, 0]), (spaces.Box(-1, 1, (2,)), [0., 1.], [[0., 1.]] * 2), (spaces.Box(-1, 1, (1, 2)), [[0., 1.]], [[[0., 1.]]] * 2)])
def test_a_policy_tells_one_observation_from_a_batch(space, one, many):
    policy = Policy(lambda obs, noise, carry: (obs.reshape(len(obs), -1).float().sum(-1), carry), None, space)
    assert np.ndim(policy.act(one)) == 0 and policy.act(many).shape == (2,) and policy.act(many)[0] == policy.act(one)
    with pytest.raises(ValueError, match="observation of shape"): policy.act([many])


def test_a_policy_remembers_until_an_episode_begins():
    def count(obs, noise, carry):
        carry = (torch.zeros(len(obs), 1) if carry is None else carry) + 1
        return carry[:, 0], carry
    policy, obs = Policy(count, None, spaces.Discrete(3)), [0, 1, 2]
    assert [policy.act(obs).tolist() for _ in range(2)] == [[1, 1, 1], [2, 2, 2]]
    policy.begin(np.array([False, True, False]))
    assert policy.act(obs).tolist() == [3, 1, 3]
    assert policy.act(1) == 1                                               # another number of rows: nobody's memory
    policy.begin()
    assert policy.act(1) == 1 and policy.act(1) == 2
