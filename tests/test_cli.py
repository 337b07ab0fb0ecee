"""The command `rlbench`: does what the Python functions do, answers a mistake with one line, and takes Ctrl-C well."""
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time

import gymnasium as gym
import nbformat
import numpy as np
import pytest
from PIL import Image

import rlbench
from rlbench.buffers.datasets import load_ring, returns_in, save_ring, to_minari, write_lines
from rlbench.buffers.recordings import read_memory, start_recording
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.core.settings import fields_of
from rlbench.core.state import read_tree, same
from rlbench.launch import cli, commands
from rlbench.training.checkpoints import find_run
from rlbench.training.runs import RunSettings
from rlbench.training.setup import TrainerSettings
from tests.cases import demonstrations

SETTINGS = ("n_steps=16", "hidden=16,", "log_every=50", "eval_every=0")
SMALL = ["--steps", "300", "--num-envs", "2", "--quiet", *(word for text in SETTINGS for word in ("--set", text))]
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


def read(path, name):
    return json.loads((path / name).read_text())


@pytest.mark.parametrize("env", ["CartPole-v1", "rlbench/CliffWalk-v0"])
def test_what_is_suggested_to_a_shell_runs_there(terminal, env):
    status, out, _ = terminal("suggest", env, "--seconds", .4)
    lines = [shlex.split(line) for line in out.splitlines() if line.strip().startswith("rlbench train")]
    assert status == 0 and len(lines) == 2
    for _, *words in lines:
        status, out, err = terminal(*words, "--steps", 300, "--quiet")
        assert status == 0, err


def files(path):
    "Every file and what is in it"
    return {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}


# ---- training

def test_train_evaluate_play(terminal, tmp_path):
    out = train(terminal)
    run = tmp_path / "runs" / "CartPole-v1-ppo-0"
    assert out.splitlines()[0].startswith("Trainer(CartPole-v1, ppo, 30")
    assert out.endswith(os.path.join("runs", "CartPole-v1-ppo-0"))
    there = {path.name for path in run.iterdir()}
    assert there >= {"config.json", "metrics.jsonl", "metrics.csv", "checkpoints", "status.json", "timers.json"}
    for name in ("CartPole-v1-ppo-0", run, find_run("CartPole-v1-ppo-0")):
        status, out, _ = terminal("evaluate", name, "--episodes", 3, "--json")
        answer = json.loads(out)
        assert status == 0 and len(answer["returns"]) == len(answer["lengths"]) == 3
        assert answer["mean"] == np.mean(answer["returns"])
    assert terminal("evaluate", run, "--episodes", 3)[1].startswith("Evaluation(3 episodes, return")
    again = rlbench.evaluate(rlbench.load(find_run(run)), 3, seed=1)
    assert again.returns.tolist() == answer["returns"]


def test_a_run_that_learned_nothing_says_when_it_would(terminal):
    _, out, _ = terminal("train", "CartPole-v1", "ppo", "--steps", 40, "--quiet")
    assert "nothing was learned yet; next: environment step; update after" in out


def test_the_same_in_python(terminal, tmp_path):
    train(terminal, "--seed", 3, "--set", "agent.lr=linear(0.01, 0, 300)", "--device", "cpu", "--run-id", "a")
    how = dict(seed=3, steps=300, num_envs=2, n_steps=16, hidden=(16,), log_every=50, lr="linear(0.01, 0, 300)")
    here = rlbench.train("CartPole-v1", "ppo", progress=False, **how).snapshot()
    there = read_tree(find_run("a"), "checkpoint")["state"]
    for part in ("learners", "env", "metrics", "streams", "obs"):
        assert same(here[part], there[part]), part
    assert read(tmp_path / "runs" / "a", "config.json")["settings"]["trainer"]["device"]["source"] == "command line"


def test_who_set_what(terminal, tmp_path):
    (tmp_path / "a.toml").write_text('env = "CartPole-v1"\nalgo = "ppo"\n'
                                     '[default]\ngamma = 0.9\nlr = 0.1\nent_coef = 0.5\nseed = 4\n'
                                     '[behaviours.agent]\nlr = 0.2\n[run]\neval_every = 0\n')
    status, _, err = terminal("train", "--config", "a.toml", "--set", "ent_coef=0.25", "--steps", 40, "--quiet")
    assert (status, err) == (0, "")
    kept = read(tmp_path / "runs" / "CartPole-v1-ppo-4", "config.json")["settings"]
    assert kept["agent"]["gamma"] == dict(value=.9, source="file a.toml [default]")
    assert kept["agent"]["lr"] == dict(value=.2, source="file a.toml [behaviours.agent]")
    assert kept["agent"]["ent_coef"] == dict(value=.25, source="command line")
    assert kept["run"]["steps"]["source"] == "command line"
    assert kept["agent"]["gae_lambda"]["source"] == "default"
    assert kept["run"]["eval_every"] == dict(value=0, source="file a.toml [run]")


def test_resume_force_initialize_inference(terminal, tmp_path):
    run = tmp_path / "runs" / "CartPole-v1-ppo-0"
    train(terminal)
    status, _, err = terminal("train", "CartPole-v1", "ppo", *SMALL)
    assert status == 2 and "exists already" in err
    train(terminal, "--resume", "--steps", 500)
    assert read(run, "status.json")["steps"] >= 500
    train(terminal, "--force")
    assert read(run, "status.json")["steps"] < 310
    train(terminal, "--run-id", "b", "--initialize-from", "CartPole-v1-ppo-0")
    before = files(tmp_path)
    assert train(terminal, "--inference", "--resume").endswith("nothing was written")
    assert train(terminal, "--inference", "--initialize-from", "b", "--run-id", "c").endswith("nothing was written")
    assert before == files(tmp_path)


def test_several_behaviours(terminal, tmp_path):
    args = ("train", "rlbench/Chase-v0", "chaser=dqn,runner=ppo", *SMALL, "--set", "runner.gamma=0.5")
    status, out, err = terminal(*args)
    assert (status, err) == (0, "") and "chaser: dqn, runner: ppo" in out
    run = tmp_path / "runs" / "Chase-v0-dqn-ppo-0"
    settings = read(run, "config.json")["settings"]
    assert (settings["runner"]["gamma"]["value"], settings["chaser"]["gamma"]["value"]) == (.5, .99)
    assert {"chaser/episodes", "runner/episodes"} <= set((run / "metrics.csv").read_text().splitlines()[0].split(","))
    lines = terminal("evaluate", run, "--episodes", 2)[1].splitlines()
    assert [line.split(":")[0] for line in lines] == ["chaser", "runner"]
    answer = json.loads(terminal("evaluate", run, "--episodes", 2, "--json")[1])
    assert len(answer["runner"]["returns"]) == 2
    mistaken = terminal("train", "rlbench/Chase-v0", "chaser=dqn,runer=ppo")[2]
    assert "unknown behaviour 'runer'; did you mean 'runner'?" in mistaken
    assert "cannot be drawn" in terminal("play", run)[2]


def test_given_data(terminal, tmp_path):
    memory = rlbench.Trainer("CartPole-v1", "dqn", num_envs=1, hidden=(8,)).run(steps=80).learner.memory
    save_ring(tmp_path / "seen.rlb", memory)
    args = ("train", "CartPole-v1", "bc", "--memory", "seen.rlb", "--quiet", "--set", "hidden=8,")
    args += ("--set", "eval_every=0")
    status, out, err = terminal(*args, "--updates", 5)
    assert (status, err) == (0, "") and "0 steps, 5 updates" in out
    assert read(tmp_path / "runs" / "CartPole-v1-bc-0", "status.json")["updates"] == 5
    status, out, err = terminal("train", "CartPole-v1", "bc", "--resume", "--updates", 8, "--quiet")
    assert "nothing more will be learned" not in out
    assert (status, err) == (0, "") and "0 steps, 8 updates" in out
    status, _, err = terminal(*args, "--steps", 5, "--updates", 5, "--run-id", "b")
    assert status == 2 and "give one of them" in err and len(err.splitlines()) == 1
    status, _, err = terminal("train", "CartPole-v1", "bc", "--memory", "none.rlb", "--updates", 5, "--run-id", "b")
    assert status == 2 and "none.rlb: no such file" in err and not (tmp_path / "runs" / "b").exists()
    for name, long in (("c", ("--updates", 999)), ("d", ())):
        status, out, err = terminal(*args, "--set", "n_epochs=1", *long, "--run-id", name)
        assert (status, err) == (0, "") and "nothing more will be learned; raise n_epochs" in out


@pytest.mark.parametrize("name", ["shown.rlb", "shown.jsonl"])
def test_what_a_policy_does_is_recorded_and_learned_from(terminal, tmp_path, name):
    train(terminal, "--run-id", "a")
    how = ("record", "a", "--episodes", 3)
    status, out, err = terminal(*how, "--output", name)
    assert (status, err) == (0, "") and out.startswith(f"{name}: ") and "3 episodes" in out
    digest = out.split()[-1]
    assert terminal(*how, "--output", "again.rlb")[1].split()[-1] == digest
    assert terminal(*how, "--output", "other.rlb", "--seed", 2)[1].split()[-1] != digest
    ring = read_memory(name)
    assert "logp" not in ring.rows and len(returns_in(ring)) == 3
    cloned = terminal("train", "CartPole-v1", "bc", "--memory", name, "--updates", 5, "--run-id", "b", "--quiet")
    assert cloned[0] == 0 and "5 updates" in cloned[1]
    status, _, err = terminal(*how, "--output", name)
    assert status == 2 and "there is such a file" in err


def test_what_a_policy_does_is_kept_by_minari(terminal, tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    train(terminal, "--run-id", "a")
    how = ("record", "a", "--episodes", 2, "--output", "pole/shown-v0")
    status, out, err = terminal(*how)
    assert (status, err) == (0, "") and "2 episodes" in out
    assert len(returns_in(read_memory("pole/shown-v0"))) == 2
    status, out, err = terminal(*how)
    assert (status, out) == (2, "") and "Minari has such a data set" in err and len(err.splitlines()) == 1


def test_as_it_acts_in_training_it_can_be_judged_by(terminal, tmp_path):
    train(terminal, "--run-id", "a", "--set", "gamma=1.0")
    assert terminal("record", "a", "--as-trained", "--episodes", 8, "--output", "own.rlb")[0] == 0
    status, out, _ = terminal("estimate", "a", "--as-trained", "--memory", "own.rlb", "--method", "is", "--json")
    mean = returns_in(read_memory("own.rlb")).mean()
    assert status == 0 and np.isclose(json.loads(out)["value"], mean, rtol=1e-3)
    drawn = ("estimate", "a", "--as-trained", "--memory", "own.rlb", "--method", "is", "--json",
             "--interval", "bootstrap")
    first, again, other = (json.loads(terminal(*drawn, "--seed", seed)[1]) for seed in (1, 1, 2))
    assert first == again != other and first["value"] == json.loads(out)["value"]


def test_what_can_be_typed_is_said_where_no_episode_counts(terminal):
    train(terminal, "--run-id", "a")
    memory = load_ring(record_own(terminal))
    memory.places["act"][:] = 1 - memory.places["act"][:]
    save_ring("other.rlb", memory)
    status, out, err = terminal("estimate", "a", "--memory", "other.rlb", "--method", "wis")
    assert (status, out) == (2, "")
    assert "take greedy=False (--as-trained), or episodes of somebody" in err and "--method dm" not in err


def record_own(terminal):
    "A file of what run a does, greedily, as if it had tossed a coin"
    assert terminal("record", "a", "--episodes", 4, "--output", "own.rlb")[0] == 0
    memory = load_ring("own.rlb")
    rows = memory.gather(memory.latest())
    told = Ring(len(rows), 1)
    logp = np.full((len(rows), 1), np.log(.5))
    told.extend(Batch({name: column[:, None] for name, column in rows.items()}, logp=logp))
    save_ring("own.rlb", told)
    return "own.rlb"


def test_of_several_behaviours_one_is_recorded(terminal, tmp_path):
    args = ("train", "rlbench/Chase-v0", "chaser=dqn,runner=ppo", "--steps", 60, "--run-id", "c", "--quiet")
    assert terminal(*args)[0] == 0
    status, _, err = terminal("record", "c", "--output", "c.rlb")
    assert status == 2 and "which behaviour? There are chaser, runner" in err
    assert terminal("record", "c", "--output", "c.rlb", "--behaviour", "runner", "--episodes", 2)[0] == 0


# ---- mistakes

TRAIN = ("train", "CartPole-v1", "ppo")


@pytest.mark.parametrize("argv,wanted", [
    ((*TRAIN, "--set", "gama=0.9"), "command line: unknown setting 'gama'; did you mean 'gamma'?"),
    ((*TRAIN, "--set", "num_sgd_iter=3"), "unknown setting 'num_sgd_iter' (RLlib); here it is 'n_epochs'"),
    ((*TRAIN, "--set", "gamma=2"), "command line: gamma = 2: expected a number from 0 to 1"),
    ((*TRAIN, "--set", "gamma=high"), "gamma = 'high': expected a number"),
    ((*TRAIN, "--set", "run.gamma=0.5"), "gamma belongs to section 'agent'"),
    ((*TRAIN, "--set", "agnt.gamma=0.5"), "unknown section 'agnt'; did you mean 'agent'?"),
    ((*TRAIN, "--set", "gamma"), "--set 'gamma': expected name=value"),
    ((*TRAIN, "--set", "lr=linear(1)"), "linear takes (start, end, steps)"),
    ((*TRAIN, "--seed", "-1"), "--seed: '-1': expected a whole number of at least 0"),
    ((*TRAIN, "--steps", "many"), "argument --steps: 'many': expected a whole number of at least 0"),
    ((*TRAIN, "--steps", "3", "--updates", "3"), "give one of them"),
    ((*TRAIN, "--sed", "1"), "unrecognized arguments: --sed 1; did you mean --seed?"),
    (("explain", "ppo", "gamma", "--env", "1"), "unrecognized arguments: --env 1; --env is for"),
    (("algorithms", "--seed", "1"), "--seed is for train"),
    ((*TRAIN, "--device", "cuda:77"), "device = 'cuda:77' is not here; there are: cpu"),
    ((*TRAIN, "--folder", ""), "folder: expected the name of a file or folder, got an empty path"),
    ((*TRAIN, "--config", ""), "expected the name of a file or folder, got an empty path"),
    ((*TRAIN, "--run-id", ""), "run_id '': expected one name"),
    ((*TRAIN, "--steps", "nan"), "argument --steps: 'nan': expected a whole number of at least 0"),
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
    (("train", "CartPole-v1"), "which algo?"),
    (("train", "walk.py:Walk", "ppo"), "walk.py"),
    (("train", "numpy:Walk", "ppo"), "numpy has no Walk"),
    (("evaluate", "none"), "no run 'none', neither as a path nor in runs/"),
    (("evaluate", "none", "--episodes", "0"), "expected a whole number of at least 1"),
    (("evaluate", ""), "run: expected the name of a file or folder, got an empty path"),
    (("play", "none"), "no run 'none'"),
    (("play", "none", "--fps", "0"), "expected a number from 0.01 to 1000"),
    (("play", "none", "--fps", "5000"), "expected a number from 0.01 to 1000"),
    (("play", "none", "--fps", "inf"), "expected a number from 0.01 to 1000"),
    (("film", "none", "--fps", "2000"), "expected a number from 0.01 to 1000"),
    (("suggest", "CartPole-v1", "--seconds", "inf"), "expected a number of at least 0.1"),
    (("suggest", "CartPole-v1", "--seconds", "nan"), "expected a number of at least 0.1"),
    (("record", "none", "--output", "a.rlb"), "no run 'none'"),
    (("record", "none", "--output", "a.csv"), "expected a name that ends in .rlb or .jsonl, or a Minari id"),
    (("record", "none"), "required: --output"),
    (("explain", "dqn", "epsilom"), "did you mean 'epsilon'?"),
    (("fly",), "invalid choice: 'fly'"),
    (("tran",), "did you mean train?"),
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
    ("[behaviours.agnt]\nlr = 1", ["a.toml", "unknown behaviour 'agnt'", "did you mean 'agent'"]),
    ("env = 3", ["a.toml", "env = 3", "expected text"]),
])
def test_a_mistake_in_a_file_names_file_key_and_what_was_expected(terminal, tmp_path, text, wanted):
    (tmp_path / "a.toml").write_text(text)
    status, out, err = terminal(*TRAIN, "--config", "a.toml")
    assert (status, out, len(err.splitlines())) == (2, "", 1) and all(word in err for word in wanted), err
    assert not (tmp_path / "runs").exists()


def test_a_damaged_checkpoint(terminal, tmp_path):
    (tmp_path / "a.rlb").write_bytes(b"PK nonsense")
    status, _, err = terminal("evaluate", "a.rlb")
    assert status == 2 and len(err.splitlines()) == 1
    assert "a.rlb: truncated, damaged or not an rlbench file" in err


# ---- environments of one's own

def test_an_environment_from_a_file(terminal, tmp_path):
    (tmp_path / "walk.py").write_text(OWN)
    assert "runs/Walk-ppo-0" in train(terminal, env="walk.py:Walk").replace(os.sep, "/")
    assert read(tmp_path / "runs" / "Walk-ppo-0", "config.json")["env"] == "walk.py:Walk"
    train(terminal, "--resume", "--steps", 400, env="walk.py:Walk")
    status, _, err = terminal("evaluate", "Walk-ppo-0", "--episodes", 2)
    assert status == 2 and "code of your own" in err
    status, out, err = terminal("evaluate", "Walk-ppo-0", "--env", "walk.py:Walk", "--episodes", 2)
    assert status == 0 and out.startswith("Evaluation(2 episodes"), err
    assert "walk.py has no Wolk; environments there: Walk" in terminal("train", "walk.py:Wolk", "ppo")[2]
    status, _, err = terminal("play", "Walk-ppo-0", "--env", "walk.py:Walk")
    assert status == 2 and "cannot be drawn" in err and not (tmp_path / "play.gif").exists()


# ---- pictures

@pytest.mark.parametrize("name,kind", [("a.gif", "GIF"), ("a.webp", "WEBP"), ("a.png", "PNG")])
def test_play_without_a_display(terminal, tmp_path, monkeypatch, name, kind):
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(variable, raising=False)
    train(terminal, env="FrozenLake-v1")
    status, out, err = terminal("play", "FrozenLake-v1-ppo-0", "--output", name, "--max-steps", 7, "--episodes", 9)
    assert (status, out, err) == (0, f"{name}: 7 frames", "")
    image = Image.open(tmp_path / name)
    assert image.format == kind and image.size == (256, 256) and getattr(image, "n_frames", 1) >= 1
    assert "expected a name that ends in" in terminal("play", "FrozenLake-v1-ppo-0", "--output", "a.mp3")[2]


def test_a_moving_picture_has_its_frames(tmp_path):
    pictures = [np.full((9, 8, 3), 20 * i, np.uint8) for i in range(5)]
    commands.write_animation(tmp_path / "a.gif", pictures, 20)
    image = Image.open(tmp_path / "a.gif")
    assert (image.n_frames, image.size, image.info["duration"]) == (5, (8, 9), 50)


# ---- asking

def test_algorithms_and_explain(terminal):
    lines = terminal("algorithms")[1].splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(rlbench.algorithms())
    dqn = next(line for line in lines if line.startswith("dqn"))
    assert all(word in dqn for word in (" any ", "off-policy, masked", "430_dqn", "Mnih"))
    assert all(word in terminal("explain", "ppo")[1] for word in ("gamma", "checkpoint_every", "num_envs", "device"))
    assert "raise it when" in terminal("explain", "dqn", "epsilon")[1]


def test_help_is_made_from_the_settings(terminal):
    out = terminal("train", "--help")[1]
    words = ("--initialize-from", "checkpoint_every", "environment steps between two checkpoints")
    assert all(word in out for word in words)
    settings = cli.common_settings()
    for cls in (TrainerSettings, RunSettings):
        for setting in fields_of(cls):
            default, sentence = settings.pop(setting.name)
            assert (eval(default), sentence) == (setting.default, setting.doc)
    assert not settings and set(cli.SHORT) == set(commands.FLAGS)


HEAVY = ["torch", "numpy", "gymnasium", "matplotlib", "ipywidgets", "tqdm", "PIL"]


def imported(code):
    "Which heavy packages a new Python has imported after this code"
    tell = f"import sys\n{code}\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["evaluate", "--help"], ["train", "--sed", "1"]])
def test_help_imports_nothing_heavy(words):
    assert imported(f"from rlbench.launch.cli import main\ntry: main({words})\nexcept SystemExit: pass") == []


def test_the_package_imports_nothing_heavy_by_itself():
    assert imported("import rlbench\ndir(rlbench)\nassert callable(rlbench.__getattr__)") == []


def test_every_command_has_a_function():
    assert list(cli.TABLES) == list(commands.COMMANDS)


def test_lab(terminal, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(os, "execv", lambda *args: called.append(args))
    terminal("lab", "Acrobot-v1", "dqn")
    notebook = nbformat.read(tmp_path / "workbench.ipynb", 4)
    nbformat.validate(notebook)
    assert "rlbench.Workbench('Acrobot-v1', 'dqn')" in notebook.cells[0].source
    assert called[0][1][1:4] == ["-m", "jupyterlab", "workbench.ipynb"]
    terminal("lab", "Acrobot-v1", "--notebook", "asks.ipynb")
    first, second = nbformat.read(tmp_path / "asks.ipynb", 4).cells
    assert "rlbench.suggest('Acrobot-v1')" in first.source
    assert "choices[0]" in second.source and "preset" in second.source
    (tmp_path / "workbench.ipynb").write_text("mine")
    terminal("lab")
    assert (tmp_path / "workbench.ipynb").read_text() == "mine"
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jupyterlab" else found(name))
    status, _, err = terminal("lab")
    assert status == 2 and "pip install 'rlbench[lab]'" in err


# ---- Ctrl-C

def test_ctrl_c(terminal, tmp_path):
    command = [sys.executable, "-m", "rlbench", *TRAIN, *SMALL, "--run-id", "a", "--steps", "100000000"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    lines = tmp_path / "runs" / "a" / "metrics.jsonl"
    patience = time.monotonic() + 60
    while not (lines.exists() and lines.read_text().count("\n") > 2):
        assert child.poll() is None and time.monotonic() < patience
        time.sleep(.02)
    child.send_signal(signal.SIGINT)
    try: out, err = child.communicate(timeout=60)
    finally: child.kill()
    assert (child.returncode, err) == (130, "")
    said = out.strip().splitlines()[-1]
    checkpoint = find_run("a")
    assert said.startswith(f"stopped; all of it is in {checkpoint}.") and "--resume" in said
    run = tmp_path / "runs" / "a"
    steps = rlbench.load(checkpoint).steps
    assert read(run, "status.json")["state"] == "interrupted" and steps == int(checkpoint.stem)
    train(terminal, "--run-id", "a", "--resume", "--steps", steps + 100)
    assert read(run, "status.json")["steps"] >= steps + 100


def test_data_of_every_kind_are_learned_from(terminal, tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    shown = demonstrations("CartPole-v1", 2, steps=80)
    spaces = [getattr(gym.make("CartPole-v1"), f"{what}_space") for what in ("observation", "action")]
    about = dict(algorithm_name="none", author="rlbench", author_email="none", code_permalink="none", description="-")
    to_minari(shown, "cartpole/chance-v0", *spaces, **about)
    save_ring(tmp_path / "rows.rlb", shown)
    write_lines(tmp_path / "rows.jsonl", shown)
    recorder = start_recording(tmp_path / "rows", 80, 2, block=10)
    recorder.extend(shown.rows)
    recorder.close()
    updates = []
    kinds = ("rows.rlb", "rows.jsonl", "rows", "cartpole/chance-v0", "minari/cartpole/chance-v0")
    for number, name in enumerate(kinds):
        path = tmp_path / name
        words = ["--memory", path if path.exists() else name, "--updates", 5, "--run-id", f"from-{number}"]
        status, _, err = terminal("train", "CartPole-v1", "bc", *words, "--folder", tmp_path / "runs", "--quiet")
        assert status == 0, err
        updates.append(rlbench.load(find_run(f"from-{number}", tmp_path / "runs")).updates)
    assert updates == [5] * len(kinds)
    status, _, err = terminal("train", "CartPole-v1", "bc", "--memory", "none/such-v0", "--folder", tmp_path / "runs")
    assert status != 0 and len(err.splitlines()) == 1


def test_lines_of_more_bits_are_learned_from(terminal, tmp_path):
    shown = demonstrations("CartPole-v1", 1, steps=60)
    for name in ("obs", "next_obs"):
        shown.places[name] = shown.places[name].astype(np.float64)
    write_lines(tmp_path / "wide.jsonl", shown)
    for algo in ("bc", "iql", "discrete_cql"):
        words = ["--memory", tmp_path / "wide.jsonl", "--updates", 3, "--folder", tmp_path / "runs", "--quiet"]
        status, _, err = terminal("train", "CartPole-v1", algo, *words)
        assert status == 0, err
