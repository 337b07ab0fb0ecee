"Files that are almost ours: archives, weights, configurations and folders in which one thing is not as we wrote it"
import io
import json
import os
import signal
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from benchmarks.faults import part_at, replaced
from rlbench.buffers.ring import Ring
from rlbench.core.state import FileProblem, read_tree, same, write_tree
from rlbench.core.words import ConfigError
from rlbench.envs.env import EnvProblem
from rlbench.envs.walks import Walk
from rlbench.launch.cli import main
from rlbench.training import train as module
from rlbench.training.checkpoints import RunProblem, checkpoints_of
from rlbench.training.train import train
from rlbench.training.trainer import Trainer, load
from tests.cases import Case, demonstrations

SMALL = dict(learning_starts=10, hidden=(8,), log_every=20, checkpoint_every=20, eval_every=0, progress=False)
QUICK = ["--quiet", "--set", "checkpoint_every=20", "--set", "eval_every=0", "--set", "learning_starts=10"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(path, algo="dqn", env="CartPole-v1", **settings):
    "A trainer that was written to a file, and the tree in it"
    trainer = Trainer(env, algo, **settings).run(steps=40)
    trainer.save(path)
    return trainer, read_tree(path, "checkpoint")


# ---- archives

def as_npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def test_arrays_that_were_written_by_columns(here):
    trainer, _ = saved("run.rlb", hidden=(8,))
    with zipfile.ZipFile("run.rlb") as old, zipfile.ZipFile("again.rlb", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            array = np.load(io.BytesIO(content)) if name.endswith(".npy") else None
            by_columns = array is not None and array.ndim > 1
            new.writestr(name, as_npy(np.asfortranarray(array)) if by_columns else content)
    assert same(load("again.rlb").state(), trainer.state())


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["tree.json", "0.npy"])
def test_a_name_stands_once_in_an_archive(here, name):
    saved("run.rlb")
    with zipfile.ZipFile("run.rlb", "a") as archive:
        archive.writestr(name, archive.read(name))
    with pytest.raises(FileProblem, match="two of its members have one name"):
        load("run.rlb")


@pytest.mark.parametrize("path", ["a/" * 3000, "x" * 300])
def test_names_that_no_disk_takes(here, path):
    with pytest.raises(ConfigError, match="bytes"):
        load(path)
    with pytest.raises(RunProblem, match="not a path"):
        train("CartPole-v1", "dqn", run_id=path, folder="runs")


# ---- checkpoints

STATE = ("state", "learners", "agent")
COUNTS = ("state", "env", "counts", "episodes", "agent")
ODD = {     # what stands there -> (case, place, value)
    "an episode's return that is none": ("dqn", (*COUNTS, "finished", 0, 1), {}),
    "an episode that is longer than can be counted": ("dqn", (*COUNTS, "length"), np.array([2**63 - 9])),
    "steps that no machine counts to": ("dqn", ("state", "env", "counts", "steps"), 10**400),
    "something carried by who carries nothing": ("dqn", (*STATE, "actor", "carry"), torch.zeros(1, 4)),
    "text for the last loss": ("dqn", (*STATE, "last", "groups", "all", 0), np.array("x")),
    "no groups of the last step": ("dqn", (*STATE, "last", "groups"), (1, 2)),
    "a minibatch without axes": ("ppo", (*STATE, "todo", 0), torch.tensor(3)),
    "a state that is not there": ("value_iteration", (*STATE, "data", "obs"), torch.full((48,), 48)),
    "a memory that nobody gives": ("value_iteration", (*STATE, "given"), True),
    "unknown layers": ("dqn", ("state", "config"), [["x", {"agent.hidden": [20_000, 20_000]}]]),
    "more environments than were seen": ("ppo", ("state", "config"), [["x", {"trainer.num_envs": 60_000}]]),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_not_as_this_run_builds_it_is_refused(here, odd):
    algo, place, value = ODD[odd]
    trainer = Case(algo, "rlbench/CliffWalk-v0" if algo == "value_iteration" else "CartPole-v1").begun()
    while not trainer.episodes.total or (algo == "ppo" and not trainer.learner.todo):
        trainer.advance()
    if algo == "value_iteration": trainer.learner.process()
    trainer.save("run.rlb")
    load("run.rlb").close()
    write_tree("run.rlb", replaced(read_tree("run.rlb", "checkpoint"), place, value), "checkpoint")
    with pytest.raises(FileProblem, match="run.rlb"):
        load("run.rlb")


@pytest.mark.parametrize("column, kind", [("act", np.float16), ("obs", np.uint64), ("rew", "datetime64[s]")])
def test_a_memory_that_was_given_is_looked_at_again(here, column, kind):
    trainer = Case("bc", "CartPole-v1").begun()
    trainer.save("run.rlb")
    tree = read_tree("run.rlb", "checkpoint")
    place = (*STATE, "memory", "rows", column)
    rows = tree["state"]["learners"]["agent"]["memory"]["rows"][column]
    write_tree("run.rlb", replaced(tree, place, rows.astype(np.int64).astype(kind)), "checkpoint")
    with pytest.raises(FileProblem, match=f"its {column} have types|column {column}"):
        load("run.rlb")


def test_memories_that_nothing_can_be_learned_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="value_iteration plans with a model and learns from no memory"):
        Trainer("rlbench/CliffWalk-v0", "value_iteration", memory=Ring(5, 1))
    with pytest.raises(ValueError, match="bc: the memory that is given is empty"):
        Trainer("CartPole-v1", "bc", memory=Ring(5, 1)).advance()
    shown = demonstrations("CartPole-v1", 1, steps=20)
    for algo in ("ppo", "a2c", "stream_q", "recurrent_ppo"):
        with pytest.raises(ConfigError, match=f"{algo} learns from steps as it takes them, and never from the 20 rows"):
            Trainer("CartPole-v1", algo, memory=shown, num_envs=1)
        Trainer("CartPole-v1", algo, memory=Ring(300, 1), num_envs=1).run(20).save("run")       # room for its own
        assert len(load("run").run(20).learner.memory) == 40
    with pytest.raises(ConfigError, match=r"its obs have shapes \(4,\), those of .* have \(6,\)"):
        Trainer("Acrobot-v1", "bc", memory=shown)


# ---- weights to begin with

@pytest.mark.parametrize("place, value", [
    ((), None),
    (("state",), {}),
    (("state", "actors"), 3),
    ((*STATE, "actor"), True),
    ((*STATE, "actor", "nets"), [1]),
    ((*STATE, "actor", "nets", "q.layers.0.bias"), "text"),
    ((*STATE, "actor", "nets", "q.layers.0.bias"), np.zeros(8, np.float32)),
    ((*STATE, "actor", "nets", "q.layers.0.bias"), torch.zeros(8, dtype=torch.complex64)),
])
def test_weights_to_begin_with_are_looked_at(here, capsys, place, value):
    _, tree = saved("run.rlb", hidden=(8,))
    write_tree("sly.rlb", replaced(tree, place, value), "checkpoint")
    with pytest.raises(FileProblem, match="sly.rlb"):
        train("CartPole-v1", "dqn", steps=20, initialize_from="sly.rlb", **SMALL)
    assert main(["train", "CartPole-v1", "dqn", "--initialize-from", "sly.rlb", "--set", "hidden=8", *QUICK]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# ---- run folders

@pytest.mark.parametrize("wrong", [
    lambda kept: kept.pop("settings"),
    lambda kept: kept.update(settings=3),
    lambda kept: kept["settings"].update(run=[]),
    lambda kept: kept["settings"]["run"].update(steps=5),
    lambda kept: kept["settings"]["run"]["steps"].pop("source"),
    lambda kept: kept["settings"]["run"].update(steps=dict(source="x")),
    lambda kept: kept["settings"]["run"].update(steps=dict(source="x", value="many")),
    lambda kept: kept["settings"]["run"].update(stepps=dict(source="x", value=3)),
])
def test_a_configuration_that_is_none_loses_nothing(here, wrong, capsys):
    train("CartPole-v1", "dqn", run_id="a", steps=40, **SMALL)
    path = here / "runs" / "a" / "config.json"
    good = path.read_text()
    kept = json.loads(good)
    wrong(kept)
    path.write_text(json.dumps(kept))
    before = [one.read_bytes() for one in checkpoints_of(path.parent)]
    with pytest.raises(FileProblem, match="config.json: damaged"):
        train("CartPole-v1", "dqn", run_id="a", steps=60, resume=True, **SMALL)
    assert main(["train", "CartPole-v1", "dqn", "--run-id", "a", "--resume", *QUICK]) == 2
    assert before == [one.read_bytes() for one in checkpoints_of(path.parent)]
    path.write_text(good)
    assert train("CartPole-v1", "dqn", run_id="a", steps=60, resume=True, **SMALL).steps == 60


def test_who_begins_at_the_same_moment_overwrites_nothing(here, monkeypatch):
    made = module.new_trainer

    def slow(*how):
        "While one is made, another run of this name begins and ends"
        monkeypatch.setattr(module, "new_trainer", made)
        train("CartPole-v1", "dqn", run_id="a", steps=60, **SMALL)
        return made(*how)

    monkeypatch.setattr(module, "new_trainer", slow)
    with pytest.raises(RunProblem, match="exists already"):
        train("CartPole-v1", "dqn", run_id="a", steps=20, **SMALL)
    assert load(checkpoints_of("runs/a")[-1]).steps == 60


@pytest.mark.parametrize("name", ["config.json", "status.json", "metrics.jsonl", "checkpoints/000000000099.rlb"])
def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(here, name):
    train("CartPole-v1", "dqn", run_id="a", steps=40, **SMALL)
    path = here / "runs" / "a" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises((FileProblem, ConfigError), match="no ordinary file"):
        train("CartPole-v1", "dqn", run_id="a", steps=60, resume=True, **SMALL)


def test_folders_with_names_of_ours_are_let_be(here):
    train("CartPole-v1", "dqn", run_id="a", steps=40, **SMALL)
    folders = [here / "runs" / "a" / name for name in ("checkpoints/000000000099.rlb", ".x.deadbeef.part")]
    for folder in folders: folder.mkdir()
    assert train("CartPole-v1", "dqn", run_id="a", steps=60, resume=True, **SMALL).steps == 60
    assert train("CartPole-v1", "dqn", run_id="a", steps=20, force=True, **SMALL).steps == 20
    assert all(folder.is_dir() for folder in folders)


# ---- what a file may choose

def test_no_setting_of_an_environment_names_code(here, monkeypatch):
    (here / "sly.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(str(here))
    (here / "run.toml").write_text('env = "rlbench/Copies-v0"\nalgo = "qlearning"\n'
                                   '[env_settings]\nworld = "sly:World-v0"\n')
    with pytest.raises(EnvProblem, match="names code to run"):
        train(config="run.toml", progress=False)
    _, tree = saved("run.rlb", "qlearning", "rlbench/Copies-v0")
    write_tree("run.rlb", tree | dict(env_settings=dict(world="sly:World-v0")), "checkpoint")
    with pytest.raises(FileProblem, match="names code to run"):
        load("run.rlb")


@pytest.mark.parametrize("env, settings", [
    ("Walk", dict(states=10**9 + 1)),
    ("Bias", dict(actions=10**9)),
    ("Copies", dict(copies=10**9)),
    ("DynaMaze", dict(copies=10**9)),
    ("Bandit", dict(arms=10**5, machines=10**5)),
    ("Gambler", dict(goal=10**6)),
])
def test_no_setting_fills_the_memory(env, settings):
    with pytest.raises(EnvProblem, match="expected"):
        Trainer(f"rlbench/{env}-v0", "qlearning", env_settings=settings)


@pytest.mark.parametrize("settings", [dict(copies=9999, settings=dict(states=9999)), dict(copies=10_000)])
def test_many_copies_of_a_large_world_are_too_many(settings):
    with pytest.raises(EnvProblem, match="expected at most 250,000"):
        Trainer("rlbench/Copies-v0" if len(settings) > 1 else "rlbench/DynaMaze-v0", "qlearning", env_settings=settings)


def test_a_long_corridor_takes_no_more_than_its_states():
    tracemalloc.start()
    Walk(states=20_001)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.parametrize("env, algo, asked, told", [
    ("rlbench/Walk-v0", "td", dict(states=20_001), "20,003 states or actions, and the file holds "),
    ("rlbench/RepeatAfterMe-v0", "dqn", dict(symbols=10**8), "100,000,000 states or actions, and the file holds "),
    ("CartPole-v1", "dqn", dict(frame_stack=10**8), "frame_stack = 100,000,000, and the file holds observations of 4 "),
])
def test_no_environment_is_larger_than_its_file(here, env, algo, asked, told):
    _, tree = saved("run.rlb", algo, env)
    write_tree("run.rlb", tree | dict(env_settings=asked), "checkpoint")
    with pytest.raises(FileProblem, match=told):
        load("run.rlb")


def test_what_was_made_with_settings_is_loaded_with_them(here):
    for env, algo, asked in (("CartPole-v1", "dqn", dict(frame_stack=3)), ("rlbench/Walk-v0", "td", dict(states=2999)),
                             ("rlbench/RepeatAfterMe-v0", "dqn", dict(symbols=5))):
        saved("run.rlb", algo, env, env_settings=asked)
        load("run.rlb").close()


def test_terminals_with_few_letters(here, monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii", write_through=True))
    assert main(["train", "CartPole-v1", "dqn", "--folder", "ünï", "--steps", "20", *QUICK]) == 0
    assert rb"run in \xfcn\xef" in shown.getvalue()


@pytest.mark.parametrize("place", [("actor", "nets", "target.layers.0.bias"),
                                   ("optimisers", "all", "state", 0, "exp_avg")])
def test_weights_and_moments_are_finite(here, place):
    trainer = Case("dqn", "CartPole-v1").begun()
    trainer.save("run.rlb")
    tree = read_tree("run.rlb", "checkpoint")
    sly = part_at(tree, (*STATE, *place)).clone()
    sly[0] = -np.inf
    write_tree("run.rlb", replaced(tree, (*STATE, *place), sly), "checkpoint")
    with pytest.raises(FileProblem, match="numbers that are not finite"):
        load("run.rlb")


@pytest.mark.parametrize(("package", "env", "extra"), [("Box2D", "LunarLander-v3", "box2d"),
                                                       ("mujoco", "HalfCheetah-v5", "mujoco")])
def test_an_environment_whose_package_is_missing(monkeypatch, capsys, package, env, extra):
    monkeypatch.setitem(sys.modules, package, None)
    for name in list(sys.modules):
        if name.startswith(f"gymnasium.envs.{extra}"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(EnvProblem, match=rf"{env} needs a package that is not installed: .*rlbench\[{extra}\]"):
        Trainer(env, "ppo")
    assert main(["train", env, "ppo", *QUICK]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# ---- settings and endings

@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("name", ["gamma", "lr", "hidden"])
def test_numbers_of_many_digits(name, digits):
    for value in (10**digits, -10**digits):
        with pytest.raises(ConfigError, match=f"{name} = .*: expected"):
            Trainer("CartPole-v1", "ppo", **{name: value})


def test_words_that_no_parser_takes(here, capsys):
    words = ["train", "CartPole-v1", "ppo", *QUICK, "--set", f"gamma={'-' * 50_000}1"]
    assert main(words) == 2 and capsys.readouterr().err.count("\n") == 1


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def sign(request):
    "A signal that is heard, though nohup may have started the tests"
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_terminal_that_is_closed_costs_nothing(here, sign):
    def closed(trainer, event):
        if trainer.steps == 30 and event.kind == "collect":
            signal.raise_signal(sign)

    part = train("CartPole-v1", "dqn", run_id="a", steps=60, callbacks=[closed], **SMALL)
    assert part.interrupted and part.steps == 30
    train("CartPole-v1", "dqn", run_id="a", steps=60, resume=True, **SMALL)
    whole = train("CartPole-v1", "dqn", run_id="b", steps=60, **SMALL)
    assert same(load(checkpoints_of("runs/a")[-1]).state(), whole.state())
