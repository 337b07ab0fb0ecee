"A fourth set for benchmarks/doctor.py: faults as a teacher puts them into a course, most of them written blind"
from dataclasses import replace

import gymnasium as gym
import numpy as np
import torch

from benchmarks.doctor_cases import POLE, case
from benchmarks.doctor_more import BRIEF, CLIFF, SMALL, Late, wrapped
from benchmarks.doctor_others import PaidAfterwards
from rlbench.algos.a2c import A2C
from rlbench.algos.dqn import DQN
from rlbench.algos.monte_carlo import MonteCarlo
from rlbench.algos.pqn import PQN
from rlbench.algos.ppo import PPO
from rlbench.algos.qlearning import QLearning
from rlbench.algos.sac import SAC
from rlbench.algos.td3 import TD3
from rlbench.algos.traces import SarsaLambda
from rlbench.algos.trpo import TRPO
from rlbench.core.batch import Batch
from rlbench.envs.find import known
from rlbench.policies.networks import follow

ROOMS = "rlbench/FourRooms-v0"
LANDER = "LunarLander-v3"


class InEveryOrder(gym.Wrapper):
    "Numbers its actions anew in every episode"

    def reset(self, **how):
        begun = self.env.reset(**how)
        self.order = self.env.unwrapped.np_random.permutation(self.env.action_space.n)
        return begun

    def step(self, action):
        return self.env.step(int(self.order[action]))


class HalfOthers(gym.ActionWrapper):
    "Takes any action in every other step"

    def action(self, action):
        rng = self.env.unwrapped.np_random
        return action if rng.random() < .5 else int(rng.integers(self.env.action_space.n))


class EntropyCosts(A2C):
    "Subtracts what it should be paid for entropy"

    def losses(self, nets, batch):
        for group, loss, parts in super().losses(nets, batch):
            yield group, loss + 2 * self.ent_coef * parts["ent"].mean(), parts


class Hopeful(TD3):
    "Believes the critic that says more, and does without noise"

    @torch.no_grad()
    def target(self, nets, batch, next_noise):
        act = nets.target_policy(batch.next_obs).mode()
        return batch.rew + self.gamma * ~batch.term * nets.target(batch.next_obs, act).amax(-1)


class OtherGamma(TD3):
    "Discounts its targets by another number than it was told"

    def target(self, nets, batch, next_noise):
        return TD3.target(replace(self, gamma=.9), nets, batch, next_noise)


class CostlyLater(SAC):
    "Takes the entropy of what follows for a cost"

    @torch.no_grad()
    def target(self, nets, critic, batch, next_noise, believe):
        worth, ent = critic.under(nets.policy(batch.next_obs), batch.next_obs, next_noise, believe)
        return batch.rew + self.gamma * ~batch.term * (worth - (self.alpha(nets) * ent).sum(-1))


class Headlong(SAC):
    "Copies its critics after each update"

    def after(self, nets, own, taken):
        super().after(nets, own, taken)
        follow(nets.target, nets.critic, 1.)


class WeightsUpsideDown(DQN):
    "Divides by importance weights"

    def losses(self, nets, batch):
        return super().losses(nets, Batch(batch, weight=1 / batch.weight))


class RandomActions(DQN):
    "Keeps other actions than those that were taken"

    def memory(self, spec):
        memory = super().memory(spec)
        add = memory.add
        rng = np.random.default_rng(0)
        memory.add = lambda row, valid=np.True_: add(Batch(row, act=rng.integers(0, 2, row.act.shape)), valid)
        return memory


class TwiceDiscounted(PQN):
    "Counts gamma twice"

    def targets(self, nets, rows, noise):
        return PQN.targets(replace(self, gamma=self.gamma**2), nets, rows, noise)


class NextRewardOnly(MonteCarlo):
    "Takes the next reward for the return"

    def targets(self, nets, rows, noise):
        return MonteCarlo.targets(replace(self, gamma=0.), nets, rows, noise)


class NeverCut(SarsaLambda):
    "Lets traces run on into the next episode"

    def follow(self, nets, rows):
        super().follow(nets, Batch(rows, first=torch.zeros_like(rows.first)))


class Negated(QLearning):
    "Takes rewards for costs"

    def update(self, nets, batch):
        return super().update(nets, Batch(batch, rew=-batch.rew))


class StepsBack(TRPO):
    "Makes its step for advantages of the other sign"

    def after(self, nets, own, taken):
        super().after(nets, own, replace(taken, data=Batch(taken.data, adv=-taken.data.adv)))


class ClipsTheOtherWay(PPO):
    "Takes the larger of the ratio and the clipped one"

    def losses(self, nets, batch):
        for group, loss, parts in super().losses(nets, batch):
            ratio = parts["ratio"]
            clipped = ratio.clamp(1 - self.clip_range, 1 + self.clip_range)
            surr = torch.maximum(ratio * parts["adv"], clipped * parts["adv"])
            yield group, loss + (parts["surr"] - surr).mean(), dict(parts, surr=surr)


def ten_steps():
    return gym.wrappers.TimeLimit(gym.make(POLE), 10)


def of_ours(name, wrapper):
    "What makes a world that comes with the library, in a wrapper"
    def make():
        known(name)
        return wrapper(gym.make(name))
    return make


SUM_FAULTS = {
    "action: half are others, CliffWalk": case(
        "other_world", env=of_ours(CLIFF, HalfOthers), algo="qlearning", steps=3000),
    "action: half are others, CartPole": case("replaced_actions", env=wrapped(POLE, HalfOthers)),
    "action: another order in each episode": case(
        "other_world", env=of_ours(ROOMS, InEveryOrder), algo="qlearning", steps=3000),
    "action: turned round in some episodes": case("turned_actions", env=wrapped(POLE, InEveryOrder), algo="a2c"),
    "observation: a step late": case("late_sight", env=wrapped(POLE, Late, seen=1)),
    "reward: a step late, LunarLander": case("reward_of_before", env=wrapped(LANDER, PaidAfterwards)),
    "limit: ten steps, or fewer": case("hasty_limit", env=ten_steps),
    "lr: next to nothing, dqn": case("strange_rate", **BRIEF | dict(lr=1e-8)),
    "a2c: entropy costs": case("other_gradient", algo=EntropyCosts()),
    "td3 believes the larger": case("other_target", **SMALL | dict(algo=Hopeful()), learning_starts=100),
    "td3 with another gamma": case("other_target", **SMALL | dict(algo=OtherGamma()), learning_starts=100),
    "sac: entropy of what follows costs": case("other_target", **SMALL | dict(algo=CostlyLater())),
    "sac copies its critics": case("other_follower", **SMALL | dict(algo=Headlong())),
    "dqn: weights upside down in the loss": case(
        "other_gradient", **BRIEF | dict(algo=WeightsUpsideDown(prioritized_replay_alpha=.6))),
    "dqn keeps other actions": case("other_memory", **BRIEF | dict(algo=RandomActions())),
    "pqn discounts twice": case("other_sums", algo=TwiceDiscounted()),
    "monte carlo: the next reward alone": case("other_sums", env=CLIFF, algo=NextRewardOnly(), steps=3000),
    "traces of another episode": case("other_traces", env=CLIFF, algo=NeverCut(), steps=3000),
    "table learns from negated rewards": case("other_correction", env=ROOMS, algo=Negated(), steps=3000),
    "trpo steps back": case("wrong_iteration", algo=StepsBack()),
    "ppo clips the other way": case("other_gradient", algo=ClipsTheOtherWay()),
}
SUM_HEALTHY = {
    "ppo, LunarLander": case(env=LANDER, steps=8000),
    "monte_carlo, FourRooms": case(env=ROOMS, algo="monte_carlo", steps=6000),
    "sarsa_lambda, CliffWalk": case(env=CLIFF, algo="sarsa_lambda", steps=3000),
}
