"""Ways to explore: their frequencies, masks, strengths for each environment; and a finished policy, which only acts."""
import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from rlbench.algos.dqn import DQN
from rlbench.core.batch import Batch
from rlbench.core.config import Config
from rlbench.core.schedules import Cosine, Linear, at
from rlbench.core.spaces import Spec
from rlbench.policies.distributions import Categorical, Noise
from rlbench.policies.exploration import (Exploring, Shaken, adapt, boltzmann, epsilon_greedy, epsilon_noise, jitter,
                                          ou, perturb, spread, ucb)
from rlbench.training.actor import Actor, NoiseStream, Policy

spaces = gym.spaces
N = 60_000


def drawn(recipe, n, rng):
    "The noise of a recipe, for n rows"
    return NoiseStream(rng, "cpu")(recipe, n)


def uniform(rows, columns, seed=0):
    return drawn(Noise("random", (columns,)), rows, np.random.default_rng(seed))


def shares(act, n):
    return torch.bincount(act, minlength=n) / len(act)


def close(share, expected):
    "Within five deviations of a frequency over N draws; the seeds are fixed"
    expected = torch.as_tensor(expected, dtype=torch.float32)
    return bool(((share - expected).abs() <= 5 * (expected * (1 - expected) / N).sqrt() + 1e-6).all())


# ---- epsilon greedy

@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(2, 6), st.integers(0, 10**6), st.floats(0, 1))
def test_one_epsilon_for_all_is_the_same_epsilon_for_each(rows, n, seed, epsilon):
    rng = np.random.default_rng(seed)
    q = torch.from_numpy(rng.integers(0, 3, (rows, n)).astype(np.float32))
    noise = drawn(epsilon_noise(spaces.Discrete(n)), rows, rng)
    one_for_all = epsilon_greedy(q, noise, epsilon)
    assert torch.equal(one_for_all, epsilon_greedy(q, noise, torch.full((rows,), epsilon)))
    assert torch.equal(one_for_all, epsilon_greedy(q, noise, epsilon, torch.ones(rows, n, dtype=torch.bool)))

    mixed = torch.where(torch.arange(rows) % 2 == 0, 0., 1.)
    act = epsilon_greedy(q, noise, mixed)
    assert torch.equal(act[::2], epsilon_greedy(q, noise, 0.)[::2])
    assert torch.equal(act[1::2], epsilon_greedy(q, noise, 1.)[1::2])


def test_forbidden_actions_are_taken_neither_by_greed_nor_by_chance():
    q = torch.tensor([[5., 1., 1., 0.]]).expand(N, 4)
    noise = uniform(N, 5)
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
    q = torch.tensor([[0., .5, -1.]])
    many = q.expand(N, 3)
    noise = drawn(Noise("standard_exponential", (3,)), N, np.random.default_rng(0))
    assert close(shares(boltzmann(many, noise, temperature), 3), (q[0] / temperature).softmax(-1))

    mask = torch.tensor([[True, False, True]]).expand(N, 3)
    left = (q[0, [0, 2]] / temperature).softmax(-1)
    assert close(shares(boltzmann(many, noise, temperature, mask), 3), [left[0], 0, left[1]])

    for_each = torch.where(torch.arange(N) % 2 == 0, temperature, 1e-3)[:, None]
    assert (boltzmann(many, noise, for_each)[1::2] == 1).all()


ARMS = st.lists(st.tuples(st.floats(-2, 2, width=32), st.integers(0, 50)), min_size=2, max_size=6)


@settings(max_examples=40, deadline=None)
@given(ARMS, st.floats(0, 3))
def test_ucb_is_its_formula(arms, c):
    q = torch.tensor([[value for value, _ in arms]])
    counts = torch.tensor([[n for _, n in arms]])
    t = 1 + sum(n for _, n in arms)
    want = [math.inf if n == 0 else value + c * math.sqrt(math.log(t) / n) for value, n in arms]
    assert ucb(q, counts, c)[0].tolist() == pytest.approx(want, rel=1e-5, abs=1e-5)


def greedy(hope, rng):
    return epsilon_greedy(hope, drawn(epsilon_noise(spaces.Discrete(hope.shape[1])), len(hope), rng), 0.)


def test_ucb_breaks_ties_evenly_and_finds_the_best_arm():
    rng = np.random.default_rng(0)
    means = torch.tensor([.2, .8, .5])
    assert close(shares(greedy(ucb(torch.zeros(N, 4), torch.zeros(N, 4), 1.), rng), 4), [.25] * 4)
    sums = torch.zeros(1, 3)
    counts = torch.zeros(1, 3)
    for _ in range(500):
        act = greedy(ucb(sums / counts.clamp(min=1), counts, 1.), rng)[0]
        sums[0, act] += float(rng.random() < means[act])
        counts[0, act] += 1
    assert counts.argmax() == 1 and counts.min() > 1


@pytest.mark.parametrize("how", [
    dict(epsilon=.3),
    dict(epsilon=1.),
    dict(exploration="boltzmann", temperature=.7),
])
def test_choices_come_as_often_as_their_chances(how):
    way = Exploring(**how)
    q = torch.tensor([[.5, 2., 2., -1.]])
    recipe = way.noise(Spec(spaces.Discrete(1), spaces.Discrete(4), 1), None)
    rng = np.random.default_rng(1)
    many = q.expand(N, 4)
    assert close(shares(way.choose(many, drawn(recipe, N, rng)), 4), way.chances_of(q)[0])
    mask = torch.tensor([[True, False, True, True]])
    masked = way.choose(many, drawn(recipe, N, rng), mask.expand(N, 4))
    assert not (masked == 1).any() and len(masked.unique()) == 3
    assert way.choose(q, None).item() == 1


def test_shaken_policies_are_as_far_apart_as_epsilon_says():
    net = nn.Linear(4, 3)
    rng = np.random.default_rng(0)
    obs = drawn(Noise("standard_normal", (4,)), 64, rng)
    shaken = Shaken(net, seed=0)
    weight = net.weight.detach().clone()
    for epsilon in (.1, .6):                                                # live: another ε finds another strength
        for _ in range(150): shaken.shake(net, obs, epsilon)
        apart = []
        for _ in range(200):
            shaken.shake(net, obs, epsilon)
            apart.append(Categorical(net(obs)).kl(Categorical(shaken(obs))).mean().item())
        assert np.median(apart) == pytest.approx(-math.log(1 - epsilon + epsilon / 3), rel=.25)
    assert torch.equal(net.weight, weight) and shaken.shakes == 700
    assert not any(weight.requires_grad for weight in shaken.parameters())


def test_what_was_shaken_is_all_in_its_state():
    "Two copies with one state draw the same noise from there on"
    obs = torch.ones(5, 4)
    net = nn.Linear(4, 3)
    one = Shaken(net, seed=3)
    for _ in range(4): one.shake(net, obs, .3)
    two = Shaken(net, seed=3)
    two.load_state_dict(one.state_dict())
    for shaken in (one, two): shaken.shake(net, obs, .3)
    assert torch.equal(one(obs), two(obs)) and torch.equal(one.sigma, two.sigma)
    other = Shaken(net, seed=4)
    other.load_state_dict(one.state_dict())
    other.shake(net, obs, .3)
    one.shake(net, obs, .3)
    assert not torch.equal(one(obs), other(obs))


# ---- noise on actions

BOX = spaces.Box(np.float32([-2, 0]), np.float32([2, 1]))
LOW = torch.from_numpy(BOX.low)
WIDTH = torch.from_numpy(BOX.high - BOX.low)


def test_jitter_is_counted_in_half_widths_and_stays_inside():
    act = torch.tensor([[0., .5]]).expand(N, 2)
    noise = drawn(Noise("standard_normal", (2,)), N, np.random.default_rng(0))
    assert torch.allclose(jitter(act, noise, .1, LOW, WIDTH).std(0), torch.tensor([.2, .05]), rtol=.02)
    assert all(BOX.contains(a) for a in jitter(act[:500], noise[:500], 9., LOW, WIDTH).numpy())
    assert torch.equal(jitter(act, noise, 0., LOW, WIDTH), act)
    two = jitter(act[:2], noise[:2], torch.tensor([[0.], [.1]]), LOW, WIDTH)  # one deviation for each environment
    assert torch.equal(two[0], act[0]) and not torch.equal(two[1], act[1])


def test_the_ou_process_is_its_recursion_and_only_its_carry():
    rng = np.random.default_rng(0)
    kicks = rng.standard_normal((30, 3, 2)).astype(np.float32)
    first = rng.random((30, 3)) < .2
    carry = torch.zeros(3, 2)
    x = np.zeros((3, 2))
    for kick, start in zip(kicks, first):
        kept = carry.clone()
        after = ou(carry, torch.from_numpy(kick), torch.from_numpy(start), .15, .2)
        assert torch.equal(carry, kept)
        x[start] = 0
        x += -.15 * x + .2 * kick
        assert torch.allclose(after, torch.from_numpy(x).float(), atol=1e-5)
        carry = after


# ---- noise on weights

def small_net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def two_nets():
    "A network with weights from a generator, and another of its shape"
    net = small_net()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.randn(weight.shape, generator=rng))
    return net, small_net()


def vector(net):
    return nn.utils.parameters_to_vector(net.parameters()).detach()


def distance(a, b):
    "Root mean squared difference"
    return (a - b).square().mean().sqrt().item()


def test_perturbed_weights_are_weights_and_noise():
    net, copy = two_nets()
    before = vector(net)
    noise = torch.arange(26.)
    perturb(copy, net, noise, .5)
    assert torch.equal(vector(copy), before + .5 * noise)
    assert torch.equal(vector(net), before)
    perturb(copy, net, noise, 0.)
    obs = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    assert distance(net(obs), copy(obs)) == 0
    with pytest.raises(ValueError, match="25 noise numbers for 26 weights"):
        perturb(copy, net, noise[1:], 1.)


@pytest.mark.parametrize("start", [.01, 5.])
def test_the_deviation_adapts_until_actions_are_as_far_apart_as_wanted(start):
    net, copy = two_nets()
    rng = torch.Generator().manual_seed(2)
    sigma = start
    obs = torch.randn(200, 3, generator=rng)
    apart = []
    for _ in range(1500):
        perturb(copy, net, torch.randn(26, generator=rng), sigma)
        apart.append(distance(net(obs), copy(obs)))
        sigma = adapt(sigma, apart[-1], .3, 1.01)
    assert np.median(apart[-300:]) == pytest.approx(.3, rel=.15)
    assert adapt(1., .2, .3, 1.5) == 1.5 and adapt(1., .4, .3, 2.) == .5


# ---- strengths are settings

def test_strengths_change_in_the_middle_of_a_run():
    config = Config(dict(agent=DQN))
    config.add("python", dict(epsilon="cosine(1, 0, 100)"))
    settings_now = config.values["agent"]
    assert at(settings_now, 50).epsilon == pytest.approx(.5) and at(settings_now, 100).epsilon == 0
    config.add("widget", dict(epsilon=.25))
    assert at(config.values["agent"], 50).epsilon == .25
    assert config.explain("epsilon").setting.live
    assert Cosine(1, 0, 100).at(0) == Linear(1, 0, 100).at(0)


# ---- the finished policy

class Doing:
    "As much of an algorithm as an actor needs: it acts by a function"
    name = "doing"

    def __init__(self, function):
        self.function = function

    def noise(self, spec, nets):
        return Noise("random", ())

    def act(self, nets, obs, noise, carry):
        act, carry = self.function(obs, noise, carry)
        return act, {}, carry


def policy_of(function, space):
    spec = Spec(space, spaces.Discrete(2), 1)
    return Policy(Actor(Doing(function), nn.Identity(), spec, np.random.default_rng(0)))


PARTS = spaces.Dict(place=spaces.Box(-9, 9, (2,)), more=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]))


def sums_of_parts(obs, noise, carry):
    "Sums where it is greedy, else the noise"
    act = Batch(go=obs.place.sum(-1), why=Batch({"0": obs.more["0"]}))
    return act if noise is None else noise, carry


def test_a_policy_takes_and_gives_parts_alone_or_in_a_batch():
    policy = policy_of(sums_of_parts, PARTS)
    act = policy.act(dict(place=[1., 5.], more=(2, [0, 1])))
    assert act.go == 6 and act.why["0"] == 2 and np.ndim(act.go) == 0
    many = dict(place=np.ones((4, 2)), more={"0": np.arange(4) % 3, "1": np.zeros((4, 2), np.int8)})
    assert policy.act(many).go.tolist() == [2] * 4
    assert policy.act(many, greedy=False).shape == (4,)


@pytest.mark.parametrize("wrong,message", [
    (dict(place=[1., 5.]), r"expected \['more', 'place'\]"),
    (dict(place=[1.], more=(2, [0, 1])), r"shape \(1,\), expected \(2,\)"),
])
def test_a_policy_refuses_what_is_no_observation(wrong, message):
    with pytest.raises(ValueError, match=message):
        policy_of(sums_of_parts, PARTS).act(wrong)


@pytest.mark.parametrize("space,one,many", [
    (spaces.Discrete(3), 2, [2, 0]),
    (spaces.Box(-1, 1, (2,)), [0., 1.], [[0., 1.]] * 2),
    (spaces.Box(-1, 1, (1, 2)), [[0., 1.]], [[[0., 1.]]] * 2),
])
def test_a_policy_tells_one_observation_from_a_batch(space, one, many):
    policy = policy_of(lambda obs, noise, carry: (obs.reshape(len(obs), -1).float().sum(-1), carry), space)
    assert np.ndim(policy.act(one)) == 0
    assert policy.act(many).shape == (2,) and policy.act(many)[0] == policy.act(one)
    with pytest.raises(ValueError, match="observation of shape"):
        policy.act([many])


def count(obs, noise, carry):
    "How often it was asked since the episode began"
    carry = (torch.zeros(len(obs), 1) if carry is None else carry) + 1
    return carry[:, 0], carry


def test_a_policy_remembers_until_an_episode_begins():
    policy = policy_of(count, spaces.Discrete(3))
    obs = [0, 1, 2]
    assert [policy.act(obs).tolist() for _ in range(2)] == [[1, 1, 1], [2, 2, 2]]
    policy.actor.begin(np.array([False, True, False]))
    assert policy.act(obs).tolist() == [3, 1, 3]
    assert policy.act(1) == 1                                               # another number of rows: nobody's memory
    policy.begin()
    assert policy.act(1) == 1 and policy.act(1) == 2
