"""The random walk, the maximum that deceives, and many copies of one world side by side."""
import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rlbench.core.spaces import AGENT
from rlbench.core.state import same
from rlbench.envs.find import check_env, make
from rlbench.envs.tabular import evaluate_policy, model_of, solve
from rlbench.envs.walks import Bias, Copies, CopiesVec, NumberedVec, Walk, draw_outcomes, outcome_arrays
from rlbench.training.trainer import Trainer, load

IDS = ["rlbench/Walk-v0", "rlbench/Bias-v0", "rlbench/Copies-v0", "rlbench/WindyKings-v0"]


@pytest.mark.parametrize("id", IDS)
def test_they_obey_gymnasium_and_are_put_back(id):
    table = check_env(id)
    assert dict(table)["put back exactly"].startswith("yes")

    env = make(id, 4)
    other = make(id, 4)
    env.reset(1)
    other.reset(2)
    act = np.random.default_rng(0).integers(gym.make(id).action_space.n, size=(90, 4))
    for a in act[:50]: env.step({AGENT: a})
    other.restore(env.state())
    for a in act[50:]:
        one = env.step({AGENT: a})[AGENT]
        two = other.step({AGENT: a})[AGENT]
        assert same(tuple(one), tuple(two))


# ---- the walk

@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 12), st.floats(-5, 5), st.floats(-5, 5))
def test_values_of_a_walk_are_a_straight_line(half, left, right):
    n = 2 * half + 1
    val = evaluate_policy(Walk(n, left, right).model(), np.ones((n + 2, 1)), 1.)
    assert val[1:-1] == pytest.approx(np.linspace(left, right, n + 2)[1:-1], abs=1e-9)


def test_a_walk_starts_in_the_middle_and_is_fair():
    env = make("rlbench/Copies-v0", 4000, copies=4000, settings=dict(states=5, left=0.))
    assert (env.reset(0)[AGENT] == np.arange(4000) * 7 + 3).all()
    paid = np.zeros(4000)
    lengths = np.zeros(4000)
    open_ = np.ones(4000, bool)
    while open_.any():
        step = env.step({AGENT: np.zeros(4000, int)})[AGENT]
        lengths += open_
        paid += step.rew * open_
        open_ &= ~step.term

    assert paid.mean() == pytest.approx(.5, abs=4 * .5 / np.sqrt(4000))
    # 3 * 3 steps to an end three steps away
    assert lengths.mean() == pytest.approx(9, abs=4 * lengths.std() / np.sqrt(4000))


@pytest.mark.parametrize("bad,near", [(0, 1), (-3, 1), (4, 5)])
def test_walks_without_a_middle(bad, near):
    with pytest.raises(ValueError, match=f"odd number from 1 on, such as {near}$"):
        Walk(bad)


# ---- the maximum that deceives

def test_going_left_loses_on_average():
    assert solve(Bias(mean=-.3).model(), 1.)[1][0] == pytest.approx([-.3] * 5 + [0] * 5)

    world = dict(world="rlbench/Bias-v0", settings=dict(actions=4, mean=.5, spread=2.))
    env = make("rlbench/Copies-v0", 3000, copies=3000, **world)
    env.reset(0)
    act = np.arange(3000) % 4
    first = env.step({AGENT: act})[AGENT]
    assert (first.rew == 0).all()
    assert (first.term == (act >= 2)).all()
    assert (first.next_obs % 3 == np.where(first.term, 2, 1)).all()

    second = env.step({AGENT: np.zeros(3000, int)})[AGENT]
    paid = second.rew[~first.term]
    assert second.term[~first.term].all()
    assert paid.mean() == pytest.approx(.5, abs=4 * 2 / np.sqrt(1500))
    assert paid.std() == pytest.approx(2, rel=.1)


@pytest.mark.parametrize("bad,near", [(0, 2), (3, 4)])
def test_an_odd_number_cannot_be_halved(bad, near):
    with pytest.raises(ValueError, match=f"even number.* such as {near}$"):
        Bias(bad)


# ---- copies

@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.floats(.01, 1), min_size=1, max_size=5), st.integers(0, 2**31))
def test_outcomes_are_drawn_as_often_as_the_table_says(chances, seed):
    chances = np.array(chances) / sum(chances)
    upto, to, _, _ = outcome_arrays({0: {0: [(p, k, 0., False) for k, p in enumerate(chances)]}})
    u = np.random.default_rng(seed).random(4000)
    picked = to[0, 0, draw_outcomes(upto[np.zeros(4000, int), 0], u)]
    shares = np.bincount(picked, minlength=len(chances)) / 4000
    assert shares == pytest.approx(chances, abs=5 * .5 / np.sqrt(4000))


@pytest.mark.parametrize("world", ["CliffWalk", "FrozenLake", "Walk", "Bias"])
def test_a_copy_is_the_world(world):
    id = f"rlbench/{world}-v0"
    one = gym.make(id).unwrapped
    model = model_of(gym.make("rlbench/Copies-v0", world=id, copies=3))
    S = one.observation_space.n
    for c in range(3):
        part = slice(c * S, (c + 1) * S)
        assert np.array_equal(model.P[part, :, part], one.model().P)
        assert np.array_equal(model.R[part], one.model().R)
        assert model.start[part] == pytest.approx(one.model().start / 3)


@pytest.mark.parametrize("world", ["CliffWalk", "FrozenLake", "WindyGrid"])
def test_side_by_side_means_the_table_in_every_copy(world):
    id = f"rlbench/{world}-v0"
    env = make("rlbench/Copies-v0", 6, world=id, copies=4)
    table = gym.make(id).unwrapped.P
    rng = np.random.default_rng(0)
    S = len(table)
    obs = env.reset(3)[AGENT]
    assert (obs // S == [0, 1, 2, 3, 0, 1]).all()

    for _ in range(400):
        act = rng.integers(len(table[0]), size=6)
        step = env.step({AGENT: act})[AGENT]
        assert (step.next_obs // S == obs // S).all()
        assert (step.obs // S == obs // S).all()
        for i in range(6):
            listed = table[obs[i] % S][act[i]]
            found = {(to, np.float32(rew), ended) for p, to, rew, ended in listed}
            assert (step.next_obs[i] % S, step.rew[i], step.term[i]) in found
        obs = step.obs


@pytest.mark.parametrize("num_envs", [1, 3])
def test_the_limit_is_the_worlds(num_envs):
    limited = dict(world="rlbench/WindyGrid-v0", settings=dict(max_episode_steps=7))
    env = make("rlbench/Copies-v0", num_envs, copies=3, **limited)
    env.reset(0)
    for t in range(1, 15):
        step = env.step({AGENT: np.zeros(num_envs, int)})[AGENT]
        assert (step.trunc == (t % 7 == 0)).all()
        assert not step.term.any()
    assert CopiesVec(2, world="rlbench/Walk-v0").limit == np.inf


def test_copies_of_what():
    with pytest.raises(ValueError, match="a world that is a Tabular"):
        Copies("CartPole-v1")
    with pytest.raises(ValueError, match="at least one"):
        Copies(copies=0)


def test_what_gymnasium_asks_of_a_vector_of_numbered_worlds():
    vec = NumberedVec(Walk(3), 4, limit=None)
    assert vec.num_envs == 4 and vec.limit == np.inf
    assert vec.single_observation_space == gym.spaces.Discrete(5)
    assert vec.observation_space.shape == vec.action_space.shape == (4,)


@pytest.mark.parametrize("num_envs", [1, 4])
def test_a_run_on_copies_is_resumed_to_the_bit(num_envs, tmp_path):
    world = dict(world="rlbench/Bias-v0", copies=4)
    trainer = Trainer("rlbench/Copies-v0", "qlearning", num_envs=num_envs, env_settings=world)
    trainer.run(steps=61)
    trainer.save(tmp_path / "copies.rlb")
    twin = load(tmp_path / "copies.rlb")
    for one in (trainer, twin):
        one.run(steps=120)
    assert same(trainer.state(), twin.state())


def test_copies_learn_apart():
    world = dict(world="rlbench/CliffWalk-v0", copies=30)
    trainer = Trainer("rlbench/Copies-v0", "qlearning", num_envs=30, env_settings=world)
    trainer.run(steps=30 * 300)
    q = trainer.learner.nets.q.values.reshape(30, 48, 4)
    assert len({tuple(one.flatten().tolist()) for one in q}) == 30
    assert (q != 0).any((1, 2)).all()


def test_kings_need_seven_steps():
    def worth_of_start(id):
        return solve(model_of(gym.make(id)), 1.)[0][30]
    assert worth_of_start("rlbench/WindyGrid-v0") == -15    # example 6.5
    assert worth_of_start("rlbench/WindyKings-v0") == -7    # exercise 6.9
