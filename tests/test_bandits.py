"""The bandit, its methods, and the ten-armed testbed of Sutton & Barto, chapter 2.

Numbers called ORACLE come from a plain numpy simulation of the book's equations, 8000 runs, that shares no code with the library.
"""
import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import rlbench.envs.problems  # noqa: F401  (registers the bandit)
from rlbench.algos.algorithm import Spec
from rlbench.algos.bandits import Bandit, GradientBandit, beta_belief, normal_belief
from rlbench.core.batch import Batch
from rlbench.core.config import ConfigError
from rlbench.core.state import same
from rlbench.envs.env import make
from rlbench.envs.problems import BanditHall
from rlbench.envs.tabular import model_of, solve
from rlbench.policies.distributions import SpaceProblem
from rlbench.policies.exploration import ucb
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer, load

RUNS, STEPS = 400, 1000


def trainer_for(algo="bandit", runs=RUNS, hall=None, **more):
    return Trainer("rlbench/Bandit-v0", algo, num_envs=runs, capacity=1, env_settings=dict(machines=runs) | (hall or {}), **more)


def play(steps=STEPS, **more):
    "Mean reward, share of pulls of the best arm, and mean regret, at every step"
    trainer = trainer_for(**more)
    means, rows = trainer.env.single.unwrapped.means, []
    best, everyone = means.max(1), np.arange(len(means))
    for _ in range(steps):
        row = trainer.until("step").data
        pulled = means[everyone, row.act]
        rows.append((row.rew.mean(), (pulled == best).mean(), (best - pulled).mean()))
    return np.array(rows).T


FOUR = dict(hall=dict(mean=4.))
WIN = dict(hall=dict(arms=[.3, .5, .7], payout="win"))
ORACLE = {  # settings: mean reward of the last 100 pulls, share of the best arm there, regret of all 1000 pulls
    "greedy": (dict(eps=0.), 1.032, .357, 517.),
    "eps .01": (dict(eps=.01), 1.313, .598, 346.),
    "eps .1": (dict(eps=.1), 1.371, .799, 234.),
    "optimistic": (dict(eps=0., initial=5., alpha=.1), 1.502, .859, 242.),
    "realistic": (dict(eps=.1, alpha=.1), 1.352, .757, 291.),
    "ucb 2": (dict(eps=0., ucb=2.), 1.490, .855, 148.),
    "normal belief": (dict(rule="normal"), 1.525, .918, 69.),
    "gradient .1": (dict(algo="gradient_bandit", lr=.1) | FOUR, 5.506, .849, 182.),
    "gradient .4": (dict(algo="gradient_bandit", lr=.4) | FOUR, 5.439, .716, 162.),
    "gradient .1, no baseline": (dict(algo="gradient_bandit", lr=.1, baseline=False) | FOUR, 5.216, .494, 456.),
    "beta belief": (dict(rule="beta", runs=200) | WIN, .697, .989, 12.8),
}


@pytest.fixture(scope="module")
def curves():
    "Each curve is computed once, when a test asks for it"
    known = {}
    return lambda name: known[name] if name in known else known.setdefault(name, play(**ORACLE[name][0]))


# ---- the testbed -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ORACLE)
def test_the_testbed_is_the_books(curves, name):
    rew, right, regret = curves(name)
    _, last, share, lost = ORACLE[name]
    # four standard errors: over machines the best of ten means has deviation .59, and the share of the best arm at most .5
    assert rew[-100:].mean() == pytest.approx(last, abs=4 * .6 / np.sqrt(RUNS))
    assert right[-100:].mean() == pytest.approx(share, abs=4 * .45 / np.sqrt(RUNS))
    assert regret.sum() == pytest.approx(lost, rel=.15)


def test_the_figures_orders(curves):
    share = lambda name, part=slice(-100, None): curves(name)[1][part].mean()
    assert share("greedy") < share("eps .01") < share("eps .1")                                        # figure 2.2
    assert share("eps .01", slice(0, 50)) < share("eps .1", slice(0, 50)) + .02
    assert share("optimistic", slice(20, 60)) < share("realistic", slice(20, 60)) and share("optimistic") > share("realistic") + .05   # 2.3
    assert share("gradient .1") > share("gradient .4") > share("gradient .1, no baseline") + .1       # 2.5
    assert curves("normal belief")[2].sum() < curves("ucb 2")[2].sum() < curves("eps .1")[2].sum()


@pytest.mark.parametrize("name", ["ucb 2", "optimistic"])
def test_the_spike_at_pull_eleven(name):
    "Exercises 2.6 and 2.8: ten arms once each, then the best of them; half of the largest of ten draws from N(0, 2) is true"
    rew = play(steps=14, runs=2000, **ORACLE[name][0])[0]
    error = 4 * 1.4 / np.sqrt(2000)
    assert abs(rew[:10]).max() < error and rew[10] == pytest.approx(1.539 * np.sqrt(2) / 2, abs=error) and rew[10] > rew[13] + .1


def test_with_ucb_every_arm_comes_once_first():
    trainer = trainer_for(runs=200, eps=0., ucb=2.)
    taken = np.stack([trainer.until("step").data.act for _ in range(10)])
    assert (np.sort(taken, 0) == np.arange(10)[:, None]).all()


def test_drifting_arms_want_a_constant_step():
    def late(**more):
        trainer, paid = trainer_for(runs=300, hall=dict(spread=0., drift=.05), **more), []
        for _ in range(1000):
            paid.append(trainer.until("step").data.rew.mean())
        return np.mean(paid[-300:])
    assert late(alpha=.1) > late(alpha=None) + .1                                     # exercise 2.5


# ---- updates -----------------------------------------------------------------------------------------------------------

def learned(algo, rounds):
    "Networks after rounds of rows (state, action, reward)"
    nets = algo.nets(Spec(gym.spaces.Discrete(2), gym.spaces.Discrete(3), 1), None)
    sgd = torch.optim.SGD(nets.parameters(), lr=algo.lr)
    for rows in rounds:
        obs, act, rew = zip(*rows)
        row = Batch(obs=torch.tensor(obs), act=torch.tensor(act), rew=torch.tensor(rew, dtype=torch.float32))
        sgd.zero_grad()
        algo.loss(nets, row)[0].backward()
        sgd.step()
        algo.finish(nets, row)
    return nets


pulls = st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(-20, 20)), min_size=1, max_size=5), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(pulls, st.floats(-5, 5))
def test_averages_are_averages_however_pulls_come_together(rounds, initial):
    nets = learned(Bandit(initial=initial), rounds)
    rows = [row for one in rounds for row in one]
    for s, a in np.ndindex(2, 3):
        paid = [r for state, act, r in rows if (state, act) == (s, a)]
        assert nets.pulls.count[s, a] == len(paid)
        assert nets.q.q[s, a].item() == pytest.approx(np.mean(paid) if paid else np.float32(initial), abs=1e-4)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(pulls, st.sampled_from([.1, .5, 1.]), st.booleans())
def test_preferences_are_the_formula(rounds, lr, baseline):
    rounds = [one[:1] for one in rounds]                                              # one pull at a time, as in the book
    h, paid = np.zeros((2, 3)), {0: [], 1: []}
    for [(s, a, r)] in rounds:
        pi = np.exp(h[s] - h[s].max())
        pi /= pi.sum()
        base = (np.mean(paid[s]) if paid[s] else r) if baseline else 0
        h[s] += lr * (r - base) * (np.eye(3)[a] - pi)
        paid[s].append(r)
    assert learned(GradientBandit(lr=lr, baseline=baseline), rounds).h.q.detach().numpy() == pytest.approx(h, rel=1e-4, abs=1e-3)


def test_a_constant_step_forgets_by_equal_factors():
    nets = learned(Bandit(alpha=.25, initial=8.), [[(0, 0, 0.)]] * 3)
    assert nets.q.q[0].tolist() == [8 * .75**3, 8, 8]


def test_owed_again_is_counted_again():
    trainer = trainer_for(runs=4).run(steps=40)
    trainer.collecting = False
    before = trainer.learner.nets.pulls.count.sum().item()
    trainer.learner.owe(3)
    for _ in trainer:
        pass
    assert trainer.learner.nets.pulls.count.sum().item() == before + 12


# ---- choices -----------------------------------------------------------------------------------------------------------

def test_ucb_by_hand():
    q, n = torch.tensor([[1., 2., 0.]]), torch.tensor([[4., 4., 0.]])
    assert ucb(q, n, 1.)[0].tolist() == pytest.approx([1 + np.sqrt(np.log(9) / 4), 2 + np.sqrt(np.log(9) / 4), np.inf])
    assert ucb(torch.zeros(1, 2), torch.zeros(1, 2), 1.)[0].tolist() == [np.inf, np.inf]     # not nan at the very first pull


def test_beliefs_narrow():
    mean, deviation = normal_belief(torch.tensor([2.]), torch.tensor([99.]), 0., 3.)
    assert (mean.item(), deviation.item()) == pytest.approx((1.98, .3))
    belief = beta_belief(torch.tensor([[0., 1.]]), torch.tensor([[0., 8.]]))
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((4000, 2, 2, 8, 2), np.float32))
    noise[..., 1] = torch.from_numpy(np.random.default_rng(1).random((4000, 2, 2, 8), np.float32))
    drawn = belief.sample(noise)
    assert drawn.mean(0).tolist() == pytest.approx([.5, .9], abs=.02)                # Beta(1, 1) and Beta(9, 1)


def test_the_rule_changes_in_mid_run():
    "UCB, then ε-greedy, then Thompson: the table and the counts go on"
    trainer = trainer_for(runs=200, eps=0., ucb=2.).run(steps=200 * 50)
    before = trainer.learner.nets.pulls.count.sum().item()
    for change in (dict(ucb=0., eps=.1), dict(rule="normal"), dict(rule="greedy", ucb=1.)):
        trainer.set(**change)
        trainer.run(steps=200 * 50)
    assert trainer.learner.nets.pulls.count.sum().item() == before + 3 * 200 * 50
    assert np.mean([trainer.until("step").data.rew.mean() for _ in range(20)]) > 1.1


@pytest.mark.parametrize("rule", ["greedy", "normal", "beta"])
def test_greedy_evaluation_takes_the_best_estimate(rule):
    trainer = trainer_for(runs=5, rule=rule, hall=dict(arms=[.2, .8], payout="win")).run(steps=500)
    q = trainer.learner.nets.q.q
    assert (trainer.policy.act(np.arange(5)) == q.argmax(1).numpy()).all()


def test_evaluation_plays_whole_episodes():
    trainer = Trainer("rlbench/Bandit-v0", "bandit", env_settings=dict(arms=[0., 3.])).run(steps=200)
    result = evaluate(trainer, episodes=3, num_envs=3)
    assert (result.lengths == 1000).all() and result.returns == pytest.approx([3000] * 3, abs=5 * np.sqrt(1000))


def test_what_is_refused():
    for algo in ("bandit", "gradient_bandit"):
        with pytest.raises(SpaceProblem, match="try dqn"): Trainer("CartPole-v1", algo)
    with pytest.raises(ConfigError, match="one of greedy, normal, beta"): Trainer("rlbench/Bandit-v0", "bandit", rule="ucb")
    with pytest.raises(ValueError, match="between 0 and 1"): trainer_for(runs=20, rule="beta").run(steps=100)


# ---- the environment ---------------------------------------------------------------------------------------------------

def test_a_hall_is_the_same_for_all_who_ask():
    one, other = BanditHall(machines=4, hall=3), BanditHall(machines=4, hall=3)
    assert (one.means == other.means).all() and not (one.means == BanditHall(machines=4, hall=4).means).all()
    vector = make("rlbench/Bandit-v0", num_envs=4, machines=4, hall=3)
    assert (vector.env.means == one.means).all() and (vector.single.unwrapped.means == one.means).all()


def test_the_model_is_the_means():
    env = gym.make("rlbench/Bandit-v0", machines=3, arms=4)
    assert solve(model_of(env), 0.)[1] == pytest.approx(env.unwrapped.means)
    assert model_of(gym.make("rlbench/Bandit-v0", drift=.1)) is None


def test_many_pulls_pay_the_mean():
    for payout, arms, deviation in (("normal", [-1., 2.], 1.), ("win", [.1, .7], .5)):
        env = make("rlbench/Bandit-v0", num_envs=500, arms=arms, payout=payout)
        env.reset(0)
        for a in (0, 1):
            paid = np.concatenate([env.step(np.full(500, a)).rew for _ in range(20)])
            assert paid.mean() == pytest.approx(arms[a], abs=4 * deviation / 100)
        single = BanditHall(arms=arms, payout=payout)
        single.reset(seed=0)
        assert np.mean([single.step(1)[1] for _ in range(2500)]) == pytest.approx(arms[1], abs=4 * deviation / 50)


def test_episodes_are_cut_and_go_on_at_the_next_machine():
    env, act = make("rlbench/Bandit-v0", num_envs=2, machines=5), np.zeros(2, int)
    assert env.reset(0).tolist() == [0, 1]
    for _ in range(999):
        step = env.step(act)
        assert not step.trunc.any() and step.obs.tolist() == [0, 1]
    step = env.step(act)
    assert step.trunc.all() and not step.term.any()
    assert step.next_obs.tolist() == [0, 1] and step.obs.tolist() == [2, 3]
    assert env.reset(0).tolist() == [0, 1]


def test_drift_is_a_walk_that_begins_anew():
    env = make("rlbench/Bandit-v0", num_envs=400, machines=400, drift=.1, spread=0.)
    env.reset(0)
    for _ in range(25):
        env.step(np.zeros(400, int))
    assert env.env.now.std() == pytest.approx(.5, rel=.1) and (env.env.means == 0).all()
    env.reset(1)
    assert (env.env.now == 0).all()
    one = BanditHall(drift=.1, spread=0.)
    one.reset(seed=0)
    for _ in range(25):
        one.step(0)
    assert one.now.std() > .1 and one.reset(seed=1) and (one.now == 0).all()


@pytest.mark.parametrize("bad, message", [(dict(arms=0), "at least one"), (dict(arms=[]), "at least one"), (dict(machines=0), "at least one"),
                                          (dict(payout="wins"), "normal, win"), (dict(arms=[-.1, 1.], payout="win"), "chances"), (dict(payout="win", drift=.1), "do not drift")])
def test_bandits_that_cannot_be(bad, message):
    with pytest.raises(ValueError, match=message): BanditHall(**bad)


@pytest.mark.parametrize("runs", [1, 6])
def test_a_drifting_run_is_resumed_to_the_bit(runs, tmp_path):
    trainer = Trainer("rlbench/Bandit-v0", "bandit", num_envs=runs, rule="normal", env_settings=dict(machines=6, drift=.1)).run(steps=50 * runs)
    trainer.save(tmp_path / "bandit.rlb")
    twin = load(tmp_path / "bandit.rlb")
    for one in (trainer, twin):
        one.run(steps=1100 * runs)                                                    # across the end of an episode
    assert same(trainer.state(), twin.state())
