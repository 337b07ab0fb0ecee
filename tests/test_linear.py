"""Tile coding, semi-gradient SARSA on it, and gradient TD: Sutton & Barto, chapters 9 to 11."""
import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import rlbench.algos.td_diagrams  # noqa: F401  (its answers are asked for here)
from rlbench.algos.linear import LinearSarsa, LinearTD, LinearValues, OneEach, Tiles, tiles_for, shift
from rlbench.algos.questions import backup_diagram
from rlbench.core.batch import Batch
from rlbench.core.schedules import Linear
from rlbench.core.spaces import SpaceProblem, Spec
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.envs.grids import GridWorld
from rlbench.envs.mazes import STAR
from rlbench.envs.tabular import evaluate_policy, model_of
from rlbench.training.trainer import Trainer, load

BAIRD = dict(behaviour=(6 / 7, 1 / 7), policy=(0., 1.), initial=(1., 1, 1, 1, 1, 1, 10, 1))
numbers = st.floats(-3, 5, width=32)


# ---- tiles ---------------------------------------------------------------------------------------

def tile_by_hand(point, low, high, tiles, tilings):
    "One number for each tiling, in plain Python"
    found = []
    for k in range(tilings):
        cell = []
        for j, x in enumerate(point):
            share = min(max((float(np.float32(x)) - low) / (high - low), 0.), 1.)
            cell.append(int(share * tiles + (k * (2 * j + 1) / tilings) % 1))
        found.append(k * (tiles + 1)**len(point) + sum(c * (tiles + 1)**j for j, c in enumerate(cell)))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=3), st.integers(1, 6), st.sampled_from([1, 2, 4, 8]))
def test_tiles_are_the_definition(point, tiles, tilings):
    D = len(point)
    coding = Tiles(torch.full((D,), -2.).double(), torch.full((D,), 4.).double(), tiles, tilings)
    got = coding(torch.tensor([point]))[0].tolist()
    assert got == tile_by_hand(point, -2., 4., tiles, tilings)
    assert [number // (tiles + 1)**D for number in got] == list(range(tilings))  # exactly one in each tiling
    assert max(got) < coding.size


@settings(max_examples=60, deadline=None)
@given(st.tuples(numbers, numbers), st.floats(0, 2 * np.pi), st.floats(0, .1))
def test_neighbours_share_tiles(point, angle, distance):
    coding = Tiles(torch.full((2,), -3.).double(), torch.full((2,), 5.).double(), 8, 8)  # tiles of length 1
    a = torch.tensor([point]).double()
    near = a + distance * torch.tensor([np.cos(angle), np.sin(angle)])
    far = a + 1.01
    shared = lambda b: (coding(a) == coding(b)).sum().item()
    assert shared(a) == 8 and shared(near) >= 6  # a step of a tenth crosses at most one border in each dimension ...
    inside = (a < 3.9).all()
    assert not inside or shared(far) == 0        # ... and of more than one tile, all


@pytest.mark.parametrize("shape", [(4,), (4, 3), ()])
def test_tiles_of_any_leading_axes(shape):
    coding = Tiles(torch.zeros(2).double(), torch.ones(2).double(), 4, 8)
    obs = torch.rand(*shape, 2, generator=torch.Generator().manual_seed(0))
    assert coding(obs).shape == (*shape, 8)
    flat = coding(obs.reshape(-1, 2)).reshape(*shape, 8)
    assert torch.equal(coding(obs), flat)


def test_values_are_sums_and_an_update_moves_one_weight_of_each_tiling():
    box = Spec(gym.spaces.Box(0, 1, (2,)), gym.spaces.Discrete(3), 1)
    algo = LinearSarsa(tiles=4, tilings=8, lr=.4)
    nets = algo.nets(box, None)
    obs = torch.rand(5, 2, generator=torch.Generator().manual_seed(0))
    by = torch.full((5,), algo.lr / nets.q.features.active, dtype=torch.float64)
    shift(nets.q, Batch(obs=obs, act=torch.ones(5)), by)
    want = torch.zeros(8 * 25).index_add(0, nets.q.features(obs).flatten(), torch.full((40,), .4 / 8))
    assert torch.allclose(nets.q.w[:, 1].float(), want) and not nets.q.w[:, [0, 2]].any()
    assert torch.allclose(nets.q(obs), nets.q.w[nets.q.features(obs)].sum(1))
    assert LinearValues(nets.q.features, 3, 4.)(obs).flatten().tolist() == pytest.approx([4.] * 15)


def test_boxes_without_bounds_say_which_and_what_to_do():
    with pytest.raises(SpaceProblem, match=r"none in dimension 1, 3.*low= and high="):
        Trainer("CartPole-v1", "linear_sarsa")
    bounds = dict(low=(-2.4, -3, -.21, -3), high=(2.4, 3, .21, 3))
    trainer = Trainer("CartPole-v1", "linear_sarsa", tiles=4, epsilon=.1, **bounds)
    assert trainer.run(steps=300).learner.nets.q.w.abs().sum() > 0
    with pytest.raises(ConfigError, match="must be below"):
        Trainer("CartPole-v1", "linear_sarsa", low=(2.4, -3, -.21, -3), high=(2.4, 3, .21, 3))
    with pytest.raises(ConfigError, match="2 numbers, expected 4"):
        Trainer("CartPole-v1", "linear_sarsa", low=(2.4, -3))
    with pytest.raises(SpaceProblem, match="at most 1,000,000"):
        tiles_for("it", gym.spaces.Box(0, 1, (8,)), 8, 8, None, None)
    for space in (gym.spaces.Box(0, 1, (2, 2)), gym.spaces.MultiBinary(3)):
        with pytest.raises(SpaceProblem, match="one axis"):
            tiles_for("it", space, 8, 8, None, None)
    with pytest.raises(SpaceProblem, match="linear_sarsa needs Discrete actions"):
        Trainer("Pendulum-v1", "linear_sarsa")


# ---- semi-gradient control -----------------------------------------------------------------------

HOWS = [dict(target="sarsa"), dict(target="expected"), dict(target="q"), dict(target="q", double=True),
        dict(n_step=3, epsilon=1.),         # at random, since sums in another order break ties among values otherwise
        dict(n_step=4, td_lambda=.5), dict(target="expected", off_policy="tree", n_step=3),
        dict(target="expected", off_policy="importance", n_step=3)]


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_one_hot_features_are_a_table(how):
    more = dict(lr=.5, epsilon=.2, gamma=.9) | how
    linear, table = (Trainer("rlbench/CliffWalk-v0", algo, **more).run(steps=300) for algo in ("linear_sarsa", "sarsa"))
    w = linear.learner.nets.q.w
    q = table.learner.nets.q.values
    assert w.shape == q.shape and w.abs().max() > 1
    torch.testing.assert_close(w, q, rtol=1e-9, atol=1e-9)


def car(**more):
    return Trainer("MountainCar-v0", "linear_sarsa", env_settings=dict(max_episode_steps=-1), buffer_size=10, **more)


@pytest.mark.parametrize("n", [1, 4])
def test_a_step_with_lr_corrects_that_share_of_the_error(n):
    trainer = car(n_step=n, epsilon=.2)
    trainer.until("update", 300)
    last = trainer.learner.last
    now = trainer.learner.nets.q(last.batch.obs)[0, last.batch.act[0]].item()
    before = last.parts.q.item()
    target = last.parts.target.item()
    assert now == pytest.approx(before + .5 * (target - before), abs=1e-9) and abs(target - before) > 1e-6


class Box:
    "Section 10.2 in plain numpy, on the transitions and actions of a run"

    def __init__(self, trainer, rows, n, alpha, gamma, epsilon):
        self.features = trainer.learner.nets.q.features
        self.w = np.zeros(trainer.learner.nets.q.w.shape)
        self.rows = rows
        self.n = n
        self.alpha = alpha
        self.gamma = gamma
        self.epsilon = epsilon

    def x(self, obs):
        return self.features(torch.from_numpy(obs))[0].numpy()

    def expectation(self, q):
        best = q == q.max()
        return (q * (self.epsilon / len(q) + (1 - self.epsilon) * best / best.sum())).sum()

    def update(self, first, last, act):
        "From row `first`, with rewards up to row `last`, and the action after it, None for the expectation"
        steps = last - first + 1
        ret = sum(self.gamma**k * float(self.rows[first + k].rew[0]) for k in range(steps))
        q = self.w[self.x(self.rows[last].next_obs)].sum(0)
        ahead = self.expectation(q) if act is None else q[act]
        x = self.x(self.rows[first].obs)
        a = self.rows[first].act[0]
        self.w[x, a] += self.alpha / 8 * (ret + self.gamma**steps * ahead - self.w[x, a].sum())

    def run(self):
        start = 0
        for t, row in enumerate(self.rows):
            if t - self.n >= start: self.update(t - self.n, t - 1, row.act[0])
            if row.trunc[0]:
                for first in range(max(start, t - self.n + 1), t + 1):
                    self.update(first, t, None)
                start = t + 1
        return start


def test_n_step_sarsa_on_tiles_is_the_box():
    trainer = Trainer("MountainCar-v0", "linear_sarsa", n_step=3, epsilon=.3, lr=.4, gamma=.97,
                      env_settings=dict(max_episode_steps=120))
    rows = [trainer.until("step").data for _ in range(400)]
    while trainer.owed: trainer.advance()
    box = Box(trainer, rows, n=3, alpha=.4, gamma=.97, epsilon=.3)
    assert box.run() > 0 and np.abs(box.w).max() > .1
    np.testing.assert_allclose(trainer.learner.nets.q.w.numpy(), box.w, atol=1e-10)


@pytest.mark.long
def test_the_beginning_of_figure_10_2():
    "Mountain car, one step, α = .5: the book's mean is about 1000 in the first episode, and halves within a few"
    trainer = car(seed=0)
    lengths = [trainer.until("episode").ended[0].length for _ in range(5)]
    assert lengths[0] > 700 and min(lengths) >= 85        # no policy is faster from the lucky side of the valley
    assert lengths[4] < lengths[0] / 2


@pytest.mark.long
def test_the_beginning_of_figure_10_4():
    "Mountain car, n = 4, α = .5, always greedy: many hundred steps in the first episodes, about 200 after ten"
    trainer = car(n_step=4, seed=0)
    lengths = [trainer.until("episode").ended[0].length for _ in range(7)]
    assert lengths[0] > 400 and min(lengths) >= 85
    assert np.mean(lengths[4:]) < .6 * np.mean(lengths[:4])


def test_resume_on_tiles(tmp_path):
    trainer = car(n_step=3, epsilon=.1)
    trainer.run(steps=100)
    trainer.save(tmp_path / "a.rlb")
    twin = load(tmp_path / "a.rlb")
    for one in (trainer, twin):
        one.run(steps=80)
    assert same(trainer.state(), twin.state())


def test_backup_names_points_of_a_box():
    def diagram(**more):
        trainer = car(epsilon=.1, **more)
        trainer.until("update", 20)
        return backup_diagram(trainer.learner.algo, trainer.learner.nets, trainer.learner.last.batch)

    node = diagram()
    label, arrived = node.edges[0]
    assert node.text.startswith("s -0.") and label == "r -1" and len(arrived.edges) == 3
    assert "3 more steps" in str(diagram(n_step=4))


# ---- prediction ----------------------------------------------------------------------------------

def star(method, steps, **more):
    "Weights (steps, 8) of a run on the star"
    trainer = Trainer("rlbench/BairdStar-v0", "linear_td", method=method, gamma=.99, **BAIRD | more)
    found = []
    for _ in range(steps):
        trainer.until("update")
        found.append(trainer.learner.nets.v.w.numpy().copy())
    return np.array(found)


def direction(method, delta, x, to, h):
    "Of a step without its size; `to` is discounted"
    if method == "gtd2": return (x - to) * (x @ h)
    return delta * x - (to * (x @ h) if method == "tdc" else 0)


def by_hand(trainer, steps, method, alpha, beta, gamma=.99):
    "Equations 11.2 and those of section 11.7, on the transitions of a run"
    w = np.array(BAIRD["initial"], float)
    h = np.zeros(8)
    for _ in range(steps):
        row = trainer.until("step").data
        x = row.obs[0].astype(float)
        to = gamma * row.next_obs[0].astype(float)
        rho = 7. if row.act[0] == 1 else 0.
        delta = w @ to - w @ x
        w = w + alpha * rho * direction(method, delta, x, to, h)
        h = h + beta * rho * (delta - h @ x) * x
    return w


@pytest.mark.parametrize("method", ["td", "tdc", "gtd2"])
def test_the_three_methods_are_the_books(method):
    w = star(method, 300, lr=.01, beta=.05)
    twin = Trainer("rlbench/BairdStar-v0", "linear_td", method=method, gamma=.99, lr=.01, beta=.05, **BAIRD)
    np.testing.assert_allclose(w[-1], by_hand(twin, 300, method, .01, .05), rtol=1e-6)   # chances are stored as float32


def test_bairds_counterexample():
    "Figures 11.2 and 11.5: semi-gradient TD diverges; TDC stays bounded and its values come down from 5.3 to about 2"
    def error(w):
        return np.sqrt(((w @ STAR.T)**2).mean(-1))

    begun = error(np.array(BAIRD["initial"]))
    td = np.abs(star("td", 1200, lr=.01)).max(1)
    assert td[599] > 3 * 10 and td[1199] > 3 * td[599]              # grows, and goes on growing
    tdc = star("tdc", 1200, lr=.005, beta=.05)
    assert np.abs(tdc).max() <= 10.5 and error(tdc[-300:]).max() < .6 * begun
    on = star("td", 1200, lr=.01, policy=None, behaviour=(6 / 7, 1 / 7))
    assert error(on[-1]) < .6 * begun                               # on the policy it converges


@pytest.mark.long
def test_one_hot_prediction_is_the_value_of_the_policy():
    "A walk of five states, each way with its own chance: exact values by solving, learned off the policy"
    model = model_of(GridWorld("H.S.G"))
    want = evaluate_policy(model, np.tile([0., .75, 0., .25], (5, 1)), .9)  # up, right, down, left
    chances = dict(behaviour=(0., .5, 0., .5), policy=(0., .75, 0., .25))
    trainer = Trainer("rlbench/FourRooms-v0", "linear_td", method="tdc", gamma=.9, lr=Linear(.1, .004, 5000), beta=.02,
                      num_envs=4, env_settings=dict(rows="H.S.G"), **chances)
    trainer.run(steps=12_000)
    got = trainer.learner.algo.values(trainer.learner.nets, torch.arange(5)).numpy()
    np.testing.assert_allclose(got[1:4], want[1:4], atol=.05)


def test_features_of_other_spaces():
    box = Spec(gym.spaces.Box(-1, 1, (2, 3)), gym.spaces.Discrete(2), 1)
    assert LinearTD().nets(box, None).v.w.shape == (6,)
    finite = Spec(gym.spaces.Discrete(3, start=2), gym.spaces.Discrete(2), 1)
    nets = LinearTD(initial=(1., 2., 3.)).nets(finite, None)
    assert LinearTD().values(nets, torch.tensor([2, 4])).tolist() == [1, 3]
    q = LinearSarsa(initial=2.).nets(finite, None)
    assert isinstance(q.q.features, OneEach) and q.q(torch.tensor([4, 2])).tolist() == [[2, 2]] * 2


@pytest.mark.parametrize("wrong,words", [
    (dict(behaviour=(1., 0.), policy=(0., 1.)), "never takes"), (dict(behaviour=(.5, .4)), "sum to 1"),
    (dict(policy=(1.,)), "2 chances"), (dict(initial=(1., 2.)), "expected one or 8")])
def test_settings_that_do_not_fit(wrong, words):
    with pytest.raises(ConfigError, match=words):
        Trainer("rlbench/BairdStar-v0", "linear_td", **wrong)

