"""A run on disk: broken off and resumed it is the one that never stopped; nothing is overwritten; watchers read."""
import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest

import rlbench
from rlbench.algos.algorithm import algorithms, get
from rlbench.algos.bc import BC
from rlbench.core.state import FileProblem, read_tree, same
from rlbench.core.words import ConfigError
from rlbench.training.callbacks import HOOKS, Callbacks, read_only
from rlbench.training.checkpoints import RunProblem, find_run, newest
from rlbench.training.learner import NotFinite
from rlbench.training.runs import RunSettings, finite, save_newest
from rlbench.training.setup import TrainerSettings
from rlbench.training.train import train, updates_owed
from rlbench.training.trainer import Trainer, load
from tests.cases import demonstrations
from tests.conftest import small

OFTEN = dict(checkpoint_every=250, eval_every=500, eval_episodes=2)
TINY = dict(learning_starts=50, n_steps=32, hidden=(16,))
CHASE = dict(env="rlbench/Chase-v0", algo=dict(chaser="dqn", runner="ppo"))


def run(path, algo="ppo", env="CartPole-v1", **more):
    "A short run in the folder `path`"
    usual = dict(progress=False, steps=1500, num_envs=2, log_every=50, **small(get(algo)), **OFTEN)
    return train(env, algo, run_id=path.name, folder=path.parent, **usual | more)


def chase(path, **more):
    "A short run of two behaviours"
    usual = dict(progress=False, steps=600, num_envs=2, log_every=100, **TINY, **OFTEN)
    return train(**CHASE, run_id=path.name, folder=path.parent, **usual | more)


def clone(path, memory=None, **more):
    "A short run of somebody who learns from given data"
    usual = dict(progress=False, hidden=(16,), batch_size=16, log_every=10)
    often = dict(checkpoint_every=20, eval_every=30, eval_episodes=2)
    return train("CartPole-v1", "bc", run_id=path.name, folder=path.parent, memory=memory, **usual | often | more)


@pytest.fixture(scope="module")
def seen():
    "What another run saw"
    return Trainer("CartPole-v1", "dqn", num_envs=1, hidden=(8,)).run(steps=120).learner.memory


def rows(path):
    "Metrics on disk without the wall clock"
    lines = (path / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert all(row.pop("time") >= 0 for row in found)
    return found


def read(path, name):
    return json.loads((path / name).read_text())


def checkpoint(path):
    return read_tree(path, "checkpoint")


def final(path):
    return checkpoint(find_run(path))


def files(path):
    "Every file and what is in it"
    return {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}


def weights(trainer, who="agent"):
    return list(trainer.learners[who].nets.parameters())


# ---- nothing is lost

class Photograph:
    "Copies a run's folder at an event: what a process that is killed there leaves behind"

    def __init__(self, at, path, copy):
        self.left = at
        self.path = path
        self.copy = copy

    def __call__(self, trainer, event):
        self.left -= 1
        if self.left == 0: shutil.copytree(self.path, self.copy)


@pytest.mark.parametrize("algo,events", [("ppo", 350), ("dqn", 600)])
def test_killed_and_resumed_is_never_killed(algo, events, tmp_path):
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    run(whole, algo, steps=600, callbacks=[Photograph(events, whole, killed)])
    assert read(killed, "status.json")["state"] == "running"
    at = len(rows(killed))
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"steps": 9')                         # as if it fell in the middle of a line
    run(killed, algo, resume=True, steps=600)
    assert same(final(whole), final(killed))
    assert rows(whole) == rows(killed) and 0 < at < len(rows(whole))
    heads = [(path / "metrics.csv").read_text().splitlines()[0] for path in (whole, killed)]
    assert heads[0] == heads[1]
    assert same(checkpoint(whole / "best.rlb"), checkpoint(killed / "best.rlb"))


def test_killed_before_the_first_checkpoint_begins_again(tmp_path):
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    run(whole, steps=600, callbacks=[Photograph(3, whole, killed)])
    run(killed, resume=True, steps=600)
    assert same(final(whole), final(killed)) and rows(whole) == rows(killed)


class CtrlC:
    "Presses Ctrl-C at an event"

    def __init__(self, at):
        self.at = at
        self.seen = 0

    def __call__(self, trainer, event):
        self.seen += 1
        if self.seen == self.at: signal.raise_signal(signal.SIGINT)


def test_interrupted_at_any_event_and_resumed(tmp_path):
    run(tmp_path / "whole")
    before = signal.getsignal(signal.SIGINT)
    ctrl_c = CtrlC(333)
    part = run(tmp_path / "part", callbacks=[ctrl_c])
    assert part.interrupted and part.steps < 1500
    assert ctrl_c.seen == 333                             # the present event was finished and no other begun
    assert read(tmp_path / "part", "status.json")["state"] == "interrupted"
    assert same(final(tmp_path / "part")["state"], part.state())
    assert signal.getsignal(signal.SIGINT) is before
    done = run(tmp_path / "part", resume=True)
    assert not done.interrupted and same(final(tmp_path / "whole"), final(tmp_path / "part"))
    assert rows(tmp_path / "whole") == rows(tmp_path / "part")


def test_resume_keeps_the_settings_of_the_run(tmp_path):
    run(tmp_path / "a", steps=500, gamma=.9, num_envs=3, keep_checkpoints=2)
    again = train("CartPole-v1", "ppo", run_id="a", folder=tmp_path, resume=True, steps=1000, progress=False)
    kept = read(tmp_path / "a", "config.json")["settings"]
    assert again.learner.settings.gamma == .9 and again.env.num_envs == 3 and again.steps >= 1000
    assert kept["agent"]["gamma"] == dict(value=.9, source="python") and kept["trainer"]["num_envs"]["value"] == 3
    assert kept["run"]["checkpoint_every"]["value"] == 250 and kept["run"]["steps"]["value"] == 1000
    assert len(list((tmp_path / "a" / "checkpoints").iterdir())) == 2


def test_resume_with_changes(tmp_path):
    run(tmp_path / "a", steps=300)
    again = run(tmp_path / "a", steps=400, resume=True, gamma=.5)
    assert again.learner.settings.gamma == .5
    assert read(tmp_path / "a", "config.json")["settings"]["agent"]["gamma"]["value"] == .5
    with pytest.raises(ConfigError, match="num_envs shapes the run from its start"):
        run(tmp_path / "a", resume=True, num_envs=5)
    with pytest.raises(ConfigError, match="did you mean 'gamma'"):
        run(tmp_path / "a", resume=True, gama=.5)
    (tmp_path / "b.toml").write_text("[default]\ngamma = 0.25\n")
    again = run(tmp_path / "a", steps=400, resume=True, config=tmp_path / "b.toml")
    assert again.learner.settings.gamma == .25


# ---- nothing is overwritten

def test_refusals(tmp_path):
    run(tmp_path / "a", steps=300)
    before = files(tmp_path / "a")
    refused = [
        ("exists already", {}),
        ("give one of them", dict(resume=True, force=True)),
        ("give one of them", dict(resume=True, initialize_from="a")),
        ("leave memory out", dict(resume=True, memory="data.rlb")),
        ("made with algo 'ppo', not 'dqn'", dict(resume=True, algo="dqn")),
        ("made with env 'CartPole-v1', not 'Acrobot-v1'", dict(resume=True, env="Acrobot-v1")),
        ("no run 'none'", dict(force=True, initialize_from="none")),
    ]
    for wanted, more in refused:
        with pytest.raises(RunProblem, match=wanted):
            run(tmp_path / "a", **more)
    with pytest.raises(RunProblem, match="counts steps; say how many"):
        train("CartPole-v1", "ppo", run_id="a", folder=tmp_path, resume=True, updates=3)
    with pytest.raises(RunProblem, match="no run to resume"):
        run(tmp_path / "b", resume=True)
    with pytest.raises(RunProblem, match="needs the run's id"):
        train("CartPole-v1", "ppo", resume=True)
    with pytest.raises(RunProblem, match="with which weights"):
        train("CartPole-v1", "ppo", inference=True)
    with pytest.raises(RunProblem, match="run_id"):
        train("CartPole-v1", "ppo", run_id="../up", folder=tmp_path)
    assert before == files(tmp_path / "a") and not (tmp_path / "b").exists()


def test_force_leaves_nothing_of_the_old_run(tmp_path):
    run(tmp_path / "a", steps=1000)
    run(tmp_path / "a", steps=300, force=True, eval_every=0)
    steps = [row["steps"] for row in rows(tmp_path / "a")]
    assert steps == sorted(steps) and steps[-1] <= 301
    assert all(int(path.stem) <= 301 for path in (tmp_path / "a" / "checkpoints").iterdir())
    assert read(tmp_path / "a", "status.json")["steps"] in (300, 301)


@pytest.mark.parametrize("env", ["os:abort", "mine.py:Maze"])
def test_a_file_does_not_choose_code_to_run(tmp_path, env):
    (tmp_path / "mine.py").write_text("import gymnasium\nraise SystemExit")
    file = tmp_path / "run.toml"
    file.write_text(f'env = "{env}"\nalgo = "ppo"\n')
    with pytest.raises(ConfigError, match="would run code; say it yourself"):
        train(config=file)


def names(path):
    "All that lies in a folder"
    return sorted(str(one.relative_to(path)) for one in path.rglob("*"))


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_is_no_run_is_left_alone(tmp_path, force):
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (project / "checkpoints").mkdir()
    for name in ("package.json", "config.json", "best.rlb", "sub/a.rlb", "checkpoints/000000000007.rlb"):
        (project / name).write_text("{}")
    before = names(project)
    with pytest.raises(RunProblem, match="is not a run: it holds best.rlb, checkpoints, config.json, …"):
        run(project, force=force)
    assert names(project) == before


def test_only_files_of_a_run_are_removed(tmp_path):
    run(tmp_path / "a", steps=300)
    others = ("package.json", "mine.rlb", "checkpoints/kept.rlb", "sub/000000000100.rlb")
    (tmp_path / "a" / "sub").mkdir()
    for name in others:
        (tmp_path / "a" / name).write_text("mine")
    run(tmp_path / "a", steps=200, force=True)
    assert {(tmp_path / "a" / name).read_text() for name in others} == {"mine"}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["checkpoints", "tensorboard"])
def test_a_link_out_of_the_folder_is_not_followed(tmp_path, name, force):
    run(tmp_path / "other", steps=300)
    run(tmp_path / "a", steps=300)
    if (tmp_path / "a" / name).exists(): shutil.rmtree(tmp_path / "a" / name)
    (tmp_path / "a" / name).symlink_to(tmp_path / "other" / "checkpoints")
    before = files(tmp_path / "other")
    with pytest.raises(RunProblem, match=f"{name} is a link to somewhere else"):
        run(tmp_path / "a", steps=200, force=force)
    assert files(tmp_path / "other") == before


def test_without_its_configuration_a_run_is_not_begun_anew(tmp_path):
    run(tmp_path / "a", steps=600)
    (tmp_path / "a" / "config.json").unlink()
    before = files(tmp_path / "a")
    with pytest.raises(RunProblem, match="exists already"):
        run(tmp_path / "a")
    assert files(tmp_path / "a") == before


def test_no_refusal_advises_to_overwrite(tmp_path):
    run(tmp_path / "a", steps=300)
    with pytest.raises(RunProblem) as found:
        run(tmp_path / "a")
    assert "force" not in str(found.value)


@pytest.mark.parametrize("how", [dict(), dict(resume=True, steps=3000), dict(force=True)])
def test_one_run_at_a_time(tmp_path, how):
    path = tmp_path / "a"
    if "resume" in how: run(path, steps=300)

    def second(trainer, event):
        "Tries to come in while the first one runs"
        if trainer.steps < 400: return
        with pytest.raises(RunProblem, match="is in use|exists already"):
            run(path, **how)
        raise StopIteration

    with pytest.raises(StopIteration):
        run(path, callbacks=[second], **how)
    run(path, steps=700, resume=True)                     # it is free again


LONG = """
import sys
from rlbench.training.train import train, updates_owed
train("CartPole-v1", "ppo", run_id="a", folder=sys.argv[1], steps=10**8, eval_every=0, progress=False)
"""


def test_whoever_is_told_to_end_writes_a_checkpoint(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", LONG, str(tmp_path)])
    status = tmp_path / "a" / "status.json"
    deadline = time.monotonic() + 60
    while not status.exists() or json.loads(status.read_text())["steps"] == 0:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(.05)
    with pytest.raises(RunProblem, match="is in use"):
        train("CartPole-v1", "ppo", run_id="a", folder=tmp_path, resume=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    told = json.loads(status.read_text())
    assert told["state"] == "interrupted" and load(newest(tmp_path / "a")).steps == told["steps"]


def test_a_mistake_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    mistakes = [
        ("gama", dict(gama=1)),
        ("gamma = 7", dict(gamma=7)),
        ("CartPool", dict(env="CartPool-v1")),
        ("Discrete", dict(algo="dqn", env="Pendulum-v1")),
        (r"rlbench\[tensorboard\]", dict(tensorboard=True)),
        ("no run", dict(initialize_from="none")),
        ("give one of them", dict(updates=3)),
    ]
    for wanted, mistake in mistakes:
        with pytest.raises(Exception, match=wanted):
            run(tmp_path / "a", **mistake)
        assert not (tmp_path / "a").exists(), mistake


def test_in_python_nothing_is_written_without_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = rlbench.train("CartPole-v1", "ppo", steps=200, progress=False, **small(get("ppo")))
    assert trainer.steps >= 200 and not trainer.interrupted and list(tmp_path.iterdir()) == []


# ---- what is in the folder

def test_files(tmp_path):
    path = tmp_path / "a"
    trainer = run(path, keep_checkpoints=2, gamma=.97)
    config = read(path, "config.json")
    settings = config["settings"]
    assert (config["env"], config["algo"]) == ("CartPole-v1", "ppo")
    assert settings["agent"]["gamma"] == dict(value=.97, source="python")
    assert settings["agent"]["lr"]["source"] == "default" and set(settings) == {"trainer", "run", "agent"}
    written = rows(path)
    in_training = [finite(row) for row in trainer.metrics.rows]
    assert [row for row in written if "eval_mean" not in row] == in_training
    assert [row["steps"] // 500 for row in written if "eval_mean" in row] == [1, 2, 3]
    table = list(csv.DictReader((path / "metrics.csv").open(newline="")))
    assert set(table[0]) == {name for row in written for name in row} | {"time"} and len(table) == len(written)
    assert [row["eval_mean"] != "" for row in table] == ["eval_mean" in row for row in written]
    assert len(list((path / "checkpoints").iterdir())) == 2
    timers = read(path, "timers.json")
    assert timers["children"]["collect"]["count"] > 0 and timers["gauges"]["loss"]["count"] > 0
    status = read(path, "status.json")
    assert (status["state"], status["steps"]) == ("finished", trainer.steps)
    assert status["best"] == max(row["eval_mean"] for row in written if "eval_mean" in row)
    assert load(path / "best.rlb").steps == status["best_steps"]
    assert [one.name for one in sorted(path.rglob(".*"))] == [".lock", ".rlbench"]


def test_best_by_training_where_nothing_evaluates(tmp_path):
    run(tmp_path / "a", eval_every=0)
    status = read(tmp_path / "a", "status.json")
    assert status["best"] > 0 and load(tmp_path / "a" / "best.rlb").steps == status["best_steps"]


def test_tensorboard_events(tmp_path):
    run(tmp_path / "a", tensorboard=True, steps=600)
    run(tmp_path / "a", tensorboard=True, steps=1000, resume=True)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    events.Reload()
    assert [event.step // 500 for event in events.Scalars("eval_mean")] == [1, 2] and "loss" in events.Tags()["scalars"]


def test_initialize_from_and_inference(tmp_path):
    first = run(tmp_path / "a", steps=600)
    second = run(tmp_path / "b", steps=300, initialize_from="a", seed=5)
    fresh = run(tmp_path / "c", steps=0, initialize_from=find_run("a", tmp_path))
    assert same(weights(fresh), weights(first)) and fresh.steps == fresh.updates == 0 and second.updates > 0
    with pytest.raises(FileProblem, match="do not fit"):
        run(tmp_path / "d", initialize_from="a", hidden=(8,))
    before = files(tmp_path)
    usual = dict(run_id="a", folder=tmp_path, inference=True, steps=700, progress=False, hidden=(16,))
    for how in (dict(resume=True), dict(initialize_from="a", run_id=None)):
        acted = train("CartPole-v1", "ppo", **usual | how)
        assert same(weights(acted), weights(first)) and acted.updates == 0 and 700 <= acted.steps < 710
    assert before == files(tmp_path)
    with pytest.raises(RunProblem, match="makes no updates"):
        train("CartPole-v1", "ppo", initialize_from="a", inference=True, folder=tmp_path, updates=3, hidden=(16,))


@pytest.mark.parametrize("algo", ["ppo", "stream_q", "stream_ac"])
def test_a_run_that_begins_with_weights_begins_with_episodes_of_its_own(algo, tmp_path):
    "What rewards sum to and where traces lie belongs to the run before, in however many environments"
    how = dict(folder=tmp_path, progress=False, seed=0, hidden=(8,))
    first = train("CartPole-v1", algo, run_id="a", steps=600, num_envs=3, **how)
    begun = train("CartPole-v1", algo, initialize_from="a", steps=0, num_envs=2, **how)
    assert same(weights(begun), weights(first))
    assert begun.learner.nets.scale.unit == first.learner.nets.scale.unit
    assert begun.learner.nets.scale.sum.tolist() == [0, 0]
    counted = int(begun.learner.nets.scale.count)
    begun.run(steps=begun.settings.num_envs * 300)
    assert int(begun.learner.nets.scale.count) > counted    # what it sees counts, though fewer steps were taken so far


def test_names_are_unique_over_all_settings():
    ours = {name for cls in (RunSettings, TrainerSettings) for name in cls.__dataclass_fields__}
    for name, cls in algorithms().items():
        assert not ours & set(cls.__dataclass_fields__), name


# ---- several behaviours

def test_every_number_of_several_behaviours_has_an_owner(tmp_path):
    path = tmp_path / "two"
    trainer = chase(path, **{"runner.gamma": .9})
    config = read(path, "config.json")
    assert config["algo"] == dict(chaser="dqn", runner="ppo")
    assert set(config["settings"]) == {"trainer", "run", "chaser", "runner"}
    assert config["settings"]["runner"]["gamma"] == dict(value=.9, source="python")
    assert config["settings"]["chaser"]["gamma"]["source"] == "default"
    written = rows(path)
    names = {name for row in written for name in row}
    for name in ("episodes", "mean_return", "loss", "eval_mean"):
        assert {f"chaser/{name}", f"runner/{name}"} <= names and name not in names
    status = read(path, "status.json")
    for who in ("chaser", "runner"):
        scores = [row[f"{who}/eval_mean"] for row in written if f"{who}/eval_mean" in row]
        assert status[f"{who}/best"] == max(scores)
        assert load(path / f"best-{who}.rlb").steps == status[f"{who}/best_steps"]
        assert status[f"{who}/episodes"] == trainer.env.episodes[who].total
        assert f"{who}/mean_return" in read(path, "timers.json")["gauges"]
    with pytest.raises(RunProblem, match="whose best"):
        find_run("two", tmp_path, best=True)


def test_several_behaviours_interrupted_and_resumed(tmp_path):
    chase(tmp_path / "whole")
    part = chase(tmp_path / "part", callbacks=[CtrlC(200)])
    assert part.interrupted
    chase(tmp_path / "part", resume=True)
    assert same(final(tmp_path / "whole"), final(tmp_path / "part"))
    assert rows(tmp_path / "whole") == rows(tmp_path / "part")


def test_one_learns_against_somebody_who_only_acts(tmp_path):
    runner = chase(tmp_path / "two", steps=200).actors["runner"]
    against = dict(chaser="dqn", runner=runner)
    how = dict(folder=tmp_path, run_id="one", progress=False, num_envs=2, log_every=100, **OFTEN)
    how |= dict(learning_starts=50, hidden=(16,))
    there = train("rlbench/Chase-v0", against, steps=300, **how)
    assert list(there.learners) == ["chaser"]
    assert set(read(tmp_path / "one", "config.json")["settings"]) == {"trainer", "run", "chaser"}
    again = train("rlbench/Chase-v0", against, steps=600, resume=True, **how)
    straight = train("rlbench/Chase-v0", against, steps=600, **how | dict(run_id="straight"))
    assert same(again.state()["learners"], straight.state()["learners"])
    assert same(again.actors["runner"].nets.state_dict(), runner.nets.state_dict())
    assert find_run("one", tmp_path, best=True).name == "best-chaser.rlb"


def test_weights_go_to_the_behaviour_of_their_name(tmp_path):
    first = chase(tmp_path / "a", steps=200)
    second = chase(tmp_path / "b", steps=0, seed=3, initialize_from="a")
    for who in ("chaser", "runner"):
        assert same(weights(first, who), weights(second, who))
    with pytest.raises(RunProblem, match="has no behaviour 'agent'; there are: chaser, runner"):
        run(tmp_path / "c", initialize_from="a")


def test_a_file_for_several_behaviours(tmp_path):
    path = tmp_path / "chase.toml"
    path.write_text('env = "rlbench/Chase-v0"\n[algo]\nchaser = "dqn"\nrunner = "ppo"\n[default]\ngamma = 0.9\n'
                    '[behaviours.runner]\ngamma = 0.8\n[trainer]\nseed = 4\n[run]\nsteps = 20\n')
    trainer = train(config=path, progress=False)
    assert {who: learner.settings.gamma for who, learner in trainer.learners.items()} == dict(chaser=.9, runner=.8)
    assert trainer.settings.seed == 4 and 20 <= trainer.steps < 40
    with pytest.raises(ConfigError, match="asked for with"):
        train(config=path, algo="ppo", progress=False)
    with pytest.raises(ConfigError, match="unknown behaviour 'runer'; did you mean 'runner'"):
        train("rlbench/Chase-v0", dict(chaser="dqn", runer="ppo"), progress=False)


# ---- given data

def test_updates_are_the_length_where_data_is_given(tmp_path, seen):
    path = tmp_path / "clone"
    trainer = clone(path, seen, updates=60)
    assert (trainer.steps, trainer.updates) == (0, 60)
    written = rows(path)
    assert [row["updates"] for row in written if "loss" in row] == [10, 20, 30, 40, 50, 60]
    assert [row["updates"] for row in written if "eval_mean" in row] == [30, 60]
    assert [int(one.stem) for one in sorted((path / "checkpoints").iterdir())] == [20, 40, 60]
    status = read(path, "status.json")
    assert status["best_updates"] in (30, 60) and load(path / "best.rlb").updates == status["best_updates"]


def test_given_data_interrupted_and_resumed(tmp_path, seen):
    clone(tmp_path / "whole", seen, updates=60)
    assert clone(tmp_path / "part", seen, updates=60, callbacks=[CtrlC(37)]).interrupted
    again = train("CartPole-v1", "bc", run_id="part", folder=tmp_path, resume=True, progress=False)
    assert again.updates == 60 and same(final(tmp_path / "whole"), final(tmp_path / "part"))
    assert rows(tmp_path / "whole") == rows(tmp_path / "part")


def test_who_has_settled_ends_the_run(tmp_path, seen):
    trainer = clone(tmp_path / "a", seen, updates=10**9, n_epochs=2)
    assert trainer.settled and trainer.steps == 0 and read(tmp_path / "a", "status.json")["state"] == "finished"
    again = train("CartPole-v1", "bc", run_id="a", folder=tmp_path, resume=True, progress=False)
    assert again.updates == trainer.updates


def test_data_are_learned_until_nothing_is_owed(tmp_path, seen):
    trainer = clone(tmp_path / "a", seen, n_epochs=3)
    assert trainer.settled and trainer.updates == 3 * -(-len(seen) // 16)
    told = read(tmp_path / "a", "config.json")["settings"]["run"]["updates"]
    assert told == dict(value=trainer.updates, source="given data")
    again = train("CartPole-v1", "bc", run_id="a", folder=tmp_path, resume=True, progress=False, n_epochs=5)
    assert again.settled and again.updates == 5 * trainer.updates // 3


@pytest.mark.parametrize("algo", [name for name in algorithms() if get(name).offline])
def test_all_who_learn_from_data_know_when_they_are_through(algo):
    env = "Pendulum-v1" if algo in ("td3_bc", "cql") else "CartPole-v1"
    few = demonstrations(env, 1, steps=30)
    trainer = train(env, algo, memory=few, progress=False, n_epochs=2, hidden=(8,), batch_size=20)
    assert (trainer.steps, trainer.settled) == (0, True)
    assert trainer.updates == updates_owed(trainer.learner)


@dataclass(frozen=True)
class NeverThrough(BC):
    "Learns from what is given, for ever"
    def due(self, memory, own, fresh):
        return 0


def test_who_never_settles_ends_after_as_many_updates_as_a_run_has_steps(seen, monkeypatch):
    monkeypatch.setattr("rlbench.training.train.UPDATES", 50)
    trainer = train("CartPole-v1", NeverThrough(), memory=seen, progress=False)
    assert (trainer.updates, trainer.settled) == (50, False)


def test_data_are_needed(tmp_path):
    with pytest.raises(ConfigError, match="learns from a memory that is given"):
        clone(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_steps_that_nobody_asked_for_end_with_the_learning(tmp_path):
    planned = dict(progress=False, folder=tmp_path)
    trainer = train("FrozenLake-v1", "value_iteration", run_id="a", **planned)
    assert trainer.settled and trainer.steps < 1_000
    assert any("eval_mean" in row for row in rows(tmp_path / "a")) and (tmp_path / "a" / "best.rlb").exists()
    assert train("FrozenLake-v1", "value_iteration", run_id="a", resume=True, **planned).steps == trainer.steps
    assert train("FrozenLake-v1", "value_iteration", steps=2_000, **planned).steps == 2_000


# ---- those who watch

class Everything(Callbacks):
    "Notes the name of every hook that is called, and with what"

    def __init__(self):
        self.heard = []
        for name in HOOKS:
            setattr(self, name, self.noting(name))

    def noting(self, name):
        return lambda trainer, *what: self.heard.append((name, what))


def test_every_hook_is_called_in_its_place(tmp_path):
    watcher = Everything()
    trainer = run(tmp_path / "a", callbacks=[watcher])
    again = Everything()
    run(tmp_path / "a", resume=True, callbacks=[again], steps=1600)
    names = [name for name, _ in watcher.heard]
    assert set(names) == set(HOOKS) - {"on_checkpoint_loaded"}
    assert [name for name, _ in again.heard].count("on_checkpoint_loaded") == 1
    assert names[0] == "on_trainer_init" and names.count("on_train_result") == len(trainer.metrics)
    assert names.count("on_learn_on_batch") == trainer.updates
    assert names.count("on_episode_end") == trainer.episodes.total
    to_come = int(trainer.env.ended.sum())                # ended, and to begin with the next step
    assert names.count("on_episode_start") == trainer.episodes.total + trainer.env.num_envs - to_come
    at = names.index("on_postprocess_trajectory")
    assert names[at + 1] == "on_learn_on_batch" and "on_sample_end" in names[at - 3:at]
    ends = [what[0].ret for name, what in watcher.heard if name == "on_episode_end"][-100:]
    np.testing.assert_allclose(np.mean(ends), trainer.episodes.mean_return)


def test_a_watched_run_is_the_unwatched_run(tmp_path):
    run(tmp_path / "watched", steps=600, callbacks=[Everything()])
    plain = Trainer("CartPole-v1", "ppo", num_envs=2, log_every=50, **small(get("ppo"))).run(steps=600)
    for part in ("learners", "streams"):
        assert same(final(tmp_path / "watched")["state"][part], plain.snapshot()[part])


@pytest.mark.parametrize("hook", [name for name in HOOKS if name not in ("on_trainer_init", "on_checkpoint_loaded")])
def test_a_hook_that_writes_is_named(hook, tmp_path):
    def meddle(trainer, *what):
        next(trainer.learner.nets.parameters()).data += 1

    watcher = Callbacks()
    setattr(watcher, hook, meddle)
    with pytest.raises(RuntimeError, match=f"Callbacks.{hook} wrote to the trainer"):
        run(tmp_path / "a", steps=200, eval_every=50, callbacks=[read_only(watcher)])


def test_a_reader_may_read(tmp_path):
    watcher = Everything()
    run(tmp_path / "a", steps=100, log_every=10, callbacks=[read_only(watcher)])
    assert {"on_train_result", "on_learn_on_batch"} <= {name for name, _ in watcher.heard}


def test_printed_progress_names_the_behaviours(capsys):
    train(**CHASE, steps=120, num_envs=2, **TINY)
    said = capsys.readouterr().err
    assert "chaser" in said and "runner" in said


def test_evaluations_are_a_tenth_of_the_steps_where_nobody_sets_their_beat(tmp_path):
    train("CartPole-v1", "ppo", steps=60_000, n_epochs=2, batch_size=512, lr=1e-3, run_id="a", folder=tmp_path,
          progress=False)
    found = [row for row in rows(tmp_path / "a") if "eval_steps" in row]
    assert 1 <= len(found) < 6                            # six beats have come; CartPole's episodes soon are long
    assert sum(row["eval_steps"] for row in found) <= 60_000 / 10


class Hovering(gym.Env):
    "An episode is over after ten steps, unless all of them were steps of the first action: then after a thousand"
    observation_space = gym.spaces.Discrete(1)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        self.tried = False
        return 0, {}

    def step(self, act):
        self.taken += 1
        self.tried |= act == 1
        return 0, 1. - act, self.taken >= (10 if self.tried else 1000), False, {}


def test_an_evaluation_that_does_not_fit_into_the_tenth_is_given_up(tmp_path):
    heard = Everything()
    train(Hovering, "qlearning", epsilon=1., steps=60_000, run_id="a", folder=tmp_path, progress=False,
          callbacks=[heard])
    found = [row for row in rows(tmp_path / "a") if "eval_steps" in row]
    assert [row["steps"] for row in found] == [10_000, 60_000]    # where there is room for five times as many
    assert [row["eval_steps"] for row in found] == [1_000, 5_000]
    assert not any("eval_mean" in row for row in found)
    names = [name for name, _ in heard.heard]
    assert names.count("on_evaluate_start") == 2 and "on_evaluate_end" not in names
    assert "best" not in read(tmp_path / "a", "status.json")


def test_weights_that_are_not_finite_are_in_no_checkpoint(tmp_path):
    "After a finite gradient, too, whose step was too long"
    trainer = Trainer("CartPole-v1", "ppo", hidden=(4,))
    save_newest(tmp_path, trainer, "steps", keep=1)
    next(trainer.learner.nets.parameters()).data.view(-1)[0] = np.inf
    trainer.advance()
    with pytest.raises(NotFinite, match="the last checkpoint is from before"):
        save_newest(tmp_path, trainer, "steps", keep=1)
    [kept] = (tmp_path / "checkpoints").iterdir()
    assert load(kept).steps == 0


def test_evaluations_tell_exploring_play_beside_greedy_play(tmp_path):
    run(tmp_path / "a", steps=1200, eval_every=500, eval_episodes=4)
    found = [row for row in rows(tmp_path / "a") if "eval_mean" in row]
    assert len(found) == 2 and all(np.isfinite([row["exploring_mean"], row["exploring_std"]]).all() for row in found)
    assert found[0]["exploring_mean"] != found[0]["eval_mean"]
    assert read(tmp_path / "a", "status.json")["best"] == max(row["eval_mean"] for row in found)
