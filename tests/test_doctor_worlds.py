"Worlds of people's own: the doctor says nothing of those that are sound, however odd, and names what goes wrong later"
import copy
import time

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from benchmarks.doctor_fresh import OtherOrderEachTime
from rlbench import Trainer
from rlbench.algos import gail, qlearning
from rlbench.algos.dqn import DQN
from rlbench.algos.dyna import Remembered
from rlbench.algos.td import of_action
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.policies.distributions import Categorical
from rlbench.training.doctor import learning
from rlbench.training.doctor.actions import changed_inside
from rlbench.training.doctor.again import other_sums
from rlbench.training.doctor.densities import other_entropy, strange_density
from rlbench.training.doctor.evidence import examine
from rlbench.training.doctor.findings import clipped_reward, idle_actions, limit_as_end, same_reward
from rlbench.training.doctor.hidden import ends_by_chance, hasty_limit, hidden_state, noisy_reward, reward_of_before
from rlbench.training.doctor.keeping import other_memory, uphill
from rlbench.training.doctor.leaps import lagging_sensor
from rlbench.training.doctor.learning import bounded_values, over_estimation, strange_rate, too_short
from rlbench.training.doctor.policy import dead_units
from rlbench.training.doctor.settings import far_start, strange_setting
from rlbench.training.doctor.sight import aliased_state, clipped_observation, dead_observation, lost_sight
from rlbench.training.doctor.sight import noisy_observation, shaky_observation
from rlbench.training.doctor.sight import stuck_observation, unscaled_observation
from rlbench.training.doctor.steady import changing_reward, equal_copies, late_sight, uneven_steps, waning_actions
from rlbench.training.doctor.tables import other_correction, other_model
from rlbench.training.doctor.trials import flat_actions, response, shaken_actions
from rlbench.training.learner import FlatGroup


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


class Spiky(gym.ObservationWrapper):
    "A sensor of four is read too early now and then"

    def observation(self, obs):
        obs = np.array(obs)
        if self.np_random.random() < .03:
            obs[self.np_random.integers(4)] = 1e6
        return obs


class TooFewBits(gym.ObservationWrapper):
    "Numbers are kept in eight bits, and begin anew where these do not suffice"
    observation_space = Box(0, 255, (4,), np.float32)

    def observation(self, obs):
        return (obs * 400).astype(np.int64).astype(np.uint8).astype(np.float32)


class Gained(gym.ActionWrapper):
    "An action is scaled once more"

    def action(self, act):
        return (act * 50).clip(-2, 2)


class WholeNumbers(gym.ActionWrapper):
    "An action is cut to a whole number"

    def action(self, act):
        return np.trunc(act / 2).astype(np.float32)


class Walk(Sound):
    "Nine places in a row; the last one is the goal"
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(3)
    moves = -1, 1, 0

    def begin(self):
        self.place = int(self.np_random.integers(1, 6))

    def step(self, act):
        self.time += 1
        self.place = int(np.clip(self.place + self.moves[int(act)], 0, 8))
        there = self.place == 8
        return self.seen(), self.pay(there), there, self.time == self.limit and not there, {}

    def pay(self, there):
        return float(there) - .01

    def seen(self):
        return np.array([self.place / 8], np.float32)


class ScorePaid(Walk):
    "What was paid so far is paid again in every step"

    def begin(self):
        super().begin()
        self.score = 0.

    def pay(self, there):
        self.score += super().pay(there)
        return self.score


class StayingPays(Walk):
    "Each step pays, so the goal is avoided"

    def pay(self, there):
        return there + .2


class MaskedWrongly(Walk):
    "The mask stands in another order than the actions: nobody ever goes right"
    observation_space = gym.spaces.Dict(place=Walk.observation_space, action_mask=Box(0, 1, (3,), np.int8))

    def seen(self):
        return dict(place=super().seen(), action_mask=np.array([self.place > 0, False, True], np.int8))


class OverAtOnce(Walk):
    "Whether it goes on is told where its end should be"

    def step(self, act):
        obs, rew, end, cut, info = super().step(act)
        return obs, rew, not end, False, info


class Pit(Walk):
    "Who goes left from the first place is never seen again"
    limit = 2000

    def step(self, act):
        if self.place < 0:
            self.time += 1
            return self.seen(), 0., False, self.time == self.limit, {}
        if self.place == 0 and act == 0: self.place = -5
        return super().step(act) if self.place >= 0 else (self.seen(), 0., False, False, {})


def over(wrapper, env):
    "A world with something in between"
    return lambda: wrapper(gym.make(env))


ILL = {
    "spikes": (over(Spiky, "CartPole-v1"), "ppo", 6000, "spiky_observation"),
    "eight bits": (over(TooFewBits, "CartPole-v1"), "ppo", 6000, "wrapped_observation"),
    "scaled once more": (over(Gained, "Pendulum-v1"), "ppo", 3000, "flat_actions"),
    "whole numbers": (over(WholeNumbers, "Pendulum-v1"), "td3", 1200, "flat_actions"),
    "a score is paid": (ScorePaid, "ppo", 3000, "paid_score"),
    "staying pays": (StayingPays, "ppo", 20_000, "farmed_reward"),
    "a mask in another order": (MaskedWrongly, "dqn", 3000, "never_allowed"),
    "over at once": (OverAtOnce, "ppo", 3000, "hasty_limit"),
    "a pit": (Pit, "dqn", 4000, "dead_end"),
}


def some(ill):
    "Every fourth of them; the others are for make proofs"
    return [pytest.param(name, marks=pytest.mark.long) if i % 4 else name for i, name in enumerate(ill)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", some(ILL))
def test_what_is_ill_is_named(what):
    world, algo, steps, name = ILL[what]
    run = Trainer(world, algo, seed=0).run(steps)
    found = run.diagnose()
    run.close()
    assert name in found.names[:2] and not found.failed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_the_same_walk_in_order_is_not_blamed(algo):
    run = Trainer(Walk, algo, seed=0).run(6000)
    found = run.diagnose()
    run.close()
    assert not found


class MixedUp(DQN):
    "Its memory gives what followed to other rows"

    def memory(self, spec):
        made = super().memory(spec)
        gather = made.gather

        def mixed(index):
            rows = gather(index)
            return Batch(rows, next_obs=np.roll(rows.next_obs, 1, 0))

        made.gather = mixed
        return made


@pytest.mark.filterwarnings("ignore")
def test_rows_that_a_memory_gives_out_wrongly():
    run = Trainer("CartPole-v1", MixedUp(), seed=0).run(3000)
    assert "other_returns" in run.diagnose().names[:2]


@pytest.mark.filterwarnings("ignore")
def test_who_acts_is_left_behind():
    run = Trainer("CartPole-v1", "ppo", seed=0).run(2048)
    first = copy.deepcopy(run.actors["agent"].nets)
    run.run(12_000)
    run.actors["agent"].quick = first
    assert "answers_otherwise" in run.diagnose().names[:2]


class OwnLoss(DQN):
    "Names nothing but its loss, as one writes it for oneself"

    def losses(self, nets, rows):
        yield "all", (of_action(nets.q(rows.obs), rows.act) - self.own_target(nets, rows)).square().mean(), {}

    def own_target(self, nets, rows):
        return rows.rew + self.gamma * ~rows.term * nets.target(rows.next_obs).amax(-1).detach()


class GoesOn(OwnLoss):
    "Counts what follows an end"

    def own_target(self, nets, rows):
        return rows.rew + self.gamma * nets.target(rows.next_obs).amax(-1).detach()


class BestOfAll(OwnLoss):
    "The best of all rows, in place of the best action of each"

    def own_target(self, nets, rows):
        return rows.rew + self.gamma * ~rows.term * nets.target(rows.next_obs).detach().max()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algo, named", [(GoesOn, "sees_past_end"), (BestOfAll, "mixed_rows")])
def test_a_loss_of_ones_own_is_asked_what_each_row_teaches(algo, named):
    run = Trainer("CartPole-v1", algo(n_step=1), seed=0).run(3000)
    assert named in run.diagnose().names[:2]


@pytest.mark.filterwarnings("ignore")
def test_a_loss_of_ones_own_that_is_right_is_not_blamed():
    run = Trainer("CartPole-v1", OwnLoss(n_step=1), seed=0).run(3000)
    assert not {"sees_past_end", "mixed_rows"}.intersection(run.diagnose().names)


@pytest.mark.filterwarnings("ignore")
def test_units_left_out_by_chance_are_no_rows_that_mix():
    run = Trainer("Pendulum-v1", "sac", seed=0, dropout=.01, critic_norm="layer", gradient_steps=2, hidden=(32, 32),
                  learning_starts=100).run(400)
    assert "mixed_rows" not in run.diagnose().names


@pytest.mark.filterwarnings("ignore")
def test_who_chooses_by_values_of_a_scale_of_its_own_acts_as_it_says():
    run = Trainer("CartPole-v1", "stream_q", exploration="boltzmann", temperature=1., seed=0).run(6000)
    assert "acts_otherwise" not in run.diagnose(steps=600, seconds=4).names


class Slow(gym.ActionWrapper):
    "Each step takes a while"
    steps = 0

    def action(self, act):
        Slow.steps += 1
        time.sleep(.05)
        return act


@pytest.mark.filterwarnings("ignore")
def test_actions_are_tried_for_a_while_only():
    run = Trainer(over(Slow, "Pendulum-v1"), "ppo", seed=0, num_envs=1, check_env=False)
    assert not response(run, "agent", seed=0, seconds=.2).any()
    assert 0 < Slow.steps < 30          # and not six times as many as there are values


class Queued(gym.Wrapper):
    "Some of what is seen, and what is paid, is that of some steps ago"

    def __init__(self, env, seen=0, dims=(), paid=0):
        super().__init__(env)
        self.late = seen, paid
        self.dims = list(dims)

    def reset(self, **how):
        obs, info = self.env.reset(**how)
        seen, paid = self.late
        self.seen = [obs[self.dims]] * seen
        self.owed = [0.] * paid
        return obs, info

    def step(self, act):
        obs, rew, *rest = self.env.step(act)
        self.seen.append(obs[self.dims])
        self.owed.append(rew)
        obs = obs.copy()
        obs[self.dims] = self.seen.pop(0)
        return obs, self.owed.pop(0), *rest


class Cut(gym.RewardWrapper):
    "A reward that is hardly ever within its bounds"

    def reward(self, reward):
        return float(np.clip(reward, -1, 1))


class Unpaid(gym.RewardWrapper):
    "Nothing is paid"

    def reward(self, reward):
        return 0.


class Corner(gym.Env):
    "Five places on either side; with the key from one corner another one is the goal, which chance seldom finds"
    observation_space = Discrete(50)
    action_space = Discrete(4)
    moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])

    def __init__(self, told):
        self.told = told

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.array([2, 2])
        self.key = False
        self.time = 0
        return self.seen(), {}

    def step(self, act):
        self.time += 1
        self.place = (self.place + self.moves[act]).clip(0, 4)
        self.key |= not self.place.any()
        there = bool(self.key and self.place.min() == 4)
        return self.seen(), float(there), there, self.time == 100 and not there, {}

    def seen(self):
        return int(self.place @ (5, 1)) + 25 * (self.key and self.told)


class LateBall(Sound):
    "A ball is thrown in after ten steps, at a speed that is not seen"
    observation_space = Box(-10, 10, (2,), np.float32)
    action_space = Discrete(2)

    def begin(self):
        self.place = np.array([self.np_random.normal(), 0.])

    def move(self, act):
        thrown = self.time > 10
        self.place += self.np_random.normal([.1 * act, .3 * thrown], [.1, .2 * thrown])
        return -abs(self.place).sum()

    def seen(self):
        return self.place.astype(np.float32)


class NearGoal(Sound):
    "Each step costs one, but near the goal as much as it is away"
    observation_space = Box(-20, 20, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def begin(self):
        self.away = self.np_random.uniform(-5, 5)

    def move(self, act):
        self.away += .3 * act[0]
        return -abs(self.away) if abs(self.away) < .6 else -1.

    def seen(self):
        return np.array([self.away], np.float32)


def at_first(source, algo="ppo", steps=100, **settings):
    "What a doctor sees of a run that has hardly begun"
    run = Trainer(source, algo, seed=0, check_env=False, **settings).run(steps)
    found = examine(run, None, steps=1000, seconds=3., seed=1)
    run.close()
    return found


def queued(env, **how):
    return lambda: Queued(gym.make(env), **how)


class Flicker(gym.ObservationWrapper):
    "In a third of the steps nothing is seen"

    def observation(self, obs):
        return obs * 0 if self.unwrapped.np_random.random() < .3 else obs


class TwoLate(gym.Wrapper):
    "An action takes effect two steps later"

    def reset(self, **how):
        self.waiting = [0, 0]
        return self.env.reset(**how)

    def step(self, act):
        self.waiting.append(act)
        return self.env.step(self.waiting.pop(0))


class OneSeed(gym.Wrapper):
    "The first episode of all copies is the same, and so are those that follow"
    begun = False

    def reset(self, seed=None, options=None):
        seed = None if self.begun else 0
        self.begun = True
        return self.env.reset(seed=seed, options=options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_copies_of_one_seed_are_told_from_others(env):
    equal = over(OneSeed, env)
    assert "2 environments" in equal_copies(at_first(equal, "a2c", num_envs=2)).seen
    assert equal_copies(at_first(env, "a2c", num_envs=2, native=False)) is None
    assert equal_copies(at_first(equal, "a2c", num_envs=1)) is None


ADD = Ring.add


def by_reference(memory, row, *rest, **how):
    "The newest observation is everywhere"
    count = ADD(memory, row, *rest, **how)
    memory.places["obs"][:] = row.obs[0]
    return count


@pytest.mark.filterwarnings("ignore")
def test_older_rows_of_a_memory_are_looked_at_as_well(monkeypatch):
    steps = dict(learning_starts=50, hidden=(32, 32))
    assert other_memory(at_first("Pendulum-v1", "sac", 150, **steps)) is None
    monkeypatch.setattr(Ring, "add", by_reference)
    assert "obs in" in other_memory(at_first("Pendulum-v1", "sac", 150, **steps)).seen


class Climbs(DQN):
    "Takes the wrong way"

    def optimiser(self, group, parameters):
        return torch.optim.Adam(parameters, maximize=True)


@pytest.mark.filterwarnings("ignore")
def test_steps_that_go_up_their_loss_are_named():
    early = dict(learning_starts=100, train_freq=1, gradient_steps=1)
    assert "went up" in uphill(at_first("CartPole-v1", Climbs(**early), 300)).seen
    assert uphill(at_first("CartPole-v1", DQN(**early), 300)) is None


@pytest.mark.filterwarnings("ignore")
def test_gradients_that_pile_up_are_named(monkeypatch):
    def step(self, loss, named):
        slope = torch.cat([one.flatten() for one in torch.autograd.grad(loss, self.parameters)])
        self.vector.grad = slope if self.vector.grad is None else self.vector.grad + slope
        self.optimiser.step()
        return float(slope.norm())
    monkeypatch.setattr(FlatGroup, "step", step)
    found = uphill(at_first("CartPole-v1", DQN(learning_starts=100, train_freq=1, gradient_steps=1), 300))
    assert "times as long" in found.seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("times", [-1, .5, 0])
def test_an_entropy_that_is_told_wrongly_is_named(monkeypatch, times):
    right = Categorical.entropy
    assert other_entropy(at_first("CartPole-v1", "a2c")) is None
    monkeypatch.setattr(Categorical, "entropy", lambda pi: times * right(pi))
    assert other_entropy(at_first("CartPole-v1", "a2c"))


@pytest.mark.filterwarnings("ignore")
def test_a_table_that_begins_far_too_low_is_named():
    assert far_start(at_first("rlbench/CliffWalk-v0", "qlearning", initial=-1000.)).changes == dict(initial=1.)
    assert far_start(at_first("rlbench/CliffWalk-v0", "qlearning", initial=-100.)) is None


SLIGHT = {
    "nothing seen in a third": (over(Flicker, "Acrobot-v1"), "ppo", lost_sight, "the same, wherever"),
    "nor of a pendulum": (over(Flicker, "Pendulum-v1"), "ppo", lost_sight, "the same, wherever"),
    "two steps late, among crashes": (over(TwoLate, "LunarLander-v3"), "ppo", late_sight, "2 steps after"),
    "paid five steps late": (queued("Reacher-v5", paid=5), "ppo", reward_of_before, "first 5 steps"),
    "hardly ever within bounds": (over(Cut, "Pendulum-v1"), "td3", clipped_reward, "are -1"),
    "paid eight steps late": (queued("Pendulum-v1", paid=8), "ppo", reward_of_before, "of 8 steps before"),
    "paid 25 steps late": (queued("Pendulum-v1", paid=25), "sac", reward_of_before, "of 25 steps before"),
    "an angle six steps late": (queued("CartPole-v1", seen=6, dims=[2]), "ppo", lagging_sensor, "dimension 2"),
    "a speed five steps late": (queued("Pendulum-v1", seen=5, dims=[2]), "ppo", lagging_sensor, "dimension 2"),
    "a key that is not seen": (lambda: Corner(False), "qlearning", aliased_state, "another place"),
}
def stacked():
    return gym.wrappers.FlattenObservation(gym.wrappers.FrameStackObservation(gym.make("CartPole-v1"), 4))


RIGHT = {
    "the last four of all": (stacked, "ppo", lagging_sensor),
    "a goal that shows when it is near": (NearGoal, "td3", clipped_reward),
    "paid at once": ("Pendulum-v1", "ppo", reward_of_before),
    "a ball thrown in later": (LateBall, "ppo", lagging_sensor),
    "all is seen": ("Acrobot-v1", "ppo", lost_sight),
    "a car at its wall": ("MountainCar-v0", "dqn", lost_sight),
    "crashes": ("LunarLander-v3", "ppo", late_sight),
    "all numbers late": (queued("CartPole-v1", seen=4, dims=range(4)), "ppo", lagging_sensor),
    "a late picture of all": (queued("CartPole-v1", seen=4, dims=range(4)), "ppo", stuck_observation),
    "several actions by name": ("rlbench/SideAndForce-v0", "ppo", noisy_observation),
    "and no noise": ("rlbench/SideAndForce-v0", "ppo", shaky_observation),
    "two joints in water": ("Swimmer-v5", "ppo", uneven_steps),
    "stakes": ("rlbench/Gambler-v0", "qlearning", idle_actions),
    "a key that is seen": (lambda: Corner(True), "qlearning", aliased_state),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", SLIGHT)
def test_a_slight_fault_of_a_world_is_seen(what):
    source, algo, check, told = SLIGHT[what]
    assert told in check(at_first(source, algo)).seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", RIGHT)
def test_and_not_where_there_is_none(what):
    source, algo, check = RIGHT[what]
    assert check(at_first(source, algo)) is None


@pytest.mark.filterwarnings("ignore")
def test_a_goal_that_was_not_met_may_be_due_to_the_settings():
    unmet = at_first("MountainCar-v0", "a2c", 20_000, lr=.05)
    unpaid = at_first(over(Unpaid, "CartPole-v1"))
    assert same_reward(unmet).weight < strange_rate(unmet).weight < same_reward(unpaid).weight


@pytest.mark.filterwarnings("ignore")
def test_values_as_good_as_nothing_are_not_too_large(monkeypatch):
    unpaid = at_first(over(Unpaid, "CartPole-v1"))
    for value, named in ((1e-5, False), (1., True)):
        monkeypatch.setattr(learning, "beliefs", lambda actor, obs: np.full(len(obs), value))
        assert bool(over_estimation(unpaid)) == named


@torch.no_grad()
def silenced(net):
    "The same network, of which no unit says anything"
    for layer in net.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.weight.zero_()
            layer.bias.fill_(-1.)


@pytest.mark.filterwarnings("ignore")
def test_units_of_a_network_that_nobody_asks_may_be_dead():
    evidence = at_first("CartPole-v1", "dqn")
    nets = evidence.learner.nets
    silenced(nets.shaken)
    assert dead_units(evidence) is None
    silenced(nets.q)
    assert "a layer of q" in dead_units(evidence).seen


class OfEpisodes(gym.Wrapper):
    "Episodes of fifty steps, numbered, each with a sign"
    number = 0

    def reset(self, **how):
        self.number += 1
        self.left = 50
        answer = self.env.reset(**how)
        self.sign = 2 * self.unwrapped.np_random.integers(2) - 1
        return answer

    def step(self, act):
        self.left -= 1
        obs, rew, *_ = self.env.step(act)
        return obs, self.pay(rew, float(act[0])), False, self.left == 0, {}

    def pay(self, rew, act):
        return rew


class Dearer(OfEpisodes):
    def pay(self, rew, act):
        return rew * 1.1**self.number


class Secret(OfEpisodes):
    def pay(self, rew, act):
        return rew + 5 * self.sign * act


class Shown(Secret):
    "The price is seen"

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = Box(-10, 10, (4,), np.float32)

    def with_sign(self, obs):
        return np.append(obs, np.float32(self.sign))

    def reset(self, **how):
        obs, info = super().reset(**how)
        return self.with_sign(obs), info

    def step(self, act):
        obs, *rest = super().step(act)
        return self.with_sign(obs), *rest


class Weaker(OfEpisodes):
    def step(self, act):
        return super().step((act * .97**self.number).astype(np.float32))


class Luck(gym.ActionWrapper):
    size = 3.

    def action(self, act):
        return np.clip(act + self.unwrapped.np_random.normal(0, self.size, 1), -2, 2).astype(np.float32)


class LittleLuck(Luck):
    size = .3


class Fourth(gym.Wrapper):
    def step(self, act):
        for _ in range(4): answer = self.env.step(act)
        return answer


class SumOfFour(gym.Wrapper):
    def step(self, act):
        paid = 0.
        for _ in range(4):
            obs, rew, *rest = self.env.step(act)
            paid += rew
        return obs, paid, *rest


class HalfTheRange(gym.ActionWrapper):
    def action(self, act):
        return (act + 2) / 2


class Narrower(gym.ActionWrapper):
    def action(self, act):
        return act / 4


class FewerKeys(gym.ActionWrapper):
    def action(self, act):
        return min(int(act), 1)


class Comfort(gym.RewardWrapper):
    def reward(self, rew):
        return rew + 1.1


class Scaled(gym.RewardWrapper):
    def reward(self, rew):
        return .1 * rew


class Tenfold(gym.RewardWrapper):
    def reward(self, rew):
        return 10 * rew


class Negated(gym.RewardWrapper):
    def reward(self, rew):
        return -rew


class Raised(gym.RewardWrapper):
    def reward(self, rew):
        return rew + 100


class Whole(gym.RewardWrapper):
    def reward(self, rew):
        return int(rew / 2)


class SignAlone(gym.RewardWrapper):
    def reward(self, rew):
        return float(np.sign(rew))


class Skips(gym.ActionWrapper):
    def action(self, act):
        return 0 if self.unwrapped.np_random.random() < .33 else act


class Fiftieth(gym.ActionWrapper):
    def action(self, act):
        return act / 50


class DeadZone(gym.ActionWrapper):
    def action(self, act):
        return act * (np.abs(act) > .6)


class OneSeedForAll(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=7)


class Elsewhere(gym.Wrapper):
    def reset(self, **how):
        self.env.reset(**how)
        self.unwrapped.state = np.array([1., 0.])
        return np.array([np.cos(1), np.sin(1), 0], np.float32), {}


class NeverOver(gym.Wrapper):
    def step(self, act):
        obs, rew, term, trunc, info = self.env.step(act)
        return obs, rew, False, trunc, info


class Signs(Sound):
    "One of four signs"
    observation_space = Box(0, 1, (4,), np.float32)
    action_space = Discrete(4)

    def begin(self):
        self.sign = int(self.np_random.integers(4))

    def move(self, act):
        won = act == self.sign
        self.begin()
        return won

    def seen(self):
        return np.eye(4, dtype=np.float32)[self.sign]


INSIDE = {      # name -> source, algorithm, check, what it says; nothing: the world is as it should be
    "ever dearer": (over(Dearer, "Pendulum-v1"), "ppo", changing_reward, "times as much"),
    "a secret price": (over(Secret, "Pendulum-v1"), "ppo", changing_reward, "charge what others pay"),
    "a price that is shown": (over(Shown, "Pendulum-v1"), "ppo", changing_reward, ""),
    "equal episodes": (over(OfEpisodes, "Pendulum-v1"), "ppo", changing_reward, ""),
    "a walker's pay": ("Walker2d-v5", "ppo", changing_reward, ""),
    "weaker": (over(Weaker, "Pendulum-v1"), "ppo", waning_actions, "of its mean"),
    "as strong as before": (over(OfEpisodes, "Pendulum-v1"), "ppo", waning_actions, ""),
    "a walker's legs": ("Walker2d-v5", "ppo", waning_actions, ""),
    "luck": (over(Luck, "Pendulum-v1"), "ppo", shaken_actions, "times as far"),
    "little luck": (over(LittleLuck, "Pendulum-v1"), "ppo", shaken_actions, ""),
    "engines that stray": (lambda: gym.make("LunarLander-v3", continuous=True), "ppo", shaken_actions, ""),
    "thrown somewhere": (Track, "ppo", shaken_actions, ""),
    "the last of four": (over(Fourth, "Pendulum-v1"), "ppo", changed_inside, "the last of them"),
    "the sum of four": (over(SumOfFour, "Pendulum-v1"), "ppo", changed_inside, ""),
    "one side": (over(HalfTheRange, "Pendulum-v1"), "ppo", changed_inside, "one half of its range"),
    "narrower": (over(Narrower, "Pendulum-v1"), "ppo", changed_inside, ""),
    "a key is missing": (over(FewerKeys, "MountainCar-v0"), "dqn", changed_inside, "action 2 never"),
    "paid to wait": (over(Comfort, "MountainCar-v0"), "dqn", changed_inside, "each step is paid 0.1"),
    "scaled": (over(Scaled, "MountainCar-v0"), "dqn", changed_inside, ""),
    "scaled, and always the same": (over(Tenfold, "CartPole-v1"), "ppo", changed_inside, ""),
    "the other sign": (over(Negated, "Reacher-v5"), "ppo", changed_inside, "is charged"),
    "far above 0": (over(Raised, "Pendulum-v1"), "td3", changed_inside, "each step is paid"),
    "whole numbers": (over(Whole, "Reacher-v5"), "ppo", changed_inside, "comes out as 0"),
    "a sign alone": (over(SignAlone, "Pendulum-v1"), "ppo", changed_inside, "all steps are paid -1"),
    "nothing done in a third": (over(Skips, "LunarLander-v3"), "ppo", changed_inside, "another action arrives"),
    "a fiftieth": (over(Fiftieth, "InvertedPendulum-v5"), "ppo", changed_inside, "2.0% of the range"),
    "a dead zone": (over(DeadZone, "HalfCheetah-v5"), "td3", changed_inside, "nothing to do with what was done"),
    "done later": (over(TwoLate, "LunarLander-v3"), "ppo", changed_inside, "2 steps after"),
    "seen later": (queued("Acrobot-v1", seen=2, dims=range(6)), "ppo", changed_inside, "2 steps before"),
    "in another order": (over(OtherOrderEachTime, "Acrobot-v1"), "ppo", changed_inside, "what is inside"),
    "one seed": (over(OneSeedForAll, "Taxi-v4"), "qlearning", changed_inside, "with the seed 7"),
    "elsewhere": (over(Elsewhere, "Pendulum-v1"), "ppo", changed_inside, "begins elsewhere"),
    "never over": (over(NeverOver, "CartPole-v1"), "ppo", changed_inside, "ends an episode"),
    "steps in a reset": ("LunarLander-v3", "ppo", changed_inside, ""),
    "normalised": (over(gym.wrappers.NormalizeObservation, "Hopper-v5"), "ppo", changed_inside, ""),
    "paid by size": (over(gym.wrappers.NormalizeReward, "Hopper-v5"), "ppo", changed_inside, ""),
    "stacked": (stacked, "ppo", changed_inside, ""),
    "one of four": (Signs, "ppo", changed_inside, ""),
    "engines that push one way": (lambda: gym.make("LunarLander-v3", continuous=True), "ppo", flat_actions, ""),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", INSIDE)
def test_what_luck_wrappers_and_episodes_change_is_seen(what):
    source, algo, check, told = INSIDE[what]
    found = check(at_first(source, algo))
    assert told in found.seen if told else found is None


@pytest.mark.filterwarnings("ignore")
def test_a_table_that_counts_what_is_behind_an_end_is_named(monkeypatch):
    windy = "rlbench/WindyGrid-v0"
    assert other_correction(at_first(windy, "qlearning", 2000)) is None
    monkeypatch.setattr(qlearning, "td_target", lambda rew, term, next_val, gamma: rew + gamma * next_val)
    assert other_correction(at_first("rlbench/FrozenLake-v0", "qlearning", 2000))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algo", ["dyna", "prioritised_sweeping"])
def test_a_model_that_remembers_another_world_is_named(monkeypatch, algo):
    maze = "rlbench/DynaMaze-v0"
    assert other_model(at_first(maze, algo, 300)) is None
    right = Remembered.remember
    monkeypatch.setattr(Remembered, "remember",
                        lambda self, row, *when: right(self, Batch(row, next_obs=row.obs), *when))
    assert "something else" in other_model(at_first(maze, algo, 300)).seen


@pytest.mark.filterwarnings("ignore")
def test_a_judge_whose_verdict_is_turned_round_is_named(monkeypatch):
    watched = Trainer("CartPole-v1", "ppo").run(300).learner.memory
    assert other_sums(at_first("CartPole-v1", "gail", 2500, memory=watched)) is None
    monkeypatch.setattr(gail, "verdict", lambda real, form: torch.nn.functional.softplus(-real))
    assert other_sums(at_first("CartPole-v1", "gail", 2500, memory=watched))


class OfTanh(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, obs):
        return self.net(obs).tanh()


class Squashed(DQN):
    def nets(self, spec, rng):
        nets = super().nets(spec, rng)
        for name in ("q", "target"): nets[name] = OfTanh(nets[name])
        return nets


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1"])
def test_values_that_cannot_be_as_large_as_returns_are_named(env):
    early = dict(learning_starts=100)
    assert "farther than 1 " in bounded_values(at_first(env, Squashed(**early), 300)).seen
    assert bounded_values(at_first(env, DQN(**early), 300)) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algo", ["c51", "sac", "r2d2", "stream_q", "qlearning"])
def test_critics_of_all_kinds_have_no_such_bound(algo):
    env = dict(sac="Pendulum-v1", r2d2="rlbench/StatelessCartPole-v0", qlearning="rlbench/CliffWalk-v0")
    assert bounded_values(at_first(env.get(algo, "CartPole-v1"), algo)) is None


@pytest.mark.filterwarnings("ignore")
def test_numbers_that_only_a_policy_makes_large_are_no_fault_of_what_is_seen():
    evidence = at_first("Reacher-v5", "trpo")
    evidence.exploring.obs[:, 6] *= 10
    assert unscaled_observation(evidence) is None
    evidence.chance.obs[:, 6] *= 10
    assert "dimension 6" in unscaled_observation(evidence).seen


class EndsAtTwenty(gym.Wrapper):
    "Says of a limit that it is an end"

    def step(self, act):
        obs, rew, term, trunc, info = self.env.step(act)
        return obs, rew, term or trunc, False, info


def ended_at(env, limit):
    return lambda: EndsAtTwenty(gym.make(env, max_episode_steps=limit))


def limited(env, limit):
    return lambda: gym.make(env, max_episode_steps=limit)


SETTLED = {     # name -> source, algorithm, settings, steps, check, what it says; nothing: all is well
    "six numbers, first weights": ("HalfCheetah-v5", "sac", dict(hidden=(64, 64)), 300, strange_density, ""),
    "an arm that is bent": ("Pusher-v5", "ppo", {}, 100, hidden_state, ""),
    "effort among thirty numbers": ("Pusher-v5", "ppo", {}, 100, noisy_reward, ""),
    "legs that are seldom touched": ("Ant-v5", "ppo", {}, 100, dead_observation, ""),
    "a touch that is cut off": ("Ant-v5", "ppo", {}, 100, clipped_observation, ""),
    "a body too high or too low": ("Ant-v5", "ppo", {}, 100, ends_by_chance, ""),
    "no goal yet": ("Acrobot-v1", "pqn", {}, 12_000, same_reward, ""),
    "dead by the same pay": ("MountainCar-v0", "dqn", {}, 10_000, dead_units, ""),
    "a limit, learned": (ended_at("Taxi-v4", 20), "qlearning", {}, 8000, limit_as_end, "exactly 20 steps"),
    "a limit, ran": (ended_at("HalfCheetah-v5", 100), "ppo", {}, 4000, limit_as_end, "exactly 100 steps"),
    "the world's own limit": (ended_at("CartPole-v1", 500), "ppo", {}, 50_000, limit_as_end, "exactly 500 steps"),
    "a fortieth of the limit": (limited("LunarLander-v3", 25), "ppo", {}, 100, hasty_limit, "cut at step 25"),
    "a fifth of the limit": (limited("LunarLander-v3", 200), "ppo", {}, 100, hasty_limit, ""),
    "a rate of 0": ("Taxi-v4", "qlearning", dict(lr=0.), 100, strange_rate, "lr is 0"),
    "a rate of 2": ("Taxi-v4", "sarsa", dict(lr=2.), 100, strange_rate, "lr is 2"),
    "a rate of 1": ("Taxi-v4", "sarsa", dict(lr=1.), 100, strange_rate, ""),
    "two rollouts": ("CartPole-v1", "ppo", dict(n_steps=4096, num_envs=1), 9000, strange_setting, "n_steps is 4096"),
    "one of many": ("CartPole-v1", "ppo", dict(num_envs=64), 18_000, strange_setting, "in 64 environments"),
    "not yet full": ("CartPole-v1", "ppo", dict(n_steps=4096, num_envs=1), 4000, strange_setting, ""),
    "an update from 200 episodes": ("CartPole-v1", "reinforce", dict(n_episodes=200), 6000, strange_setting, "200"),
    "fifty for one": ("CartPole-v1", "dqn", dict(gradient_steps=50, train_freq=1), 100, strange_setting, "gradient"),
    "fifty for four": ("CartPole-v1", "dqn", dict(gradient_steps=50), 100, strange_setting, ""),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", SETTLED)
def test_wide_worlds_limits_and_settings_are_judged_by_what_is_usual(what):
    source, algo, settings, steps, check, told = SETTLED[what]
    found = check(at_first(source, algo, steps, **settings))
    assert told in found.seen if told else found is None


@pytest.mark.filterwarnings("ignore")
def test_a_goal_that_was_not_met_yet_is_a_warning_and_later_a_finding():
    early, late = (at_first("MountainCar-v0", "a2c", steps) for steps in (8000, 24_000))
    assert "No goal was met" in too_short(early) and same_reward(early) is None
    assert not too_short(late) and same_reward(late)
