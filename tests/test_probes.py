"""Every algorithm on tasks of a state or two whose values are known: each probe fails for one kind of mistake.

Algorithms are picked up from the registry.
"""
from contextlib import suppress

import numpy as np
import pytest
import torch

from rlbench.algos.algorithm import algorithms
from rlbench.core.settings import fields_of
from rlbench.core.spaces import SpaceProblem
from rlbench.envs.env import EnvList
from rlbench.envs.probes import PROBES
from rlbench.training.trainer import Trainer

GAMMA = .9
FAST = dict(
    gamma=GAMMA,
    lr=.01,
    critic_lr=.01,
    hidden=(32,),
    learning_starts=64,
    target_update_interval=20,
    train_freq=2,
    batch_size=32,
    buffer_size=2000,
    n_steps=32,
    n_epochs=4,
    max_grad_norm=10.,
    epsilon=.5,
    gae_lambda=.9,
    td_lambda=.9,
)
TABLE = 1500        # steps that are enough; most need fewer
STRETCH = 250       # steps between two looks
NETWORK = 8000
STEPS = dict(dqn=3000, sac=3000, ddpg=3000, td3=3000, tqc=3000, crossq=3000)
FEW = dict(gradient_steps=1, train_freq=5, n_step=3)     # updates, since they are dear
OWN = dict(
    c51=FEW,
    iqn=FEW | dict(quantiles=8, samples=4),
    qr_dqn=FEW | dict(quantiles=8),
    r2d2=FEW | dict(num_envs=1, batch_size=8, sequence_length=8, memory_size=16),
    rainbow=FEW,
    qlearning=dict(lr=.2),
    ppo=dict(batch_size=128),
    recurrent_ppo=dict(lr=.003, batch_size=128),
    sac=dict(tau=.05, ent_coef=.01),
    tqc=dict(tau=.05, ent_coef=.01),
    crossq=dict(ent_coef=.01),
    ddpg=dict(tau=.05),
    td3=dict(tau=.05),
)
TABLE_LR = .2       # a share of the error, where .01 is a step of Adam


def has_network(algo):
    return "hidden" in algorithms()[algo].__dataclass_fields__


def forms_of(name, algo):
    "Settings of the probe in which the algorithm may learn it, the likeliest first"
    if PROBES[name]["actions"] == "continuous":
        return [{}]
    plain = {}
    tabular = dict(tabular=True)
    return [plain, tabular] if has_network(algo) else [tabular, plain]


def trainer_for(name, algo):
    "A trainer in the first form of the probe that suits the algorithm; None where no form does"
    known = algorithms()[algo].__dataclass_fields__
    wanted = FAST | ({} if has_network(algo) else dict(lr=TABLE_LR)) | OWN.get(algo, {})
    settings = {setting: value for setting, value in wanted.items() if setting in known}
    for form in forms_of(name, algo):
        try:
            return Trainer(PROBES[name]["id"], algo, seed=1, env_settings=form, **settings)
        except SpaceProblem:
            continue
    return None


def looks_ahead(cls):
    "Bandits know no later: their discount cannot be this high"
    [gamma] = [setting for setting in fields_of(cls) if setting.name == "gamma"]
    return gamma.high >= GAMMA


def decides(name):
    return PROBES[name]["best"] is not None


def suits(name, algo):
    "Can the algorithm learn the probe? Where there is something to decide it must be one that decides"
    can_decide = algorithms()[algo].control or not decides(name)
    return can_decide and trainer_for(name, algo) is not None


ALGOS = [name for name, cls in algorithms().items()
         if looks_ahead(cls) and not (cls.exact or cls.offline or cls.imitates)]
CASES = [(name, algo) for name in PROBES for algo in ALGOS if suits(name, algo)]


def check(name, trainer):
    "AssertionError where what was learned is not the probe's answer"
    learner = trainer.learner
    raw = trainer.env.single.unwrapped
    with torch.no_grad():
        got = learner.algo.values(learner.nets, torch.from_numpy(raw.seen))

    # where actions are continuous a spread-out policy is worth less than the best one
    if got is not None and PROBES[name]["actions"] != "continuous":
        want = raw.known_q(GAMMA) if got.ndim == 2 else raw.known_value(GAMMA)
        np.testing.assert_allclose(got.numpy(), want, atol=.15 * max(1., np.abs(want).max()))
    if raw.best is not None:
        acts = np.asarray(trainer.policy.act(raw.seen), float)
        np.testing.assert_allclose(acts.reshape(-1), raw.best, atol=.3)


def run_until_right(name, trainer, most):
    "Train until what was learned is the probe's answer, and at most so many steps; AssertionError where it is not"
    while trainer.steps + STRETCH < most:
        trainer.run(steps=STRETCH)
        with suppress(AssertionError):
            return check(name, trainer)
    trainer.run(steps=most - trainer.steps)
    check(name, trainer)


@pytest.mark.parametrize("name,algo", CASES)
def test_probe(name, algo):
    run_until_right(name, trainer_for(name, algo), STEPS.get(algo, NETWORK if has_network(algo) else TABLE))


def test_all_probes_are_used():
    assert {name for name, _ in CASES} == set(PROBES)
    assert {algo for _, algo in CASES} == set(ALGOS)


def test_the_probe_of_truncation_catches_a_merged_flag(monkeypatch):
    "The same run with a time limit taken for an end stays far from 1/(1-gamma): the probe can fail"
    right = EnvList.step

    def merged(self, acts):
        [(name, step)] = right(self, acts).items()
        return {name: step._replace(term=step.term | step.trunc, trunc=np.zeros_like(step.trunc))}

    monkeypatch.setattr(EnvList, "step", merged)
    trainer = trainer_for("Endless", "qlearning").run(steps=TABLE)
    assert trainer.learner.nets.q.values.max() < 7         # where the right flags give 10
