"Grid worlds: what must stay true of their tables, their rules and their pictures"
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlbench.envs import grids
from rlbench.envs.grids import LAYOUTS, MOVES, GridWorld, land
from rlbench.envs.tabular import model_of, solve

IDS = [f"rlbench/{name}-v0" for name in LAYOUTS]
LIMITS = dict(CliffWalk=500, WindyGrid=1000, WindyKings=1000, FourRooms=500, FrozenLake=100)


# ---- the rules of gymnasium --------------------------------------------------------------------

@pytest.mark.parametrize("id", IDS)
def test_gymnasium_checker(id):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(gym.make(id).unwrapped)


def test_checker_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for id in IDS:
            check_env(gym.make(id, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("name", LAYOUTS)
def test_time_limits(name):
    assert gym.make(f"rlbench/{name}-v0").spec.max_episode_steps == LIMITS[name]


def test_plain_gymnasium_finds_the_ids_by_module_name():
    assert gym.make("rlbench.envs.grids:rlbench/CliffWalk-v0").unwrapped.shape == (4, 12)


def test_keyword_overrides_do_not_leak_into_the_registry():
    gym.make("rlbench/CliffWalk-v0", slip=.5)
    assert gym.make("rlbench/CliffWalk-v0").unwrapped.slip == 0


def test_nothing_is_left_undefined():
    assert set(grids.__all__) >= {"GridWorld", "LAYOUTS", "NamedGrid"}


# ---- the same worlds elsewhere -----------------------------------------------------------------

def test_our_lake_is_gymnasiums():
    ours = model_of(gym.make("rlbench/FrozenLake-v0"))
    theirs = model_of(gym.make("FrozenLake-v1"))
    order = [3, 2, 1, 0]                                        # theirs: left, down, right, up
    for name in ("P", "R"):
        assert np.allclose(getattr(ours, name), getattr(theirs, name)[:, order], atol=1e-12)
    for name in ("term", "start"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name))


def test_our_cliff_is_gymnasiums_where_anybody_can_be():
    ours = model_of(gym.make("rlbench/CliffWalk-v0"))
    theirs = model_of(gym.make("CliffWalking-v1"))
    live = ours.live
    assert np.array_equal(live, theirs.live)
    assert np.array_equal(ours.P[live], theirs.P[live])
    assert np.array_equal(ours.R[live], theirs.R[live])


def test_slippery_cliff_is_gymnasiums():
    ours = model_of(gym.make("rlbench/CliffWalk-v0", slip=2 / 3))
    assert float(ours.start @ solve(ours, 1.)[0]) == pytest.approx(-64.709176, abs=1e-6)


# ---- random maps -------------------------------------------------------------------------------

def drawn_map(draw):
    "Rows of a map with a goal and one or two starts"
    height = draw(st.integers(1, 5))
    width = draw(st.integers(2, 6))
    cells = draw(st.lists(st.sampled_from("....#HC2"), min_size=height * width, max_size=height * width))
    spots = draw(st.permutations(range(height * width)))
    cells[spots[0]] = "S"
    cells[spots[1]] = "G"
    if draw(st.booleans()) and len(spots) > 2:
        cells[spots[2]] = "S"
    return ["".join(cells[r * width:(r + 1) * width]) for r in range(height)]


@st.composite
def worlds(draw):
    rows = drawn_map(draw)
    width = len(rows[0])
    return GridWorld(rows,
                     wind=draw(st.none() | st.lists(st.integers(-2, 2), min_size=width, max_size=width)),
                     step=draw(st.sampled_from([0., -1., -.04])),
                     rewards={"2": 2.} if any("2" in row for row in rows) else None,
                     slip=draw(st.sampled_from([0., .2, 2 / 3, 1.])),
                     moves=draw(st.sampled_from([4, 8])),
                     stay=draw(st.booleans()))


quick = settings(max_examples=60, deadline=None, derandomize=True,
                 suppress_health_check=[HealthCheck.too_slow])


@quick
@given(worlds())
def test_models_are_stochastic_and_closed(world):
    model = world.model()
    assert np.allclose(model.P.sum(2), 1) and (model.P >= 0).all() and model.start.sum() == pytest.approx(1)
    assert not model.reached[world.blocked].any()                       # nobody is ever in a wall or on a cliff
    assert not (model.P[model.live][:, :, ~model.reached] > 0).any()    # and nobody leaves what can be reached
    assert (model.R[model.term] == 0).all()
    assert np.allclose(model.P[model.term][:, :, model.term].sum(2), 1)


@quick
@given(worlds(), st.integers(0, 1000))
def test_a_walk_stays_where_the_model_says(world, seed):
    model = world.model()
    rng = np.random.default_rng(seed)
    obs, _ = world.reset(seed=seed)
    assert model.start[obs] > 0
    for act in rng.integers(world.action_space.n, size=60).tolist():
        next_obs, rew, ended, cut, _ = world.step(act)
        assert model.P[obs, act, next_obs] > 0 and ended == model.term[next_obs] and not cut
        assert next_obs in world.observation_space and isinstance(rew, float)
        obs = world.reset()[0] if ended else next_obs


# ---- the environment against its model ---------------------------------------------------------

def counted(world, steps):
    "Transitions (S, A, S) and rewards (S, A) of a random walk, added up"
    model = world.model()
    count, paid = np.zeros(model.P.shape), np.zeros(model.R.shape)
    obs, _ = world.reset(seed=0)
    for act in np.random.default_rng(0).integers(4, size=steps).tolist():
        next_obs, rew, ended, _, _ = world.step(act)
        count[obs, act, next_obs] += 1
        paid[obs, act] += rew
        obs = world.reset()[0] if ended else next_obs
    return count, paid


def test_twenty_thousand_steps_agree_with_the_model():
    world = GridWorld(".S..G .#.H. C...S", slip=.3, wind=(0, 1, 0, -1, 0))
    model = world.model()
    count, paid = counted(world, steps=20_000)
    tried = count.sum(2)
    expected = tried[:, :, None] * model.P
    enough = expected >= 5
    assert (count[model.P == 0] == 0).all()

    chi2 = ((count - expected)[enough]**2 / expected[enough]).sum()
    freedom = enough.sum() - (enough.any(2)).sum()
    assert abs(chi2 - freedom) < 4 * np.sqrt(2 * freedom), (chi2, freedom)

    mean = paid / np.maximum(tried, 1)
    often = tried > 200
    assert (np.abs(mean - model.R)[often] <= 5 * 100 * .5 / np.sqrt(tried[often])).all()


def test_starts_are_drawn_evenly():
    world = GridWorld("SS.SG")
    world.reset(seed=3)
    seen = np.bincount([world.reset()[0] for _ in range(3000)], minlength=5)
    assert seen[[2, 4]].sum() == 0 and abs(seen[[0, 1, 3]] - 1000).max() < 120


# ---- slips, wind, cliffs, rewards --------------------------------------------------------------

def around(world, state, act):
    "Cell -> probability of coming there"
    return {world.cell(s): round(p, 12) for p, s, *_ in world.P[state][act]}


def test_slip_is_to_the_side():
    world = GridWorld("..... ..... ..S.G", slip=.4)
    assert around(world, world.number(2, 2), 0) == {(1, 2): .6, (2, 1): .2, (2, 3): .2}
    king = GridWorld("..... ..S.. ....G", slip=.4, moves=8, stay=True)
    at = king.number(1, 2)
    assert around(king, at, 4) == {(0, 3): .6, (0, 1): .2, (2, 3): .2}
    assert king.P[at][8] == [(1., at, 0., False)]                       # to stay is safe


def test_without_slips_nothing_is_left_to_chance():
    world = GridWorld("S.. ..G")
    assert all(len(world.P[s][a]) == 1 for s in range(6) for a in range(4))


@pytest.mark.parametrize("wind", [-2, 0, 1, 2])
def test_wind_is_the_textbooks_without_walls(wind):
    rows = [[*"." * 10]] * 7
    for row, col in np.ndindex(7, 10):
        for down, right in MOVES.values():
            clipped = min(max(row + down - wind, 0), 6), min(max(col + right, 0), 9)
            assert land(rows, (row, col), (down, right), wind) == clipped


def test_cliff_goes_back_to_any_start_and_does_not_end():
    world = GridWorld("SC.G S...", rewards=dict(C=-7))
    assert sorted(world.P[0][1]) == [(.5, 0, -7., False), (.5, 4, -7., False)]


@pytest.mark.parametrize("state, move, rew", [
    (0, "right", 2), (1, "up", 2), (1, "down", 3), (2, "right", -9), (0, "down", 1), (0, "left", -.5)])
def test_rewards_and_letters(state, move, rew):
    world = GridWorld("S2.H G3..", step=-.5, rewards={"2": 2, "3": 3, "H": -9})
    assert world.P[state][world.actions.index(move)][0][2] == rew


# ---- determinism and placing -------------------------------------------------------------------

def play(env, seed, actions):
    "The first observation and what followed the actions"
    first, _ = env.reset(seed=seed)
    return [first, *(env.step(act)[:3] for act in actions)]


def test_seed_and_actions_determine_everything():
    actions = np.random.default_rng(1).integers(4, size=80).tolist()
    settings = dict(rows="S..S ..#. H..S ...G", slip=.5)
    one, two = GridWorld(**settings), GridWorld(**settings)
    play(two, 99, actions[:13])                                         # another past
    for seed in range(5):
        assert play(one, seed, actions) == play(two, seed, actions)
    assert play(one, 0, actions) != play(one, 1, actions)


def test_a_pickled_world_goes_on_alike():
    world = gym.make("rlbench/FrozenLake-v0", render_mode="rgb_array")
    world.reset(seed=0)
    world.render()
    twin = pickle.loads(pickle.dumps(world))
    assert [world.step(1)[:3] for _ in range(3)] == [twin.step(1)[:3] for _ in range(3)]


def test_place():
    world = GridWorld("S.# .CG")
    world.reset(seed=0)
    assert world.place(np.int64(1)) == 1 == world.state and world.step(3)[0] == 0
    assert world.place(5) == 5


@pytest.mark.parametrize("state, message", [
    (2, "state 2: it is a wall"), (4, "state 4: it is a cliff"),
    (6, "0 … 5"), (-1, "no state -1")])
def test_where_nobody_can_be(state, message):
    with pytest.raises(ValueError, match=message):
        GridWorld("S.# .CG").place(state)


# ---- pictures ----------------------------------------------------------------------------------

def test_only_the_cells_of_the_agent_change():
    world = GridWorld("S.. ..G", render_mode="rgb_array")
    world.reset(seed=0)
    first = world.render()
    world.step(1)
    second = world.render()
    assert first.dtype == np.uint8 and first.shape == (2 * world.size + 1, 3 * world.size + 1, 3)
    moved = (first != second).any((0, 2))
    assert moved[:2 * world.size].any() and not moved[2 * world.size + 1:].any()


def test_text():
    world = GridWorld("S.. ..G", render_mode="ansi")
    world.reset(seed=0)
    assert world.render() == "@..\n..G"
    assert GridWorld("S.G").render() is None


# ---- errors ------------------------------------------------------------------------------------

@pytest.mark.parametrize("args, message", [
    (dict(rows="S.. .G"), "row 1 has 2 cells and row 0 has 3"),
    (dict(rows="S.x"), "unknown letter 'x' at row 0, column 2"),
    (dict(rows="..G"), "no start"),
    (dict(rows=[]), "map is empty"),
    (dict(rows="S.G", wind=[1]), "expected 3 whole numbers"),
    (dict(rows="S.G", wind=[0, .5, 0]), "whole numbers"),
    (dict(rows="S.G", slip=-1), "probability"),
    (dict(rows="S.G", moves=5), "moves is 4"),
    (dict(rows="S12G", rewards={"12": 1, "1": 1, "2": 1}), "rewards names '12'")])
def test_what_is_refused(args, message):
    with pytest.raises(ValueError, match=message):
        GridWorld(**args)
