"""Dyna and prioritised sweeping against the boxes of Sutton & Barto, chapter 8, and their figures.

The oracles share no code with the library but the choice among equal values, and draw the library's random numbers.
"""
import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import rlbench.algos.td_diagrams  # noqa: F401  (its answers are asked for here)
from rlbench.algos.dyna import Dyna, PrioritisedSweeping, Queue
from rlbench.algos.questions import backup_diagram, learned_model, most_urgent
from rlbench.core.spaces import SpaceProblem, Spec
from rlbench.core.state import same
from rlbench.envs.mazes import Maze
from rlbench.policies.exploration import epsilon_greedy
from rlbench.training.trainer import Trainer, load

SMALL = "....G\n.##..\nS...."  # ways of length 6
CLOSED = "....G\n####.\n..S.."
OPEN_LEFT = "....G\n.####\n..S.."


def trainer_for(algo="dyna", copies=1, maze=None, **more):
    worlds = dict(copies=copies) | (maze or {})
    return Trainer("rlbench/DynaMaze-v0", algo, num_envs=copies, buffer_size=5 * copies, env_settings=worlds, **more)


def table_of(trainer):
    return trainer.learner.nets.q.values.numpy()


def choices(trainer, q, obs, epsilon=.1):
    actor = trainer.actors["agent"]
    return epsilon_greedy(torch.from_numpy(q[obs]), actor.noise(actor.recipe, len(obs)), epsilon).numpy()


def real(batch):
    return bool((batch.turn == 0).all())


# ---- Dyna-Q and Dyna-Q+ --------------------------------------------------------------------------

class DynaBox:
    "The box of section 8.2 for N environments in mazes of their own"

    def __init__(self, trainer, n, kappa, alpha, gamma=.95):
        self.trainer = trainer
        self.world = trainer.env.single.unwrapped
        self.rng = trainer.learner.rng
        self.n = n
        self.kappa = kappa
        self.alpha = alpha
        self.gamma = gamma
        self.A = self.world.action_space.n
        self.q = np.zeros((self.world.observation_space.n, self.A))
        self.obs = trainer.obs["agent"].copy()
        self.known = [{} for _ in self.obs]
        self.visited = [[] for _ in self.obs]

    def update(self, s, a, r, to, ended):
        target = r if ended else r + self.gamma * self.q[to].max()
        self.q[s, a] += self.alpha * (target - self.q[s, a])

    def step(self, t):
        act = choices(self.trainer, self.q, self.obs)
        for i, (s, a) in enumerate(zip(self.obs.tolist(), act.tolist())):
            _, to, r, ended = self.world.P[s][a][0]
            self.update(s, a, r, to, ended)
            self.known[i][s, a] = r, to, ended, t
            if s not in self.visited[i]: self.visited[i].append(s)
            self.obs[i] = self.world.start_states[i] if ended else to

    def think(self, t):
        N = len(self.obs)
        for k, (u, v) in enumerate(self.rng.random((self.n * N, 2))):
            known = self.known[k % N]
            visited = self.visited[k % N]
            s = visited[int(u * len(visited))]
            tried = [b for b in range(self.A) if self.kappa or (s, b) in known]
            a = tried[int(v * len(tried))]
            r, to, ended, when = known.get((s, a), (0., s, False, 0))
            self.update(s, a, r + self.kappa * np.sqrt(t - when), to, ended)

    def run(self, steps):
        for t in range(1, steps + 1):
            self.step(t)
            if self.n: self.think(t)
        return self.q


@settings(max_examples=8, deadline=None)
@given(n=st.integers(0, 6), kappa=st.sampled_from([0., 1e-3, .1]), alpha=st.sampled_from([.1, .5, 1.]),
       copies=st.integers(1, 3), seed=st.integers(0, 99))
def test_dyna_is_the_box(n, kappa, alpha, copies, seed):
    more = dict(maze=dict(rows=SMALL), planning_steps=n, kappa=kappa, lr=alpha, copies=copies, seed=seed)
    untouched, trainer = trainer_for(**more), trainer_for(**more)
    trainer.run(steps=50 * copies)
    want = DynaBox(untouched, n, kappa, alpha).run(50)
    np.testing.assert_allclose(table_of(trainer), want, atol=1e-12)
    assert trainer.updates == 50 * (1 + n)


def test_environments_that_share_a_maze_take_turns():
    "No update of a pair gets lost: it moves once for every row"
    trainer = Trainer("rlbench/DynaMaze-v0", "dyna", num_envs=4, planning_steps=3, env_settings=dict(rows="S.G"))
    for _ in range(60):
        trainer.until("update")
        batch = trainer.learner.last.batch
        pairs = set(zip(batch.obs.tolist(), batch.act.tolist()))
        assert len(pairs) == len(batch.obs)
    assert trainer.learner.memory.num_envs == 4


def test_without_planning_it_is_q_learning():
    dyna = trainer_for(planning_steps=0, lr=.5, maze=dict(rows=SMALL)).run(steps=400)
    settings = dict(lr=.5, gamma=.95, initial=0.)
    plain = Trainer("rlbench/DynaMaze-v0", "qlearning", env_settings=dict(rows=SMALL), **settings).run(steps=400)
    assert np.abs(table_of(plain)).max() > .3
    np.testing.assert_array_equal(table_of(dyna), table_of(plain))


def test_the_model_is_what_the_world_does():
    trainer = trainer_for(maze=dict(rows=SMALL)).run(steps=500)
    learner = trainer.learner
    world = trainer.env.single.unwrapped
    model = learned_model(learner.algo, learner.nets)
    assert len(model) > 20
    for s, a, rew, to, ended in zip(*(model[name].tolist() for name in ("obs", "act", "rew", "next_obs", "term"))):
        assert world.P[s][a][0][1:] == (to, rew, ended)
    last = learner.memory.gather(learner.memory.newest(1)[0])
    age = {(s, a): age for s, a, age in zip(model.obs.tolist(), model.act.tolist(), model.age.tolist())}
    assert age[last.obs.item(), last.act.item()] == 0 and 0 < max(age.values()) < 500


def test_truncation_is_remembered_as_going_on():
    trainer = trainer_for(maze=dict(rows="S...G", max_episode_steps=2)).run(steps=50)
    assert not learned_model(trainer.learner.algo, trainer.learner.nets).term.any()
    assert trainer.episodes.total == 25


def test_first_comes_the_real_step_and_then_what_was_drawn():
    trainer = trainer_for(planning_steps=4, copies=3, maze=dict(rows=SMALL))
    trainer.until(lambda event: event.kind == "process")
    learner = trainer.learner
    assert len(learner.todo) == 1
    newest = learner.memory.gather(learner.memory.newest(1))
    np.testing.assert_array_equal(learner.data.obs, newest.obs)
    assert [trainer.advance().kind for _ in range(2)] == ["learn", "process"]
    assert [len(entry) for entry in learner.todo] == [3] * 4 and len(learner.data) == 12
    assert learner.data.turn.tolist() == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert [trainer.advance().kind for _ in range(5)] == ["learn"] * 4 + ["collect"]


@pytest.mark.long
def test_figure_8_2():
    "One run goes on with n = 0, 5, 50 after the first reward, before which there is nothing to plan with"
    first = trainer_for(planning_steps=0, seed=0)
    assert first.until("episode").ended[0].length > 100

    def lengths(n, episodes):
        twin = first.fork(planning_steps=n)
        return [twin.until("episode").ended[0].length for _ in range(episodes)]

    none = lengths(0, 3)
    five = lengths(5, 7)
    fifty = lengths(50, 3)
    assert fifty[2] < 25 and np.mean(five[5:]) < 25         # 14 steps are the fewest, about 16 with ε = .1
    assert np.mean(none) > 100
    assert fifty[0] < five[0] < none[0]
    assert min(none + five + fifty) >= 14


def after_the_change(rows, later, kappas, known, steps, runs=40):
    "Reward of each run after the walls have moved: the same runs go on with and without a bonus"
    maze = dict(rows=rows, later=later, change=known)
    trainer = trainer_for(planning_steps=10, lr=.5, copies=runs, maze=maze)
    trainer.run(steps=known * runs)
    trainers = [trainer.fork(kappa=kappa) for kappa in kappas]
    found = []
    for one in trainers:
        reward = [one.until("step").data.rew for _ in range(steps)]
        found.append(np.sum(reward, 0))
    return found


@pytest.mark.long
def test_a_bonus_gets_round_a_wall_that_moved():
    "Figure 8.4, small"
    plain, plus = after_the_change(CLOSED, OPEN_LEFT, (0., 3e-3), known=120, steps=330)
    error = np.hypot(plain.std(), plus.std()) / np.sqrt(len(plus))
    assert plus.mean() - plain.mean() > 4 * error


@pytest.mark.long
def test_only_with_a_bonus_is_the_shortcut_found_for_sure():
    "Figure 8.5, small: all know the long way (11 steps) when a shorter one opens (3 steps)"
    rows = "....G\n.####\n.....\n....S"
    later = "....G\n.###.\n.....\n....S"
    plain, plus = after_the_change(rows, later, (0., 3e-3), known=250, steps=500, runs=20)
    assert plus.min() > 500 / 11 and (plain < 500 / 11).sum() >= 5


def test_untried_actions_are_thought_of_only_with_a_bonus():
    for kappa, some in ((0., False), (1e-3, True)):
        trainer = trainer_for(planning_steps=20, kappa=kappa, maze=dict(rows=SMALL))
        untried = False
        for _ in range(10):
            trainer.until("iteration")
            learner = trainer.learner
            untried |= not learner.nets.model.known[learner.data.obs, learner.data.act].all()
        assert untried == some


# ---- prioritised sweeping ------------------------------------------------------------------------

class SweepBox:
    "The box of section 8.4: table, pairs in the order of their updates, what is still queued"

    def __init__(self, trainer, n, theta, alpha, gamma=.95):
        self.trainer = trainer
        self.world = trainer.env.single.unwrapped
        self.n = n
        self.theta = theta
        self.alpha = alpha
        self.gamma = gamma
        self.q = np.zeros((self.world.observation_space.n, self.world.action_space.n))
        self.model = {}
        self.waiting = {}
        self.order = []

    def error(self, s, a):
        r, to, ended = self.model[s, a]
        return (r if ended else r + self.gamma * self.q[to].max()) - self.q[s, a]

    def insert(self, s, a):
        size = abs(self.error(s, a))
        if size > self.theta:
            self.waiting[s, a] = max(self.waiting.get((s, a), 0), size)

    def sweep(self):
        pair = min(self.waiting, key=lambda pair: (-self.waiting[pair], pair))
        del self.waiting[pair]
        self.q[pair] += self.alpha * self.error(*pair)
        self.order.append(pair)
        for before, (_, to, ended) in self.model.items():
            if to == pair[0] and not ended: self.insert(*before)

    def run(self, steps):
        s = int(self.trainer.obs["agent"][0])
        for _ in range(steps):
            a = int(choices(self.trainer, self.q, np.array([s]))[0])
            _, to, r, ended = self.world.P[s][a][0]
            self.model[s, a] = r, to, ended
            self.insert(s, a)
            for _ in range(self.n):
                if self.waiting: self.sweep()
            s = self.world.start_states[0] if ended else to
        return self


@settings(max_examples=8, deadline=None)
@given(n=st.integers(1, 8), theta=st.sampled_from([0., 1e-4, .05]), alpha=st.sampled_from([.1, .5, 1.]),
       seed=st.integers(0, 99))
def test_sweeping_is_the_box(n, theta, alpha, seed):
    more = dict(algo="prioritised_sweeping", maze=dict(rows=SMALL), planning_steps=n, theta=theta, lr=alpha, seed=seed)
    untouched, trainer = trainer_for(**more), trainer_for(**more)
    order = []
    while trainer.steps < 120 or trainer.owed:
        event = trainer.advance()
        batch = trainer.learner.last.batch if event.kind == "learn" else None
        if batch and not real(batch):
            order.append((batch.obs.item(), batch.act.item()))
    box = SweepBox(untouched, n, theta, alpha).run(120)
    assert order == box.order
    np.testing.assert_allclose(table_of(trainer), box.q, atol=1e-12)
    queue = most_urgent(trainer.learner.algo, trainer.learner.nets)
    got = {(s, a): p for s, a, p in zip(queue.obs.tolist(), queue.act.tolist(), queue.priority.tolist())}
    assert got == pytest.approx(box.waiting)
    assert (np.diff(queue.priority) <= 0).all()


def optimal(trainer):
    "True where the greedy walk takes the fewest steps"
    world = trainer.env.single.unwrapped
    best = table_of(trainer).argmax(1)
    s = world.start_states[0]
    for steps in range(1, 15):
        _, s, _, ended = world.P[s][best[s]][0]
        if ended: return steps == 14
    return False


def test_sweeping_needs_several_times_fewer_updates():
    "Example 8.4, in the Dyna maze: three times as many updates as sweeping needs are not enough for Dyna-Q"
    sweeping = trainer_for("prioritised_sweeping", lr=.5)
    updates = 0
    while not sweeping.episodes.total or not optimal(sweeping):
        sweeping.until("update")
        updates += not real(sweeping.learner.last.batch)
    dyna = trainer_for("dyna", lr=.5)
    for _ in range(3 * updates):
        dyna.until("update")
        assert dyna.updates % 50 or not optimal(dyna)
    assert 50 < updates < 2000


def test_where_nothing_is_urgent_the_step_itself_is_the_only_update():
    trainer = trainer_for("prioritised_sweeping", maze=dict(rows="S...."))    # there is no reward
    trainer.run(steps=20)
    assert trainer.updates == 20 and (table_of(trainer) == 0).all() and real(trainer.learner.last.batch)


def test_several_environments_share_the_queue():
    trainer = trainer_for("prioritised_sweeping", copies=3, maze=dict(rows=SMALL), lr=1., planning_steps=20)
    most = 0
    for _ in range(600):
        if trainer.advance().kind != "learn" or real(trainer.learner.last.batch):
            continue
        most = max(most, len(trainer.learner.last.batch))
    trainer.run(steps=2000)
    best = table_of(trainer)[trainer.env.single.unwrapped.start_states].max(-1)
    assert most > 1 and best == pytest.approx([.95**5] * 3, rel=1e-3)


def test_queue_keeps_the_higher_urgency():
    queue = Queue(2, 2)
    at = torch.tensor([0, 0, 1]), torch.tensor([1, 1, 0])
    queue.add(*at, torch.tensor([.5, .7, .1]).double(), theta=.1 + 1e-6)
    queue.add(*at, torch.tensor([.2, .3, .1]).double(), theta=.1 + 1e-6)
    assert queue.priority.flatten().tolist() == pytest.approx([0, .7, 0, 0])


# ---- both ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("algo", ["dyna", "prioritised_sweeping"])
def test_a_run_continues_in_the_middle_of_planning(algo, tmp_path):
    trainer = trainer_for(algo, planning_steps=7, lr=1., maze=dict(rows=SMALL))
    trainer.until("episode")
    for _ in range(12):
        trainer.advance()
        trainer.save(tmp_path / "a.rlb")
        twin = load(tmp_path / "a.rlb")
        straight = trainer.fork()
        for _ in range(25):
            assert straight.advance().kind == twin.advance().kind
        assert same(twin.state(), straight.state())


@pytest.mark.parametrize("algo", ["dyna", "prioritised_sweeping"])
def test_more_updates_can_be_asked_for(algo):
    trainer = trainer_for(algo, maze=dict(rows=SMALL)).run(steps=40)
    trainer.collecting = False
    updates = trainer.updates
    count = trainer.learner.nets.model.count.clone()
    trainer.learner.owe(7)
    for _ in trainer: pass
    assert trainer.updates >= updates + 7 and torch.equal(count, trainer.learner.nets.model.count)


@pytest.mark.parametrize("algo", ["dyna", "prioritised_sweeping"])
def test_answers_for_whoever_looks(algo):
    trainer = trainer_for(algo, planning_steps=7, lr=1., maze=dict(rows=SMALL))
    trainer.until("episode")
    trainer.until("update", 3)
    learner = trainer.learner
    rows = learner.memory.gather(learner.memory.latest()).torch()
    assert learner.algo.td_error(learner.nets, rows).shape == (len(rows),)
    assert learner.algo.values(learner.nets, rows.obs).shape == (len(rows), 4)
    batch = learner.last.batch
    node = backup_diagram(learner.algo, learner.nets, batch)
    assert node.text == f"s {batch.obs[0].item()}, a {batch.act[0].item()}"

    assert node.value == pytest.approx(table_of(trainer)[batch.obs[0], batch.act[0]])
    assert set(learned_model(learner.algo, learner.nets)) == {"obs", "act", "rew", "next_obs", "term", "age"}


def test_spaces_that_a_table_cannot_hold():
    spec = Spec(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2), 1)
    for algo in (Dyna(), PrioritisedSweeping()):
        with pytest.raises(SpaceProblem, match=algo.name):
            algo.nets(spec, None)


class Pair(Maze):
    "The same maze, seen as row and column"

    def __init__(self):
        super().__init__(SMALL)
        self.observation_space = gym.spaces.MultiDiscrete(self.shape)

    def reset(self, **more):
        return np.array(self.cell(super().reset(**more)[0])), {}

    def step(self, act):
        obs, *rest = super().step(act)
        return np.array(self.cell(obs)), *rest


@pytest.mark.parametrize("algo", ["dyna", "prioritised_sweeping"])
def test_other_finite_spaces(algo):
    pair = Trainer(Pair, algo, lr=.5).run(steps=300)
    plain = Trainer(lambda: Maze(SMALL), algo, lr=.5).run(steps=300)
    assert np.array_equal(table_of(pair), table_of(plain)) and table_of(pair).any()
    rows = pair.learner.memory.gather([0, 1]).torch()
    assert pair.learner.algo.td_error(pair.learner.nets, rows).shape == (2,)
