"""Mazes whose walls move, stacks of them, and Baird's star."""
import gymnasium as gym
import numpy as np
import pytest

from rlbench.core.spaces import AGENT
from rlbench.core.state import same
from rlbench.envs.find import check_env, make
from rlbench.envs.grids import GridWorld
from rlbench.envs.mazes import DYNA, OPEN_BOTH, OPEN_LEFT, OPEN_RIGHT, STAR, Maze, MazeVec
from rlbench.envs.tabular import evaluate_policy, model_of, solve, tabulate
from rlbench.training.trainer import Trainer, load

IDS = ["rlbench/DynaMaze-v0", "rlbench/BlockingMaze-v0", "rlbench/ShortcutMaze-v0", "rlbench/BairdStar-v0"]
SOON = dict(rows=OPEN_RIGHT, later=OPEN_LEFT, change=70)  # the blocking maze, early enough for a test


@pytest.mark.parametrize("id", IDS)
def test_gymnasiums_rules_and_being_put_back(id):
    table = check_env(id)
    assert table[0][1].startswith("yes") and table[2][1] == "yes"


@pytest.mark.parametrize("rows,length", [(DYNA, 14), (OPEN_RIGHT, 10), (OPEN_LEFT, 16), (OPEN_BOTH, 10)])
def test_the_shortest_ways_are_the_books(rows, length):
    model = model_of(Maze(rows))
    assert solve(model, .95)[0] @ model.start == pytest.approx(.95**(length - 1))


def test_a_maze_that_does_not_change_is_a_grid_world():
    maze, grid = Maze(DYNA), GridWorld(DYNA)
    same_model = zip(vars(model_of(maze)).values(), vars(model_of(grid)).values())
    assert all(np.array_equal(a, b) for a, b in same_model)
    assert model_of(make("rlbench/DynaMaze-v0", 1).single) is not None
    assert model_of(make("rlbench/BlockingMaze-v0", 1).single) is None


SHORTCUTS = [dict(rows=OPEN_LEFT, later=OPEN_BOTH, change=change) for change in (0, 40)]


@pytest.mark.parametrize("settings", [dict(rows=DYNA), SOON, *SHORTCUTS])
def test_the_vector_form_is_the_single_form(settings):
    one = Maze(**settings)
    vec = MazeVec(1, **settings)
    rng = np.random.default_rng(0)
    assert one.reset(seed=0)[0] == vec.reset(seed=0)[0][0]
    ends = 0
    for _ in range(6000):
        act = rng.choice(4, p=[.3, .3, .2, .2])  # tends to the goal, which is at the top right
        obs, rew, term, *_ = one.step(act)
        many = vec.step(np.array([act]))
        assert (obs, rew, term) == (many[0][0], many[1][0], many[2][0])
        if term:
            ends += 1
            again, _ = vec.reset(options=dict(reset_mask=np.array([True])))
            assert one.reset()[0] == again[0]
    assert ends > 3
    assert one.lifetime == (vec.lifetime if "change" in settings else None)


def test_copies_do_not_touch():
    vec = make("rlbench/DynaMaze-v0", 5, copies=5)
    obs = vec.reset(0)[AGENT]
    size = 7 * 9
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(obs // size, np.arange(5))
    alone = MazeVec(5, rows=DYNA)
    alone.reset(seed=0)
    for _ in range(500):
        act = rng.integers(4, size=5)
        step = vec.step({AGENT: act})[AGENT]
        seen, rew, term, *_ = alone.step(act)
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
    door = dict(rows="S.G", later="S#G", change=1)
    right, left = 1, 3
    for maze, action in ((Maze(**door), int), (MazeVec(1, **door), lambda act: np.array([act]))):
        maze.reset(seed=0)
        assert np.asarray(maze.step(action(right))[0]).item() == 1
        assert np.asarray(maze.step(action(left))[0]).item() == 0
        assert np.asarray(maze.step(action(right))[0]).item() == 0


def test_falling_off_a_cliff_to_one_of_several_starts_is_chance():
    cliff = "SCG"
    assert MazeVec(2, rows=cliff).reset(seed=0)[0].tolist() == [0, 0]
    with pytest.raises(ValueError, match="more than one thing may follow action 1 in state 0"):
        MazeVec(2, rows=cliff, copies=2)


@pytest.mark.parametrize("wrong,told", [
    (dict(later=OPEN_LEFT), "got only a map for later; the map and the step of the change go together"),
    (dict(change=5), "got only change=5"),
    (dict(later="S.G", change=5), "must have the same size and starts; got sizes .*6, 9.*1, 3"),
    (dict(later=OPEN_LEFT.replace("S.", ".S"), change=5), r"starts in cells \(\[48\], \[49\]\)")])
def test_layouts_that_do_not_belong_together(wrong, told):
    with pytest.raises(ValueError, match=told):
        Maze(OPEN_RIGHT, **wrong)


def test_a_picture_of_a_cell_shows_a_layout_where_one_can_stand():
    maze = Maze(OPEN_RIGHT, later=OPEN_LEFT, change=1000, render_mode="rgb_array")
    maze.reset(seed=0)
    at_first = maze.render()
    maze.place(27)  # row 3, column 0: a wall at first
    assert maze.rows[3][0] == "."
    assert maze.render().shape == at_first.shape
    with pytest.raises(ValueError, match="no state 54"):
        maze.place(54)
    maze.reset(seed=0)
    np.testing.assert_array_equal(maze.render(), at_first)
    vec = make("rlbench/BlockingMaze-v0", 2, copies=2)
    vec.reset(0)
    assert vec.render().shape == vec.frame_of(27).shape == vec.frame_of(63 + 27).shape


@pytest.mark.parametrize("num_envs,native", [(1, True), (3, True), (3, False)])
@pytest.mark.parametrize("algo", ["qlearning", "dqn"])
def test_a_run_continues_on_the_other_side_of_the_change(tmp_path, num_envs, native, algo):
    settings = dict(num_envs=num_envs, native=native, env_settings=SOON | dict(max_episode_steps=30))
    more = dict(learning_starts=40, batch_size=8, hidden=(8,)) if algo == "dqn" else {}
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
    star = gym.make("rlbench/BairdStar-v0").unwrapped
    star.reset(seed=0)
    rng = np.random.default_rng(0)
    count = np.zeros(7)
    steps = 7000
    for _ in range(steps):
        obs, rew, term, trunc, _ = star.step(int(rng.random() < 1 / 7))
        assert rew == 0 and not term and not trunc
        count[np.abs(STAR - obs).sum(1).argmin()] += 1
    off = abs(count / steps - 1 / 7).max()
    assert off < 5 * np.sqrt(1 / 7 * 6 / 7 / steps)  # draws are independent here
    assert np.linalg.matrix_rank(STAR) == 7  # so the true values can be represented


def test_always_solid_is_worth_nothing_and_stays_below():
    dashed = [(1 / 6, to, 0., False) for to in range(6)]
    solid = [(1., 6, 0., False)]
    model = tabulate({s: {0: dashed, 1: solid} for s in range(7)}, np.full(7, 1 / 7))
    assert (evaluate_policy(model, np.eye(2)[[1] * 7], .99) == 0).all()
    star = gym.make("rlbench/BairdStar-v0").unwrapped
    star.reset(seed=0)
    for state in range(7):
        star.place(STAR[state])
        assert star.state == state
        assert star.step(1)[0].tolist() == STAR[6].tolist()
