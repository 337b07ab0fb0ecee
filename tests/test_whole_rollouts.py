"Policies and what they learn from rollouts, written out plainly, beside a diary of what happened"
import copy
from functools import partial

import pytest
import torch

from rlbench.core.batch import Batch, each
from tests.diary import Plain, adam, begun, keys, lambda_return, pages_from, updates

SMALL = dict(num_envs=3, n_steps=9, batch_size=7, n_epochs=2, normalize_reward=False)


def without(algo):
    "Settings, as far as an algorithm has them"
    return dict(num_envs=3, n_steps=9) if algo == "a2c" else SMALL


@pytest.mark.parametrize("gamma,lam", [(1., 1.), (.9, 0.), (.97, .8)])
@pytest.mark.parametrize("algo,num_envs,world", [
    ("ppo", 1, {}), ("ppo", 3, dict(parts=True)), ("a2c", 3, dict(actions="mixed")), ("trpo", 3, dict(actions="box"))])
def test_advantages_are_lambda_returns_minus_values(algo, num_envs, world, gamma, lam):
    how = without(algo) | world | dict(num_envs=num_envs, gamma=gamma, gae_lambda=lam)
    trainer, pages = begun(algo, **how)
    for _ in range(4):
        trainer.until(lambda event: event.kind == "process")
        learner = trainer.learner
        data = learner.data
        here = keys(data.obs)
        assert len(set(here)) == len(here) == 9 * num_envs
        assert [pages[key]["next"] for key in here] == keys(data.next_obs)
        with torch.no_grad():
            val = learner.algo.values(learner.nets, data.obs).tolist()
            after = dict(zip(here, learner.algo.values(learner.nets, data.next_obs).tolist()))
        wanted = [lambda_return(pages_from(pages, key, set(here)), after, gamma, lam) for key in here]
        torch.testing.assert_close(data.ret, torch.tensor(wanted), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(data.adv, torch.tensor(wanted) - torch.tensor(val), atol=1e-5, rtol=1e-5)


def clipped_loss(algo, logp, ent, val, batch):
    "PPO's, one row after another"
    adv = batch.adv
    if algo.name == "ppo_kl":
        pass                        # by the whole rollout, before
    elif len(adv) > 1: adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    total = 0.
    for i, ratio in enumerate((logp - batch.logp).exp()):
        held = ratio.clamp(1 - algo.clip_range, 1 + algo.clip_range)
        error = (val[i] - batch.ret[i])**2
        if algo.clip_range_vf is not None:
            near = batch.val[i] + (val[i] - batch.val[i]).clamp(-algo.clip_range_vf, algo.clip_range_vf)
            error = torch.maximum(error, (near - batch.ret[i])**2)
        total = total - torch.minimum(ratio * adv[i], held * adv[i]) + algo.vf_coef * error - algo.ent_coef * ent[i]
    return total / len(adv)


@pytest.mark.parametrize("how", [
    dict(actions="box", clip_range_vf=.1, distribution="state_gaussian"), dict(actions="mixed", distribution="beta"),
    dict(parts=True, batch_size=1, n_epochs=1, n_steps=3, normalize_advantage=False)])
def test_ppo(how):
    trainer, _ = begun("ppo", **SMALL | dict(lr=.003) | how)
    plain = Plain(trainer.learner, adam(1e-5))
    for learner, batch, algo in updates(trainer, 20):
        pi = plain.nets.policy(batch.obs)
        loss = clipped_loss(algo, pi.logp(batch.act), pi.entropy(), plain.nets.value(batch.obs)[:, 0], batch)
        plain.step("all", loss)
        plain.same(learner.nets)


def test_ppo_with_a_price_that_adapts():
    trainer, _ = begun("ppo_kl", **SMALL, lr=.03)
    plain = Plain(trainer.learner, adam(1e-5))
    price = trainer.learner.algo.kl_coeff
    seen = set()
    for learner, batch, algo in updates(trainer, 40):
        pi = plain.nets.policy(batch.obs)
        step = pi.logp(batch.act) - batch.logp
        loss = clipped_loss(algo, pi.logp(batch.act), pi.entropy(), plain.nets.value(batch.obs)[:, 0], batch)
        plain.step("all", loss + price * (step.exp() - 1 - step).mean())
        plain.same(learner.nets)
        if not learner.todo:
            data = learner.data
            assert abs(data.adv.mean()) < 1e-6 and abs(data.adv.std() - 1) < 1e-4
            with torch.no_grad():
                step = plain.nets.policy(data.obs).logp(data.act) - data.logp
            kl = (step.exp() - 1 - step).mean()
            if kl > 1.5 * algo.kl_target: price *= 2
            elif kl < algo.kl_target / 1.5: price /= 2
            seen.add(price)
            assert learner.nets.price.beta.item() == pytest.approx(price)
    assert len(seen) > 1


def one(rows, *at):
    "A row (1, ...) of columns"
    return each(lambda column: column[at][None], rows)


@pytest.mark.parametrize("how", [dict(cell="lstm", parts=True), dict(actions="mixed", gamma=1., gae_lambda=1.)])
def test_recurrent_ppo(how):
    "Carries begin anew with an episode; values are asked with what was carried; time is gone through step by step"
    trainer, pages = begun("recurrent_ppo", **SMALL | dict(batch_size=18, hidden=(8,), memory_size=6) | how)
    plain = Plain(trainer.learner, adam(1e-5))
    for learner, batch, algo in updates(trainer, 12):
        flat = learner.data[learner.data.valid]
        here = keys(flat.obs)
        starts = torch.tensor([pages[key]["step"] == 0 for key in here])
        assert (flat.carry[starts] == 0).all() and not (flat.first & ~starts).any()

        logp = []
        ent = []
        val = []
        carry = batch.carry[0]
        for t in range(len(batch.rew)):
            carry = carry * ~batch.first[t][:, None]
            row = each(lambda column: column[t], Batch(obs=batch.obs, act=batch.act))
            pi, said, carry = plain.nets.policy.step(row.obs, carry)
            logp.append(pi.logp(row.act))
            ent.append(pi.entropy())
            val.append(said)
        valid = batch.valid
        loss = clipped_loss(algo, *(torch.stack(column)[valid] for column in (logp, ent, val)), batch[valid])
        plain.step("all", loss)
        plain.same(learner.nets)


def test_values_of_recurrent_ppo_lead_to_its_returns():
    trainer, pages = begun("recurrent_ppo", **SMALL | dict(hidden=(8,), memory_size=6), gamma=.9, gae_lambda=.7)
    for _ in range(3):
        trainer.until(lambda event: event.kind == "process")
        policy = trainer.learner.nets.policy
        data = trainer.learner.data[trainer.learner.data.valid]
        here = keys(data.obs)
        after = {}
        with torch.no_grad():
            for i, key in enumerate(here):
                *_, carry = policy.step(one(data, i).obs, one(data, i).carry)
                after[key] = policy.step(one(data, i).next_obs, carry)[1].item()
        wanted = [lambda_return(pages_from(pages, key, set(here)), after, .9, .7) for key in here]
        torch.testing.assert_close(data.ret, torch.tensor(wanted), atol=1e-5, rtol=1e-5)


def baseline(nets, algo, obs):
    return nets.value(obs)[:, 0] if algo.baseline else torch.zeros(len(keys(obs)))


@pytest.mark.parametrize("how", [dict(parts=True, ent_coef=.1), dict(actions="mixed", gamma=1.), dict(baseline=False)])
def test_reinforce(how):
    "Whole episodes, each once; what was cut goes on with the baseline, or with nothing"
    trainer, pages = begun("reinforce", num_envs=2, n_episodes=4, **how)
    plain = Plain(trainer.learner, adam())
    used = set()
    for learner, batch, algo in updates(trainer, 6):
        here = keys(batch.obs)
        assert not used & set(here)
        used |= set(here)
        assert sum(pages[key]["step"] == 0 for key in here) == sum(pages[key]["term"] or pages[key]["trunc"]
                                                                   for key in here) >= 4
        told = partial(baseline, plain.nets, algo)
        with torch.no_grad():
            val = told(batch.obs)
            after = dict(zip(here, told(batch.next_obs).tolist()))
        ret = torch.tensor([lambda_return(pages_from(pages, key, set(here)), after, algo.gamma, 1.) for key in here])
        pi = plain.nets.policy(batch.obs)
        loss = -(pi.logp(batch.act) * (ret - val)).mean() - algo.ent_coef * pi.entropy().mean()
        if algo.baseline:
            loss = loss + algo.vf_coef * ((told(batch.obs) - ret)**2).mean()
        plain.step("all", loss)
        plain.same(learner.nets)


@pytest.mark.parametrize("verdict,actions", [("gail", "choice"), ("airl", "box")])
def test_gail(verdict, actions):
    "D by its sigmoid, the reward by its logarithms"
    shown, _ = begun("ppo", actions, n_steps=40, num_envs=2)
    shown = shown.run(steps=80).learner.memory
    trainer, pages = begun("gail", actions, memory=shown, verdict=verdict, **SMALL)
    plain = Plain(trainer.learner, adam(1e-5))
    before = copy.deepcopy(plain.nets)
    for learner, batch, algo in updates(trainer, 16):
        with torch.no_grad():
            chance = before.judge(batch.obs, batch.act)[:, 0].double().sigmoid()
        paid = -(1 - chance).log() if verdict == "gail" else chance.log() - (1 - chance).log()
        torch.testing.assert_close(batch.rew.double(), paid, atol=1e-5, rtol=1e-5)
        theirs, mine = (plain.nets.judge(rows.obs, rows.act)[:, 0].sigmoid() for rows in (batch.shown, batch))
        plain.step("judge", -(theirs.log() + (1 - mine).log()).mean())
        pi = plain.nets.policy(batch.obs)
        loss = clipped_loss(algo, pi.logp(batch.act), pi.entropy(), plain.nets.value(batch.obs)[:, 0], batch)
        plain.step("all", loss)
        plain.same(learner.nets)
        if not learner.todo: before = copy.deepcopy(plain.nets)
