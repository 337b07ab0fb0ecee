"What C51, quantiles, R2D2 and traces are made of, against another implementation (rlax): values and gradients"
import numpy as np
import pytest
import torch
from torch import nn

from rlbench.algos.c51 import C51, one_step_earlier, parts_of_action
from rlbench.algos.quantiles import IQN, QRDQN, quantile_huber
from rlbench.algos.r2d2 import R2D2, rescale, unscale
from rlbench.algos.stream_ac import StreamAC
from rlbench.algos.stream_q import StreamQ
from rlbench.algos.streaming import WeightTraces, gradient_of
from rlbench.core.batch import Batch
from tests.test_distributional import Said

ROWS = 8
ACTIONS = 4
PARTS = 7
GAMMA = .9
LAM = .8
seeds = pytest.mark.parametrize("seed", range(3))
both = pytest.mark.parametrize("double", [False, True])
near = dict(rtol=1e-5, atol=1e-6)


@pytest.fixture(autouse=True)
def double_precision(rlax):
    "JAX counts in 32 bits unless it is told otherwise"
    import jax
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def columns(seed, *parts):
    "Random words of two networks on `parts`, actions, rewards, discounts (some steps end an episode)"
    rng = np.random.default_rng(seed)
    said = 2 * rng.normal(size=(3, ROWS, ACTIONS, *parts))
    return dict(here=said[0], after=said[1], target=said[2], act=rng.integers(ACTIONS, size=ROWS),
                rew=rng.normal(size=ROWS), disc=GAMMA * (rng.random(ROWS) < .7))


def tensors(found):
    return {name: torch.from_numpy(column) for name, column in found.items()}


def loss_and_slope(algo, mine, atoms=None, **more):
    "Of every row, and by all that the network says of it"
    here = mine["here"].clone().requires_grad_()
    zeros = torch.zeros(ROWS, 1)
    batch = Batch(obs=zeros, act=mine["act"], ret=mine["rew"], disc=mine["disc"], next_obs=zeros + 1, **more)
    nets = Batch(q=Said(here, mine["after"], atoms), target=Said(mine["target"], mine["target"], atoms))
    loss = algo.compare(nets, batch)[0]
    slope, = torch.autograd.grad(loss.sum(), here)
    return loss.detach(), slope


def theirs(of_row, here, *rows):
    "Losses of all rows and their slopes by the first argument"
    import jax
    told = jax.vmap(jax.value_and_grad(of_row))(here, *rows)
    return map(np.array, told)


# ---- C51

@seeds
def test_one_step_earlier_is_their_projection(rlax, seed):
    found = columns(seed, PARTS)
    mine = tensors(found)
    atoms = torch.linspace(-3, 3, PARTS).double()
    prob = parts_of_action(mine["after"], mine["act"]).softmax(-1)
    got = one_step_earlier(prob, 4 * mine["rew"], mine["disc"], atoms)     # some fall off the ends
    place = 4 * found["rew"][:, None] + found["disc"][:, None] * atoms.numpy()
    want = [rlax.categorical_l2_project(place[i], prob[i].numpy(), atoms.numpy()) for i in range(ROWS)]
    assert (place < -3).any() and (place > 3).any()
    np.testing.assert_allclose(got, want, **near)


@seeds
@both
def test_losses_and_slopes_of_c51(rlax, seed, double):
    found = columns(seed, PARTS)
    atoms = torch.linspace(-3, 3, PARTS).double()
    loss, slope = loss_and_slope(C51(double=double), tensors(found), atoms)
    chooser = torch.from_numpy(found["after" if double else "target"]).softmax(-1) @ atoms

    def of_row(here, act, rew, disc, target, chooser):
        return rlax.categorical_double_q_learning(places, here, act, rew, disc, places, target, chooser)

    places = atoms.numpy()
    rows = [found[name] for name in ("here", "act", "rew", "disc", "target")]
    want, want_slope = theirs(of_row, *rows, chooser.numpy())
    after = parts_of_action(torch.from_numpy(found["target"]), chooser.argmax(-1)).softmax(-1)
    prob = one_step_earlier(after, *(torch.from_numpy(found[name]) for name in ("rew", "disc")), atoms)
    least = -torch.xlogy(prob, prob).sum(-1)                # theirs is the cross entropy, which no guess makes 0
    np.testing.assert_allclose(loss + least, want, **near)
    np.testing.assert_allclose(slope, want_slope, **near)


@seeds
def test_the_plain_target_of_c51_is_their_plain_one(rlax, seed):
    found = columns(seed, PARTS)
    atoms = torch.linspace(-3, 3, PARTS).double()
    _, slope = loss_and_slope(C51(double=False), tensors(found), atoms)

    def of_row(here, act, rew, disc, target):
        return rlax.categorical_q_learning(places, here, act, rew, disc, places, target)

    places = atoms.numpy()
    _, want = theirs(of_row, *(found[name] for name in ("here", "act", "rew", "disc", "target")))
    np.testing.assert_allclose(slope, want, **near)


# ---- quantiles

@seeds
def test_quantile_errors_at_probabilities_of_their_own(rlax, seed):
    rng = np.random.default_rng(seed)
    guess = 2 * rng.normal(size=(ROWS, 5))
    target = 2 * rng.normal(size=(ROWS, 3))
    tau = rng.random((ROWS, 5))
    mine = torch.from_numpy(guess).requires_grad_()
    got = quantile_huber(mine, torch.from_numpy(target), torch.from_numpy(tau))
    slope, = torch.autograd.grad(got.sum(), mine)

    def of_row(guess, tau, target):
        return rlax.quantile_regression_loss(guess, tau, target, 1.)

    want, want_slope = theirs(of_row, guess, tau, target)
    np.testing.assert_allclose(got.detach(), want, **near)
    np.testing.assert_allclose(slope, want_slope, **near)


@seeds
@both
@pytest.mark.parametrize("cls", [QRDQN, IQN])
def test_losses_and_slopes_of_quantiles(rlax, seed, double, cls):
    found = columns(seed, PARTS)
    tau = np.tile((np.arange(PARTS) + .5) / PARTS, (ROWS, 1))
    drawn = {}
    if cls is IQN:
        tau = np.random.default_rng(seed).random((ROWS, PARTS))
        drawn = dict(tau=torch.from_numpy(tau))
    loss, slope = loss_and_slope(cls(double=double, quantiles=PARTS), tensors(found), **drawn)
    chooser = found["after" if double else "target"]

    def of_row(here, tau, act, rew, disc, chooser, target):
        return rlax.quantile_q_learning(here.T, tau, act, rew, disc, chooser.T, target.T, 1.)

    rows = [found[name] for name in ("act", "rew", "disc")]
    want, want_slope = theirs(of_row, found["here"], tau, *rows, chooser, found["target"])
    np.testing.assert_allclose(loss, want, **near)
    np.testing.assert_allclose(slope, want_slope, **near)


# ---- R2D2

@seeds
def test_the_scale_of_values_and_its_slope(rlax, seed):
    import jax
    x = 10**np.random.default_rng(seed).uniform(-2, 4, 40) * np.tile([1, -1], 20)
    for mine, peer in ((rescale, rlax.signed_hyperbolic), (unscale, rlax.signed_parabolic)):
        at = torch.from_numpy(x).requires_grad_()
        got = mine(at)
        slope, = torch.autograd.grad(got.sum(), at)
        np.testing.assert_allclose(got.detach(), peer(x), rtol=1e-5)
        np.testing.assert_allclose(slope, jax.vmap(jax.grad(peer))(x), rtol=1e-5)


@seeds
@both
@pytest.mark.parametrize("n", [1, 3, ROWS + 1])
def test_errors_of_r2d2(rlax, seed, double, n):
    found = columns(seed)
    mine = tensors(found)
    term = mine["disc"][:, None] == 0
    flags = dict(term=term, trunc=torch.zeros_like(term), valid=torch.ones_like(term))
    target = R2D2(gamma=GAMMA, n_step=n, double=double).target(
        Batch(rew=9 * mine["rew"][:, None], **flags), mine["after"][:, None], mine["target"][:, None])
    got = target[:, 0] - mine["here"].gather(1, mine["act"][:, None]).squeeze(1)
    best = found["after" if double else "target"].argmax(-1)
    want = rlax.transformed_n_step_q_learning(found["here"], found["act"], found["target"], best, 9 * found["rew"],
                                              found["disc"], n, tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR)
    np.testing.assert_allclose(got, want, **near)


# ---- traces: with weights that stand still, errors along traces sum up to what looking ahead says

def stream(seed, outputs):
    "A network, and two episodes of steps it is asked about: what it said of each, and of the one after"
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, outputs)).double()
    obs = torch.from_numpy(rng.normal(size=(2 * ROWS + 1, 3)))
    term = np.arange(1, 2 * ROWS + 1) % ROWS == 0
    return net, obs, rng.normal(size=2 * ROWS), term, rng.integers(outputs, size=2 * ROWS)


def swept(algo, net, values, delta, term, over=None):
    "What weights are moved by, in all: each error along the traces of its step"
    traces = WeightTraces(net, 1).double()
    total = 0.
    for t, value in enumerate(values):
        begins = t == 0 or bool(term[t - 1])
        row = Batch(env=torch.tensor([0]), ordinal=torch.tensor([t]), first=torch.tensor([begins]))
        z, _ = traces.step(row, algo.fade(row), gradient_of(value, traces.weights))
        total = total + delta[t] * z
        if over is not None: traces.over[0] = bool(over[t])
    return total


@seeds
def test_traces_of_values_are_their_td_lambda(rlax, seed):
    net, obs, rew, term, _ = stream(seed, 1)
    val = net(obs).squeeze(-1)
    told = val.detach().numpy()
    disc = GAMMA * ~term
    delta = rew + disc * told[1:] - told[:-1]
    values = [net(row).squeeze() for row in obs[:-1]]
    got = swept(StreamAC(gamma=GAMMA, td_lambda=LAM), net, values, delta, term)
    ahead = rlax.td_lambda(told[:-1], rew, disc, told[1:], np.full(2 * ROWS, LAM))
    want = gradient_of(torch.from_numpy(np.array(ahead)) @ val[:-1], list(net.parameters()))
    np.testing.assert_allclose(got, want, **near)


@seeds
def test_traces_of_the_best_actions_are_their_q_lambda(rlax, seed):
    net, obs, rew, term, act = stream(seed, 2)
    q = net(obs)
    told = q.detach().numpy()
    rows = np.arange(2 * ROWS)
    best = told[:-1].argmax(-1)
    act = np.where(rows % 5 == 2, 1 - best, best)          # a whim now and then
    whim = act != best
    disc = GAMMA * ~term
    delta = rew + disc * told[1:].max(-1) - told[rows, act]
    values = [net(obs[t])[act[t]] for t in rows]
    next_whim = np.append(whim[1:], False)                 # Watkins: nothing passes back over it
    got = swept(StreamQ(gamma=GAMMA, td_lambda=LAM), net, values, delta, term, over=next_whim)
    ahead = rlax.q_lambda(told[:-1], act, rew, disc, told[1:], LAM * ~next_whim)
    want = gradient_of(torch.from_numpy(np.array(ahead)) @ q[rows, act], list(net.parameters()))
    np.testing.assert_allclose(got, want, **near)


@seeds
def test_traces_of_a_policy_are_their_policy_gradient(rlax, seed):
    import jax
    net, obs, rew, term, act = stream(seed, 3)
    val = np.random.default_rng(seed + 9).normal(size=2 * ROWS + 1)
    disc = GAMMA * ~term
    logp = [net(obs[t]).log_softmax(-1)[act[t]] for t in range(2 * ROWS)]
    delta = rew + disc * val[1:] - val[:-1]
    got = swept(StreamAC(gamma=GAMMA, td_lambda=LAM), net, logp, delta, term)
    adv = rlax.truncated_generalized_advantage_estimation(rew, disc, LAM, val)
    logits = net(obs[:-1])
    slope = jax.grad(rlax.policy_gradient_loss)(logits.detach().numpy(), act, adv, np.ones(2 * ROWS))
    want = gradient_of(-2 * ROWS * (torch.from_numpy(np.array(slope)) * logits).sum(), list(net.parameters()))
    np.testing.assert_allclose(got, want, **near)
