"One setting says what stands before the last layer, in every algorithm with networks; others do not have it"
import copy
import pickle
from functools import partial
from itertools import combinations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlbench.algos.algorithm import algorithms, get
from rlbench.algos.replay import Noticing
from rlbench.core.spaces import AGENT, SpaceProblem
from rlbench.core.stats import RunningNorm
from rlbench.core.words import ConfigError
from rlbench.policies import bodies
from rlbench.policies.bodies import BODIES
from rlbench.policies.encoders import Normaliser
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


class HalfFrozen(nn.Module):
    "A layer that is not trained below one that is"

    def __init__(self, inputs, hidden, generator):
        super().__init__()
        self.eye = nn.Linear(inputs, 16).requires_grad_(False)
        self.rest = nn.Linear(16, 8)

    def forward(self, x):
        return self.rest(self.eye(x).relu()).relu()


@pytest.mark.parametrize("name", WITH)
def test_weights_that_are_not_trained_stay_as_they_are(name, tmp_path, monkeypatch):
    made = []

    def build(*told):
        body = HalfFrozen(*told)
        made.append((body, copy.deepcopy(body)))
        return body

    monkeypatch.setitem(BODIES, "half_frozen", build)
    trainer = HOME[name].trainer(body="half_frozen")
    trainer.until("iteration")
    trainer.until("update", 3)
    for body, first in made:
        assert differs(body.eye.state_dict(), first.eye.state_dict()) == ""
    assert any((body.rest.weight != first.rest.weight).any() for body, first in made)

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


# ---- bodies that cannot stand there

class Twice(nn.Module):
    "A layer, and a fault"

    def __init__(self, inputs, units, fault):
        super().__init__()
        self.layer = nn.Linear(inputs, units)
        self.fault = fault

    def forward(self, x):
        return self.fault(self.layer(x))


def twice(fault):
    return lambda inputs, hidden, generator: Twice(inputs, 8, fault)


def normed(inputs, hidden, generator):
    return nn.Sequential(nn.Linear(inputs, 8), nn.BatchNorm1d(8))


def thinned(inputs, hidden, generator):
    return nn.Sequential(nn.Linear(inputs, 8), nn.Dropout(.2))


def gated(inputs, hidden, generator):
    return nn.GRU(inputs, 8)


def function(inputs, hidden, generator):
    return twice


def spare(inputs, hidden, generator):
    "A layer, and one that is never asked"
    layers = nn.ModuleList([nn.Linear(inputs, 8), nn.Linear(inputs, 8)])
    layers.forward = lambda x: layers[0](x)
    return layers


def askew(inputs, hidden, generator):
    return nn.Linear(inputs + 1, 8)


FAULTS = [
    (normed, "take LayerNorm"),
    (thinned, "sac with its setting dropout"),
    (twice(lambda x: x - x.mean(0)), "depends on the rows beside it"),
    (twice(lambda x: x[:, 0]), r"8 rows become .*\(8,\); expected"),
    (twice(lambda x: x[:, None]), r"8 rows become .*\(8, 1, 8\)"),
    (twice(torch.Tensor.double), "float64"),
    (gated, "8 rows become tuple of 2"),
    (askew, "RuntimeError: mat1 and mat2"),
    (function, "it is a function; expected a torch.nn.Module"),
    (spare, "does not depend on 1.weight, 1.bias; leave out"),
    (twice(torch.Tensor.detach), "does not depend on layer.weight, layer.bias"),
    (nn.ReLU, "TypeError: "),
]


@pytest.mark.parametrize("build, told", FAULTS, ids=lambda one: getattr(one, "__name__", one))
@pytest.mark.parametrize("name", ["ppo", "sac", "r2d2", "crossq"])
def test_a_body_that_cannot_stand_there_is_told_of(name, build, told, monkeypatch):
    monkeypatch.setitem(BODIES, "mine", build)
    with pytest.raises(ConfigError, match=f"body 'mine' of .*{told}"):
        HOME[name].trainer(body="mine")


@pytest.mark.parametrize("name", ["ppo", "sac", "crossq"])
def test_layers_as_torch_makes_them_obey_the_seed(name, monkeypatch):
    monkeypatch.setitem(BODIES, "plain", lambda inputs, hidden, generator: nn.Linear(inputs, hidden[0]))
    here = torch.random.get_rng_state()
    nets = [HOME[name].trainer(body="plain", seed=seed).learner.nets.state_dict() for seed in (3, 3, 4)]
    assert torch.equal(here, torch.random.get_rng_state())      # and leave the stream of everybody as it was
    assert differs(*nets[:2]) == ""
    assert differs(*nets[1:]) != ""
    kinds = [weight for name, weight in nets[0].items() if weight.ndim == 2 and "target" not in name]
    assert not any(torch.equal(one, other) for one, other in combinations(kinds, 2))   # twins are none


def test_what_an_own_body_sees_in_crossq_its_critics_see_too(monkeypatch):
    monkeypatch.setitem(BODIES, "colours", Colours)
    monkeypatch.setattr(bodies, "UNENCODED", {"colours"})
    nets = Trainer(Pushing, "crossq", body="colours", num_envs=1, **small(get("crossq"))).learner.nets
    assert isinstance(nets.critic.encode, Colours)
    assert isinstance(nets.policy.net.encode, Colours)


# ---- moments of what is learned from again and again

AGAIN = [name for name in WITH if issubclass(get(name), Noticing)]


@pytest.mark.parametrize("name", AGAIN)
def test_moments_are_those_of_the_rows_that_were_learned_from(name):
    trainer = HOME[name].trainer(normalize_obs=True, num_envs=2)
    seen = []
    for event in trainer:
        if event.kind == "learn":
            batch = trainer.learner.last.batch
            rows = batch.obs[batch.valid] if "valid" in batch else batch.obs
            seen.append(rows.reshape(-1, rows.shape[-1]).double())
            if len(seen) == 12: break
    var, mean = torch.var_mean(torch.cat(seen), 0, correction=0)
    norms = [part[0] for part in trainer.learner.nets.modules() if isinstance(part, Normaliser)]
    assert len(norms) >= len({"q", "target", "policy", "critic", "value"} & set(trainer.learner.nets))
    for norm in norms:          # of every network, the slow ones too
        torch.testing.assert_close(norm.mean, mean)
        torch.testing.assert_close(norm.var, var)


@pytest.mark.parametrize("env", [Seeing, lambda **_: Sized(gym.spaces.Dict(a=gym.spaces.Discrete(2)))])
@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_what_has_no_moments_is_told_of(name, env):
    with pytest.raises(SpaceProblem, match="normalize_obs needs observations with numbers in a Box"):
        Trainer(env, name, normalize_obs=True, **small(get(name)))


class Sized(Seeing):
    "Numbers of very different sizes"

    def __init__(self, space=gym.spaces.Box(-np.inf, np.inf, (2,))):
        self.observation_space = space


class Parted(gym.Env):
    "Numbers of different sizes, in parts or all in a row"
    row = gym.spaces.Box(-np.inf, np.inf, (3,))
    parts = gym.spaces.Dict(far=gym.spaces.Box(-np.inf, np.inf, (2,)),
                            near=gym.spaces.Dict(high=gym.spaces.Box(-np.inf, np.inf, ())))

    def __init__(self, act, in_parts):
        self.action_space = act
        self.in_parts = in_parts
        self.observation_space = self.parts if in_parts else self.row

    def seen(self):
        drawn = (self.np_random.normal(size=3) * [1e3, 1, 1e-3] + 5).astype(np.float32)
        return dict(far=drawn[:2], near=dict(high=drawn[2])) if self.in_parts else drawn

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.seen(), {}

    def step(self, act):
        return self.seen(), float(np.mean(act)), bool(self.np_random.random() < .1), False, {}


NORMED = [name for name in WITH if "normalize_obs" in get(name).__dataclass_fields__
          and not (get(name).offline or get(name).imitates)]


def running(trainer):
    return [norm for norm in trainer.learner.nets.modules() if isinstance(norm, RunningNorm)]


@pytest.mark.parametrize("name", NORMED)
def test_parts_of_an_observation_are_normalised_as_in_a_row(name, tmp_path):
    kind = gym.spaces.Discrete(2) if HOME[name].env == "CartPole-v1" else gym.spaces.Box(-1, 1, (1,))
    ways = [partial(Parted, kind, in_parts) for in_parts in (True, False)]
    parted, row = (Trainer(way, name, normalize_obs=True, **small(get(name))) for way in ways)
    for trainer in (parted, row):
        trainer.until("update", 6)
    for mine, its in zip(parted.learner.nets.parameters(), row.learner.nets.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-2, atol=1e-3)  # sums in another order; long steps of streams
    far, high = running(parted)[:2]
    assert len(running(parted)) == 2 * len(running(row))
    torch.testing.assert_close(torch.cat([far.mean, high.mean.view(1)]), running(row)[0].mean)
    parted.save(tmp_path / "run.rlb")
    assert load(tmp_path / "run.rlb", env=ways[0]).digest() == parted.digest()


MIXED = gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (1,))])


@pytest.mark.parametrize("kind", [gym.spaces.Discrete(2), MIXED])
def test_choices_are_valued_by_normalised_numbers(kind, tmp_path):
    class Chosen(Sized):
        action_space = kind

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.array([1e4, 1e-4], np.float32), {}

        def step(self, act):
            sizes = np.array([1e4, 1e-4], np.float32)
            drawn = self.np_random.normal(size=2).astype(np.float32)
            return sizes * drawn, 1., self.np_random.random() < .1, False, {}

    trainer = Trainer(Chosen, "sac", normalize_obs=True, num_envs=1, **small(get("sac")))
    trainer.until("update", 5)
    trainer.save(tmp_path / "run.rlb")
    twin = load(tmp_path / "run.rlb", env=Chosen)
    for one in (trainer, twin):
        one.until("update", 3)
    assert differs(trainer.state(), twin.state()) == ""
