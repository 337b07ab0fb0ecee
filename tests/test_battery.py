"What must hold for every registered algorithm, wherever it can act; a new one is picked up by its registration"
import copy
import math

import numpy as np
import pytest
import torch

from rlbench.algos.algorithm import algorithms
from rlbench.core.batch import Batch, columns
from rlbench.core.spaces import AGENT, SpaceProblem
from rlbench.core.state import same, snapshot
from rlbench.core.words import NAMES
from rlbench.envs.probes import PROBES
from rlbench.training.actor import NoiseStream, to_tensors
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer, load
from tests.cases import CASES, check_there_and_back, differs, is_box, trail
from tests.conftest import small

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def test_every_algorithm_has_an_environment_here():
    assert {case.algo for case in CASES} == set(algorithms())


def test_no_algorithm_takes_what_it_cannot_do():
    homes = {(case.algo, case.env) for case in CASES}
    assert ("dqn", "Pendulum-v1") not in homes
    assert ("qlearning", "CartPole-v1") not in homes
    assert ("ppo", "Pendulum-v1") in homes
    assert {case.algo for case in CASES if is_box(case)} >= {"ppo", "sac"}


# ---- what an event holds

def unknown_names(*trees):
    "Columns that no glossary explains"
    return {name for tree in trees for name in tree} - set(NAMES)


def not_finite(tree):
    "Columns of numbers that are nowhere near"
    found = [(name, column) for name, column in columns(tree) if column.dtype.kind == "f"]
    return [name for name, column in found if not np.isfinite(column).all()]


@every_case
def test_losses_are_finite_and_every_column_is_in_the_glossary(case):
    trainer = case.begun(num_envs=2)
    kinds = set()
    for _, event in zip(range(60), trainer):
        kinds.add(event.kind)
        assert unknown_names(event.data, *(event.rows or {}).values()) == set()
        assert not_finite(event.data) == []
        if event.kind == "learn":
            assert unknown_names(trainer.learner.last.batch) == set()
            assert all(math.isfinite(loss) for loss, _ in trainer.learner.last.groups.values())
            assert all(math.isfinite(norm) for _, norm in trainer.learner.last.groups.values())
    if case.cls.streaming:
        assert "learn" in kinds and kinds <= {"learn", "collect"}     # collect: where all environments begin anew
        return
    assert kinds == {"collect", "process", "learn"} or case.cls.exact and kinds <= {"collect", "process", "learn"}


def probe_trainer(name, algo):
    "A trainer on a probe, seen as a vector or as a number; None where the algorithm takes neither"
    cls = algorithms()[algo]
    forms = [{}] if PROBES[name]["actions"] == "continuous" else [{}, dict(tabular=True)]
    for form in forms:
        try:
            return Trainer(PROBES[name]["id"], algo, env_settings=form, **small(cls, num_envs=2))
        except SpaceProblem:
            continue
    return None


WITH_STEPS = [algo for algo, cls in algorithms().items() if not (cls.offline or cls.imitates or cls.exact)]


@pytest.mark.parametrize("algo", WITH_STEPS)
def test_probes_are_learned_from(algo):
    tried = 0
    for name in PROBES:
        trainer = probe_trainer(name, algo)
        if trainer is None: continue
        trainer.until("update", 3)
        tried += 1
        assert not_finite(trainer.learner.last.parts) == [], name
    assert tried or {case.env for case in CASES if case.algo == algo} <= {"rlbench/Bandit-v0", "rlbench/BairdStar-v0"}


# ---- back, and on again

@every_case
def test_back_to_any_event_and_on_to_any_other(case):
    check_there_and_back(case.begun(), events=16, starts=13, farthest=5)


@every_case
def test_through_a_file_at_any_event(case, tmp_path):
    trainer = case.begun()
    for pause in (0, 1, 4):
        for _ in range(pause):
            trainer.advance()
        trainer.save(tmp_path / "run.rlb")
        twin = load(tmp_path / "run.rlb")
        assert differs(twin.state(), trainer.state()) == ""
        there = trail(twin, 6)[-1]
        for _ in range(6):
            trainer.advance()
        assert differs(trainer.state(), there) == ""


@every_case
def test_a_fork_stands_at_the_same_place_and_goes_its_own_way(case):
    trainer = case.begun()
    twin = trainer.fork()
    before = trainer.snapshot()
    trail(twin, 20)
    assert same(trainer.state(), before)
    trail(trainer, 20)
    assert differs(trainer.state()["learners"], twin.state()["learners"]) == ""


# ---- the same by hand

def by_hand(trainer, rounds):
    "The loop of the textbooks: act, step, remember; where there is something to learn from, learn"
    actor = trainer.actors[AGENT]
    learner = trainer.learner
    obs = trainer.obs[AGENT]
    for _ in range(rounds):
        while not learner.ready and learner.due < math.inf:
            act, extra = actor.act(obs)
            step = trainer.env.step({AGENT: act})[AGENT]
            paid = dict(rew=step.rew, term=step.term, trunc=step.trunc, next_obs=step.next_obs)
            learner.add(Batch(obs=obs, act=act, **paid, **extra), step.valid)
            actor.begin(step.first)
            obs = step.obs
        if learner.ready:
            learner.process()
            while learner.todo:
                learner.learn()


@every_case
def test_a_loop_by_hand_ends_with_the_same_weights(case):
    mine = case.trainer()
    by_hand(mine, rounds=4)
    theirs = case.trainer()
    while theirs.steps < mine.steps or theirs.updates < mine.updates:
        theirs.advance()
    assert mine.updates == theirs.updates > 0
    assert differs(mine.state()["learners"], theirs.state()["learners"]) == ""


# ---- seeds

@every_case
def test_equal_seeds_equal_runs_and_other_seeds_other_runs(case):
    runs = [case.trainer(seed=seed).run(steps=40) for seed in (5, 5, 6)]
    one, two, three = (run.state() for run in runs)
    assert differs(one, two) == ""
    if case.cls.exact: return               # a plan has nothing random
    learners = [tree["learners"][AGENT] for tree in (one, three)]
    nets, others = ([learner["actor"]["nets"], learner["memory"]["rows"]] for learner in learners)
    assert not same(nets, others) or case.cls.offline


# ---- methods are pure

def looked_at(algo, nets, batch):
    "Ask for everything that a viewer may ask for"
    algo.values(nets, batch.obs)
    algo.probs(nets, batch.obs)
    algo.td_error(nets, batch)


@every_case
def test_methods_change_nothing(case):
    trainer = case.begun(num_envs=2)
    trainer.streaming = []                  # what is ready is not learned from at once
    learner = trainer.learner
    if learner.due < math.inf:
        trainer.until(lambda event: learner.ready and not learner.todo)
    for part in learner.own.values():       # rows that are new to priorities get theirs when it is first asked for
        if hasattr(part, "catch_up"): part.catch_up()
    before = trainer.snapshot()
    settings = copy.deepcopy(vars(learner.algo))

    def unchanged(what):
        assert differs(trainer.state(), before) == "", f"{what} changed the run"
        assert vars(learner.algo) == settings, f"{what} changed the algorithm"

    algo = learner.algo
    nets = learner.nets
    rng = np.random.default_rng(0)
    noise = NoiseStream(rng, "cpu")
    obs = to_tensors(trainer.obs[AGENT], "cpu")
    fresh = learner.fresh.copy()
    with torch.no_grad():
        recipe = algo.noise(learner.actor.spec, nets)
        for chance in (noise(recipe, len(fresh)), None):
            algo.act(nets, obs, chance, learner.actor.carry)
        unchanged("act")
        algo.due(learner.memory, learner.own, fresh)
        unchanged("due")
        drawn = algo.draw(learner.memory, learner.own, fresh, rng)
        unchanged("draw")
        rows = to_tensors(learner.memory.gather(drawn.index) | drawn, "cpu")
        shown = snapshot(rows)
        data, todo = algo.targets(nets, rows, noise)
        unchanged("targets")
        assert differs(snapshot(rows), shown) == "", "targets changed the rows it was given"
    whole = [index if index is None else to_tensors(index, "cpu") for index in todo]
    for index in whole[:3]:
        batch = data if index is None else data[index]
        shown = snapshot(batch)
        if algo.update is None:
            list(algo.losses(nets, batch))
            unchanged("losses")
        with torch.no_grad():
            looked_at(algo, nets, batch)
        unchanged("values, probs or td_error")
        assert differs(snapshot(batch), shown) == "", "losses changed the batch"


@every_case
def test_evaluation_never_changes_training(case):
    one = case.begun()
    two = case.begun()
    trail(one, 10)
    evaluate(two, episodes=2, num_envs=2)
    trail(two, 10)
    evaluate(two, episodes=1, num_envs=1)
    assert differs(one.state(), two.state()) == ""


# ---- switches

@every_case
def test_switches(case):
    trainer = case.begun()
    trainer.learning = False
    before = snapshot(trainer.learner.nets.state_dict())
    assert {event.kind for _, event in zip(range(30), trainer)} == {"collect"}
    assert same(trainer.learner.nets.state_dict(), before)
    trainer.learning = True
    trainer.collecting = False
    steps = trainer.steps
    assert {event.kind for event in trainer} <= {"process", "learn"}
    assert trainer.steps == steps


@every_case
def test_more_updates_from_what_is_stored(case):
    trainer = case.begun()
    while trainer.learner.todo:
        trainer.advance()
    trainer.collecting = False
    trainer.learner.owe(3)
    updates = trainer.updates
    steps = trainer.steps
    kinds = [event.kind for event in trainer]
    assert "learn" in kinds
    assert trainer.updates >= updates + 3 and trainer.steps == steps


@every_case
def test_acting_on_one_or_on_a_batch_agrees(case):
    trainer = case.begun(num_envs=3)
    obs = trainer.obs[AGENT]
    batch = trainer.policy.act(obs)
    one = np.stack([trainer.policy.act(obs[i]) for i in range(len(obs))])
    np.testing.assert_allclose(batch, one, rtol=1e-4, atol=1e-5)
