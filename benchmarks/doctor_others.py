"A third set of faults and of healthy runs for benchmarks/doctor.py: what others than its authors thought of"
import gymnasium as gym
import numpy as np
import torch

from benchmarks.doctor_cases import DQN_FAST, POLE, SWING, case, spoilt
from benchmarks.doctor_more import BRIEF, CLIFF, LAKE, SMALL, Late, wrapped
from rlbench.algos.a2c import A2C
from rlbench.algos.dqn import DQN
from rlbench.algos.ppo import PPO
from rlbench.algos.qlearning import QLearning
from rlbench.algos.recurrent_ppo import RecurrentPPO
from rlbench.algos.sac import SAC
from rlbench.algos.td3 import DDPG
from rlbench.core.batch import Batch
from rlbench.envs.find import known
from rlbench.envs.minatar import as_game

HILL = "MountainCarContinuous-v0"
BREAKOUT = "MinAtar/Breakout-v1"


class PaidAfterwards(gym.Wrapper):
    "Pays with each step for one before"

    def __init__(self, env, late=1):
        super().__init__(env)
        self.late = late

    def reset(self, **how):
        self.owed = [0.] * self.late
        return self.env.reset(**how)

    def step(self, action):
        obs, rew, *rest = self.env.step(action)
        self.owed.append(rew)
        return obs, self.owed.pop(0), *rest


class Halting(gym.Wrapper):
    "Renews what it shows in every third step"

    def reset(self, **how):
        self.steps = 0
        self.shown, info = self.env.reset(**how)
        return self.shown, info

    def step(self, action):
        obs, rew, term, trunc, info = self.env.step(action)
        self.steps += 1
        if self.steps % 3 == 0 or term or trunc: self.shown = obs
        return self.shown, rew, term, trunc, info


class SameStart(gym.Wrapper):
    "Begins every episode in one state"

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=7)


class NoBall(gym.Wrapper):
    "Breakout without the ball and its trail"

    def hidden(self, obs):
        return np.where(np.isin(np.arange(obs.shape[-1]), [1, 2]), 0, obs).astype(obs.dtype)

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        return self.hidden(obs), info

    def step(self, action):
        obs, *rest = self.env.step(action)
        return self.hidden(obs), *rest


class FirstAction(DQN):
    "Corrects the value of the first action, whichever was taken"

    def losses(self, nets, batch):
        return super().losses(nets, Batch(batch, act=0 * batch.act))


class Undiscounted(DQN):
    "Counts what follows in full"

    def judged(self, nets, rows, noise):
        data = super().judged(nets, rows, noise)
        return Batch(data, disc=(data.disc > 0).float())


class Rewardless(DQN):
    "Leaves rewards out of its targets"

    def judged(self, nets, rows, noise):
        data = super().judged(nets, rows, noise)
        return Batch(data, ret=0 * data.ret)


class SameRows(DQN):
    "Draws by the same random numbers each time"

    def draw(self, memory, own, fresh, rng):
        return super().draw(memory, own, fresh, np.random.default_rng(0))


class Unmoved(DQN):
    "Finds all rows equally urgent"

    def urgency(self, taken):
        index, error = super().urgency(taken)
        return index, 0 * error


class NeverDraws(PPO):
    "Takes the likeliest action in training, too"

    def act(self, nets, obs, noise, carry):
        pi = nets.policy(obs)
        act = pi.mode()
        return act, dict(logp=pi.logp(act)), carry


class Silent(DDPG):
    "Forgets the noise on its actions"

    def act(self, nets, obs, noise, carry):
        return super().act(nets, obs, None, carry)


class NextCell(QLearning):
    "Corrects the value of another state"

    def update(self, nets, batch):
        before = nets.q.values.clone()
        parts = super().update(nets, batch)
        nets.q.values.copy_(before + (nets.q.values - before).roll(1, 0))
        return parts


class TurnedRound(PPO):
    "Reads advantages with the wrong sign"

    def losses(self, nets, batch):
        return super().losses(nets, Batch(batch, adv=-batch.adv))


class CriticClimbs(A2C):
    "Makes the error of the critic larger"

    def losses(self, nets, batch):
        for group, loss, parts in super().losses(nets, batch):
            yield group, loss - 2 * self.vf_coef * parts["v_loss"].mean(), parts


class RatioUpsideDown(PPO):
    "Divides the old probability by the new one"

    def losses(self, nets, batch):
        for group, _, parts in super().losses(nets, batch):
            ratio = 1 / parts["ratio"]
            surr = torch.minimum(ratio * parts["adv"], ratio.clamp(.8, 1.2) * parts["adv"])
            yield group, (self.vf_coef * parts["v_loss"] - surr).mean(), dict(parts, ratio=ratio, surr=surr)


class Empties(RecurrentPPO):
    "Empties its memory in every step"

    def act(self, nets, obs, noise, carry):
        return super().act(nets, obs, noise, None)


class PriceFalls(SAC):
    "Asks for less entropy where there is too little"

    def price_losses(self, nets, ent, wanted=None):
        for group, loss, parts in super().price_losses(nets, ent, wanted):
            yield group, -loss, parts


def without_ball():
    known(BREAKOUT)         # brings its package
    return NoBall(as_game(gym.make(BREAKOUT)))


def stale_lake():
    return Late(gym.make(LAKE, is_slippery=False), seen=1)


def unlimited(name):
    return lambda: gym.make(name).unwrapped


def cut_off(env, obs):
    return obs.clip(-.02, .02)


def trembling(env, obs):
    return obs + env.np_random.standard_normal(obs.shape)


OTHER_FAULTS = {
    "observation: the angle is dead": case(
        "dead_part", env=spoilt(POLE, obs=lambda env, obs: obs * [1, 1, 0, 1]), steps=8000),
    "observation: no ball": case("dead_part", env=without_ball, algo="pqn", steps=6000),
    "observation: clipped": case("clipped_observation", env=spoilt(POLE, obs=cut_off)),
    "observation: trembles": case("shaky_observation", env=spoilt("Acrobot-v1", wide=True, obs=trembling)),
    "observation: every third step": case("stuck_observation", env=wrapped(POLE, Halting)),
    "start: always the same": case("same_start", env=wrapped(POLE, SameStart)),
    "reward: a step late": case("reward_of_before", **SMALL | dict(env=wrapped(SWING, PaidAfterwards))),
    "reward: two steps late": case("reward_of_before", env=wrapped(HILL, PaidAfterwards, late=2)),
    "action: one half does nothing": case(
        "changed_inside", "flat_actions", **SMALL | dict(env=spoilt(HILL, act=lambda env, act: np.clip(act, 0, 1)))),
    "limit: 40 steps, never enough": case("hasty_limit", env=lambda: gym.make("Acrobot-v1", max_episode_steps=40)),
    "limit: none, and the end is far": case("no_end", env=unlimited("MountainCar-v0"), algo="dqn", steps=8000),
    "target_kl: next to nothing": case("strange_setting", algo="trpo", target_kl=1e-8),
    "target_entropy: more than there is": case("strange_entropy", **SMALL, target_entropy=3.),
    "exploration_noise: 3": case(
        "only_exploration", **SMALL | dict(algo="td3", steps=2200), learning_starts=100, exploration_noise=3.),
    "dqn corrects the first action": case("other_estimates", **BRIEF | dict(algo=FirstAction())),
    "dqn counts what follows in full": case("other_returns", **BRIEF | dict(algo=Undiscounted())),
    "dqn leaves rewards out": case("other_returns", **BRIEF | dict(algo=Rewardless())),
    "dqn draws the same rows": case("odd_draw", **BRIEF | dict(algo=SameRows())),
    "dqn's priorities stay": case("odd_priorities", **BRIEF | dict(algo=Unmoved(prioritized_replay_alpha=.6))),
    "ppo never draws": case("acts_otherwise", algo=NeverDraws()),
    "ddpg without noise": case("tries_nothing", **SMALL | dict(algo=Silent()), learning_starts=100),
    "table corrects another state": case("wrong_push", env=CLIFF, algo=NextCell(), steps=3000),
    "advantages turned round in the loss": case("wrong_push", algo=TurnedRound()),
    "a2c's critic climbs": case("wrong_push", "impossible_values", algo=CriticClimbs(vf_coef=.05)),
    "ratio upside down": case("wrong_push", algo=RatioUpsideDown()),
    "memory emptied in every step": case(
        "empty_memory", env="rlbench/StatelessCartPole-v0", algo=Empties(), steps=3000),
    "states shown a step late": case("aliased_state", "other_world", env=stale_lake, algo="qlearning", steps=3000),
    "sac's price of entropy falls": case("wrong_push", **SMALL | dict(algo=PriceFalls())),
}
OTHER_HEALTHY = {
    "dqn, Acrobot, early": case(env="Acrobot-v1", algo="dqn", steps=10_000),
    "pqn, Breakout": case(env=BREAKOUT, algo="pqn", steps=8000),
    "ppo, SpaceInvaders": case(env="MinAtar/SpaceInvaders-v1", steps=6000),
    "trpo, CartPole": case(algo="trpo", steps=20_000),
    "rainbow, CartPole": case(algo="rainbow", steps=2000, **DQN_FAST),
    "ddpg, Pendulum": case(env=SWING, algo="ddpg", steps=1500, hidden=(64, 64)),
    "qr_dqn, Acrobot": case(env="Acrobot-v1", algo="qr_dqn", steps=8000),
    "sarsa, WindyGrid": case(env="rlbench/WindyGrid-v0", algo="sarsa", steps=8000),
}
