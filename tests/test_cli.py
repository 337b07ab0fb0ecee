"""The command `rlbench`: does what the Python functions do, answers a mistake with one line, and takes Ctrl-C well."""
import json
import os
import signal
import subprocess
import sys
import time

import nbformat
import numpy as np
import pytest
from PIL import Image

import rlbench
from rlbench.core.state import load as load_file, same
from rlbench.launch import cli
from rlbench.training.runs import find_run

SMALL = ["--steps", "300", "--num-envs", "2", "--set", "horizon=16", "--set", "hidden=16,", "--set", "log_every=50", "--set", "eval_every=0", "--quiet"]
OWN = """
import gymnasium as gym, numpy as np
class Walk(gym.Env):
    "Go right"
    observation_space, action_space = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Discrete(2)
    def __init__(self, length=4): self.length = length
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.t = 0
        return np.zeros(1, np.float32), {}
    def step(self, act):
        self.x, self.t = self.x + 2 * int(act) - 1, self.t + 1
        return np.array([self.x], np.float32), float(act), abs(self.x) >= self.length, self.t >= 20, {}
class Other: pass
"""


@pytest.fixture
def terminal(tmp_path, monkeypatch, capsys):
    "Run a command in an empty folder -> (status, output, errors)"
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        try: status = cli.main([str(word) for word in argv])
        except SystemExit as stop: status = stop.code
        return status, *(text.strip() for text in capsys.readouterr())
    return call


def train(terminal, *more, env="CartPole-v1", algo="ppo"):
    status, out, err = terminal("train", env, algo, *SMALL, *more)
    assert (status, err) == (0, ""), err
    return out


def config(path):
    return json.loads((path / "config.json").read_text())


# ---- training

def test_train_evaluate_play(terminal, tmp_path):
    out = train(terminal)
    assert out.splitlines()[0].startswith("Trainer(CartPole-v1, ppo, 30") and out.endswith(os.path.join("runs", "CartPole-v1-ppo-0"))
    assert {p.name for p in (tmp_path / "runs" / "CartPole-v1-ppo-0").iterdir()} >= {"config.json", "metrics.jsonl", "metrics.csv", "checkpoints", "status.json", "timers.json"}
    for run in ("CartPole-v1-ppo-0", tmp_path / "runs" / "CartPole-v1-ppo-0", find_run("CartPole-v1-ppo-0")):
        status, out, _ = terminal("evaluate", run, "--episodes", 3, "--json")
        answer = json.loads(out)
        assert status == 0 and len(answer["returns"]) == len(answer["lengths"]) == 3 and answer["mean"] == np.mean(answer["returns"])
    assert terminal("evaluate", run, "--episodes", 3)[1].startswith("Evaluation(3 episodes, return")
    again = rlbench.evaluate(rlbench.load(find_run(run)), 3, seed=1)
    assert again.returns.tolist() == answer["returns"]


def test_the_same_in_python(terminal, tmp_path):
    train(terminal, "--seed", 3, "--set", "algo.lr=linear(0.01, 0, 300)", "--run-id", "a")
    here = rlbench.train("CartPole-v1", "ppo", seed=3, steps=300, num_envs=2, horizon=16, hidden=(16,), log_every=50, lr="linear(0.01, 0, 300)", progress=False)
    there = load_file(find_run("a"), "checkpoint")["state"]
    for part in ("learners", "env", "metrics", "streams", "episodes"): assert same(here.snapshot()[part], there[part]), part


def test_who_set_what(terminal, tmp_path):
    (tmp_path / "a.toml").write_text('env = "CartPole-v1"\nalgo = "ppo"\n[default]\ngamma = 0.9\nlr = 0.1\nc_e = 0.5\nseed = 4\n[behaviours.agent]\nlr = 0.2\n[run]\neval_every = 0\n')
    status, _, err = terminal("train", "--config", "a.toml", "--set", "c_e=0.25", "--steps", 40, "--quiet")
    assert (status, err) == (0, "")
    kept = config(tmp_path / "runs" / "CartPole-v1-ppo-4")["settings"]
    assert kept["algo"]["gamma"] == dict(value=.9, source="file a.toml [default]") and kept["algo"]["lr"] == dict(value=.2, source="file a.toml [behaviours.agent]")
    assert kept["algo"]["c_e"] == dict(value=.25, source="command line") and kept["run"]["steps"]["source"] == "command line"
    assert kept["algo"]["lam"]["source"] == "default" and kept["run"]["eval_every"] == dict(value=0, source="file a.toml [run]")


def test_resume_force_initialize_inference(terminal, tmp_path):
    train(terminal)
    status, _, err = terminal("train", "CartPole-v1", "ppo", *SMALL)
    assert status == 2 and "exists already" in err
    train(terminal, "--resume", "--steps", 500)
    assert json.loads((tmp_path / "runs" / "CartPole-v1-ppo-0" / "status.json").read_text())["steps"] >= 500
    train(terminal, "--force")
    assert json.loads((tmp_path / "runs" / "CartPole-v1-ppo-0" / "status.json").read_text())["steps"] < 310
    train(terminal, "--run-id", "b", "--initialize-from", "CartPole-v1-ppo-0")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert train(terminal, "--inference", "--resume").endswith("nothing was written")
    assert train(terminal, "--inference", "--initialize-from", "b", "--run-id", "c").endswith("nothing was written")
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


# ---- mistakes

TRAIN = ("train", "CartPole-v1", "ppo")


@pytest.mark.parametrize("argv,wanted", [
    ((*TRAIN, "--set", "gama=0.9"), "command line: unknown setting 'gama'; did you mean 'gamma'?"),
    ((*TRAIN, "--set", "gamma=2"), "command line: gamma = 2: expected a number from 0 to 1"),
    ((*TRAIN, "--set", "gamma=high"), "gamma = 'high': expected a number"),
    ((*TRAIN, "--set", "run.gamma=0.5"), "gamma belongs to section 'algo'"),
    ((*TRAIN, "--set", "gamma"), "--set 'gamma': expected name=value"),
    ((*TRAIN, "--set", "lr=linear(1)"), "linear takes (start, end, steps)"),
    ((*TRAIN, "--seed", "-1"), "seed = -1: expected a whole number of at least 0"),
    ((*TRAIN, "--steps", "many"), "argument --steps: invalid int value: 'many'"),
    ((*TRAIN, "--sed", "1"), "unrecognized arguments: --sed"),
    ((*TRAIN, "--resume"), "no run to resume"),
    ((*TRAIN, "--resume", "--force"), "give one of them"),
    ((*TRAIN, "--inference"), "say with which weights"),
    ((*TRAIN, "--run-id", "a/b"), "expected one name, not a path"),
    ((*TRAIN, "--initialize-from", "none"), "no run 'none'"),
    ((*TRAIN, "--config", "none.toml"), "file none.toml: no such file"),
    (("train", "CartPool-v1", "ppo"), "did you mean 'CartPole-v1'?"),
    (("train", "CartPole-v1", "pop"), "did you mean 'ppo'?"),
    (("train", "Pendulum-v1", "dqn"), "dqn needs Discrete actions"),
    (("train",), "which env?"),
    (("train", "walk.py:Walk", "ppo"), "walk.py"),
    (("train", "numpy:Walk", "ppo"), "numpy has no Walk"),
    (("evaluate", "none"), "no run 'none', neither as a path nor in runs/"),
    (("evaluate", "none", "--episodes", "0"), "expected a number of at least 1"),
    (("play", "none", "--fps", "0"), "expected a number of at least"),
    (("explain", "dqn", "epps"), "did you mean 'eps'?"),
    (("fly",), "invalid choice: 'fly'"),
    ((), "COMMAND"),
])
def test_a_mistake_costs_one_line(terminal, tmp_path, argv, wanted):
    status, out, err = terminal(*argv)
    assert (status, out, len(err.splitlines())) == (2, "", 1), err
    assert err.startswith("rlbench") and wanted in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text,wanted", [
    ("[default]\ngama = 0.9", ["a.toml [default]", "'gama'", "did you mean 'gamma'"]),
    ("[default]\ngamma = 'x'", ["a.toml [default]", "gamma = 'x'", "expected a number from 0 to 1"]),
    ("[run]\nsteps = 1.5", ["a.toml [run]", "steps = 1.5", "expected a whole number"]),
    ("[runs]\nsteps = 1", ["a.toml", "'runs'", "did you mean 'run'"]),
    ("[default]\ngamma = =", ["a.toml", "line 2"]),
    ("algo = 'dqn'", ["a.toml", "algo = 'dqn'", "'ppo'"]),
])
def test_a_mistake_in_a_file_names_file_key_and_what_was_expected(terminal, tmp_path, text, wanted):
    (tmp_path / "a.toml").write_text(text)
    status, out, err = terminal(*TRAIN, "--config", "a.toml")
    assert (status, out, len(err.splitlines())) == (2, "", 1) and all(word in err for word in wanted), err
    assert not (tmp_path / "runs").exists()


def test_a_damaged_checkpoint(terminal, tmp_path):
    (tmp_path / "a.rlb").write_bytes(b"PK nonsense")
    status, _, err = terminal("evaluate", "a.rlb")
    assert status == 2 and "a.rlb: truncated, damaged or not an rlbench file" in err and len(err.splitlines()) == 1


# ---- environments of one's own

def test_an_environment_from_a_file(terminal, tmp_path):
    (tmp_path / "walk.py").write_text(OWN)
    assert "runs/Walk-ppo-0" in train(terminal, env="walk.py:Walk").replace(os.sep, "/")
    assert config(tmp_path / "runs" / "Walk-ppo-0")["env"] == "walk.py:Walk"
    train(terminal, "--resume", "--steps", 400, env="walk.py:Walk")
    status, out, err = terminal("evaluate", "Walk-ppo-0", "--env", "walk.py:Walk", "--episodes", 2)
    assert status == 0 and out.startswith("Evaluation(2 episodes"), err
    assert "walk.py has no Wolk; environments there: Walk" in terminal("train", "walk.py:Wolk", "ppo")[2]
    status, _, err = terminal("play", "Walk-ppo-0", "--env", "walk.py:Walk")
    assert status == 2 and "cannot be drawn" in err and not (tmp_path / "play.gif").exists()


# ---- pictures

@pytest.mark.parametrize("name,kind", [("a.gif", "GIF"), ("a.webp", "WEBP"), ("a.png", "PNG")])
def test_play_without_a_display(terminal, tmp_path, monkeypatch, name, kind):
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"): monkeypatch.delenv(variable, raising=False)
    train(terminal, env="FrozenLake-v1")
    status, out, err = terminal("play", "FrozenLake-v1-ppo-0", "--output", name, "--max-steps", 7, "--episodes", 9)
    assert (status, out, err) == (0, f"{name}: 7 frames", "")
    image = Image.open(tmp_path / name)
    assert image.format == kind and image.size == (256, 256) and getattr(image, "n_frames", 1) >= 1
    assert "expected a name that ends in" in terminal("play", "FrozenLake-v1-ppo-0", "--output", "a.mp3")[2]


def test_a_moving_picture_has_its_frames(tmp_path):
    pictures = [np.full((9, 8, 3), 20 * i, np.uint8) for i in range(5)]
    cli.write_animation(tmp_path / "a.gif", pictures, 20)
    image = Image.open(tmp_path / "a.gif")
    assert (image.n_frames, image.size, image.info["duration"]) == (5, (8, 9), 50)


# ---- asking

def test_algorithms_and_explain(terminal):
    out = terminal("algorithms")[1]
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(rlbench.algorithms())
    assert all(word in next(line for line in out.splitlines() if line.startswith("dqn")) for word in (" any ", "off-policy, masked", "42_dqn", "Mnih"))
    assert all(word in terminal("explain", "ppo")[1] for word in ("gamma", "checkpoint_every", "num_envs"))
    assert "settles too early" in terminal("explain", "dqn", "eps")[1]


def test_help_is_made_from_the_settings(terminal):
    out = terminal("train", "--help")[1]
    assert all(word in out for word in ("--initialize-from", "checkpoint_every", "environment steps between two checkpoints"))


def test_lab(terminal, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(os, "execv", lambda *args: called.append(args))
    terminal("lab", "Acrobot-v1", "dqn")
    notebook = nbformat.read(tmp_path / "workbench.ipynb", 4)
    nbformat.validate(notebook)
    assert "rlbench.Workbench('Acrobot-v1', 'dqn')" in notebook.cells[0].source and called[0][1][1:4] == ["-m", "jupyterlab", "workbench.ipynb"]
    (tmp_path / "workbench.ipynb").write_text("mine")
    terminal("lab")
    assert (tmp_path / "workbench.ipynb").read_text() == "mine"
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None)
    status, _, err = terminal("lab")
    assert status == 2 and "pip install 'rlbench[lab]'" in err


# ---- Ctrl-C

def test_ctrl_c(terminal, tmp_path):
    command = [sys.executable, "-m", "rlbench", "train", "CartPole-v1", "ppo", *SMALL, "--run-id", "a", "--steps", "100000000"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    lines, patience = tmp_path / "runs" / "a" / "metrics.jsonl", time.monotonic() + 60
    while not (lines.exists() and lines.read_text().count("\n") > 2) and child.poll() is None and time.monotonic() < patience: time.sleep(.02)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (130, "")
    said, checkpoint = out.strip().splitlines()[-1], find_run("a")
    assert said.startswith(f"stopped; all of it is in {checkpoint}.") and "--resume" in said
    steps = load_file(checkpoint, "checkpoint")["state"]["steps"]
    assert json.loads((tmp_path / "runs" / "a" / "status.json").read_text())["state"] == "interrupted" and steps == int(checkpoint.stem)
    train(terminal, "--run-id", "a", "--resume", "--steps", steps + 100)
    assert json.loads((tmp_path / "runs" / "a" / "status.json").read_text())["steps"] >= steps + 100
