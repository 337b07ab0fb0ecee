"A2C, TRPO and IMPALA beside the same written out plainly: slow loops, a dense Fisher matrix, an optimiser by hand"
import copy

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlbench import Trainer, load
from rlbench.algos.a2c import A2C
from rlbench.algos.impala import IMPALA
from rlbench.algos.ppo import PPO, held_back, ppo_loss
from rlbench.algos.trpo import TRPO, conjugate_gradient, flattened, trust_region_step
from rlbench.core.batch import Batch
from rlbench.core.spaces import SpaceProblem, Spec
from rlbench.core.state import same

OBS = gym.spaces.Box(-1, 1, (3,))
ACTS = dict(
    discrete=gym.spaces.Discrete(4),
    box=gym.spaces.Box(-1, 1, (2,)),
)
every_space = pytest.mark.parametrize("space", ACTS.values(), ids=ACTS)


def made_up(policy, n=64):
    "Rows that a policy could have made, with advantages out of the air"
    generator = torch.Generator().manual_seed(1)
    obs = torch.rand(n, 3, generator=generator)
    noise = torch.rand(n, *policy.head.noise.shape, generator=generator)
    with torch.no_grad():
        act, logp = policy(obs).act(noise)
    return Batch(obs=obs, act=act, logp=logp, adv=torch.randn(n, generator=generator))


# ---- options of PPO

def test_value_clipping_equals_the_larger_of_two_losses():
    "and its gradient, on random values, by the maximum over both"
    generator = torch.Generator().manual_seed(0)
    batch = Batch(val=torch.randn(500, generator=generator), ret=torch.randn(500, generator=generator))
    val = (batch.val + .5 * torch.randn(500, generator=generator)).requires_grad_()
    mine = (held_back(val, batch, .2) - batch.ret)**2
    clipped = batch.val + (val - batch.val).clamp(-.2, .2)
    theirs = torch.maximum((val - batch.ret)**2, (clipped - batch.ret)**2)
    torch.testing.assert_close(mine, theirs)
    slopes = [torch.autograd.grad(loss.sum(), val, retain_graph=True)[0] for loss in (mine, theirs)]
    torch.testing.assert_close(*slopes)
    assert (slopes[0] == 0).any() and (slopes[0] != 0).any()


def test_0_is_the_tightest_clip_of_a_value_and_not_none():
    "a schedule that ends there never lets go"
    obs = torch.zeros(4, 3)
    policy = PPO(hidden=(8,)).nets(Spec(OBS, ACTS["discrete"], 1), torch.Generator().manual_seed(0)).policy
    batch = Batch(made_up(policy, 4), val=torch.zeros(4), ret=torch.ones(4))
    v_loss = {}
    for clip in (0., 1e-9, None):
        loss, parts = ppo_loss(PPO(clip_range_vf=clip), policy(obs), torch.full((4,), .9), batch)
        v_loss[clip] = parts["v_loss"].mean().item()
    assert v_loss[0.] == pytest.approx(1) and v_loss[1e-9] == pytest.approx(1) and v_loss[None] == pytest.approx(.01)


@pytest.mark.parametrize("target_kl, updates", [(None, 16), (0., 2), (1e9, 16)])
def test_a_target_of_0_ends_the_passes_at_once(target_kl, updates):
    trainer = Trainer("CartPole-v1", "ppo", seed=0, num_envs=2, n_steps=32, batch_size=16, n_epochs=4,
                      target_kl=target_kl)
    trainer.until("iteration")
    assert trainer.updates == pytest.approx(updates, abs=1)


@pytest.mark.parametrize("kind", ["gaussian", "state_gaussian", "squashed", "beta", "gsde"])
def test_the_first_ratio_of_a_rollout_is_1_under_every_distribution(kind):
    algo = PPO(distribution=kind, n_steps=16, n_epochs=1, batch_size=32, hidden=(8,))
    trainer = Trainer("Pendulum-v1", algo, seed=0, num_envs=2)
    trainer.until("update", 3)
    torch.testing.assert_close(trainer.learner.last.parts.ratio, torch.ones(32), rtol=1e-3, atol=1e-3)
    act = trainer.learner.data.act
    assert (act.abs() <= 2).all() or kind in ("gaussian", "state_gaussian", "gsde")


@pytest.mark.parametrize("kind", ["state_gaussian", "squashed", "beta", "gsde"])
def test_a_distribution_that_would_change_nothing_is_refused(kind):
    with pytest.raises(SpaceProblem, match="is for actions in a Box, and Discrete.2. has none"):
        Trainer("CartPole-v1", "ppo", distribution=kind)
    if kind != "gsde":                                    # one of the parts is a Box, there
        Trainer("rlbench/SideAndForce-v0", "ppo", distribution=kind)


def test_kept_noise_is_the_same_for_so_many_steps_and_new_in_every_episode():
    trainer = Trainer("Pendulum-v1", "ppo", seed=0, num_envs=2, distribution="gsde", sde_sample_freq=4,
                      env_settings=dict(max_episode_steps=6))
    ages = []
    noises = []
    for _ in range(12):
        trainer.actors["agent"].act(trainer.obs["agent"], greedy=True)        # leaves what is kept alone
        trainer.collect()
        carry = trainer.actors["agent"].carry
        ages.append(carry[0, 0].item())
        noises.append(carry[0, 1:].sum().item())
    assert ages == [1, 2, 3, 4, 1, 0] * 2                                     # 0: an episode has ended
    assert noises[0] == noises[3] != noises[4] and noises[5] == 0


# ---- advantages of a whole rollout

@pytest.mark.parametrize("algo, more", [("ppo", {}), ("recurrent_ppo", dict(memory_size=8))])
@pytest.mark.parametrize("scaled", [False, True])
def test_advantages_are_brought_to_deviation_1_over_their_rollout(algo, more, scaled):
    trainer = Trainer("CartPole-v1", algo, seed=0, num_envs=4, n_steps=16, batch_size=16, n_epochs=2, hidden=(8,),
                      normalize_over="rollout", normalize_reward=scaled, **more)
    for _ in range(3):
        data = trainer.until(lambda event: event.kind == "process").data
        adv = data.adv[data.valid]
        assert adv.mean().item() == pytest.approx(0, abs=1e-5) and adv.std().item() == pytest.approx(1, abs=1e-4)
        trainer.until("update")
        last = trainer.learner.last
        assert torch.equal(last.parts.adv, last.batch.adv[last.batch.valid])      # as they were cut, no second time


def test_it_is_the_penalised_one_without_a_price():
    how = dict(seed=0, num_envs=2, n_steps=16, batch_size=16, n_epochs=3, hidden=(8,))
    one = Trainer("CartPole-v1", "ppo", normalize_over="rollout", **how).run(steps=128)
    other = Trainer("CartPole-v1", "ppo_kl", kl_coeff=0., kl_target=None, **how).run(steps=128)
    here, there = (flattened(run.learner.nets.policy.state_dict().values()) for run in (one, other))
    assert torch.equal(here, there)


# ---- A2C

class PlainRMSprop:
    "The running mean of squares that divides each gradient, one parameter after the other"

    def __init__(self, parameters, lr):
        self.parameters = list(parameters)
        self.squares = [torch.zeros_like(one) for one in self.parameters]
        self.lr = lr

    @torch.no_grad()
    def step(self, longest):
        norm = sum(float(one.grad.square().sum()) for one in self.parameters)**.5
        for one, square in zip(self.parameters, self.squares):
            slope = one.grad * min(1, longest / norm)
            square.mul_(.99).add_(.01 * slope**2)
            one -= self.lr * slope / (square.sqrt() + 1e-5)
            one.grad = None


def plain_returns(rows, num_envs, gamma, next_val):
    "Rewards to the end of the rollout or episode, and what the critic says of what follows, by a loop"
    ret = torch.zeros(len(rows))
    for env in range(num_envs):
        follows = None
        for i in reversed(range(env, len(rows), num_envs)):
            if rows.term[i]: follows = 0.
            elif rows.trunc[i] or follows is None: follows = next_val[i]
            ret[i] = follows = rows.rew[i] + gamma * follows
    return ret


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_a2c_equals_one_written_out_plainly(id):
    trainer = Trainer(id, "a2c", seed=0, num_envs=3, ent_coef=.02, hidden=(8,),
                      env_settings=dict(max_episode_steps=7))
    learner = trainer.learner
    plain = copy.deepcopy(learner.nets)
    optimiser = PlainRMSprop(plain.parameters(), 7e-4)
    for _ in range(12):
        trainer.until(lambda event: event.kind == "process")
        rows = learner.data[learner.data.index.argsort()]     # step by step, as they were made
        pi = plain.policy(rows.obs)
        val = plain.value(rows.obs)[:, 0]
        with torch.no_grad():
            ret = plain_returns(rows, 3, .99, plain.value(rows.next_obs)[:, 0])
            adv = ret - val
        loss = -(adv * pi.logp(rows.act)).mean() + .5 * ((ret - val)**2).mean() - .02 * pi.entropy().mean()
        loss.backward()
        optimiser.step(.5)
        trainer.until("update")
    for mine, other in zip(learner.nets.parameters(), plain.parameters()):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)


# ---- TRPO

def outputs_of(policy, weights, obs):
    "What a distribution is made of, as a function of weights (n,): logits, or mean and log_std"
    named = dict(policy.named_parameters())
    pieces = weights.split([one.numel() for one in named.values()])
    given = {name: piece.view_as(one) for (name, one), piece in zip(named.items(), pieces)}
    pi = torch.func.functional_call(policy, given, (obs,))
    parts = (pi.logits,) if hasattr(pi, "logits") else (pi.mean, pi.log_std)
    return torch.cat(parts, -1)


def dense_fisher(policy, obs):
    "J^T M J: M is the Fisher matrix of what a distribution is made of, in closed form; one state after the other"
    weights = flattened(policy.parameters()).detach()
    total = torch.zeros(len(weights), len(weights))
    for state in obs:
        slopes = torch.autograd.functional.jacobian(lambda w: outputs_of(policy, w, state[None])[0], weights)
        pi = policy(state[None])
        if hasattr(pi, "logits"):
            inner = torch.diag(pi.probs[0])     # slopes are those of log-probabilities
        else:
            inner = torch.diag(torch.cat([(-2 * pi.log_std[0]).exp(), torch.full_like(pi.log_std[0], 2.)]))
        total += slopes.T @ inner.detach() @ slopes
    return total / len(obs)


def plain_step(policy, rows, algo):
    "The weights after a step, by a dense solve and a loop -> them, tries"
    adv = (rows.adv - rows.adv.mean()) / (rows.adv.std() + 1e-8)
    old = copy.deepcopy(policy)
    start = flattened(policy.parameters()).detach()
    surr = (adv * (policy(rows.obs).logp(rows.act) - rows.logp).exp()).mean()
    slope = flattened(torch.autograd.grad(surr, list(policy.parameters())))
    matrix = dense_fisher(policy, rows.obs) + algo.cg_damping * torch.eye(len(start))
    direction = torch.linalg.solve(matrix, slope)
    size = (2 * algo.target_kl / (direction @ matrix @ direction)).sqrt()
    share = 1.
    for k in range(algo.line_search_max_iter):
        weights = start + share * size * direction
        torch.nn.utils.vector_to_parameters(weights, policy.parameters())
        with torch.no_grad():
            pi = policy(rows.obs)
            kl = old(rows.obs).kl(pi).mean()
            gain = (adv * (pi.logp(rows.act) - rows.logp).exp()).mean() - surr
        if gain > 0 and kl <= algo.target_kl: return weights, k + 1
        share *= algo.line_search_shrinking_factor
    return start, algo.line_search_max_iter


@every_space
@pytest.mark.parametrize("target_kl", [.01, .5])
def test_a_trust_region_step_equals_one_by_a_dense_solve(space, target_kl):
    algo = TRPO(hidden=(6,), target_kl=target_kl, cg_max_steps=100, cg_damping=.05)
    nets = algo.nets(Spec(OBS, space, num_envs=1), torch.Generator().manual_seed(0))
    rows = made_up(nets.policy)
    expected, tries = plain_step(copy.deepcopy(nets.policy), rows, algo)
    found = trust_region_step(algo, nets.policy, rows)
    torch.testing.assert_close(flattened(nets.policy.parameters()), expected, rtol=1e-3, atol=2e-4)
    assert len(found["tried_kl"]) == tries
    assert found["kl"] <= target_kl and found["tried_surr"][-1] > 0


@every_space
def test_a_refused_step_leaves_the_weights_as_they_were(space):
    algo = TRPO(hidden=(6,), line_search_max_iter=3)
    nets = algo.nets(Spec(OBS, space, num_envs=1), torch.Generator().manual_seed(0))
    rows = made_up(nets.policy)
    rows["adv"] = torch.zeros(len(rows))                  # nothing can be gained
    before = flattened(nets.policy.parameters()).clone()
    found = trust_region_step(algo, nets.policy, rows)
    assert torch.equal(flattened(nets.policy.parameters()), before)
    assert found["kl"] == 0 and len(found["tried_kl"]) == 3


def test_conjugate_gradients_equal_a_dense_solve_on_random_matrices():
    generator = torch.Generator().manual_seed(0)
    for n in (1, 5, 20):
        root = torch.randn(n, n, generator=generator, dtype=torch.double)
        matrix = root @ root.T + torch.eye(n)
        b = torch.randn(n, generator=generator, dtype=torch.double)
        x = conjugate_gradient(lambda v: matrix @ v, b, 10 * n)
        torch.testing.assert_close(x, torch.linalg.solve(matrix, b), rtol=1e-4, atol=1e-5)


def test_the_policy_moves_only_with_the_last_minibatch_of_a_rollout():
    trainer = Trainer("CartPole-v1", "trpo", seed=0, num_envs=2, n_steps=16, batch_size=8, n_epochs=2, hidden=(8,))
    trainer.until(lambda event: event.kind == "process")
    learner = trainer.learner
    before = flattened(learner.nets.policy.parameters()).clone()
    while learner.todo:
        assert torch.equal(flattened(learner.nets.policy.parameters()), before)
        trainer.advance()
    assert not torch.equal(flattened(learner.nets.policy.parameters()), before)
    assert {"tried_kl", "tried_surr", "kl", "ent"} <= set(learner.last.parts)


def test_a2c_learns_each_row_once():
    trainer = Trainer("CartPole-v1", A2C(n_steps=4), seed=0, num_envs=3)
    trainer.until("iteration")
    assert sorted(trainer.learner.last.index.tolist()) == list(range(12))
    assert trainer.updates == 1


# ---- IMPALA

def plain_vtrace(rows, num_envs, algo):
    "Targets and advantages by the recursion of the paper's remark, one row after the other"
    ret = torch.zeros(len(rows))
    adv = torch.zeros(len(rows))
    for env in range(num_envs):
        excess = 0.                         # of what follows over its value
        for i in reversed(range(env, len(rows), num_envs)):
            going = 0. if rows.term[i] else algo.gamma
            kept = 0. if rows.term[i] or rows.trunc[i] else excess
            rho = min(algo.rho_max, rows.ratio[i])
            delta = rho * (rows.rew[i] + going * rows.next_val[i] - rows.val[i])
            adv[i] = rho * (rows.rew[i] + going * (rows.next_val[i] + algo.gae_lambda * kept) - rows.val[i])
            excess = delta + going * algo.gae_lambda * min(algo.c_max, rows.ratio[i]) * kept
            ret[i] = rows.val[i] + excess
    return ret, adv


@pytest.mark.parametrize("settings", [{}, dict(gae_lambda=.8, rho_max=2., c_max=.7)], ids=str)
def test_impala_learns_towards_v_trace_by_a_loop(settings):
    algo = IMPALA(n_steps=10, staleness=3, lr=.01, hidden=(8,), **settings)
    trainer = Trainer("CartPole-v1", algo, seed=0, num_envs=3, env_settings=dict(max_episode_steps=9))
    trainer.until("update", 8)
    trainer.until(lambda event: event.kind == "process")
    nets = trainer.learner.nets
    rows = trainer.learner.data
    with torch.no_grad():
        rows["next_val"] = algo.values(nets, rows.next_obs)
        ratio = nets.policy(rows.obs).probs / nets.behind[0](rows.obs).probs
    torch.testing.assert_close(rows.ratio, ratio.gather(1, rows.act[:, None])[:, 0], rtol=1e-3, atol=1e-4)
    assert rows.ratio.std() > .01 and rows.trunc.any()
    ret, adv = plain_vtrace(rows, 3, algo)
    torch.testing.assert_close(rows.ret, ret, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rows.adv, adv, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalize_obs", [False, True])
@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_who_acts_is_exactly_so_many_updates_behind(staleness, normalize_obs):
    "In weights, and in what it takes for usual"
    algo = IMPALA(n_steps=4, staleness=staleness, hidden=(8,), normalize_obs=normalize_obs)
    trainer = Trainer("CartPole-v1", algo, seed=0, num_envs=2)
    nets = trainer.learner.nets
    history = [flattened(nets.policy.state_dict().values()).clone()]
    for _ in range(7):
        trainer.until("update")
        history.append(flattened(nets.policy.state_dict().values()).clone())
        due = history[max(0, len(history) - 1 - staleness)]
        assert torch.equal(flattened(nets.behind[0].state_dict().values()), due)


def test_a_price_is_of_steps_and_not_of_what_became_usual():
    "Weights that stand still have moved by no nat, and every rollout makes the next one cheaper"
    trainer = Trainer("CartPole-v1", "ppo_kl", seed=0, num_envs=2, n_steps=16, n_epochs=1, hidden=(8,), lr=0.,
                      normalize_obs=True)
    with torch.no_grad():
        for weight in trainer.learner.nets.policy.parameters(): weight *= 100
    for count in range(1, 4):
        trainer.until("iteration")
        assert trainer.learner.nets.price.beta.item() == pytest.approx(.2 / 2**count)


# ---- rewards in units

@pytest.mark.parametrize("algo", ["ppo", "a2c", "trpo", "impala", "recurrent_ppo"])
def test_rewards_count_once_in_the_size_of_their_discounted_sum(algo):
    settings = dict(seed=0, num_envs=3, n_steps=5, hidden=(8,), gamma=.9, gae_lambda=0., normalize_reward=True)
    trainer = Trainer("Pendulum-v1", algo, env_settings=dict(max_episode_steps=7), **settings)
    nets = trainer.learner.nets
    sums = np.zeros(3)
    squares = [1.]                          # as before the first step
    for event in trainer:
        if event.kind == "collect":
            row = event.data
            for env in np.flatnonzero(np.broadcast_to(event.steps["agent"].valid, 3)):
                sums[env] = .9 * sums[env] + row.rew[env]
                squares.append(sums[env]**2)
                if row.term[env] or row.trunc[env]: sums[env] = 0.
        elif event.kind == "process":
            data = trainer.learner.data
            assert data.rew.abs().max() > 1                     # what is stored is in the units of the environment
            if algo in ("ppo", "a2c", "trpo"):
                with torch.no_grad():
                    expected = data.rew + nets.scale.unit * .9 * nets.value(data.next_obs)[:, 0] - data.val
                torch.testing.assert_close(data.adv, expected)
        elif not trainer.learner.todo:
            assert float(nets.scale.unit) == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-5)
        if len(squares) > 70: break


@pytest.mark.parametrize("algo", ["ppo", "stream_ac"])
def test_who_learned_in_several_environments_only_acts_in_another_run(algo, tmp_path):
    more = dict(n_steps=8, normalize_reward=True) if algo == "ppo" else {}
    settings = {f"runner.{name}": value for name, value in more.items()}
    first = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner=algo), seed=0, num_envs=3, **settings).run(steps=60)
    cast = dict(chaser="dqn", runner=first.actors["runner"])
    trainer = Trainer("rlbench/Chase-v0", cast, seed=1, num_envs=2).run(steps=20)
    trainer.save(tmp_path / "run.rlb")
    twin = load(tmp_path / "run.rlb")
    for one in (trainer, twin):
        one.run(steps=20)
    assert same(trainer.state(), twin.state())


def test_a_price_comes_back_from_wherever_it_was():
    "However long steps were too short before, it is dear again after twenty rollouts of steps that are too long"
    trainer = Trainer("CartPole-v1", "ppo_kl", seed=0, num_envs=2, n_steps=16, hidden=(8,))
    price = trainer.learner.nets.price
    for short in (True, False):
        for _ in range(300): price.adapt(torch.tensor(0. if short else 1.), .01)
        assert 0 < price.beta < torch.inf
        for _ in range(25): price.adapt(torch.tensor(1. if short else 0.), .01)
        assert price.beta > 1 if short else price.beta < 1
    free = Trainer("CartPole-v1", "ppo_kl", seed=0, num_envs=2, n_steps=16, hidden=(8,), kl_coeff=0.)
    free.until("iteration", 2)
    assert free.learner.nets.price.beta == 0
