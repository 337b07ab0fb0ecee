"A second set of faults and of healthy runs for benchmarks/doctor.py: other kinds, other algorithms, other environments"
from collections import deque

import gymnasium as gym
import numpy as np
import torch

from benchmarks.doctor_cases import DQN_FAST, POLE, SWING, case, spoilt
from rlbench.algos.a2c import A2C
from rlbench.algos.dqn import DQN
from rlbench.core.batch import Batch

CLIFF = "rlbench/CliffWalk-v0"
LAKE = "FrozenLake-v1"
BRIEF = dict(algo="dqn", steps=1200, **DQN_FAST)
SMALL = dict(env=SWING, algo="sac", steps=800, hidden=(32, 32), batch_size=32)


class Late(gym.Wrapper):
    "Keeps observations, or actions, back for some steps"

    def __init__(self, env, seen=0, done=0):
        super().__init__(env)
        self.seen = seen
        self.done = done

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        self.views = deque([obs] * (self.seen + 1), self.seen + 1)
        self.deeds = deque([0 * self.action_space.sample()] * (self.done + 1), self.done + 1)
        return obs, info

    def step(self, action):
        self.deeds.append(action)
        obs, *rest = self.env.step(self.deeds[0])
        self.views.append(obs)
        return self.views[0], *rest


class Frozen(gym.Wrapper):
    "Shows how the episode began, all along"

    def reset(self, **how):
        self.first, info = self.env.reset(**how)
        return self.first, info

    def step(self, action):
        _, *rest = self.env.step(action)
        return self.first, *rest


class PaidLate(gym.Wrapper):
    "Pays all of it with the last step"

    def reset(self, **how):
        self.sum = 0.
        return self.env.reset(**how)

    def step(self, action):
        obs, rew, term, trunc, info = self.env.step(action)
        self.sum += rew
        return obs, self.sum if term or trunc else 0., term, trunc, info


class Overstated(gym.Wrapper):
    "Says that its actions reach a hundred times as far as they do"

    def __init__(self, env):
        super().__init__(env)
        self.reach = env.action_space
        self.action_space = gym.spaces.Box(100 * self.reach.low, 100 * self.reach.high, dtype=np.float32)

    def step(self, action):
        return self.env.step(np.clip(action, self.reach.low, self.reach.high))


def wrapped(name, wrapper, **how):
    "What makes an environment in a wrapper"
    return lambda: wrapper(gym.make(name), **how)


class Forgetful(DQN):
    "What would come after an end is counted"

    def targets(self, nets, rows, noise):
        return super().targets(nets, Batch(rows, term=torch.zeros_like(rows.term)), noise)


class Uphill(DQN):
    "A loss that is made larger"

    def losses(self, nets, batch):
        for group, loss, parts in super().losses(nets, batch):
            yield group, -loss, parts


class Against(A2C):
    "Advantages with the wrong sign"

    def targets(self, nets, rows, noise):
        data, todo = super().targets(nets, rows, noise)
        data.adv = -data.adv
        return data, todo


def any_order(env, obs):
    return env.np_random.permutation(obs)


def shaken(env, rew):
    return rew + 50 * env.np_random.normal()


def fined(env, rew):
    return -50. if env.steps == 20 else rew


def at_random(env, term, trunc):
    return term or env.np_random.random() < .1, trunc


MORE_FAULTS = {
    "observation: that of the reset": case("frozen_observation", env=wrapped(POLE, Frozen)),
    "observation: six steps late": case("late_actions", env=wrapped(SWING, Late, seen=6)),
    "observation: dimensions in any order": case("noisy_observation", env=spoilt(POLE, wide=True, obs=any_order)),
    "observation: a 10,000th": case(
        "unscaled_observation", env=spoilt(POLE, wide=True, obs=lambda env, obs: 1e-4 * obs)),
    "action: six steps late": case("late_actions", env=wrapped(SWING, Late, done=6)),
    "action: bounds 100 times too wide": case("flat_actions", **SMALL | dict(env=wrapped(SWING, Overstated))),
    "action: a 1,000th": case("idle_actions", **SMALL | dict(env=spoilt(SWING, act=lambda env, act: 1e-3 * act))),
    "reward: noise": case("noisy_reward", env=spoilt(POLE, reward=shaken)),
    "reward: at the end": case("late_reward", env=wrapped(POLE, PaidLate)),
    "reward: for an hour that is not shown": case("hidden_time", env=spoilt(POLE, reward=fined)),
    "reward: a 10,000th": case("small_rewards", env=spoilt(POLE, reward=lambda env, rew: 1e-4 * rew)),
    "reward: 1,000 times, advantages as they are": case(
        "large_rewards", env=spoilt(POLE, reward=lambda env, rew: 1e3 * rew), normalize_advantage=False),
    "end: at random": case("ends_by_chance", env=spoilt(POLE, end=at_random)),
    "limit: an end after 8 steps": case(
        "limit_as_end", env=spoilt(SWING, end=lambda env, term, trunc: (env.steps >= 8, False))),
    "limit: after 6 steps": case(
        "hasty_limit", env=spoilt(SWING, end=lambda env, term, trunc: (term, env.steps >= 6))),
    "gamma: .5, table": case("short_sight", env=CLIFF, algo="qlearning", steps=3000, gamma=.5),
    "lr: a 50,000th, table": case("strange_rate", env=CLIFF, algo="qlearning", steps=3000, lr=1e-5),
    "lr: 100 times, a2c": case("strange_rate", algo="a2c", lr=.07),
    "batch_size: 1": case("strange_setting", **BRIEF | dict(batch_size=1)),
    "max_grad_norm: .0001": case("strange_setting", max_grad_norm=1e-4),
    "gae_lambda: 0, paid at the end": case(
        "strange_setting", "late_reward", env=wrapped(POLE, PaidLate), gae_lambda=0.),
    "clip_range: .001": case("strange_setting", "clipped_away", clip_range=1e-3),
    "vf_coef: 0": case("strange_setting", "blind_critic", steps=8000, vf_coef=0.),
    "tau: 1": case("strange_setting", **SMALL, tau=1.),
    "target_update_interval: 1": case("strange_setting", **BRIEF, target_update_interval=1),
    "ent_coef: 10, sac": case("kept_random", **SMALL, ent_coef=10.),
    "epsilon: 0, table": case("no_exploration", env=LAKE, algo="qlearning", steps=5000, epsilon=0.),
    "epsilon: 1, table": case("only_exploration", env=CLIFF, algo="qlearning", steps=5000, epsilon=1.),
    "dqn counts past the end": case("past_the_end", **BRIEF | dict(algo=Forgetful())),
    "dqn climbs": case("wrong_push", "impossible_values", **BRIEF | dict(algo=Uphill())),
    "a2c against its advantages": case("wrong_sign", algo=Against()),
}
MORE_HEALTHY = {
    "trpo, Pendulum": case(env=SWING, algo="trpo", steps=8000),
    "impala, CartPole": case(algo="impala", steps=8000),
    "reinforce, CartPole": case(algo="reinforce", steps=8000),
    "stream_q, CartPole": case(algo="stream_q", steps=4000),
    "c51, CartPole": case(algo="c51", steps=3000),
    "tqc, Pendulum": case(env=SWING, algo="tqc", steps=800, hidden=(32, 32), batch_size=32),
    "sarsa, CliffWalk": case(env=CLIFF, algo="sarsa", steps=5000),
    "dyna, DynaMaze": case(env="rlbench/DynaMaze-v0", algo="dyna", steps=3000),
    "monte_carlo, Blackjack": case(env="Blackjack-v1", algo="monte_carlo", steps=5000),
    "sac, MountainCarContinuous": case(env="MountainCarContinuous-v0", algo="sac", steps=800, hidden=(32, 32)),
    "recurrent_ppo, StatelessCartPole": case(env="rlbench/StatelessCartPole-v0", algo="recurrent_ppo", steps=4000),
    "dqn, LunarLander": case(env="LunarLander-v3", algo="dqn", steps=2000),
}
