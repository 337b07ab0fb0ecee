"~ is the home folder, wherever a path comes from a person"
import pytest

import rlbench
from rlbench.buffers.datasets import load_ring, read_lines, save_ring, write_lines
from rlbench.buffers.recordings import open_recording, start_recording
from rlbench.core.config import read_config
from rlbench.core.state import FileProblem
from rlbench.envs.find import make
from rlbench.lab.page.workbench import Workbench
from rlbench.launch.cli import main
from rlbench.training.checkpoints import newest
from rlbench.training.evaluate import evaluate
from rlbench.training.train import train
from rlbench.training.trainer import Trainer, load
from tests.test_find import OWN


@pytest.fixture
def home(tmp_path, monkeypatch):
    "A home folder, and another folder in which nothing may come to lie"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "home"
    assert not list((tmp_path / "here").iterdir())


def test_runs_are_saved_loaded_and_shown(home):
    trainer = Trainer("CartPole-v1", "dqn").run(steps=20)
    trainer.save("~/a/run.rlb")
    assert (home / "a" / "run.rlb").is_file()
    assert load("~/a/run.rlb").steps == 20
    evaluate("~/a/run.rlb", episodes=1)
    bench = Workbench("CartPole-v1", "dqn", driver="sync", views=["curve"])
    bench.page.files.path.value = "~/a/run.rlb"
    bench.load("~/a/run.rlb").save("~/b.rlb")
    assert bench.trainer.steps == 20 and (home / "b.rlb").is_file()
    bench.close()
    with pytest.raises(FileProblem, match="none.rlb: no such file"):
        load("~/none.rlb")


def test_memories_and_recordings(home):
    ring = Trainer("CartPole-v1", "dqn").run(steps=20).learner.memory
    save_ring("~/ring.rlb", ring)
    write_lines("~/ring.jsonl", ring)
    recorder = start_recording("~/tape", 100, 1, 8)
    for i in range(20): recorder.add(ring.gather([i]))
    recorder.close()
    again = load_ring("~/ring.rlb"), read_lines("~/ring.jsonl"), open_recording("~/tape")
    assert [len(one) for one in again] == [20] * 3


def test_runs_in_folders_configs_and_code(home, capsys):
    (home / "own.toml").write_text("[default]\nlr = 0.002\n")
    (home / "own.py").write_text(OWN)
    assert read_config("~/own.toml") == dict(default=dict(lr=.002))
    assert make("~/own.py:Still", 1).num_envs == 1
    train("CartPole-v1", "dqn", steps=20, run_id="one", folder="~/runs", config="~/own.toml", progress=False)
    assert newest("~/runs/one").is_file() and (home / "runs" / "one" / "metrics.csv").is_file()
    asked = ["train", "CartPole-v1", "dqn", "--folder", "~/runs", "--run-id", "two"]
    assert main([*asked, "--steps", "20", "--quiet"]) == 0
    assert main(["evaluate", "two", "--folder", "~/runs", "--episodes", "1"]) == 0
    assert str(home / "runs" / "two") in capsys.readouterr().out


def test_names_are_offered_before_they_are_imported():
    assert {"train", "Workbench", "Trainer", "load", "evaluate", "make"} <= set(dir(rlbench))
