"Environments that cannot be put back: nothing is lost but the episodes that were under way"
import json

import numpy as np
import pytest

import rlbench
from rlbench.core.state import FileProblem, same
from rlbench.launch.cli import main
from rlbench.training.trainer import Trainer, load

pytestmark = pytest.mark.filterwarnings("ignore::rlbench.training.trainer.CannotGoBack")
OWN = """
import gymnasium as gym
import numpy as np

class Drifting(gym.Wrapper):
    gusts = np.random.default_rng()

    def __init__(self, render_mode=None):
        super().__init__(gym.make("CartPole-v1"))

    def step(self, action):
        obs, *rest = self.env.step(action)
        return obs + self.gusts.normal(size=4).astype(np.float32) / 100, *rest
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SMALL = ["--set", "checkpoint_every=100", "--set", "eval_every=100", "--set", "eval_episodes=2", "--quiet"]


def run(*words):
    return main(["train", "own.py:Drifting", "dqn", "--run-id", "a", *SMALL, *words])


def rows_of(place):
    return [json.loads(line) for line in (place / "runs" / "a" / "metrics.jsonl").read_text().splitlines()]


def test_a_run_goes_on_when_told_to(place, capsys):
    assert run("--steps", "150") == 0
    assert run("--steps", "300", "--resume") == 2
    assert "--fresh-episodes" in capsys.readouterr().err
    assert run("--steps", "300", "--resume", "--fresh-episodes") == 0
    assert [row["fresh_episodes"] for row in rows_of(place) if "fresh_episodes" in row] == [1]
    assert run("--steps", "400", "--resume", "--fresh-episodes") == 0
    assert len([row for row in rows_of(place) if "fresh_episodes" in row]) == 2


def test_a_finished_run_is_evaluated_and_initialises_others(place, capsys):
    assert run("--steps", "150") == 0
    capsys.readouterr()
    assert main(["evaluate", "a", "--episodes", "2", "--env", "own.py:Drifting"]) == 0
    assert capsys.readouterr().err == ""                    # it was said before
    second = ["--run-id", "b", "--initialize-from", "a", "--steps", "50", *SMALL]
    assert main(["train", "own.py:Drifting", "dqn", *second]) == 0


@pytest.mark.parametrize("algo, settings", [
    ("ppo", dict(num_envs=2, n_steps=16, batch_size=8)),
    ("dqn", dict(learning_starts=20, n_step=3)),
    ("recurrent_ppo", dict(num_envs=2, n_steps=16)),
])
def test_all_else_is_where_it_was(algo, settings, tmp_path):
    there = Trainer("CartPole-v1", algo, native=False, **settings).run(steps=100)
    there.save(tmp_path / "run.rlb")
    afresh = load(tmp_path / "run.rlb", fresh_episodes=True)
    was = there.state()["learners"]["agent"]
    now = afresh.state()["learners"]["agent"]
    for part in ("optimisers", "own", "data", "todo", "steps", "updates", "fresh"):
        assert same(was[part], now[part]), part
    assert same(was["actor"]["nets"], now["actor"]["nets"])
    assert afresh.steps == there.steps and (afresh.env.episodes["agent"].length == 0).all()
    newest = afresh.learner.memory.aged(0, np.arange(afresh.env.num_envs))
    assert afresh.learner.memory.ends(newest).all()         # nobody's episode goes on in another one
    afresh.run(steps=200)


def test_without_being_told_it_stays_where_it_is(tmp_path):
    def drifting():
        return namespace["Drifting"]()

    namespace = {}
    exec(OWN, namespace)
    trainer = rlbench.Trainer(drifting, "dqn").run(steps=30)
    trainer.save(tmp_path / "run.rlb")
    with pytest.raises(FileProblem, match="fresh_episodes=True"):
        load(tmp_path / "run.rlb", env=drifting)
    assert load(tmp_path / "run.rlb", env=drifting, fresh_episodes=True).steps == 30
