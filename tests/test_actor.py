"An actor is one thing: it can be sent away, it can play without learning, and it can learn beside others"
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from rlbench.core.spaces import AGENT
from rlbench.core.state import same, snapshot
from rlbench.core.words import ConfigError
from rlbench.training.actor import Actor
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer, load
from tests.cases import CASES, check_there_and_back, differs, trail

every_case = pytest.mark.parametrize("case", CASES, ids=str)
SMALL = dict(hidden=(8,), batch_size=8, log_every=50)


def acted(actor, observations):
    "What an actor does with a list of observations, with chance and without"
    chosen = []
    for obs in observations:
        chosen.append(actor.act(obs))
        chosen.append(actor.act(obs, greedy=True))
    return [dict(act=act, **extra) for act, extra in chosen]


def seen_by(trainer, steps=5):
    "The next observations of a run"
    found = []
    trainer.learning = False
    for _ in range(steps):
        found.append(snapshot(trainer.obs[AGENT]))
        trainer.advance()
    return found


# ---- pickled

@every_case
def test_a_pickled_actor_is_the_same_and_apart(case):
    trainer = case.begun(num_envs=2)
    seen = seen_by(trainer)
    actor = trainer.actors[AGENT]
    twin = pickle.loads(pickle.dumps(actor))
    before = snapshot(trainer.state())
    theirs = acted(twin, seen)
    assert differs(snapshot(trainer.state()), before) == "", "the twin's acts changed the run"
    assert differs(acted(actor, seen), theirs) == ""


ELSEWHERE = """
import pickle
import sys
import torch
from tests.test_actor import acted
torch.set_num_threads(1)
with open(sys.argv[1], "rb") as file:
    sent = pickle.load(file)
with open(sys.argv[2], "wb") as file:
    pickle.dump([acted(actor, seen) for actor, seen in sent], file)
"""


@pytest.fixture(scope="module")
def from_elsewhere(tmp_path_factory):
    "[(what each actor does here, what it does in a new process)]"
    folder = tmp_path_factory.mktemp("actors")
    runs = [case.begun(num_envs=2) for case in CASES]
    sent = [(run.actors[AGENT], seen) for run, seen in ((run, seen_by(run)) for run in runs)]
    (folder / "sent").write_bytes(pickle.dumps(sent))
    subprocess.run([sys.executable, "-c", ELSEWHERE, folder / "sent", folder / "back"], check=True, timeout=60)
    back = pickle.loads((folder / "back").read_bytes())
    return [(acted(actor, seen), theirs) for (actor, seen), theirs in zip(sent, back)]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: str(CASES[number]))
def test_in_another_process_it_acts_the_same_to_the_bit(number, from_elsewhere):
    here, there = from_elsewhere[number]
    assert differs(here, there) == ""


@pytest.mark.parametrize("case", [case for case in CASES if case.cls.recurrent], ids=str)
def test_what_is_carried_is_sent_along(case):
    trainer = case.begun(num_envs=2)
    actor = trainer.actors[AGENT]
    assert actor.carry is not None
    twin = pickle.loads(pickle.dumps(actor))
    assert same(twin.carry.numpy(), actor.carry.numpy())


@every_case
def test_twins_have_the_same_networks_and_other_chances(case):
    trainer = case.begun(num_envs=2)
    actor = trainer.actors[AGENT]
    twin = actor.twin(np.random.default_rng(5))
    assert twin.nets is actor.nets and twin.carry is None
    before = trainer.streams.state()
    acted(twin, [trainer.obs[AGENT]])
    assert same(trainer.streams.state(), before)


# ---- actors that play and do not learn

CHASE = dict(chaser="dqn", runner="ppo")


def chase(cast=None, **settings):
    "Two behaviours on a circle, short episodes"
    chosen = dict(learning_starts=16, n_steps=8, n_epochs=2) | SMALL | settings
    cast = cast or CHASE
    names = {player if isinstance(player, str) else "" for player in cast.values()}
    if "dqn" not in names: del chosen["learning_starts"]
    if "ppo" not in names: del chosen["n_steps"], chosen["n_epochs"]
    return Trainer("rlbench/Chase-v0", cast, env_settings=dict(length=12), num_envs=2, **chosen)


def weights_of(actor):
    return snapshot(actor.nets.state_dict())


@pytest.mark.parametrize("still", CHASE)
def test_one_learns_and_the_other_only_plays(still):
    trained = chase().run(steps=60).actors[still]
    [learning] = set(CHASE) - {still}
    trainer = chase({still: trained, learning: CHASE[learning]})
    before = {name: weights_of(actor) for name, actor in trainer.actors.items()}
    trainer.until("update", 6)
    assert list(trainer.learners) == [learning]
    assert same(weights_of(trainer.actors[still]), before[still])
    assert same(weights_of(trained), before[still])
    assert not same(weights_of(trainer.actors[learning]), before[learning])
    assert {event.who for _, event in zip(range(80), trainer) if event.kind != "collect"} == {learning}


def test_pennies_against_one_who_never_changes():
    teacher = Trainer("rlbench/Pennies-v0", dict(even="qlearning", odd="qlearning"), seed=1).run(steps=50)
    odd = teacher.actors["odd"]
    trainer = Trainer("rlbench/Pennies-v0", dict(even="qlearning", odd=odd), seed=2, epsilon=.1)
    before = weights_of(odd)
    trainer.run(steps=200)
    assert same(weights_of(trainer.actors["odd"]), before)
    assert trainer.learners["even"].updates == 200
    assert trainer.env.episodes["even"].total == trainer.env.episodes["odd"].total == 20


def test_a_run_with_a_player_comes_back_from_a_file(tmp_path):
    player = chase().run(steps=60).actors["chaser"]
    trainer = chase(dict(chaser=player, runner="ppo"))
    trainer.until("update", 3)
    trainer.save(tmp_path / "run.rlb")
    twin = load(tmp_path / "run.rlb")
    assert isinstance(twin.cast["chaser"], Actor) and list(twin.learners) == ["runner"]
    assert differs(trail(twin, 30)[-1], trail(trainer, 30)[-1]) == ""


def test_everybody_may_only_play():
    actors = chase().run(steps=60).actors
    trainer = Trainer("rlbench/Chase-v0", dict(actors), num_envs=2)
    trainer.run(steps=40)
    assert trainer.learners == {} and trainer.updates == 0
    with pytest.raises(ValueError, match="nobody has settled"):
        trainer.until("update")


def test_a_behaviour_that_nobody_plays_is_named():
    with pytest.raises(ConfigError, match="nobody plays the behaviour 'runner'"):
        Trainer("rlbench/Chase-v0", dict(chaser="dqn"))
    with pytest.raises(ConfigError, match="did you mean 'chaser'"):
        Trainer("rlbench/Chase-v0", dict(chasr="dqn", runner="ppo"))


# ---- two who learn

def test_two_behaviours_with_different_algorithms_train_in_one_environment():
    trainer = chase()
    before = {name: weights_of(actor) for name, actor in trainer.actors.items()}
    trainer.run(steps=120)
    for name, actor in trainer.actors.items():
        assert not same(weights_of(actor), before[name])
        assert trainer.learners[name].updates > 0
    assert {learner.settings.name for learner in trainer.learners.values()} == {"dqn", "ppo"}
    row = trainer.metrics.rows[-1]
    assert {"chaser/mean_return", "runner/mean_return", "chaser/q", "runner/ratio"} <= set(row)


def test_back_to_any_event_with_two_who_learn():
    trainer = chase()
    trainer.until(lambda event: event.who == "runner" and event.kind == "learn")
    check_there_and_back(trainer, events=30, starts=25, farthest=7)


def test_through_a_file_with_two_who_learn(tmp_path):
    trainer = chase()
    trainer.until(lambda event: event.who == "runner" and event.kind == "learn")
    for _ in range(4):
        trail(trainer, 3)
        trainer.save(tmp_path / "run.rlb")
        twin = load(tmp_path / "run.rlb")
        there = trail(twin, 12)[-1]
        assert differs(trail(trainer, 12)[-1], there) == ""


def test_one_does_not_depend_on_how_the_other_is_named_or_set():
    "Every behaviour draws from streams of its own"
    one = chase()
    two = chase(**{"runner.n_epochs": 1})
    for trainer in (one, two):
        trainer.learning = False
        trail(trainer, 8)
    assert same(one.obs, two.obs)


def test_evaluation_of_two_is_one_for_each():
    found = evaluate(chase().run(steps=60), episodes=3, num_envs=3)
    assert set(found) == set(CHASE)
    assert all(len(one.returns) == 3 for one in found.values())
    assert np.allclose(found["chaser"].returns, -found["runner"].returns, atol=1e-4)


def test_a_policy_acts_inside_the_box_and_an_actor_as_it_likes():
    trainer = Trainer("Pendulum-v1", "ppo", hidden=(8,))
    with torch.no_grad():
        trainer.learner.nets.policy.net.layers[-1].bias.fill_(9.)
    obs = np.zeros((4, 3), np.float32)
    assert (trainer.policy.act(obs, greedy=False) <= 2).all() and trainer.policy.act(obs[0]) == 2
    assert (trainer.actors["agent"].act(obs, greedy=True)[0] > 2).all()       # what is stored is what was chosen
