"What an environment is best begun with"
import time
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import rlbench
from rlbench.buffers.datasets import save_ring
from rlbench.buffers.ring import Ring
from rlbench.core.spaces import Spec, in_rows
from rlbench.core.words import ConfigError
from rlbench.envs.env import EnvProblem
from rlbench.envs.registration import TEAMS
from rlbench.training.suggest import Chance, data_methods, methods, suggest, tried, untaught
from rlbench.training.trainer import CannotGoBack, Trainer
from tests.cases import demonstrations

BOX = gym.spaces.Box(-1, 1, (3,))


PICTURE = gym.spaces.Box(0, 255, (10, 10, 4), np.uint8)
MASKED = gym.spaces.Dict(light=BOX, action_mask=gym.spaces.MultiBinary(2))
MIXED = gym.spaces.Dict(side=gym.spaces.Discrete(2), force=gym.spaces.Box(-1, 1, (1,)))


@pytest.mark.parametrize("seen, done, rate, expected", [
    (BOX, gym.spaces.Discrete(2), 90_000, ["ppo", "dqn"]),
    (BOX, gym.spaces.Discrete(2), 90, ["dqn", "ppo"]),
    (BOX, gym.spaces.Box(-1, 1, (2,)), 90, ["crossq", "sac"]),
    (BOX, gym.spaces.Box(-1, 1, (2,)), 900, ["sac", "ppo"]),
    (BOX, gym.spaces.Box(-1, 1, (2,)), 90_000, ["ppo", "sac"]),
    (BOX, gym.spaces.MultiDiscrete([2, 3]), 900, ["ppo", "trpo"]),
    (BOX, MIXED, 90_000, ["ppo", "sac"]),
    (MASKED, gym.spaces.Discrete(2), 900, ["dqn", "ppo"]),
    (PICTURE, gym.spaces.Discrete(2), 90_000, ["ppo", "pqn"]),
    (PICTURE, gym.spaces.Discrete(2), 900, ["dqn", "ppo"]),
    (gym.spaces.Discrete(5), gym.spaces.Discrete(2), 90_000, ["qlearning", "ppo"]),
    (gym.spaces.Discrete(1), gym.spaces.Discrete(5), 90_000, ["bandit", "qlearning"]),
])
def test_spaces_and_the_cost_of_a_step_decide(seen, done, rate, expected):
    assert [name for name, _ in methods(Spec(seen, done, 1), None, rate)][:2] == expected


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "rlbench/SideAndForce-v0",
                                 "rlbench/Forbidden-v0", "rlbench/CliffWalk-v0"])
def test_what_is_suggested_runs(env):
    found = suggest(env, seconds=.4)
    assert len(found.choices) == 2 and found.env == env
    for choice in found.choices:
        trainer = Trainer(env, choice.algo, preset="tuned" if choice.preset else None)
        trainer.advance()
        trainer.close()
        assert choice.call in repr(found) and choice.why in repr(found)


def test_where_chance_finds_nothing_it_counts_or_keeps_what_it_saw():
    counted = Spec(gym.spaces.Discrete(5), gym.spaces.Discrete(2), 1)
    seen = Spec(BOX, gym.spaces.Discrete(2), 1)
    assert [name for name, _ in methods(counted, None, 90_000, finds=False)][:2] == ["count_bonus", "qlearning"]
    assert [name for name, _ in methods(seen, None, 90_000, finds=False)][:2] == ["dqn", "ppo"]


def test_where_chance_finds_nothing_it_is_said():
    told = dict(steps=2_000, rate=1e4, length=200.)
    same = np.full(40, -200.)
    assert not Chance(**told, returns=same, unusual=0).finds_something
    assert not Chance(**told, returns=same + np.eye(40)[0], unusual=1).finds_something       # hardly ever
    assert Chance(**told, returns=np.array([]), unusual=0).finds_something                   # nobody knows yet
    assert Chance(**told, returns=same, unusual=50).finds_something
    assert Chance(**told, returns=np.arange(40.), unusual=0).finds_something                 # how long one lasts
    assert "exploration decides here" in repr(suggest("MountainCar-v0", seconds=1))


def test_chance_finds_nothing_where_episodes_end_by_the_task():
    told = suggest(Unpaid, seconds=1)
    assert "chance finds nothing" in repr(told) and told.choices[0].algo == "dqn"
    turned = suggest(Unpaid, seconds=1, env_settings=dict(action_space=gym.spaces.Box(-1, 1, (2,))))
    assert "chance finds nothing" in repr(turned) and turned.choices[0].algo == "sac"
    lake = suggest("FrozenLake8x8-v1", seconds=1)
    assert "exploration decides here" in repr(lake)
    assert [choice.algo for choice in lake.choices] == ["value_iteration", "count_bonus"]
    assert "exploration decides" not in repr(suggest("CartPole-v1", seconds=1))


def test_settings_that_are_proved_go_before_rules():
    found = suggest("MountainCarContinuous-v0", seconds=.4)
    assert [choice.algo for choice in found.choices] == ["trpo", "td3"]
    assert found.choices[0].preset.row in repr(found)
    assert [choice.algo for choice in suggest("rlbench/CliffWalk-v0", seconds=.4).choices][0] == "value_iteration"


def test_defaults_that_are_proved_are_called_so():
    found = suggest("Pendulum-v1", seconds=3)
    assert [choice.algo for choice in found.choices] == ["ppo", "sac"]
    assert "row sac-pendulum" in repr(found)
    assert [row[1] for row in found.table] == ["tuned", "defaults"]


def test_an_environment_is_told_in_one_line_each_and_without_nan():
    told = repr(suggest("LunarLander-v3", seconds=1e-6)).splitlines()
    assert len(told) == 8 and not any("nan" in line for line in told)
    assert "no episode has ended so far" in told[3]


class Own(gym.Env):
    "Somebody's environment"
    observation_space = BOX
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(3, np.float32), {}

    def step(self, act):
        self.count += 1
        return np.zeros(3, np.float32), float(act == 1), self.count == 10, False, {}


class Unpaid(Own):
    "Never pays, and ends after 20 steps"
    def __init__(self, action_space=gym.spaces.Discrete(3)):
        self.action_space = action_space

    def step(self, act):
        self.count += 1
        return np.zeros(3, np.float32), 0., self.count == 20, False, {}


class Slow(Own):
    "Takes its time"
    def __init__(self, make=0, reset=0, step=0):
        time.sleep(make)
        self.seconds = dict(reset=reset, step=step)

    def reset(self, **how):
        time.sleep(self.seconds["reset"])
        return super().reset(**how)

    def step(self, act):
        time.sleep(self.seconds["step"])
        return super().step(act)


@pytest.mark.parametrize("what, seconds, least", [("step", .5, 2), ("step", 1, 2), ("reset", .5, 2), ("make", .3, 2)])
def test_seconds_are_kept_where_an_environment_is_slow(what, seconds, least):
    begun = time.perf_counter()
    found = suggest(Slow, seconds=1, env_settings={what: seconds})
    assert time.perf_counter() - begun < 2 + 5 * seconds
    assert len(found.choices) == least and "the environment makes" in repr(found)


class Burning(Own):
    "Breaks off"
    def step(self, act):
        raise RuntimeError("motor is on fire")


class BurningLate(Own):
    "Breaks off while somebody learns"
    steps = 0
    def step(self, act):
        BurningLate.steps += 1
        if BurningLate.steps > 5_100: raise RuntimeError("motor is on fire")
        return super().step(act)


class Unwilling(Own):
    "Begins no episode"
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("motor is on fire")


@pytest.mark.parametrize("env", [Burning, BurningLate, Unwilling])
def test_what_an_environment_raises_is_told_with_its_name(env):
    with pytest.raises(EnvProblem, match=f"{env.__name__} was tried, and broke off: RuntimeError: motor is on fire"):
        suggest(env, seconds=8)


class Forgetful(Own):
    "Draws without its seed"
    def step(self, act):
        obs, *rest = super().step(act)
        return np.random.default_rng().random(3, np.float32), *rest


def test_that_an_environment_cannot_go_back_is_said_once():
    with pytest.warns(CannotGoBack) as said:
        suggest(Forgetful, seconds=.4)
    assert len([one for one in said if one.category is CannotGoBack]) == 1


def test_what_does_not_fit_into_memory_is_left_out(monkeypatch):
    def too_large(env, env_settings, algo, *more, **given):
        if algo == "dqn": raise MemoryError("Unable to allocate 93.1 GiB")
        return tried(env, env_settings, algo, *more, **given)
    monkeypatch.setattr("rlbench.training.suggest.tried", too_large)
    found = suggest(Own, seconds=.4)
    assert [choice.algo for choice in found.choices] == ["ppo", "sac"]
    assert "dqn is left out: what it keeps does not fit into memory" in repr(found)


def test_what_will_not_fit_into_memory_is_left_out_untried(monkeypatch):
    monkeypatch.setattr("rlbench.training.suggest.memory_of_machine", lambda: 2_000_000)      # 50,000 rows take more
    found = suggest(Own, seconds=.4)
    assert [choice.algo for choice in found.choices] == ["ppo", "trpo"]
    assert "\ndqn is left out" in repr(found) and "\nsac is left out" in repr(found)


def test_an_environment_of_ones_own():
    assert {choice.algo for choice in suggest(Own, seconds=.4).choices} == {"ppo", "dqn"}


@pytest.mark.parametrize("env", TEAMS)
def test_of_several_behaviours_each_has_its_own(env):
    found = suggest(env, seconds=.4)
    assert len(found.choices) == 2
    for choice in found.choices:
        assert set(choice.algo) == set(found.chances) == set(found.spaces) and len(choice.algo) > 1
        Trainer(env, choice.algo).advance()
        assert choice.call in repr(found)


def test_data_are_learned_from(tmp_path):
    mixed = demonstrations("CartPole-v1", 4, steps=200)
    found = suggest("CartPole-v1", seconds=6, memory=mixed)            # whatever else the machine does meanwhile
    assert [choice.algo for choice in found.choices] == ["awr", "discrete_cql"]
    assert all("memory=memory" in choice.call and choice.reached > 5 for choice in found.choices)
    save_ring(tmp_path / "mixed.rlb", mixed)
    read = suggest("CartPole-v1", seconds=.4, memory=tmp_path / "mixed.rlb")
    assert f"memory='{tmp_path}/mixed.rlb')" in repr(read)
    silent = mixed.twin()
    silent.places.pop("rew")
    assert [name for name, _ in data_methods(Spec(BOX, gym.spaces.Discrete(2), 1), silent)] == ["bc", "gail"]
    forces = demonstrations("Pendulum-v1", 2, steps=60)
    turned = Spec(BOX, gym.spaces.Box(-2, 2, (1,)), 1)
    assert [name for name, _ in data_methods(turned, forces)][:2] == ["awr", "td3_bc"]


def without(memory, *names):
    "The same rows without some columns"
    less = memory.twin()
    for name in names: less.places.pop(name)
    return less


def test_data_that_all_return_the_same_are_cloned_whatever_that_is():
    data = demonstrations("CartPole-v1", 4, steps=200).twin()
    task = Spec(BOX, gym.spaces.Discrete(2), 1)
    for reward in (0., 1.):
        data.places["rew"] = data.ends(slice(None)) * np.float32(reward)
        assert [name for name, _ in data_methods(task, data)] == ["bc", "awr"]
    cut = data.twin()
    cut.places["term"][:] = False
    cut.places["trunc"][:] = False                        # no episode is whole
    assert not any("some episodes are better" in why for _, why in data_methods(task, cut))


@pytest.mark.parametrize("missing", [("term",), ("trunc",), ("next_obs",), ("rew", "term", "trunc", "next_obs")])
def test_what_data_lack_is_said(missing):
    found = suggest("CartPole-v1", seconds=.4, memory=without(demonstrations("CartPole-v1", 2, steps=60), *missing))
    assert [choice.algo for choice in found.choices] == ["bc", "gail"]
    assert f"the data have no {', '.join(missing)};" in found.choices[1].why


def test_data_without_actions_are_not_blamed_on_the_environment():
    with pytest.raises(ConfigError, match="it has no column act"):
        suggest("CartPole-v1", seconds=.4, memory=without(demonstrations("CartPole-v1", 2, steps=60), "act"))


class Clock:
    "What an environment and a trainer take, in seconds of its own"
    def __init__(self):
        self.now = 0.

    def __call__(self):
        self.now += 1e-3
        return self.now


@pytest.fixture
def clock(monkeypatch):
    "A clock on which the first trainer of a process takes five seconds"
    clock = Clock()
    made = []
    def slow_at_first(*args, **settings):
        if not made: clock.now += 5
        made.append(Trainer(*args, **settings))
        return made[-1]
    monkeypatch.setattr("rlbench.training.suggest.perf_counter", clock)
    monkeypatch.setattr("rlbench.training.suggest.Trainer", slow_at_first)
    return clock


def test_what_a_process_does_once_is_not_the_environments(clock):
    class Late(Own):
        def reset(self, **how):
            clock.now += .5
            return super().reset(**how)

    for env, seconds in ((Own, 0), (Late, .5)):
        clock.now = 0.
        trainer, made, ready = untaught(env, None)
        trainer.close()
        assert made < .1 and abs(ready - seconds) < .1


def test_the_clock_begins_when_a_process_has_warmed_up(clock, monkeypatch):
    asked = []
    def noted(env, env_settings, algo, why, seconds, **given):
        asked.append((seconds, given["slow"]))
        clock.now += 1                                    # the first trial takes less than it might
        return tried(env, env_settings, algo, why, .001, **given)
    monkeypatch.setattr("rlbench.training.suggest.tried", noted)
    found = suggest(Own, seconds=8)
    assert [choice.algo for choice in found.choices] == ["ppo", "dqn"]
    (first, slow), (second, _) = asked
    assert not slow and 2.9 < first < 4 and 2 * first - 1.5 < second < 2 * first - .9


def test_who_makes_a_trainer_for_long_learns_for_less(clock):
    begun = clock.now
    tried(Own, None, "ppo", "", seconds=5)                # all of them go into the first trainer
    assert clock.now - begun < 5.5


@pytest.mark.parametrize("env, memory, told", [
    (None, demonstrations("CartPole-v1", 1, steps=20), "name their environment"),
    ("CartPole-v1", Ring(3, 1), "is empty"),
    ("CartPole-v1", 3, "expected a Ring"),
    ("rlbench/Chase-v0", demonstrations("CartPole-v1", 1, steps=20), "there are chaser, runner"),
])
def test_data_it_cannot_use(env, memory, told):
    with pytest.raises(ConfigError, match=told):
        suggest(env, seconds=.4, memory=memory)


@pytest.mark.parametrize("env, told", [("CartPole-v9", "CartPole"), (None, "environment")])
def test_what_it_cannot_look_at(env, told):
    with pytest.raises((ConfigError, EnvProblem), match=told):
        suggest(env, seconds=.4)


def test_the_workbench_says_who_knows_which_algorithm():
    with pytest.raises(ConfigError, match="rlbench.suggest"):
        rlbench.Workbench("CartPole-v1")


class Endless(Own):
    "Never ends, and takes what it is given"
    def __init__(self, size=3, action_space=gym.spaces.Discrete(2)):
        self.observation_space = gym.spaces.Box(-1, 1, (size,))
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, act):
        return np.zeros(self.observation_space.shape, np.float32), float(np.sum(act) > 0), False, False, {}


def test_the_line_that_is_proposed_runs_as_it_stands():
    found = suggest(Endless, seconds=.4, env_settings=dict(size=2))
    for choice in found.choices:
        assert choice.call == f"rlbench.train(Endless, {choice.algo!r}, env_settings={{'size': 2}})"
        assert eval(choice.call.replace(")", ", steps=1, progress=False)")).steps
    assert found.env == "Endless"
    for env in (lambda: Endless(), partial(Endless, size=2), Maker()):
        assert "rlbench.train(env, " in repr(suggest(env, seconds=.2))


def test_the_line_that_is_proposed_for_data_runs_as_it_stands(tmp_path):
    for env in ("CartPole-v1", "Pendulum-v1"):
        memory = demonstrations(env, 2, steps=60)
        for choice in suggest(env, seconds=.4, memory=memory).choices:
            trainer = eval(choice.call.replace(")", ", n_epochs=2, progress=False)"))
            assert trainer.settled and trainer.updates and not trainer.steps


def test_settings_that_are_proved_on_other_data_are_offered():
    swung = suggest("Pendulum-v1", seconds=.4, memory=demonstrations("Pendulum-v1", 2, steps=60))
    assert [choice.algo for choice in swung.choices] == ["td3_bc", "iql"]
    mixed = suggest("CartPole-v1", seconds=.4, memory=demonstrations("CartPole-v1", 4, steps=200))
    assert [choice.preset.row for choice in mixed.choices] == ["awr-mixed", "discrete-cql-mixed"]
    for found in (swung, mixed):
        assert all("on other data of this environment" in choice.why for choice in found.choices)
        assert all('preset="tuned", memory=memory' in choice.call for choice in found.choices)


class Maker:
    "Makes environments when it is called"
    def __call__(self):
        return Endless()


def test_an_environment_without_an_end_is_told():
    found = suggest(Endless, seconds=.1)
    many = {who: replace(chance, steps=2_000) for who, chance in found.chances.items()}
    assert "in 2,000 steps no episode ended. Where none ever does, put gymnasium" in repr(replace(found, chances=many))
    assert "TimeLimit" not in repr(suggest("Pendulum-v1", seconds=.2))


@pytest.mark.parametrize("space, expected", [
    (gym.spaces.MultiDiscrete([2, 3]), {"ppo", "trpo"}),
    (gym.spaces.MultiBinary(3), {"ppo", "trpo"}),
    (gym.spaces.Box(-np.inf, np.inf, (2,)), {"ppo", "trpo"}),
    (gym.spaces.Discrete(3, start=1), {"ppo", "sac"}),
    (gym.spaces.Box(-1, 1, (2, 2)), {"ppo", "sac"}),
])
def test_what_is_suggested_for_other_actions(space, expected):
    assert {name for name, _ in methods(Spec(BOX, in_rows(space), 1), None, 90_000)[:2]} == expected
