"""Every algorithm on tasks of a state or two whose values are known: each probe fails for one kind of mistake. Picked up from the registry."""
import numpy as np
import pytest
import torch

from rlbench.algos.algorithm import algorithms
from rlbench.envs.probes import PROBES
from rlbench.policies.distributions import SpaceProblem
from rlbench.training.trainer import Trainer

GAMMA = .9
FAST = dict(gamma=GAMMA, lr=.01, hidden=(32,), start=64, target_every=20, train_every=2, batch=32, capacity=2000, horizon=32, minibatches=2, epochs=4, normalise_adv=True,
            max_grad_norm=10., eps=.5, lam=.9)
STEPS = dict(qlearning=1500, dqn=3000, ppo=8_000)


def trainer_for(name, algo):
    "A trainer that suits the algorithm, in the tabular or continuous form of the probe where it needs one; None where there is no such form"
    cls = algorithms()[algo]
    settings = {k: v for k, v in FAST.items() if k in cls.__dataclass_fields__} | (dict(lr=.2) if algo == "qlearning" else {})
    for form in ({}, dict(tabular=True)) if PROBES[name]["actions"] != "continuous" else ({},):
        try:
            return Trainer(PROBES[name]["id"], algo, seed=1, env_settings=form, **settings)
        except SpaceProblem:
            continue
    return None


CASES = [(name, algo) for name in PROBES for algo in algorithms() if trainer_for(name, algo)]


@pytest.mark.parametrize("name,algo", CASES)
def test_probe(name, algo):
    trainer = trainer_for(name, algo).run(steps=STEPS.get(algo, 8_000))
    learner, raw = trainer.learner, trainer.env.single.unwrapped
    with torch.no_grad():
        got = learner.now.values(learner.nets, torch.from_numpy(raw.seen))
    if got is not None and PROBES[name]["actions"] != "continuous":         # (a spread-out policy is worth less than the best one)
        want = raw.known_q(GAMMA) if got.ndim == 2 else raw.known_value(GAMMA)
        np.testing.assert_allclose(got.numpy(), want, atol=.15 * max(1., np.abs(want).max()))
    if raw.best is not None:
        np.testing.assert_allclose(np.asarray(trainer.policy.act(raw.seen), float).reshape(-1), raw.best, atol=.3)


def test_all_probes_are_used():
    assert {name for name, _ in CASES} == set(PROBES) and {algo for _, algo in CASES} == set(algorithms())


def test_the_probe_of_truncation_catches_a_merged_flag(monkeypatch):
    "The same run with a time limit taken for an end stays far from 1/(1-gamma): the probe can fail"
    from rlbench.envs.env import EnvList
    right = EnvList.step
    def merged(self, act):
        step = right(self, act)
        return step._replace(term=step.term | step.trunc, trunc=np.zeros_like(step.trunc))
    monkeypatch.setattr(EnvList, "step", merged)
    trainer = trainer_for("Endless", "qlearning").run(steps=STEPS["qlearning"])
    assert trainer.learner.nets.q.q.max() < 7                               # where the right flags give 10
