"""The bandit, its methods, and the ten-armed testbed of Sutton & Barto, chapter 2.

Numbers called ORACLE come from a plain numpy simulation of the book's equations, 8000 runs, that shares no code with
the library. The testbed in the book's size is measured by benchmarks/textbook_tables.py.
"""
import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from rlbench.algos.bandits import Bandit, GradientBandit, beta_belief, normal_belief
from rlbench.core.batch import Batch
from rlbench.core.spaces import AGENT, SpaceProblem, Spec
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.envs.find import make
from rlbench.envs.problems import BanditHall
from rlbench.envs.tabular import model_of, solve
from rlbench.policies.exploration import ucb
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer, load

RUNS = 150
STEPS = 1000


def trainer_for(algo="bandit", runs=RUNS, hall=None, **more):
    hall = dict(machines=runs) | (hall or {})
    return Trainer("rlbench/Bandit-v0", algo, num_envs=runs, buffer_size=1, env_settings=hall, **more)


def play(steps=STEPS, **more):
    "Reward, whether the best arm was pulled, and regret, (steps, runs) each"
    trainer = trainer_for(**more)
    means = trainer.env.single.unwrapped.means
    best = means.max(1)
    everyone = np.arange(len(means))
    rows = []
    for _ in range(steps):
        row = trainer.until("step").data
        pulled = means[everyone, row.act]
        rows.append((row.rew, pulled == best, best - pulled))
    return [np.stack(column) for column in zip(*rows)]


FOUR = dict(hall=dict(mean=4.))
WIN = dict(hall=dict(arms=[.3, .5, .7], payout="win"))
GRADIENT = dict(algo="gradient_bandit") | FOUR
ORACLE = {  # settings: mean reward of the last 100 pulls, share of the best arm there, regret of all 1000 pulls
    "greedy": (dict(epsilon=0.), 1.032, .357, 517.),
    "epsilon .01": (dict(epsilon=.01), 1.313, .598, 346.),
    "epsilon .1": (dict(epsilon=.1), 1.371, .799, 234.),
    "optimistic": (dict(epsilon=0., initial=5., lr=.1), 1.502, .859, 242.),
    "realistic": (dict(epsilon=.1, lr=.1), 1.352, .757, 291.),
    "ucb 2": (dict(epsilon=0., ucb=2.), 1.490, .855, 148.),
    "normal belief": (dict(rule="normal"), 1.525, .918, 69.),
    "gradient .1": (dict(lr=.1) | GRADIENT, 5.506, .849, 182.),
    "gradient .4": (dict(lr=.4) | GRADIENT, 5.439, .716, 162.),
    "gradient .1, no baseline": (dict(lr=.1, baseline=False) | GRADIENT, 5.216, .494, 456.),
    "beta belief": (dict(rule="beta") | WIN, .697, .989, 12.8),
}


@pytest.fixture(scope="module")
def curves():
    "Each curve is computed once, when a test asks for it"
    known = {}

    def curve(name):
        if name not in known: known[name] = play(**ORACLE[name][0])
        return known[name]

    return curve


def within(runs, expected, errors=4):
    "Does the mean over runs lie within so many standard errors of what is expected?"
    return abs(runs.mean() - expected) < errors * runs.std() / np.sqrt(len(runs)) + .001 * abs(expected)


# ---- the testbed

@pytest.mark.long
@pytest.mark.parametrize("name", ORACLE)
def test_the_testbed_is_the_books(curves, name):
    rew, right, regret = curves(name)
    _, last, share, lost = ORACLE[name]
    assert within(rew[-100:].mean(0), last)
    assert within(right[-100:].mean(0), share)
    assert within(regret.sum(0), lost)


@pytest.mark.long
def test_the_figures_orders(curves):
    def share(name, first=-100, last=None):
        return curves(name)[1][first:last].mean()

    def lost(name):
        return curves(name)[2].sum()

    error = .45 / np.sqrt(RUNS)                                                       # of a share
    assert share("greedy") < share("epsilon .01") < share("epsilon .1")               # figure 2.2
    assert share("epsilon .01", 0, 50) < share("epsilon .1", 0, 50) + error
    assert share("optimistic", 20, 60) < share("realistic", 20, 60)                   # 2.3
    assert share("optimistic") > share("realistic")
    assert share("gradient .1") > share("gradient .4") > share("gradient .1, no baseline") + error    # 2.5
    assert lost("normal belief") < lost("ucb 2") < lost("epsilon .1")


@pytest.mark.parametrize("name", ["ucb 2", "optimistic"])
def test_the_spike_at_pull_eleven(name):
    "Exercises 2.6 and 2.8: ten arms once each, then the best; half of the largest of ten draws from N(0, 2) is true"
    rew = play(steps=14, runs=2000, **ORACLE[name][0])[0].mean(1)
    error = 4 * 1.4 / np.sqrt(2000)
    assert abs(rew[:10]).max() < error
    assert rew[10] == pytest.approx(1.539 * np.sqrt(2) / 2, abs=error)
    assert rew[10] > rew[13] + .1


def test_with_ucb_every_arm_comes_once_first():
    trainer = trainer_for(runs=200, epsilon=0., ucb=2.)
    taken = np.stack([trainer.until("step").data.act for _ in range(10)])
    assert (np.sort(taken, 0) == np.arange(10)[:, None]).all()


def test_drifting_arms_want_a_constant_step():
    def late(**more):
        trainer = trainer_for(runs=100, hall=dict(spread=0., drift=.05), **more)
        paid = [trainer.until("step").data.rew for _ in range(1000)]
        return np.mean(paid[-300:], 0)

    constant = late(lr=.1)
    average = late(lr=None)
    better = constant - average                           # on the same walk of the same arms
    assert better.mean() > 3 * better.std() / np.sqrt(100)    # exercise 2.5


# ---- updates

def learned(algo, rounds):
    "Tables after rounds of rows (state, action, reward), as a learner would have them"
    nets = algo.nets(Spec(gym.spaces.Discrete(2), gym.spaces.Discrete(3), 1), None)
    for rows in rounds:
        obs, act, rew = zip(*rows)
        rows = Batch(obs=torch.tensor(obs), act=torch.tensor(act), rew=torch.tensor(rew, dtype=torch.float32))
        data, todo = algo.targets(nets, rows, None)
        for index in todo:
            algo.update(nets, data if index is None else data[index])
    return nets


pull = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(-20, 20))
pulls = st.lists(st.lists(pull, min_size=1, max_size=5), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(pulls, st.floats(-5, 5))
def test_averages_are_averages_however_pulls_come_together(rounds, initial):
    nets = learned(Bandit(initial=initial), rounds)
    rows = [row for one in rounds for row in one]
    for s, a in np.ndindex(2, 3):
        paid = [r for state, act, r in rows if (state, act) == (s, a)]
        assert nets.pulls.values[s, a] == len(paid)
        assert nets.q.values[s, a].item() == pytest.approx(np.mean(paid) if paid else initial, abs=1e-9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(pulls, st.sampled_from([.1, .5, 1.]), st.booleans())
def test_preferences_are_the_formula(rounds, lr, baseline):
    "Also where pulls at one machine come together: they take turns"
    h = np.zeros((2, 3))
    paid = {0: [], 1: []}
    for s, a, r in [row for one in rounds for row in one]:
        pi = np.exp(h[s] - h[s].max())
        pi /= pi.sum()
        average = np.mean(paid[s]) if paid[s] else r
        h[s] += lr * (r - average * baseline) * (np.eye(3)[a] - pi)
        paid[s].append(r)
    found = learned(GradientBandit(lr=lr, baseline=baseline), rounds).h.values.numpy()
    assert found == pytest.approx(h, rel=1e-6, abs=1e-6)


def test_a_constant_step_forgets_by_equal_factors():
    nets = learned(Bandit(lr=.25, initial=8.), [[(0, 0, 0.)]] * 3)
    assert nets.q.values[0].tolist() == [8 * .75**3, 8, 8]


def test_owed_again_is_counted_again():
    trainer = trainer_for(runs=4).run(steps=40)
    trainer.until("iteration")
    trainer.collecting = False
    before = trainer.learner.nets.pulls.values.sum().item()
    trainer.learner.owe(3)
    assert len(list(trainer)) == 3
    assert trainer.learner.nets.pulls.values.sum().item() == before + 12


# ---- choices

def test_ucb_by_hand():
    q = torch.tensor([[1., 2., 0.]])
    n = torch.tensor([[4., 4., 0.]])
    bonus = np.sqrt(np.log(9) / 4)
    assert ucb(q, n, 1.)[0].tolist() == pytest.approx([1 + bonus, 2 + bonus, np.inf])
    assert ucb(torch.zeros(1, 2), torch.zeros(1, 2), 1.)[0].tolist() == [np.inf, np.inf]     # not nan at first


def test_beliefs_narrow():
    mean, deviation = normal_belief(torch.tensor([2.]), torch.tensor([99.]), 0., 3.)
    assert (mean.item(), deviation.item()) == pytest.approx((1.98, .3))
    belief = beta_belief(torch.tensor([[0., 1.]]), torch.tensor([[0., 8.]]))
    rng = np.random.default_rng(0)
    shape = (4000, 2, 2, 8)
    normal = torch.from_numpy(rng.standard_normal(shape, np.float32))
    uniform = torch.from_numpy(rng.random(shape, np.float32))
    drawn = belief.sample(dict(normal=normal, uniform=uniform))
    assert drawn.mean(0).tolist() == pytest.approx([.5, .9], abs=.02)                # Beta(1, 1) and Beta(9, 1)


def test_the_rule_changes_in_mid_run():
    "UCB, then ε-greedy, then Thompson: the table and the counts go on"
    trainer = trainer_for(runs=200, epsilon=0., ucb=2.).run(steps=200 * 50)
    before = trainer.learner.nets.pulls.values.sum().item()
    for change in (dict(ucb=0., epsilon=.1), dict(rule="normal"), dict(rule="greedy", ucb=1.)):
        trainer.set(**change)
        trainer.run(steps=200 * 50)
    assert trainer.learner.nets.pulls.values.sum().item() == before + 3 * 200 * 50
    assert np.mean([trainer.until("step").data.rew.mean() for _ in range(20)]) > 1.1


@pytest.mark.parametrize("rule", ["greedy", "normal", "beta"])
def test_greedy_evaluation_takes_the_best_estimate(rule):
    trainer = trainer_for(runs=5, rule=rule, hall=dict(arms=[.2, .8], payout="win")).run(steps=500)
    best = trainer.learner.nets.q.values.argmax(1).numpy()
    assert (trainer.policy.act(np.arange(5)) == best).all()


def test_evaluation_plays_whole_episodes():
    trainer = Trainer("rlbench/Bandit-v0", "bandit", env_settings=dict(arms=[0., 3.])).run(steps=200)
    result = evaluate(trainer, episodes=3, num_envs=3)
    assert (result.lengths == 1000).all()
    assert result.returns == pytest.approx([3000] * 3, abs=5 * np.sqrt(1000))


@pytest.mark.parametrize("algo", ["bandit", "gradient_bandit"])
def test_what_is_refused(algo):
    with pytest.raises(SpaceProblem, match="try dqn"):
        Trainer("CartPole-v1", algo)


def test_rules_that_are_refused():
    with pytest.raises(ConfigError, match="one of greedy, normal, beta"):
        Trainer("rlbench/Bandit-v0", "bandit", rule="ucb")
    with pytest.raises(ValueError, match="between 0 and 1"):
        trainer_for(runs=20, rule="beta").run(steps=100)


# ---- the environment

def test_a_hall_is_the_same_for_all_who_ask():
    one = BanditHall(machines=4, hall=3)
    assert (one.means == BanditHall(machines=4, hall=3).means).all()
    assert not (one.means == BanditHall(machines=4, hall=4).means).all()
    vector = make("rlbench/Bandit-v0", num_envs=4, machines=4, hall=3)
    assert (vector.env.means == one.means).all()
    assert (vector.single.unwrapped.means == one.means).all()


def test_the_model_is_the_means():
    env = gym.make("rlbench/Bandit-v0", machines=3, arms=4)
    assert solve(model_of(env), 0.)[1] == pytest.approx(env.unwrapped.means)
    assert model_of(gym.make("rlbench/Bandit-v0", drift=.1)) is None


@pytest.mark.parametrize("payout, arms, deviation", [("normal", [-1., 2.], 1.), ("win", [.1, .7], .5)])
def test_many_pulls_pay_the_mean(payout, arms, deviation):
    env = make("rlbench/Bandit-v0", num_envs=500, arms=arms, payout=payout)
    env.reset(0)
    for a in (0, 1):
        paid = np.concatenate([env.step({AGENT: np.full(500, a)})[AGENT].rew for _ in range(20)])
        assert paid.mean() == pytest.approx(arms[a], abs=4 * deviation / 100)
    single = BanditHall(arms=arms, payout=payout)
    single.reset(seed=0)
    paid = [single.step(1)[1] for _ in range(2500)]
    assert np.mean(paid) == pytest.approx(arms[1], abs=4 * deviation / 50)


def test_episodes_are_cut_and_go_on_at_the_next_machine():
    env = make("rlbench/Bandit-v0", num_envs=2, machines=5)
    act = {AGENT: np.zeros(2, int)}
    assert env.reset(0)[AGENT].tolist() == [0, 1]
    for _ in range(999):
        step = env.step(act)[AGENT]
        assert not step.trunc.any()
        assert step.obs.tolist() == [0, 1]
    step = env.step(act)[AGENT]
    assert step.trunc.all() and not step.term.any()
    assert step.next_obs.tolist() == [0, 1]
    assert step.obs.tolist() == [2, 3]
    assert env.reset(0)[AGENT].tolist() == [0, 1]


def test_drift_is_a_walk_that_begins_anew():
    env = make("rlbench/Bandit-v0", num_envs=400, machines=400, drift=.1, spread=0.)
    env.reset(0)
    for _ in range(25):
        env.step({AGENT: np.zeros(400, int)})
    assert env.env.now.std() == pytest.approx(.5, rel=.1)
    assert (env.env.means == 0).all()
    env.reset(1)
    assert (env.env.now == 0).all()


def test_the_single_bandit_drifts_alike():
    one = BanditHall(drift=.1, spread=0.)
    one.reset(seed=0)
    for _ in range(25):
        one.step(0)
    assert one.now.std() > .1
    one.reset(seed=1)
    assert (one.now == 0).all()


BAD = [(dict(arms=0), "at least one"), (dict(arms=[]), "at least one"), (dict(machines=0), "at least one"),
       (dict(payout="wins"), "normal, win"), (dict(arms=[-.1, 1.], payout="win"), "chances"),
       (dict(payout="win", drift=.1), "do not drift")]


@pytest.mark.parametrize("bad, message", BAD)
def test_bandits_that_cannot_be(bad, message):
    with pytest.raises(ValueError, match=message):
        BanditHall(**bad)


@pytest.mark.parametrize("runs", [1, 6])
def test_a_drifting_run_is_resumed_to_the_bit(runs, tmp_path):
    hall = dict(machines=6, drift=.1)
    trainer = Trainer("rlbench/Bandit-v0", "bandit", num_envs=runs, rule="normal", env_settings=hall)
    trainer.run(steps=50 * runs)
    trainer.save(tmp_path / "bandit.rlb")
    twin = load(tmp_path / "bandit.rlb")
    for one in (trainer, twin):
        one.run(steps=1100 * runs)                                                    # across the end of an episode
    assert same(trainer.state(), twin.state())
