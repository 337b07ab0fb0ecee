"The learning table: how it counts, that its quickest rows come out, and that every preset has the row that proves it"
import json
import os
import subprocess
import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import trim_mean

from benchmarks import defaults, learning
from benchmarks.defaults_rule import STANDS, ahead_of_defaults, is_of, minutes_of, runs_by_task, worth
from benchmarks.learning_page import page
from benchmarks.learning_tasks import FAMILIES, TASKS, otherwise, why_stale
from rlbench.algos.algorithm import REGISTRY, algorithms, get
from rlbench.core.intervals import iqm, iqm_interval
from rlbench.core.words import ConfigError
from rlbench.training.presets import PRESETS, TUNED
from rlbench.training.trainer import Trainer


@pytest.mark.parametrize("seeds", range(1, 12))
def test_the_interquartile_mean_is_that_of_rliable(seeds):
    x = np.random.default_rng(0).normal(size=(3, seeds))
    assert np.allclose(iqm(x), trim_mean(x, .25, axis=-1))


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
    rows = [row for row in learning.read_kept().values() if row["name"] == TUNED[place].row]
    assert len(rows) >= 5


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
    row = row_of(name)
    other = row | dict(seed=1, task="something else")
    unknown = {key: value for key, value in row.items() if key != "settings"} | dict(seed=2)
    learning.write({(name, one["seed"]): one for one in (row, other, unknown)})
    assert set(learning.read_kept()) == {(name, 0)} and len(learning.read_rows()) == 3
    told = (tmp_path / "learning.md").read_text()
    assert f"| {name} |" in told
    assert "reached; to be run again: seed 1, made as something else; to be run again: seed 2, made with" in told
    assert "reached" in page([row]) and "run again" not in page([row])


def row_of(name):
    "A row of the learning table as today's code writes it"
    task = TASKS[name]
    return dict(name=name, seed=0, task=task.told, settings=task.whole, steps=1, updates=1, minutes=.1, looking=.05,
                mean=1., std=0., length=1., best=None, curve=[[0, 0.], [1, 1.]])


def test_a_default_that_changed_makes_the_row_stale(monkeypatch):
    row = row_of("ppo-defaults")
    given = row_of("ppo-cartpole")                        # says its own n_epochs
    assert not why_stale(row) and not why_stale(given)

    @dataclass(frozen=True)
    class Changed(get("ppo")):
        n_epochs: int = 3

    monkeypatch.setitem(REGISTRY, "ppo", Changed)
    assert otherwise(row) == dict(n_epochs=(10, 3)) and not why_stale(given)
    assert "to be run again: seed 0, made with n_epochs=10, now 3" in page([row])
    kept = learning.read_kept()
    assert ("ppo-cartpole", 0) in kept and ("ppo-defaults", 0) not in kept

    @dataclass(frozen=True)
    class Longer(get("ppo")):
        n_epochs: int = 10
        later: float = .5

    monkeypatch.setitem(REGISTRY, "ppo", Longer)          # what came later is taken at its default
    assert not why_stale(row)


def test_every_row_that_is_kept_is_of_todays_settings_and_the_page_is_theirs():
    rows = learning.in_order(learning.read_rows())
    assert {row["name"]: why_stale(row) for row in rows if why_stale(row)} == {}
    assert len(rows) == len(json.loads(learning.KEPT.read_text()))
    assert (learning.RESULTS / "learning.md").read_text() == page(rows)


def test_what_a_stale_row_had_is_told_and_it_is_made_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(learning, "KEPT", tmp_path / "learning.json")
    monkeypatch.setattr(learning, "RESULTS", tmp_path)
    monkeypatch.setattr(learning, "draw", lambda rows, path: None)
    row = row_of("ppo-defaults")
    old = row | dict(seed=1, settings=row["settings"] | dict(lr=.5))
    learning.write({("ppo-defaults", one["seed"]): one for one in (row, old)})
    made = []

    def measured_anew(jobs, workers):
        made.extend(jobs)
        return [row | dict(seed=seed) for _, seed in jobs]

    monkeypatch.setattr(learning, "measure", measured_anew)
    monkeypatch.setattr(sys, "argv", ["learning.py", "--only", "ppo-defaults", "--seeds", "2", "--write"])
    learning.main()
    assert made == [("ppo-defaults", 1)]
    assert "ppo-defaults seed 1 was made with lr=0.5, now 0.001" in capsys.readouterr().out
    assert len(learning.read_kept()) == 2


def test_rows_in_mujoco_are_run_apart():
    worlds = {task.env: gym.spec(task.env).entry_point for task in TASKS.values() if task.env in gym.registry}
    mujoco = {env for env, entry in worlds.items() if "mujoco" in str(entry)}
    assert len(mujoco) > 3 and [name for name, task in TASKS.items() if task.env in mujoco and not task.long] == []


def test_the_page_says_what_looking_at_the_policies_adds():
    row = row_of("ppo-defaults")
    unknown = row | dict(seed=1, looking=None)
    told = page([row, unknown])
    assert "The 2 runs that are not marked as long took 0.0 hours of one processor to train." in told
    assert "It added 0.05 minutes to 0.10 in the 1 runs where it was timed (ppo-defaults)." in told


def test_the_quickest_rows_come_out():
    names = learning.quickest(6)                          # the first are plans, which nobody has to learn
    assert len(names) == 6
    for name in names:
        row = learning.train_one(name, seed=0)
        assert row["mean"] >= TASKS[name].level and not why_stale(json.loads(json.dumps(row)))


WORKERS = """
import sys
import time
from benchmarks.learning import measure

def dwell(name, seed):
    print(name, flush=True)
    time.sleep(90)

if __name__ == "__main__":
    list(measure([("begun", 0), ("begun", 1)], 2, dwell))
"""


def test_workers_end_when_what_started_them_was_killed(tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    env = os.environ | dict(PYTHONPATH=str(learning.RESULTS.parents[1]))
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=env)
    assert [parent.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
    parent.kill()
    assert parent.communicate(timeout=60) == ("", None)   # nobody holds the pipe any more


# ---- defaults

def measured(trial, seed, mean):
    "A row as the benchmark of defaults writes it"
    known = dict(env=trial.env, algo=trial.algo, asked=trial.steps, settings=trial.whole)
    return dict(known, seed=seed, mean=mean, minutes=1.)


def test_a_candidate_is_worth_the_mean_of_its_shares_once_all_its_tasks_are_measured():
    trials = [trial for trial in defaults.trials("ppo") if trial.candidate == "middle"]
    rows = [measured(trial, 100, defaults.WORLDS[trial.env][1] + 10) for trial in trials]
    assert worth("ppo", "middle", rows[:-1]) is None
    assert worth("ppo", "middle", rows) == 1      # what is better than good is good
    rows += [measured(trial, 101, sum(defaults.WORLDS[trial.env]) / 2) for trial in trials]
    assert np.isclose(worth("ppo", "middle", rows), .75)
    assert "| middle |" in defaults.page(rows) and "| long |" not in defaults.page(rows)


def test_a_run_counts_for_whoever_has_its_settings():
    mine, other = (trial for trial in defaults.trials("ppo")
                   if trial.env == "CartPole-v1" and trial.candidate in ("middle", "long"))
    row = measured(mine, 100, 500.)
    assert is_of(row, mine) and not is_of(row, other)
    del row["settings"]["sde_sample_freq"]                # measured before there was such a setting
    assert is_of(row, mine)


def level_rows(name, seeds, part, minutes=1., places=()):
    "Rows of a candidate of PPO's that comes so far on every task; on some of them with the first seed alone"
    trials = [trial for trial in defaults.trials("ppo") if trial.candidate == name]
    for trial in trials:
        low, high = defaults.WORLDS[trial.env]
        for number in range(1 if trial.env in places else seeds):
            mean = low + (part + .01 * number) * (high - low)
            yield measured(trial, 100 + number, mean) | dict(minutes=minutes)


def test_what_a_candidate_misses_is_counted_and_one_that_misses_nothing_takes_the_place():
    stands = list(level_rows(STANDS, 2, .5))
    lander = "LunarLander-v3"

    def missed(*rows, stands=stands):
        return ahead_of_defaults("ppo", [*stands, *rows])

    assert missed(*level_rows("middle", 2, .4)) == {}
    better = list(level_rows("middle", 2, .6))
    assert missed(*better) == {"middle": []}
    told = defaults.page(stands + better)
    assert "| ppo | middle | 0.605 | 0.505 | 6.0 | 6.0 | nothing: it takes the place |" in told
    assert missed(*level_rows("middle", 1, .6)) == {"middle": ["fewer than 2 seeds on every task"]}
    assert missed(*level_rows("middle", 2, .6, places=[lander])) == {"middle": [f"fewer than 2 seeds on {lander}"]}
    few = list(level_rows(STANDS, 2, .5, places=[lander]))
    assert missed(*better, stands=few) == {"middle": [f"fewer than 2 seeds of the defaults on {lander}"]}
    assert f"The defaults have fewer seeds on {lander} than the 2 that the rule asks for." in defaults.page(few)
    assert missed(*level_rows("middle", 2, .6, minutes=1.25)) == {"middle": []}
    assert missed(*level_rows("middle", 2, .6, minutes=1.5)) == {"middle": ["1.50 times the minutes"]}
    close = {"middle": ["ahead by 0.005 where seeds of the same settings differ by 0.010"]}
    assert missed(*level_rows("middle", 2, .505)) == close


def test_minutes_are_of_one_seed_on_every_task_however_many_seeds_each_has():
    rows = list(level_rows("middle", 3, .6, minutes=2., places=["LunarLander-v3", "Pendulum-v1"]))
    assert minutes_of(runs_by_task("ppo", "middle", rows)) == 12


def exceptions_told(page):
    "{(algorithm, candidate): what it misses} as the page's first table has it"
    first = page.partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in first.splitlines() if line.startswith("| ")][2:]
    return {(algo, name): missed for algo, name, *_, missed in cells}


def worths_told(page):
    "{algorithm: {candidate: worth}} as the tables have it, of what was measured on all tasks"
    found = {}
    for section in page.split("\n## ")[1:]:
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
        found[section.split("\n")[0]] = {row[0]: float(row[-1]) for row in rows if row[-1] != "–"}
    return found


def test_the_page_of_defaults_is_its_rows_and_nobody_has_earned_the_place():
    page = (defaults.RESULTS / "defaults.md").read_text()
    assert page == defaults.page(defaults.read_kept())
    told = exceptions_told(page)
    ahead = {(algo, name) for algo, worths in worths_told(page).items()
             for name, its in worths.items() if its > worths[STANDS]}
    assert ahead and set(told) == ahead
    assert {place: missed for place, missed in told.items() if missed.startswith("nothing")} == {}
