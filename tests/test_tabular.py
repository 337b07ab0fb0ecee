"Grid worlds, exact models and probes: what must stay true"
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlbench.envs import probes, tabular
from rlbench.envs.probes import PROBES, Probe
from rlbench.envs.tabular import (LAYOUTS, LIMITS, MOVES, GridWorld, Model, evaluate_policy, land, model_of, register_envs,
                                  solve, tabulate)

GRIDS = [f"rlbench/{name}-v0" for name in LAYOUTS]


def uniform(model): return np.full(model.R.shape, 1 / model.R.shape[1])

def truth_at_start(env, gamma):
    model = model_of(env)
    return float(model.start @ solve(model, gamma)[0])


# ---- the rules of gymnasium --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("id", [*GRIDS, *(row["id"] for row in PROBES.values())])
def test_gymnasium_checker(id):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(gym.make(id).unwrapped)

@pytest.mark.parametrize("name", [n for n, row in PROBES.items() if row["actions"] == "either"])
@pytest.mark.parametrize("how", [dict(tabular=True), dict(continuous=True), dict(tabular=True, continuous=True)])
def test_checker_on_probe_variants(name, how):
    check_env(gym.make(PROBES[name]["id"], **how).unwrapped, skip_render_check=True)

def test_checker_is_silent_on_grids():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for id in GRIDS: check_env(gym.make(id, render_mode="rgb_array").unwrapped)

def test_registering_twice_changes_nothing():
    before = dict(gym.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_envs()
        probes.register_probes()
    assert dict(gym.registry) == before

@pytest.mark.parametrize("name", LAYOUTS)
def test_time_limits(name):
    env = gym.make(f"rlbench/{name}-v0")
    assert env.spec.max_episode_steps == LIMITS[name]

def test_plain_gymnasium_finds_the_ids_by_module_name():
    assert gym.make("rlbench.envs.tabular:rlbench/CliffWalk-v0").unwrapped.shape == (4, 12)

def test_keyword_overrides_do_not_leak_into_the_registry():
    gym.make("rlbench/CliffWalk-v0", slip=.5)
    assert gym.make("rlbench/CliffWalk-v0").unwrapped.slip == 0


# ---- exact numbers -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("id, gamma, want, settings", [
    ("FrozenLake-v1", .99, .542026, {}), ("FrozenLake-v1", .95, .180472, {}), ("FrozenLake-v1", 1., 14 / 17, {}),
    ("FrozenLake-v1", .99, .950990, dict(is_slippery=False)), ("FrozenLake-v1", .95, .773781, dict(is_slippery=False)),
    ("FrozenLake8x8-v1", .99, .414640, {}), ("CliffWalking-v1", 1., -13, {}), ("CliffWalking-v1", .99, -12.247898, {}),
    ("CliffWalkingSlippery-v1", 1., -64.709176, {}), ("CliffWalkingSlippery-v1", .99, -46.352672, {}),
    ("Taxi-v4", 1., 7.93, {}), ("Taxi-v4", .99, 6.327464, {}), ("Taxi-v4", .95, 1.729930, {}),
    ("rlbench/CliffWalk-v0", 1., -13, {}), ("rlbench/CliffWalk-v0", .99, -12.247898, {}), ("rlbench/CliffWalk-v0", 1., -13, dict(stay=True)),
    ("rlbench/WindyGrid-v0", 1., -15, {}), ("rlbench/WindyGrid-v0", 1., -7, dict(moves=8)),
    ("rlbench/WindyGrid-v0", 1., -7, dict(moves=8, stay=True)), ("rlbench/FourRooms-v0", 1., 1., {}),
    ("rlbench/FrozenLake-v0", .99, .542026, {}), ("rlbench/FrozenLake-v0", 1., 14 / 17, {})])
def test_optimal_value_at_the_start(id, gamma, want, settings):
    assert truth_at_start(gym.make(id, **settings), gamma) == pytest.approx(want, abs=1e-6)

def test_frozen_lake_rows():
    val, _ = solve(model_of(gym.make("FrozenLake-v1")), .99)
    want = [.5420, .4988, .4707, .4569, .5585, 0, .3583, 0, .5918, .6431, .6152, 0, 0, .7417, .8628, 0]
    assert val == pytest.approx(want, abs=5e-5)

def test_taxi_range_over_starts():
    model = model_of(gym.make("Taxi-v4"))
    val = solve(model, 1.)[0][model.start > 0]
    assert (len(val), val.min(), val.max()) == (300, pytest.approx(3), pytest.approx(15))

def test_our_lake_is_gymnasiums():
    ours, theirs = model_of(gym.make("rlbench/FrozenLake-v0")), model_of(gym.make("FrozenLake-v1"))
    order = [3, 2, 1, 0]                                        # theirs: left, down, right, up
    for name in ("P", "R"): assert np.allclose(getattr(ours, name), getattr(theirs, name)[:, order], atol=1e-12)
    for name in ("term", "start"): assert np.array_equal(getattr(ours, name), getattr(theirs, name))

def test_our_cliff_is_gymnasiums_where_anybody_can_be():
    ours, theirs = model_of(gym.make("rlbench/CliffWalk-v0")), model_of(gym.make("CliffWalking-v1"))
    live = ours.live
    assert np.array_equal(live, theirs.live)
    assert np.array_equal(ours.P[live], theirs.P[live]) and np.array_equal(ours.R[live], theirs.R[live])

def test_slippery_cliff_is_gymnasiums():
    ours = model_of(gym.make("rlbench/CliffWalk-v0", slip=2 / 3))
    assert float(ours.start @ solve(ours, 1.)[0]) == pytest.approx(-64.709176, abs=1e-6)

def gridworld_of_chapter_3():
    "S&B figure 3.2: four moves, off the grid costs 1, A jumps to A' for 10, B to B' for 5"
    jump = {1: (21, 10.), 3: (13, 5.)}
    table = {}
    for s in range(25):
        row, col = divmod(s, 5)
        table[s] = {}
        for a, (dr, dc) in enumerate(list(MOVES.values())[:4]):
            inside = 0 <= row + dr < 5 and 0 <= col + dc < 5
            to, rew = jump.get(s, ((row + dr) * 5 + col + dc, 0.) if inside else (s, -1.))
            table[s][a] = [(1., to, rew, False)]
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
    for _ in range(100): val = (model.R + model.P @ np.where(model.term, 0, val)).max(1)
    assert val[0] == pytest.approx(.744190, abs=1e-6)


# ---- gamma = 1 ---------------------------------------------------------------------------------------------------------

def test_a_free_circle_does_not_keep_the_solver_from_the_goal():
    val, q = solve(GridWorld("S.......G").model(), 1.)
    assert val == pytest.approx([1] * 8 + [0]) and q[0] == pytest.approx([1, 1, 1, 1])

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
    policy = np.eye(4)[[1, 1, 0]]                                                      # right, right, then up against the border
    assert evaluate_policy(model, policy, 1.).tolist() == [5, 0, 0]

def test_policies_near_improper_agree_with_the_limit():
    model = GridWorld("S..G ....", step=-1, rewards=dict(G=-1)).model()
    for share in (.01, .3):
        policy = np.full((8, 4), share / 3)
        policy[:, 1] = 1 - share
        assert evaluate_policy(model, policy, 1.) == pytest.approx(evaluate_policy(model, policy, 1 - 1e-10), rel=1e-5)

def test_no_finite_answer_says_so():
    with pytest.raises(ValueError, match="from state 0 no sequence of actions ends"): solve(GridWorld("S..#G", step=-1).model(), 1.)
    with pytest.raises(ValueError, match="pays for ever"): solve(GridWorld("S..G", step=1).model(), 1.)
    assert solve(GridWorld("S..#G").model(), 1.)[0].tolist() == [0] * 5
    assert np.isfinite(solve(GridWorld("S..#G", step=-1).model(), .9)[0]).all()

def test_walled_off_pockets_do_not_matter():
    val, q = solve(GridWorld("S.G#. ...#.", step=-1).model(), 1.)
    assert val[4] == val[9] == 0 and val[0] == pytest.approx(-1 + 1) and not q[4].any()

@pytest.mark.parametrize("bad", [-.1, 1.1, np.nan])
def test_gamma_out_of_range(bad):
    with pytest.raises(ValueError, match="gamma"): evaluate_policy(GridWorld("S.G").model(), np.full((3, 4), .25), bad)


# ---- random maps -------------------------------------------------------------------------------------------------------

@st.composite
def worlds(draw):
    height, width = draw(st.integers(1, 5)), draw(st.integers(2, 6))
    cells = draw(st.lists(st.sampled_from("....#HC2"), min_size=height * width, max_size=height * width))
    spots = draw(st.permutations(range(height * width)))
    cells[spots[0]], cells[spots[1]] = "S", "G"
    if draw(st.booleans()) and len(spots) > 2: cells[spots[2]] = "S"
    rows = ["".join(cells[r * width:(r + 1) * width]) for r in range(height)]
    wind = draw(st.none() | st.lists(st.integers(-2, 2), min_size=width, max_size=width))
    return GridWorld(rows, step=draw(st.sampled_from([0., -1., -.04])), rewards={"2": 2.} if any("2" in r for r in rows) else None,
                     slip=draw(st.sampled_from([0., .2, 2 / 3, 1.])), wind=wind, moves=draw(st.sampled_from([4, 8])), stay=draw(st.booleans()))

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)

@quick
@given(worlds())
def test_models_are_stochastic_and_closed(world):
    model = world.model()
    assert np.allclose(model.P.sum(2), 1) and (model.P >= 0).all() and model.start.sum() == pytest.approx(1)
    assert not model.reached[world.blocked].any()                                     # nobody is ever in a wall or on a cliff
    assert not (model.P[model.live][:, :, ~model.reached] > 0).any()                  # and nobody leaves what can be reached
    assert (model.R[model.term] == 0).all() and np.allclose(model.P[model.term][:, :, model.term].sum(2), 1)

@quick
@given(worlds(), st.sampled_from([.5, .9, .99]))
def test_solutions_satisfy_bellman(world, gamma):
    model = world.model()
    val, q = solve(model, gamma)
    live = model.live
    assert q[live] == pytest.approx((model.R + gamma * model.P @ val)[live], abs=1e-9)
    assert q[live].max(1) == pytest.approx(val[live], abs=1e-6)
    by_sweeps = np.zeros(len(val))
    for _ in range(int(12 / -np.log10(gamma)) + 10): by_sweeps[live] = (model.R + gamma * model.P @ by_sweeps).max(1)[live]
    assert val == pytest.approx(by_sweeps, abs=1e-5)
    assert (evaluate_policy(model, uniform(model), gamma) <= val + 1e-6).all()

@quick
@given(worlds(), st.integers(0, 1000))
def test_a_walk_stays_where_the_model_says(world, seed):
    model, rng = world.model(), np.random.default_rng(seed)
    obs, _ = world.reset(seed=seed)
    assert model.start[obs] > 0
    for act in rng.integers(world.action_space.n, size=60).tolist():
        next_obs, rew, ended, cut, _ = world.step(act)
        assert model.P[obs, act, next_obs] > 0 and ended == model.term[next_obs] and not cut
        assert next_obs in world.observation_space and isinstance(rew, float)
        obs = world.reset()[0] if ended else next_obs

@quick
@given(worlds())
def test_undiscounted_solutions_where_they_exist(world):
    model = world.model()
    try: val, q = solve(model, 1.)
    except ValueError as problem:
        assert "gamma" in str(problem)
        return
    near, _ = solve(model, 1 - 1e-7)
    assert val == pytest.approx(near, rel=1e-3, abs=1e-3)


# ---- the environment against its model ---------------------------------------------------------------------------------

def test_twenty_thousand_steps_agree_with_the_model():
    world = GridWorld(".S..G .#.H. C...S", slip=.3, wind=(0, 1, 0, -1, 0))
    model, rng = world.model(), np.random.default_rng(0)
    count, paid = np.zeros(model.P.shape), np.zeros(model.R.shape)
    obs, _ = world.reset(seed=0)
    for act in rng.integers(4, size=20_000).tolist():
        next_obs, rew, ended, *_ = world.step(act)
        count[obs, act, next_obs] += 1
        paid[obs, act] += rew
        obs = world.reset()[0] if ended else next_obs
    tried = count.sum(2)
    expected = tried[:, :, None] * model.P
    enough = expected >= 5
    assert (count[model.P == 0] == 0).all()
    chi2 = ((count - expected)[enough]**2 / expected[enough]).sum()
    freedom = enough.sum() - (enough.any(2)).sum()
    assert abs(chi2 - freedom) < 4 * np.sqrt(2 * freedom), (chi2, freedom)
    mean, often = paid / np.maximum(tried, 1), tried > 200
    assert (np.abs(mean - model.R)[often] <= 5 * 100 * .5 / np.sqrt(tried[often])).all()

def test_pick_keeps_the_exact_shares():
    outcomes = [(.1, "a"), (.2, "b"), (.7, "c")]
    grid = (np.arange(1000) + .5) / 1000
    assert np.unique([tabular.pick(outcomes, u)[1] for u in grid], return_counts=True)[1].tolist() == [100, 200, 700]
    assert tabular.pick(outcomes, 1.)[1] == "c"

def test_starts_are_drawn_evenly():
    world = GridWorld("SS.SG")
    world.reset(seed=3)
    seen = np.bincount([world.reset()[0] for _ in range(3000)], minlength=5)
    assert seen[[2, 4]].sum() == 0 and abs(seen[[0, 1, 3]] - 1000).max() < 120

def test_slip_is_to_the_side():
    world = GridWorld("..... ..... ..S.G", slip=.4)
    around = {(1, 2): .6, (2, 1): .2, (2, 3): .2}
    assert {world.cell(s): round(p, 12) for p, s, *_ in world.P[world.number(2, 2)][0]} == around
    king = GridWorld("..... ..S.. ....G", slip=.4, moves=8, stay=True)
    at = king.number(1, 2)
    assert {king.cell(s): round(p, 12) for p, s, *_ in king.P[at][4]} == {(0, 3): .6, (0, 1): .2, (2, 3): .2}
    assert king.P[at][8] == [(1., at, 0., False)]                                      # to stay is safe
    assert all(len(world.P[s][a]) == 1 for world in [GridWorld("S.. ..G")] for s in range(6) for a in range(4))

def test_wind_is_the_textbooks_without_walls():
    rows = [[*"." * 10]] * 7
    for row in range(7):
        for col in range(10):
            for wind in (-2, 0, 1, 2):
                for down, right in MOVES.values():
                    clipped = min(max(row + down - wind, 0), 6), min(max(col + right, 0), 9)
                    assert land(rows, (row, col), (down, right), wind) == clipped

def test_cliff_goes_back_to_any_start_and_does_not_end():
    world = GridWorld("SC.G S...", rewards=dict(C=-7))
    assert sorted(world.P[0][1]) == [(.5, 0, -7., False), (.5, 4, -7., False)]

def test_rewards_and_letters():
    world = GridWorld("S2.H G3..", step=-.5, rewards={"2": 2, "3": 3, "H": -9})
    pay = {(s, name): world.P[s][a][0][2] for s in (0, 1, 2) for a, name in enumerate(world.actions)}
    assert (pay[0, "right"], pay[1, "up"], pay[1, "down"], pay[2, "right"], pay[0, "down"], pay[0, "left"]) == (2, 2, 3, -9, 1, -.5)


# ---- determinism and placing -------------------------------------------------------------------------------------------

def play(env, seed, actions): return [env.reset(seed=seed)[0], *(env.step(a)[:3] for a in actions)]

def test_seed_and_actions_determine_everything():
    actions = np.random.default_rng(1).integers(4, size=80).tolist()
    settings = dict(rows="S..S ..#. H..S ...G", slip=.5)
    one, two = GridWorld(**settings), GridWorld(**settings)
    play(two, 99, actions[:13])                                                        # another past
    for seed in range(5): assert play(one, seed, actions) == play(two, seed, actions)
    assert play(one, 0, actions) != play(one, 1, actions)

def test_a_pickled_world_goes_on_alike():
    world = gym.make("rlbench/FrozenLake-v0", render_mode="rgb_array")
    world.reset(seed=0)
    world.render()
    twin = pickle.loads(pickle.dumps(world))
    assert [world.step(1)[:3] for _ in range(3)] == [twin.step(1)[:3] for _ in range(3)]

@pytest.mark.parametrize("name", PROBES)
def test_probes_are_plain_data(name):
    probe = gym.make(PROBES[name]["id"]).unwrapped
    probe.reset(seed=0)
    twin = pickle.loads(pickle.dumps(probe))
    act = probe.action_space.sample()
    for one, other in zip(probe.step(act), twin.step(act)): assert np.array_equal(one, other)

def test_place():
    world = GridWorld("S.# .CG")
    world.reset(seed=0)
    assert world.place(np.int64(1)) == 1 == world.state and world.step(3)[0] == 0
    assert world.place(5) == 5
    for bad, where in ((2, "row 0, column 2: it is a wall"), (4, "row 1, column 1: it is a cliff"), (6, "0 … 5"), (-1, "no state -1")):
        with pytest.raises(ValueError, match=where): world.place(bad)

def test_pictures():
    world = GridWorld("S.. ..G", render_mode="rgb_array")
    world.reset(seed=0)
    first = world.render()
    world.step(1)
    second = world.render()
    assert first.dtype == np.uint8 and first.shape == (2 * world.size + 1, 3 * world.size + 1, 3)
    moved = (first != second).any((0, 2))
    assert moved[:2 * world.size].any() and not moved[2 * world.size + 1:].any()       # only the two cells of the agent changed
    text = GridWorld("S.. ..G", render_mode="ansi")
    text.reset(seed=0)
    assert text.render() == "@..\n..G" and GridWorld("S.G").render() is None


# ---- model_of ----------------------------------------------------------------------------------------------------------

def test_wrappers_that_change_the_task_hide_the_model():
    class Half(gym.RewardWrapper):
        def reward(self, rew): return rew / 2
    lake = gym.make("FrozenLake-v1")
    assert isinstance(model_of(gym.wrappers.RecordEpisodeStatistics(lake)), Model)
    assert model_of(Half(lake)) is None

@pytest.mark.parametrize("id, settings", [("CartPole-v1", {}), ("Blackjack-v1", {}), ("Taxi-v4", dict(fickle_passenger=True))])
def test_unknown_models(id, settings): assert model_of(gym.make(id, **settings)) is None

def test_rainy_taxi_is_known():
    assert np.allclose(model_of(gym.make("Taxi-v4", is_rainy=True)).P.sum(2), 1)

def test_an_end_that_is_not_a_state():
    assert tabulate({0: {0: [(.5, 0, 0., False), (.5, 0, 1., True)]}}, [1]) is None
    assert tabulate({0: {0: [(1., 0, 1., True)]}}, [1]) is None                         # starts where it ends


# ---- errors ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("args, message", [
    (dict(rows="S.. .G"), "row 1 has 2 cells and row 0 has 3"), (dict(rows="S.x"), "unknown letter 'x' at row 0, column 2"),
    (dict(rows="..G"), "no start"), (dict(rows=[]), "map is empty"), (dict(rows="S.G", wind=[1]), "expected 3 whole numbers"),
    (dict(rows="S.G", wind=[0, .5, 0]), "whole numbers"), (dict(rows="S.G", slip=-1), "probability"), (dict(rows="S.G", moves=5), "moves is 4"),
    (dict(rows="S12G", rewards={"12": 1, "1": 1, "2": 1}), "rewards names '12'")])
def test_what_is_refused(args, message):
    with pytest.raises(ValueError, match=message): GridWorld(**args)

def test_policy_of_the_wrong_shape():
    model = GridWorld("S.G").model()
    for policy in (np.zeros(3, int), np.zeros((3, 4)), np.full((2, 4), .25)):
        with pytest.raises(ValueError, match=r"\(3, 4\)"): evaluate_policy(model, policy, .9)


# ---- probes ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("gamma", [0., .5, .99])
def test_known_values_satisfy_bellman(name, gamma):
    probe = Probe(name)
    assert probe.known_q(gamma).max(1) == pytest.approx(probe.known_value(gamma))
    assert len(probe.seen) == len(probe.known_value(gamma))

@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("gamma", [.5, .9])
def test_known_values_are_what_the_best_actions_earn(name, gamma):
    "Returns of episodes played with the best action, against the formula; an episode that is cut goes on in the formula"
    env = gym.make(PROBES[name]["id"])
    inner = env.unwrapped
    for seed in range(8):
        obs, _ = env.reset(seed=seed)
        start, ret, scale, done = inner.state, 0., 1., False
        while not done:
            best = 0 if inner.best is None else inner.best[inner.state]
            obs, rew, term, trunc, _ = env.step(best if inner.action_space.shape == () else np.array([best], np.float32))
            ret, scale, done = ret + scale * rew, scale * gamma, term or trunc
        if not term: ret += scale * inner.known_value(gamma)[inner.state]
        assert ret == pytest.approx(inner.known_value(gamma)[start], abs=1e-6)

def test_probe_of_a_time_limit_is_only_cut():
    env = gym.make(PROBES["Endless"]["id"])
    env.reset(seed=0)
    flags = [env.step(1)[2:4] for _ in range(8)]
    assert flags == [(False, False)] * 7 + [(False, True)]

def test_staggered_lengths_differ_by_seed_and_are_reproducible():
    env = gym.make(PROBES["Staggered"]["id"], tabular=True)
    lengths = [env.reset(seed=s)[0] + 1 for s in range(40)]
    assert set(lengths) == {1, 2, 3, 4, 5} and lengths == [env.reset(seed=s)[0] + 1 for s in range(40)]

def test_probe_observations_are_not_shared():
    probe = Probe("Match")
    obs, _ = probe.reset(seed=0)
    obs[:] = 9
    assert (probe.seen != 9).all() and (PROBES["Match"]["seen"] != 9).all()

@pytest.mark.parametrize("name", PROBES)
def test_placing_a_probe(name):
    for tabular_too in (False, True):
        probe = Probe(name, tabular=tabular_too)
        for state, seen in enumerate(probe.seen):
            assert np.array_equal(probe.place(seen), seen) and probe.state == state

def test_probe_errors():
    with pytest.raises(ValueError, match="did you mean 'Match'"): Probe("match")
    with pytest.raises(ValueError, match="no continuous form"): gym.make("rlbench/Probe-Choice-v0", continuous=True)
    with pytest.raises(ValueError, match="never shows"): Probe("Constant").place([5.])

def test_nothing_is_left_undefined():
    assert set(tabular.__all__) >= {"GridWorld", "Model", "model_of", "solve", "evaluate_policy", "LAYOUTS", "register_envs", "Tabular"}
