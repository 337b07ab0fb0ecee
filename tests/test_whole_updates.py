"What is learned from stored rows, written out plainly, beside a diary of what happened"
import math

import numpy as np
import pytest
import torch

from rlbench.core.batch import Batch, each
from tests.diary import HIGH, LOW, Plain, adam, begun, best_of, huber, keys, lambda_return, n_step, pages_from, updates

SMALL = dict(learning_starts=20, batch_size=6, train_freq=5, gradient_steps=2, buffer_size=60, lr=1e-3, gamma=.9,
             target_update_interval=3)
URGENT = dict(prioritized_replay_alpha=.6)
MASKED = dict(parts=True)
ATOMS = dict(v_min=-2., v_max=1.5, atoms=8)


def said(net, obs, noise):
    return net(obs) if noise is None else net(obs, noise)


def next_best(nets, batch, algo):
    net, noise = (nets.q, "noise") if algo.double else (nets.target, "next_noise")
    with torch.no_grad():
        return best_of(said(net, batch.next_obs, batch.get(noise)), batch.next_obs)


def plain_errors(nets, batch, algo):
    "Huber, and how urgent rows are"
    rows = torch.arange(len(batch))
    q = said(nets.q, batch.obs, batch.get("noise"))[rows, batch.act]
    with torch.no_grad():
        after = said(nets.target, batch.next_obs, batch.get("next_noise"))
    error = batch.ret + batch.disc * after[rows, next_best(nets, batch, algo)] - q
    return huber(error), error.abs()


def atom_errors(nets, batch, algo):
    "Algorithm 1 of Bellemare et al. (2017)"
    atoms = np.linspace(algo.v_min, algo.v_max, algo.atoms)
    rows = torch.arange(len(batch))
    logp = nets.q.logits(batch.obs, batch.get("noise"))[rows, batch.act].log_softmax(-1)
    with torch.no_grad():
        after = nets.target.logits(batch.next_obs, batch.get("next_noise"))[rows, next_best(nets, batch, algo)]
    wanted = torch.zeros(len(batch), algo.atoms)
    for i, probs in enumerate(after.softmax(-1).tolist()):
        for z, prob in zip(atoms, probs):
            place = np.clip(batch.ret[i].item() + batch.disc[i].item() * z, algo.v_min, algo.v_max)
            place = (place - algo.v_min) / (atoms[1] - atoms[0])
            low, high = math.floor(place), math.ceil(place)
            wanted[i, low] += prob * (high - place if high > low else 1)
            wanted[i, high] += prob * (place - low)
    apart = torch.xlogy(wanted, wanted).sum(-1) - (wanted * logp).sum(-1)
    return apart, apart


def quantile_errors(nets, batch, algo):
    "Equation 10 of Dabney et al. (2018a), and 3 of (2018b)"
    rows = torch.arange(len(batch))
    number = batch.tau.shape[1] if "tau" in batch else algo.quantiles
    tau = batch.get("tau", (torch.arange(number) + .5).expand(len(batch), -1) / number)
    guess = nets.q.quantiles(batch.obs, batch.get("noise"), batch.get("tau"))[rows, batch.act]
    with torch.no_grad():
        after = nets.target.quantiles(batch.next_obs, batch.get("next_noise"), batch.get("next_tau"))
        after = after[rows, next_best(nets, batch, algo)]
    total = torch.zeros(len(batch))
    for j in range(number):
        for k in range(after.shape[1]):
            error = batch.ret + batch.disc * after[:, k] - guess[:, j]
            total = total + (tau[:, j] - (error < 0).float()).abs() * huber(error) / after.shape[1]
    return total, total


def check_rows(learner, pages):
    "Returns of n steps, within an episode and within what is held"
    memory = learner.memory
    held = set(keys(memory.gather(memory.latest()).obs))
    for i, key in enumerate(keys(learner.data.obs)):
        ret, disc, follows = n_step(pages_from(pages, key, held), learner.algo.gamma, learner.algo.n_step)
        assert learner.data.ret[i].item() == pytest.approx(ret, abs=1e-5)
        assert learner.data.disc[i].item() == pytest.approx(disc, abs=1e-6)
        assert keys(learner.data.next_obs)[i] == follows
    return held


def check_weights(learner, held, priorities, top):
    "(n p)^-beta, the largest 1; who is new is as urgent as the most urgent so far"
    for key in held: priorities.setdefault(key, top)
    p = np.array([priorities[key] for key in keys(learner.data.obs)]) / sum(priorities[key] for key in held)
    weight = (len(held) * p) ** -learner.algo.prioritized_replay_beta
    np.testing.assert_allclose(learner.data.weight, weight / weight.max(), rtol=1e-3)


@pytest.mark.parametrize("algo,errors,how", [
    ("dqn", plain_errors, dict(num_envs=3, n_step=3) | URGENT),
    ("dqn", plain_errors, dict(num_envs=1, n_step=1, double=False, gamma=1., tau=.3)),
    ("dqn", plain_errors, dict(num_envs=8, n_step=5, dueling=True, noisy=True) | MASKED | URGENT),
    ("dqn", plain_errors, dict(num_envs=2, n_step=2, batch_size=200, body="simba")),
    ("c51", atom_errors, dict(num_envs=3, n_step=1, double=False) | ATOMS | MASKED),
    ("rainbow", atom_errors, dict(num_envs=2, n_step=3) | ATOMS | MASKED),
    ("qr_dqn", quantile_errors, dict(num_envs=3, n_step=3, quantiles=5) | URGENT),
    ("iqn", quantile_errors, dict(num_envs=2, n_step=2, samples=4, quantiles=5, dueling=True, noisy=True) | MASKED)])
def test_dqn_and_its_kin(algo, errors, how):
    trainer, pages = begun(algo, **SMALL | how)
    learner = trainer.learner
    plain = Plain(learner, adam())
    priorities = {}
    top = 1.
    count = 0
    while count < 30:
        event = trainer.advance()
        if event.kind == "process":
            held = check_rows(learner, pages)
            if "weight" in learner.data:
                check_weights(learner, held, priorities, top)
        if event.kind != "learn": continue
        batch = learner.last.batch
        error, urgency = errors(plain.nets, batch, learner.algo)
        plain.step("all", (batch.get("weight", 1.) * error).mean())
        count += 1
        if count % 3 == 0:
            with torch.no_grad():
                for slow, one in zip(plain.nets.target.parameters(), plain.nets.q.parameters()):
                    slow.lerp_(one, learner.algo.tau)
        plain.same(learner.nets)
        for key, one in zip(keys(batch.obs), urgency.tolist()):
            priorities[key] = (one + 1e-6)**learner.algo.prioritized_replay_alpha
            top = max(top, priorities[key])


def scale(x):
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + .001 * x


def scale_back(y):
    "By halving, again and again, the interval in which it must lie"
    low, high = -1e4, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if scale(middle) < y else (low, middle)
    return low


def along(net, batch, env, rows, cut):
    "[(values at a row, values of what follows it)], a step at a time; no gradient through the carry at `cut`"
    found, carry = [], batch.carry[0, env][None]
    for t in rows:
        obs, next_obs = each(lambda column: column[t, env][None], Batch(obs=batch.obs, next=batch.next_obs)).values()
        if t == cut: carry = carry.detach()
        q, carry = net.step(obs, carry)
        found.append((q[0], net.step(next_obs, carry)[0].detach(), next_obs))
    return found


def column_errors(nets, pages, batch, env, algo):
    "[(row, error)] of one stretch"
    rows = [t for t in range(len(batch.rew)) if batch.valid[t, env]]
    here = [keys(each(lambda column: column[t, env][None], batch).obs)[0] for t in rows]
    assert all(pages[key]["next"] == after for key, after in zip(here, here[1:]))
    burnt = int(batch.burn[:, env].sum())
    assert burnt == (algo.burn_in if rows and pages[here[0]]["step"] else 0)
    online = along(nets.q, batch, env, rows, burnt)
    with torch.no_grad(): slow = along(nets.target, batch, env, rows, burnt)
    errors = []
    for t in rows[burnt:]:
        steps = pages_from(pages, here[t], set(here))[:algo.n_step]
        ret, disc, _ = n_step(steps, algo.gamma, algo.n_step)
        last = t + len(steps) - 1
        best = best_of((online if algo.double else slow)[last][1], slow[last][2])
        target = scale(ret + disc * scale_back(slow[last][1][0, best].item()))
        errors.append((t, target - online[t][0][batch.act[t, env]]))
    return errors


@pytest.mark.parametrize("how", [
    dict(num_envs=2, n_step=3) | URGENT | MASKED,
    dict(num_envs=1, n_step=1, cell="lstm", double=False, dueling=False, gamma=1., prioritized_replay_alpha=0.)])
def test_r2d2(how):
    more = dict(hidden=(8,), memory_size=6, batch_size=3, sequence_length=5, burn_in=3, train_freq=7, buffer_size=120)
    trainer, pages = begun("r2d2", **SMALL | more | how)
    plain = Plain(trainer.learner, adam())
    for count, (learner, batch, algo) in enumerate(updates(trainer, 9), 1):
        losses = []
        for env in range(batch.rew.shape[1]):
            for t, error in column_errors(plain.nets, pages, batch, env, algo):
                losses.append(.5 * (batch.weight[t, env] if "weight" in batch else 1.) * error**2)
        plain.step("all", torch.stack(losses).mean())
        if count % 3 == 0:
            plain.nets.target.load_state_dict(plain.nets.q.state_dict())
        plain.same(learner.nets, atol=1e-5)


def shown(actions="choice", parts=False):
    "(data of three environments, their diary)"
    trainer, pages = begun("ppo", actions, parts, num_envs=3, n_steps=30)
    return trainer.run(steps=90).learner.memory, pages


def weights_of(adv, algo):
    return (algo.beta * adv / adv.square().mean().sqrt()).exp().clamp(max=algo.max_weight or math.inf)


@pytest.mark.parametrize("how", [dict(), dict(gae_lambda=1., max_weight=None, gamma=1.), dict(gae_lambda=0.)])
def test_awr(how):
    memory, pages = shown(parts=True)
    trainer, _ = begun("awr", parts=True, memory=memory, batch_size=31, **how)
    learner = trainer.learner
    plain = Plain(learner, adam())
    for _ in range(3):
        trainer.until(lambda event: event.kind == "process")
        data = learner.data
        here = keys(data.obs)
        with torch.no_grad():
            val, after = (plain.nets.value(obs)[:, 0] for obs in (data.obs, data.next_obs))
        after = dict(zip(here, after.tolist()))
        ret = [lambda_return(pages_from(pages, key, set(here)), after, learner.algo.gamma, learner.algo.gae_lambda)
               for key in here]
        weight = dict(zip(here, weights_of(torch.tensor(ret) - val, learner.algo)))
        ret = dict(zip(here, ret))
        for _, batch, algo in updates(trainer, 3):
            pi = plain.nets.policy(batch.obs)
            weights = torch.stack([weight[key] for key in keys(batch.obs)])
            errors = plain.nets.value(batch.obs)[:, 0] - torch.tensor([ret[key] for key in keys(batch.obs)])
            cloned = -(weights * pi.logp(batch.act)).mean() - algo.ent_coef * pi.entropy().mean()
            plain.step("all", cloned + algo.vf_coef * errors.square().mean())
            plain.same(learner.nets)


def given(algo, actions="choice", parts=False, **how):
    "(a trainer on data, the plain form of its learner, the diary of the data)"
    memory, pages = shown(actions, parts)
    trainer, _ = begun(algo, actions, parts, memory=memory, **dict(batch_size=31) | how)
    return trainer, Plain(trainer.learner, adam()), pages


def follow(slow, fast, tau):
    with torch.no_grad():
        for a, b in zip(slow.parameters(), fast.parameters()):
            a.copy_((1 - tau) * a + tau * b)


def bellman(batch, algo, next_val):
    return batch.rew + algo.gamma * torch.where(batch.term, 0., next_val)


def square_error(q, target):
    return sum(.5 * (q[:, k] - target)**2 for k in range(q.shape[1])).mean()


@pytest.mark.parametrize("actions,parts", [("choice", True), ("box", False)])
def test_iql(actions, parts):
    trainer, plain, _ = given("iql", actions, parts, expectile=.7)
    nets = plain.nets
    for learner, batch, algo in updates(trainer, 9):
        with torch.no_grad(): good = nets.target(batch.obs, batch.act).amin(1)
        adv = good - nets.value(batch.obs)[:, 0]
        plain.step("value", torch.stack([(.7 if one > 0 else .3) * one**2 for one in adv]).mean())
        with torch.no_grad():
            target = bellman(batch, algo, nets.value(batch.next_obs)[:, 0])
        plain.step("critic", square_error(nets.critic(batch.obs, batch.act), target))
        pi = nets.policy(batch.obs)
        cloned = (weights_of(adv.detach(), algo) * -pi.logp(batch.act)).mean()
        plain.step("policy", cloned - algo.ent_coef * pi.entropy().mean())
        follow(nets.target, nets.critic, algo.tau)
        plain.same(learner.nets)


def test_td3_bc():
    trainer, plain, _ = given("td3_bc", "box", policy_delay=3)
    nets = plain.nets
    half = (HIGH - LOW) / 2
    for count, (learner, batch, algo) in enumerate(updates(trainer, 9), 1):
        with torch.no_grad():
            kick = (algo.target_policy_noise * batch.next_noise).clamp(-algo.target_noise_clip, algo.target_noise_clip)
            next_act = (nets.target_policy(batch.next_obs).mode() + half * kick).clamp(LOW, HIGH)
            target = bellman(batch, algo, nets.target(batch.next_obs, next_act).amin(1))
        plain.step("critic", square_error(nets.critic(batch.obs, batch.act), target))
        if count % 3 == 0:
            act = nets.policy(batch.obs).mode()
            val = nets.critic(batch.obs, act)[:, 0]
            climb = algo.bc_alpha * val.mean() / val.abs().mean().detach()
            plain.step("policy", ((act - batch.act) / half).square().mean() - climb)
            follow(nets.target, nets.critic, algo.tau)
            follow(nets.target_policy, nets.policy, algo.tau)
        plain.same(learner.nets)


def test_cql():
    "The gap by importance sampling, half of the actions from anywhere, half by the policy"
    trainer, plain, _ = given("cql", "box", tries=2)
    nets = plain.nets
    area = (HIGH - LOW).prod()
    wanted = ((HIGH - LOW) / 2).log().sum() - 2
    for learner, batch, algo in updates(trainer, 9):
        alpha = nets.temperature.log.exp().detach()
        with torch.no_grad():
            next_act, next_logp = nets.policy(batch.next_obs).act(batch.next_noise)
            target = bellman(batch, algo, nets.target(batch.next_obs, next_act).amin(1) - alpha * next_logp)
        q = nets.critic(batch.obs, batch.act)
        shares = []
        for k in range(2):
            with torch.no_grad():
                act, logp = nets.policy(batch.obs).act(batch.tries.normal[:, k])
            shares.append(nets.critic(batch.obs, act).exp() / logp.exp()[:, None])
            shares.append(nets.critic(batch.obs, LOW + (HIGH - LOW) * batch.tries.uniform[:, k]).exp() * area)
        gap = torch.stack(shares).mean(0).log() - q
        plain.step("critic", square_error(q, target) + algo.cql_alpha * gap.sum(1).mean())
        act, logp = nets.policy(batch.obs).act(batch.noise)
        plain.step("policy", (alpha * logp - nets.critic(batch.obs, act).amin(1)).mean())
        plain.step("temperature", -(nets.temperature.log * (logp.detach() + wanted)).mean())
        follow(nets.target, nets.critic, algo.tau)
        plain.same(learner.nets)


@pytest.mark.parametrize("how", [dict(target_update_interval=4), dict(n_step=1, cql_alpha=1., double=False)])
def test_discrete_cql(how):
    trainer, plain, pages = given("discrete_cql", parts=True, **how)
    memory = trainer.learner.memory
    held = set(keys(memory.gather(memory.latest()).obs))
    for count, (learner, batch, algo) in enumerate(updates(trainer, 9), 1):
        found = [n_step(pages_from(pages, key, held), algo.gamma, algo.n_step) for key in keys(batch.obs)]
        ret, disc, follows = zip(*found)
        assert list(follows) == keys(batch.next_obs)
        rows = torch.arange(len(batch))
        with torch.no_grad():
            after = plain.nets.target(batch.next_obs)[rows, next_best(plain.nets, batch, algo)]
        q = plain.nets.q(batch.obs)
        error = torch.tensor(ret) + torch.tensor(disc) * after - q[rows, batch.act]
        allowed = q.exp() * batch.obs["action_mask"]
        gap = allowed.sum(1).log() - q[rows, batch.act]
        plain.step("all", huber(error).mean() + algo.cql_alpha * gap.mean())
        if count % algo.target_update_interval == 0:
            plain.nets.target.load_state_dict(plain.nets.q.state_dict())
        plain.same(learner.nets)
