"""Differences and traces against the loops of Sutton & Barto in plain Python, and the pictures of chapters 6 to 12.

Numbers called ORACLE come from plain Python simulations of the book's pages, 400 to 4000 runs, that share no code with
the library.
"""
import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import rlbench.algos.td_diagrams  # noqa: F401  (its answers are asked for here)
from rlbench.algos.algorithm import algorithms
from rlbench.algos.questions import backup_diagram, eligibility
from rlbench.algos.traces import RAISED
from rlbench.core.spaces import SpaceProblem
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.envs.grids import GridWorld
from rlbench.policies.exploration import chances
from rlbench.training.trainer import Trainer, load

LAKE = dict(step=-1., max_episode_steps=8)     # a slippery lake on which some episodes are cut
COLUMNS = ("obs", "act", "rew", "next_obs", "term", "trunc")


def copies(world, runs, algo, world_settings=None, **more):
    worlds = dict(world=world, copies=runs, settings=world_settings)
    return Trainer("rlbench/Copies-v0", algo, num_envs=runs, env_settings=worlds, **more)


# ---- the book, in plain Python -------------------------------------------------------------------

def finish(trainer):
    "Learn what is owed, and collect no more"
    trainer.collecting = False
    for _ in trainer: pass


def row_of(data, env, states):
    "One environment's (s, a, r, next s, term, trunc, b), with states as numbers of its own copy"
    s, a, r, to, term, trunc = (data[name][env].item() for name in COLUMNS)
    b = np.exp(data["logp"][env]) if "logp" in data else 1.
    return s % states, a, r, to % states, term, trunc, b


def played(trainer, steps):
    "Rows of each environment, and the coins of all updates"
    stacked = trainer.source == "rlbench/Copies-v0"
    states = trainer.env.single.unwrapped.shape[0] if stacked else 10**9
    lists = [[] for _ in range(trainer.env.num_envs)]
    coins = []
    trainer.watchers.append(lambda _, event: coins.append(event.data.get("coin")) if event.kind == "process" else None)
    for _ in range(steps):
        data = trainer.until("step").data
        for env, rows in enumerate(lists):
            rows.append(row_of(data, env, states))
    finish(trainer)
    return lists, coins


def episodes(rows):
    ends = [i + 1 for i, row in enumerate(rows) if row[4] or row[5]]
    return [rows[a:b] for a, b in itertools.pairwise([0, *ends, len(rows)]) if a < b]


class BookSettings:
    "Tables of action values (or of values: one column), and what the book calls the settings"

    def __init__(self, S, A, target, gamma, lr, n_step=1, td_lambda=1., off_policy="none", epsilon=.1, double=False,
                 trace=None, initial=0.):
        self.Q = np.full((2, S, A), initial)
        self.A = A
        self.target = target
        self.gamma = gamma
        self.alpha = lr
        self.n = n_step
        self.lam = td_lambda
        self.off = off_policy
        self.epsilon = epsilon
        self.double = double
        self.trace = trace
        self.next_action = target == "sarsa" and off_policy == "none"


class Book(BookSettings):
    "The updates of the book"

    def pi(self, q):
        best = [x == max(q) for x in q]
        epsilon = 0. if self.target == "q" else self.epsilon
        return [epsilon / self.A + (1 - epsilon) * x / sum(best) for x in best]

    def mean(self, mine, judge, s):
        return sum(p * q for p, q in zip(self.pi(mine[s]), judge[s]))

    def share(self, q, a, b):
        if self.off == "none": return 1.
        pi = float(q[a] == max(q)) if self.target == "q" else self.pi(q)[a]
        return pi if self.off == "tree" else pi / b

    def ret(self, episode, t, n, mine, judge):
        "Equations 7.1, 7.4, 7.7, 7.14, 7.16 and 12.9"
        _, _, r, to, term, *_ = episode[t]
        known = t + 1 < len(episode)
        if term: return r
        act, b = episode[t + 1][1::5] if known else (None, None)
        takes_next = known and self.next_action
        mean = judge[to][act] if takes_next else self.mean(mine, judge, to)
        if n == 1 or not known: return r + self.gamma * mean
        G = self.ret(episode, t + 1, n - 1, mine, judge)
        if self.off == "none":
            return r + self.gamma * ((1 - self.lam) * mean + self.lam * G)
        return r + self.gamma * (mean + self.lam * self.share(mine[to], act, b) * (G - judge[to][act]))

    def tables(self, coins):
        heads = bool(self.double and next(coins))
        return self.Q[int(heads)], self.Q[int(heads != self.double)]

    def learn(self, rows, coins=()):
        return self.n_step(rows, iter(coins)) if self.trace is None else self.traces(rows, iter(coins))

    def n_step(self, rows, coins):
        for episode in episodes(rows):
            closed = episode[-1][4] or episode[-1][5]
            T = len(episode)
            for t in range(T if closed else max(0, T - self.n - self.next_action + 1)):
                mine, judge = self.tables(coins)
                s = episode[t][0]
                a = min(episode[t][1], self.A - 1)
                mine[s][a] += self.alpha * (self.ret(episode, t, self.n, mine, judge) - mine[s][a])
        return self

    def traces(self, rows, coins): return book_traces(self, rows, coins)


def raised(rule, z, alpha):
    return dict(accumulating=z + 1, replacing=1., dutch=z + 1 - alpha * z)[rule]


def book_traces(book, rows, coins):
    "Section 12.2, 12.5 and 12.7"
    for episode in episodes(rows):
        z = np.zeros((len(book.Q[0]), book.A))
        old = 0.
        closed = episode[-1][4] or episode[-1][5]
        for t in range(len(episode) - (book.next_action and not closed)):
            s, a, r, _, term, _, b = episode[t]
            a = min(a, book.A - 1)
            mine, judge = book.tables(coins)
            one_step = [episode[t], *episode[t + 1:t + 2]]
            follows = 0. if term else (book.ret(one_step, 0, 1, mine, judge) - r) / book.gamma
            z *= book.gamma * book.lam * book.share(mine[s], a, b)
            z[s, a] = raised(book.trace, z[s, a], book.alpha)
            q = mine[s][a]
            ahead = q - old if book.trace == "dutch" else 0.
            move = book.alpha * (r + book.gamma * follows - q + ahead) * z
            mine += move
            mine[s][a] -= book.alpha * ahead
            old = follows
    return book


def tables_of(trainer):
    nets = trainer.learner.nets
    return np.stack([nets[name].values.numpy().copy() for name in ("v", "q", "twin") if name in nets])


def of_control(how):
    return "sarsa_lambda" if "trace" in how else "sarsa"


WAYS = (dict(), dict(n_step=3), dict(n_step=3, td_lambda=.6), dict(n_step=40), dict(n_step=4, off_policy="tree"),
        dict(n_step=4, off_policy="importance"), dict(n_step=4, td_lambda=.5, off_policy="importance"),
        dict(double=True),
        dict(n_step=3, off_policy="tree", double=True), dict(trace="accumulating", td_lambda=.8),
        dict(trace="replacing", td_lambda=.8, off_policy="tree"),
        dict(trace="accumulating", td_lambda=.8, off_policy="importance"),
        dict(trace="replacing", td_lambda=.7, double=True))
CONTROL = [dict(target=target, **how) for target in ("sarsa", "expected", "q") for how in WAYS]
CONTROL.append(dict(target="sarsa", trace="dutch", td_lambda=.9))


@pytest.mark.parametrize("how", CONTROL, ids=lambda how: " ".join(map(str, how.values())))
def test_control_is_the_books_loop(how):
    common = dict(lr=.4, gamma=.9, epsilon=.3, initial=.5) | how
    trainer = Trainer("rlbench/FrozenLake-v0", of_control(how), env_settings=LAKE, **common)
    [rows], coins = played(trainer, 50)
    book = Book(16, 4, **common).learn(rows, coins)
    assert any(row[4] for row in rows) and any(row[5] for row in rows)
    got = tables_of(trainer)
    assert np.abs(got - np.array(book.Q)[:len(got)]).max() < 1e-12


PREDICTION = [dict(), dict(n_step=4), dict(n_step=1000), dict(n_step=4, td_lambda=0.), dict(n_step=4, td_lambda=.7),
              dict(n_step=1000, td_lambda=.7)]
PREDICTION += [dict(trace=trace, td_lambda=lam) for trace in RAISED for lam in (.8, 1.)]


@pytest.mark.parametrize("how", PREDICTION, ids=lambda how: " ".join(map(str, how.values())) or "TD(0)")
def test_prediction_is_the_books_loop_in_many_runs_at_once(how):
    common = dict(lr=.3, gamma=.9) | how
    algo = "td_lambda" if "trace" in how else "td"
    trainer = copies("rlbench/Walk-v0", 3, algo, dict(states=5, max_episode_steps=11), **common)
    lists, _ = played(trainer, 60)
    assert any(row[5] for rows in lists for row in rows)
    for rows, got in zip(lists, tables_of(trainer)[0].reshape(3, 7)):
        book = Book(7, 1, "expected", epsilon=0., **common).learn(rows)
        assert np.abs(got - np.array(book.Q[0])[:, 0]).max() < 1e-12


@pytest.mark.parametrize("how", [dict(), dict(trace="replacing", td_lambda=.9),
                                 dict(n_step=3, off_policy="tree", target="expected")], ids=str)
def test_control_in_many_runs_at_once(how):
    common = dict(lr=.4, gamma=.9, epsilon=.2) | how
    trainer = copies("rlbench/FrozenLake-v0", 3, of_control(how), LAKE, **common)
    lists, _ = played(trainer, 50)
    for rows, got in zip(lists, tables_of(trainer)[0].reshape(3, 16, 4)):
        book = Book(16, 4, **dict(target="sarsa") | common).learn(rows)
        assert np.abs(got - np.array(book.Q[0])).max() < 1e-12


def in_turns(rows):
    "Rows of one round, those of one state after one another"
    while rows:
        states = {row[0]: row for row in reversed(rows)}
        yield list(states.values())
        rows = [row for row in rows if row is not states[row[0]]]


def test_environments_that_share_a_table_lose_no_update():
    "Updates of one state take turns; those of different states, which look at one another's values, are made together"
    trainer = Trainer("rlbench/Walk-v0", "td", num_envs=3, lr=.2, gamma=1., env_settings=dict(states=5))
    lists, _ = played(trainer, 40)
    V = np.zeros(7)
    for rows in zip(*lists):
        for together in in_turns(list(rows)):
            delta = {s: r + (0 if term else V[to]) - V[s] for s, _, r, to, term, *_ in together}
            for s, error in delta.items(): V[s] += .2 * error
    assert np.abs(tables_of(trainer)[0, :, 0] - V).max() < 1e-12


def test_environments_that_share_a_table_correct_it_one_after_another():
    trainer = Trainer("rlbench/Walk-v0", "td_lambda", num_envs=3, lr=.2, gamma=1., td_lambda=.5,
                      env_settings=dict(states=5))
    lists, _ = played(trainer, 40)
    V = np.zeros(7)
    z = np.zeros((3, 7))
    for rows in zip(*lists):
        for trace, (s, _, r, to, term, *_) in zip(z, rows):
            trace *= .5
            trace[s] += 1
            V += .2 * (r + (0 if term else V[to]) - V[s]) * trace
            if term: trace[:] = 0
    assert np.abs(tables_of(trainer)[0, :, 0] - V).max() < 1e-12


# ---- what is the same ----------------------------------------------------------------------------

def learned(algo, steps=80, world="rlbench/FrozenLake-v0", world_settings=LAKE, **how):
    "Tables after a run; equal settings of the acting give equal runs"
    trainer = Trainer(world, algo, env_settings=world_settings, **dict(lr=.3, gamma=.9) | how)
    played(trainer, steps)
    return tables_of(trainer)


@pytest.mark.parametrize("trace", RAISED)
@pytest.mark.parametrize("seed", [1, 2])
def test_traces_that_vanish_are_one_step(seed, trace):
    for plain, traced in (("td", "td_lambda"), ("sarsa", "sarsa_lambda")):
        faded = learned(traced, seed=seed, trace=trace, td_lambda=0.)
        assert np.abs(learned(plain, seed=seed) - faded).max() < 1e-12


def test_every_visit_monte_carlo():
    trainer = Trainer("rlbench/Walk-v0", "td", n_step=10**4, lr=.1, gamma=.9, env_settings=dict(states=7))
    [rows], _ = played(trainer, 200)
    V = np.zeros(9)
    for episode in episodes(rows):
        if not episode[-1][4]: continue
        for t, (s, *_) in enumerate(episode):
            ret = sum(.9**k * row[2] for k, row in enumerate(episode[t:]))
            V[s] += .1 * (ret - V[s])
    assert np.abs(tables_of(trainer)[0, :, 0] - V).max() < 1e-12


def test_dutch_traces_are_monte_carlo_when_the_episode_ends():
    common = dict(lr=.1, gamma=.9, seed=3, env_settings=dict(states=7))
    online = Trainer("rlbench/Walk-v0", "td_lambda", trace="dutch", td_lambda=1., **common)
    late = Trainer("rlbench/Walk-v0", "td", n_step=10**4, **common)
    for _ in range(8):                                              # section 12.6
        for trainer in (online, late):
            trainer.until("episode")
            while trainer.owed: trainer.advance()
        assert np.abs(tables_of(online) - tables_of(late)).max() < 1e-12


def test_the_tree_of_one_step_is_the_expectation():
    for target in ("expected", "q"):
        assert np.array_equal(learned("sarsa", target=target), learned("tree_backup", n_step=1, target=target))
    assert np.array_equal(learned("double_q"), learned("sarsa", target="q", double=True))
    assert not np.array_equal(learned("sarsa"), learned("sarsa", target="expected"))


def test_a_greedy_agent_learns_the_same_from_the_best_and_from_the_expected():
    best = learned("sarsa", target="q", epsilon=0.)
    assert np.abs(best - learned("sarsa", target="expected", epsilon=0.)).max() < 1e-12


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=1, max_size=4), st.floats(0, 1))
def test_chances_add_up_and_prefer_the_best(q, epsilon):
    q = torch.tensor(q, dtype=torch.float64)
    p = chances(q, epsilon)
    assert p.sum(-1).tolist() == pytest.approx([1] * len(q))
    assert (p >= epsilon / 3 - 1e-12).all()
    assert ((q == q.amax(-1, keepdim=True)) <= (p >= p.amax(-1, keepdim=True) - 1e-12)).all()


# ---- the book's pictures -------------------------------------------------------------------------

def errors(states, left, runs, marks, algo="td", **how):
    "(runs, marks) root mean square error of the values after so many episodes"
    worlds = dict(states=states, left=left)
    trainer = copies("rlbench/Walk-v0", runs, algo, worlds, gamma=1., buffer_size=2 * runs, **how)
    table = trainer.learner.nets.v.values.view(runs, -1).numpy()[:, 1:-1]
    true = np.linspace(left, 1, states + 2)[1:-1]
    count = np.zeros(runs, int)
    found = np.full((runs, max(marks)), np.nan)
    before = np.zeros(runs, bool)
    while np.isnan(found[:, -1]).any():
        ended = trainer.until("step").data.term                     # what the step before taught is learned by now
        due = before & (count < max(marks))
        found[due, count[due]] = np.sqrt(((table[due] - true)**2).mean(1))
        count += due
        before = ended
    return found[:, np.array(marks) - 1]


MONTE_CARLO = dict(algo="td_lambda", trace="dutch", td_lambda=1.)   # constant α, when an episode ends
EXAMPLE_62 = {  # how, ORACLE: errors after 10, 25 and 50 episodes, and their deviations from run to run
    "TD .05": (dict(lr=.05), (.1745, .1091, .0539), (.002, .006, .014)),
    "TD .15": (dict(lr=.15), (.0960, .0577, .0673), (.017, .027, .028)),
    "Monte Carlo .03": (MONTE_CARLO | dict(lr=.03), (.1821, .1389, .1073), (.029, .044, .050))}


@pytest.fixture(scope="module")
def example_62():
    return {name: errors(5, 0., 50, (10, 25, 50), initial=.5, **how) for name, (how, *_) in EXAMPLE_62.items()}


@pytest.mark.parametrize("name", EXAMPLE_62)
def test_example_62(example_62, name):
    _, oracle, deviation = EXAMPLE_62[name]
    off = np.abs(example_62[name].mean(0) - oracle)
    assert (off < 4 * np.array(deviation) / np.sqrt(50) + .001).all()


def test_differences_beat_monte_carlo(example_62):
    td = example_62["TD .05"].mean(0)
    mc = example_62["Monte Carlo .03"].mean(0)
    assert td[-1] < mc[-1] - .03


ORACLE_19 = {  # how, error over states and the first four episodes, its deviation from run to run
    "n=1": (dict(n_step=1, lr=.4), .482, .003), "n=4": (dict(n_step=4, lr=.4), .358, .030),
    "Monte Carlo": (MONTE_CARLO | dict(lr=.05), .539, .089),
    "λ=.8": (dict(algo="td_lambda", td_lambda=.8, lr=.3), .361, .030)}


@pytest.fixture(scope="module")
def nineteen():
    return {name: errors(19, -1., 40, range(1, 5), **how).mean(1) for name, (how, *_) in ORACLE_19.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", ORACLE_19)
def test_figures_72_and_126(nineteen, name):
    _, mean, deviation = ORACLE_19[name]
    assert nineteen[name].mean() == pytest.approx(mean, abs=4 * deviation / np.sqrt(40) + .003)


def test_the_middle_is_best():
    def error(name):
        return errors(19, -1., 10, range(1, 5), **ORACLE_19[name][0]).mean()

    ends = [error(name) for name in ("n=1", "Monte Carlo")]
    middle = [error(name) for name in ("n=4", "λ=.8")]
    assert max(middle) + .08 < min(ends)


@pytest.mark.long
def test_a_maximum_deceives_one_table_and_not_two():
    runs = 250

    def left(algo, target):
        trainer = copies("rlbench/Bias-v0", runs, algo, lr=.1, epsilon=.1, gamma=1., buffer_size=1000, target=target)
        count = np.zeros(runs, int)
        went = np.full((runs, 300), np.nan)
        for _ in range(420):
            row = trainer.until("step").data
            at_a = np.flatnonzero((row.obs % 3 == 0) & (count < 300))
            went[at_a, count[at_a]] = row.act[at_a] < 5
            count[at_a] += 1
        return np.nanmean(went[:, :count.min()], 0)

    one = left("sarsa", "q")
    two = left("double_q", "q")
    error = 4 * .5 / np.sqrt(runs)
    assert one[25] == pytest.approx(.947, abs=4 * np.sqrt(.05 / runs) + .01)         # ORACLE
    assert one[5] == pytest.approx(.739, abs=error)
    assert two[50:60].mean() == pytest.approx(.26, abs=error) and two[:60].max() < .75
    assert one[-20:].mean() > two[-20:].mean() + .06 and two[-20:].mean() < .12     # around the 230th episode


def returns_of(trainer, count):
    "(runs, count) returns of the first episodes of each run"
    runs = trainer.env.num_envs
    total = np.zeros(runs)
    found = np.full((runs, count), np.nan)
    done = np.zeros(runs, int)
    while (done < count).any():
        row = trainer.until("step").data
        total += row.rew
        ended = np.flatnonzero((row.term | row.trunc) & (done < count))
        found[ended, done[ended]] = total[ended]
        done[ended] += 1
        total[row.term | row.trunc] = 0
    return found


SHORT_CLIFF = dict(rows="......\n......\nSCCCCG", max_episode_steps=-1)
CLIFF = {  # ORACLE: return of episodes 20 to 60, and its deviation from run to run
    "sarsa": (-24.5, 9.6), "q": (-22.6, 6.7), "expected": (-14.1, 3.2)}


@pytest.mark.long
@pytest.mark.parametrize("target", CLIFF)
def test_example_66_on_a_short_cliff(target):
    "The long one is a benchmark; the tolerance is four standard errors"
    runs = 12
    trainer = copies("rlbench/CliffWalk-v0", runs, "sarsa", SHORT_CLIFF, target=target, lr=.5, epsilon=.1, gamma=1.,
                     buffer_size=2 * runs)
    mean, deviation = CLIFF[target]
    assert returns_of(trainer, 60)[:, 20:].mean() == pytest.approx(mean, abs=4 * deviation / np.sqrt(runs))


def test_the_beginning_of_example_65():
    "The windy grid: 7.2 episodes end within 2000 steps, with a deviation of 1.1 (ORACLE)"
    runs = 8
    trainer = copies("rlbench/WindyGrid-v0", runs, "sarsa", dict(max_episode_steps=-1), lr=.5, epsilon=.1, gamma=1.,
                     buffer_size=2 * runs)
    ended = sum(trainer.until("step").data.term.astype(int) for _ in range(2000))
    assert ended.mean() == pytest.approx(7.24, abs=4 * 1.1 / np.sqrt(runs))


# ---- as a member of the library ------------------------------------------------------------------

NAMES = ["td", "sarsa", "double_q", "tree_backup", "td_lambda", "sarsa_lambda"]
HOWS = [("td", dict(n_step=4)), ("td_lambda", dict(trace="dutch", td_lambda=.9)), ("sarsa", {}),
        ("sarsa_lambda", dict(td_lambda=.9)), ("sarsa", dict(n_step=3, off_policy="importance", target="expected")),
        ("double_q", {}), ("tree_backup", dict(n_step=5))]


@pytest.mark.parametrize("algo, how", HOWS, ids=str)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_run_is_resumed_to_the_bit_at_any_event(algo, how, num_envs, tmp_path):
    trainer = Trainer("rlbench/FrozenLake-v0", algo, num_envs=num_envs, env_settings=LAKE, **how)
    rng = np.random.default_rng(0)
    trainer.until("update")
    for k in range(2):
        for _ in range(rng.integers(5, 30)): trainer.advance()
        trainer.save(tmp_path / f"{k}.rlb")
        twin = load(tmp_path / f"{k}.rlb")
        for one in (trainer, twin):
            for _ in range(40): one.advance()
        assert same(trainer.state(), twin.state())


@pytest.mark.parametrize("algo, how", HOWS, ids=str)
def test_more_updates_on_request_change_no_traces(algo, how):
    trainer = Trainer("rlbench/CliffWalk-v0", algo, **how)
    trainer.until("iteration")
    finish(trainer)
    traces = trainer.learner.nets["traces"].state_dict() if "traces" in trainer.learner.nets else {}
    kept = {name: one.clone() for name, one in traces.items()}
    learned = trainer.learner.own["learned"].copy()
    trainer.learner.owe(5)
    updates = trainer.updates
    for _ in trainer: pass
    assert trainer.updates == updates + 5
    assert all(torch.equal(one, kept[name]) for name, one in traces.items())
    assert np.array_equal(learned, trainer.learner.own["learned"])


def test_what_was_collected_without_learning_is_learned_later():
    online, later = (Trainer("rlbench/Walk-v0", "td", n_step=2, seed=1, buffer_size=500) for _ in range(2))
    later.learning = False
    for trainer in (online, later): trainer.run(steps=100)
    assert (tables_of(later) == 0).all()
    later.learning = True
    finish(later)
    assert np.abs(tables_of(online) - tables_of(later)).max() < 1e-12


@pytest.mark.parametrize("target", ["expected", "q", "sarsa"])
def test_late_learning_is_the_books_loop_too(target):
    common = dict(target=target, n_step=3, lr=.4, gamma=.9, epsilon=.3)
    trainer = Trainer("rlbench/FrozenLake-v0", "sarsa", env_settings=LAKE, **common)
    trainer.learning = False
    rows = [row_of(trainer.until("step").data, 0, 16) for _ in range(50)]
    while not (rows[-1][4] or rows[-1][5]):
        rows.pop()              # the last episode is open: it is learned as far as it goes
    trainer.learning = True
    trainer.collecting = False
    while trainer.learner.own["learned"][0] < len(rows) or trainer.learner.todo:
        trainer.advance()
    assert np.abs(tables_of(trainer)[0] - np.array(Book(16, 4, **common).learn(rows).Q[0])).max() < 1e-12


def traces_of(trainer):
    return eligibility(trainer.learner.algo, trainer.learner.nets)


def test_traces_do_not_reach_over_rows_that_were_lost():
    trainer = Trainer("rlbench/CliffWalk-v0", "td_lambda", td_lambda=.9, buffer_size=2).run(steps=10)
    assert (traces_of(trainer) > 0).sum() > 1
    trainer.learning = False
    trainer.run(steps=20)
    trainer.learning = True
    trainer.until("update")
    assert traces_of(trainer).flatten().sort().values[-2:].tolist() == [0, 1]


@pytest.mark.parametrize("name", NAMES)
def test_views_answer(name):
    trainer = Trainer("rlbench/CliffWalk-v0", name, gamma=1.).run(steps=60)
    learner = trainer.learner
    val = learner.algo.values(learner.nets, torch.arange(48))
    of_values = name in ("td", "td_lambda")
    assert val.shape == ((48,) if of_values else (48, 4))
    assert (traces_of(trainer) is None) == ("lambda" not in name)
    if not of_values:
        probs = learner.algo.probs(learner.nets, torch.arange(48))
        assert probs.sum(1).tolist() == pytest.approx([1] * 48)
    rows = learner.memory.gather(learner.memory.latest()).torch()
    error = learner.algo.td_error(learner.nets, rows)
    assert error.shape == (60,)
    row = rows[int(rows.term.logical_not().nonzero()[-1])]
    last = error[int(rows.term.logical_not().nonzero()[-1])].item()
    if of_values:
        assert last == pytest.approx((row.rew + val[row.next_obs] - val[row.obs]).item())
    if name == "double_q":
        assert last == pytest.approx((row.rew + val[row.next_obs].max() - val[row.obs, row.act]).item())


@pytest.mark.parametrize("algo, shape", [("td_lambda", (48, 1)), ("sarsa_lambda", (48, 4))])
def test_traces_can_be_seen(algo, shape):
    trainer = Trainer("rlbench/CliffWalk-v0", algo, trace="replacing", td_lambda=.9, gamma=1., num_envs=2).run(steps=20)
    seen = traces_of(trainer)
    assert seen.shape == shape and (seen > 0).any()
    assert (seen[trainer.learner.last.batch.obs.long()].sum(-1) >= 1).all()


def depth(node):
    return 1 + max((depth(child) for _, child in node.edges), default=0)


def width(node):
    level = [node]
    widest = 0
    while level:
        widest = max(widest, len(level))
        level = [child for one in level for _, child in one.edges]
    return widest


def diagram(trainer):
    learner = trainer.learner
    return backup_diagram(learner.algo, learner.nets, learner.last.batch)


SHAPES = [("td", {}, 1, 2), ("td", dict(n_step=50), 1, 4), ("sarsa", {}, 1, 3), ("sarsa", dict(target="q"), 4, 3),
          ("sarsa", dict(target="expected"), 4, 3), ("sarsa", dict(n_step=3), 1, 7),
          ("tree_backup", dict(n_step=2), 4, 5),
          ("tree_backup", dict(n_step=60), 4, 8), ("double_q", {}, 4, 3),
          ("sarsa", dict(n_step=2, off_policy="importance", target="q"), 4, 5), ("sarsa_lambda", {}, 1, 3)]


@pytest.mark.parametrize("algo, how, wide, deep", SHAPES, ids=str)
def test_backup_diagrams_have_the_books_shape(algo, how, wide, deep):
    trainer = Trainer("rlbench/CliffWalk-v0", algo, env_settings=dict(max_episode_steps=80), **how)
    widths = []
    depths = []
    for _ in range(85):
        trainer.until("update")
        node = diagram(trainer)
        widths.append(width(node))
        depths.append(depth(node))
        assert node.edges[0][0] == f"r {trainer.learner.last.batch.rew[0].item():g}" and str(node)
    if algo == "sarsa" and not how:
        assert sorted(set(widths)) in ([1], [1, 4])                 # a cut episode has no next action: the expectation
    assert min(widths) in (1, wide) and max(widths) <= max(wide, 4)
    assert wide in widths and deep in depths and max(depths) <= 8


def test_an_end_is_drawn_as_an_end():
    trainer = Trainer("rlbench/Walk-v0", "td", env_settings=dict(states=1))
    trainer.until("update")
    assert str(diagram(trainer)).endswith(": end")


WRONG = [("td", dict(trace="dutch"), "trace"), ("sarsa_lambda", dict(n_step=2), "n_step"),
         ("sarsa_lambda", dict(trace="dutch", target="expected"), "true online"),
         ("sarsa_lambda", dict(trace="dutch", double=True), "true online"),
         ("tree_backup", dict(target="sarsa"), "expected")]


@pytest.mark.parametrize("algo, how, message", WRONG, ids=str)
def test_what_does_not_go_together(algo, how, message):
    with pytest.raises(ConfigError, match=message):
        Trainer("rlbench/CliffWalk-v0", algo, **how)


def test_dutch_traces_are_refused_in_mid_run_too():
    trainer = Trainer("rlbench/CliffWalk-v0", "sarsa_lambda", trace="dutch").run(steps=5)
    trainer.set(target="q")
    with pytest.raises(ConfigError, match="true online"):
        trainer.run(steps=5)


def test_the_target_can_be_changed_during_a_run():
    trainer = Trainer("rlbench/CliffWalk-v0", "sarsa").run(steps=30)
    trainer.set(target="q")
    trainer.run(steps=30)
    assert trainer.learner.steps == trainer.updates == 60           # nothing waits for a next action any more


def test_a_table_needs_numbered_states():
    for name in NAMES:
        with pytest.raises(SpaceProblem, match="try dqn"):
            Trainer("CartPole-v1", name)
        assert algorithms()[name].name == name


class Seen(GridWorld):
    "A maze that is seen as a number"
    view = staticmethod(int)
    space = None

    def __init__(self):
        super().__init__("S..# .#.. ...G", step=-1.)
        if self.space: self.observation_space = self.space

    def reset(self, **more):
        obs, info = super().reset(**more)
        return self.view(obs), info

    def step(self, act):
        obs, *rest = super().step(act)
        return self.view(obs), *rest


class Pair(Seen):
    "The same as row and column"
    view = staticmethod(lambda s: np.array(divmod(s, 4)))
    space = gym.spaces.MultiDiscrete([3, 4])


class Parts(Seen):
    "The same in parts"
    view = staticmethod(lambda s: dict(a=s // 4, b=s % 4 + 1))
    space = gym.spaces.Dict(a=gym.spaces.Discrete(3), b=gym.spaces.Discrete(4, start=1))


FINITE = [("td", dict(n_step=3)), ("td_lambda", dict(trace="dutch", td_lambda=.8)), ("sarsa", dict(n_step=2)),
          ("sarsa_lambda", dict(td_lambda=.7)), ("double_q", {}), ("tree_backup", dict(n_step=3)),
          ("sarsa", dict(exploration="boltzmann", temperature=.3, target="expected"))]


@pytest.mark.parametrize("algo, how", FINITE)
def test_every_finite_space(algo, how):
    plain, *others = (Trainer(kind, algo, num_envs=2, lr=.4, **how).run(steps=200) for kind in (Seen, Pair, Parts))
    for other in others:
        assert np.array_equal(tables_of(plain), tables_of(other))
        assert str(diagram(other))
        rows = other.learner.memory.gather([0, 1]).torch()
        assert len(other.learner.algo.td_error(other.learner.nets, rows)) == 2
        assert other.policy.act(other.obs["agent"]).shape == (2,)
    assert tables_of(plain).any()


def test_exploration_changes_in_mid_run():
    trainer = Trainer("rlbench/CliffWalk-v0", "sarsa", lr=.5, gamma=1.).run(steps=300)
    trainer.set(exploration="boltzmann", temperature=1.)
    trainer.run(steps=300)
    learner = trainer.learner
    probs = learner.algo.probs(learner.nets, torch.arange(36))
    assert torch.allclose(probs, learner.nets.q(torch.arange(36)).softmax(-1))


class Switches(gym.Env):
    "Two switches that fall as they like"
    action_space = gym.spaces.Discrete(2)

    def __init__(self, several=False):
        self.observation_space = gym.spaces.MultiDiscrete([2, 2]) if several else gym.spaces.MultiBinary(2)

    def look(self):
        return self.np_random.integers(0, 2, 2).astype(self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def step(self, act):
        return self.look(), 1., bool(self.np_random.random() < .2), False, {}


@pytest.mark.parametrize("several", [False, True], ids=["MultiBinary", "MultiDiscrete"])
@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("algo", ["sarsa_lambda", "sarsa"])
def test_a_coin_may_leave_a_table_no_row_whatever_observations_are(algo, num_envs, several):
    trainer = Trainer(lambda: Switches(several), algo, double=True, num_envs=num_envs, seed=0)
    assert trainer.run(steps=20).learner.updates
