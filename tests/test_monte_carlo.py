"""Monte Carlo: equal to the book's definitions on any episodes; blackjack against its exact solution (chapter 5).

The exact values are found by recursion over hands with an infinite deck, in code that knows nothing of the library.
"""
from functools import lru_cache

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings, strategies as st

from rlbench.algos.diagrams import of_monte_carlo
from rlbench.algos.monte_carlo import MonteCarlo, backwards, first_visits, in_turn, ratios
from rlbench.algos.questions import backup_diagram
from rlbench.core.batch import Batch
from rlbench.core.spaces import SpaceProblem, Spec
from rlbench.core.state import same
from rlbench.envs.native import NativeVec
from rlbench.policies.exploration import chances
from rlbench.training.actor import Actor
from rlbench.training.evaluate import evaluate
from rlbench.training.learner import TableLearner
from rlbench.training.trainer import Trainer, load

# ---- the book's definitions, on any episodes

S = 3
A = 2


def learner_of(num_envs=1, **more):
    settings = MonteCarlo(**dict(gamma=.9) | more)
    spec = Spec(gym.spaces.Discrete(S), gym.spaces.Discrete(A), num_envs)
    actor = Actor(settings, settings.nets(spec, None), spec, np.random.default_rng(0))
    return TableLearner("agent", settings, actor, np.random.default_rng(1))


def one_row(obs, act, rew, next_obs, term=False, trunc=False, b=1.):
    "A row of one environment"
    numbers = dict(obs=obs, act=act, next_obs=next_obs, term=term, trunc=trunc)
    row = Batch({name: np.array([number]) for name, number in numbers.items()})
    row.rew = np.array([rew], np.float32)
    row.logp = np.log([b])
    return row


def rounds_of(seed, num_envs, steps, whole=False):
    "Random rows (N,) for every round: the world is noise, and the probability of each action anything"
    rng = np.random.default_rng(seed)
    obs = rng.integers(S, size=num_envs)
    for _ in range(steps):
        end = rng.random(num_envs)
        then = rng.integers(S, size=num_envs)
        rew = rng.integers(-3, 4, num_envs) if whole else rng.normal(size=num_envs)
        act = rng.integers(A, size=num_envs)
        logp = np.log(rng.uniform(.2, 1, num_envs))
        term = end < .15
        trunc = end > .85
        yield Batch(obs=obs, act=act, rew=rew.astype(np.float32), next_obs=then, term=term, trunc=trunc, logp=logp)
        obs = np.where(term | trunc, rng.integers(S, size=num_envs), then)


def learn(learner, rows):
    "Feed rows, learning whenever something is due"
    for row in rows:
        learner.add(row, np.ones(len(row), bool))
        if not learner.ready: continue
        learner.process()
        while learner.todo:
            learner.learn()
    return learner


def tables(learner):
    return learner.nets.q.values.numpy(), learner.nets.tally.values.numpy()


class Loops:
    "Chapter 5 in plain Python: one episode after the other, each backwards, every estimate from all that was ever seen"

    def __init__(self, algo, policy=None, states=S, actions=A):
        self.algo = algo
        self.policy = policy
        self.seen = {}
        self.q = [[algo.initial] * actions for _ in range(states)]
        self.tally = [[0.] * actions for _ in range(states)]

    def behind(self, s):
        if self.policy is not None: return self.policy[s]
        best = [x == max(self.q[s]) for x in self.q[s]]
        return [x / sum(best) for x in best]

    def acting(self, s):
        pi = self.behind(s)
        return [self.algo.epsilon / len(pi) + (1 - self.algo.epsilon) * p for p in pi]

    def value(self, s):
        pi = self.acting(s) if self.algo.importance == "none" else self.behind(s)
        return sum(p * q for p, q in zip(pi, self.q[s]))

    def episode(self, steps, G):
        algo = self.algo
        W = 1.
        for t in reversed(range(len(steps))):
            s, a, rew, b = steps[t]
            G = algo.gamma * G + rew
            if not algo.first_visit or (s, a) not in [step[:2] for step in steps[:t]]:
                self.update(s, a, G, W)
            if algo.importance != "none": W *= self.behind(s)[a] / b
            if W == 0 and algo.importance == "weighted": break

    def update(self, s, a, G, W):
        lr = self.algo.lr
        every = self.seen.setdefault((s, a), [])
        every.append((G, W))
        ordinary = self.algo.importance == "ordinary"
        self.tally[s][a] = len(every) if ordinary else sum(w for _, w in every)
        if lr is None:
            self.q[s][a] = sum(w * g for g, w in every) / self.tally[s][a]
        elif ordinary: self.q[s][a] += lr * (W * G - self.q[s][a])
        else: self.q[s][a] += lr * W * (G - self.q[s][a])

    def learn(self, rows, num_envs):
        running = [[] for _ in range(num_envs)]
        for row in rows:
            due = []
            for i in range(num_envs):
                one = {name: column[i].item() for name, column in row.items()}
                running[i].append((one["obs"], one["act"], one["rew"], np.exp(one["logp"])))
                if one["term"] or one["trunc"]:
                    due.append((running[i], 0. if one["term"] else self.value(one["next_obs"])))
                    running[i] = []
            for steps, after in due:
                self.episode(steps, after)
        return np.array(self.q), np.array(self.tally)


OPTIONS = dict(first_visit=st.booleans(), lr=st.sampled_from([None, .3]), epsilon=st.sampled_from([0., .25, 1.]),
               improve=st.booleans(), importance=st.sampled_from(["none", "ordinary", "weighted"]),
               initial=st.sampled_from([0., 2.]))


@settings(max_examples=40, deadline=None)
@given(st.fixed_dictionaries(OPTIONS), st.integers(1, 3), st.integers(0, 10**6))
def test_every_combination_is_the_books(options, num_envs, seed):
    rows = list(rounds_of(seed, num_envs, 40))
    learner = learner_of(num_envs, **options)
    policy = None
    if not options["improve"]:
        policy = np.random.default_rng(seed).dirichlet(np.ones(A), S)
        policy[0] = [1., 0.]
        learner.nets.policy.values[:] = torch.from_numpy(policy)
    q, tally = Loops(learner.algo, policy).learn(rows, num_envs)
    got, counted = tables(learn(learner, rows))
    np.testing.assert_allclose(got, q, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(counted, tally, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("first_visit", [True, False])
@pytest.mark.parametrize("lr", [None, .3])
def test_to_the_last_bit_where_returns_are_whole_numbers(first_visit, lr):
    learner = learner_of(gamma=1., first_visit=first_visit, lr=lr, n_episodes=4)
    rows = list(rounds_of(3, 1, 400, whole=True))
    for row in rows:
        row.term = row.term | row.trunc
        row.trunc = np.zeros(1, bool)
    rows = rows[:max(t for t, row in enumerate(rows) if row.term) + 1]
    got, _ = tables(learn(learner, rows))

    q = np.zeros((S, A))
    n = np.zeros((S, A))
    steps = []
    ends = sum(row.term.item() for row in rows) // 4 * 4  # four episodes for one lot
    for row in rows:
        steps.append((int(row.obs[0]), int(row.act[0]), float(row.rew[0])))
        if not row.term: continue
        G = 0.
        for t in reversed(range(len(steps) if ends > 0 else 0)):
            s, a, rew = steps[t]
            G += rew
            if first_visit and (s, a) in [step[:2] for step in steps[:t]]:
                continue
            n[s, a] += 1
            q[s, a] += (1 / n[s, a] if lr is None else lr) * (G - q[s, a])
        steps = []
        ends -= 1
    assert (got == q).all()
    assert n.min() > 10


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_groups_hold_each_update_once_in_the_books_order(rows):
    pair, learns, done = (np.array(x) for x in zip(*rows))
    done[-1] = True
    episode = np.cumsum(done) - done
    order = [t for e in range(episode.max() + 1) for t in np.flatnonzero(episode == e)[::-1]]
    assert backwards(episode).tolist() == order
    order = [t for t in order if learns[t]]
    groups = [group.tolist() for group in in_turn(np.array(order, int), pair)]
    assert sorted(sum(groups, [])) == sorted(order)
    for p in range(4):
        assert [t for group in groups for t in group if pair[t] == p] == [t for t in order if pair[t] == p]
    for group in groups:
        assert len({pair[t] for t in group}) == len(group)

    earlier = [set(pair[:t][episode[:t] == episode[t]]) for t in range(len(pair))]
    assert first_visits(episode, pair).tolist() == [p not in met for p, met in zip(pair, earlier)]


def test_ratios_are_products_of_what_follows():
    rng = np.random.default_rng(0)
    pi = rng.random(50)
    b = rng.uniform(.1, 1, 50)
    done = rng.random(50) < .2
    pi[rng.random(50) < .1] = 0.
    done[-1] = True
    end = [t + done[t:].argmax() for t in range(50)]
    want = [np.prod(pi[t + 1:end[t] + 1] / b[t + 1:end[t] + 1]) for t in range(50)]
    np.testing.assert_allclose(ratios(*map(torch.from_numpy, (pi, b, done))).numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("how, want", [("term", [1.9, 1.]), ("trunc", [1 + .9 * (1 + .9 * 8), 1 + .9 * 8])])
def test_an_episode_that_is_cut_goes_on_with_the_estimate(how, want):
    learner = learner_of(epsilon=0.)
    learner.nets.q.values[2, 1] = 8.
    learn(learner, [one_row(0, 0, 1., 2), one_row(1, 0, 1., 2, **{how: True})])
    assert tables(learner)[0][:2, 0].tolist() == pytest.approx(want)


def test_an_episode_that_does_not_fit_is_not_learned_from():
    "Half of it would say nothing about first visits; the next one that fits is learned from"
    learner = learner_of(gamma=1., buffer_size=4)
    long = [one_row(0, 0, 1., 0, term=t == 5) for t in range(6)]
    learn(learner, long)
    assert tables(learner)[1].sum() == 0
    learn(learner, long[-3:])
    assert tables(learner)[0][0, 0] == 3


def test_an_episode_may_have_nothing_to_teach():
    "The last pair was met before, and nothing that led up to it is what the judged policy does"
    learner = learner_of(improve=False, importance="weighted")
    learner.nets.policy.values[:] = torch.tensor([1., 0.])
    learn(learner, [one_row(0, 1, 1., 0, term=end, b=.5) for end in (False, True)])
    assert learner.updates == 0
    assert not learner.todo
    assert tables(learner)[1].sum() == 0
    with pytest.raises(ValueError, match="play one first"):
        learner.owe(1)                                    # it would never be paid


def test_learning_again_counts_again():
    trainer = Trainer("FrozenLake-v1", "monte_carlo", epsilon=1.).run(steps=300)
    trainer.until("episode")
    trainer.until("iteration")
    trainer.collecting = False
    tally = tables(trainer.learner)[1].copy()
    trainer.learner.owe(1)
    assert len(list(trainer)) == 1
    more = tables(trainer.learner)[1].sum() - tally.sum()
    assert more == np.count_nonzero(tally)                # each pair's first group, once more
    fresh = Trainer("FrozenLake-v1", "monte_carlo")
    with pytest.raises(ValueError, match="whole episodes, and none"):
        fresh.learner.process()


# ---- blackjack, exactly

CARDS = {card: 1 / 13 for card in range(1, 10)} | {10: 4 / 13}
STICK = 0
HIT = 1


def total(low, ace):
    "Sum of a hand, and whether an ace counts 11 in it; `low` counts it 1"
    return (low + 10, True) if ace and low <= 11 else (low, False)


@lru_cache(None)
def dealt(low, ace):
    "What a dealer ends with: {sum: probability}, 0 for a bust"
    points, _ = total(low, ace)
    if points >= 17: return {points if points <= 21 else 0: 1.}
    ends = {}
    for card, p in CARDS.items():
        for end, q in dealt(low + card, ace or card == 1).items():
            ends[end] = ends.get(end, 0.) + p * q
    return ends


@lru_cache(None)
def stick(points, up):
    "Moments of the reward, as in `solved`, for a hand that is no natural"
    paid = []
    for card, p in CARDS.items():
        paid += [(p * q, np.sign(points - end)) for end, q in dealt(up + card, 1 in (up, card)).items()]
    mean = sum(p * r for p, r in paid)
    return np.array([mean, 1, mean, sum(p * r * r for p, r in paid)])


def solved(policy, b=None):
    """Function (low, ace, up) -> moments (2, 4) of the return, after sticking and after hitting.

    They are the means of G, rho^2, rho^2 G and rho^2 G^2, where rho is the ratio if `b` (2,) are the probabilities of
    who acts, else 1. Without a policy, the best.
    """
    @lru_cache(None)
    def moments(low, ace, up):
        hit = sum(p * after(low + card, ace or card == 1, up) for card, p in CARDS.items())
        return np.array([stick(total(low, ace)[0], up), hit])

    @lru_cache(None)
    def after(low, ace, up):
        if low > 21: return np.array([-1., 1, -1, 1])
        both = moments(low, ace, up)
        points, usable = total(low, ace)
        if policy is None: return both[both[:, 0].argmax()]
        pi = policy[points, up, int(usable)]
        ratio = np.ones((2, 4))
        if b is not None: ratio[:, 1:] = (pi / b)[:, None]
        return (pi[:, None] * both * ratio).sum(0)

    return moments


def natural(up):
    "Chance that the dealer does not have one as well"
    return 1 - CARDS.get({1: 10, 10: 1}.get(up), 0.)


def start_value(policy):
    "Mean return of a policy over all deals; a natural wins unless the dealer has one, for who sticks at 21"
    moments = solved(policy)
    deals = [(up, one, two) for up in CARDS for one in CARDS for two in CARDS]
    value = 0.
    for up, one, two in deals:
        low = one + two
        ace = 1 in (one, two)
        both = moments(low, ace, up)[:, 0]
        points, usable = total(low, ace)
        if points == 21: both = np.array([natural(up), both[HIT]])
        worth = both.max() if policy is None else policy[points, up, int(usable)] @ both
        value += CARDS[up] * CARDS[one] * CARDS[two] * worth
    return value


def table_of(f):
    "(32, 11, 2, ...) of a function of (low, ace, up) in all sums from 12 on, nan elsewhere"
    made = np.full((32, 11, 2, *np.shape(f(12, False, 1))), np.nan)
    for points in range(12, 22):
        for up in CARDS:
            made[points, up, 0] = f(points, False, up)
            made[points, up, 1] = f(points - 10, True, up)
    return made


def sticks_from(points):
    policy = np.zeros((32, 11, 2, 2))
    policy[:points, ..., HIT] = 1.
    policy[points:, ..., STICK] = 1.
    return policy


STICKS_ON_20 = sticks_from(20)
HAND = (3, True, 2)                                       # example 5.4: an ace and a 2, the dealer shows a 2
BLACKJACK = dict(gamma=1., env_settings=dict(sab=True))


def judged(trainer, policy):
    "The same trainer, its policy written into every run's rows"
    values = trainer.learner.nets.policy.values
    values[:] = torch.from_numpy(policy.reshape(-1, 2)).repeat(len(values) // 704, 1)
    return trainer


def test_the_exact_solution_is_the_books():
    assert solved(STICKS_ON_20)(*HAND)[HIT, 0] == pytest.approx(-.27726, abs=1e-4)
    best = table_of(solved(None))[..., 0].argmax(-1)
    sticks = best[12:, 1:].argmin(0) + 12                 # figure 5.2: sticks from
    assert sticks[:, 0].tolist() == [17, 13, 13, 12, 12, 12, 17, 17, 17, 17]
    assert sticks[:, 1].tolist() == [19, 18, 18, 18, 18, 18, 18, 18, 19, 19]
    assert -.05 < start_value(None) < -.04
    assert start_value(STICKS_ON_20) < -.3 < start_value(sticks_from(17))


def test_judging_a_policy_in_blackjack():
    many = dict(num_envs=50, n_episodes=500, buffer_size=10_000)
    trainer = Trainer("Blackjack-v1", "monte_carlo", improve=False, epsilon=0., **many, **BLACKJACK)
    judged(trainer, STICKS_ON_20).run(steps=12_000)
    q, n = (x.reshape(32, 11, 2, 2) for x in tables(trainer.learner))
    moments = table_of(solved(STICKS_ON_20))
    known = (n > 30) & np.isfinite(moments[..., 0])
    known[21, :, 1] = False                               # naturals hide there; they come next
    mean = moments[known][:, 0]
    spread = np.sqrt((moments[known][:, 3] - mean**2) / n[known])
    sure = spread == 0
    assert (q[known][sure] == mean[sure]).all()
    z = (q[known] - mean)[~sure] / spread[~sure]
    assert len(z) > 100
    assert abs(z).max() < 4.5
    assert (z**2).mean() == pytest.approx(1, abs=4 * np.sqrt(2 / len(z)))
    assert q[20:22, 2:, 0, STICK].min() > .2              # figure 5.1
    assert q[12:20, 1:, 0, HIT].mean() == pytest.approx(-.6, abs=.1)
    for up in range(2, 10):                               # no natural on the other side: one of ours wins
        least = moments[21, up, 1, STICK, 0]
        error = np.sqrt((1 - least**2) / n[21, up, 1, STICK])
        assert least - 4 * error < q[21, up, 1, STICK] <= 1
    last_hundred = trainer.episodes.mean_return
    assert last_hundred == pytest.approx(start_value(STICKS_ON_20), abs=4 / np.sqrt(100))


# ---- blackjack, fast

def points_of(low, ace):
    return low + 10 * (ace & (low <= 11))


class Hands(gym.vector.VectorEnv):
    "N games of blackjack in numpy; the observation is the number of the cell, and where asked of the table"
    metadata = dict(autoreset_mode=AutoresetMode.DISABLED, render_modes=[])

    def __init__(self, num_envs, deal=None, apart=False):
        self.num_envs = num_envs
        self.deal = deal
        self.offset = 704 * np.arange(num_envs) * apart
        self.single_observation_space = gym.spaces.Discrete(704 * (num_envs if apart else 1))
        self.single_action_space = gym.spaces.Discrete(2)
        self.hands = {name: np.zeros(num_envs, int) for name in ("low", "ace", "up", "hidden", "natural")}

    def cards(self):
        return self.np_random.integers(1, 14, self.num_envs).clip(max=10)

    def seen(self):
        low = self.hands["low"]
        usable = (self.hands["ace"] > 0) & (low <= 11)
        return self.offset + ((low + 10 * usable) * 11 + self.hands["up"]) * 2 + usable

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        again = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        one, two, up, hidden = (self.cards() for _ in range(4))
        low = one + two
        ace = (one == 1) | (two == 1)
        if self.deal:
            low, ace, up = (np.full(self.num_envs, x) for x in self.deal)
        new = dict(low=low, ace=ace, up=up, hidden=hidden, natural=ace & (low == 11))
        self.hands = {name: np.where(again, cards, self.hands[name]) for name, cards in new.items()}
        return self.seen(), {}

    def dealer(self):
        "What the dealers end with, and whether they had a natural"
        up = self.hands["up"]
        hidden = self.hands["hidden"]
        low = up + hidden
        ace = (up == 1) | (hidden == 1)
        natural = ace & (low == 11)
        while True:
            points = points_of(low, ace)
            if (points >= 17).all():
                return np.where(points > 21, 0, points), natural
            card = np.where(points < 17, self.cards(), 0)
            low = low + card
            ace = ace | (card == 1)

    def step(self, act):
        hit = act == HIT
        theirs, natural = self.dealer()
        card = self.cards()
        hands = self.hands
        ours = hands["natural"] > 0
        mine = points_of(hands["low"], hands["ace"] > 0)
        rew = np.where(ours, ~natural, np.sign(mine - theirs)) * ~hit
        low = hands["low"] + card * hit
        ace = (hands["ace"] > 0) | ((card == 1) & hit)
        self.hands = hands | dict(low=low, ace=ace, natural=ours & ~hit)
        bust = low > 21
        return self.seen(), np.where(bust, -1., rew), bust | ~hit, np.zeros(self.num_envs, bool), {}


class Seat(gym.Env):
    def __init__(self, hands):
        self.observation_space = hands.single_observation_space
        self.action_space = hands.single_action_space


def hands_trainer(num_envs, deal=None, apart=False, **more):
    hands = Hands(num_envs, deal, apart)
    settings = dict(gamma=1., buffer_size=60 * num_envs) | more
    return Trainer(NativeVec("hands", Seat(hands), hands), "monte_carlo", **settings)


CONTROL = [dict(epsilon=.1), dict(importance="weighted", epsilon=.7, first_visit=False)]


@pytest.mark.long
@pytest.mark.parametrize("options", CONTROL, ids=["on-policy", "off-policy"])
def test_control_approaches_the_best_policy(options):
    "A small form; benchmarks/textbook_tables.py goes on until next to nothing is lost"
    trainer = hands_trainer(500, n_episodes=500, **options)
    exact = table_of(solved(None))[..., 0].max(-1)
    known = np.isfinite(exact)
    known[21, :, 1] = False                               # naturals hide there
    lost = []
    wrong = []
    for steps in (5_000, 75_000):
        trainer.run(steps=steps)
        q = trainer.learner.nets.q.values.view(32, 11, 2, 2)
        lost.append(start_value(None) - start_value(chances(q).numpy()))
        wrong.append(abs(q.amax(-1).numpy() - exact)[known].mean())
    assert 0 <= lost[1] < min(.03, lost[0] / 2)           # .3 is lost by sticking from 20 on, .04 by the dealer's rule
    assert wrong[1] < min(.15, wrong[0] / 2)


AT_RANDOM = dict(apart=True, improve=False, epsilon=1.)


def cells_of_the_hand(runs):
    "The number of the hand in each run's table"
    points, usable = total(*HAND[:2])
    return 704 * np.arange(runs) + (points * 11 + HAND[2]) * 2 + usable


@pytest.mark.parametrize("importance", ["ordinary", "weighted"])
def test_one_hand_seen_through_random_play(importance):
    """Example 5.4, many runs side by side, each with a table of its own.

    The errors are squared, and belong to known numbers of hits; who acts is the same with both kinds of ratios.
    """
    runs = 100
    cell = cells_of_the_hand(runs)
    value, one, G, GG = solved(STICKS_ON_20, np.array([.5, .5]))(*HAND)[HIT]
    exact = dict(ordinary=GG - value**2,                  # squared error after one hit
                 weighted=GG - 2 * value * G + value**2 * one)    # in the limit
    trainer = hands_trainer(runs, HAND, importance=importance, n_episodes=200, **AT_RANDOM)
    judged(trainer, STICKS_ON_20)
    counts = np.zeros(len(cell))
    while trainer.steps < 33_000:
        row = trainer.until("step").data
        counts += (row.obs == cell) & (row.act == HIT)
    trainer.until("iteration")
    q = tables(trainer.learner)[0][cell, HIT]
    error = (q - value)**2
    want = exact[importance] / counts.mean()
    slack = .2 * want if importance == "weighted" else .05 * want
    assert error.mean() == pytest.approx(want, abs=4 * error.std() / np.sqrt(runs) + slack)
    if importance == "ordinary":
        assert q.mean() == pytest.approx(value, abs=4 * np.sqrt(want / runs))


def test_weighted_ratios_are_calmer_at_first():
    "Figure 5.3, after ten steps in each of three hundred runs"
    runs = 300
    cell = cells_of_the_hand(runs)
    value = solved(STICKS_ON_20)(*HAND)[HIT, 0]
    error = {}
    for importance in ("ordinary", "weighted"):
        trainer = hands_trainer(runs, HAND, importance=importance, n_episodes=600, **AT_RANDOM)
        judged(trainer, STICKS_ON_20).run(steps=3_000)
        q, tally = (table[cell, HIT] for table in tables(trainer.learner))
        error[importance] = ((q - value)**2)[tally > 0].mean()
    assert error["weighted"] < error["ordinary"] / 2


# ---- exploring starts

STARTS = [dict(epsilon=0.), dict(epsilon=.3, importance="weighted", first_visit=False),
          dict(epsilon=.3, importance="ordinary")]


@pytest.mark.parametrize("options", STARTS, ids=str)
def test_exploring_starts_are_the_box_of_section_5_3(options):
    "The book's loop on the very transitions; its policy is the one that acted, but for the first action"
    world = dict(rows="S...H .#..G ....H", step=-1., max_episode_steps=30)
    how = dict(num_envs=3, gamma=.9, exploring_starts=True) | options
    trainer = Trainer("rlbench/FourRooms-v0", "monte_carlo", env_settings=world, **how)
    loops = Loops(trainer.learner.algo, states=15, actions=4)
    first = np.ones(3, bool)
    firsts = []
    running = [[] for _ in range(3)]
    for _ in range(400):
        row = trainer.until("step").data
        for i in range(3):
            s = int(row.obs[i])
            a = int(row.act[i])
            b = float(np.exp(row.logp[i]))
            assert b == pytest.approx(.25 if first[i] else loops.acting(s)[a])
            firsts += [a] * int(first[i])
            running[i].append((s, a, float(row.rew[i]), b))
        first = row.term | row.trunc
        after = {i: 0. if row.term[i] else loops.value(int(row.next_obs[i])) for i in np.flatnonzero(first)}
        for i in after:
            loops.episode(running[i], after[i])
            running[i] = []
        while trainer.owed:
            trainer.advance()
        np.testing.assert_allclose(tables(trainer.learner)[0], loops.q, rtol=1e-9, atol=1e-11)
    count = np.bincount(firsts, minlength=4)
    assert len(firsts) > 30
    assert abs(count - len(firsts) / 4).max() < 4 * np.sqrt(len(firsts) * 3 / 16)


def lost_by_runs(runs, hands, **more):
    "What the greedy policy of each of many runs loses against the best one"
    trainer = hands_trainer(runs, apart=True, epsilon=0., n_episodes=200, **more).run(steps=runs * hands)
    each = trainer.learner.nets.q.values.view(runs, 32, 11, 2, 2)
    return np.array([start_value(None) - start_value(chances(q).numpy()) for q in each])


@pytest.mark.long
def test_exploring_starts_come_closer_to_the_best_policy():
    "Runs side by side, each with a table of its own; without a random action the others never learn some of it"
    never = lost_by_runs(12, 2000)
    starts = lost_by_runs(12, 2000, exploring_starts=True)
    error = np.hypot(never.std(), starts.std()) / np.sqrt(12)
    assert never.mean() - starts.mean() > 3 * error
    assert starts.min() > 0


def test_exploring_starts_approach_the_best_policy():
    trainer = hands_trainer(500, n_episodes=500, epsilon=0., exploring_starts=True).run(steps=100_000)
    q = trainer.learner.nets.q.values.view(32, 11, 2, 2)
    lost = start_value(None) - start_value(chances(q).numpy())
    assert 0 <= lost < .015                               # without them .056 is lost, and stays so


def test_what_is_carried_is_only_whether_an_episode_is_under_way(tmp_path):
    trainer = Trainer("FrozenLake-v1", "monte_carlo", num_envs=2, epsilon=0., exploring_starts=True)
    actor = trainer.learner.actor
    for _ in range(60):
        row = trainer.until("step").data
        assert actor.carry[:, 0].tolist() == [float(not end) for end in row.term | row.trunc]
        assert "carry" not in row
    while actor.carry.all():
        trainer.until("step")
    trainer.save(tmp_path / "a.rlb")                      # where an episode begins in one of the two
    twin = load(tmp_path / "a.rlb")
    for one in (trainer, twin):
        one.run(steps=60)
    assert same(trainer.state(), twin.state())
    trainer.set(exploring_starts=False)
    trainer.run(steps=4)
    assert actor.carry is None


def test_without_exploring_starts_nothing_is_carried():
    plain = Trainer("FrozenLake-v1", "monte_carlo", num_envs=2).run(steps=100)
    assert plain.learner.actor.carry is None
    assert not plain.learner.algo.recurrent


# ---- in the trainer

@pytest.mark.parametrize("algo", ["monte_carlo", "qlearning", "bandit", "gradient_bandit"])
def test_blackjack_with_its_three_part_observations(algo, tmp_path):
    how = dict(num_envs=2, log_every=50, buffer_size=200, env_settings=dict(sab=True))
    trainer = Trainer("Blackjack-v1", algo, **how).run(steps=200)
    trainer.save(tmp_path / "a.rlb")
    twin = load(tmp_path / "a.rlb")
    for one in (trainer, twin):
        one.run(steps=100)
    assert same(trainer.state(), twin.state())
    assert evaluate(trainer, episodes=4, num_envs=2).returns.shape == (4,)
    assert trainer.policy.act((14, 10, 0)) in (0, 1)


def test_a_prediction_learns_nothing_about_choosing():
    trainer = Trainer("FrozenLake-v1", "monte_carlo", improve=False)
    nets = trainer.learner.nets
    assert nets.policy.values.unique().item() == .25
    trainer.run(steps=500)
    assert nets.policy.values.unique().item() == .25
    np.testing.assert_allclose(trainer.learner.algo.probs(nets, torch.arange(16)), .25)


EPISODE = [(0, 0, 1), (1, 1, 2), (2, 0, 2), (2, 1, 2)]     # state, action, state; the t-th pays -min(t, 2)
DIAGRAMS = [
    (4, "term", "s 0, a 0 = -5\n  r 0, G -5: s 1\n    a 1\n      r -1: … 2 more\n        r -2: end"),
    (3, "trunc", "s 0, a 0 = -2\n  r 0, G -2: s 1\n    a 1\n      r -1: … 1 more\n        r -2: s 2 = 1"),
    (2, "term", "s 0, a 0 = -1\n  r 0, G -1: s 1\n    a 1\n      r -1: end"),
    (1, "term", "s 0, a 0 = 0\n  r 0, G 0: end")]


def played(count, end):
    "The first rows of EPISODE"
    rows = [one_row(s, a, -min(t, 2), then, b=.5) for t, (s, a, then) in enumerate(EPISODE[:count])]
    rows[-1][end][:] = True
    return rows


@pytest.mark.parametrize("count, end, want", DIAGRAMS)
def test_backup_diagrams_are_the_episode(count, end, want):
    learner = learner_of(gamma=1., epsilon=0.)
    learner.nets.q.values[2, 1] = 1.
    learn(learner, played(count, end))
    assert str(backup_diagram(learner.algo, learner.nets, learner.last.batch)) == want


def test_ratios_are_told_only_where_there_are_any():
    learner = learn(learner_of(improve=False, importance="weighted"), played(2, "term"))
    assert learner.last.parts.keys() == {"q", "target", "delta", "ratio"}
    learner = learn(learner_of(), played(2, "term"))
    assert learner.last.parts.keys() == {"q", "target", "delta"}


def test_a_diagram_of_observations_with_three_parts():
    trainer = Trainer("Blackjack-v1", "monte_carlo", env_settings=dict(sab=True))
    trainer.until("update")
    learner = trainer.learner
    assert str(of_monte_carlo(learner.algo, learner.nets, learner.last.batch)).startswith("s ")


def test_what_is_refused():
    with pytest.raises(SpaceProblem, match="monte_carlo keeps a table: the observation is Box"):
        Trainer("CartPole-v1", "monte_carlo")
    from_one = gym.spaces.Discrete(4, start=1)
    with pytest.raises(SpaceProblem, match="needs Discrete actions"):
        Trainer(lambda: gym.wrappers.TransformAction(gym.make("FrozenLake-v1"), int, from_one), "monte_carlo")
