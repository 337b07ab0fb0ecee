"A seventh set for benchmarks/doctor.py: small worlds as one writes them for a lesson, with slips that are easily made"
from dataclasses import dataclass
from functools import partial

import gymnasium as gym
import numpy as np
import torch

from benchmarks.doctor_cases import POLE, case
from rlbench.algos.dqn import DQN
from rlbench.algos.qlearning import QLearning

WAYS = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])


def vector(size, low=-np.inf, high=np.inf):
    return gym.spaces.Box(low, high, (size,), np.float32)


class Lesson(gym.Env):
    "Counts the steps of an episode, which is cut after some"
    limit = 30

    def begin(self):
        "Set back all that a step changes"

    def show(self):
        "What is seen"

    def act(self, action):
        "Reward of an action, and whether the task is over"

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.begin()
        return self.show(), {}

    def step(self, action):
        rew, over = self.act(action)
        self.steps += 1
        return self.show(), float(rew), bool(over), not over and self.steps == self.limit, {}


class Cues(Lesson):
    "A cue is to be named; `ahead`: the next one is drawn too early"
    observation_space = vector(4, 0, 1)
    action_space = gym.spaces.Discrete(4)

    def __init__(self, ahead=False):
        self.ahead = ahead

    def begin(self):
        self.cue = int(self.np_random.integers(4))

    def show(self):
        return np.eye(4, dtype=np.float32)[self.cue]

    def act(self, action):
        before = self.cue
        self.begin()
        return action == (self.cue if self.ahead else before), False


class Joints(Lesson):
    "Three joints are to be where they are told, at once"
    observation_space = vector(3, -1, 1)
    action_space = gym.spaces.Box(-1, 1, (3,), np.float32)

    def begin(self):
        self.wanted = self.np_random.uniform(-1, 1, 3)

    def show(self):
        return self.wanted.astype(np.float32)

    def act(self, action):
        rew = 1 - np.mean((action - self.wanted)**2)
        self.begin()
        return rew, False


class Errand(Lesson):
    "A walk to a place that is drawn anew; `copies`: the array of where it begins is copied"
    observation_space = vector(4, 0, 1)
    action_space = gym.spaces.Discrete(4)

    def __init__(self, copies=True):
        self.copies = copies
        self.home = np.array([3, 3])

    def begin(self):
        self.place = self.home.copy() if self.copies else self.home
        self.goal = self.np_random.integers(7, size=2)

    def show(self):
        return np.concatenate([self.place, self.goal]).astype(np.float32) / 6

    def act(self, action):
        self.place += WAYS[action]
        np.clip(self.place, 0, 6, out=self.place)
        there = (self.place == self.goal).all()
        return there - .02, there


class Joystick(Errand):
    "The same by two axes; `wired`: each of them has its own way, and is not that of the first"
    action_space = gym.spaces.MultiDiscrete([3, 3])

    def __init__(self, wired=True):
        super().__init__()
        self.wired = wired

    def act(self, action):
        move = action - 1 if self.wired else action[[0, 0]] - 1
        self.place = np.clip(self.place + move, 0, 6)
        far = np.abs(self.place - self.goal).sum()
        return (far == 0) - .05 * far, far == 0


class Beacon(Lesson):
    "Turns towards a beacon; `twice`: degrees are made radians two times"
    limit = 50
    observation_space = vector(2, -1, 1)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, twice=False):
        self.twice = twice

    def begin(self):
        self.angle = self.np_random.uniform(-np.pi, np.pi)

    def show(self):
        return np.array([np.cos(self.angle), np.sin(self.angle)], np.float32)

    def act(self, action):
        turn = np.deg2rad(30 * float(action[0]))
        self.angle += np.deg2rad(turn) if self.twice else turn
        return np.cos(self.angle), False


class Course(Lesson):
    "A corridor whose goal is farther away in each lesson; `earned`: lessons go on with success alone, and to the 20th"
    limit = 40
    observation_space = vector(2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, earned=True):
        self.earned = earned
        self.lesson = 0
        self.won = True

    def begin(self):
        if self.won or not self.earned: self.lesson += 1
        if self.earned: self.lesson = min(self.lesson, 20)
        self.place = 0
        self.goal = int(self.np_random.choice([-1, 1])) * self.lesson
        self.won = False

    def show(self):
        return np.array([self.place, self.goal], np.float32) / 20

    def act(self, action):
        self.place += 2 * int(action) - 1
        self.won = self.place == self.goal
        return self.won, self.won


class Boiler(Lesson):
    "Is kept warm, for ever"
    limit = 10**9
    observation_space = vector(2)
    action_space = gym.spaces.Discrete(3)

    def begin(self):
        self.warm, self.outside = self.np_random.normal(size=2)

    def show(self):
        return np.array([self.warm, self.outside], np.float32)

    def act(self, action):
        chance = self.np_random.normal(size=2)
        self.outside = .95 * self.outside + .3 * chance[0]
        self.warm += .1 * (self.outside - self.warm) + .3 * (action - 1) + .05 * chance[1]
        return np.exp(-self.warm**2), False


@dataclass(frozen=True)
class Standing(DQN):
    "Its targets look at where it is, and not at where it gets"

    @torch.no_grad()
    def target(self, nets, batch):
        return batch.ret + batch.disc * nets.target(batch.obs).amax(-1)


@dataclass(frozen=True)
class FirstOfEquals(QLearning):
    "Never tries anything, and takes the first of actions of equal value"

    def act(self, nets, obs, noise, carry):
        return torch.as_tensor(nets.q(obs)).argmax(-1), {}, carry


SMALL_FAULTS = {
    "the next cue is paid for": case("noisy_observation", env=partial(Cues, ahead=True), steps=8000),
    "episodes share an array": case("carried_over", env=partial(Errand, copies=False), steps=12_000),
    "a joystick with one axis": case("idle_number", env=partial(Joystick, wired=False), steps=12_000),
    "degrees made radians twice": case("faint_actions", env=partial(Beacon, twice=True), steps=12_000),
    "lessons that nobody has to earn": case("changed_world", env=partial(Course, earned=False), steps=40_000),
    "dqn looks at where it is": case("other_target", algo=Standing(), steps=4000),
    "qlearning: the first of equals": case("acts_otherwise", env="FrozenLake-v1", algo=FirstOfEquals(), steps=10_000),
}
SMALL_HEALTHY = {
    "cues": case(env=Cues, steps=12_000),
    "joints": case(env=Joints, steps=12_000),
    "errand": case(env=Errand, steps=20_000),
    "joystick": case(env=Joystick, steps=20_000),
    "beacon": case(env=Beacon, steps=20_000),
    "lessons that are earned": case(env=Course, steps=30_000),
    "boiler, for ever": case(env=Boiler, algo="a2c", steps=30_000),
    "pole, dqn, not double": case(env=POLE, algo="dqn", double=False, steps=4000),
}
