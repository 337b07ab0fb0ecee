"""Final observations in every autoreset mode, from the environment to the buffer's rows and the advantages."""
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlbench.algos.algorithm import get
from rlbench.buffers.returns import gae
from rlbench.core.batch import Batch
from rlbench.core.state import same
from rlbench.envs.env import EnvList, EnvProblem, NativeVec, make
from rlbench.training.trainer import Trainer


class Staggered(gym.Env):
    "Environment k ends after 2 + k steps by itself, or after `limit` by a limit; it shows its number, its episode and its step"
    observation_space, action_space, metadata = gym.spaces.Box(-1, 99, (3,)), gym.spaces.Discrete(2), {}

    def __init__(self, k, limit=4):
        self.k, self.limit, self.episode = k, limit, 0

    def show(self):
        return np.array([self.k, self.episode, self.t], np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return self.show(), {}

    def step(self, act):
        self.t += 1
        return self.show(), float(self.t), self.t == 2 + self.k, self.t == self.limit, {}


def vec(mode, n=4):
    return NativeVec("Staggered", Staggered(0), SyncVectorEnv([lambda k=k: Staggered(k) for k in range(n)], autoreset_mode=mode))


def episodes(ring, env):
    rows = ring.gather(np.arange(ring.sizes[env]) * ring.num_envs + env)
    return [(o[1].item(), o[2].item(), r.item(), t.item(), u.item(), n[1].item(), n[2].item()) for o, r, t, u, n in zip(rows.obs, rows.rew, rows.term, rows.trunc, rows.next_obs)]


def collect(env, steps=30):
    trainer = Trainer(env, get("ppo")(horizon=40))
    trainer.learning = False
    while trainer.learner.buffer.sizes.min() < steps if trainer.learner.buffer.rows else True:
        trainer.advance()
    return trainer


def test_the_same_transitions_in_all_three_modes_and_no_dummy_row():
    makers = iter([Staggered(0)] + [Staggered(k) for k in range(4)])
    want = collect(EnvList("Staggered", lambda: next(makers), 4))
    for mode in AutoresetMode:
        got = collect(vec(mode))
        for env in range(4):
            a, b = episodes(want.learner.buffer, env)[:30], episodes(got.learner.buffer, env)[:30]
            assert a == b
            for episode, t, rew, term, trunc, next_episode, next_t in b:
                assert next_episode == episode and next_t == t + 1 == rew        # never across a reset, never a dummy row
                assert not (term and trunc) and term == (next_t == 2 + env) and trunc == (next_t == 4 and not term)
        assert got.steps == got.learner.buffer.added


def test_equal_advantages_in_all_three_modes():
    advantages = []
    for mode in AutoresetMode:
        data = collect(vec(mode)).learner.buffer.gather(np.arange(24)[:, None] * 4 + np.arange(4))
        val, next_val = data.obs.sum(-1), data.next_obs.sum(-1)
        advantages.append(gae(data.rew, val, next_val, data.term, data.trunc, .9, .8))
    assert torch.equal(advantages[0], advantages[1]) and torch.equal(advantages[0], advantages[2])


def test_an_unknown_mode_is_refused():
    env = SyncVectorEnv([lambda: Staggered(0)])
    env.metadata = {}
    with pytest.raises(EnvProblem, match="autoreset_mode"):
        NativeVec("Staggered", Staggered(0), env)


def test_actions_are_clipped_on_their_way_and_stored_as_drawn():
    class Echo(gym.Env):
        observation_space, action_space, metadata = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Box(-1, 1, (1,)), {}
        def reset(self, seed=None, options=None): return np.zeros(1, np.float32), {}
        def step(self, act): return np.asarray(act, np.float32), 0., False, False, {}

    trainer = Trainer(Echo, get("ppo")(horizon=64), num_envs=8)
    trainer.until("step", 64)
    rows = trainer.learner.buffer.rows
    assert np.abs(rows.act).max() > 1 and np.abs(rows.next_obs).max() <= 1
    np.testing.assert_array_equal(np.clip(rows.act, -1, 1), rows.next_obs)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "FrozenLake-v1", "rlbench/CliffWalk-v0"])
def test_a_stored_observation_can_be_drawn(id):
    import rlbench.envs.tabular  # noqa: F401
    env = make(id, 2)
    frames = []
    obs = env.reset(0)
    env.action_space.seed(0)
    for _ in range(30):
        frames.append(env.frame_of(obs[0]))
        obs = env.step(np.stack([env.action_space.sample() for _ in range(2)])).obs
    assert frames[0].dtype == np.uint8 and frames[0].ndim == 3 and any((f != frames[0]).any() for f in frames)


def test_mistakes_are_named():
    with pytest.raises(EnvProblem, match="did you mean 'CartPole-v1'"):
        make("CartPol-v1")
    with pytest.raises(EnvProblem, match="got list"):
        make([1])


# several things at once

class Arm(gym.Env):
    "Shows a small picture and a number, and wants a move and a grip"
    observation_space = gym.spaces.Dict(camera=gym.spaces.Box(0, 255, (4, 4), np.uint8), place=gym.spaces.Tuple([gym.spaces.Discrete(5), gym.spaces.Box(-9, 9, (2,))]))
    action_space = gym.spaces.Dict(move=gym.spaces.Box(-1, 1, (2,)), grip=gym.spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = self.np_random.normal(size=2).astype(np.float32), 0
        return self.look(), {}

    def look(self): return dict(camera=np.full((4, 4), self.steps, np.uint8), place=(self.steps % 5, self.at))

    def step(self, act):
        assert self.action_space.contains(act)
        self.at, self.steps = np.clip(self.at + act["move"] * act["grip"] + self.np_random.normal(size=2).astype(np.float32) * .1, -9, 9).astype(np.float32), self.steps + 1
        return self.look(), float(act["grip"]), self.steps > 6, False, {}


def arm_acts(rng, n): return Batch(move=rng.normal(size=(n, 2)).astype(np.float32) * 2, grip=rng.integers(2, size=n))


def test_dictionaries_and_tuples_are_nested_columns():
    env, rng = make(Arm, 3), np.random.default_rng(0)
    obs = env.reset(seed=0)
    assert obs.camera.shape == (3, 4, 4) and obs.place["1"].shape == (3, 2)
    steps = [env.step(arm_acts(rng, 3)) for _ in range(9)]
    assert steps[6].term.all() and steps[6].first.all() and (steps[6].next_obs.camera == 7).all() and (steps[6].obs.camera == 0).all()
    assert (steps[7].obs.place["0"] == 1).all()


def test_nested_environments_are_put_back_exactly():
    env, rng = make(Arm, 2), np.random.default_rng(0)
    env.reset(seed=3)
    for _ in range(4): env.step(arm_acts(rng, 2))
    there, acts = env.state(), [arm_acts(rng, 2) for _ in range(9)]
    ahead = [env.step(act) for act in acts]
    twin = make(Arm, 2)
    twin.reset(seed=9)
    twin.restore(there)
    for act, was in zip(acts, ahead): assert all(same(a, b) for a, b in zip(twin.step(act), was))


def test_every_environment_of_ours_is_known_after_import_rlbench():
    "A module of rlbench.envs that registers something must be imported by the package: the command line knows no other way"
    tell = "; print(*sorted(id for id in gymnasium.registry if id.startswith('rlbench/')))"
    every = "; [importlib.import_module(f'rlbench.envs.{m.name}') for m in pkgutil.iter_modules(rlbench.envs.__path__)]"
    package, modules = (subprocess.run([sys.executable, "-c", f"import gymnasium, importlib, pkgutil, rlbench.envs{more}{tell}"], capture_output=True, text=True, check=True).stdout.split()
                        for more in ("", every))
    assert package == modules and len(package) > 10
