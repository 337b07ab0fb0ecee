"""Runs on disk: killed and continued, interrupted, refused; callbacks read and do not write. The command line, in processes of its own."""
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlbench import Trainer, load
from rlbench.core.state import load as load_file, same
from rlbench.training.callbacks import Callbacks, read_only
from rlbench.training.runs import RunProblem, crossed, find_run, newest, train

ARGS = ["CartPole-v1", "dqn", "--quiet", "--set", "start=100", "--set", "hidden=16,16", "--set", "checkpoint_every=300", "--set", "eval_every=500", "--set", "eval_episodes=2", "--set", "log_every=100"]


def command(*args, **more):
    env = os.environ | dict(OMP_NUM_THREADS="1")
    return subprocess.Popen([sys.executable, "-m", "rlbench", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **more)


def rlbench(*args):
    process = command(*args)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def wait_for_checkpoint(folder, process, seconds=60):
    end = time.time() + seconds
    while not (Path(folder) / "config.json").exists() or max(Path(folder).glob("checkpoints/*.rlb")).stem == "0" * 12:
        assert process.poll() is None and time.time() < end, process.stderr.read()
        time.sleep(.05)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    "A run of 1500 steps that nobody disturbed"
    folder = tmp_path_factory.mktemp("runs")
    status, out, err = rlbench("train", *ARGS, "--steps", 1500, "--run-id", "whole", "--folder", folder)
    assert status == 0, err
    return folder


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_and_resumed_is_the_run_that_was_not(whole, how):
    run = whole / how.name
    process = command("train", *ARGS, "--steps", 1_000_000, "--run-id", how.name, "--folder", whole)
    wait_for_checkpoint(run, process)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL), err
    if how == signal.SIGINT:
        assert "--resume" in out and "Traceback" not in err and json.loads((run / "status.json").read_text())["state"] == "interrupted"
        assert newest(run).stem == f"{load(newest(run)).steps:012d}"
    stood = load(newest(run)).steps
    end = max(1500, -(-(stood + 200) // 100) * 100)
    status, out, err = rlbench("train", *ARGS, "--steps", end, "--run-id", how.name, "--folder", whole, "--resume")
    assert status == 0, err
    straight = Trainer("CartPole-v1", "dqn", start=100, hidden=(16, 16), log_every=100).run(end)
    assert same(straight.state()["learners"], load(newest(run)).state()["learners"]) and same(straight.metrics.rows, load(newest(run)).metrics.rows)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row["steps"] for row in rows if "updates" in row]
    assert steps == sorted(set(steps)) == [row["steps"] for row in straight.metrics.rows]


def test_the_folder_holds_everything(whole):
    run = whole / "whole"
    config = json.loads((run / "config.json").read_text())
    assert config["algo"] == "dqn" and config["settings"]["algo"]["start"] == dict(value=100, source="command line") and config["settings"]["algo"]["gamma"]["source"] == "default"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    table = list(csv.DictReader((run / "metrics.csv").open()))
    assert len(table) == len(rows) and set(table[0]) == {name for row in rows for name in row} and {"eval_mean", "loss", "time"} <= set(table[0])
    assert [float(r["steps"]) for r in table] == [r["steps"] for r in rows]
    assert len(list((run / "checkpoints").iterdir())) == 3 and json.loads((run / "timers.json").read_text())["name"] == "root"
    status, best = json.loads((run / "status.json").read_text()), max(row["eval_mean"] for row in rows if "eval_mean" in row)
    assert status["state"] == "finished" and status["best"] == best and load(run / "best.rlb").steps == status["best_steps"]


def test_an_existing_run_is_never_overwritten_without_force(whole):
    before = newest(whole / "whole").read_bytes()
    status, out, err = rlbench("train", *ARGS, "--steps", 200, "--run-id", "whole", "--folder", whole)
    assert status == 2 and "exists already" in err and "Traceback" not in err and newest(whole / "whole").read_bytes() == before
    train("CartPole-v1", "ppo", steps=100, run_id="again", folder=whole, progress=False)
    train("CartPole-v1", "dqn", steps=50, run_id="again", folder=whole, progress=False, force=True)
    assert load(newest(whole / "again")).learner.algo.name == "dqn"


@pytest.mark.parametrize("args,words", [
    (("train", "CartPole-v1", "ppo", "--set", "gama=1"), ["command line", "'gama'", "'gamma'"]),
    (("train", "CartPole-v1", "ppo", "--set", "gamma=2"), ["gamma = 2", "from 0 to 1"]),
    (("train", "CartPole-v1", "ppo", "--set", "run.gamma=1"), ["belongs to section 'algo'"]),
    (("train", "CartPole-v1", "ppo", "--config", "none.toml"), ["none.toml", "no such file"]),
    (("train", "CartPole-v9", "ppo"), ["CartPole-v9", "CartPole-v1"]),
    (("train", "CartPole-v1", "pppo"), ["'pppo'", "'ppo'"]),
    (("train", "Pendulum-v1", "dqn"), ["dqn", "ppo"]),
    (("train", "CartPole-v1", "ppo", "--run-id", "x", "--resume"), ["no run to resume"]),
    (("evaluate", "x"), ["no run 'x'", "none yet"]),
    (("play", "x"), ["no run 'x'"]),
])
def test_a_mistake_costs_one_line(args, words, tmp_path, monkeypatch, capsys):
    from rlbench.launch.cli import main
    monkeypatch.chdir(tmp_path)
    assert main(list(args)) == 2
    err = capsys.readouterr().err
    assert all(word in err for word in words) and err.count("\n") == 1, err
    assert not list(tmp_path.iterdir())


def test_config_file_evaluate_play_inference_and_initialize_from(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('[default]\nlr = 0.002\n[behaviours.agent]\nhidden = [8]\n[run]\nsteps = 300\n')
    status, out, err = rlbench("train", "CartPole-v1", "ppo", "--config", "mine.toml", "--run-id", "a", "--quiet")
    assert status == 0, err
    assert load(newest("runs/a")).learner.algo.hidden == (8,) and load(newest("runs/a")).steps >= 300
    status, out, err = rlbench("evaluate", "a", "--episodes", 4, "--json")
    assert status == 0 and len(json.loads(out)["returns"]) == 4, err
    status, out, err = rlbench("play", "a", "--output", "a.gif", "--max-steps", 15)
    assert status == 0, err
    from PIL import Image
    with Image.open("a.gif") as picture:
        assert picture.n_frames > 2 and picture.size == (600, 400)
    weights = load(newest("runs/a")).learner.weights
    status, out, err = rlbench("train", "CartPole-v1", "ppo", "--config", "mine.toml", "--initialize-from", "a", "--run-id", "b", "--steps", 0, "--quiet")
    assert status == 0 and (load(newest("runs/b")).learner.weights == weights).all(), err
    status, out, err = rlbench("train", "CartPole-v1", "ppo", "--config", "mine.toml", "--run-id", "a", "--resume", "--inference", "--steps", 900, "--quiet")
    assert status == 0 and "nothing was written" in out and (load(newest("runs/a")).learner.weights == weights).all(), err


def test_an_environment_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("import gymnasium as gym\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
                               "class Short(gym.wrappers.TimeLimit):\n    def __init__(self): super().__init__(CartPoleEnv(), 20)\n")
    status, out, err = rlbench("train", "mine.py:Short", "ppo", "--steps", 300, "--run-id", "own", "--quiet")
    assert status == 0, err
    status, out, err = rlbench("evaluate", "own", "--episodes", 3)
    assert status == 2 and "code of your own" in err
    status, out, err = rlbench("evaluate", "own", "--episodes", 3, "--env", "mine.py:Short")
    assert status == 0 and "3 episodes" in out, err
    status, out, err = rlbench("train", "mine.py:Long", "ppo")
    assert status == 2 and "Short" in err


def test_tensorboard_events(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    trainer = train("CartPole-v1", "ppo", steps=300, run_id="tb", folder=tmp_path, progress=False, tensorboard=True, log_every=100, eval_every=0)
    events = EventAccumulator(str(tmp_path / "tb" / "tensorboard")).Reload()
    assert [e.step for e in events.Scalars("episodes")] == [row["steps"] for row in trainer.metrics.rows]


def test_hooks_come_in_order_and_nobody_writes():
    class Hooks(Callbacks):
        def __init__(self): self.calls = []
    for name in [n for n in vars(Callbacks) if n.startswith("on_")]:
        setattr(Hooks, name, lambda self, trainer, *args, name=name: self.calls.append(name))
    hooks = Hooks()
    trainer = hooks.attach(Trainer("CartPole-v1", "dqn", start=30, log_every=20))
    trainer.watchers = [read_only(hooks)]
    trainer.until("update", 20)
    assert hooks.calls[:2] == ["on_trainer_init", "on_episode_start"]
    first = {name: hooks.calls.index(name) for name in ("on_episode_step", "on_sample_end", "on_postprocess_trajectory", "on_learn_on_batch")}
    assert list(first) == sorted(first, key=first.get) and {"on_episode_end", "on_train_result"} <= set(hooks.calls)


def test_hooks_hear_of_evaluations_and_loaded_checkpoints(tmp_path):
    heard = []
    class Hooks(Callbacks):
        def on_evaluate_start(self, trainer): heard.append("start")
        def on_evaluate_end(self, trainer, evaluation): heard.append(len(evaluation.returns))
        def on_checkpoint_loaded(self, trainer): heard.append(trainer.steps)
    settings = dict(run_id="h", folder=tmp_path, progress=False, eval_every=100, eval_episodes=2)
    train("CartPole-v1", "ppo", steps=104, callbacks=[Hooks()], **settings)
    train("CartPole-v1", "ppo", steps=104, callbacks=[Hooks()], resume=True, **settings)
    assert heard[:2] == ["start", 2] and heard[2] >= 104 and len(heard) == 3


def test_multiples_are_never_missed():
    assert [crossed(b, n, 10) for b, n in ((0, 9), (8, 10), (10, 18), (12, 31))] == [False, True, False, True]


def test_find_run_names_what_there_is(whole):
    assert find_run("whole", whole) == newest(whole / "whole") and find_run("whole", whole, best=True).name == "best.rlb"
    with pytest.raises(RunProblem, match="There are: .*whole"):
        find_run("hole", whole)


def test_a_checkpoint_in_the_buffer_format_is_refused(tmp_path):
    trainer = Trainer("CartPole-v1", "ppo")
    trainer.advance()
    trainer.learner.buffer.save(tmp_path / "b.rlb")
    with pytest.raises(Exception, match="holds a buffer, expected a checkpoint"):
        load(tmp_path / "b.rlb")
    assert load_file(tmp_path / "b.rlb", "buffer")["num_envs"] == 8
