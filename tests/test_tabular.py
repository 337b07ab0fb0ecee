"Tables, exact models and their solutions: what must stay true"
import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbench.envs import tabular
from rlbench.envs.grids import MOVES, GridWorld
from rlbench.envs.tabular import Model, evaluate_policy, model_of, solve, tabulate
from tests.test_grids import quick, worlds


def uniform(model):
    return np.full(model.R.shape, 1 / model.R.shape[1])


def test_nothing_is_left_undefined():
    assert set(tabular.__all__) >= {"Model", "model_of", "solve", "evaluate_policy", "Tabular"}


# ---- exact numbers -----------------------------------------------------------------------------

@pytest.mark.parametrize("id, gamma, want, settings", [
    ("FrozenLake-v1", .99, .542026, {}),
    ("FrozenLake-v1", .95, .180472, {}),
    ("FrozenLake-v1", 1., 14 / 17, {}),
    ("FrozenLake-v1", .99, .950990, dict(is_slippery=False)),
    ("FrozenLake-v1", .95, .773781, dict(is_slippery=False)),
    ("FrozenLake8x8-v1", .99, .414640, {}),
    ("CliffWalking-v1", 1., -13, {}),
    ("CliffWalking-v1", .99, -12.247898, {}),
    ("CliffWalkingSlippery-v1", 1., -64.709176, {}),
    ("CliffWalkingSlippery-v1", .99, -46.352672, {}),
    ("Taxi-v4", 1., 7.93, {}),
    ("Taxi-v4", .99, 6.327464, {}),
    ("Taxi-v4", .95, 1.729930, {}),
    ("rlbench/CliffWalk-v0", 1., -13, {}),
    ("rlbench/CliffWalk-v0", .99, -12.247898, {}),
    ("rlbench/CliffWalk-v0", 1., -13, dict(stay=True)),
    ("rlbench/WindyGrid-v0", 1., -15, {}),
    ("rlbench/WindyGrid-v0", 1., -7, dict(moves=8)),
    ("rlbench/WindyGrid-v0", 1., -7, dict(moves=8, stay=True)),
    ("rlbench/FourRooms-v0", 1., 1., {}),
    ("rlbench/FrozenLake-v0", .99, .542026, {}),
    ("rlbench/FrozenLake-v0", 1., 14 / 17, {})])
def test_optimal_value_at_the_start(id, gamma, want, settings):
    model = model_of(gym.make(id, **settings))
    val, _ = solve(model, gamma)
    assert float(model.start @ val) == pytest.approx(want, abs=1e-6)


def test_frozen_lake_rows():
    val, _ = solve(model_of(gym.make("FrozenLake-v1")), .99)
    want = [.5420, .4988, .4707, .4569,
            .5585, 0, .3583, 0,
            .5918, .6431, .6152, 0,
            0, .7417, .8628, 0]
    assert val == pytest.approx(want, abs=5e-5)


def test_taxi_range_over_starts():
    model = model_of(gym.make("Taxi-v4"))
    val = solve(model, 1.)[0][model.start > 0]
    assert (len(val), val.min(), val.max()) == (300, pytest.approx(3), pytest.approx(15))


JUMPS = {1: (21, 10.), 3: (13, 5.)}     # A to A' for 10, B to B' for 5


def chapter_3(s, move):
    "S&B figure 3.2: (next state, reward); off the grid costs 1"
    if s in JUMPS: return JUMPS[s]
    row, col = np.add(divmod(s, 5), move).tolist()
    inside = 0 <= row < 5 and 0 <= col < 5
    return (row * 5 + col, 0.) if inside else (s, -1.)


def gridworld_of_chapter_3():
    moves = list(MOVES.values())[:4]
    table = {}
    for s in range(25):
        table[s] = {a: [(1., *chapter_3(s, move), False)] for a, move in enumerate(moves)}
    return tabulate(table, np.full(25, 1 / 25))


def test_sutton_barto_figures_3_2_and_3_5():
    model = gridworld_of_chapter_3()
    val = evaluate_policy(model, uniform(model), .9)
    assert val[:5] == pytest.approx([3.309, 8.789, 4.428, 5.322, 1.492], abs=5e-4)
    assert val[20:] == pytest.approx([-1.858, -1.345, -1.229, -1.423, -1.975], abs=5e-4)
    best, _ = solve(model, .9)
    assert best[:5] == pytest.approx([21.978, 24.419, 21.978, 19.419, 17.478], abs=1e-3)
    assert best[20:] == pytest.approx([14.419, 16.022, 14.419, 12.978, 11.680], abs=1e-3)


def test_random_walk_19_states():
    model = GridWorld("H.........S.........G", rewards=dict(H=-1)).model()
    assert evaluate_policy(model, uniform(model), 1.)[1:20] == pytest.approx(np.arange(-9, 10) / 10)


def test_best_success_within_the_time_limit():
    "0.744190 within 100 steps; the model knows no limit, so this is 100 sweeps by hand"
    model = model_of(gym.make("FrozenLake-v1"))
    val = np.zeros(16)
    for _ in range(100):
        val = (model.R + model.P @ np.where(model.term, 0, val)).max(1)
    assert val[0] == pytest.approx(.744190, abs=1e-6)


# ---- gamma = 1 ---------------------------------------------------------------------------------

def test_a_free_circle_does_not_keep_the_solver_from_the_goal():
    val, q = solve(GridWorld("S.......G").model(), 1.)
    assert val == pytest.approx([1] * 8 + [0])
    assert q[0] == pytest.approx([1, 1, 1, 1])


def test_improper_policies():
    model = GridWorld("S..G ....", step=-1, rewards=dict(G=-1)).model()
    right = np.zeros((8, 4))
    right[:, 1] = 1
    val = evaluate_policy(model, right, 1.)
    assert val.tolist() == [-3, -2, -1, 0, -np.inf, -np.inf, -np.inf, -np.inf]
    assert np.isfinite(evaluate_policy(model, right, .999)).all()

    pays = GridWorld("S..G ....", step=1).model()
    assert evaluate_policy(pays, right, 1.)[4] == np.inf
    free = GridWorld("S..G ....").model()
    assert evaluate_policy(free, right, 1.).tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_a_payment_before_a_free_circle_is_kept():
    model = GridWorld("S2.", rewards={"2": 5}).model()
    policy = np.eye(4)[[1, 1, 0]]                                       # right, right, then up against the border
    assert evaluate_policy(model, policy, 1.).tolist() == [5, 0, 0]


@pytest.mark.parametrize("share", [.01, .3])
def test_policies_near_improper_agree_with_the_limit(share):
    model = GridWorld("S..G ....", step=-1, rewards=dict(G=-1)).model()
    policy = np.full((8, 4), share / 3)
    policy[:, 1] = 1 - share
    nearly = evaluate_policy(model, policy, 1 - 1e-10)
    assert evaluate_policy(model, policy, 1.) == pytest.approx(nearly, rel=1e-5)


@pytest.mark.parametrize("rows, step, message", [
    ("S..#G", -1, "from state 0 no sequence of actions ends"),
    ("S..G", 1, "pays for ever")])
def test_no_finite_answer_says_so(rows, step, message):
    with pytest.raises(ValueError, match=message):
        solve(GridWorld(rows, step=step).model(), 1.)


def test_where_nothing_ends_and_an_answer_exists():
    assert solve(GridWorld("S..#G").model(), 1.)[0].tolist() == [0] * 5
    assert np.isfinite(solve(GridWorld("S..#G", step=-1).model(), .9)[0]).all()


def test_walled_off_pockets_do_not_matter():
    val, q = solve(GridWorld("S.G#. ...#.", step=-1).model(), 1.)
    assert val[4] == val[9] == 0
    assert val[0] == pytest.approx(-1 + 1)
    assert not q[4].any()


# ---- random maps -------------------------------------------------------------------------------

@quick
@given(worlds(), st.sampled_from([.5, .9, .99]))
def test_solutions_satisfy_bellman(world, gamma):
    model = world.model()
    val, q = solve(model, gamma)
    live = model.live
    assert q[live] == pytest.approx((model.R + gamma * model.P @ val)[live], abs=1e-9)
    assert q[live].max(1) == pytest.approx(val[live], abs=1e-6)

    by_sweeps = np.zeros(len(val))
    for _ in range(int(12 / -np.log10(gamma)) + 10):
        by_sweeps[live] = (model.R + gamma * model.P @ by_sweeps).max(1)[live]
    assert val == pytest.approx(by_sweeps, abs=1e-5)
    assert (evaluate_policy(model, uniform(model), gamma) <= val + 1e-6).all()


@quick
@given(worlds())
def test_undiscounted_solutions_where_they_exist(world):
    model = world.model()
    try:
        val, _ = solve(model, 1.)
    except ValueError as problem:
        assert "gamma" in str(problem)
        return
    near, _ = solve(model, 1 - 1e-7)
    assert val == pytest.approx(near, rel=1e-3, abs=1e-3)


# ---- tables ------------------------------------------------------------------------------------

def test_pick_keeps_the_exact_shares():
    outcomes = [(.1, "a"), (.2, "b"), (.7, "c")]
    line = (np.arange(1000) + .5) / 1000
    picked = [tabular.pick(outcomes, u)[1] for u in line]
    assert np.unique(picked, return_counts=True)[1].tolist() == [100, 200, 700]
    assert tabular.pick(outcomes, 1.)[1] == "c"


def test_an_end_that_is_not_a_state():
    assert tabulate({0: {0: [(.5, 0, 0., False), (.5, 0, 1., True)]}}, [1]) is None
    assert tabulate({0: {0: [(1., 0, 1., True)]}}, [1]) is None         # starts where it ends


class Half(gym.RewardWrapper):
    "Another task"
    def reward(self, rew):
        return rew / 2


def test_wrappers_that_change_the_task_hide_the_model():
    lake = gym.make("FrozenLake-v1")
    assert isinstance(model_of(gym.wrappers.RecordEpisodeStatistics(lake)), Model)
    assert model_of(Half(lake)) is None


@pytest.mark.parametrize("id, settings", [
    ("CartPole-v1", {}), ("Blackjack-v1", {}), ("Taxi-v4", dict(fickle_passenger=True))])
def test_unknown_models(id, settings):
    assert model_of(gym.make(id, **settings)) is None


def test_rainy_taxi_is_known():
    assert np.allclose(model_of(gym.make("Taxi-v4", is_rainy=True)).P.sum(2), 1)


# ---- errors ------------------------------------------------------------------------------------

@pytest.mark.parametrize("bad", [-.1, 1.1, np.nan])
def test_gamma_out_of_range(bad):
    model = GridWorld("S.G").model()
    with pytest.raises(ValueError, match="gamma"):
        evaluate_policy(model, np.full((3, 4), .25), bad)
    with pytest.raises(ValueError, match="gamma"):
        solve(model, bad)


@pytest.mark.parametrize("policy", [np.zeros(3, int), np.zeros((3, 4)), np.full((2, 4), .25)])
def test_policy_of_the_wrong_shape(policy):
    with pytest.raises(ValueError, match=r"\(3, 4\)"):
        evaluate_policy(GridWorld("S.G").model(), policy, .9)
