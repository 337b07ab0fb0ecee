"Runs with one thing wrong each, and runs with nothing wrong, for benchmarks/doctor.py"
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch

from rlbench import Trainer
from rlbench.algos.dqn import DQN
from rlbench.algos.ppo import PPO
from rlbench.core.batch import Batch


class Spoilt(gym.Wrapper):
    "An environment in which one thing is wrong"

    def __init__(self, env, reward=None, obs=None, act=None, end=None):
        super().__init__(env)
        self.reward = reward
        self.obs = obs
        self.act = act
        self.end = end
        self.steps = 0

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        self.steps = 0
        return self.shown(obs), info

    def shown(self, obs):
        return obs if self.obs is None else self.obs(self, obs).astype(np.float32)

    def step(self, action):
        if self.act: action = self.act(self, action)
        obs, rew, term, trunc, info = self.env.step(action)
        self.steps += 1
        if self.reward: rew = self.reward(self, rew)
        if self.end: term, trunc = self.end(self, term, trunc)
        return self.shown(obs), rew, term, trunc, info


def spoilt(name, wide=False, **spoil):
    "What makes such an environment; `wide`: its observations may be anything"
    def make():
        env = Spoilt(gym.make(name), **spoil)
        if wide:
            env.observation_space = gym.spaces.Box(-np.inf, np.inf, env.observation_space.shape, np.float32)
        return env
    return make


def trained(env, algo, steps, **settings):
    return Trainer(env, algo, log_every=500, check_env=False, **settings).run(steps)


class WrongSign(PPO):
    "Advantages with the wrong sign"

    def targets(self, nets, rows, noise):
        data, todo = super().targets(nets, rows, noise)
        data.adv = -data.adv
        return data, todo


class Climbs(PPO):
    "A surrogate that is made smaller"

    def losses(self, nets, batch):
        for group, loss, parts in super().losses(nets, batch):
            yield group, loss + 2 * parts["surr"].mean(), parts


class PastTheEnd(PPO):
    "What would come after an end is counted"

    def targets(self, nets, rows, noise):
        return super().targets(nets, Batch(rows, term=torch.zeros_like(rows.term)), noise)

    def td_error(self, nets, batch):
        return super().td_error(nets, Batch(batch, term=torch.zeros_like(batch.term)))


class CutOff(PPO):
    "A loss that is cut off from the networks"

    def losses(self, nets, batch):
        for group, loss, parts in super().losses(nets, batch):
            yield group, 0 * loss, parts


class Mixed(PPO):
    "Advantages that belong to other rows"

    def targets(self, nets, rows, noise):
        data, todo = super().targets(nets, rows, noise)
        data.adv = -data.adv.flip(0)
        return data, todo


class NeverFollows(DQN):
    "A target network that stays where it was"

    def after(self, nets, own, taken):
        return None


@dataclass(frozen=True)
class Case:
    make: object    # -> a trainer that has run
    named: tuple    # findings any of which names the fault


POLE = "CartPole-v1"
SWING = "Pendulum-v1"
DQN_FAST = dict(learning_starts=200, train_freq=1, gradient_steps=1)


def case(*named, env=POLE, algo="ppo", steps=5000, **settings):
    return Case(lambda: trained(env, algo, steps, **settings), named)


def rare(env, rew):
    return float(env.steps == 300)


def noise(env, obs):
    return env.np_random.standard_normal(obs.shape)


FAULTS = {
    "reward: always 0": case("same_reward", env=spoilt(POLE, reward=lambda env, rew: 0.)),
    "reward: one for all, no end": case("same_reward", env=spoilt(SWING, reward=lambda env, rew: 1.)),
    "reward: 10,000 times as large": case("large_rewards", env=spoilt(SWING, reward=lambda env, rew: 1e4 * rew)),
    "reward: wrong sign": case("pays_for_ending", env=spoilt(POLE, reward=lambda env, rew: -rew), steps=15_000),
    "observation: always 0": case("dead_observation", env=spoilt(POLE, obs=lambda env, obs: 0 * obs)),
    "observation: noise": case("noisy_observation", env=spoilt(POLE, wide=True, obs=noise)),
    "observation: one dimension large": case(
        "unscaled_observation", env=spoilt(POLE, wide=True, obs=lambda env, obs: obs * [1, 1e5, 1, 1])),
    "observation: an offset": case(
        "unscaled_observation", env=spoilt(POLE, wide=True, obs=lambda env, obs: obs + 1000)),
    "action: ignored": case(
        "idle_actions", env=spoilt(POLE, act=lambda env, action: int(env.np_random.integers(2)))),
    "action: ignored, Box": case(
        "idle_actions", env=spoilt(SWING, act=lambda env, action: env.np_random.uniform(-2, 2, 1))),
    "end: reported as a limit": case(
        "end_as_limit", env=spoilt(POLE, end=lambda env, term, trunc: (False, term or trunc))),
    "limit: reported as an end": case("limit_as_end", env=spoilt(SWING, end=lambda env, term, trunc: (trunc, False))),
    "lr: 300 times": case("strange_rate", "dead_units", "too_far", lr=.3),
    "lr: a 10,000th": case("strange_rate", lr=1e-7),
    "gamma: .2": case("short_sight", gamma=.2),
    "ent_coef: 5": case("kept_random", ent_coef=5.),
    "buffer_size: 200": case("short_memory", algo="dqn", steps=3000, buffer_size=200, **DQN_FAST),
    "epsilon: 0": case("no_exploration", algo="dqn", steps=3000, epsilon=0., **DQN_FAST),
    "epsilon: 1": case("only_exploration", algo="dqn", steps=3000, epsilon=1., **DQN_FAST),
    "target_update_interval: a million": case(
        "stale_target", algo="dqn", steps=3000, target_update_interval=1_000_000, **DQN_FAST),
    "learning_starts: never": case("no_updates", algo="dqn", steps=3000, learning_starts=1_000_000),
    "sign of the advantage": case("strange_advantage", algo=WrongSign()),
    "sign of the surrogate": case("wrong_push", "other_gradient", algo=Climbs()),
    "counts past the end": case("past_the_end", algo=PastTheEnd()),
    "loss cut off": case("standing_still", algo=CutOff()),
}
HEALTHY = {
    "ppo, CartPole, early": case(),
    "ppo, CartPole, late": case(steps=50_000),
    "ppo, Pendulum": case(env=SWING, steps=20_000, preset="tuned"),
    "dqn, CartPole": case(algo="dqn", steps=10_000),
    "a2c, CartPole": case(algo="a2c", steps=20_000),
    "sac, Pendulum": case(env=SWING, algo="sac", steps=1500),
    "td3, Pendulum": case(env=SWING, algo="td3", steps=1500),
    "qlearning, CliffWalk": case(env="rlbench/CliffWalk-v0", algo="qlearning", steps=5000),
    "ppo, Acrobot": case(env="Acrobot-v1", steps=40_000),
    "qlearning, FrozenLake": case(env="FrozenLake-v1", algo="qlearning", steps=10_000),
}
