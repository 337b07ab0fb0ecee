"Worlds of people's own: the doctor says nothing of those that are sound, however odd, and names what goes wrong later"
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlbench import Trainer


class Sound(gym.Env):
    "A world of so many steps"
    limit = 40

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.begin()
        return self.seen(), {}

    def step(self, act):
        self.time += 1
        rew = float(self.move(act))
        return self.seen(), rew, False, self.time == self.limit, {}


class TwoWheels(Sound):
    "Two motors of three speeds each: one action of nine stands still"
    observation_space = Box(-2, 2, (2,), np.float32)
    action_space = MultiDiscrete([3, 3])

    def begin(self):
        self.place = self.np_random.uniform(-1, 1, 2)

    def move(self, act):
        self.place = (self.place + .1 * (act - 1)).clip(-2, 2)
        return -abs(self.place).sum()

    def seen(self):
        return self.place.astype(np.float32)


class Wind(Sound):
    "A mass in a wind that blows it against a wall"
    observation_space = Box(-10, 10, (2,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)
    limit = 60

    def begin(self):
        self.x = self.np_random.uniform(-1, 1)
        self.v = 0.

    def move(self, act):
        self.v = np.clip(self.v + .1 * (2 * act[0] + .8), -2, 2)
        self.x = np.clip(self.x + .1 * self.v, -3, 3)
        return -self.x**2

    def seen(self):
        return np.array([self.x, self.v], np.float32)


class Track(Sound):
    "Step exactly onto a place between two walls"
    observation_space = Box(-2, 2, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)
    limit = 25

    def begin(self):
        self.away = self.np_random.uniform(-2, 2)

    def move(self, act):
        self.away = np.clip(self.away + act[0], -2, 2)
        paid = -abs(self.away)
        if self.np_random.random() < .3: self.begin()
        return paid

    def seen(self):
        return np.array([self.away], np.float32)


class Shop(Sound):
    "Orders, sales by chance, and profits in the thousands"
    observation_space = Box(0, 20, (2,), np.float32)
    action_space = Discrete(6)
    limit = 50

    def begin(self):
        self.stock = 5
        self.season = int(self.np_random.integers(4))

    def move(self, act):
        self.stock = min(20, self.stock + 2 * int(act))
        sold = min(int(self.np_random.poisson(2 + self.season)), self.stock)
        self.stock -= sold
        self.season = (self.season + (self.time % 5 == 0)) % 4
        return 2500 * sold - 1600 * int(act) - 150 * self.stock

    def seen(self):
        return np.array([self.stock, self.season], np.float32)


class Contexts(Sound):
    "Which of three actions is best depends on what is shown, anew in every step; most of the pay is noise"
    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Discrete(3)
    limit = 8

    def begin(self):
        self.shown = self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def move(self, act):
        best = 0 if self.shown[0] > .3 else 2 - (self.shown[1] > 0)
        self.begin()
        return (int(act) == best) + self.np_random.normal(0, 1.5)

    def seen(self):
        return self.shown


class Falling(gym.Env):
    "A ball falls towards a paddle: a picture of ten rows laid flat, over when the ball is down"
    observation_space = Box(0, 1, (80,), np.float32)
    action_space = Discrete(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.ball = [0, int(self.np_random.integers(8))]
        self.paddle = int(self.np_random.integers(8))
        return self.seen(), {}

    def step(self, act):
        self.ball[0] += 1
        self.paddle = int(np.clip(self.paddle + act - 1, 0, 7))
        down = self.ball[0] == 9
        caught = self.paddle == self.ball[1]
        return self.seen(), float(caught - (not caught)) if down else 0., down, False, {}

    def seen(self):
        picture = np.zeros((10, 8), np.float32)
        picture[9, self.paddle] = 1
        picture[tuple(self.ball)] = 1
        return picture.ravel()


class Tenths(Sound):
    "A tenth in each step, which does not add up to the same in two ways of adding"
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    limit = 100

    def begin(self):
        self.place = self.np_random.random()

    def move(self, act):
        self.place = (self.place + (.05 if act else -.05)) % 1
        return .1

    def seen(self):
        return np.array([self.place], np.float32)


SOUND = [
    (TwoWheels, "ppo", 6000, {"stuck_observation"}),
    (Wind, "ppo", 4000, {"stuck_observation", "clipped_reward"}),
    (Track, "td3", 1200, {"clipped_reward"}),
    (Shop, "ppo", 4000, {"twin_actions"}),
    (Contexts, "ppo", 20_000, {"noisy_observation", "shaky_observation", "hasty_limit"}),
    (Falling, "dqn", 4000, {"torn_end", "carried_over"}),
    (Tenths, "ppo", 4000, {"changed_world"}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("world, algo, steps, wrong", SOUND, ids=lambda one: getattr(one, "__name__", None))
def test_what_is_sound_is_not_blamed(world, algo, steps, wrong):
    run = Trainer(world, algo, seed=0).run(steps)
    found = run.diagnose()
    run.close()
    assert not wrong.intersection(found.names) and not found.failed


class TurnsLater(gym.ActionWrapper):
    "After some steps of its life every action is the other one"
    turns_at = 4000
    count = 0

    def action(self, act):
        self.count += 1
        return act if self.count < self.turns_at else 1 - act


@pytest.mark.filterwarnings("ignore")
def test_a_world_that_turns_while_it_is_learned():
    run = Trainer(lambda: TurnsLater(gym.make("CartPole-v1")), "dqn", seed=0).run(5500)
    found = run.diagnose()
    run.close()
    assert "changed_world" in found.names[:2]
