"One setting says what stands before the last layer, in every algorithm with networks; others do not have it"
import pickle

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

from rlbench.algos.algorithm import algorithms, get
from rlbench.core.spaces import AGENT
from rlbench.core.words import ConfigError
from rlbench.policies import bodies
from rlbench.policies.bodies import BODIES
from rlbench.policies.networks import linear
from rlbench.training.trainer import Trainer, load
from tests.cases import CASES, demonstrations, differs
from tests.conftest import small

WITH = [name for name, cls in algorithms().items() if "body" in cls.__dataclass_fields__]
HOME = {case.algo: case for case in CASES if not case.extra and case.env != "rlbench/CliffWalk-v0"}    # numbers


class Wide(nn.Sequential):
    "A body of one's own"

    def __init__(self, inputs, hidden, generator):
        super().__init__(linear(inputs, 3 * hidden[0], 1., generator), nn.ELU())


@pytest.mark.parametrize("body", ["layer_norm", "simba", "wide"])
@pytest.mark.parametrize("name", WITH)
def test_every_algorithm_with_networks_takes_every_body(name, body, tmp_path, monkeypatch):
    monkeypatch.setitem(BODIES, "wide", Wide)
    trainer = HOME[name].trainer(body=body)
    kinds = [part for part in trainer.learner.nets.modules() if isinstance(part, BODIES[body])]
    weights = [weight for kind in kinds for weight in kind.parameters() if weight.requires_grad]
    before = [weight.detach().clone() for weight in weights]
    trainer.until("iteration")      # after which it is known what rewards are worth
    trainer.until("update", 3)
    assert any((one != other).any() for one, other in zip(before, weights))     # they learn

    actor = trainer.actors[AGENT]
    actor.carry = None
    there = pickle.loads(pickle.dumps(actor))       # acts elsewhere
    np.testing.assert_array_equal(*[one.act(trainer.obs[AGENT], greedy=True)[0] for one in (actor, there)])

    trainer.save(tmp_path / "run.rlb")
    twin = load(tmp_path / "run.rlb")
    for one in (trainer, twin):
        one.until("update", 2)
    assert differs(trainer.state(), twin.state()) == ""


@pytest.mark.parametrize("name", sorted(set(algorithms()) - set(WITH)))
def test_an_algorithm_without_networks_says_that_it_has_none(name):
    case = next(case for case in CASES if case.algo == name)
    trainer = case.trainer()
    assert not any(isinstance(part, nn.Linear) for part in trainer.learner.nets.modules())
    with pytest.raises(ConfigError, match="body"):
        case.trainer(body="simba")


class Seeing(gym.Env):
    "Small pictures, in which nothing matters"
    observation_space = gym.spaces.Box(0, 1, (6, 6, 2), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, max_episode_steps=None): ...

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, act):
        return self.np_random.random((6, 6, 2), np.float32), float(act), self.np_random.random() < .1, False, {}


class Colours(nn.Module):
    "A body that takes pictures as they are"

    def __init__(self, space, hidden, generator):
        super().__init__()
        self.space = space
        self.layer = linear(space.shape[-1], hidden[-1], 1., generator)

    def forward(self, obs):
        return self.layer(obs.float().mean((-3, -2)))


class Pushing(Seeing):
    "The same, where actions are numbers"
    action_space = gym.spaces.Box(-1, 1, (2,))

    def step(self, act):
        return super().step(act[0])


CHOOSE = "ppo", "dqn", "recurrent_ppo", "r2d2", "sac", "stream_q", "pqn", "bc", "iql"
PUSH = "sac", "td3", "tqc", "stream_ac", "cql", "td3_bc"


@pytest.mark.parametrize("env, name", [*((Seeing, name) for name in CHOOSE), *((Pushing, name) for name in PUSH)])
def test_a_body_may_take_observations_as_they_are(env, name, monkeypatch, tmp_path):
    monkeypatch.setitem(BODIES, "colours", Colours)
    monkeypatch.setattr(bodies, "UNENCODED", {"colours"})
    memory = demonstrations(env, num_envs=1) if get(name).offline else None
    trainer = Trainer(env, name, body="colours", num_envs=1, memory=memory, **small(get(name)))
    trainer.until("update", 3)
    seen = [part for part in trainer.learner.nets.modules() if isinstance(part, Colours)]
    assert seen and all(part.space.shape == (6, 6, 2) for part in seen)
    trainer.save(tmp_path / "run.rlb")
    assert differs(trainer.state(), load(tmp_path / "run.rlb", env=env).state()) == ""


def test_a_body_that_takes_observations_as_they_are_leaves_no_place_for_norms(monkeypatch):
    monkeypatch.setitem(BODIES, "colours", Colours)
    monkeypatch.setattr(bodies, "UNENCODED", {"colours"})
    with pytest.raises(ConfigError, match="normalize_obs = False"):
        HOME["ppo"].trainer(body="colours", normalize_obs=True)
