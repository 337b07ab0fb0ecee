"""Exact planning against linear algebra, the textbook's printed answers, and the known optima of gymnasium's worlds."""
import copy
import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from rlbench.algos.planning import World, value_of
from rlbench.core.spaces import SpaceProblem, Spec
from rlbench.core.state import same
from rlbench.envs.grids import GridWorld
from rlbench.envs.problems import CarRental, Gambler
from rlbench.envs.tabular import evaluate_policy, model_of, solve
from rlbench.policies.exploration import chances
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer, load
from tests.test_grids import worlds

VALUES = ("value_iteration", {})
IN_PLACE = ("value_iteration", dict(batch_size=1))
SOLVED = ("policy_iteration", dict(solve=True))
WAYS = [VALUES, IN_PLACE, ("value_iteration", dict(batch_size=7)), ("policy_iteration", {}),
        ("policy_iteration", dict(batch_size=1)), ("policy_iteration", dict(sweeps=3)),
        ("policy_iteration", dict(sweeps=2, batch_size=5)), SOLVED]


def corners():
    return GridWorld("G... .S.. .... ...G", step=-1, rewards=dict(G=-1))


def planned(env, algo, most=200_000, **more):
    "A trainer whose plan is finished, without a step taken"
    trainer = Trainer(env, algo, **more)
    for _ in range(most):
        if trainer.settled:
            assert trainer.steps == 0
            return trainer
        trainer.advance()
    raise AssertionError(f"not settled after {most} events")


def val(trainer):
    return trainer.learner.nets.v.values[:, 0].numpy()


# ---- answers in print

@pytest.mark.parametrize("id, gamma, start, tolerance", [
    ("FrozenLake-v1", .99, .542026, 1e-6), ("FrozenLake-v1", .95, .180472, 1e-6), ("FrozenLake-v1", 1., 14 / 17, 1e-5),
    ("FrozenLake8x8-v1", .99, .414640, 1e-6), ("CliffWalking-v1", 1., -13, 1e-6),
    ("CliffWalking-v1", .99, -12.247898, 1e-6)])
@pytest.mark.parametrize("algo, more", [VALUES, SOLVED])
def test_known_optima(id, gamma, start, tolerance, algo, more):
    trainer = planned(id, algo, gamma=gamma, **more)
    state = trainer.env.single.unwrapped.initial_state_distrib.argmax()
    assert val(trainer)[state] == pytest.approx(start, abs=tolerance)


def test_the_whole_lake():
    rows = [.5420, .4988, .4707, .4569, .5585, 0, .3583, 0, .5918, .6431, .6152, 0, 0, .7417, .8628, 0]
    assert val(planned("FrozenLake-v1", "value_iteration", gamma=.99)) == pytest.approx(rows, abs=5e-5)


@pytest.mark.parametrize("gamma, mean, ends", [(1., 7.93, (3, 15)), (.99, 6.327464, None), (.95, 1.729930, None)])
def test_taxi(gamma, mean, ends):
    trainer = planned("Taxi-v4", "value_iteration", gamma=gamma)
    starts = val(trainer)[trainer.env.single.unwrapped.initial_state_distrib > 0]
    assert len(starts) == 300
    assert starts.mean() == pytest.approx(mean, abs=1e-6)
    if ends:
        assert (starts.min(), starts.max()) == pytest.approx(ends)


def test_a_policy_is_evaluated_in_double_precision():
    "At gamma .999 a policy rounded to single precision is .07 off"
    trainer = planned("Taxi-v4", "policy_iteration", gamma=.999, improve=False, solve=True)
    model = model_of(trainer.env.single)
    exact = evaluate_policy(model, np.full(model.R.shape, 1 / 6), .999)
    assert np.abs(val(trainer) - exact).max() < 1e-6


AGAINST = {25: .16, 50: .4, 51: .4031, 75: .64, 99: .9643}
STEEPLY = {50: .25, 75: .4375}
FOR = {50: 1., 10: .8656}       # a coin in your favour: the stakes differ by less than 1e-6, and games are long
COINS = [(.4, AGAINST, VALUES), (.4, AGAINST, IN_PLACE), (.4, AGAINST, SOLVED),
         (.25, STEEPLY, VALUES), (.25, STEEPLY, IN_PLACE), (.25, STEEPLY, SOLVED),
         (.55, FOR, VALUES), (.55, FOR, ("policy_iteration", dict(solve=True, theta=1e-12)))]


@pytest.mark.parametrize("heads, known, way", COINS)
def test_the_gambler(heads, known, way):
    algo, more = way
    found = val(planned("rlbench/Gambler-v0", algo, gamma=1., env_settings=dict(heads=heads), **more))
    for owned, chance in known.items():
        assert found[owned] == pytest.approx(chance, abs=5e-5)


def test_the_gamblers_stakes_are_figure_4_3():
    stakes = 1 + planned("rlbench/Gambler-v0", "value_iteration", gamma=1.).policy.act(np.arange(1, 100))
    ramp = [*range(1, 13), 12, *range(11, 0, -1)]         # 1 … 24: up to 12, and down again
    assert stakes.tolist() == [*ramp, 25, *ramp, 50, *ramp, 25, *ramp]


JACK = [421.414, 574.948, 636.990, 554.948, 567.768]
CROOKED = dict(free=1, parking=4.)
LOTS = [0, 10 * 22, 20 * 22, 20 * 21, 20]


def test_car_rental():
    trainer = planned("rlbench/CarRental-v0", "policy_iteration", gamma=.9, solve=True)
    assert val(trainer)[LOTS] == pytest.approx(JACK, abs=6e-4)
    assert trainer.updates <= 8                                                       # one a policy
    moved = trainer.policy.act(np.arange(441)) - 5
    assert (moved[20 * 21], moved[20]) == (5, -4)
    orders, counts = np.unique(moved, return_counts=True)                             # figure 4.2
    assert orders.tolist() == [*range(-4, 6)]
    assert counts.tolist() == [3, 9, 14, 17, 270, 33, 29, 23, 17, 26]


def test_car_rental_with_parking():
    trainer = planned("rlbench/CarRental-v0", "policy_iteration", gamma=.9, solve=True, env_settings=CROOKED)
    assert val(trainer)[LOTS[:3]] == pytest.approx([429.946, 580.964, 603.537], abs=6e-4)


def test_sweeps_over_the_car_rental():
    trainer = planned("rlbench/CarRental-v0", "value_iteration", gamma=.9, theta=1e-2)
    assert val(trainer)[LOTS[:3]] == pytest.approx(JACK[:3], abs=.1)      # theta * gamma / (1 - gamma) = .09


AT_RANDOM = [0, -14, -20, -22, -14, -18, -20, -20, -20, -20, -18, -14, -22, -20, -14, 0]


def test_figure_4_1():
    trainer = Trainer(corners, "policy_iteration", improve=False, gamma=1.)
    seen = {}
    for sweep in range(1, 11):
        trainer.until("iteration")
        seen[sweep] = val(trainer).reshape(4, 4).copy()
    assert seen[1][0].tolist() == [0, -1, -1, -1]
    assert seen[2][0].tolist() == [0, -1.75, -2, -2]
    assert seen[3][1].tolist() == pytest.approx([-2.4375, -2.875, -3, -2.9375])
    assert seen[10][0] == pytest.approx([0, -6.1, -8.4, -9.0], abs=.05)


@pytest.mark.parametrize("more", [{}, dict(batch_size=1), dict(solve=True)])
def test_figure_4_1_in_the_end(more):
    final = planned(corners, "policy_iteration", improve=False, gamma=1., **more)
    assert val(final) == pytest.approx(AT_RANDOM, abs=1e-5)
    assert torch.equal(final.learner.nets.policy.values, torch.full((16, 4), .25, dtype=torch.float64))


# ---- random worlds

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@quick
@given(worlds(), st.sampled_from([.5, .9]), st.sampled_from(WAYS))
def test_every_way_finds_the_best_values(world, gamma, way):
    algo, more = way
    trainer = planned(lambda: copy.deepcopy(world), algo, gamma=gamma, **more)
    truth, q = solve(world.model(), gamma)
    live = world.model().live
    assert val(trainer) == pytest.approx(truth, abs=1e-6)
    acts = trainer.policy.act(np.flatnonzero(live))
    assert (q[live][np.arange(live.sum()), acts] >= q[live].max(1) - 1e-5).all()


@quick
@given(worlds(), st.sampled_from([VALUES, SOLVED]))
def test_undiscounted_where_there_is_an_answer(world, way):
    algo, more = way
    try:
        truth, _ = solve(world.model(), 1.)
    except ValueError:
        return
    pays = (world.model().R[world.model().live] > 0).any()                # it may collect on the way
    if pays and algo == "value_iteration": return
    assert val(planned(lambda: copy.deepcopy(world), algo, gamma=1., **more)) == pytest.approx(truth, abs=1e-4)


@quick
@given(worlds(), st.sampled_from([.5, .9, 1.]), st.integers(0, 99))
def test_linear_solve(world, gamma, seed):
    model = world.model()
    states, actions = model.R.shape
    policy = np.random.default_rng(seed).dirichlet(np.ones(actions), states)
    endless = World(model).stuck.numpy() & (model.R != 0).any(1)
    if gamma == 1 and endless.any(): return
    found = value_of(torch.from_numpy(policy), World(model), gamma).numpy()
    assert found == pytest.approx(evaluate_policy(model, policy, gamma), rel=1e-6, abs=1e-9)


# ---- events

def test_a_sweep_in_place_is_the_textbooks_loop():
    trainer = Trainer("FrozenLake-v1", "value_iteration", gamma=.9, batch_size=1)
    model = model_of(gym.make("FrozenLake-v1"))
    by_hand = np.zeros(16)
    for _ in range(5):
        for s in np.flatnonzero(model.live):
            assert trainer.until("update").data.val.shape == (1,)
            by_hand[s] = (model.R[s] + .9 * model.P[s] @ by_hand).max()
            assert val(trainer) == pytest.approx(by_hand, abs=1e-14)


@pytest.mark.parametrize("more", [{}, dict(batch_size=1), dict(batch_size=4)])
def test_theta_is_the_change_of_the_last_sweep(more):
    changes = []
    trainer = Trainer("FrozenLake-v1", "value_iteration", theta=1e-3, **more)
    while not trainer.settled:
        before = val(trainer).copy()
        trainer.until("iteration")
        changes.append(np.abs(val(trainer) - before).max())
    assert min(changes[:-1]) > 1e-3 >= changes[-1]
    assert len(changes) > 10


def test_policy_iteration_improves_every_time():
    trainer = Trainer("FrozenLake-v1", "policy_iteration", solve=True)
    model = model_of(gym.make("FrozenLake-v1"))
    values = []
    for _ in range(4):
        values.append(evaluate_policy(model, trainer.learner.nets.policy.values.numpy().copy(), .99))
        trainer.until("iteration")
        assert val(trainer) == pytest.approx(values[-1], abs=1e-12)
    assert all((later >= earlier - 1e-12).all() for earlier, later in zip(values, values[1:]))
    assert (values[1] > values[0] + .01).any()


ROUGH = [(.9, {}), (.9, dict(sweeps=3)), (.9, dict(solve=True)), (1., dict(solve=True))]


@pytest.mark.parametrize("world", ["rlbench/CliffWalk-v0", "CliffWalking-v1", "FrozenLake-v1", corners])
@pytest.mark.parametrize("theta", [1e-8, 1e-3, .01, .1, 1.])
def test_policy_iteration_settles_however_rough(world, theta):
    """With a wide tolerance it once took up worse actions with the best, dropped them, and so on for ever.

    What it settles on misses little in each state.
    """
    for gamma, more in ROUGH:
        trainer = planned(world, "policy_iteration", most=2000, theta=theta, gamma=gamma, **more)
        nets = trainer.learner.nets
        algo = trainer.learner.algo
        policy = nets.policy.values
        q = algo.q(nets, torch.arange(len(policy)))
        missed = q.amax(-1) - (policy * q).sum(-1)
        assert (missed[nets.world.live] <= algo.near).all()
        if gamma < 1:
            truth, _ = solve(model_of(trainer.env.single), gamma)
            lost = truth - value_of(policy, nets.world, gamma).numpy()
            assert lost.min() > -1e-9
            assert lost.max() <= (algo.near + 2 * theta * gamma / (1 - gamma)) / (1 - gamma)
    planned(world, "policy_iteration", most=100, theta=0., solve=True)


@pytest.mark.parametrize("algo, more", WAYS)
def test_settled_is_for_these_settings(algo, more):
    trainer = planned("FrozenLake-v1", algo, gamma=.9, **more)
    with pytest.raises(ValueError, match="has settled"):
        trainer.until("update")
    with pytest.raises(ValueError, match="has settled"):
        trainer.until("iteration", n=3)
    assert trainer.learner.due == math.inf
    assert not trainer.owed
    assert "nothing more will be learned" in trainer.next_text
    assert trainer.until("step").kind == "collect"
    trainer.set(gamma=.95)
    assert trainer.owed
    assert trainer.until("iteration").kind == "learn"
    trainer.run(steps=10)
    assert val(trainer)[0] == pytest.approx(.180472, abs=1e-6)


def test_until_stops_in_the_middle_of_many():
    trainer = Trainer(lambda: GridWorld("S..G"), "value_iteration")
    with pytest.raises(ValueError, match="until 'update' would never stop"):
        trainer.until("update", n=1000)
    assert (trainer.updates, trainer.steps) == (4, 0)


def test_more_sweeps_than_are_owed():
    trainer = planned("FrozenLake-v1", "value_iteration", batch_size=4)
    trainer.collecting = False
    updates = trainer.updates
    trainer.learner.owe(9)
    assert len(list(trainer)) == 9
    assert trainer.updates == updates + 9
    assert trainer.settled


def test_half_a_sweep_settles_nothing():
    "The first state of a corridor learns nothing in the first sweep; asked for it alone, the plan is not finished"
    trainer = Trainer(lambda: GridWorld("S..G"), "value_iteration", batch_size=1)
    trainer.learner.owe(1)
    assert trainer.until("update").marks == ("update", "iteration")
    assert not trainer.settled
    while not trainer.settled:
        trainer.advance()
    assert val(trainer)[2] == 1


@pytest.mark.parametrize("events", [1, 40, 5_000])
def test_resumed_in_the_middle_of_a_sweep(events, tmp_path):
    trainer = Trainer("FrozenLake-v1", "policy_iteration", batch_size=1, gamma=.9)
    for _ in range(events):
        trainer.advance()
    trainer.save(tmp_path / "plan.rlb")
    twin = load(tmp_path / "plan.rlb")
    assert twin.settled == (events == 5_000)
    assert len(twin.learner.todo) == len(trainer.learner.todo)
    assert bool(twin.learner.todo) == (events < 5_000)
    for one in (trainer, twin):
        one.run(steps=30)
    assert same(trainer.state(), twin.state())


def test_the_model_is_not_saved():
    tree = Trainer("Taxi-v4", "value_iteration").state()["learners"]["agent"]["actor"]["nets"]
    assert list(tree) == ["v.values"]


@pytest.mark.long
def test_the_finished_policy_walks():
    trainer = planned("FrozenLake-v1", "value_iteration").run(steps=8000)
    error = 4 * np.sqrt(.74 * .26 / 100)
    assert trainer.episodes.mean_return == pytest.approx(.740, abs=error)     # of the last 100, limit of 100 steps
    assert evaluate(trainer, episodes=200).mean == pytest.approx(.740, abs=error / np.sqrt(2))


def test_ties_are_shared_while_exploring():
    trainer = planned(corners, "value_iteration", gamma=1.)
    probs = trainer.learner.algo.probs(trainer.learner.nets, torch.tensor([5, 3]))
    assert probs.tolist() == [[.5, 0, 0, .5], [0, 0, .5, .5]]                         # up, right, down, left
    assert chances(torch.zeros(1, 4)).tolist() == [[.25] * 4]


# ---- refusals and the problems themselves

@pytest.mark.parametrize("algo", ["value_iteration", "policy_iteration"])
def test_what_is_refused(algo):
    for env in ("CartPole-v1", "Blackjack-v1"):
        with pytest.raises(SpaceProblem, match=f"{algo} needs the exact transition model.*try qlearning"):
            Trainer(env, algo)
    with pytest.raises(ValueError, match="use a gamma below 1"):
        Trainer("rlbench/CarRental-v0", algo, gamma=1.).run(steps=1)
    idle = Trainer(lambda: GridWorld("S..#G"), algo, gamma=1.).run(steps=3)           # stuck, but it costs nothing
    assert (val(idle) == 0).all()


def test_a_spec_without_model_is_for_everybody_else():
    assert Spec(gym.spaces.Discrete(2), gym.spaces.Discrete(2), 1).model is None
    assert Trainer("FrozenLake-v1", "qlearning").learner.actor.spec.model is None


def test_rental_days_agree_with_the_model():
    env = CarRental(**CROOKED)
    rng = np.random.default_rng(0)
    model = env.model()
    assert model.P.sum(2) == pytest.approx(np.ones((441, 11)))
    assert model.live.all()
    env.reset(seed=0)
    cars = np.stack(np.divmod(np.arange(441), 21))
    off = []
    for s, a in zip(rng.integers(441, size=3000).tolist(), rng.integers(11, size=3000).tolist()):
        env.place(s)
        next_obs, rew, term, trunc, _ = env.step(a)
        assert model.P[s, a, next_obs] > 0
        assert not (term or trunc)
        off.append([rew - model.R[s, a], *(cars[:, next_obs] - cars @ model.P[s, a])])
    off = np.array(off)
    assert (np.abs(off.mean(0)) < 4 * off.std(0) / np.sqrt(3000)).all()


NIGHTS = [({}, (20, 0, 5), ((15, 5), 10)), ({}, (0, 20, -5), ((5, 15), 10)),
          ({}, (2, 18, 5), ((0, 20), 10)),                # no more than there are
          ({}, (3, 20, 2), ((1, 20), 4)),                 # no more than fit
          (CROOKED, (10, 10, 1), ((9, 11), 4)), (CROOKED, (12, 12, -1), ((13, 11), 10)),
          (CROOKED, (5, 5, 3), ((2, 8), 4))]


@pytest.mark.parametrize("how, evening, morning", NIGHTS)
def test_what_a_night_costs(how, evening, morning):
    first, second, order = evening
    assert CarRental(**how).overnight(21 * first + second, order + 5) == morning


@pytest.mark.parametrize("goal, heads", [(2, .3), (4, .3), (7, .6), (100, .5)])
def test_gambling_by_the_model(goal, heads):
    model = Gambler(heads=heads, goal=goal).model()
    assert model.live.sum() == goal - 1
    assert model.P[model.live].sum(2) == pytest.approx(1)
    always_one = np.eye(goal // 2)[np.zeros(goal + 1, int)]
    timid = evaluate_policy(model, always_one, 1.)[1:goal]
    s = np.arange(1, goal)
    odds = (1 - heads) / heads
    ruin = s / goal if heads == .5 else (1 - odds**s) / (1 - odds**goal)              # the gambler's ruin
    assert timid == pytest.approx(ruin)


def test_bold_play_from_any_fortune():
    "Staking all one has or needs is best against the odds (Dubins and Savage, 1965)"
    model = Gambler(heads=.4).model()
    s = np.arange(1, 100)
    bold = np.zeros(101, int)
    bold[1:100] = np.minimum(s, 100 - s) - 1
    assert evaluate_policy(model, np.eye(50)[bold], 1.) == pytest.approx(solve(model, 1.)[0], abs=1e-9)


@pytest.mark.parametrize("bad", [dict(heads=1.1), dict(heads=-.1), dict(goal=1)])
def test_gamblers_that_cannot_be(bad):
    with pytest.raises(ValueError, match="expected a probability"):
        Gambler(**bad)
