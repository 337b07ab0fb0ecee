"""Monte Carlo: equal to the book's definitions on any episodes; blackjack against its exact solution (Sutton & Barto, chapter 5).

The exact values are found here by recursion over hands with an infinite deck, in code that knows nothing of the library.
"""
from functools import lru_cache

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings, strategies as st

import rlbench.envs.tabular  # noqa: F401  (registers the grid worlds)
from rlbench.algos.algorithm import Spec
from rlbench.algos.monte_carlo import MonteCarlo, first_visits, ratios, turns
from rlbench.core.batch import Batch
from rlbench.core.state import Streams, same
from rlbench.envs.env import NativeVec
from rlbench.policies.distributions import SpaceProblem
from rlbench.policies.exploration import chances
from rlbench.training.evaluate import evaluate
from rlbench.training.learner import Learner
from rlbench.training.trainer import Trainer, load

# ---- the book's definitions, on any episodes ------------------------------------------------------------------------------

S, A = 3, 2


def learner_for(num_envs=1, **more):
    more = dict(gamma=.9, capacity=200) | more
    return Learner("agent", MonteCarlo(**more), Spec(gym.spaces.Discrete(S), gym.spaces.Discrete(A), num_envs), Streams(0))


def rounds_of(seed, num_envs, steps, whole=False):
    "Random rows (N,) for every round: the world is noise, and the probability of each action anything"
    rng = np.random.default_rng(seed)
    obs = rng.integers(S, size=num_envs)
    for _ in range(steps):
        end, then = rng.random(num_envs), rng.integers(S, size=num_envs)
        rew = rng.integers(-3, 4, num_envs) if whole else rng.normal(size=num_envs)
        yield Batch(obs=obs, act=rng.integers(A, size=num_envs), rew=rew.astype(np.float32), next_obs=then,
                    term=end < .15, trunc=(end > .85), logp=np.log(rng.uniform(.2, 1, num_envs)))
        obs = np.where((end < .15) | (end > .85), rng.integers(S, size=num_envs), then)


def learn(learner, rows):
    "Feed rows, learning whenever something is due"
    for row in rows:
        learner.add(row, None)
        if learner.ready:
            learner.process()
            while learner.todo:
                learner.learn()
    return learner


def tables(learner): return tuple(learner.nets[name].q.detach().numpy() for name in ("q", "tally"))


class Loops:
    "Chapter 5 in plain Python: one episode after the other, each backwards, every estimate from all that was ever seen"
    def __init__(self, algo, policy=None):
        self.algo, self.policy, self.seen = algo, policy, {}
        self.q, self.tally = [[algo.initial] * A for _ in range(S)], [[0.] * A for _ in range(S)]

    def behind(self, s):
        if self.policy is not None: return self.policy[s]
        best = [x == max(self.q[s]) for x in self.q[s]]
        return [x / sum(best) for x in best]

    def acting(self, s): return [self.algo.eps / A + (1 - self.algo.eps) * p for p in self.behind(s)]

    def value(self, s):
        pi = self.acting(s) if self.algo.importance == "none" else self.behind(s)
        return sum(p * q for p, q in zip(pi, self.q[s]))

    def episode(self, steps, G):
        algo, W = self.algo, 1.
        for t in reversed(range(len(steps))):
            s, a, rew, b = steps[t]
            G = algo.gamma * G + rew
            if not algo.first_visit or (s, a) not in [step[:2] for step in steps[:t]]:
                self.update(s, a, G, W)
            if algo.importance != "none": W *= self.behind(s)[a] / b
            if W == 0 and algo.importance == "weighted": break

    def update(self, s, a, G, W):
        algo, every = self.algo, self.seen.setdefault((s, a), [])
        every.append((G, W))
        ordinary = algo.importance == "ordinary"
        self.tally[s][a] = len(every) if ordinary else sum(w for _, w in every)
        if algo.alpha is not None:
            self.q[s][a] += algo.alpha * (W * G - self.q[s][a]) if ordinary else algo.alpha * W * (G - self.q[s][a])
        else: self.q[s][a] = sum(w * g for g, w in every) / self.tally[s][a]

    def learn(self, rows, num_envs):
        open_ = [[] for _ in range(num_envs)]
        for row in rows:
            due = []
            for i in range(num_envs):
                one = {name: column[i].item() for name, column in row.items()}
                open_[i].append((one["obs"], one["act"], one["rew"], np.exp(one["logp"])))
                if one["term"] or one["trunc"]:
                    due.append((open_[i], 0. if one["term"] else self.value(one["next_obs"])))
                    open_[i] = []
            for steps, after in due: self.episode(steps, after)
        return np.array(self.q), np.array(self.tally)


OPTIONS = dict(first_visit=st.booleans(), alpha=st.sampled_from([None, .3]), eps=st.sampled_from([0., .25, 1.]), improve=st.booleans(),
               importance=st.sampled_from(["none", "ordinary", "weighted"]), initial=st.sampled_from([0., 2.]))


@settings(max_examples=40, deadline=None)
@given(st.fixed_dictionaries(OPTIONS), st.integers(1, 3), st.integers(0, 10**6))
def test_every_combination_is_the_books(options, num_envs, seed):
    rows, learner = list(rounds_of(seed, num_envs, 40)), learner_for(num_envs, **options)
    policy = None
    if not options["improve"]:
        policy = np.random.default_rng(seed).dirichlet(np.ones(A), S)
        policy[0] = [1., 0.]
        learner.nets.policy.q[:] = torch.from_numpy(policy)
    q, tally = Loops(learner.algo, policy).learn(rows, num_envs)
    got, counted = tables(learn(learner, rows))
    np.testing.assert_allclose(got, q, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(counted, tally, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("first_visit", [True, False])
@pytest.mark.parametrize("alpha", [None, .3])
def test_to_the_last_bit_where_returns_are_whole_numbers(first_visit, alpha):
    learner, rows = learner_for(gamma=1., first_visit=first_visit, alpha=alpha, episodes=4), list(rounds_of(3, 1, 400, whole=True))
    for row in rows: row.term, row.trunc = row.term | row.trunc, np.zeros(1, bool)
    rows = rows[:max(t for t, row in enumerate(rows) if row.term) + 1]
    got, _ = tables(learn(learner, rows))
    q, n, steps = np.zeros((S, A)), np.zeros((S, A)), []
    ends = sum(row.term.item() for row in rows) // 4 * 4                    # four episodes for one lot
    for row in rows:
        steps.append((int(row.obs[0]), int(row.act[0]), float(row.rew[0])))
        if not row.term: continue
        G = 0.
        for t in reversed(range(len(steps) if ends > 0 else 0)):
            s, a, rew = steps[t]
            G += rew
            if first_visit and (s, a) in [step[:2] for step in steps[:t]]: continue
            n[s, a] += 1
            q[s, a] += (1 / n[s, a] if alpha is None else alpha) * (G - q[s, a])
        steps, ends = [], ends - 1
    assert (got == q).all() and n.min() > 10


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_groups_hold_each_update_once_in_the_books_order(rows):
    pair, learns, done = (np.array(x) for x in zip(*rows))
    done[-1] = True
    episode = np.cumsum(done) - done
    order = [t for e in range(episode.max() + 1) for t in np.flatnonzero(episode == e)[::-1] if learns[t]]
    groups = [group.tolist() for group in turns(np.array(order, int), pair)] if order else []
    assert sorted(sum(groups, [])) == sorted(order)
    for p in range(4):
        assert [t for group in groups for t in group if pair[t] == p] == [t for t in order if pair[t] == p]
    assert all(len({pair[t] for t in group}) == len(group) for group in groups)
    assert first_visits(episode, pair).tolist() == [pair[t] not in pair[(episode == episode[t]) & (np.arange(len(pair)) < t)] for t in range(len(pair))]


def test_ratios_are_products_of_what_follows():
    rng = np.random.default_rng(0)
    pi, b, done = rng.random(50), rng.uniform(.1, 1, 50), rng.random(50) < .2
    pi[rng.random(50) < .1], done[-1] = 0., True
    want = [np.prod([pi[k] / b[k] for k in range(t + 1, t + 1 + done[t:].argmax())]) for t in range(50)]
    np.testing.assert_allclose(ratios(*map(torch.from_numpy, (pi, b, done))).numpy(), want, rtol=1e-12)


def test_an_episode_that_is_cut_goes_on_with_the_estimate():
    row = lambda obs, term, trunc: Batch(obs=np.array([obs]), act=np.array([0]), rew=np.ones(1, np.float32), next_obs=np.array([2]),
                                         term=np.array([term]), trunc=np.array([trunc]), logp=np.zeros(1))
    for term, trunc, want in ((True, False, [1.9, 1.]), (False, True, [1 + .9 * (1 + .9 * 8), 1 + .9 * 8])):
        learner = learner_for(eps=0.)
        with torch.no_grad(): learner.nets.q.q[2, 1] = 8.
        learn(learner, [row(0, False, False), row(1, term, trunc)])
        assert tables(learner)[0][:2, 0].tolist() == pytest.approx(want)


def test_an_episode_may_have_nothing_to_teach():
    "The last pair was met before, and nothing that led up to it is what the judged policy does"
    learner = learner_for(improve=False, importance="weighted")
    learner.nets.policy.q[:] = torch.tensor([1., 0.])
    rows = [Batch(obs=np.array([0]), act=np.array([1]), rew=np.ones(1, np.float32), next_obs=np.array([0]),
                  term=np.array([end]), trunc=np.array([False]), logp=np.log([.5])) for end in (False, True)]
    learn(learner, rows)
    assert learner.updates == 0 and not learner.todo and tables(learner)[1].sum() == 0
    with pytest.raises(ValueError, match="play one first"): learner.owe(1)     # it would never be paid


def test_learning_again_counts_again():
    trainer = Trainer("FrozenLake-v1", "monte_carlo", eps=1.).run(steps=300)
    trainer.until("episode"), trainer.until("iteration")
    trainer.collecting, (q, tally) = False, tables(trainer.learner)
    q, tally = q.copy(), tally.copy()
    trainer.learner.owe(1)
    while trainer.advance(): pass
    assert (tables(trainer.learner)[1].sum() - tally.sum()) == np.count_nonzero(tally)       # each pair's first group, once more
    fresh = Trainer("FrozenLake-v1", "monte_carlo")
    with pytest.raises(ValueError, match="whole episodes, and none"): fresh.learner.process()


# ---- blackjack, exactly ----------------------------------------------------------------------------------------------------

CARDS = {card: 1 / 13 for card in range(1, 10)} | {10: 4 / 13}
STICK, HIT = 0, 1


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
        for end, q in dealt(low + card, ace or card == 1).items(): ends[end] = ends.get(end, 0.) + p * q
    return ends


@lru_cache(None)
def stick(points, up):
    "Moments of the reward, as in `solved`, for a hand that is no natural"
    paid = [(p * q, np.sign(points - end)) for card, p in CARDS.items() for end, q in dealt(up + card, 1 in (up, card)).items()]
    mean = sum(p * r for p, r in paid)
    return np.array([mean, 1, mean, sum(p * r * r for p, r in paid)])


def solved(policy, b=None):
    """Function (low, ace, up) -> moments (2, 4) of the return, after sticking and after hitting; without a policy, under the best.

    They are the means of G, rho^2, rho^2 G and rho^2 G^2, where rho is the ratio if `b` (2,) are the probabilities of who acts, else 1.
    """
    @lru_cache(None)
    def moments(low, ace, up): return np.array([stick(total(low, ace)[0], up), sum(p * after(low + card, ace or card == 1, up) for card, p in CARDS.items())])

    @lru_cache(None)
    def after(low, ace, up):
        if low > 21: return np.array([-1., 1, -1, 1])
        both, (points, usable) = moments(low, ace, up), total(low, ace)
        if policy is None: return both[both[:, 0].argmax()]
        pi = policy[points, up, int(usable)]
        return (pi[:, None] * both * (1 if b is None else np.stack([np.ones(2), *[pi / b] * 3], 1))).sum(0)
    return moments


def natural(up):
    "Chance that the dealer does not have one as well"
    return 1 - CARDS.get({1: 10, 10: 1}.get(up), 0.)


def start_value(policy):
    "Mean return of a policy over all deals; a natural wins unless the dealer has one, for who sticks at 21"
    moments, value = solved(policy), 0.
    for up, p in CARDS.items():
        for one, q in CARDS.items():
            for two, r in CARDS.items():
                low, ace = one + two, 1 in (one, two)
                both, (points, usable) = moments(low, ace, up)[:, 0], total(low, ace)
                if points == 21: both = np.array([natural(up), both[HIT]])
                value += p * q * r * (both.max() if policy is None else policy[points, up, int(usable)] @ both)
    return value


def table_of(f):
    "(32, 11, 2, ...) of a function of (low, ace, up) in all sums from 12 on, nan elsewhere"
    made = np.full((32, 11, 2, *np.shape(f(12, False, 1))), np.nan)
    for points in range(12, 22):
        for up in CARDS:
            made[points, up, 0], made[points, up, 1] = f(points, False, up), f(points - 10, True, up)
    return made


def sticks_from(points):
    policy = np.zeros((32, 11, 2, 2))
    policy[:points, ..., HIT], policy[points:, ..., STICK] = 1., 1.
    return policy


STICKS_ON_20 = sticks_from(20)
BLACKJACK = dict(gamma=1., env_settings=dict(sab=True))


def judged(trainer, policy):
    trainer.learner.nets.policy.q.view(-1, 2)[:] = torch.from_numpy(policy.reshape(-1, 2)).repeat(len(trainer.learner.nets.policy.q) // 704, 1)
    return trainer


def test_the_exact_solution_is_the_books():
    low, ace, up = 3, True, 2                                               # example 5.4: an ace and a 2, the dealer shows a 2
    assert solved(STICKS_ON_20)(low, ace, up)[HIT, 0] == pytest.approx(-.27726, abs=1e-4)
    best = table_of(solved(None))[..., 0].argmax(-1)
    assert [best[12:, up, 0].argmin() + 12 for up in range(1, 11)] == [17, 13, 13, 12, 12, 12, 17, 17, 17, 17]    # figure 5.2: sticks from
    assert [best[12:, up, 1].argmin() + 12 for up in range(1, 11)] == [19, 18, 18, 18, 18, 18, 18, 18, 19, 19]
    assert -.05 < start_value(None) < -.04 and start_value(STICKS_ON_20) < -.3 < start_value(sticks_from(17))


def test_judging_a_policy_in_blackjack():
    trainer = judged(Trainer("Blackjack-v1", "monte_carlo", num_envs=50, episodes=500, capacity=200, improve=False, eps=0., **BLACKJACK), STICKS_ON_20)
    trainer.run(steps=12_000)
    q, n = (x.reshape(32, 11, 2, 2) for x in tables(trainer.learner))
    moments = table_of(solved(STICKS_ON_20))
    z, known = [], (n > 30) & np.isfinite(moments[..., 0])
    known[21, :, 1] = False                                                 # naturals hide there; they come next
    for cell in np.argwhere(known):
        mean, *_, square = moments[tuple(cell)]
        z.append((q[tuple(cell)] - mean) / np.sqrt((square - mean**2) / n[tuple(cell)]))
    z = np.array(z)
    assert len(z) > 100 and abs(z).max() < 4.5 and (z**2).mean() == pytest.approx(1, abs=4 * np.sqrt(2 / len(z)))
    assert q[20:22, 2:, 0, STICK].min() > .2 and q[12:20, 1:, 0, HIT].mean() == pytest.approx(-.6, abs=.1)     # figure 5.1
    for up in range(2, 10):                                                 # no natural on the other side: one of ours wins, so between the hand's value and 1
        least = moments[21, up, 1, STICK, 0]
        assert least - 4 * np.sqrt((1 - least**2) / n[21, up, 1, STICK]) < q[21, up, 1, STICK] <= 1
    assert trainer.episodes.mean_return == pytest.approx(start_value(STICKS_ON_20), abs=4 / np.sqrt(100))      # of the last hundred


# ---- blackjack, fast -------------------------------------------------------------------------------------------------------

class Hands(gym.vector.VectorEnv):
    "N games of blackjack in numpy; the observation is the number of the cell, and where asked of the table"
    metadata = dict(autoreset_mode=AutoresetMode.DISABLED, render_modes=[])

    def __init__(self, num_envs, deal=None, apart=False):
        self.num_envs, self.deal, self.offset = num_envs, deal, 704 * np.arange(num_envs) * apart
        self.single_observation_space, self.single_action_space = gym.spaces.Discrete(704 * (num_envs if apart else 1)), gym.spaces.Discrete(2)
        self.low, self.ace, self.up, self.hidden = (np.zeros(num_envs, int) for _ in range(4))
        self.natural = np.zeros(num_envs, bool)

    def cards(self): return self.np_random.integers(1, 14, self.num_envs).clip(max=10)

    def seen(self):
        usable = (self.ace > 0) & (self.low <= 11)
        return self.offset + ((self.low + 10 * usable) * 11 + self.up) * 2 + usable

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        again = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        one, two, up, hidden = (self.cards() for _ in range(4))
        low, ace = one + two, (one == 1) | (two == 1)
        if self.deal: low, ace, up = (np.full(self.num_envs, x) for x in self.deal)
        for name, new in dict(low=low, ace=ace, up=up, hidden=hidden, natural=ace & (low == 11)).items():
            setattr(self, name, np.where(again, new, getattr(self, name)))
        return self.seen(), {}

    def dealer(self):
        low, ace = self.up + self.hidden, (self.up == 1) | (self.hidden == 1)
        natural = ace & (low == 11)
        while True:
            points = low + 10 * (ace & (low <= 11))
            if (points >= 17).all(): return np.where(points > 21, 0, points), natural
            card = np.where(points < 17, self.cards(), 0)
            low, ace = low + card, ace | (card == 1)

    def step(self, act):
        hit, (theirs, natural) = act == HIT, self.dealer()
        card = self.cards()
        mine = self.low + 10 * ((self.ace > 0) & (self.low <= 11))
        rew = np.where(self.natural, ~natural, np.sign(mine - theirs)) * ~hit
        self.low, self.ace, self.natural = self.low + card * hit, (self.ace > 0) | ((card == 1) & hit), self.natural & ~hit
        bust = self.low > 21
        return self.seen(), np.where(bust, -1., rew), bust | ~hit, np.zeros(self.num_envs, bool), {}


class Seat(gym.Env):
    def __init__(self, hands): self.observation_space, self.action_space = hands.single_observation_space, hands.single_action_space


def hands_trainer(num_envs, deal=None, apart=False, **more):
    hands = Hands(num_envs, deal, apart)
    return Trainer(NativeVec("hands", Seat(hands), hands), "monte_carlo", gamma=1., **(dict(capacity=60) | more))


@pytest.mark.parametrize("options", [dict(eps=.1), dict(importance="weighted", eps=.7, first_visit=False)], ids=["on-policy", "off-policy"])
def test_control_approaches_the_best_policy(options):
    trainer = hands_trainer(500, episodes=500, **options)
    lost, wrong, exact = [], [], table_of(solved(None))[..., 0].max(-1)
    known = np.isfinite(exact)
    known[21, :, 1] = False                                                 # naturals hide there
    for steps in (5_000, 115_000):
        trainer.run(steps=steps)
        q = trainer.learner.nets.q.q.detach().view(32, 11, 2, 2)
        lost.append(start_value(None) - start_value(chances(q).numpy()))
        wrong.append(abs(q.amax(-1).numpy() - exact)[known].mean())
    assert 0 <= lost[1] < min(.03, lost[0] / 2) and wrong[1] < min(.12, wrong[0] / 2)    # .3 is lost by sticking from 20 on, .04 by the dealer's rule


def test_one_hand_seen_through_random_play():
    "Example 5.4, 300 runs side by side, each with a table of its own; the errors are squared and belong to known numbers of hits"
    runs, (low, ace, up), errors = 300, (3, True, 2), {}
    cell = 704 * np.arange(runs) + (13 * 11 + up) * 2 + 1
    value, one, G, GG = solved(STICKS_ON_20, np.array([.5, .5]))(low, ace, up)[HIT]
    spread = dict(ordinary=GG - value**2, weighted=GG - 2 * value * G + value**2 * one)      # of one hit: exact, and in the limit
    for importance in spread:
        trainer = judged(hands_trainer(runs, (low, ace, up), apart=True, improve=False, eps=1., importance=importance, episodes=600), STICKS_ON_20)
        for steps in (3_000, 100_000):
            trainer.run(steps=steps)
            q, tally = (table[cell, HIT] for table in tables(trainer.learner))
            error = (q - value)**2
            errors[importance, steps] = error[tally > 0].mean()
        if importance == "ordinary":
            hits = tally                                                    # of the weighted runs as well: who acts is the same
            assert q.mean() == pytest.approx(value, abs=4 * np.sqrt((spread["ordinary"] / hits).mean() / runs))
        want = (spread[importance] / hits).mean()
        assert error.mean() == pytest.approx(want, abs=4 * error.std() / np.sqrt(runs) + (.15 * want if importance == "weighted" else 0))
    assert errors["weighted", 3_000] < errors["ordinary", 3_000] / 2        # figure 5.3: much calmer at first


# ---- exploring starts ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("options", [dict(eps=0.), dict(eps=.3, importance="weighted", first_visit=False), dict(eps=.3, importance="ordinary")], ids=str)
def test_exploring_starts_are_the_box_of_section_5_3(options):
    "The book's loop on the very transitions; its policy is the one that acted, but for the first action"
    world = dict(rows="S...H .#..G ....H", step=-1., max_episode_steps=30)
    trainer = Trainer("rlbench/FourRooms-v0", "monte_carlo", num_envs=3, gamma=.9, starts=True, env_settings=world, **options)
    loops, first, firsts = Loops(trainer.learner.algo), np.ones(3, bool), []
    loops.q, loops.tally = [[0.] * 4 for _ in range(15)], [[0.] * 4 for _ in range(15)]
    loops.acting = lambda s: [trainer.learner.algo.eps / 4 + (1 - trainer.learner.algo.eps) * p for p in loops.behind(s)]
    open_ = [[] for _ in range(3)]
    for _ in range(400):
        row = trainer.until("step").data
        for i in range(3):
            s, a, b = int(row.obs[i]), int(row.act[i]), float(np.exp(row.logp[i]))
            assert b == pytest.approx(.25 if first[i] else loops.acting(s)[a])
            firsts += [a] * int(first[i])
            open_[i].append((s, a, float(row.rew[i]), b))
        first = row.term | row.trunc
        after = {i: 0. if row.term[i] else loops.value(int(row.next_obs[i])) for i in np.flatnonzero(first)}
        for i in after: open_[i] = loops.episode(open_[i], after[i]) or []
        while trainer.owed: trainer.advance()
        np.testing.assert_allclose(tables(trainer.learner)[0], loops.q, rtol=1e-9, atol=1e-11)
    count = np.bincount(firsts, minlength=4)
    assert len(firsts) > 30 and abs(count - len(firsts) / 4).max() < 4 * np.sqrt(len(firsts) * 3 / 16)


def test_exploring_starts_come_closer_to_the_best_policy():
    "Twenty runs side by side, each with a table of its own, judged by the exact solution; without a random action the others never learn some of it"
    def lost(**more):
        trainer = hands_trainer(20, apart=True, eps=0., episodes=200, **more).run(steps=20 * 2500)
        tables_of_runs = trainer.learner.nets.q.q.detach().view(20, 32, 11, 2, 2)
        return np.array([start_value(None) - start_value(chances(q).numpy()) for q in tables_of_runs])
    never, starts = lost(), lost(starts=True)
    assert never.mean() - starts.mean() > 4 * np.hypot(never.std(), starts.std()) / np.sqrt(20) and starts.min() > 0


def test_exploring_starts_approach_the_best_policy():
    trainer = hands_trainer(500, episodes=500, eps=0., starts=True).run(steps=100_000)
    q = trainer.learner.nets.q.q.detach().view(32, 11, 2, 2)
    assert 0 <= start_value(None) - start_value(chances(q).numpy()) < .015  # without them .056 is lost, and stays so


def test_what_is_carried_is_only_whether_an_episode_is_under_way(tmp_path):
    plain = Trainer("FrozenLake-v1", "monte_carlo", num_envs=2).run(steps=100)
    assert plain.learner.carry is None and not plain.learner.algo.recurrent
    trainer = Trainer("FrozenLake-v1", "monte_carlo", num_envs=2, eps=0., starts=True)
    for _ in range(60):
        row = trainer.until("step").data
        assert trainer.learner.carry[:, 0].tolist() == [float(not end) for end in row.term | row.trunc] and "carry" not in row
    while trainer.learner.carry.all(): trainer.until("step")
    trainer.save(tmp_path / "a.rlb")                                        # where an episode begins in one of the two
    twin = load(tmp_path / "a.rlb")
    for one in (trainer, twin): one.run(steps=60)
    assert same(trainer.state(), twin.state())
    trainer.set(starts=False)
    assert trainer.run(steps=4).learner.carry is None


# ---- in the trainer --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("algo", ["monte_carlo", "qlearning", "bandit", "gradient_bandit"])
def test_blackjack_with_its_three_part_observations(algo, tmp_path):
    more = {} if algo == "monte_carlo" else dict(capacity=50)
    trainer = Trainer("Blackjack-v1", algo, num_envs=2, log_every=50, env_settings=dict(sab=True), **more).run(steps=200)
    trainer.save(tmp_path / "a.rlb")
    twin = load(tmp_path / "a.rlb")
    for one in (trainer, twin): one.run(steps=100)
    assert same(trainer.state(), twin.state())
    assert evaluate(trainer, episodes=4, num_envs=2).returns.shape == (4,) and trainer.policy.act((14, 10, 0)) in (0, 1)


def test_a_prediction_learns_nothing_about_choosing():
    trainer = Trainer("FrozenLake-v1", "monte_carlo", improve=False)
    assert trainer.learner.nets.policy.q.unique().item() == .25 and not trainer.learner.nets.policy.q.requires_grad
    trainer.run(steps=500)
    assert trainer.learner.nets.policy.q.unique().item() == .25
    np.testing.assert_allclose(trainer.learner.now.probs(trainer.learner.nets, torch.arange(16)), .25)


def test_backup_diagrams_are_the_episode():
    rows = [Batch(obs=np.array([t]), act=np.array([t % 2]), rew=np.full(1, -t, np.float32), next_obs=np.array([min(t + 1, 2)]),
                  term=np.array([False]), trunc=np.array([False]), logp=np.log(np.full(1, .5))) for t in (0, 1, 2, 2)]
    for count, cut, want in (
            (4, False, "s 0\n  G -5: a 0 = -5\n    r 0: s 1\n      a 1\n        r -1: … 2 more\n          r -2: end"),
            (3, True, "s 0\n  G -2: a 0 = -2\n    r 0: s 1\n      a 1\n        r -1: … 1 more\n          r -2: s 2 = 1"),
            (2, False, "s 0\n  G -1: a 0 = -1\n    r 0: s 1\n      a 1\n        r -1: end"),
            (1, False, "s 0\n  G 0: a 0 = 0\n    r 0: end")):
        learner = learner_for(gamma=1., eps=0.)
        with torch.no_grad(): learner.nets.q.q[2, 1] = 1.
        played = [row.copy() for row in rows[:count]]
        played[-1]["trunc" if cut else "term"][:] = True
        learn(learner, played)
        assert str(learner.algo.backup(learner.nets, learner.last["batch"])) == want
    learner = learn(learner_for(improve=False, importance="weighted"), [row.copy() for row in played])
    assert learner.last["parts"].keys() == {"q", "target", "delta", "ratio"}
    trainer = Trainer("Blackjack-v1", "monte_carlo", env_settings=dict(sab=True))
    trainer.until("update")
    assert str(trainer.learner.algo.backup(trainer.learner.nets, trainer.learner.last["batch"])).startswith("s ")


def test_what_is_refused():
    with pytest.raises(SpaceProblem, match="monte_carlo keeps a table: the observation is Box"): Trainer("CartPole-v1", "monte_carlo")
    with pytest.raises(SpaceProblem, match="needs Discrete actions"): Trainer(lambda: gym.wrappers.TransformAction(gym.make("FrozenLake-v1"), int, gym.spaces.Discrete(4, start=1)), "monte_carlo")
