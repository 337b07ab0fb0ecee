"A fifth set for benchmarks/doctor.py: written by somebody who had seen no check, of algorithms, settings and worlds"
import gymnasium as gym
import numpy as np
import torch

from benchmarks.doctor_cases import POLE, Spoilt, case, spoilt
from rlbench.algos.a2c import A2C
from rlbench.algos.c51 import C51
from rlbench.algos.dqn import DQN, allowed, dqn_target
from rlbench.algos.dyna import Dyna
from rlbench.algos.one_step import corrections, transitions
from rlbench.algos.ppo import PPO, ppo_loss
from rlbench.algos.pqn import PQN
from rlbench.algos.qlearning import QLearning, td_target
from rlbench.algos.reinforce import REINFORCE
from rlbench.algos.sac import SAC, bootstrapped, soft_value
from rlbench.algos.td3 import TD3
from rlbench.buffers.returns import gae, lambda_return
from rlbench.buffers.ring import minibatches
from rlbench.core.batch import Batch
from rlbench.envs.minatar import as_game, register_games

SWING = "Pendulum-v1"
ARMS = "Acrobot-v1"
MOON = "LunarLander-v3"
HILL = "MountainCarContinuous-v0"
ICE = "FrozenLake-v1"
CLIFF = "CliffWalking-v1"
GAME = "MinAtar/Breakout-v1"
OFTEN = dict(learning_starts=200, train_freq=1, gradient_steps=1)
SMALL = dict(hidden=(64, 64), batch_size=64)


# ---- algorithms with one wrong line

class PaysForCertainty(A2C):
    "The entropy is added to the loss"

    def losses(self, nets, batch):
        for group, loss, parts in super().losses(nets, batch):
            yield group, loss + 2 * self.ent_coef * parts["ent"].mean(), parts


class EveryPair(PPO):
    "Values (B, 1) less returns (B,): each value is drawn to all returns"

    def losses(self, nets, batch):
        val = self.values(nets, batch.obs)
        worth = nets.scale.worth
        loss, parts = ppo_loss(self, nets.policy(batch.obs), val, batch, worth)
        v_loss = (worth * (val[:, None] - batch.ret))**2
        yield "all", loss + self.vf_coef * (v_loss.mean() - parts["v_loss"].mean()), parts


class OwnRatio(PPO):
    "The old probabilities are computed anew in every update, so that every ratio is 1"

    def losses(self, nets, batch):
        logp = nets.policy(batch.obs).logp(batch.act).detach()
        yield from super().losses(nets, Batch(batch, logp=logp))


class OthersAdvantages(PPO):
    "Advantages (N, T) are flattened as if they were (T, N)"

    def targets(self, nets, rows, noise):
        val = self.values(nets, rows.obs)
        columns = rows.rew, val, self.values(nets, rows.next_obs), rows.term, rows.trunc
        in_time = [column.view(self.n_steps, -1) for column in columns]
        adv = gae(*in_time, self.gamma, self.gae_lambda)
        ret = adv.flatten() + val
        data = Batch(rows, val=val, adv=adv.T.flatten(), ret=ret)[rows.valid]
        return data, minibatches(len(data), self.batch_size, self.n_epochs, noise.rng)


class MovesTheCritic(A2C):
    "The advantage is not detached: the policy's loss moves the values too"

    def losses(self, nets, batch):
        adv = batch.ret - self.values(nets, batch.obs)
        yield from super().losses(nets, Batch(batch, adv=adv))


class FinedForEntropy(SAC):
    "The target takes the entropy away instead of adding it"

    @torch.no_grad()
    def target(self, nets, critic, batch, next_noise, believe):
        worth, ent = critic.under(nets.policy(batch.next_obs), batch.next_obs, next_noise, believe)
        return bootstrapped(batch.rew, batch.term, soft_value(worth, -ent, self.alpha(nets)), self.gamma)


class WrongHeat(SAC):
    "The temperature goes the other way"

    def price_losses(self, nets, ent, wanted=None):
        for group, loss, parts in super().price_losses(nets, ent, wanted):
            yield group, -loss, parts


class Descends(TD3):
    "The policy goes down what the critic says"

    def policy_loss(self, nets, batch, act, val):
        return val.mean(), dict(val=val)


class SameState(DQN):
    "The target asks what the state before is worth, not the next one"

    def target(self, nets, batch):
        return super().target(nets, Batch(batch, next_obs=batch.obs))


class ThroughTheTarget(DQN):
    "No second network, and the gradient goes through the target"

    def target(self, nets, batch):
        next_q = allowed(nets.q(batch.next_obs), batch.next_obs)
        return dqn_target(batch.ret, batch.disc, next_q, next_q, False)


class NeverDone(C51):
    "What would come after an end is counted"

    def judged(self, nets, rows, noise):
        return super().judged(nets, Batch(rows, term=torch.zeros_like(rows.term)), noise)


class OwnBest(QLearning):
    "The best action of the state that is left, not of the one that is reached"

    def update(self, nets, batch):
        q = nets.q.values.numpy()
        made = []
        for s, a, rew, term, _ in transitions(nets.q, batch):
            target = td_target(rew, term, q[s].max(), self.gamma)
            delta = target - q[s, a]
            made.append((q[s, a], target, delta))
            q[s, a] += self.lr * delta
        return corrections(made)


class SoFar(REINFORCE):
    "An action is judged by the rewards before it"

    def targets(self, nets, rows, noise):
        data, todo = super().targets(nets, rows, noise)
        ret = torch.zeros_like(data.rew)
        so_far = 0.
        for t, rew in enumerate(data.rew.tolist()):
            so_far += rew
            ret[t] = so_far
            if data.term[t] or data.trunc[t]: so_far = 0.
        return Batch(data, ret=ret, adv=ret - data.val), todo


class RunsOn(PQN):
    "Sums of rewards run on into the next episode"

    def targets(self, nets, rows, noise):
        best = self.values(nets, rows.next_obs).amax(-1).masked_fill(rows.term, 0)
        never = torch.zeros_like(rows.term)
        in_time = [column.view(self.n_steps, -1) for column in (rows.rew, best, never, never)]
        ret = lambda_return(*in_time, self.gamma, self.q_lambda).flatten()
        data = Batch(rows, ret=ret)[rows.valid]
        return data, minibatches(len(data), self.batch_size, self.n_epochs, noise.rng)


WRONG_LINES = {
    "a2c: entropy added to the loss": case("strange_entropy", "settled_early", "wrong_push", "other_gradient",
                                           algo=PaysForCertainty(ent_coef=.05), steps=10_000),
    "ppo: values against all returns": case("blind_critic", "wrong_push", "other_gradient", "same_everywhere",
                                            "other_sums", algo=EveryPair(), steps=8000),
    "ppo: ratios that are always 1": case("too_far", "wrong_push", "other_gradient", "other_sums", "strange_chance",
                                          algo=OwnRatio(), steps=8000),
    "ppo: advantages in another order": case("strange_advantage", "other_rows", "other_returns", "wrong_push",
                                             algo=OthersAdvantages(), steps=8000),
    "a2c: advantage not detached": case("other_gradient", "wrong_push", "strange_advantage",
                                        algo=MovesTheCritic(), steps=8000),
    "sac: entropy taken from the target": case("other_target", "strange_target", "strange_entropy", env=SWING,
                                               algo=FinedForEntropy(**SMALL), steps=1500),
    "sac: temperature the other way": case("strange_entropy", "wrong_push", "other_gradient", "kept_random",
                                           "settled_early", env=SWING, algo=WrongHeat(**SMALL), steps=1500),
    "td3: policy descends": case("wrong_push", "other_gradient", env=SWING, algo=Descends(learning_starts=200, **SMALL),
                                 steps=1500),
    "dqn: target of the state before": case("other_target", "strange_target", algo=SameState(**OFTEN), steps=2500),
    "dqn: gradient through the target": case("other_gradient", "wrong_push", "other_target", "strange_target",
                                             algo=ThroughTheTarget(**OFTEN), steps=2500),
    "c51: values after the end": case("past_the_end", "other_target", "strange_target", algo=NeverDone(**OFTEN),
                                      steps=2000),
    "qlearning: best of the state that is left": case("other_target", "strange_target", "wrong_push", "other_sums",
                                                      "other_correction", env=CLIFF, algo=OwnBest(), steps=5000),
    "reinforce: rewards before the action": case("other_returns", "strange_advantage", "other_sums", "wrong_push",
                                                 algo=SoFar(), steps=8000),
    "pqn: sums run on into the next episode": case("past_the_end", "other_returns", "other_target", "strange_target",
                                                   algo=RunsOn(), steps=10_000),
}


# ---- settings that do not fit

WRONG_SETTINGS = {
    "sac: far too fast": case("strange_rate", env=SWING, algo="sac", lr=.1, critic_lr=.1, **SMALL, steps=1500),
    "dqn: target renewed every 100,000 updates": case("stale_target", algo="dqn", target_update_interval=100_000,
                                                      **OFTEN, steps=3000),
    "pqn: epsilon stays at 1": case("only_exploration", algo="pqn", epsilon=1., steps=10_000),
    "td3: no noise": case("no_exploration", "at_bounds", env=HILL, algo="td3", exploration_noise=0.,
                          learning_starts=200, **SMALL, steps=1500),
    "sac: learning starts after the run": case("no_updates", env=SWING, algo="sac", learning_starts=50_000,
                                               steps=3000),
    "ppo: clipped to nothing": case("strange_setting", "clipped_away", "strange_rate", env=ARMS, clip_range=.002,
                                    steps=10_000),
    "dqn: room for 100 transitions": case("short_memory", env=MOON, algo="dqn", buffer_size=100, learning_starts=100,
                                          steps=5000),
    "ppo: gamma .3": case("short_sight", env=ARMS, gamma=.3, steps=10_000),
    "c51: returns up to 10": case("impossible_values", "strange_setting", "strange_target", algo="c51", v_min=0.,
                                  v_max=10., **OFTEN, steps=3000),
    "a2c: paid for chance alone": case("kept_random", "strange_entropy", "strange_setting", "only_exploration",
                                       algo="a2c", ent_coef=5., steps=10_000),
    "dqn: the rate runs out": case("strange_rate", "standing_still", env=ARMS, algo="dqn",
                                    lr="linear(0.001, 0, 1000)", steps=6000),
    "sac: entropy wanted with the wrong sign": case("strange_entropy", "kept_random", "strange_setting", env=SWING,
                                                    algo="sac", target_entropy=1., **SMALL, steps=2000),
    "qlearning: corrects a thousandth": case("strange_rate", env=CLIFF, algo="qlearning", lr=.001, steps=8000),
}


# ---- environments as people write them

class WideBox(gym.Wrapper):
    "Says that forces may be as large as 100, and cuts them to 2"

    def __init__(self, env):
        super().__init__(env)
        self.action_space = gym.spaces.Box(-100, 100, (1,), np.float32)

    def step(self, action):
        return self.env.step(np.clip(action, -2, 2))


class Late(gym.Wrapper):
    "Shows what was seen some steps before"

    def __init__(self, env, by):
        super().__init__(env)
        self.by = by
        self.seen = []

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        self.seen = [obs]
        return obs, info

    def step(self, action):
        obs, *rest = self.env.step(action)
        self.seen = [*self.seen, obs][-1 - self.by:]
        return self.seen[0], *rest


class Column(gym.Wrapper):
    "Shows the column of a grid, and not the row"

    def __init__(self, env, width):
        super().__init__(env)
        self.width = width
        self.observation_space = gym.spaces.Discrete(width)

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        return obs % self.width, info

    def step(self, action):
        obs, *rest = self.env.step(action)
        return obs % self.width, *rest


class KeepsCounting(gym.Wrapper):
    "Its count of steps is not set back with an episode"

    def __init__(self, env, limit):
        super().__init__(env)
        self.limit = limit
        self.steps = 0

    def step(self, action):
        obs, rew, term, trunc, info = self.env.step(action)
        self.steps += 1
        return obs, rew, term, trunc or self.steps >= self.limit, info


class SameSeed(gym.Wrapper):
    "Begins every episode with the same seed"

    def reset(self, **how):
        return self.env.reset(seed=42)


class OtherWay(gym.Wrapper):
    "A coin says in each episode whether forces push or pull"
    sign = 1

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        self.sign = self.np_random.choice([-1, 1])
        return obs, info

    def step(self, action):
        return self.env.step(self.sign * action)


class TotalScore(gym.Wrapper):
    "Rewards every step with the score of the whole episode so far"
    score = 0.

    def reset(self, **how):
        self.score = 0.
        return self.env.reset(**how)

    def step(self, action):
        obs, rew, *rest = self.env.step(action)
        self.score += float(rew)
        return obs, self.score, *rest


def wrapped(name, kind, *more, **how):
    "What makes an environment in a wrapper"
    return lambda: kind(gym.make(name, **how), *more)


class Rounded(gym.ObservationWrapper):
    "Divides what is 0 or 1 already by 255, in whole numbers"

    def observation(self, obs):
        return (obs.astype(np.uint8) // 255).astype(bool)


class NeverFires(gym.ActionWrapper):
    "Every action becomes the first, which does nothing"

    def action(self, action):
        return 0


def game_in(kind):
    "What makes a game of MinAtar in a wrapper"
    def make():
        register_games()
        return kind(as_game(gym.make(GAME)))
    return make


PIXELS = np.array([300, 200, 1, 1, 1, 1, 1, 1])


def in_pixels(env, obs):
    return obs * PIXELS


def zero_to_one(env, obs):
    return np.clip(obs, 0, 1)


def cost_alone(env, rew):
    return min(rew, 0.)


def plus_noise(env, rew):
    return rew + 50 * env.np_random.normal()


def as_cut(env, term, trunc):
    return False, term or trunc


WRONG_WORLDS = {
    "mountain car: the goal pays nothing": case("standing_still", "rare_reward", "same_reward",
                                                env=spoilt(HILL, reward=cost_alone), algo="sac", **SMALL, steps=2000),
    "pendulum: a box far too wide": case("narrow_actions", "idle_actions", "flat_actions", "at_bounds",
                                         env=wrapped(SWING, WideBox), algo="sac", **SMALL, steps=2000),
    "lunar lander: places in pixels": case("unscaled_observation", env=spoilt(MOON, wide=True, obs=in_pixels),
                                           steps=8000),
    "acrobot: seen four steps late": case("late_sight", "late_actions", "hidden_state",
                                          env=wrapped(ARMS, Late, 4), steps=8000),
    "frozen lake: the column alone": case("aliased_state", "hidden_state",
                                          env=wrapped(ICE, Column, 4, is_slippery=False),
                                          algo="qlearning", steps=5000),
    "cart pole: the limit counts on": case("hasty_limit", "limit_as_end",
                                           env=wrapped("CartPole-v1", KeepsCounting, 500), algo="dqn", steps=3000),
    "breakout: whole 255ths": case("stuck_observation", "dead_observation", "frozen_observation",
                                   env=game_in(Rounded), steps=4000),
    "breakout: all actions are none": case("idle_actions", "replaced_actions", env=game_in(NeverFires),
                                           algo="dqn", steps=2500),
    "lunar lander: ends are cuts": case("end_as_limit", env=spoilt(MOON, end=as_cut), algo="ppo", steps=8000),
    "pendulum: one seed for all episodes": case("same_start", env=wrapped(SWING, SameSeed), algo="ppo", steps=8000),
    "pendulum: forces push or pull": case("hidden_state", "turned_actions", "replaced_actions",
                                          env=wrapped(SWING, OtherWay), algo="td3", learning_starts=200, **SMALL,
                                          steps=2000),
    "lunar lander: the score so far": case("hidden_state", "large_rewards", "late_reward", "reward_of_before",
                                           env=wrapped(MOON, TotalScore), algo="ppo", steps=8000),
    "acrobot: noise on the reward": case("noisy_reward", env=spoilt(ARMS, reward=plus_noise), algo="dqn", steps=4000),
    "frozen lake: five steps": case("hasty_limit", "rare_reward", env=lambda: gym.make(ICE, max_episode_steps=5),
                                   algo="sarsa", steps=5000),
    "acrobot: cut to [0, 1]": case("clipped_observation", "hidden_state", "stuck_observation",
                                   env=spoilt(ARMS, obs=zero_to_one), algo="pqn", steps=8000),
}

FRESH_FAULTS = WRONG_LINES | WRONG_SETTINGS | WRONG_WORLDS

FRESH_HEALTHY = {
    "ppo on cart pole": case(steps=20_000),
    "ppo on lunar lander": case(env=MOON, steps=16_000),
    "ppo on breakout": case(env=GAME, steps=8000),
    "a2c on acrobot": case(env=ARMS, algo="a2c", steps=15_000),
    "dqn on lunar lander": case(env=MOON, algo="dqn", steps=8000),
    "c51 on cart pole": case(algo="c51", **OFTEN, steps=4000),
    "qr_dqn on acrobot": case(env=ARMS, algo="qr_dqn", steps=6000),
    "sac on pendulum": case(env=SWING, algo="sac", steps=1000),
    "td3 on pendulum": case(env=SWING, algo="td3", **SMALL, steps=4000),
    "reinforce as preset": case(algo="reinforce", preset="tuned", steps=20_000),
    "trpo on acrobot": case(env=ARMS, algo="trpo", steps=12_000),
    "impala on cart pole": case(algo="impala", steps=15_000),
    "pqn on cart pole": case(algo="pqn", steps=20_000),
    "qlearning on the cliff, done": case(env="rlbench/CliffWalk-v0", algo="qlearning", gamma=1., epsilon=.1,
                                         steps=20_000),
    "sarsa on the frozen lake": case(env="rlbench/FrozenLake-v0", algo="sarsa", lr=.1, steps=20_000),
}


class AnyLength(gym.Wrapper):
    "Repeats an action one to six times"

    def step(self, action):
        for _ in range(self.unwrapped.np_random.integers(1, 7)):
            obs, rew, term, trunc, info = self.env.step(action)
            if term or trunc: break
        return obs, rew, term, trunc, info


class SameForce(gym.Wrapper):
    "Mostly goes on with the last force instead of taking the new one"
    last = None

    def step(self, action):
        anew = self.last is None or self.unwrapped.np_random.random() < .3
        if anew: self.last = action
        return self.env.step(self.last)


class Faded(gym.Wrapper):
    "Discounts rewards itself"

    def reset(self, **how):
        self.worth = 1.
        return self.env.reset(**how)

    def step(self, action):
        obs, rew, *rest = self.env.step(action)
        self.worth *= .9
        return obs, self.worth * rew, *rest


FRESH_FAULTS |= {
    "cart pole: steps of any length": case("uneven_steps", env=wrapped("CartPole-v1", AnyLength), steps=12_000),
    "pendulum: forces that stick": case("replaced_actions", env=wrapped(SWING, SameForce), algo="sac", **SMALL,
                                        steps=2500),
    "cart pole: discounted already": case("hidden_time", env=wrapped("CartPole-v1", Faded), steps=12_000),
    "cliff: hopes for a hundred": case("impossible_values", env=CLIFF, algo="sarsa", initial=100., lr=.05, steps=8000),
}


class EveryFourth(gym.Wrapper):
    "Repeats each action four times, and pays the sum"

    def step(self, action):
        paid = 0.
        for _ in range(4):
            obs, rew, term, trunc, info = self.env.step(action)
            paid += rew
            if term or trunc: break
        return obs, paid, term, trunc, info


FRESH_HEALTHY |= {
    "sac on the hill, each action four times": case(env=wrapped(HILL, EveryFourth), algo="sac", **SMALL, steps=3000),
    "dqn on acrobot, each action four times": case(env=wrapped(ARMS, EveryFourth), algo="dqn", steps=6000),
    "recurrent ppo on acrobot, early": case(env=ARMS, algo="recurrent_ppo", steps=8000),
}


# ---- worlds that change, luck, and what wrappers leave out

class Shaken(gym.ActionWrapper):
    "Adds noise that is as large as actions are"

    def __init__(self, env, size):
        super().__init__(env)
        self.size = size

    def action(self, act):
        space = self.action_space
        noise = self.unwrapped.np_random.normal(0, self.size, act.shape)
        return np.clip(act + noise, space.low, space.high).astype(np.float32)


class Weakens(gym.Wrapper):
    "Pushes less with every episode"
    episodes = 0

    def reset(self, **how):
        self.episodes += 1
        return self.env.reset(**how)

    def step(self, action):
        return self.env.step((action * .97**self.episodes).astype(np.float32))


class Dearer(Weakens):
    "Pays more with every episode"

    def step(self, action):
        obs, rew, *rest = self.env.step(action)
        return obs, rew * 1.2**self.episodes, *rest


class SecretPrice(gym.Wrapper):
    "Pays for an action in some episodes what it charges in others"

    def reset(self, **how):
        begun = self.env.reset(**how)
        self.sign = 2 * self.unwrapped.np_random.integers(2) - 1
        return begun

    def step(self, action):
        obs, rew, *rest = self.env.step(action)
        return obs, rew + 5 * self.sign * float(action[0]), *rest


class LastOfFour(gym.Wrapper):
    "Repeats each action four times, and pays the last"

    def step(self, action):
        for _ in range(4):
            answer = self.env.step(action)
            if answer[2] or answer[3]: break
        return answer


class Comfort(gym.RewardWrapper):
    "Pays for every step"

    def reward(self, rew):
        return rew + .1


def upper_half(env, action):
    return (action + env.action_space.high) / 2


def without_main_engine(env, action):
    return 0 if action == 2 else action


class NothingMoves(Dyna):
    "Its model remembers that every action leads back to where it was"

    def nets(self, spec, rng):
        nets = super().nets(spec, rng)
        learn = nets.model.remember
        nets.model.remember = lambda row, *when: learn(Batch(row, next_obs=row.obs), *when)
        return nets


class BehindTheEnd(QLearning):
    "Counts what the table says of a state in which nothing follows"

    def update(self, nets, batch):
        return super().update(nets, Batch(batch, term=0 * batch.term > 0))


INVERTED = "InvertedPendulum-v5"
REACHER = "Reacher-v5"
FRESH_FAULTS |= {
    "inverted pendulum: shaken": case("shaken_actions", env=wrapped(INVERTED, Shaken, 4), algo="sac", **SMALL,
                                      steps=1500),
    "pendulum: shaken": case("shaken_actions", env=wrapped(SWING, Shaken, 3), algo="td3", learning_starts=200, **SMALL,
                             steps=1500),
    "pendulum: weakens": case("waning_actions", env=wrapped(SWING, Weakens, max_episode_steps=50), algo="sac", **SMALL,
                              steps=1500),
    "lunar lander: ever dearer": case("changing_reward", env=wrapped(MOON, Dearer), steps=8000),
    "pendulum: ever dearer": case("changing_reward", env=wrapped(SWING, Dearer), algo="sac", **SMALL, steps=1500),
    "reacher: a price that nobody sees": case("changing_reward", env=wrapped(REACHER, SecretPrice), steps=8000),
    "lunar lander: the last of four": case("changed_inside", env=wrapped(MOON, LastOfFour), steps=8000),
    "frozen lake: paid for every step": case("changed_inside", "farmed_reward",
                                             env=wrapped(ICE, Comfort, is_slippery=False), algo="qlearning",
                                             steps=8000),
    "inverted pendulum: to the right alone": case("changed_inside", env=spoilt(INVERTED, act=upper_half), algo="sac",
                                                  **SMALL, steps=1500),
    "lunar lander: no main engine": case("changed_inside", "twin_actions", env=spoilt(MOON, act=without_main_engine),
                                         algo="dqn", steps=4000),
    "maze: a model in which nothing moves": case("other_model", env="rlbench/DynaMaze-v0", algo=NothingMoves(),
                                                 steps=3000),
    "windy grid: on behind the end": case("other_correction", "unlike_its_kind", env="rlbench/WindyGrid-v0",
                                          algo=BehindTheEnd(), steps=5000),
}
FRESH_HEALTHY |= {
    "ppo on the inverted pendulum": case(env=INVERTED, steps=8000),
    "sac on reacher": case(env=REACHER, algo="sac", **SMALL, steps=1200),
    "dyna on a maze": case(env="rlbench/DynaMaze-v0", algo="dyna", steps=3000),
    "ppo on the walker": case(env="Walker2d-v5", steps=8000),
}


# ---- faults of settings and worlds, and healthy runs, by somebody else again

class OtherOrderEachTime(gym.Wrapper):
    "Numbers of an observation stand in another order in each episode"

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        self.order = self.unwrapped.np_random.permutation(len(obs))
        return obs[self.order], info

    def step(self, action):
        obs, *rest = self.env.step(action)
        return obs[self.order], *rest


class Freezes(gym.Wrapper):
    "A sensor stops some steps after an episode has begun"

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        self.left = int(self.unwrapped.np_random.integers(3, 15))
        self.last = obs[2]
        return obs, info

    def step(self, action):
        obs, *rest = self.env.step(action)
        self.left -= 1
        if self.left > 0: self.last = obs[2]
        return np.array([*obs[:2], self.last, obs[3]], np.float32), *rest


class GoesOnThere(gym.Wrapper):
    "An episode begins where the last one was cut"
    begun = False

    def reset(self, **how):
        world = self.unwrapped
        before = world.state if self.begun else None
        obs, info = self.env.reset(**how)
        self.begun = True
        if before is not None: world.state = before
        return world._get_obs() if before is not None else obs, info


class Misfires(gym.ActionWrapper):
    "In two of five steps nothing is done"

    def action(self, action):
        return 0 if self.unwrapped.np_random.random() < .4 else action


class PaidNowAndThen(gym.Wrapper):
    "Two of three episodes are not paid"

    def reset(self, **how):
        answer = self.env.reset(**how)
        self.paid = self.unwrapped.np_random.random() < .33
        return answer

    def step(self, action):
        obs, rew, *rest = self.env.step(action)
        return obs, rew * self.paid, *rest


def a_fiftieth(env, action):
    return action / 50


def negated(env, rew):
    return -rew


def a_hundred_more(env, rew):
    return rew + 100


def as_end(env, term, trunc):
    return term or trunc, False


def short_and_ended():
    return Spoilt(gym.make("HalfCheetah-v5", max_episode_steps=100), end=as_end)


FRESH_FAULTS |= {
    "acrobot: in another order each time": case("changed_inside", "turned_actions", "hidden_state",
                                                env=wrapped(ARMS, OtherOrderEachTime), steps=8000),
    "cart pole: a sensor freezes": case("changed_inside", "stuck_observation", "hidden_state",
                                        env=wrapped(POLE, Freezes), algo="a2c", steps=8000),
    "pendulum: goes on where it was cut": case("changed_inside", "carried_over", env=wrapped(SWING, GoesOnThere),
                                               algo="sac", **SMALL, steps=1500),
    "lunar lander: misfires": case("changed_inside", "replaced_actions", env=wrapped(MOON, Misfires), steps=8000),
    "pendulum: paid now and then": case("changed_inside", "changing_reward", env=wrapped(SWING, PaidNowAndThen),
                                        steps=8000),
    "inverted pendulum: a fiftieth": case("changed_inside", "faint_actions", env=spoilt(INVERTED, act=a_fiftieth),
                                          steps=8000),
    "reacher: the other sign": case("changed_inside", env=spoilt(REACHER, reward=negated), steps=8000),
    "pendulum: a hundred more": case("changed_inside", "large_rewards", env=spoilt(SWING, reward=a_hundred_more),
                                     algo="td3", learning_starts=200, **SMALL, steps=1500),
    "cheetah: a limit is an end": case("limit_as_end", env=short_and_ended, steps=8000),
    "lunar lander: 25 steps": case("hasty_limit", env=lambda: gym.make(MOON, max_episode_steps=25), steps=8000),
    "taxi: a rate of 0": case("strange_rate", env="Taxi-v4", algo="qlearning", lr=0., steps=5000),
    "cliff: a rate of 2": case("strange_rate", env=CLIFF, algo="sarsa", lr=2., steps=5000),
    "ppo: two rollouts": case("strange_setting", n_steps=4096, num_envs=1, steps=9000),
    "dqn: fifty updates a step": case("strange_setting", algo="dqn", gradient_steps=50, train_freq=1,
                                      learning_starts=200, steps=400),
}
FRESH_HEALTHY |= {
    "ppo on the ant": case(env="Ant-v5", steps=6000),
    "ppo on the pusher": case(env="Pusher-v5", steps=8000),
    "sac on the hopper": case(env="Hopper-v5", algo="sac", **SMALL, steps=1500),
    "trpo on the hopper": case(env="Hopper-v5", algo="trpo", steps=12_000),
    "pqn on acrobot, early": case(env=ARMS, algo="pqn", steps=12_000),
    "dqn on the mountain car, early": case(env="MountainCar-v0", algo="dqn", steps=10_000),
    "iqn on lunar lander": case(env=MOON, algo="iqn", steps=2500),
}
