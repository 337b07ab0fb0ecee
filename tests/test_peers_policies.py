"What policies and their critics are made of, against rlax, distrax and torch.distributions on random numbers"
import numpy as np
import pytest
import torch

from rlbench.algos.a2c import A2C, actor_critic_loss
from rlbench.algos.pqn import PQN
from rlbench.algos.reinforce import REINFORCE
from rlbench.algos.sac import SAC, critic_loss
from rlbench.algos.soft_critics import lowest
from rlbench.algos.td3 import TD3
from rlbench.algos.tqc import quantile_critic_loss, truncated
from rlbench.buffers.off_policy import quantile_huber
from rlbench.buffers.returns import gae
from rlbench.core.batch import Batch
from rlbench.policies.distributions import Beta, Categorical, Gaussian, SquashedGaussian
from rlbench.policies.heads import midpoints

D = torch.distributions
ROWS, ACTIONS = 12, 5
GAMMA = .9
LOW = torch.tensor([-2., 0.])
WIDTH = torch.tensor([4., 1.5])                                  # halves whose logarithms do not cancel
seeds = pytest.mark.parametrize("seed", range(4))
near = dict(rtol=1e-5, atol=1e-6)


def columns(seed):
    "Logits, values, rewards, actions, advantages; some steps end an episode; one environment"
    rng = np.random.default_rng(seed)
    logits, q, next_q = rng.normal(size=(3, ROWS, ACTIONS)).astype(np.float32)
    rew, val, adv = rng.normal(size=(3, ROWS)).astype(np.float32)
    last = np.float32(rng.normal())
    act = rng.integers(ACTIONS, size=ROWS)
    term = rng.random(ROWS) < .25
    return dict(logits=logits, q=q, next_q=next_q, rew=rew, val=val, adv=adv, act=act, term=term,
                next_val=np.append(val[1:], last), disc=np.float32(GAMMA) * np.float32(~term))


def tensors(found):
    return {name: torch.from_numpy(column) for name, column in found.items()}


def in_time(mine, *names):
    "Columns (T, 1) of one environment that is never cut"
    return [*(mine[name][:, None] for name in names), torch.zeros(ROWS, 1, dtype=torch.bool)]


def slopes(loss, *leaves):
    return [grad.numpy() for grad in torch.autograd.grad(loss, leaves, retain_graph=True)]


def same(got, want):
    np.testing.assert_allclose(got, want, **near)


# ---- A2C and REINFORCE

@seeds
def test_the_loss_of_an_actor_critic(rlax, seed):
    import jax
    one = columns(seed)
    mine = tensors(one)
    logits = mine["logits"].requires_grad_()
    val = mine["val"].requires_grad_()
    algo = A2C(vf_coef=.7, ent_coef=.3)
    behind = gae(*in_time(tensors(one), "rew", "val", "next_val", "term"), GAMMA, .8)[:, 0]
    batch = Batch(act=mine["act"], adv=mine["adv"], ret=behind + val.detach())
    loss, _ = actor_critic_loss(algo, Categorical(logits), val, batch)

    def peer(logits, val):
        ones = np.ones(ROWS, np.float32)
        errors = rlax.td_lambda(val, one["rew"], one["disc"], one["next_val"], .8)
        policy = rlax.policy_gradient_loss(logits, one["act"], one["adv"], ones)
        return policy + .3 * rlax.entropy_loss(logits, ones) + .7 * (errors**2).mean()

    want, wanted = jax.value_and_grad(peer, (0, 1))(one["logits"], one["val"])
    same(loss.item(), want)
    for got, slope in zip(slopes(loss, logits, val), wanted):
        same(got, slope)


@seeds
@pytest.mark.parametrize("lam", [1., .8, 0.])
def test_the_advantages_of_an_actor_critic(rlax, seed, lam):
    one = columns(seed)
    adv = gae(*in_time(tensors(one), "rew", "val", "next_val", "term"), GAMMA, lam)[:, 0]
    same(adv, rlax.td_lambda(one["val"], one["rew"], one["disc"], one["next_val"], lam))


class Says(Batch):
    "Networks that say what we want"

    def policy(self, obs):
        return Categorical(self.logits)

    def value(self, obs):
        return self.val[:, None]


@seeds
@pytest.mark.parametrize("baseline", [False, True])
def test_the_loss_of_reinforce(rlax, seed, baseline):
    import jax
    one = columns(seed)
    one["term"][-1] = True                                      # whole episodes
    one["disc"] = np.float32(GAMMA) * np.float32(~one["term"])
    mine = tensors(one)
    logits = mine["logits"].requires_grad_()
    val = mine["val"].requires_grad_()
    algo = REINFORCE(gamma=GAMMA, ent_coef=.2, vf_coef=.6, baseline=baseline)
    nets = Says(logits=logits, val=val)
    rows = Batch(obs=mine["rew"], next_obs=mine["rew"], act=mine["act"], rew=mine["rew"], term=mine["term"],
                 trunc=torch.zeros(ROWS, dtype=torch.bool))
    with torch.no_grad():
        data, _ = algo.targets(nets, rows, None)
    [(_, loss, _)] = algo.losses(nets, data)

    def peer(logits, val):
        ones = np.ones(ROWS, np.float32)
        ret = rlax.discounted_returns(one["rew"], one["disc"], one["next_val"])
        adv = ret - one["val"] if baseline else ret
        loss = rlax.policy_gradient_loss(logits, one["act"], adv, ones) + .2 * rlax.entropy_loss(logits, ones)
        return loss + .6 * ((val - ret)**2).mean() if baseline else loss

    want, wanted = jax.value_and_grad(peer, (0, 1))(one["logits"], one["val"])
    same(loss.item(), want)
    same(slopes(loss, logits)[0], wanted[0])
    if baseline: same(slopes(loss, val)[0], wanted[1])


# ---- TD3 and DDPG

@seeds
def test_a_policy_climbs_by_the_slope_of_its_critic_in_the_action(rlax, seed):
    import jax
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(3, 2)).astype(np.float32)        # of a policy with a linear layer, squashed
    obs = rng.normal(size=(ROWS, 3)).astype(np.float32)
    peak = rng.normal(size=2).astype(np.float32)

    def critic(act):
        return -((act - peak)**2).sum(-1) + act[..., 0] * act[..., 1]

    layer = torch.from_numpy(weights.copy()).requires_grad_()
    act = (torch.from_numpy(obs) @ layer).tanh()
    centre = torch.from_numpy(peak)
    val = -((act - centre)**2).sum(-1) + act[:, 0] * act[:, 1]
    loss, _ = TD3().policy_loss(None, None, act, val)

    def peer(weights):
        act = jax.numpy.tanh(obs @ weights)
        uphill = jax.grad(lambda act: critic(act).sum())(act)
        return jax.vmap(rlax.dpg_loss)(act, uphill).sum(-1).mean()

    same(slopes(loss, layer)[0], jax.grad(peer)(weights))


class Critic(Batch):
    "The networks of TD3, as functions: two critics of which the lower one is believed"

    def target_policy(self, obs):
        return self

    def mode(self):
        return self.next_act

    def target(self, obs, act):
        return self.next_q


@seeds
def test_the_errors_of_two_critics(rlax, seed):
    import jax
    one = columns(seed)
    mine = tensors(one)
    next_q = mine["next_q"][:, :2]
    nets = Critic(next_act=mine["rew"][:, None], next_q=next_q)
    batch = Batch(next_obs=mine["rew"], rew=mine["rew"], term=mine["term"])
    q = mine["q"][:, :2].clone().requires_grad_()
    loss, _ = critic_loss(q, TD3(gamma=GAMMA).target(nets, batch, None))
    lower = one["next_q"][:, :2].min(-1)

    def peer(q):
        errors = [jax.vmap(rlax.td_learning)(q[:, k], one["rew"], one["disc"], lower) for k in range(2)]
        return sum(rlax.l2_loss(error).mean() for error in errors)

    want, slope = jax.value_and_grad(peer)(one["q"][:, :2])
    same(loss.item(), want)
    same(slopes(loss, q)[0], slope)


# ---- TQC and critics of quantiles

@seeds
def test_quantiles_move_towards_the_returns_that_are_kept(rlax, seed):
    import jax
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(ROWS, 3, 7)).astype(np.float32)
    next_z = 2 * rng.normal(size=(ROWS, 3, 7)).astype(np.float32)
    target = truncated(torch.from_numpy(next_z), 2)
    kept = np.sort(next_z.reshape(ROWS, -1))[:, :3 * (7 - 2)]
    leaf = torch.from_numpy(z.copy()).requires_grad_()
    loss, _ = quantile_critic_loss(leaf, target)
    tau = midpoints(7).numpy()

    def peer(z):
        one = jax.vmap(rlax.quantile_regression_loss, (0, None, None, None))           # over critics
        rows = jax.vmap(one, (0, None, 0, None))                                       # and rows
        return rows(z, tau, kept, 1.).sum(1).mean() / 7

    want, slope = jax.value_and_grad(peer)(z)
    same(loss.item(), want)
    same(slopes(loss, leaf)[0], slope)


@seeds
def test_tilted_huber_errors_row_by_row(rlax, seed):
    rng = np.random.default_rng(seed)
    guess = 2 * rng.normal(size=(ROWS, 6)).astype(np.float32)
    target = 2 * rng.normal(size=(ROWS, 9)).astype(np.float32)
    tau = rng.random((ROWS, 6)).astype(np.float32)
    got = quantile_huber(*map(torch.from_numpy, (guess, target, tau)))
    want = [rlax.quantile_regression_loss(guess[i], tau[i], target[i], 1.) for i in range(ROWS)]
    same(got, want)


# ---- PQN

class Table(Batch):
    "A network that says q to observation 0, and next_q to 1"

    def q(self, obs):
        return self.after if obs[0, 0] else self.now


@seeds
@pytest.mark.parametrize("lam", [0., .65, 1.])
def test_the_loss_of_pqn_and_its_slope(rlax, seed, lam):
    import jax
    one = columns(seed)
    one["next_q"][:-1] = one["q"][1:]
    mine = tensors(one)
    q = mine["q"].requires_grad_()
    algo = PQN(gamma=GAMMA, q_lambda=lam, n_steps=ROWS, batch_size=ROWS, n_epochs=1)
    nets = Table(now=q, after=mine["next_q"])
    never = torch.zeros(ROWS, dtype=torch.bool)
    rows = Batch(obs=torch.zeros(ROWS, 1), next_obs=torch.ones(ROWS, 1), act=mine["act"], rew=mine["rew"],
                 term=mine["term"], trunc=never, valid=~never)
    with torch.no_grad():
        data, _ = algo.targets(nets, rows, Batch(rng=np.random.default_rng(0)))
    [(_, loss, _)] = algo.losses(nets, data)

    def peer(q):
        errors = rlax.q_lambda(q, one["act"], one["rew"], one["disc"], one["next_q"], lam)
        return rlax.l2_loss(errors).mean()

    want, slope = jax.value_and_grad(peer)(one["q"])
    same(loss.item(), want)
    same(slopes(loss, q)[0], slope)


# ---- SAC, and actions in a box

def normals(seed, dtype=torch.float32):
    "Mean and log of the deviation (ROWS, 2), and noise; squashing is not yet flat there"
    rng = torch.Generator().manual_seed(seed)
    mean, log_std, noise = torch.randn(3, ROWS, 2, generator=rng, dtype=dtype).clamp(-1.5, 1.5)
    return mean.requires_grad_(), (log_std - .5).requires_grad_(), noise


def agree(got, want, *leaves):
    "Numbers, and their slopes in all leaves"
    same(got.detach(), want.detach())
    for slope, wanted in zip(slopes(got.sum(), *leaves), slopes(want.sum(), *leaves)):
        same(slope, wanted)


@seeds
def test_squashed_normals_are_torchs(seed):
    mean, log_std, noise = normals(seed, torch.float64)
    act, logp = SquashedGaussian(mean, log_std, LOW, WIDTH).act(noise)
    squash = [D.TanhTransform(cache_size=1), D.AffineTransform(LOW + WIDTH / 2, WIDTH / 2)]
    peer = D.Independent(D.TransformedDistribution(D.Normal(mean, log_std.exp()), squash), 1)
    there = LOW + WIDTH / 2 * (1 + (mean + log_std.exp() * noise).tanh())
    agree(act, there, mean, log_std)
    agree(logp, peer.log_prob(there), mean, log_std)

    given = there.detach()                                      # of a memory, say: only the action is known
    agree(SquashedGaussian(mean, log_std, LOW, WIDTH).logp(given), peer.log_prob(given), mean, log_std)


def actions_of_distrax(noise):
    "A function of mean and log of the deviation: squashed actions, and their log-probabilities"
    import distrax
    import jax
    half = WIDTH.numpy() / 2
    squash = distrax.Chain([distrax.ScalarAffine(LOW.numpy() + half, half), distrax.Tanh()])

    def actions(mean, log_std):
        std = jax.numpy.exp(log_std)
        u = mean + std * noise.numpy()
        act, slope = squash.forward_and_log_det(u)
        return act, (distrax.Normal(mean, std).log_prob(u) - slope).sum(-1)

    return actions


@seeds
def test_what_a_policy_is_paid_in_sac(rlax, seed):
    "Its loss and its slopes, with distrax's log-probability and critics that are two hills"
    import jax
    mean, log_std, noise = normals(seed)
    act, logp = SquashedGaussian(mean, log_std, LOW, WIDTH).act(noise)
    worth = lowest(torch.stack([-(act**2).sum(-1), -((act - .5)**2).sum(-1)], 1))
    [(_, loss, _)] = SAC(ent_coef=.3).actor_losses(None, worth, -logp[:, None])
    actions = actions_of_distrax(noise)

    def peer(mean, log_std):
        act, logp = actions(mean, log_std)
        worth = jax.numpy.minimum(-(act**2).sum(-1), -((act - .5)**2).sum(-1))
        return (.3 * logp - worth).mean()

    weights = mean.detach().numpy(), log_std.detach().numpy()
    same(logp.detach(), actions(*weights)[1])
    want, wanted = jax.value_and_grad(peer, (0, 1))(*weights)
    same(loss.item(), want)
    for got, slope in zip(slopes(loss, mean, log_std), wanted):
        np.testing.assert_allclose(got, slope, rtol=1e-4, atol=1e-5)    # float32, through logarithms of slopes


def betas(seed):
    "Two numbers above 1 for each Beta (ROWS, 2)"
    mean, log_std, noise = normals(seed, torch.float64)
    return (mean.exp() + 1).detach().requires_grad_(), (log_std.exp() + 1).detach().requires_grad_(), noise


@seeds
def test_normals_are_torchs(seed):
    mean, log_std, act = normals(seed, torch.float64)
    other_mean, other_log_std, _ = normals(seed + 10, torch.float64)
    mine = Gaussian(mean, log_std)
    peer = D.Normal(mean, log_std.exp())
    other = D.Normal(other_mean, other_log_std.exp())
    agree(mine.logp(act), peer.log_prob(act).sum(-1), mean, log_std)
    agree(mine.entropy(), peer.entropy().sum(-1), log_std)
    apart = D.kl_divergence(peer, other).sum(-1)
    agree(mine.kl(Gaussian(other_mean, other_log_std)), apart, mean, log_std, other_mean, other_log_std)


@seeds
def test_betas_are_torchs(seed):
    alpha, beta, noise = betas(seed)
    other_alpha, other_beta, _ = betas(seed + 10)
    inside = noise.sigmoid()
    mine = Beta(alpha, beta, LOW, WIDTH)
    peer = D.Beta(alpha, beta)
    room = WIDTH.log().sum()                                    # a wider box has more room
    agree(mine.logp(LOW + WIDTH * inside), peer.log_prob(inside).sum(-1) - room, alpha, beta)
    agree(mine.entropy(), peer.entropy().sum(-1) + room, alpha, beta)
    apart = D.kl_divergence(peer, D.Beta(other_alpha, other_beta)).sum(-1)
    agree(mine.kl(Beta(other_alpha, other_beta, LOW, WIDTH)), apart, alpha, beta, other_alpha, other_beta)
