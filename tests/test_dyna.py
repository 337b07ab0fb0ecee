"""Dyna and prioritised sweeping against the boxes of Sutton & Barto, chapter 8, and their figures.

The oracles share no code with the library but the choice among equal values, and draw the library's random numbers.
"""
import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import rlbench.envs.mazes  # noqa: F401  (registers the mazes)
from rlbench.algos.algorithm import Spec
from rlbench.algos.dyna import Dyna, PrioritisedSweeping, Queue
from rlbench.core.state import same
from rlbench.envs.mazes import Maze
from rlbench.policies.distributions import SpaceProblem
from rlbench.policies.exploration import epsilon_greedy
from rlbench.training.trainer import Trainer, load

F = np.float32
SMALL = "....G\n.##..\nS...."  # ways of length 6
CLOSED, OPEN_LEFT = "....G\n####.\n..S..", "....G\n.####\n..S.."


def trainer_for(algo="dyna", copies=1, maze=None, **more):
    return Trainer("rlbench/DynaMaze-v0", algo, num_envs=copies, capacity=5, env_settings=dict(copies=copies) | (maze or {}), **more)


def choices(trainer, q, obs, eps):
    learner = trainer.learner
    noise = learner.algo.noise(learner.spec, trainer.streams["agent/noise"], len(obs))
    return epsilon_greedy(torch.from_numpy(q[obs]), noise, eps).numpy()


# ---- Dyna-Q and Dyna-Q+ --------------------------------------------------------------------------------------------------

def dyna_by_hand(trainer, steps, n, kappa, alpha, gamma=.95, eps=.1):
    "The box of section 8.2 for N environments in mazes of their own"
    world, rng = trainer.env.single.unwrapped, trainer.streams["agent/sample"]
    S, A = world.observation_space.n, world.action_space.n
    q, obs = np.zeros((S, A), F), trainer.obs.copy()
    N = len(obs)
    known, visited = [{} for _ in range(N)], [[] for _ in range(N)]

    def update(s, a, r, to, ended):
        target = F(r) if ended else F(r) + F(gamma) * q[to].max()
        q[s, a] += F(alpha) * (target - q[s, a])

    for t in range(1, steps + 1):
        act = choices(trainer, q, obs, eps)
        for i, (s, a) in enumerate(zip(obs.tolist(), act.tolist())):
            _, to, r, ended = world.P[s][a][0]
            update(s, a, r, to, ended)
            known[i][s, a] = r, to, ended, t
            if s not in visited[i]:
                visited[i].append(s)
            obs[i] = world.start_states[i] if ended else to
        place = rng.integers(np.array([len(v) for v in visited]), size=(n, N))
        dreamt = [[visited[i][k] for i, k in enumerate(row)] for row in place]
        tried = [[[b for b in range(A) if kappa or (s, b) in known[i]] for i, s in enumerate(row)] for row in dreamt]
        which = rng.integers(np.array([[len(b) for b in row] for row in tried]).reshape(n, N))
        for row, can, ks in zip(dreamt, tried, which):
            for i, (s, b, k) in enumerate(zip(row, can, ks)):
                r, to, ended, when = known[i].get((s, b[k]), (0., s, False, 0))
                update(s, b[k], F(r) + F(kappa * np.sqrt(t - when)), to, ended)
    return q


@settings(max_examples=8, deadline=None)
@given(n=st.integers(0, 6), kappa=st.sampled_from([0., 1e-3, .1]), alpha=st.sampled_from([.1, .5, 1.]), copies=st.integers(1, 3), seed=st.integers(0, 99))
def test_dyna_is_the_box_to_the_last_bit(n, kappa, alpha, copies, seed):
    more = dict(maze=dict(rows=SMALL), n=n, kappa=kappa, alpha=alpha, copies=copies, seed=seed)
    fresh, trainer = trainer_for(**more), trainer_for(**more)
    trainer.run(steps=50 * copies)
    np.testing.assert_array_equal(trainer.learner.nets.q.q.detach().numpy(), dyna_by_hand(fresh, 50, n, kappa, alpha))
    assert trainer.updates == 50 * (1 + n)


def test_without_planning_it_is_q_learning():
    dyna = trainer_for(n=0, alpha=.5, maze=dict(rows=SMALL)).run(steps=400)
    plain = Trainer("rlbench/DynaMaze-v0", "qlearning", lr=.5, gamma=.95, env_settings=dict(rows=SMALL)).run(steps=400)
    assert plain.learner.nets.q.q.abs().max() > .3
    torch.testing.assert_close(dyna.learner.nets.q.q, plain.learner.nets.q.q)


def test_the_model_is_what_the_world_does():
    trainer = trainer_for(maze=dict(rows=SMALL)).run(steps=500)
    world, model = trainer.env.single.unwrapped, trainer.learner.algo.model(trainer.learner.nets)
    assert len(model) > 20
    for row in zip(*(model[name].tolist() for name in ("obs", "act", "rew", "next_obs", "term"))):
        assert world.P[row[0]][row[1]][0][1:] == (row[3], row[2], row[4])
    last = trainer.learner.buffer.gather(trainer.learner.buffer.newest(1)[0])
    age = {(s, a): age for s, a, age in zip(model.obs.tolist(), model.act.tolist(), model.age.tolist())}
    assert age[last.obs.item(), last.act.item()] == 0 and 0 < max(age.values()) < 500


def test_truncation_is_remembered_as_going_on():
    trainer = trainer_for(maze=dict(rows="S...G", max_episode_steps=2)).run(steps=50)
    assert not trainer.learner.algo.model(trainer.learner.nets).term.any()
    assert trainer.episodes.total == 25


def test_to_do_list_is_the_real_step_and_then_what_was_drawn():
    trainer = trainer_for(n=4, copies=3, maze=dict(rows=SMALL))
    trainer.until(lambda event: event.kind == "process")
    learner = trainer.learner
    assert [len(entry) for entry in learner.todo] == [3] * 5 and len(learner.data) == 15
    np.testing.assert_array_equal(learner.data.obs[:3], learner.buffer.gather(learner.buffer.newest(1)[0]).obs)
    assert [trainer.advance().kind for _ in range(6)] == ["learn"] * 5 + ["collect"]


def test_figure_8_2():
    "The same run goes on with n = 0, 5, 50 after the first reward, before which there is nothing to plan with; one greedy walk takes 14 steps, and about 16 with ε = .1"
    def lengths(n, episodes):
        found = []
        for trainer in first:
            twin = trainer.fork(n=n)
            found.append([twin.until("episode").ended[0][2] for _ in range(episodes)])
        return np.array(found)
    first = [trainer_for(n=0, seed=seed) for seed in (0,)]
    for trainer in first:
        assert trainer.until("episode").ended[0][2] > 100
    none, five, fifty = lengths(0, 3), lengths(5, 7), lengths(50, 3)
    assert fifty[:, 2].mean() < 25 and five[:, 5:].mean() < 25
    assert none.mean() > 100
    assert fifty[:, 0].mean() < five[:, 0].mean() < none[:, 0].mean()
    assert min(none.min(), five.min(), fifty.min()) >= 14


def after_the_change(rows, later, kappas, known, steps, runs=40):
    "Reward of each run after the walls have moved: the same runs go on with and without a bonus"
    trainer = trainer_for(n=10, alpha=.5, copies=runs, maze=dict(rows=rows, later=later, change=known))
    trainer.run(steps=known * runs)
    trainers = [trainer.fork(kappa=kappa) for kappa in kappas]
    return [np.sum([one.until("step").data.rew for _ in range(steps)], 0) for one in trainers]


def test_a_bonus_gets_round_a_wall_that_moved():
    "Figure 8.4, small"
    plain, plus = after_the_change(CLOSED, OPEN_LEFT, (0., 3e-3), known=120, steps=330)
    error = np.hypot(plain.std(), plus.std()) / np.sqrt(len(plus))
    assert plus.mean() - plain.mean() > 4 * error


def test_only_with_a_bonus_is_the_shortcut_found():
    "Figure 8.5 in two thirds of its length: both know the long way when a shorter one opens (16 against 10 steps)"
    trainer = Trainer("rlbench/ShortcutMaze-v0", "dyna", num_envs=10, n=5, alpha=.5, capacity=5, env_settings=dict(copies=10, change=1400)).run(steps=10 * 1400)
    plain, plus = (np.sum([one.until("step").data.rew for _ in range(2400)][-300:], 0) for one in (trainer.fork(kappa=0.), trainer.fork(kappa=1e-3)))
    error = np.hypot(plain.std(), plus.std()) / np.sqrt(10)
    assert plus.mean() - plain.mean() > 4 * error and np.median(plain) <= 300 / 16 < 22 < np.median(plus)


def test_untried_actions_are_thought_of_only_with_a_bonus():
    for kappa, some in ((0., False), (1e-3, True)):
        trainer, untried = trainer_for(n=20, kappa=kappa, maze=dict(rows=SMALL)), False
        for _ in range(5):
            trainer.until("iteration")
            learner = trainer.learner
            untried |= not learner.nets.model.known[learner.data.obs, learner.data.act].all()
        assert untried == some


# ---- prioritised sweeping ------------------------------------------------------------------------------------------------

def sweep_by_hand(trainer, steps, n, theta, alpha, gamma=.95, eps=.1):
    "The box of section 8.4 -> table, pairs in the order of their updates, what is still queued"
    world = trainer.env.single.unwrapped
    q, model, waiting, order = np.zeros((world.observation_space.n, world.action_space.n), F), {}, {}, []
    s = int(trainer.obs[0])

    def error(s, a):
        r, to, ended = model[s, a]
        return (F(r) if ended else F(r) + F(gamma) * q[to].max()) - q[s, a]

    def insert(s, a):
        if abs(error(s, a)) > F(theta):
            waiting[s, a] = max(waiting.get((s, a), 0), abs(error(s, a)))

    for _ in range(steps):
        a = int(choices(trainer, q, np.array([s]), eps)[0])
        _, to, r, ended = world.P[s][a][0]
        model[s, a] = r, to, ended
        insert(s, a)
        for _ in range(n):
            if not waiting:
                break
            pair = min(waiting, key=lambda pair: (-waiting[pair], pair))
            del waiting[pair]
            q[pair] += F(alpha) * error(*pair)
            order.append(pair)
            for before, (_, to2, ended2) in model.items():
                if to2 == pair[0] and not ended2:
                    insert(*before)
        s = world.start_states[0] if ended else to
    return q, order, waiting


@settings(max_examples=8, deadline=None)
@given(n=st.integers(1, 8), theta=st.sampled_from([0., 1e-4, .05]), alpha=st.sampled_from([.1, .5, 1.]), seed=st.integers(0, 99))
def test_sweeping_is_the_box_to_the_last_bit(n, theta, alpha, seed):
    more = dict(algo="prioritised_sweeping", maze=dict(rows=SMALL), n=n, theta=theta, alpha=alpha, seed=seed)
    fresh, trainer, order = trainer_for(**more), trainer_for(**more), []
    while trainer.steps < 120 or trainer.owed:
        if trainer.advance().kind == "learn" and trainer.learner.last["batch"].valid.all():
            batch = trainer.learner.last["batch"]
            order.append((batch.obs.item(), batch.act.item()))
    q, pairs, waiting = sweep_by_hand(fresh, 120, n, theta, alpha)
    assert order == pairs
    np.testing.assert_array_equal(trainer.learner.nets.q.q.detach().numpy(), q)
    queue = trainer.learner.algo.queue(trainer.learner.nets)
    assert {(s, a): p for s, a, p in zip(queue.obs.tolist(), queue.act.tolist(), queue.priority.tolist())} == pytest.approx(waiting)
    assert (np.diff(queue.priority) <= 0).all()


def optimal(trainer):
    "True where the greedy walk takes the fewest steps"
    world, q = trainer.env.single.unwrapped, trainer.learner.nets.q.q
    s, ended, steps = world.start_states[0], False, 0
    while not ended and steps < 20:
        (_, s, _, ended), steps = world.P[s][int(q[s].argmax())][0], steps + 1
    return ended and steps == 14


def test_sweeping_needs_several_times_fewer_updates():
    "Example 8.4, in the Dyna maze: three times as many updates as sweeping needs are not enough for Dyna-Q"
    sweeping, updates = trainer_for("prioritised_sweeping", alpha=.5), 0
    while not sweeping.episodes.total or not optimal(sweeping):
        sweeping.until("update")
        updates += bool(sweeping.learner.last["batch"].valid.all())
    dyna = trainer_for("dyna", alpha=.5)
    for _ in range(3 * updates):
        dyna.until("update")
        assert dyna.updates % 50 or not optimal(dyna)
    assert 50 < updates < 2000


def test_where_nothing_is_urgent_one_update_moves_nothing():
    trainer = trainer_for("prioritised_sweeping", maze=dict(rows="S...."))    # there is no reward
    trainer.run(steps=20)
    assert trainer.updates == 20 and (trainer.learner.nets.q.q == 0).all() and not trainer.learner.last["batch"].valid.any()


def test_several_environments_share_the_queue():
    trainer, most = trainer_for("prioritised_sweeping", copies=3, maze=dict(rows=SMALL), alpha=1., n=20), 0
    for _ in range(600):
        trainer.advance()
        most = max(most, len(trainer.learner.last["batch"]) if trainer.learner.last else 0)
    trainer.run(steps=3000)
    best = trainer.learner.nets.q.q.detach()[trainer.env.single.unwrapped.start_states].amax(-1)
    assert most > 1 and best.numpy() == pytest.approx([.95**5] * 3, rel=1e-3)


def test_queue_keeps_the_higher_urgency():
    queue = Queue(2, 2)
    at = torch.tensor([0, 0, 1]), torch.tensor([1, 1, 0])
    queue.add(*at, torch.tensor([.5, .7, .1]), theta=.1)
    queue.add(*at, torch.tensor([.2, .3, .1]), theta=.1)
    assert queue.priority.flatten().tolist() == pytest.approx([0, .7, 0, 0])


# ---- both ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("algo", ["dyna", "prioritised_sweeping"])
def test_a_run_continues_in_the_middle_of_planning(algo, tmp_path):
    trainer = trainer_for(algo, n=7, alpha=1., maze=dict(rows=SMALL))
    trainer.until("episode")
    for k in range(12):
        trainer.advance()
        trainer.save(tmp_path / "a.rlb")
        twin = load(tmp_path / "a.rlb")
        kinds = [[one.advance().kind for _ in range(25)] for one in (trainer.fork(), twin)]
        assert kinds[0] == kinds[1]
        straight = trainer.fork()
        for _ in range(25):
            straight.advance()
        assert same(twin.state(), straight.state())


@pytest.mark.parametrize("algo", ["dyna", "prioritised_sweeping"])
def test_answers_for_whoever_looks(algo):
    trainer = trainer_for(algo, n=7, alpha=1., maze=dict(rows=SMALL))
    trainer.until("episode")
    trainer.until("update", 3)
    learner = trainer.learner
    rows = learner.buffer.gather(learner.buffer.latest())
    assert learner.algo.td_error(learner.nets, rows).shape == (len(rows),)
    assert learner.algo.values(learner.nets, rows.obs).shape == (len(rows), 4)
    node = learner.algo.backup(learner.nets, learner.last["batch"])
    batch = learner.last["batch"]
    assert node.text == f"s {batch.obs[0].item()}" and node.edges[0][1].text == f"a {batch.act[0].item()}"
    assert node.edges[0][1].value == pytest.approx(learner.nets.q.q[batch.obs[0], batch.act[0]].item())
    assert set(learner.algo.model(learner.nets)) == {"obs", "act", "rew", "next_obs", "term", "age"}


def test_spaces_that_a_table_cannot_hold():
    spec = Spec(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2), 1)
    for algo in (Dyna(), PrioritisedSweeping()):
        with pytest.raises(SpaceProblem, match=algo.name):
            algo.nets(spec, None)


@pytest.mark.parametrize("algo", ["dyna", "prioritised_sweeping"])
def test_other_finite_spaces(algo):
    class Pair(Maze):
        "The same maze, seen as row and column"
        def __init__(self):
            super().__init__(SMALL)
            self.observation_space = gym.spaces.MultiDiscrete(self.shape)

        def reset(self, **more): return np.array(self.cell(super().reset(**more)[0])), {}

        def step(self, act):
            obs, *rest = super().step(act)
            return np.array(self.cell(obs)), *rest

    pair = Trainer(Pair, algo, alpha=.5).run(steps=300)
    plain = Trainer(lambda: Maze(SMALL), algo, alpha=.5).run(steps=300)
    assert torch.equal(pair.learner.nets.q.q, plain.learner.nets.q.q) and pair.learner.nets.q.q.any()
    assert pair.learner.algo.td_error(pair.learner.nets, pair.learner.buffer.gather([0, 1])).shape == (2,)
