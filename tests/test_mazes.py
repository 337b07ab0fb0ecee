"""Mazes whose walls move, stacks of them, and Baird's star."""
import gymnasium as gym
import numpy as np
import pytest

from rlbench.core.state import same
from rlbench.envs.env import check_env, make
from rlbench.envs.mazes import BOTH, DYNA, LEFT, RIGHT, STAR, Maze, MazeVec
from rlbench.envs.tabular import GridWorld, evaluate_policy, model_of, solve, tabulate
from rlbench.training.trainer import Trainer, load

IDS = ["rlbench/DynaMaze-v0", "rlbench/BlockingMaze-v0", "rlbench/ShortcutMaze-v0", "rlbench/BairdStar-v0"]
SOON = dict(rows=RIGHT, later=LEFT, change=70)  # the blocking maze, early enough for a test


@pytest.mark.parametrize("id", IDS)
def test_gymnasiums_rules_and_being_put_back(id):
    table = check_env(id)
    assert table[0][1].startswith("yes") and table[2][1] == "yes"


@pytest.mark.parametrize("rows,length", [(DYNA, 14), (RIGHT, 10), (LEFT, 16), (BOTH, 10)])
def test_the_shortest_ways_are_the_books(rows, length):
    model = model_of(Maze(rows))
    assert solve(model, .95)[0] @ model.start == pytest.approx(.95**(length - 1))


def test_a_maze_that_does_not_change_is_a_grid_world():
    maze, grid = Maze(DYNA), GridWorld(DYNA)
    same_model = zip(vars(model_of(maze)).values(), vars(model_of(grid)).values())
    assert all(np.array_equal(a, b) for a, b in same_model)
    assert model_of(make("rlbench/DynaMaze-v0", 1).single) is not None
    assert model_of(make("rlbench/BlockingMaze-v0", 1).single) is None


@pytest.mark.parametrize("settings", [dict(rows=DYNA), SOON, dict(rows=LEFT, later=BOTH, change=40)])
def test_the_vector_form_is_the_single_form(settings):
    one, vec, rng = Maze(**settings), MazeVec(1, **settings), np.random.default_rng(0)
    assert one.reset(seed=0)[0] == vec.reset(seed=0)[0][0]
    ends = 0
    for _ in range(6000):
        act = rng.choice(4, p=[.3, .3, .2, .2])  # tends to the goal, which is at the top right
        obs, rew, term, *_ = one.step(act)
        many = vec.step(np.array([act]))
        assert (obs, rew, term) == (many[0][0], many[1][0], many[2][0])
        if term:
            ends += 1
            assert one.reset()[0] == vec.reset(options=dict(reset_mask=np.array([True])))[0][0]
    assert ends > 3
    assert one.lifetime == (vec.lifetime if "change" in settings else None)


def test_copies_do_not_touch():
    vec = make("rlbench/DynaMaze-v0", 5, copies=5)
    obs, size = vec.reset(0), 7 * 9
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(obs // size, np.arange(5))
    alone = MazeVec(5, rows=DYNA)
    alone.reset(seed=0)
    for _ in range(500):
        act = rng.integers(4, size=5)
        step, (seen, rew, term, *_) = vec.step(act), alone.step(act)
        np.testing.assert_array_equal(step.next_obs - size * np.arange(5), seen)
        np.testing.assert_array_equal(step.rew, rew)
        if term.any():
            alone.reset(options=dict(reset_mask=term))


def test_a_time_limit_cuts_each_maze_on_its_own():
    vec = MazeVec(2, max_episode_steps=3, rows="S...")
    vec.reset(seed=0)
    vec.step(np.array([1, 1]))
    vec.reset(options=dict(reset_mask=np.array([True, False])))
    assert [vec.step(np.array([1, 1]))[3].tolist() for _ in range(2)] == [[False, False], [False, True]]


def test_who_stands_where_the_wall_comes_down_walks_out():
    for native in (Maze("S.G", later="S#G", change=1), MazeVec(1, rows="S.G", later="S#G", change=1)):
        native.reset(seed=0)
        act = (lambda a: np.array([a])) if isinstance(native, MazeVec) else int
        assert np.asarray(native.step(act(1))[0]).item() == 1
        assert np.asarray(native.step(act(3))[0]).item() == 0
        assert np.asarray(native.step(act(1))[0]).item() == 0


def test_a_picture_of_a_cell_shows_a_layout_where_one_can_stand():
    maze = Maze(RIGHT, later=LEFT, change=1000, render_mode="rgb_array")
    maze.reset(seed=0)
    at_first = maze.render()
    maze.place(27)  # row 3, column 0: a wall at first
    assert maze.rows[3][0] == "." and maze.render().shape == at_first.shape
    maze.reset(seed=0)
    np.testing.assert_array_equal(maze.render(), at_first)
    vec = make("rlbench/BlockingMaze-v0", 2, copies=2)
    vec.reset(0)
    assert vec.render().shape == vec.frame_of(27).shape == vec.frame_of(63 + 27).shape


@pytest.mark.parametrize("num_envs,native", [(1, True), (3, True), (3, False)])
@pytest.mark.parametrize("algo", ["qlearning", "dqn"])
def test_a_run_continues_on_the_other_side_of_the_change(tmp_path, num_envs, native, algo):
    settings = dict(num_envs=num_envs, native=native, env_settings=SOON | dict(max_episode_steps=30))
    more = dict(start=40, batch=8, hidden=(8,)) if algo == "dqn" else {}
    whole = Trainer("rlbench/BlockingMaze-v0", algo, **settings, **more)
    whole.run(steps=65 * num_envs)
    whole.save(tmp_path / "a.rlb")
    later = load(tmp_path / "a.rlb")
    assert same(later.state(), whole.state())
    for trainer in (whole, later):
        trainer.run(steps=60 * num_envs)
    assert same(later.state(), whole.state())
    again = load(tmp_path / "a.rlb")
    again.restore(later.snapshot())  # the walls have moved there, and not yet here
    for trainer in (again, later):
        trainer.run(steps=50 * num_envs)
    assert same(again.state(), later.state())


def test_the_star_under_the_books_behaviour():
    star, rng = gym.make("rlbench/BairdStar-v0").unwrapped, np.random.default_rng(0)
    star.reset(seed=0)
    count, steps = np.zeros(7), 7000
    for _ in range(steps):
        obs, rew, term, trunc, _ = star.step(int(rng.random() < 1 / 7))
        assert rew == 0 and not term and not trunc
        count[np.abs(STAR - obs).sum(1).argmin()] += 1
    assert abs(count / steps - 1 / 7).max() < 5 * np.sqrt(1 / 7 * 6 / 7 / steps)  # draws are independent here
    assert np.linalg.matrix_rank(STAR) == 7  # so the true values can be represented


def test_always_solid_is_worth_nothing_and_stays_below():
    P = {s: {0: [(1 / 6, to, 0., False) for to in range(6)], 1: [(1., 6, 0., False)]} for s in range(7)}
    model = tabulate(P, np.full(7, 1 / 7))
    assert (evaluate_policy(model, np.eye(2)[[1] * 7], .99) == 0).all()
    star = gym.make("rlbench/BairdStar-v0").unwrapped
    star.reset(seed=0)
    for state in range(7):
        star.place(STAR[state])
        assert star.state == state
        assert star.step(1)[0].tolist() == STAR[6].tolist()
