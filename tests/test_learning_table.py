"The learning table: how it counts, that its quickest rows come out, and that every preset has the row that proves it"
import json

import numpy as np
import pytest
from scipy.stats import trim_mean

from benchmarks import defaults, learning
from benchmarks.learning_page import page
from benchmarks.learning_tasks import FAMILIES, TASKS
from rlbench.algos.algorithm import algorithms
from rlbench.core.intervals import iqm, iqm_interval
from rlbench.core.words import ConfigError
from rlbench.training.presets import PRESETS, TUNED
from rlbench.training.trainer import Trainer


def test_the_interquartile_mean_is_that_of_the_middle_half():
    x = np.random.default_rng(0).normal(size=(3, 8))
    assert np.allclose(iqm(x), trim_mean(x, .25, axis=-1))
    assert np.isclose(iqm(np.array([-1000, 1., 2., 3., 1000.])), (.75 * 1 + 2 + .75 * 3) / 2.5)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    held = []
    for _ in range(100):
        low, high = iqm_interval(rng.normal(size=20))
        held.append(low <= 0 <= high)
    assert 85 <= sum(held) <= 100                         # a bootstrap of twenty is a little too sure of itself


def test_no_task_stands_twice_and_each_has_an_algorithm():
    assert sum(map(len, FAMILIES.values())) == len(TASKS)
    assert {task.algo for task in TASKS.values()} <= set(algorithms())


@pytest.mark.parametrize("place", TUNED, ids="-".join)
def test_every_preset_is_proved_by_its_row(place):
    env, algo = place
    task = TASKS[TUNED[place].row]
    assert (task.env, task.algo, task.steps, task.preset) == (env, algo, TUNED[place].steps, "tuned")
    rows = [row for row in json.loads(learning.KEPT.read_text()) if row["name"] == TUNED[place].row]
    assert len(rows) >= 5 and {row["task"] for row in rows} == {task.told}


def test_a_preset_is_asked_for_by_name():
    trainer = Trainer("CartPole-v1", "ppo", preset="tuned", gamma=.9)
    assert trainer.config.where("clip_range") == "preset tuned"
    assert trainer.config.where("gamma") == "python"
    asked_and_told = {("tunde", "ppo"): "'tuned'", ("tuned", "bandit"): "some of ppo", (3, "ppo"): "preset 3"}
    for asked, told in asked_and_told.items():
        with pytest.raises(ConfigError, match=told):
            Trainer("CartPole-v1", asked[1], preset=asked[0])
    assert set(PRESETS) == {"tuned"}


def test_what_is_kept_is_not_run_again_and_what_changed_is(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "KEPT", tmp_path / "learning.json")
    monkeypatch.setattr(learning, "RESULTS", tmp_path)
    name = "count-bonus-lake"
    row = dict(name=name, seed=0, task=TASKS[name].told, steps=1, updates=1, minutes=.1, mean=1., std=0., length=1.,
               best=None, curve=[[0, 0.], [1, 1.]])
    other = row | dict(seed=1, task="something else")
    learning.write({(name, 0): row, (name, 1): other})
    assert set(learning.read_kept()) == {(name, 0)}
    assert f"| {name} |" in (tmp_path / "learning.md").read_text()
    assert "reached" in page([row])


@pytest.mark.parametrize("name", ["qlearning-cliff", "count-bonus-lake", "bc-cartpole"])
def test_the_quickest_rows_come_out(name):
    row = learning.train_one(name, seed=0)
    assert row["mean"] >= TASKS[name].level


# ---- defaults

def measured(trial, seed, mean):
    "A row as the benchmark of defaults writes it"
    known = dict(env=trial.env, algo=trial.algo, asked=trial.steps, settings=trial.whole)
    return dict(known, seed=seed, mean=mean, minutes=1.)


def test_a_candidate_is_worth_the_mean_of_its_shares_once_all_its_tasks_are_measured():
    trials = [trial for trial in defaults.trials("ppo") if trial.candidate == "middle"]
    rows = [measured(trial, 100, defaults.WORLDS[trial.env][1] + 10) for trial in trials]
    assert defaults.worth("ppo", "middle", rows[:-1]) is None
    assert defaults.worth("ppo", "middle", rows) == 1      # what is better than good is good
    rows += [measured(trial, 101, sum(defaults.WORLDS[trial.env]) / 2) for trial in trials]
    assert np.isclose(defaults.worth("ppo", "middle", rows), .75)
    assert "| middle |" in defaults.page(rows) and "| long |" not in defaults.page(rows)


def test_a_run_counts_for_whoever_has_its_settings():
    mine, other = (trial for trial in defaults.trials("ppo")
                   if trial.env == "CartPole-v1" and trial.candidate in ("middle", "long"))
    row = measured(mine, 100, 500.)
    assert defaults.is_of(row, mine) and not defaults.is_of(row, other)
    del row["settings"]["sde_sample_freq"]                # measured before there was such a setting
    assert defaults.is_of(row, mine)
