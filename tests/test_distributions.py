"""Distributions against scipy, torch and sampling; masks that leak nothing; gradients that stay finite."""
import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from rlbench.core.batch import Batch
from rlbench.core.spaces import SpaceProblem, parts_of
from rlbench.policies.distributions import (TRIES, Beta, Bernoulli, Categorical, Dirac, Gaussian, MaskedCategorical,
                                            Product, Shifted, SquashedGaussian, gamma_number)
from rlbench.policies.networks import DiracHead, StateGaussianHead, head_for
from rlbench.training.actor import NoiseStream

spaces = gym.spaces
D = torch.distributions
BOX = spaces.Box(np.float32([-2, 0]), np.float32([2, 1]))
HYBRID = spaces.Dict(
    fire=spaces.Discrete(3, start=-1),
    steer=BOX,
    more=spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)]),
)
CASES = [
    (spaces.Discrete(4), "gaussian"),
    (spaces.Discrete(3, start=5), "gaussian"),
    (spaces.MultiDiscrete([2, 3, 4]), "gaussian"),
    (spaces.MultiDiscrete([2, 3], start=[1, -4]), "gaussian"),
    (spaces.MultiBinary(3), "gaussian"),
    (BOX, "gaussian"),
    (BOX, "state_gaussian"),
    (BOX, "squashed"),
    (BOX, "beta"),
    (BOX, "dirac"),
    (HYBRID, "squashed"),
    (HYBRID, "gaussian"),
    (spaces.Tuple([spaces.Discrete(2), BOX]), "beta"),
]
IDS = [f"{type(space).__name__}-{box}-{i}" for i, (space, box) in enumerate(CASES)]
OPEN = {"gaussian", "state_gaussian"}                                       # samples may leave the box


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(head, n, seed=0):
    "The noise that a head asks for, for n rows"
    return NoiseStream(np.random.default_rng(seed), "cpu")(head.noise, n)


def build(space, box, rows, seed=0, scale=1.):
    "A head, a distribution that it makes, and all it depends on"
    head = head_for(space, box)
    out = (scale * torch.randn(rows, head.size, generator=generator(seed))).requires_grad_()
    free = list(head.parameters())
    with torch.no_grad():
        for weight in free:
            weight.copy_(.3 * torch.randn(weight.shape, generator=generator(seed + 1)))
    return head, head(out), [out, *free]


def leaves(tree):
    "Every tensor of a nested Batch"
    if not isinstance(tree, dict): return [tree]
    return [x for part in tree.values() for x in leaves(part)]


def row(space, act, i):
    "Row i of a batch of actions, as the environment takes it"
    parts = parts_of(space)
    if parts is not None:
        made = {name: row(part, act[name], i) for name, part in parts.items()}
        return made if isinstance(space, spaces.Dict) else tuple(made.values())
    one = act[i].detach().numpy()
    if isinstance(space, spaces.Discrete): return np.int64(one)
    return np.clip(one, space.low, space.high) if isinstance(space, spaces.Box) else one


@pytest.mark.parametrize("space,box", CASES, ids=IDS)
def test_samples_and_modes_are_actions_of_the_space_and_noise_makes_them(space, box):
    head, pi, _ = build(space, box, 50)
    noise = drawn(head, 50)
    again = drawn(head, 50)
    for act in (pi.sample(noise), pi.mode(), pi.act(noise)[0]):
        assert all(space.contains(row(space, act, i)) for i in range(50))
    for a, b, c in zip(leaves(pi.sample(noise)), leaves(pi.sample(again)), leaves(pi.act(noise)[0])):
        assert torch.equal(a, b) and torch.equal(a, c)
    if box not in OPEN and isinstance(space, spaces.Box):
        assert BOX.contains(pi.sample(noise)[0].detach().numpy())


@pytest.mark.parametrize("space,box", CASES, ids=IDS)
def test_without_noise_the_likeliest_action_is_taken(space, box):
    _, pi, _ = build(space, box, 7)
    act, logp = pi.act(None)
    for a, b in zip(leaves(act), leaves(pi.mode())):
        assert torch.equal(a, b)
    assert torch.allclose(logp, pi.logp(act), atol=1e-4)


@pytest.mark.parametrize("space,box", CASES, ids=IDS)
def test_shapes(space, box):
    head, pi, _ = build(space, box, 7)
    act, logp = pi.act(drawn(head, 7))
    assert logp.shape == pi.logp(act).shape == pi.entropy().shape == pi.kl(pi).shape == (7,)
    assert torch.allclose(pi.kl(pi), torch.zeros(7), atol=1e-5)
    assert isinstance(pi, Product) == isinstance(act, Batch)


SPREAD_OUT = [case for case in CASES if case[1] != "dirac"]


@pytest.mark.parametrize("space,box", SPREAD_OUT, ids=[name for name in IDS if "dirac" not in name])
def test_entropy_and_kl_are_what_sampling_says(space, box):
    n = 40_000
    pis = []
    for seed in (3, 4):
        head, _, weights = build(space, box, 1, seed)
        pis.append(head(weights[0].expand(n, -1)))
    pi, other = pis
    act, logp = pi.act(drawn(head, n, seed=1))
    assert torch.allclose(logp, pi.logp(act), atol=1e-2)
    for exact, samples in [(pi.entropy(), -logp), (pi.kl(other), logp - other.logp(act))]:
        near = 5 * samples.std().item() / math.sqrt(n) + 1e-3               # five deviations of the mean
        assert abs(samples.mean().item() - exact[0].item()) < near
    assert (pi.kl(other) > 0).all()


@pytest.mark.parametrize("scale", [1., 30., 300.])
@pytest.mark.parametrize("space,box", CASES, ids=IDS)
def test_gradients_are_finite_even_far_out(space, box, scale):
    head, pi, weights = build(space, box, 20, scale=scale)
    _, other, _ = build(space, box, 20, seed=9)
    act, logp = pi.act(drawn(head, 20))
    asked = [pi.entropy().sum()]
    if scale == 1: asked.append(other.kl(pi).sum())
    if box != "dirac": asked.append(logp.sum())
    asked += [part.sum() for part in leaves(act)]
    for what in asked:
        if not what.requires_grad: continue
        grads = torch.autograd.grad(what, weights, retain_graph=True, allow_unused=True)
        assert torch.isfinite(what)
        assert all(torch.isfinite(grad).all() for grad in grads if grad is not None)


# ---- masks

@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(2, 7), st.integers(0, 10**6), st.sampled_from([1., 50., 1e4]))
def test_a_mask_equals_a_smaller_distribution(rows, n, seed, scale):
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, n)) < .5
    mask[np.arange(rows), rng.integers(n, size=rows)] = True
    mask = torch.from_numpy(mask)
    logits = (scale * torch.from_numpy(rng.normal(size=(rows, n)).astype(np.float32))).requires_grad_()
    pi = MaskedCategorical(logits, mask)
    noise = drawn(head_for(spaces.Discrete(n)), rows, seed)
    noise[~mask] = 0                                                        # would win every race
    assert (pi.probs[~mask] == 0).all() and (pi.logits[~mask] == -math.inf).all()
    assert torch.isfinite(pi.logits[mask]).all()
    assert mask[torch.arange(rows), pi.sample(noise)].all() and mask[torch.arange(rows), pi.mode()].all()

    other = MaskedCategorical(logits.detach().flip(0), mask)
    for i in range(rows):
        small = Categorical(logits[i, mask[i]])
        small_other = Categorical(other.finite[i, mask[i]])
        assert torch.allclose(pi.probs[i, mask[i]], small.probs, atol=1e-6)
        assert torch.allclose(pi.entropy()[i], small.entropy(), rtol=1e-4, atol=1e-5)
        assert torch.allclose(pi.kl(other)[i], small.kl(small_other), rtol=1e-4, atol=1e-4)

    for what in (pi.logp(pi.sample(noise)), pi.entropy(), pi.kl(other), other.kl(pi)):
        [grad] = torch.autograd.grad(what.sum(), logits, retain_graph=True)
        assert torch.isfinite(what).all() and torch.isfinite(grad).all()
        assert (grad[~mask] == 0).all()
    asked_of_the_masked = pi.logits.exp().sum() + pi.logp(mask.int().argmin(-1)).exp().sum()
    [grad] = torch.autograd.grad(asked_of_the_masked, logits)
    assert torch.isfinite(grad).all()


def test_kl_is_infinite_where_the_other_forbids_what_this_allows():
    pi = Categorical(torch.zeros(1, 2))
    other = MaskedCategorical(torch.zeros(1, 2), torch.tensor([[True, False]]))
    assert pi.kl(other).item() == math.inf
    assert abs(other.kl(pi).item() - math.log(2)) < 1e-6


def test_a_mask_that_allows_all_means_the_same_bits():
    logits = torch.randn(100, 5, generator=generator())
    noise = drawn(head_for(spaces.Discrete(5)), 100)
    plain = Categorical(logits)
    masked = MaskedCategorical(logits, torch.ones(100, 5, dtype=torch.bool))
    pairs = [
        (plain.logits, masked.logits),
        (plain.sample(noise), masked.sample(noise)),
        (plain.entropy(), masked.entropy()),
        (plain.kl(masked), masked.kl(plain)),
    ]
    for a, b in pairs:
        assert torch.equal(a, b)


@pytest.mark.parametrize("space,mask,message", [
    (spaces.Discrete(3), [[1, 1, 0], [0, 0, 0]], r"no action is allowed in row \[1\] and 0 more"),
    (spaces.Discrete(3), [[1, 1]], "expected 3 entries"),
    (spaces.Discrete(3, start=4), [[0, 0, 0]], r"no action is allowed in row \[0\]"),
    (spaces.MultiDiscrete([2, 2]), [[1, 1, 0, 0]], r"no action is allowed in row \[0\]"),
    (spaces.MultiDiscrete([2, 2]), [[1, 1, 1]], r"expected 4 entries in a row, for choices among \[2, 2\]"),
    (HYBRID, [[1] * 9], "expected 8 entries"),
])
def test_bad_masks_are_refused(space, mask, message):
    head = head_for(space)
    with pytest.raises(ValueError, match=message):
        head.masked(torch.zeros(len(mask), head.size), torch.tensor(mask))


def test_flat_masks_reach_the_right_branches():
    head = head_for(HYBRID)
    assert list(parts_of(HYBRID)) == ["fire", "steer", "more"] and head.choices == 8
    mask = torch.tensor([[0, 1, 0, 1, 0, 0, 0, 1]])                         # fire = 0, more = (0, 2): only one way each
    pi = head.masked(torch.randn(1, head.size, generator=generator()), mask)
    for seed in range(5):
        act = pi.sample(drawn(head, 1, seed))
        assert act.fire.tolist() == [0] and act.more["0"].tolist() == [[0, 2]]
    assert list(act.more) == ["0", "1"] and act.steer.shape == (1, 2)


# ---- each kind against its reference

def test_actions_count_from_start():
    plain = Categorical(torch.tensor([[0., 3., 1.]]))
    pi = Shifted(plain, start=5)
    assert pi.mode().tolist() == [6]
    assert torch.allclose(pi.logp(torch.tensor([7])), plain.logp(torch.tensor([2])))
    pi = head_for(spaces.MultiDiscrete([2, 3], start=[1, -4]))(torch.tensor([[9., 0., 0., 0., 9.]]))
    assert pi.mode().tolist() == [[1, -2]] and pi.logp(pi.mode()).item() > -.01


def test_multicategorical_is_the_product_of_its_branches():
    head = head_for(spaces.MultiDiscrete([2, 3]))
    out = torch.randn(4, 5, generator=generator())
    pi = head(out)
    peers = [D.Categorical(logits=x) for x in out.split([2, 3], -1)]
    act = pi.sample(drawn(head, 4))
    assert torch.allclose(pi.logp(act), sum(p.log_prob(a) for p, a in zip(peers, act.unbind(-1))), atol=1e-6)
    assert torch.allclose(pi.entropy(), sum(p.entropy() for p in peers), atol=1e-6)
    pairs = [torch.tensor([[a, b]]).expand(4, 2) for a in range(2) for b in range(3)]
    joint = sum(pi.logp(pair).exp() for pair in pairs)
    assert torch.allclose(joint, torch.ones(4), atol=1e-6)


@pytest.mark.parametrize("p", [.001, .3, .5, .97])
def test_bernoulli_frequencies(p):
    n = 200_000
    pi = Bernoulli(torch.full((n, 1), math.log(p / (1 - p))))
    on = pi.sample(drawn(head_for(spaces.MultiBinary(1)), n)).float().mean().item()
    assert abs(on - p) < 5 * math.sqrt(p * (1 - p) / n)


def doubles(*numbers):
    "Every number as a tensor (1, 1)"
    return [torch.tensor([[x]], dtype=torch.float64) for x in numbers]


@settings(max_examples=40, deadline=None)
@given(st.floats(-3, 3), st.floats(-3, 1), st.floats(-1.95, 1.95))
def test_squashed_gaussian_density_is_the_derivative_of_its_distribution_function(mean, log_std, act):
    "The density in the box against scipy's normal, differentiated by hand in double precision"
    pi = SquashedGaussian(*doubles(mean, log_std), torch.tensor([-2.]).double(), torch.tensor([4.]).double())

    def cdf(a):
        return stats.norm(mean, math.exp(log_std)).cdf(math.atanh(a / 2))

    h = 1e-5
    if cdf(act) < 1e-6 or cdf(act) > 1 - 1e-6:
        return                                                              # nothing left to differentiate
    density = (cdf(act + h) - cdf(act - h)) / (2 * h)
    assert pi.logp(*doubles(act)).exp().item() == pytest.approx(density, rel=1e-3, abs=1e-6)


NEAR = {1.: .01, 2.: .03}                                                   # quadrature of a wide normal is less exact


@pytest.mark.parametrize("log_std", [-3., -1., 0., 1., 2.])
@pytest.mark.parametrize("mean", [0., .7, 4.])
def test_squashed_gaussian_entropy_estimate(mean, log_std):
    pi = SquashedGaussian(torch.tensor([[mean]]), torch.tensor([[log_std]]), torch.tensor([-1.]), torch.tensor([2.]))
    z = np.linspace(-12, 12, 400_001)
    u = mean + math.exp(log_std) * z
    slope = 2 * (math.log(2) - u - np.logaddexp(0, -2 * u))
    mean_slope = (stats.norm.pdf(z) * slope).sum() * (z[1] - z[0])
    exact = stats.norm(mean, math.exp(log_std)).entropy() + mean_slope
    assert pi.entropy().item() == pytest.approx(exact, abs=NEAR.get(log_std, 1e-4))


def test_squashed_gaussian_is_exact_at_the_edge():
    "Where tanh rounds to 1, act still knows u; logp of the action alone stays finite"
    pi = SquashedGaussian(torch.tensor([[12.]]), torch.tensor([[0.]]), torch.tensor([-1.]), torch.tensor([2.]))
    act, logp = pi.act(torch.zeros(1, 1))
    assert act.item() == 1 and torch.isfinite(pi.logp(act)).all()
    assert logp.item() == pytest.approx(-.5 * math.log(2 * math.pi) - (2 * math.log(2) - 24), rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.floats(1, 60), st.floats(1, 60), st.floats(-4.9, 2.9))
def test_beta_is_scipys(a, b, act):
    pi = Beta(*doubles(a, b), torch.tensor([-5.]), torch.tensor([8.]))
    peer = stats.beta(a, b, loc=-5, scale=8)
    assert pi.logp(*doubles(act)).item() == pytest.approx(peer.logpdf(act), rel=1e-4, abs=1e-3)
    assert pi.entropy().item() == pytest.approx(peer.entropy(), rel=1e-3, abs=1e-3)
    top = pi.mode().item()
    nowhere_higher = all(peer.pdf(top) >= peer.pdf(x) - 1e-6 for x in np.linspace(-4.9, 2.9, 7))
    assert -5 <= top <= 3 and nowhere_higher or min(a, b) < 1.001


@pytest.mark.parametrize("shape", [1., 1.5, 8., 200.])
def test_gamma_numbers_are_gamma_distributed(shape):
    rng = np.random.default_rng(3)
    n = 40_000
    normal = torch.from_numpy(rng.standard_normal((n, TRIES)))
    uniform = torch.from_numpy(rng.random((n, TRIES)))
    made = gamma_number(torch.full((n,), shape).double(), normal, uniform).numpy()
    assert stats.kstest(made, stats.gamma(shape).cdf).pvalue > 1e-3


def test_gamma_takes_the_first_accepted_proposal_and_survives_none():
    shape = torch.tensor(2.)
    uniform = torch.full((TRIES,), .5)
    good = torch.full((TRIES,), .3)
    bad_then_good = torch.tensor([-9., .3] + [1.] * (TRIES - 2))            # v < 0 is never accepted
    assert gamma_number(shape, bad_then_good, uniform) == gamma_number(shape, good, uniform)
    assert gamma_number(shape, torch.full((TRIES,), -9.), uniform) > 0


def test_dirac_is_a_point():
    pi = DiracHead(BOX)(torch.tensor([[0., 100.]], requires_grad=True))
    assert pi.mode().tolist() == [[0, 1]] and pi.logp(pi.mode()).item() == 0 and pi.kl(pi).item() == 0
    assert pi.kl(Dirac(pi.mode() + .1)).item() == math.inf and pi.entropy().item() == 0
    pi.mode().sum().backward()                                              # what DDPG differentiates


def test_a_spread_for_every_state():
    pi = StateGaussianHead(BOX)(torch.tensor([[0., 0., -1., 1.], [0., 0., 5., -30.]]))
    assert pi.log_std.tolist() == [[-1, 1], [2, -20]]
    same = Gaussian(pi.mean, pi.log_std)
    assert torch.equal(pi.entropy(), same.entropy())


def test_product_adds_up_and_shares_nothing():
    head, pi, _ = build(HYBRID, "squashed", 6)
    noise = drawn(head, 6)
    act, logp = pi.act(noise)
    parts = pi.parts
    assert list(parts) == list(parts_of(HYBRID))
    assert torch.allclose(logp, sum(part.act(noise[name])[1] for name, part in parts.items()), atol=1e-5)
    assert torch.allclose(pi.entropy(), sum(part.entropy() for part in parts.values()))
    changed = Batch({**act, "fire": act.fire * 0})
    difference = pi.logp(changed) - pi.logp(act)
    assert torch.allclose(difference, parts["fire"].logp(changed.fire) - parts["fire"].logp(act.fire), atol=1e-5)


# ---- spaces

@pytest.mark.parametrize("space", [
    spaces.Text(3),
    spaces.Box(-1, 1, (2, 2)),
    spaces.Box(-1, 1, ()),
    spaces.Box(0, 9, (2,), np.int64),
    spaces.MultiBinary([2, 2]),
    spaces.MultiDiscrete(np.array([[2, 3]])),
    spaces.Tuple([]),
    spaces.Dict(ok=spaces.Discrete(2), bad=spaces.Text(4)),
    spaces.Graph(BOX, None),
])
def test_other_spaces_are_refused(space):
    with pytest.raises(SpaceProblem, match="no policy for the action space .*; expected Discrete"):
        head_for(space)


@pytest.mark.parametrize("box", ["squashed", "beta", "dirac"])
def test_kinds_that_scale_need_bounds(box):
    open_box = spaces.Box(np.float32([-1, -np.inf]), np.float32([1, 1]))
    with pytest.raises(SpaceProblem, match="finite bounds; take a Gaussian"):
        head_for(open_box, box)
    assert head_for(open_box, "state_gaussian").size == 4


@pytest.mark.parametrize("space,box", CASES, ids=IDS)
def test_heads_go_where_they_are_sent(space, box):
    "The meta device has shapes and no numbers, and refuses to be mixed with ordinary tensors"
    head, _, _ = build(space, box, 3)
    noise = drawn(head, 3)
    there = head.to("meta")
    out = torch.zeros(3, head.size, device="meta")
    moved = noise.to("meta") if isinstance(noise, torch.Tensor) else on_meta(noise)
    act, logp = there(out).act(moved)
    assert logp.device.type == "meta" and all(part.device.type == "meta" for part in leaves(act))


def on_meta(tree):
    return Batch({name: on_meta(part) if isinstance(part, dict) else part.to("meta") for name, part in tree.items()})
