"""Final observations in every autoreset mode, from the environment to the memory's rows and the advantages."""
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlbench.algos.algorithm import get
from rlbench.buffers.returns import gae
from rlbench.core.batch import Batch
from rlbench.core.spaces import AGENT
from rlbench.core.state import same
from rlbench.envs.env import EnvList, EnvProblem
from rlbench.envs.find import make
from rlbench.envs.native import NativeVec
from rlbench.training.trainer import Trainer


class Staggered(gym.Env):
    "Environment k ends after 2 + k steps by itself, or after `limit` by a limit; it shows k, its episode and its step"
    observation_space = gym.spaces.Box(-1, 99, (3,))
    action_space = gym.spaces.Discrete(2)
    metadata = {}

    def __init__(self, k, limit=4):
        self.k = k
        self.limit = limit
        self.episode = 0

    def show(self):
        return np.array([self.k, self.episode, self.t], np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.episode += 1
        return self.show(), {}

    def step(self, act):
        self.t += 1
        return self.show(), float(self.t), self.t == 2 + self.k, self.t == self.limit, {}


def native(mode, n=4):
    vector = SyncVectorEnv([lambda k=k: Staggered(k) for k in range(n)], autoreset_mode=mode)
    return NativeVec("Staggered", Staggered(0), vector)


def listed():
    makers = iter([Staggered(0)] + [Staggered(k) for k in range(4)])
    return EnvList("Staggered", lambda: next(makers), 4)


def stored(trainer, env, steps=30):
    "The first rows of an environment: (episode, t, rew, term, trunc, next episode, next t)"
    memory = trainer.learner.memory
    rows = memory.gather(np.arange(steps) * memory.num_envs + env)
    flags = (rows.term, rows.trunc)
    columns = (rows.obs[:, 1], rows.obs[:, 2], rows.rew, *flags, rows.next_obs[:, 1], rows.next_obs[:, 2])
    return list(zip(*(column.tolist() for column in columns)))


def collect(env, steps=30):
    "A trainer that has taken at least so many steps of each environment, and learned nothing"
    trainer = Trainer(env, get("ppo")(n_steps=40))
    trainer.learning = False
    while trainer.learner.memory.sizes.min() < steps: trainer.advance()
    return trainer


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_same_transitions_in_all_three_modes_and_no_dummy_row(mode):
    want = collect(listed())
    got = collect(native(mode))
    for env in range(4):
        assert stored(want, env) == stored(got, env)
        for episode, t, rew, term, trunc, next_episode, next_t in stored(got, env):
            assert next_episode == episode and next_t == t + 1 == rew       # never across a reset, never a dummy row
            assert not (term and trunc)
            assert term == (next_t == 2 + env) and trunc == (next_t == 4 and not term)
    assert got.steps == got.learner.memory.added
    assert want.steps == want.learner.memory.added


@pytest.mark.parametrize("mode", AutoresetMode)
def test_episodes_are_counted_alike_in_all_three_modes(mode):
    trainer = collect(native(mode))
    rows = [stored(trainer, env) for env in range(4)]
    ended = sum(term or trunc for each_env in rows for _, _, _, term, trunc, _, _ in each_env)
    finished = trainer.episodes.finished
    assert trainer.episodes.total >= ended > 20
    assert {(one.env, one.ret, one.length, one.term) for one in finished} <= {
        (0, 3., 2, True), (1, 6., 3, True), (2, 10., 4, True), (3, 10., 4, False)}


def test_equal_advantages_in_all_three_modes():
    advantages = []
    for mode in AutoresetMode:
        data = collect(native(mode)).learner.memory.gather(np.arange(24)[:, None] * 4 + np.arange(4)).torch()
        val = data.obs.sum(-1)
        advantages.append(gae(data.rew, val, data.next_obs.sum(-1), data.term, data.trunc, .9, .8))
    assert torch.equal(advantages[0], advantages[1]) and torch.equal(advantages[0], advantages[2])


def test_an_unknown_mode_is_refused():
    env = SyncVectorEnv([lambda: Staggered(0)])
    env.metadata = {}
    with pytest.raises(EnvProblem, match="autoreset_mode"):
        NativeVec("Staggered", Staggered(0), env)


class Echo(gym.Env):
    "Shows what was done"
    observation_space = gym.spaces.Box(-9, 9, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))
    metadata = {}

    def reset(self, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, act):
        return np.asarray(act, np.float32), 0., False, False, {}


def test_actions_are_clipped_on_their_way_and_stored_as_drawn():
    trainer = Trainer(Echo, get("ppo")(n_steps=64), num_envs=8)
    trainer.until("step", 64)
    rows = trainer.learner.memory.rows
    assert np.abs(rows.act).max() > 1 and np.abs(rows.next_obs).max() <= 1
    np.testing.assert_array_equal(np.clip(rows.act, -1, 1), rows.next_obs)


DRAWN = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "FrozenLake-v1", "rlbench/CliffWalk-v0"]


@pytest.mark.parametrize("id", DRAWN)
def test_a_stored_observation_can_be_drawn(id):
    env = make(id, 2)
    space = env.behaviours[AGENT].action_space
    space.seed(0)
    frames = []
    obs = env.reset(0)[AGENT]
    for _ in range(30):
        frames.append(env.frame_of(obs[0]))
        obs = env.step({AGENT: np.stack([space.sample() for _ in range(2)])})[AGENT].obs
    assert frames[0].dtype == np.uint8 and frames[0].ndim == 3
    assert any((frame != frames[0]).any() for frame in frames)


# ---- several things at once

class Arm(gym.Env):
    "Shows a small picture and a number, and wants a move and a grip"
    observation_space = gym.spaces.Dict(
        camera=gym.spaces.Box(0, 255, (4, 4), np.uint8),
        place=gym.spaces.Tuple([gym.spaces.Discrete(5), gym.spaces.Box(-9, 9, (2,))]),
    )
    action_space = gym.spaces.Dict(move=gym.spaces.Box(-1, 1, (2,)), grip=gym.spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.normal(size=2).astype(np.float32)
        self.steps = 0
        return self.look(), {}

    def look(self):
        return dict(camera=np.full((4, 4), self.steps, np.uint8), place=(self.steps % 5, self.at))

    def step(self, act):
        assert self.action_space.contains(act)
        gust = self.np_random.normal(size=2).astype(np.float32) * .1
        self.at = np.clip(self.at + act["move"] * act["grip"] + gust, -9, 9).astype(np.float32)
        self.steps += 1
        return self.look(), float(act["grip"]), self.steps > 6, False, {}


def arm_acts(rng, n):
    "Moves of which some leave the box"
    return {AGENT: Batch(move=rng.normal(size=(n, 2)).astype(np.float32) * 2, grip=rng.integers(2, size=n))}


def test_dictionaries_and_tuples_are_nested_columns():
    env = make(Arm, 3)
    rng = np.random.default_rng(0)
    obs = env.reset(seed=0)[AGENT]
    assert obs.camera.shape == (3, 4, 4) and obs.place["1"].shape == (3, 2)
    steps = [env.step(arm_acts(rng, 3))[AGENT] for _ in range(9)]
    assert steps[6].term.all() and steps[6].first.all()
    assert (steps[6].next_obs.camera == 7).all() and (steps[6].obs.camera == 0).all()
    assert (steps[7].obs.place["0"] == 1).all()


def test_nested_environments_are_put_back_exactly():
    env = make(Arm, 2)
    rng = np.random.default_rng(0)
    env.reset(seed=3)
    for _ in range(4): env.step(arm_acts(rng, 2))
    there = env.state()
    acts = [arm_acts(rng, 2) for _ in range(9)]
    ahead = [env.step(act)[AGENT] for act in acts]
    twin = make(Arm, 2)
    twin.reset(seed=9)
    twin.restore(there)
    for act, was in zip(acts, ahead):
        assert same(tuple(twin.step(act)[AGENT]), tuple(was))


# ---- environments that are ahead of others

ROLLOUTS = dict(num_envs=4, n_steps=16, n_epochs=2, batch_size=32)


def learned_rows(trainer, events):
    "How often each row (environment, number) was learned from"
    memory = trainer.learner.memory
    counts = Counter()
    for _, event in zip(range(events), trainer):
        if event.kind == "learn":
            batch = trainer.learner.last.batch
            index = batch.index[batch.valid].numpy()
            counts.update(zip(memory.env_of(index).tolist(), memory.ordinal(index).tolist()))
    return counts


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo"])
def test_a_rollout_loses_no_row_where_environments_spend_steps_on_beginning_anew(algo):
    trainer = Trainer("CartPole-v1", algo, **ROLLOUTS)
    assert trainer.env.mode == AutoresetMode.NEXT_STEP
    counts = learned_rows(trainer, events=600)
    trainer.until(lambda event: event.kind == "collect")
    held = trainer.learner.memory.written - trainer.learner.fresh
    assert len(set(held)) > 1
    assert counts == {(env, row): 2 for env in range(4) for row in range(held[env])}    # once an epoch


def test_a_stretch_that_is_shorter_in_some_environments_learns_from_what_is_there_alone():
    trainer = Trainer("CartPole-v1", "recurrent_ppo", **ROLLOUTS | dict(batch_size=64), normalize_obs=True)
    learner = trainer.learner
    for _ in range(4):
        trainer.until(lambda event: event.kind == "process")
        batch = learner.data[learner.todo[0]]
        batch.obs.requires_grad_()
        [(_, loss, parts)] = learner.algo.losses(learner.nets, batch)
        assert parts["ratio"].shape == (batch.valid.sum(),)
        torch.testing.assert_close(parts["ratio"], torch.ones_like(parts["ratio"]))
        asked, = torch.autograd.grad(loss, batch.obs)
        assert asked[batch.valid].any(-1).float().mean() > .9 and not asked[~batch.valid].any()
        mean = learner.nets.policy.net.trunk.encode[0].count + batch.valid.sum()
        trainer.until("iteration")
        assert learner.nets.policy.net.trunk.encode[0].count == mean
    assert not batch.valid.all()


class Uneven(gym.Env):
    "Episodes of 1 to 4 steps that show numbers from 1 on"
    observation_space = gym.spaces.Discrete(3, start=1)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 5))
        return 1, {}

    def step(self, act):
        self.left -= 1
        return 2, 1., self.left == 0, False, {}


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo"])
def test_places_that_were_never_written_are_not_asked_for_a_value(algo):
    env = NativeVec("uneven", Uneven(), SyncVectorEnv([Uneven] * 4))
    trainer = Trainer(env, algo, n_steps=8, seed=0)
    trainer.until("iteration")
    assert trainer.learner.memory.written.min() < 8
    assert len(trainer.learner.data[trainer.learner.data.valid]) == trainer.steps


def test_an_environment_that_gave_no_row_makes_no_minibatch():
    trainer = Trainer("CartPole-v1", "recurrent_ppo", num_envs=2, n_steps=4, batch_size=4, n_epochs=1)
    trainer.run(steps=2)
    learner = trainer.learner
    learner.fresh[1] = 0
    learner.process()
    [index] = learner.todo
    assert learner.memory.env_of(learner.data.index[index].numpy()).max() == 0
