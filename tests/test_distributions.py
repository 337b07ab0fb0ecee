"""Distributions against scipy, torch and sampling; masks that leak nothing; gradients that stay finite; every space one can act in."""
import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from rlbench.core.batch import Batch
from rlbench.policies.distributions import (Beta, Bernoulli, Categorical, Dirac, Gaussian, MultiCategorical, Product, SpaceProblem, SquashedGaussian,
                                            StateGaussian, distribution_for, gamma_number, parts_of)

spaces, D = gym.spaces, torch.distributions
BOX = spaces.Box(np.float32([-2, 0]), np.float32([2, 1]))
HYBRID = spaces.Dict(fire=spaces.Discrete(3, start=-1), steer=BOX, more=spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)]))
CASES = [(spaces.Discrete(4), Gaussian), (spaces.Discrete(3, start=5), Gaussian), (spaces.MultiDiscrete([2, 3, 4]), Gaussian),
         (spaces.MultiDiscrete([2, 3], start=[1, -4]), Gaussian), (spaces.MultiBinary(3), Gaussian), (BOX, Gaussian), (BOX, StateGaussian), (BOX, SquashedGaussian),
         (BOX, Beta), (BOX, Dirac), (HYBRID, SquashedGaussian), (HYBRID, Gaussian), (spaces.Tuple([spaces.Discrete(2), BOX]), Beta)]
IDS = [f"{type(space).__name__}-{box.__name__}-{i}" for i, (space, box) in enumerate(CASES)]
STARTS = {Gaussian, StateGaussian}                                          # their samples may leave the box; it clips on the way out


def generator(seed=0): return torch.Generator().manual_seed(seed)


def build(space, box, rows, seed=0, scale=1., mask=None):
    kind = distribution_for(space, box)
    out = (scale * torch.randn(rows, kind.size(space), generator=generator(seed))).requires_grad_()
    free = (.3 * torch.randn(kind.free(space), generator=generator(seed + 1))).requires_grad_()
    return kind, kind.of(space, out, free, mask), (out, free)


def leaves(tree):
    "Every tensor of a nested Batch"
    return [x for part in tree.values() for x in leaves(part)] if isinstance(tree, dict) else [tree]


def row(space, act, i):
    "Row i of a batch of actions, as the environment takes it"
    if isinstance(space, spaces.Dict): return {name: row(part, act[name], i) for name, part in parts_of(space).items()}
    if isinstance(space, spaces.Tuple): return tuple(row(part, act[name], i) for name, part in parts_of(space).items())
    one = act[i].detach().numpy()
    return np.int64(one) if isinstance(space, spaces.Discrete) else np.clip(one, space.low, space.high) if isinstance(space, spaces.Box) else one


@pytest.mark.parametrize("space,box", CASES, ids=IDS)
def test_samples_and_modes_are_actions_of_the_space_and_noise_makes_them(space, box):
    kind, pi, _ = build(space, box, 50)
    noise = kind.noise(space, np.random.default_rng(0), 50)
    again = kind.noise(space, np.random.default_rng(0), 50)
    for act in (pi.sample(noise), pi.mode(), pi.draw(noise)[0]):
        assert all(space.contains(row(space, act, i)) for i in range(50))
    for a, b, c in zip(leaves(pi.sample(noise)), leaves(pi.sample(again)), leaves(pi.draw(noise)[0])):
        assert torch.equal(a, b) and torch.equal(a, c)
    if box not in STARTS and isinstance(space, spaces.Box):
        assert BOX.contains(pi.sample(noise)[0].detach().numpy())


@pytest.mark.parametrize("space,box", CASES, ids=IDS)
def test_shapes(space, box):
    kind, pi, _ = build(space, box, 7)
    act, logp = pi.draw(kind.noise(space, np.random.default_rng(0), 7))
    assert logp.shape == pi.logp(act).shape == pi.entropy().shape == pi.kl(pi).shape == (7,)
    assert torch.allclose(pi.kl(pi), torch.zeros(7), atol=1e-5)
    assert isinstance(pi, Product) == isinstance(act, Batch)


@pytest.mark.parametrize("space,box", [case for case in CASES if case[1] is not Dirac], ids=[i for i, case in zip(IDS, CASES) if case[1] is not Dirac])
def test_entropy_and_kl_are_what_sampling_says(space, box):
    n = 40_000
    kind = distribution_for(space, box)
    outs = [torch.randn(kind.size(space), generator=generator(s)).expand(n, -1) for s in (3, 4)]
    frees = [.3 * torch.randn(kind.free(space), generator=generator(s)) for s in (5, 6)]
    pi, other = (kind.of(space, o, f) for o, f in zip(outs, frees))
    act, logp = pi.draw(kind.noise(space, np.random.default_rng(1), n))
    assert torch.allclose(logp, pi.logp(act), atol=1e-2)
    for exact, samples in [(pi.entropy(), -logp), (pi.kl(other), logp - other.logp(act))]:
        near = 5 * float(samples.std()) / math.sqrt(n) + 1e-3               # five deviations of the mean; the seed is fixed
        assert abs(float(samples.mean()) - float(exact[0])) < near
    assert (pi.kl(other) > 0).all()


@pytest.mark.parametrize("scale", [1., 30., 300.])
@pytest.mark.parametrize("space,box", CASES, ids=IDS)
def test_gradients_are_finite_even_far_out(space, box, scale):
    kind, pi, weights = build(space, box, 20, scale=scale)
    _, other, _ = build(space, box, 20, seed=9)
    act, logp = pi.draw(kind.noise(space, np.random.default_rng(0), 20))
    sampled = [a for a in leaves(act) if a.requires_grad]
    for what in ([pi.entropy().sum()] if scale > 1 else [pi.entropy().sum(), other.kl(pi).sum()]) + ([logp.sum()] if box is not Dirac else []) + [a.sum() for a in sampled]:
        if not what.requires_grad: continue
        grads = torch.autograd.grad(what, weights, retain_graph=True, allow_unused=True)
        assert torch.isfinite(what) and all(torch.isfinite(g).all() for g in grads if g is not None)


# ---- masks

@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(2, 7), st.integers(0, 10**6), st.sampled_from([1., 50., 1e4]))
def test_a_mask_equals_a_smaller_distribution(rows, n, seed, scale):
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, n)) < .5
    mask[np.arange(rows), rng.integers(n, size=rows)] = True
    mask = torch.from_numpy(mask)
    logits = (scale * torch.from_numpy(rng.normal(size=(rows, n)).astype(np.float32))).requires_grad_()
    pi, space = Categorical(logits, mask), spaces.Discrete(n)
    noise = Categorical.noise(space, rng, rows)
    noise[~mask] = 0                                                        # would win every race
    assert (pi.probs[~mask] == 0).all() and (pi.logits[~mask] == -math.inf).all() and torch.isfinite(pi.logits[mask]).all()
    assert mask[torch.arange(rows), pi.sample(noise)].all() and mask[torch.arange(rows), pi.mode()].all()
    other = Categorical(logits.detach().flip(0), mask)
    for i in range(rows):
        small, small_other = Categorical(logits[i, mask[i]]), Categorical(other.finite[i, mask[i]])
        assert torch.allclose(pi.probs[i, mask[i]], small.probs, atol=1e-6)
        assert torch.allclose(pi.entropy()[i], small.entropy(), rtol=1e-4, atol=1e-5)
        assert torch.allclose(pi.kl(other)[i], small.kl(small_other), rtol=1e-4, atol=1e-4)
    for what in (pi.logp(pi.sample(noise)), pi.entropy(), pi.kl(other), other.kl(pi)):
        grad, = torch.autograd.grad(what.sum(), logits, retain_graph=True)
        assert torch.isfinite(what).all() and torch.isfinite(grad).all() and (grad[~mask] == 0).all()
    grad, = torch.autograd.grad(pi.logits.exp().sum() + pi.logp(mask.int().argmin(-1)).exp().sum(), logits)
    assert torch.isfinite(grad).all()                                       # also where the masked one was asked for


def test_kl_is_infinite_where_the_other_forbids_what_this_allows():
    pi, other = Categorical(torch.zeros(1, 2)), Categorical(torch.zeros(1, 2), torch.tensor([[True, False]]))
    assert pi.kl(other).item() == math.inf and abs(other.kl(pi).item() - math.log(2)) < 1e-6


def test_no_mask_means_the_same_bits():
    logits, noise = torch.randn(100, 5, generator=generator()), Categorical.noise(spaces.Discrete(5), np.random.default_rng(0), 100)
    plain, masked = Categorical(logits), Categorical(logits, torch.ones(100, 5, dtype=torch.bool))
    for a, b in [(plain.logits, masked.logits), (plain.sample(noise), masked.sample(noise)), (plain.entropy(), masked.entropy()), (plain.kl(masked), masked.kl(plain))]:
        assert torch.equal(a, b)


@pytest.mark.parametrize("space,mask,message", [
    (spaces.Discrete(3), [[1, 1, 0], [0, 0, 0]], r"no action is allowed in row \[1\] and 0 more"),
    (spaces.Discrete(3), [[1, 1]], "expected 3 entries"),
    (spaces.MultiDiscrete([2, 2]), [[1, 1, 0, 0]], r"no action is allowed in row \[0\]"),
    (spaces.MultiDiscrete([2, 2]), [[1, 1, 1]], r"expected 4 entries in a row, for choices among \[2, 2\]"),
    (HYBRID, [[1] * 9], "expected 8 entries")])
def test_bad_masks_are_refused(space, mask, message):
    kind = distribution_for(space)
    with pytest.raises(ValueError, match=message):
        kind.of(space, torch.zeros(len(mask), kind.size(space)), torch.zeros(kind.free(space)), torch.tensor(mask))


def test_flat_masks_reach_the_right_branches():
    kind = distribution_for(HYBRID)
    assert list(parts_of(HYBRID)) == ["fire", "steer", "more"] and kind.choices(HYBRID) == 8
    mask = torch.tensor([[0, 1, 0, 1, 0, 0, 0, 1]])                         # fire = 0, more = (0, 2): only one way each
    pi = kind.of(HYBRID, torch.randn(1, kind.size(HYBRID), generator=generator()), torch.zeros(2), mask)
    for seed in range(5):
        act = pi.sample(kind.noise(HYBRID, np.random.default_rng(seed), 1))
        assert act.fire.tolist() == [0] and act.more["0"].tolist() == [[0, 2]]
    assert list(act.more) == ["0", "1"] and act.steer.shape == (1, 2)


# ---- each kind against its reference

def test_actions_count_from_start():
    pi = Categorical(torch.tensor([[0., 3., 1.]]), start=5)
    assert pi.mode().tolist() == [6] and torch.allclose(pi.logp(torch.tensor([7])), Categorical(torch.tensor([[0., 3., 1.]])).logp(torch.tensor([2])))
    space = spaces.MultiDiscrete([2, 3], start=[1, -4])
    pi = MultiCategorical.of(space, torch.tensor([[9., 0., 0., 0., 9.]]))
    assert pi.mode().tolist() == [[1, -2]] and pi.logp(pi.mode()).item() > -.01


def test_multicategorical_is_the_product_of_its_branches():
    space, out = spaces.MultiDiscrete([2, 3]), torch.randn(4, 5, generator=generator())
    pi, peers = MultiCategorical.of(space, out), [D.Categorical(logits=x) for x in out.split([2, 3], -1)]
    act = pi.sample(MultiCategorical.noise(space, np.random.default_rng(0), 4))
    assert torch.allclose(pi.logp(act), sum(p.log_prob(a) for p, a in zip(peers, act.unbind(-1))), atol=1e-6)
    assert torch.allclose(pi.entropy(), sum(p.entropy() for p in peers), atol=1e-6)
    joint = sum(pi.logp(torch.tensor([[a, b]]).expand(4, 2)).exp() for a in range(2) for b in range(3))
    assert torch.allclose(joint, torch.ones(4), atol=1e-6)


@pytest.mark.parametrize("p", [.001, .3, .5, .97])
def test_bernoulli_frequencies(p):
    pi = Bernoulli(torch.full((200_000, 1), math.log(p / (1 - p))))
    on = float(pi.sample(Bernoulli.noise(spaces.MultiBinary(1), np.random.default_rng(0), 200_000)).float().mean())
    assert abs(on - p) < 5 * math.sqrt(p * (1 - p) / 200_000)


@settings(max_examples=40, deadline=None)
@given(st.floats(-3, 3), st.floats(-3, 1), st.floats(-1.95, 1.95))
def test_squashed_gaussian_density_is_the_derivative_of_its_distribution_function(mean, log_std, act):
    "The density in the box against scipy's normal, differentiated by hand in double precision"
    pi = SquashedGaussian(*(torch.tensor([[x]], dtype=torch.float64) for x in (mean, log_std)), torch.tensor([-2.]).double(), torch.tensor([4.]).double())
    cdf = lambda a: stats.norm(mean, math.exp(log_std)).cdf(math.atanh(a / 2))
    h = 1e-5
    if cdf(act) < 1e-6 or cdf(act) > 1 - 1e-6: return                       # nothing left to differentiate
    density = (cdf(act + h) - cdf(act - h)) / (2 * h)
    assert float(pi.logp(torch.tensor([[act]], dtype=torch.float64)).exp()) == pytest.approx(density, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("log_std", [-3., -1., 0., 1., 2.])
@pytest.mark.parametrize("mean", [0., .7, 4.])
def test_squashed_gaussian_entropy_estimate(mean, log_std):
    pi = SquashedGaussian(torch.tensor([[mean]]), torch.tensor([[log_std]]), torch.tensor([-1.]), torch.tensor([2.]))
    z = np.linspace(-12, 12, 400_001)
    u = mean + math.exp(log_std) * z
    slope = 2 * (math.log(2) - u - np.logaddexp(0, -2 * u))
    exact = stats.norm(mean, math.exp(log_std)).entropy() + float((stats.norm.pdf(z) * slope).sum() * (z[1] - z[0]))
    assert float(pi.entropy()) == pytest.approx(exact, abs=.03 if log_std == 2 else .01 if log_std == 1 else 1e-4)


def test_squashed_gaussian_is_exact_at_the_edge():
    "Where tanh rounds to 1, draw still knows u; logp of the action alone stays finite"
    pi = SquashedGaussian(torch.tensor([[12.]]), torch.tensor([[0.]]), torch.tensor([-1.]), torch.tensor([2.]))
    act, logp = pi.draw(torch.zeros(1, 1))
    assert act.item() == 1 and torch.isfinite(pi.logp(act)).all()
    assert logp.item() == pytest.approx(-.5 * math.log(2 * math.pi) - (2 * math.log(2) - 24), rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.floats(1, 60), st.floats(1, 60), st.floats(-4.9, 2.9))
def test_beta_is_scipys(a, b, act):
    pi = Beta(torch.tensor([[a]]).double(), torch.tensor([[b]]).double(), torch.tensor([-5.]), torch.tensor([8.]))
    peer = stats.beta(a, b, loc=-5, scale=8)
    assert float(pi.logp(torch.tensor([[act]]).double())) == pytest.approx(peer.logpdf(act), rel=1e-4, abs=1e-3)
    assert float(pi.entropy()) == pytest.approx(peer.entropy(), rel=1e-3, abs=1e-3)
    top = float(pi.mode())
    assert -5 <= top <= 3 and all(peer.pdf(top) >= peer.pdf(x) - 1e-6 for x in np.linspace(-4.9, 2.9, 7)) or min(a, b) < 1.001


@pytest.mark.parametrize("shape", [1., 1.5, 8., 200.])
def test_gamma_numbers_are_gamma_distributed(shape):
    rng, n = np.random.default_rng(3), 40_000
    noise = torch.from_numpy(np.stack([rng.standard_normal((n, 8)), rng.random((n, 8))], -1))
    assert stats.kstest(gamma_number(torch.full((n,), shape).double(), noise).numpy(), stats.gamma(shape).cdf).pvalue > 1e-3


def test_gamma_takes_the_first_accepted_proposal_and_survives_none():
    bad, good = [-9., .5], [.3, .5]                                         # v < 0 is never accepted
    both, only = torch.tensor([bad, good] + [[1., .5]] * 6), torch.tensor([good] * 8)
    assert gamma_number(torch.tensor(2.), both) == gamma_number(torch.tensor(2.), only)
    assert gamma_number(torch.tensor(2.), torch.tensor([bad] * 8)) > 0


def test_dirac_is_a_point():
    pi = Dirac.of(BOX, torch.tensor([[0., 100.]], requires_grad=True))
    assert pi.mode().tolist() == [[0, 1]] and pi.logp(pi.mode()).item() == 0 and pi.kl(pi).item() == 0
    assert pi.kl(Dirac(pi.act + .1)).item() == math.inf and pi.entropy().item() == 0
    pi.mode().sum().backward()                                              # what DDPG differentiates


def test_a_spread_for_every_state():
    pi = StateGaussian.of(BOX, torch.tensor([[0., 0., -1., 1.], [0., 0., 5., -30.]]))
    assert pi.log_std.tolist() == [[-1, 1], [2, -20]]
    same = Gaussian(pi.mean, pi.log_std)
    assert torch.equal(pi.entropy(), same.entropy())


def test_product_adds_up_and_shares_nothing():
    kind, pi, _ = build(HYBRID, SquashedGaussian, 6)
    act, logp = pi.draw(kind.noise(HYBRID, np.random.default_rng(0), 6))
    parts = {name: pi.parts[name] for name in parts_of(HYBRID)}
    assert torch.allclose(logp, sum(part.draw(kind.noise(HYBRID, np.random.default_rng(0), 6)[name])[1] for name, part in parts.items()), atol=1e-5)
    assert torch.allclose(pi.entropy(), sum(part.entropy() for part in parts.values()))
    changed = Batch({**act, "fire": act.fire * 0})
    difference = pi.logp(changed) - pi.logp(act)
    assert torch.allclose(difference, parts["fire"].logp(changed.fire) - parts["fire"].logp(act.fire), atol=1e-5)


# ---- spaces

@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Box(-1, 1, (2, 2)), spaces.Box(-1, 1, ()), spaces.Box(0, 9, (2,), np.int64), spaces.MultiBinary([2, 2]),
                                   spaces.MultiDiscrete(np.array([[2, 3]])), spaces.Tuple([]), spaces.Dict(ok=spaces.Discrete(2), bad=spaces.Text(4)), spaces.Graph(BOX, None)])
def test_other_spaces_are_refused(space):
    with pytest.raises(SpaceProblem, match="no policy for the action space .*; expected Discrete"):
        distribution_for(space)


@pytest.mark.parametrize("box", [SquashedGaussian, Beta, Dirac])
def test_kinds_that_scale_need_bounds(box):
    open_box = spaces.Box(np.float32([-1, -np.inf]), np.float32([1, 1]))
    with pytest.raises(SpaceProblem, match="finite bounds; take Gaussian"):
        distribution_for(open_box, box).size(open_box)
    assert distribution_for(open_box, StateGaussian).size(open_box) == 4
