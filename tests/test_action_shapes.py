"Actions in a Box of any number of axes: the same numbers in a row, everywhere but in the environment"
import contextlib

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import rlbench
from rlbench.algos.algorithm import algorithms, get
from rlbench.buffers.datasets import from_minari, load_ring, to_minari
from rlbench.buffers.recordings import write_memory
from rlbench.core.spaces import Row, SpaceProblem, in_rows, out_of_rows
from rlbench.core.state import same
from rlbench.envs.find import check_env
from rlbench.envs.native import NativeVec
from rlbench.policies.networks import head_for

SHAPES = (2, 3), (1, 1, 2), ()
OTHERS = dict(              # of an algorithm, where it learns in fewer than a hundred steps
    ppo=dict(n_steps=16, batch_size=8),
    recurrent_ppo=dict(n_steps=16),
    trpo=dict(n_steps=32),
    ppo_kl=dict(n_steps=16, batch_size=8),
)


class Reach(gym.Env):
    "Wants every joint where it points to; three numbers are shown"
    metadata = dict(render_modes=[])
    observation_space = Box(-1, 1, (3,))

    def __init__(self, shape=(2, 3)):
        self.action_space = Box(-1, 2, shape)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.goal = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.goal.copy(), {}

    def step(self, act):
        assert act in self.action_space, act
        self.t += 1
        return self.goal.copy(), -float(np.abs(np.ravel(act) - self.goal[0]).mean()), False, self.t == 10, {}


class Flat(Reach):
    "The same with its joints in a row"
    def __init__(self, shape=(2, 3)):
        super().__init__((int(np.prod(shape)),))


class Pair(Reach):
    "Two that act at once, in PettingZoo's parallel form"
    possible_agents = ["a", "b"]

    def observation_space(self, agent):
        return Box(-1, 1, (3,))

    def action_space(self, agent):
        return self.spaces[agent]

    def __init__(self):
        self.spaces = dict(a=Box(-1, 2, (2, 3)), b=Dict(arm=Box(-1, 1, (2, 2)), grip=Discrete(2)))
        self.agents = []

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, obs), {}

    def step(self, acts):
        assert all(act in self.spaces[agent] for agent, act in acts.items()), acts
        self.t += 1
        there = self.agents
        if self.t == 10: self.agents = []
        return (dict.fromkeys(there, self.goal), dict.fromkeys(there, 1.), dict.fromkeys(there, False),
                dict.fromkeys(there, self.t == 10), {})


def spaces_of(trainer):
    spec = trainer.env.behaviours["agent"]
    return spec.observation_space, spec.action_space


def run_in(env, algo, **more):
    "A trainer that has taken eighty steps"
    small = dict(hidden=(8,)) if hasattr(get(algo), "hidden") else {}
    trainer = rlbench.Trainer(env, algo, seed=1, **small, **OTHERS.get(algo, {}), **more)
    trainer.run(**dict(updates=10) if get(algo).offline else dict(steps=80))
    return trainer


@pytest.mark.parametrize("algo", algorithms())
def test_an_algorithm_learns_the_same_whatever_the_shape(algo):
    kind = get(algo)
    given = dict(memory=run_in(Flat, "sac").learner.memory) if kind.offline or kind.imitates else {}
    try: row = run_in(Flat, algo, **given)
    except SpaceProblem: return                            # not of numbers
    box = run_in(Reach, algo, **given)
    assert same(row.learner.state(), box.learner.state())
    assert same(row.obs, box.obs)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape):
    trainer = run_in(lambda: Reach(shape), "ppo", num_envs=2)
    assert trainer.env.behaviours["agent"].action_space.shape == (int(np.prod(shape)),)
    obs = np.zeros(3, np.float32)
    assert trainer.policy.act(obs) in Reach(shape).action_space
    assert trainer.policy.act(np.stack([obs] * 4)).shape == (4, *shape)
    assert rlbench.evaluate(trainer, episodes=2).returns.shape == (2,)
    check_env(lambda: Reach(shape), steps=20)


def test_a_run_goes_back_and_into_a_file(tmp_path):
    trainer = run_in(Reach, "sac", num_envs=2)
    then = trainer.snapshot()
    trainer.save(tmp_path / "run.rlb")
    other = rlbench.load(tmp_path / "run.rlb", env=Reach)
    trainer.run(steps=trainer.steps + 30)
    other.run(steps=other.steps + 30)
    assert same(trainer.learner.state(), other.learner.state())
    trainer.restore(then)
    trainer.run(steps=trainer.steps + 30)
    assert same(trainer.learner.state(), other.learner.state())


def test_several_behaviours():
    trainer = rlbench.Trainer(Pair, "ppo", n_steps=16, batch_size=8, num_envs=2, hidden=(8,))
    trainer.run(steps=100)
    assert trainer.learners["a"].updates and trainer.learners["b"].updates
    assert trainer.actors["b"].spec.action_space["arm"].shape == (4,)


def test_a_vector_environment():
    vector = gym.vector.SyncVectorEnv([Reach] * 3)
    trainer = run_in(NativeVec("reach", Reach(), vector), "ppo")
    assert trainer.learner.updates


def test_by_hand():
    trainer = run_in(Reach, "sac")
    act = np.arange(6).reshape(2, 3) / 6
    for chosen in (act.tolist(), act.ravel().tolist()):
        trainer.choose(chosen)
        trainer.until("step")
        assert np.allclose(trainer.learner.memory.rows.act[(trainer.steps - 1) % trainer.learner.memory.capacity, 0],
                           act.ravel())
    for wrong in ([0.] * 5, [[0., 0.]] * 3, np.full((2, 3), 9.), 1.):
        with pytest.raises(ValueError, match=r"expected one of Box\(-1.0, 2.0, \(2, 3\), float32\)"):
            trainer.choose(wrong)
    assert "in each of 6 dimensions" in str(trainer.explain("action_scale"))


class Nested(gym.Env):
    "An action of parts of parts"
    observation_space = Box(-1, 1, (2,))
    action_space = Dict(x=Dict(a=Discrete(3), b=Box(-1, 1, (2,))), y=Discrete(2))

    def __init__(self, max_episode_steps=None): ...

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, act):
        return self.observation_space.high, 0., False, False, {}


@pytest.mark.parametrize("distribution, told", [("gaussian", "normal"), ("squashed", "tanh of a normal")])
def test_the_scale_of_a_part_of_a_part(distribution, told):
    said = dict(rlbench.Trainer(Nested, "ppo", hidden=(8,), distribution=distribution).explain("action_scale"))
    assert said["x.b distribution"].startswith(told)
    assert said["x.b bounds"] == "-1 to 1, in each of 2 dimensions"
    assert "no scale" in said["x.a actions"] and "no scale" in said["y actions"]


def test_recorded_steps(tmp_path):
    trainer = run_in(Reach, "sac")
    write_memory(tmp_path / "seen.rlb", trainer.learner.memory, *spaces_of(trainer))
    ring = load_ring(tmp_path / "seen.rlb")
    assert ring.rows.act.shape[-1] == 6
    learned = rlbench.train(Reach, "bc", memory=ring, updates=3, progress=False)
    assert learned.learner.updates == 3


def test_a_minari_data_set_has_the_environments_own_shape(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    trainer = run_in(Reach, "sac")
    data = to_minari(trainer.learner.memory, "reach/test-v0", *spaces_of(trainer))
    assert data.action_space == Reach().action_space
    assert next(iter(data.iterate_episodes())).actions.shape[1:] == (2, 3)
    back = from_minari(data)
    n = len(back)
    assert np.array_equal(back.rows.act[:, 0], trainer.learner.memory.rows.act[:n, 0])


def test_spaces_of_parts_keep_their_order():
    space = Dict([("z", Box(-1, 1, (2, 2))), ("a", Discrete(2))])
    assert list(in_rows(space)) == ["z", "a"]
    assert out_of_rows(in_rows(space)) == space
    assert isinstance(in_rows(space)["z"], Row)


@pytest.mark.parametrize("space", [MultiDiscrete([[2, 2], [2, 2]]), MultiBinary((2, 2))])
def test_choices_on_many_axes_are_refused(space):
    with pytest.raises(SpaceProblem, match="with one axis"): head_for(space)


class Empty(Reach):
    "Shows nothing, or takes nothing"
    def __init__(self, obs=(0,), act=(2,)):
        self.observation_space = obs if isinstance(obs, gym.Space) else Box(0, 1, obs)
        self.action_space = Box(-1, 1, act)

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, act):
        self.t += 1
        return self.observation_space.sample(), 0., False, self.t == 5, {}


@pytest.mark.parametrize("algo", ["ppo", "sac", "stream_ac"])
def test_nothing_to_see_or_to_do_is_refused(algo):
    for obs in ((0,), (3, 0), Dict(a=Box(0, 1, (0,)), b=Box(0, 1, (0, 2)))):
        with pytest.raises(SpaceProblem, match="the observation_space is .* which holds no number"):
            rlbench.Trainer(lambda obs=obs: Empty(obs), algo)
    with pytest.raises(SpaceProblem, match="the action_space is .* which holds no number"):
        rlbench.Trainer(lambda: Empty((2,), (0,)), algo)


@pytest.mark.parametrize("algo", ["ppo", "sac", "stream_ac", "trpo", "td3"])
def test_a_part_may_be_empty(algo, tmp_path):
    make = lambda: Empty(Dict(near=Box(0, 1, (0,)), own=Box(0, 1, (2,))))
    trainer = run_in(make, algo)
    trainer.save(tmp_path / "run.rlb")
    with contextlib.closing(rlbench.load(tmp_path / "run.rlb", env=make)) as other:
        assert same(trainer.learner.state(), other.learner.state())
