"One setting says what stands before the last layer, in every algorithm with networks; others do not have it"
import pickle

import numpy as np
import pytest
from torch import nn

from rlbench.algos.algorithm import algorithms
from rlbench.core.spaces import AGENT
from rlbench.core.words import ConfigError
from rlbench.policies.bodies import BODIES
from rlbench.policies.networks import linear
from rlbench.training.trainer import load
from tests.cases import CASES, differs

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
