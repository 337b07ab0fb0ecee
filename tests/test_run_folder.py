"""A run on disk: killed and resumed it is the run that never stopped; nothing is overwritten; those who watch change nothing."""
import csv
import json
import signal
import subprocess
import sys

import numpy as np
import pytest

import rlbench
from rlbench.algos.algorithm import algorithms
from rlbench.core.config import ConfigError
from rlbench.core.state import FileProblem, load as load_file, same
from rlbench.training.callbacks import Callbacks, read_only
from rlbench.training.runs import RunProblem, RunSettings, find_run, train
from rlbench.training.trainer import Trainer, TrainerSettings
from tests.conftest import small

OFTEN = dict(checkpoint_every=250, eval_every=500, eval_episodes=2)
HOOKS = [name for name in vars(Callbacks) if name.startswith("on_")]


def run(path, algo="ppo", env="CartPole-v1", **more):
    "A short run in the folder `path`"
    return train(env, algo, run_id=path.name, folder=path.parent, **dict(progress=False, steps=1500, num_envs=2, **small(algorithms()[algo]), **OFTEN) | more)


def rows(path):
    "Metrics on disk without the wall clock"
    found = [json.loads(line, parse_constant=pytest.fail) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert all(row.pop("time") >= 0 for row in found)
    return found


def final(path):
    return load_file(find_run(path), "checkpoint")


# ---- nothing is lost

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.test_run_folder import run
left = int(sys.argv[3])
def bomb(trainer, event):
    global left
    left -= 1
    if left == 0: os.kill(os.getpid(), signal.SIGKILL)
run(Path(sys.argv[1]), sys.argv[2], steps=1000, callbacks=[bomb])
"""


@pytest.mark.parametrize("algo,events", [("ppo", 541), ("dqn", 1411)])
def test_killed_and_resumed_is_never_killed(algo, events, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(whole, algo, steps=1000)
    child = subprocess.run([sys.executable, "-c", KILLED, killed, algo, str(events)], timeout=120)
    assert child.returncode == -signal.SIGKILL and json.loads((killed / "status.json").read_text())["state"] == "running"
    at = len(rows(killed))
    with (killed / "metrics.jsonl").open("a") as file: file.write('{"steps": 9')  # as if it fell in the middle of a line
    run(killed, algo, resume=True, steps=1000)
    assert same(final(whole), final(killed))
    assert rows(whole) == rows(killed) and 0 < at < len(rows(whole))
    assert (whole / "metrics.csv").read_text().splitlines()[0] == (killed / "metrics.csv").read_text().splitlines()[0]
    assert same(load_file(whole / "best.rlb", "checkpoint"), load_file(killed / "best.rlb", "checkpoint"))


def test_killed_before_the_first_checkpoint_begins_again(tmp_path):
    child = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "killed", "ppo", "3"], timeout=120)
    assert child.returncode == -signal.SIGKILL
    run(tmp_path / "killed", resume=True, steps=1000)
    run(tmp_path / "whole", steps=1000)
    assert same(final(tmp_path / "whole"), final(tmp_path / "killed")) and rows(tmp_path / "whole") == rows(tmp_path / "killed")


def test_interrupted_at_any_event_and_resumed(tmp_path):
    run(tmp_path / "whole")
    seen, before = 0, signal.getsignal(signal.SIGINT)                       # ignored, where a shell started us in the background

    def ctrl_c(trainer, event):
        nonlocal seen
        seen += 1
        if seen == 333: signal.raise_signal(signal.SIGINT)
    part = run(tmp_path / "part", callbacks=[ctrl_c])
    assert part.interrupted and part.steps < 1500 and seen == 333          # the present event was finished and no other begun
    assert json.loads((tmp_path / "part" / "status.json").read_text())["state"] == "interrupted"
    assert same(load_file(find_run(tmp_path / "part"), "checkpoint")["state"], part.state())
    assert signal.getsignal(signal.SIGINT) is before
    done = run(tmp_path / "part", resume=True)
    assert not done.interrupted and same(final(tmp_path / "whole"), final(tmp_path / "part"))
    assert rows(tmp_path / "whole") == rows(tmp_path / "part")


def test_resume_keeps_the_settings_of_the_run(tmp_path):
    run(tmp_path / "a", gamma=.9, num_envs=3, keep_checkpoints=2)
    again = train("CartPole-v1", "ppo", run_id="a", folder=tmp_path, resume=True, steps=2000, progress=False)  # the rest is not said again
    kept = json.loads((tmp_path / "a" / "config.json").read_text())["settings"]
    assert again.learner.algo.gamma == .9 and again.env.num_envs == 3 and again.steps >= 2000
    assert kept["algo"]["gamma"] == dict(value=.9, source="python") and kept["trainer"]["num_envs"]["value"] == 3
    assert kept["run"]["checkpoint_every"]["value"] == 250 and kept["run"]["steps"]["value"] == 2000
    assert len(list((tmp_path / "a" / "checkpoints").iterdir())) == 2


def test_resume_with_changes(tmp_path):
    run(tmp_path / "a", steps=600)
    again = run(tmp_path / "a", steps=900, resume=True, gamma=.5)
    assert again.learner.algo.gamma == .5 and json.loads((tmp_path / "a" / "config.json").read_text())["settings"]["algo"]["gamma"]["value"] == .5
    with pytest.raises(ConfigError, match="num_envs shapes the run from its start"): run(tmp_path / "a", resume=True, num_envs=5)
    with pytest.raises(ConfigError, match="did you mean 'gamma'"): run(tmp_path / "a", resume=True, gama=.5)
    (tmp_path / "b.toml").write_text("[default]\ngamma = 0.25\n")
    assert run(tmp_path / "a", steps=900, resume=True, config=tmp_path / "b.toml").learner.algo.gamma == .25


# ---- nothing is overwritten

def test_refusals(tmp_path):
    run(tmp_path / "a", steps=300)
    before = {p: p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()}
    for wanted, more in [("exists already", {}), ("give one of them", dict(resume=True, force=True)), ("give one of them", dict(resume=True, initialize_from="a")),
                         ("made with algo 'ppo', not 'dqn'", dict(resume=True, algo="dqn")), ("made with env 'CartPole-v1', not 'Acrobot-v1'", dict(resume=True, env="Acrobot-v1")),
                         ("no run 'none'", dict(force=True, initialize_from="none"))]:
        with pytest.raises(RunProblem, match=wanted): run(tmp_path / "a", **more)
    with pytest.raises(RunProblem, match="no run to resume"): run(tmp_path / "b", resume=True)
    with pytest.raises(RunProblem, match="needs the run's id"): train("CartPole-v1", "ppo", resume=True)
    with pytest.raises(RunProblem, match="with which weights"): train("CartPole-v1", "ppo", inference=True)
    with pytest.raises(RunProblem, match="run_id"): train("CartPole-v1", "ppo", run_id="../up", folder=tmp_path)
    assert before == {p: p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()} and not (tmp_path / "b").exists()


def test_force_leaves_nothing_of_the_old_run(tmp_path):
    run(tmp_path / "a", steps=1000)
    run(tmp_path / "a", steps=300, force=True, eval_every=0)
    assert [row["steps"] for row in rows(tmp_path / "a")] == sorted(row["steps"] for row in rows(tmp_path / "a")) and rows(tmp_path / "a")[-1]["steps"] <= 301
    assert all(int(p.stem) <= 301 for p in (tmp_path / "a" / "checkpoints").iterdir())
    assert json.loads((tmp_path / "a" / "status.json").read_text())["steps"] in (300, 301)


def test_a_mistake_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for mistake in (dict(gama=1), dict(gamma=7), dict(env="CartPool-v1"), dict(algo="dqn", env="Pendulum-v1"), dict(tensorboard=True), dict(initialize_from="none")):
        with pytest.raises(Exception, match="gama|gamma|CartPool|Discrete|rlbench\\[tensorboard\\]|no run"): run(tmp_path / "a", **mistake)
        assert not (tmp_path / "a").exists(), mistake


def test_in_python_nothing_is_written_without_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = rlbench.train("CartPole-v1", "ppo", steps=200, progress=False, **small(algorithms()["ppo"]))
    assert trainer.steps >= 200 and not trainer.interrupted and list(tmp_path.iterdir()) == []


# ---- what is in the folder

def test_files(tmp_path):
    trainer = run(tmp_path / "a", keep_checkpoints=2, gamma=.97)
    path, s = tmp_path / "a", json.loads((tmp_path / "a" / "config.json").read_text())
    assert (s["env"], s["algo"], s["settings"]["algo"]["gamma"]) == ("CartPole-v1", "ppo", dict(value=.97, source="python"))
    assert s["settings"]["algo"]["lr"]["source"] == "default" and set(s["settings"]) == {"trainer", "run", "algo"}
    written = rows(path)
    assert [row for row in written if "eval_mean" not in row] == [{k: None if v != v else v for k, v in row.items()} for row in trainer.metrics.rows]
    assert [row["steps"] // 500 for row in written if "eval_mean" in row] == [1, 2, 3]
    table = list(csv.DictReader((path / "metrics.csv").open(newline="")))
    assert set(table[0]) == {name for row in written for name in row} | {"time"} and len(table) == len(written)
    assert [row["eval_mean"] != "" for row in table] == ["eval_mean" in row for row in written]
    assert len(list((path / "checkpoints").iterdir())) == 2
    assert json.loads((path / "timers.json").read_text())["children"]["collect"]["count"] > 0
    status = json.loads((path / "status.json").read_text())
    assert (status["state"], status["steps"], status["best"]) == ("finished", trainer.steps, max(row["eval_mean"] for row in written if "eval_mean" in row))
    assert load_file(path / "best.rlb", "checkpoint")["state"]["steps"] == status["best_steps"]
    assert not [p for p in path.rglob("*") if p.name.startswith(".")]


def test_best_by_training_where_nothing_evaluates(tmp_path):
    run(tmp_path / "a", eval_every=0)
    status = json.loads((tmp_path / "a" / "status.json").read_text())
    assert status["best"] > 0 and load_file(tmp_path / "a" / "best.rlb", "checkpoint")["state"]["steps"] == status["best_steps"]


def test_tensorboard_events(tmp_path):
    run(tmp_path / "a", tensorboard=True, steps=600)
    run(tmp_path / "a", tensorboard=True, steps=1000, resume=True)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    events.Reload()
    assert [e.step // 500 for e in events.Scalars("eval_mean")] == [1, 2] and "loss" in events.Tags()["scalars"]


def test_initialize_from_and_inference(tmp_path):
    first = run(tmp_path / "a")
    second = run(tmp_path / "b", steps=300, initialize_from="a", seed=5)
    fresh = run(tmp_path / "c", steps=0, initialize_from=find_run("a", tmp_path))
    assert (fresh.learner.weights == first.learner.weights).all() and fresh.steps == fresh.updates == 0 and second.updates > 0
    with pytest.raises(FileProblem, match="do not fit"): run(tmp_path / "d", initialize_from="a", hidden=(8,))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for how in (dict(resume=True), dict(initialize_from="a", run_id=None)):
        acted = train("CartPole-v1", "ppo", **dict(run_id="a", folder=tmp_path, inference=True, steps=700, progress=False, hidden=(16,)) | how)
        assert (acted.learner.weights == first.learner.weights).all() and acted.updates == 0 and 700 <= acted.steps < 710
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_names_are_unique_over_all_settings():
    ours = {f for cls in (RunSettings, TrainerSettings) for f in cls.__dataclass_fields__}
    for name, cls in algorithms().items(): assert not ours & set(cls.__dataclass_fields__), name


# ---- those who watch

class Everything(Callbacks):
    "Notes the name of every hook that is called"
    def __init__(self): self.heard = []


for _name in HOOKS: setattr(Everything, _name, lambda self, *args, _name=_name: self.heard.append((_name, args)))


def test_every_hook_is_called_in_its_place(tmp_path):
    watcher = Everything()
    trainer = run(tmp_path / "a", callbacks=[watcher])
    again = Everything()
    run(tmp_path / "a", resume=True, callbacks=[again], steps=1600)
    names = [name for name, _ in watcher.heard]
    assert set(names) == set(HOOKS) - {"on_checkpoint_loaded"} and [name for name, _ in again.heard].count("on_checkpoint_loaded") == 1
    assert names[0] == "on_trainer_init" and names.count("on_train_result") == len(trainer.metrics)
    assert names.count("on_learn_on_batch") == trainer.updates and names.count("on_episode_end") == trainer.episodes.total
    assert names.count("on_episode_start") == trainer.episodes.total + trainer.env.num_envs
    at = names.index("on_postprocess_trajectory")
    assert names[at + 1] == "on_learn_on_batch" and "on_sample_end" in names[at - 3:at]
    ends = [args[2:] for name, args in watcher.heard if name == "on_episode_end"][-100:]
    np.testing.assert_allclose(np.mean([ret for ret, *_ in ends]), trainer.episodes.mean_return)


def test_a_watched_run_is_the_unwatched_run(tmp_path):
    run(tmp_path / "watched", callbacks=[Everything()])
    plain = Trainer("CartPole-v1", "ppo", num_envs=2, **small(algorithms()["ppo"])).run(steps=1500)
    assert same(final(tmp_path / "watched")["state"]["learners"], plain.snapshot()["learners"])
    assert same(final(tmp_path / "watched")["state"]["streams"], plain.snapshot()["streams"])


@pytest.mark.parametrize("hook", [name for name in HOOKS if name not in ("on_trainer_init", "on_checkpoint_loaded")])
def test_a_hook_that_writes_is_named(hook, tmp_path):
    def meddle(trainer, *args): trainer.learner.weights.data[0] += 1
    watcher = Callbacks()
    setattr(watcher, hook, meddle)
    with pytest.raises(RuntimeError, match=f"Callbacks.{hook} wrote to the trainer"):
        run(tmp_path / "a", steps=600, callbacks=[read_only(watcher)])


def test_a_reader_may_read(tmp_path):
    watcher = Everything()
    run(tmp_path / "a", steps=100, log_every=10, callbacks=[read_only(watcher)])
    assert {"on_train_result", "on_learn_on_batch"} <= {name for name, _ in watcher.heard}
