"The doctor looks at every algorithm, changes nothing, names what is wrong, and says nothing where nothing is"
import warnings

import gymnasium as gym
import numpy as np
import pytest

import rlbench
from benchmarks.doctor_cases import FAULTS, HEALTHY
from rlbench import Trainer, diagnose
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.training.doctor import CHECKS, Diagnosis
from rlbench.training.findings import Finding
from tests.cases import CASES

QUICK = ["reward: always 0", "observation: one dimension large", "action: ignored, Box", "limit: reported as an end",
         "ent_coef: 5", "epsilon: 0", "learning_starts: never", "sign of the advantage", "counts past the end",
         "loss cut off"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_algorithm_can_be_looked_at_and_stays_where_it_is(case):
    run = case.begun()
    run.run(30)
    before = run.snapshot()
    found = diagnose(run, steps=120, seconds=.5)
    assert same(run.snapshot(), before)
    assert isinstance(repr(found), str) and isinstance(found._repr_html_(), str)
    for finding in found:
        assert 0 <= finding.weight <= 1
        assert set(finding.changes) <= set(vars(run.learner.settings))
    run.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_named(name):
    case = FAULTS[name]
    assert set(diagnose(case.make()).names[:2]) & set(case.named)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["ppo, CartPole, early", "qlearning, CliffWalk"])
def test_nothing_is_found_where_nothing_is_wrong(name):
    assert diagnose(HEALTHY[name].make()) == []


def test_names_are_those_of_the_checks():
    assert len(CHECKS) >= 20
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS)
    named = {name for case in FAULTS.values() for name in case.named}
    assert named <= {check.__name__ for check in CHECKS}


def test_several_behaviours_are_asked_for_by_name():
    run = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo")).run(200)
    with pytest.raises(ConfigError, match="which behaviour"):
        diagnose(run)
    assert isinstance(diagnose(run, who="runner", steps=100), Diagnosis)


def test_advice_is_tried_in_two_runs_and_this_one_stays():
    run = Trainer("CartPole-v1", "ppo", lr=.3).run(3000)
    diagnosis = diagnose(run, steps=300)
    before = run.snapshot()
    tried = diagnosis.try_it(steps=3000, afresh=True)
    assert same(run.snapshot(), before)
    assert tried.changes == dict(lr=1e-3) and tried.changed > tried.as_it_was


def test_what_no_setting_mends_is_said():
    run = Trainer("CartPole-v1", "ppo").run(300)
    finding = Finding("it", "seen", "why", "look there", 1., {})
    with pytest.raises(ConfigError, match="no setting mends it: look there"):
        Diagnosis(rlbench.training.evidence.examine(run, steps=50), [finding]).try_it()


def test_slow_environments_are_looked_at_for_a_while_only():
    class Slow(gym.Wrapper):
        def step(self, action):
            np.linalg.svd(np.random.default_rng(0).random((200, 200)))
            return self.env.step(action)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Trainer(lambda: Slow(gym.make("CartPole-v1")), "ppo", n_steps=16, num_envs=1, check_env=False).run(32)
    found = diagnose(run, steps=10_000, seconds=.3)
    assert 0 < len(found.evidence.exploring.rew) < 10_000
