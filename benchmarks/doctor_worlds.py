"A sixth set for benchmarks/doctor.py: what goes wrong in worlds that people make, and what only looks as if it did"
import gymnasium as gym
import numpy as np

from benchmarks.doctor_cases import POLE, SWING, case, spoilt
from benchmarks.doctor_fresh import ARMS, CLIFF, ICE, MOON, SMALL, wrapped

GLIDE = "LunarLanderContinuous-v3"


# ---- observations

class OtherOrder(gym.Wrapper):
    "The first observation of an episode has its numbers in another order than those that follow"

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        return obs[::-1].copy(), info


class Drifting(gym.Wrapper):
    "Shows everything in an episode shifted by what a die said when it began"

    def __init__(self, env):
        super().__init__(env)
        shape = env.observation_space.shape
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.shift = np.zeros(shape, np.float32)

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        self.shift = self.np_random.uniform(-3, 3, obs.shape).astype(np.float32)
        return obs + self.shift, info

    def step(self, action):
        obs, *rest = self.env.step(action)
        return obs + self.shift, *rest


class Clocked(gym.Wrapper):
    "Shows ten times the number of the step as well"

    def __init__(self, env):
        super().__init__(env)
        self.steps = 0
        size = env.observation_space.shape[0] + 1
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def shown(self, obs):
        return np.append(obs, 10 * self.steps).astype(np.float32)

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        self.steps = 0
        return self.shown(obs), info

    def step(self, action):
        obs, *rest = self.env.step(action)
        self.steps += 1
        return self.shown(obs), *rest


class OnePlace(gym.Wrapper):
    "Counts steps in its class, and shows and fines how many they are: those of all copies"
    steps = [0]

    def __init__(self, env):
        super().__init__(env)
        size = env.observation_space.shape[0] + 1
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def shown(self, obs):
        return np.append(obs, self.steps[0] / 100).astype(np.float32)

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        self.steps[0] = 0
        return self.shown(obs), info

    def step(self, action):
        obs, rew, *rest = self.env.step(action)
        self.steps[0] += 1
        return self.shown(obs), rew - self.steps[0] / 100, *rest


class OneWorld(gym.Env):
    "A cart on a line, whose place and speed all copies share"
    observation_space = gym.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)
    where = [0., 0.]

    def seen(self):
        return np.array(self.where, np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.where[:] = self.np_random.uniform(-1, 1, 2).tolist()
        self.steps = 0
        return self.seen(), {}

    def step(self, action):
        self.where[1] += .1 * (int(action) - 1)
        self.where[0] += .1 * self.where[1]
        self.steps += 1
        return self.seen(), 1 - abs(self.where[0]), abs(self.where[0]) > 2, self.steps >= 60, {}


class SameArray(gym.Wrapper):
    "Gives the same array each time, with other numbers in it: allowed"

    def __init__(self, env):
        super().__init__(env)
        self.shown = np.zeros(env.observation_space.shape, np.float32)

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        self.shown[:] = obs
        return self.shown, info

    def step(self, action):
        obs, *rest = self.env.step(action)
        self.shown[:] = obs
        return self.shown, *rest


def whole(env, obs):
    return np.round(obs)


def whole_bytes(env, obs):
    return (50 * obs).astype(np.int64).astype(np.uint8)


def speed_twice(env, obs):
    return obs[[0, 1, 1, 3]]


# ---- actions

class Sticky(gym.Wrapper):
    "Often repeats the last action instead of taking the new one"
    last = 0

    def reset(self, **how):
        self.last = 0
        return self.env.reset(**how)

    def step(self, action):
        if self.np_random.random() > .6: self.last = action
        return self.env.step(self.last)


class Modal(gym.Wrapper):
    "What the actions mean changes with every step"
    steps = 0

    def step(self, action):
        self.steps += 1
        return self.env.step((action + self.steps) % int(self.action_space.n))


def first_alone(env, action):
    return np.array([action[0], 0], np.float32)


def left_for_right(env, action):
    return 1 if action == 3 else action


class Fare(gym.ObservationWrapper):
    "Shows a taxi without its passenger"

    def observation(self, obs):
        return obs // 20 * 20 + obs % 4


# ---- rewards

def sign_alone(env, rew):
    return float(np.sign(rew))


def less_a_thousand(env, rew):
    return rew - 1000.


def at_least_minus_two(env, rew):
    return max(rew, -2.)


def with_a_die(env, rew):
    return rew + 20 * env.np_random.normal()


def with_fines(env, rew):
    return rew - 5000. * (env.np_random.random() < .02)


# ---- ends

class Restless(gym.Wrapper):
    "Begins again by itself after an end, and tells nobody"

    def step(self, action):
        obs, rew, term, trunc, info = self.env.step(action)
        if term or trunc: obs, info = self.env.reset()
        return obs, rew, False, False, info


class GoesOn(gym.Wrapper):
    "The goal ends nothing: one goes on paying for every step"

    def step(self, action):
        obs, rew, term, trunc, info = self.env.step(action)
        return obs, rew, False, trunc, info


class Summed(gym.Wrapper):
    "Pays all of an episode with its last step"
    owed = 0.

    def reset(self, **how):
        self.owed = 0.
        return self.env.reset(**how)

    def step(self, action):
        obs, rew, term, trunc, info = self.env.step(action)
        self.owed += rew
        return obs, self.owed if term or trunc else 0., term, trunc, info


class Stillborn(gym.Wrapper):
    "Some episodes are over with their first step"
    begun = False

    def reset(self, **how):
        self.begun = False
        return self.env.reset(**how)

    def step(self, action):
        obs, rew, term, trunc, info = self.env.step(action)
        first = not self.begun
        self.begun = True
        return obs, rew, bool(term or first and self.np_random.random() < .5), trunc, info


class Doors(gym.Env):
    "A passage with a door three steps to the left and one twelve steps to the right"
    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, paid, # {place: reward}
                 step=0.):   # paid anywhere else
        self.paid = paid
        self.step_pays = step

    def shown(self):
        return np.array([self.at / 15], np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 3
        return self.shown(), {}

    def step(self, action):
        self.at += 1 if action else -1
        return self.shown(), self.paid.get(self.at, self.step_pays), self.at in (0, 15), False, {}


def doors(paid, step=0.):
    return lambda: gym.wrappers.TimeLimit(Doors(paid, step), 60)


class Ageing(gym.ObservationWrapper):
    "A sensor whose error grows with every step of its life"
    seen = 0

    def observation(self, obs):
        self.seen += 1
        return (obs + .005 * self.seen).astype(np.float32)


WORLD_FAULTS = {
    "a counter in the class": case("disturbed_copies", env=wrapped(POLE, OnePlace), steps=8000),
    "one state for all copies": case("disturbed_copies", env=OneWorld, steps=8000),
    "first observation in another order": case("torn_start", env=wrapped(MOON, OtherOrder), steps=6000),
    "everything shifted in each episode": case("hidden_state", "unscaled_observation", "ends_by_chance",
                                               env=wrapped(POLE, Drifting), steps=8000),
    "number of the step, tens of them": case("unscaled_observation", env=wrapped(ARMS, Clocked), steps=8000),
    "cart pole: whole numbers": case("dead_observation", "hidden_state", "ends_by_chance", "stuck_observation",
                                     "clipped_observation", "dead_part", env=spoilt(POLE, obs=whole), steps=6000),
    "cart pole: bytes": case("unscaled_observation", "noisy_observation", env=spoilt(POLE, obs=whole_bytes, wide=True),
                             steps=6000),
    "actions that stick": case("replaced_actions", "late_actions", env=wrapped(POLE, Sticky), algo="dqn", steps=4000),
    "acrobot: actions that change in turn": case("replaced_actions", "idle_actions", "turned_actions", "hidden_state",
                                                 env=wrapped(ARMS, Modal), steps=8000),
    "pendulum: the sign of the reward": case("same_reward", "changed_inside", env=spoilt(SWING, reward=sign_alone),
                                             steps=8000),
    "pendulum: a thousand less": case("large_rewards", env=spoilt(SWING, reward=less_a_thousand), algo="sac", **SMALL,
                                      steps=1500),
    "lunar lander: fines at random": case("noisy_reward", "large_rewards", env=spoilt(MOON, reward=with_fines),
                                          algo="dqn", steps=5000),
    "mountain car: the goal is never found": case("same_reward", env=lambda: gym.make("MountainCar-v0"), steps=24_000),
    "cart pole begins again unseen": case("no_end", "hidden_state", "ends_by_chance", "same_reward",
                                          env=wrapped(POLE, Restless), steps=8000),
    "cliff: the goal ends nothing": case("nothing_reached", "no_end", algo="qlearning", steps=20_000,
                                         env=wrapped(CLIFF, GoesOn, max_episode_steps=200)),
    "lake: over at once, now and then": case("aliased_state", "ends_by_chance", "hasty_limit", algo="sarsa", steps=6000,
                                             env=wrapped(ICE, Stillborn)),
    "taxi: paid by a die as well": case("noisy_reward", env=spoilt("Taxi-v4", reward=with_a_die), algo="qlearning",
                                        steps=20_000),
    "pendulum: rewards end at -2": case("clipped_reward", env=spoilt(SWING, reward=at_least_minus_two), steps=8000),
    "cart pole: its speed twice": case("copied_part", "hidden_state", env=spoilt(POLE, obs=speed_twice), steps=8000),
    "lunar lander: no second number": case("idle_number", env=spoilt(GLIDE, act=first_alone), algo="sac", **SMALL,
                                           steps=3000),
    "lunar lander: left for right": case("twin_actions", env=spoilt(MOON, act=left_for_right), steps=8000),
    "lunar lander: paid at the end": case("late_reward", env=wrapped(MOON, Summed), steps=8000),
    "taxi: no passenger is shown": case("aliased_state", env=wrapped("Taxi-v4", Fare), algo="qlearning", steps=20_000),
    "lake: the last outcome alone": case("last_alone", env=ICE, algo="qlearning", lr=1., steps=10_000),
    "doors: the near one is free": case("pays_for_ending", env=doors({15: 0.}, step=-1.), steps=30_000),
    "doors: the great prize is far": case("short_sight", env=doors({0: .3, 15: 1.}), algo="dqn", gamma=.8, steps=8000),
    "doors: paid beside the door": case("farmed_reward", env=doors({0: 1., 1: .5}), steps=20_000),
    "cart pole: a sensor ages": case("drifting_start", env=wrapped(POLE, Ageing), steps=8000),
    "acrobot: twenty steps": case("hasty_limit", env=lambda: gym.make(ARMS, max_episode_steps=20), algo="dqn",
                                  steps=4000),
}


# ---- nothing wrong

class Corridor(gym.Env):
    "Ten places in a row; the last one pays"
    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(5))
        return self.shown(), {}

    def shown(self):
        return np.array([self.at / 9], np.float32)

    def step(self, action):
        self.at = max(0, self.at + (1 if action else -1))
        there = self.at == 9
        return self.shown(), 1. if there else -.01, there, False, {}


def corridor():
    return gym.wrappers.TimeLimit(Corridor(), 60)


def stacked():
    return gym.wrappers.FlattenObservation(gym.wrappers.FrameStackObservation(gym.make(POLE), 3))


def normalised(env):
    return gym.wrappers.NormalizeObservation(gym.make(env))


def paid_by_size():
    return gym.wrappers.NormalizeReward(normalised(SWING))


def rescaled():
    return gym.wrappers.RescaleAction(gym.make(SWING), -1., 1.)


WORLD_HEALTHY = {
    "the same array each time": case(env=wrapped(POLE, SameArray), steps=12_000),
    "corridor": case(env=corridor, steps=10_000),
    "corridor, dqn": case(env=corridor, algo="dqn", steps=4000),
    "stacked, dqn": case(env=stacked, algo="dqn", steps=6000),
    "pendulum, forces of 1": case(env=rescaled, algo="sac", **SMALL, steps=2500),
    "lunar lander, normalised": case(env=lambda: normalised(MOON), steps=12_000),
    "pendulum, rewards normalised as well": case(env=paid_by_size, steps=12_000),
    "pole, paid ten": case(env=spoilt(POLE, reward=lambda env, rew: 10 * rew), steps=12_000),
    "lake, slippery": case(env=ICE, algo="sarsa", steps=10_000),
    "taxi": case(env="Taxi-v4", algo="qlearning", steps=40_000),
    "lunar lander, a2c": case(env=MOON, algo="a2c", steps=12_000),
    "car rental": case(env="rlbench/CarRental-v0", algo="qlearning", steps=10_000),
    "mountain car with forces": case(env="MountainCarContinuous-v0", algo="td3", preset="tuned", steps=4000),
    "lunar lander with forces": case(env=GLIDE, algo="sac", **SMALL, steps=3000),
    "cliff, each outcome whole": case(env="rlbench/CliffWalk-v0", algo="qlearning", lr=1., steps=20_000),
    "blackjack": case(env="Blackjack-v1", algo="monte_carlo", steps=10_000),
}
