"""Runs on disk, in processes of their own: killed and continued, interrupted; callbacks read and do not write."""
import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time

import gymnasium as gym
import numpy as np
import pytest

from rlbench import Trainer, load
from rlbench.core.state import FileProblem, read_tree, same, write_tree
from rlbench.launch.cli import main
from rlbench.training.callbacks import HOOKS, Callbacks, read_only
from rlbench.training.checkpoints import RunProblem, find_run, newest
from rlbench.training.runs import GreedyFallsShort, crossed
from rlbench.training.train import train

SETTINGS = ("learning_starts=100", "hidden=16,16", "checkpoint_every=300", "eval_every=500", "eval_episodes=2",
            "log_every=100")
ARGS = ["CartPole-v1", "dqn", "--quiet", *(word for setting in SETTINGS for word in ("--set", setting))]


def process_of(*args):
    "The command in a process of its own"
    env = os.environ | dict(OMP_NUM_THREADS="1")
    words = [sys.executable, "-m", "rlbench", *map(str, args)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def rlbench(*args):
    "The command in this process -> (status, errors)"
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        status = main([str(word) for word in args])
    return status, err.getvalue()


def wait_for_checkpoint(folder, process, seconds=60):
    end = time.time() + seconds
    while not (folder / "config.json").exists() or max(folder.glob("checkpoints/*.rlb")).stem == "0" * 12:
        assert process.poll() is None and time.time() < end, process.stderr.read()
        time.sleep(.05)


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def status_of(run):
    return json.loads((run / "status.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    "A run of 1500 steps that nobody disturbed"
    folder = tmp_path_factory.mktemp("runs")
    status, err = rlbench("train", *ARGS, "--steps", 1500, "--run-id", "whole", "--folder", folder)
    assert status == 0, err
    return folder


def test_a_run_that_was_killed_and_resumed_is_the_run_that_was_not(whole):
    run = whole / "killed"
    process = process_of("train", *ARGS, "--steps", 1_000_000, "--run-id", "killed", "--folder", whole)
    wait_for_checkpoint(run, process)
    process.send_signal(signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    stood = load(newest(run)).steps
    end = -(-(stood + 100) // 100) * 100
    status, err = rlbench("train", *ARGS, "--steps", end, "--run-id", "killed", "--folder", whole, "--resume")
    assert status == 0, err
    straight = Trainer("CartPole-v1", "dqn", learning_starts=100, hidden=(16, 16), log_every=100).run(steps=end)
    resumed = load(newest(run))
    assert same(straight.state()["learners"], resumed.state()["learners"])
    assert same(straight.metrics.rows, resumed.metrics.rows)
    steps = [row["steps"] for row in rows_of(run) if "eval_mean" not in row]
    assert steps == sorted(set(steps)) == [row["steps"] for row in straight.metrics.rows]


def test_the_folder_holds_everything(whole):
    run = whole / "whole"
    config = json.loads((run / "config.json").read_text())
    assert config["algo"] == "dqn"
    assert config["settings"]["agent"]["learning_starts"] == dict(value=100, source="command line")
    assert config["settings"]["agent"]["gamma"]["source"] == "default"
    rows = rows_of(run)
    table = list(csv.DictReader((run / "metrics.csv").open()))
    assert len(table) == len(rows) and set(table[0]) == {name for row in rows for name in row}
    assert {"eval_mean", "loss", "time"} <= set(table[0])
    assert [float(row["steps"]) for row in table] == [row["steps"] for row in rows]
    assert len(list((run / "checkpoints").iterdir())) == 3
    assert json.loads((run / "timers.json").read_text())["name"] == "root"
    status = status_of(run)
    best = max(row["eval_mean"] for row in rows if "eval_mean" in row)
    assert status["state"] == "finished" and status["best"] == best
    assert load(run / "best.rlb").steps == status["best_steps"]


def test_an_existing_run_is_never_overwritten_without_force(whole):
    before = newest(whole / "whole").read_bytes()
    status, err = rlbench("train", *ARGS, "--steps", 200, "--run-id", "whole", "--folder", whole)
    assert status == 2 and "exists already" in err and "Traceback" not in err
    assert newest(whole / "whole").read_bytes() == before
    train("CartPole-v1", "ppo", steps=100, run_id="again", folder=whole, progress=False)
    train("CartPole-v1", "dqn", steps=50, run_id="again", folder=whole, progress=False, force=True)
    assert load(newest(whole / "again")).learner.settings.name == "dqn"


def test_tensorboard_events(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    how = dict(folder=tmp_path, progress=False, tensorboard=True, log_every=100, eval_every=0)
    trainer = train("CartPole-v1", "ppo", steps=300, run_id="tb", **how)
    events = EventAccumulator(str(tmp_path / "tb" / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("episodes")] == [row["steps"] for row in trainer.metrics.rows]


def noting(calls, name):
    "A hook that notes that it was called"
    return lambda trainer, *args: calls.append(name)


def test_hooks_come_in_order_and_nobody_writes():
    calls = []
    hooks = Callbacks()
    for name in HOOKS:
        setattr(hooks, name, noting(calls, name))
    trainer = hooks.attach(Trainer("CartPole-v1", "dqn", learning_starts=30, log_every=20))
    trainer.watchers = [read_only(hooks)]
    trainer.until("update", 20)
    assert calls[:2] == ["on_trainer_init", "on_episode_start"]
    order = ("on_episode_step", "on_sample_end", "on_postprocess_trajectory", "on_learn_on_batch")
    first = [calls.index(name) for name in order]
    assert first == sorted(first) and {"on_episode_end", "on_train_result"} <= set(calls)


def test_hooks_hear_of_evaluations_and_loaded_checkpoints(tmp_path):
    heard = []

    class Judge(Callbacks):
        def on_evaluate_start(self, trainer):
            heard.append("start")

        def on_evaluate_end(self, trainer, evaluation):
            heard.append(len(evaluation.returns))

        def on_checkpoint_loaded(self, trainer):
            heard.append(trainer.steps)

    settings = dict(run_id="h", folder=tmp_path, progress=False, eval_every=100, eval_episodes=2)
    train("CartPole-v1", "ppo", steps=104, callbacks=[Judge()], **settings)
    train("CartPole-v1", "ppo", steps=104, callbacks=[Judge()], resume=True, **settings)
    assert heard[:2] == ["start", 2] and heard[2] >= 104 and len(heard) == 3


class Change(gym.Env):
    "A reward for every action that is not the last one again, which nobody sees: greedy play returns nothing"
    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = self.last = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        rew = float(self.steps > 1 and action != self.last)
        self.last = action
        return np.zeros(1, np.float32), rew, self.steps == 10, False, {}


def test_greedy_play_that_falls_short_is_told_once(tmp_path, recwarn):
    how = dict(folder=tmp_path, eval_every=300, progress=False)
    train(Change, "ppo", run_id="change", lr=0., steps=2000, **how)
    train("CartPole-v1", "ppo", run_id="pole", steps=800, **how)                # in two evaluations alone
    told = [str(one.message) for one in recwarn if one.category is GreedyFallsShort]
    assert len(told) == 1 and "greedy play returns 0 (10 episodes), exploring 4" in told[0]


def test_multiples_are_never_missed():
    steps = ((0, 9), (8, 10), (10, 18), (12, 31))
    assert [crossed(before, now, 10) for before, now in steps] == [False, True, False, True]


def test_find_run_names_what_there_is(whole):
    assert find_run("whole", whole) == newest(whole / "whole")
    assert find_run("whole", whole, best=True).name == "best.rlb"
    with pytest.raises(RunProblem, match="There are: .*whole"):
        find_run("hole", whole)


def test_a_file_of_another_kind_is_refused(tmp_path):
    trainer = Trainer("CartPole-v1", "ppo")
    trainer.advance()
    write_tree(tmp_path / "b.rlb", trainer.learner.memory.state(), "ring")
    with pytest.raises(Exception, match="holds a ring, expected a checkpoint"):
        load(tmp_path / "b.rlb")
    assert read_tree(tmp_path / "b.rlb", "ring")["num_envs"] == 8


def test_a_checkpoint_that_is_no_whole_run_is_refused(tmp_path):
    trainer = Trainer("CartPole-v1", "ppo")
    trainer.save(tmp_path / "a.rlb")
    tree = read_tree(tmp_path / "a.rlb", "checkpoint")
    wrongs = [(1, 2), None, 3, {}, tree | dict(env=np.ones(3)), tree | dict(env=[1])]
    for name in tree:
        wrongs.append(tree.copy())
        del wrongs[-1][name]
    for wrong in wrongs:
        write_tree(tmp_path / "b.rlb", wrong, "checkpoint")
        with pytest.raises(FileProblem, match="not a whole run: it has no|env: .*, expected a name"):
            load(tmp_path / "b.rlb")
        with pytest.raises(FileProblem):
            load(tmp_path / "b.rlb", env="CartPole-v1")
