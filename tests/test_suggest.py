"What an environment is best begun with"
import gymnasium as gym
import numpy as np
import pytest

import rlbench
from rlbench.core.words import ConfigError
from rlbench.envs.env import EnvProblem
from rlbench.training.suggest import Chance, methods, suggest
from rlbench.training.trainer import Trainer

BOX = gym.spaces.Box(-1, 1, (3,))


class Spec:
    "What `methods` asks of a behaviour"
    def __init__(self, seen, done):
        self.observation_space = seen
        self.action_space = done


@pytest.mark.parametrize("seen, done, rate, expected", [
    (BOX, gym.spaces.Discrete(2), 90_000, ["ppo", "dqn"]),
    (BOX, gym.spaces.Discrete(2), 90, ["dqn", "ppo"]),
    (BOX, gym.spaces.Box(-1, 1, (2,)), 90, ["sac", "ppo"]),
    (BOX, gym.spaces.MultiDiscrete([2, 3]), 90, ["ppo", "reinforce"]),
    (gym.spaces.Discrete(5), gym.spaces.Discrete(2), 90_000, ["qlearning", "ppo"]),
])
def test_spaces_and_the_cost_of_a_step_decide(seen, done, rate, expected):
    assert [name for name, _ in methods(Spec(seen, done), None, rate)][:2] == expected


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


def test_where_chance_finds_nothing_it_is_said():
    told = dict(steps=400, rate=1e4, returns=np.array([-200., -200]), length=200.)
    assert not Chance(**told, solved=0, rewards=1).finds_something
    assert Chance(**told, solved=1, rewards=1).finds_something and Chance(**told, solved=0, rewards=2).finds_something
    assert "exploration decides here" in repr(suggest("MountainCar-v0", seconds=1))


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


def test_an_environment_of_ones_own():
    assert {choice.algo for choice in suggest(Own, seconds=.4).choices} == {"ppo", "dqn"}


@pytest.mark.parametrize("env, told", [("rlbench/Chase-v0", "has chaser, runner"), ("CartPole-v9", "CartPole"),
                                       (None, "environment")])
def test_what_it_cannot_look_at(env, told):
    with pytest.raises((ConfigError, EnvProblem), match=told):
        suggest(env, seconds=.4)


def test_the_workbench_says_who_knows_which_algorithm():
    with pytest.raises(ConfigError, match="rlbench.suggest"):
        rlbench.Workbench("CartPole-v1")
