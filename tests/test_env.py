"""Final observations in every autoreset mode, from the environment to the buffer's rows and the advantages."""
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlbench.algos.algorithm import get
from rlbench.buffers.returns import gae
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
