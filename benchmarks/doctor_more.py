"A second set of faults and of healthy runs for benchmarks/doctor.py: other kinds, other algorithms, other environments"
from collections import deque

import gymnasium as gym
import numpy as np
import torch

from benchmarks.doctor_cases import DQN_FAST, POLE, SWING, NeverFollows, case, spoilt
from rlbench.algos.a2c import A2C
from rlbench.algos.c51 import C51
from rlbench.algos.dqn import DQN
from rlbench.algos.ppo import PPO
from rlbench.algos.qlearning import QLearning
from rlbench.algos.reinforce import REINFORCE
from rlbench.algos.sac import SAC
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


class PaidLate(gym.Wrapper):
    "Pays all of it with the last step"
    earned = 0.         # in this episode

    def reset(self, **how):
        self.earned = 0.
        return self.env.reset(**how)

    def due(self):
        "What is paid at the end"
        return self.earned

    def step(self, action):
        obs, rew, term, trunc, info = self.env.step(action)
        self.earned += rew
        return obs, self.due() if term or trunc else 0., term, trunc, info


class PaidNextTime(PaidLate):
    "Pays with the last step what the episode before had earned"
    owed = 0.

    def reset(self, **how):
        self.owed = self.earned
        return super().reset(**how)

    def due(self):
        return self.owed


class OneState(gym.Wrapper):
    "A world of which the same state is shown all along"

    def reset(self, **how):
        return 0, self.env.reset(**how)[1]

    def step(self, action):
        return 0, *self.env.step(action)[1:]


class Frozen(gym.Wrapper):
    "Shows how the episode began, all along"

    def reset(self, **how):
        self.first, info = self.env.reset(**how)
        return self.first, info

    def step(self, action):
        _, *rest = self.env.step(action)
        return self.first, *rest


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


class Shuffled(PPO):
    "Gives each advantage to another row"

    def targets(self, nets, rows, noise):
        data, todo = super().targets(nets, rows, noise)
        data.adv = data.adv.roll(37)
        return data, todo


class NoBootstrap(PPO):
    "Counts nothing that follows"

    def targets(self, nets, rows, noise):
        return super().targets(nets, Batch(rows, term=torch.ones_like(rows.term)), noise)


class OtherAction(PPO):
    "Stores the probability of the action that it does not take"

    def act(self, nets, obs, noise, carry):
        act, more, carry = super().act(nets, obs, noise, carry)
        return 1 - act, more, carry


class Deaf(PPO):
    "A policy that no gradient moves"

    def nets(self, spec, rng):
        nets = super().nets(spec, rng)
        nets.policy.requires_grad_(False)
        return nets


class AllAlike(A2C):
    "The same advantage for every action"

    def targets(self, nets, rows, noise):
        data, todo = super().targets(nets, rows, noise)
        data.adv = torch.ones_like(data.adv)
        return data, todo


class Backwards(REINFORCE):
    "Returns in the wrong order"

    def targets(self, nets, rows, noise):
        data, todo = super().targets(nets, rows, noise)
        data.adv = data.ret.flip(0) - data.val
        return data, todo


class SameObservation(DQN):
    "Takes what was seen for what followed"

    def judged(self, nets, rows, noise):
        return super().judged(nets, Batch(rows, next_obs=rows.obs), noise)


class Perverse(DQN):
    "Does what it thinks worst"

    def choose(self, q, noise, mask=None):
        return super().choose(-q, noise, mask)


class Gloomy(DQN):
    "Expects the worst of what follows"

    @torch.no_grad()
    def target(self, nets, batch):
        return batch.ret + batch.disc * nets.target(batch.next_obs).amin(-1)


class Unpaid(C51):
    "Takes rewards for costs"

    def judged(self, nets, rows, noise):
        return super().judged(nets, Batch(rows, rew=-rows.rew), noise)


class Downhill(SAC):
    "A policy that climbs down its critics"

    def actor_losses(self, nets, worth, ent):
        yield from super().actor_losses(nets, -worth, ent)


class OtherActions(SAC):
    "Critics that are shown the actions of other rows"

    def judged(self, nets, rows, noise):
        data = super().judged(nets, rows, noise)
        data.act = data.act.roll(1, 0)
        return data


class Away(QLearning):
    "A table that moves away from its targets"

    def update(self, nets, batch):
        before = nets.q.values.clone()
        parts = super().update(nets, batch)
        nets.q.values.copy_(2 * before - nets.q.values)
        return parts


ELSEWHERE = np.random.default_rng(0)        # chance that no environment knows of, and that no state brings back


def any_order(env, obs):
    return env.np_random.permutation(obs)


class Impatient(DQN):
    "Asks the learning network what follows, and not the one that stands still"

    @torch.no_grad()
    def target(self, nets, batch):
        return batch.ret + batch.disc * nets.q(batch.next_obs).amax(-1)


class Timid(SAC):
    "Hardly dares to act"

    def act(self, nets, obs, noise, carry):
        act, extra, carry = super().act(nets, obs, noise, carry)
        return .03 * act, extra, carry


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
    "reward: a 10,000th": case(
        "small_rewards", env=spoilt(POLE, reward=lambda env, rew: 1e-4 * rew), normalize_reward=False),
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
    "epsilon: 0, table": case("no_exploration", env=LAKE, algo="qlearning", steps=5000, epsilon=0., initial=0.),
    "epsilon: 1, table": case("only_exploration", env=CLIFF, algo="qlearning", steps=5000, epsilon=1.),
    "dqn counts past the end": case("past_the_end", **BRIEF | dict(algo=Forgetful())),
    "dqn climbs": case("wrong_push", "impossible_values", **BRIEF | dict(algo=Uphill())),
    "advantages of other rows": case("strange_advantage", algo=Shuffled()),
    "advantages without what follows": case("other_rows", "strange_advantage", algo=NoBootstrap()),
    "advantages all alike": case("strange_advantage", algo=AllAlike()),
    "returns in the wrong order": case("strange_advantage", algo=Backwards()),
    "probabilities of the other action": case("strange_chance", algo=OtherAction()),
    "policy that no gradient moves": case("untouched_weights", algo=Deaf()),
    "target network that nobody renews": case("untouched_weights", **BRIEF | dict(algo=NeverFollows())),
    "dqn values what it left": case("other_rows", **BRIEF | dict(algo=SameObservation(n_step=1))),
    "dqn does the worst": case("against_values", **BRIEF | dict(algo=Perverse())),
    "dqn expects the worst": case("strange_target", **BRIEF | dict(env="Acrobot-v1", algo=Gloomy(n_step=1))),
    "c51, rewards as costs": case("other_rows", **BRIEF | dict(algo=Unpaid())),
    "c51, returns up to 2": case("strange_target", **BRIEF | dict(algo="c51", v_min=0., v_max=2.)),
    "sac goes down": case("against_values", **SMALL | dict(algo=Downhill())),
    "sac, actions of other rows": case("other_rows", **SMALL | dict(algo=OtherActions())),
    "table that moves away": case("wrong_push", env=CLIFF, algo=Away(lr=.1), steps=3000),
    "reward: at the end, which is a limit": case("late_reward", env=wrapped("Acrobot-v1", PaidLate), steps=8000),
    "reward: noise from elsewhere": case(
        "noisy_reward", env=spoilt(POLE, reward=lambda env, rew: rew + 50 * ELSEWHERE.normal())),
    "observation: noise from elsewhere": case(
        "noisy_observation", env=spoilt(POLE, wide=True, obs=lambda env, obs: obs + 20 * ELSEWHERE.normal(size=4))),
    "a2c against its advantages": case("strange_advantage", algo=Against()),
    "observation: no velocity": case(
        "hidden_state", env=spoilt(SWING, obs=lambda env, obs: obs[[0, 1, 1]])),
    "observation: one of all states": case(
        "dead_observation", env=wrapped(CLIFF, OneState), algo="qlearning", steps=3000),
    "reward: that of the episode before": case("late_reward", env=wrapped(POLE, PaidNextTime)),
    "end: never": case(
        "no_end", **SMALL | dict(steps=1600, env=lambda: gym.make(SWING, max_episode_steps=10**6))),
    "end: at once": case("hasty_limit", env=spoilt(POLE, end=lambda env, term, trunc: (True, False))),
    "gamma: 1, no end": case("long_sight", **SMALL, gamma=1.),
    "action: a thirtieth": case("narrow_actions", **SMALL | dict(algo=Timid())),
    "dqn asks itself": case("strange_target", "other_target", **BRIEF | dict(steps=1300, algo=Impatient(n_step=1))),
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
    "ppo, Probe-Match": case(env="rlbench/Probe-Match-v0", steps=8000),
    "dqn, LunarLander": case(env="LunarLander-v3", algo="dqn", steps=2000),
    "qlearning, FrozenLake, slippery": case(env=LAKE, algo="qlearning", steps=8000, lr=.1),
    "sac, LunarLander, engines": case(
        env=lambda: gym.make("LunarLander-v3", continuous=True), algo="sac", steps=800, hidden=(32, 32), batch_size=32),
    "crossq, Pendulum": case(env=SWING, algo="crossq", steps=800, hidden=(32, 32)),
    "iqn, CartPole": case(algo="iqn", steps=2000),
}
