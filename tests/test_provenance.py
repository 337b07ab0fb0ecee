"What was done to a run is written down, and whoever runs that has the same state, to the bit"
import json
import subprocess
import sys

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from rlbench.core.digests import OtherVersions
from rlbench.core.words import ConfigError
from rlbench.lab.hands import Hands
from rlbench.lab.histories import write_notebook, write_script
from rlbench.lab.player import Player
from tests.cases import CASES, demonstrations, differs
from tests.test_player import SMALL
from tests.test_workbench import bench      # noqa: F401

REPLAY = dict(seed=0, learning_starts=20, batch_size=8)


def hands_on(trainer):
    return Hands(Player(trainer, "sync"))


# every algorithm, any order of deeds

def goes_on(hands, rng):
    hands.step(str(rng.choice(["event", "step", "update"])), int(rng.integers(1, 9)))


def sets(hands, rng):
    hands.set(gamma=float(rng.choice([.5, .7, .9])))


def switches(hands, rng):
    which = str(rng.choice(["collecting", "learning"]))
    hands.switch(**{which: False}).step("event", 2).switch(**{which: True})


def edits(hands, rng):
    row = int(rng.integers(6)) if rng.random() < .5 else "age < 3"
    hands.edit(row, rew=float(rng.normal()))


def learns_more(hands, rng):
    hands.learn(int(rng.integers(1, 4)))


def goes_back(hands, rng):
    timeline = hands.player.timeline
    hands.rewind(int(rng.integers(timeline.path[0][0].since, timeline.at + 1)))


def forks_off(hands, rng):
    if len(hands.forks.known) < 3:
        hands.beside(gamma=float(rng.choice([.3, .4])))


def goes_over(hands, rng):
    hands.go_on(str(rng.choice(list(hands.forks.known))))


DEEDS = [goes_on, goes_on, goes_on, sets, switches, edits, learns_more, goes_back, forks_off, goes_over]


def does(hands, rng, n):
    "So many deeds in any order, those that are refused not among them"
    for number in rng.integers(len(DEEDS), size=n):
        try: DEEDS[number](hands, rng)
        except ValueError: continue


def repeated(script, **scope):
    "{name: trainer} of all runs that a script makes"
    exec(script, scope)
    return scope.get("runs") or dict(run=scope["trainer"])


def told(trainer):
    "All but who set what"
    return {name: part for name, part in trainer.state().items() if name != "config"} | dict(digest=trainer.digest())


@pytest.mark.parametrize("case", [case for case in CASES if not case.extra], ids=str)
def test_the_history_of_any_algorithm_leads_to_the_same_bits(case):
    hands = hands_on(case.trainer(num_envs=2))
    hands.step("event", 12)
    does(hands, np.random.default_rng(CASES.index(case)), 9)
    script = write_script(hands.forks)
    given = any(learner.given for learner in hands.trainer.learners.values())
    scope = dict(memory=demonstrations(case.env, 2)) if given else {}
    assert ("assert " in script) != given, script
    runs = repeated(script, **scope)
    for name, run in hands.forks.known.items():
        assert differs(told(runs[name]), told(run.trainer)) == "", script
    hands.player.close()
    for run in runs.values(): run.close()


def test_in_a_fresh_process(bench, tmp_path):                                           # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25).set(lr=.01).step("update", 3).step("step", 4)
    wb.rewind("update", -2).edit("age < 5 and not term", rew=3.).learn(4).beside("short sight", gamma=.5)
    wb.step("step", 9).beside(lr=.1)
    wb.step("episode").go_on("short sight").set(gamma=.6).step("update")
    script = wb.script(tmp_path / "history.py")
    assert (tmp_path / "history.py").read_text() == script and script.count(".fork()") == 2
    found = subprocess.run([sys.executable, "history.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(run.trainer.digest() in found.stdout for run in wb.forks.known.values())
    assert "Left again: events" in script and "rows_where" in script.split("runs = {}")[0]
    with pytest.raises(AssertionError, match="these are other states"):
        repeated(script.replace("= 3.0", "= 4.0"))


def test_a_script_of_one_run_is_short_and_says_when(bench):                             # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.step("update", 3).set(gamma=.9).step("step", 2)
    script = wb.script()
    assert "runs" not in script and "# event 13: step 8, update 4" not in script
    moments = [line for line in script.splitlines() if line.startswith("# event")]
    assert len(moments) == 3 and moments[0] == "# event 0: step 0, update 0"
    assert f"update {wb.trainer.updates}" in moments[-1]
    assert f"assert digest == '{wb.trainer.digest()}'" in script


# what cannot be repeated

def test_what_no_line_repeats_is_said_at_the_top_and_no_digest_is_claimed(bench):       # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25).beside("before", gamma=.5)
    wb.call(lambda trainer: trainer.learner.nets)
    script = wb.script()
    top, _ = script.split("import rlbench", 1)
    assert "<lambda> was called on the trainer" in top and "# - run, after event" in top
    assert f"expected = {{'before': '{wb.forks['before'].trainer.digest()}'}}" in script
    assert list(repeated(script)) == ["before", "run"]
    wb.drop("before")
    assert "No digest is claimed" in wb.script() and "assert " not in wb.script()


def test_a_place_that_changed_past_the_workbench_is_said(bench):                        # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25)
    wb.trainer.restore(wb.trainer.snapshot())
    assert "the place changed past the workbench" in wb.script().split("import rlbench")[0]


def test_environments_from_a_function_are_said_to_come_from_outside(bench):             # noqa: F811
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv
    wb = bench(lambda: CartPoleEnv(), "dqn", views=["curve"], **REPLAY).step("step", 3)
    script = wb.script()
    assert "env: comes from outside" in script.split("import rlbench")[0] and "assert " not in script
    assert repeated(script, env=CartPoleEnv)["run"].steps == 3


def test_names_that_only_this_process_knows_are_said():
    from rlbench.lab.histories import doubts_of
    homes = dict(mine="__main__", theirs="some.module")
    assert doubts_of([], homes) == ["mine: registered by code in no module, define it before"]


def test_a_run_that_was_broken_off_has_no_digest(bench):                                # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.step("step", 2)
    wb.trainer.begun = 1.
    assert "an event has begun and did not come to its end" in wb.script().split("import rlbench")[0]
    wb.trainer.begun = None


def test_a_file_that_is_loaded_is_named(bench, tmp_path, monkeypatch):                  # noqa: F811
    monkeypatch.chdir(tmp_path)
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25).save("run.rlb").load("run.rlb").step("step", 3)
    script = wb.script()
    assert "It loads run.rlb, which must be as it was." in script
    assert differs(told(repeated(script)["run"]), told(wb.trainer)) == ""
    wb.save("run.rlb")
    assert "run.rlb was written or moved since" in wb.script() and "assert " not in wb.script()


def test_other_versions_are_told_and_stop_nobody(bench):                                # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    script = wb.step("update").script()
    with pytest.warns(OtherVersions, match=r"written with torch 0\.1 \(here: "):
        repeated(script.replace("torch='", "torch='0.1' or '"))


# notebooks

def test_the_notebook_is_valid_and_says_the_same(bench, tmp_path):                      # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25).beside("a `name` of *its* own", gamma=.5)
    wb.step("step", 4).notebook(tmp_path / "history.ipynb")
    found = nbformat.read(tmp_path / "history.ipynb", as_version=4)
    nbformat.validate(found)
    code = "\n\n".join(cell.source for cell in found.cells if cell.cell_type == "code")
    runs = repeated(code)
    assert {name: run.digest() for name, run in runs.items()} == {
        name: run.trainer.digest() for name, run in wb.forks.known.items()}
    assert code.count("# event") == wb.script().count("# event")


@pytest.mark.slow
def test_the_notebook_runs(bench, tmp_path):                                            # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.step("update", 3).set(gamma=.9).step("step", 2).notebook(tmp_path / "history.ipynb")
    done = NotebookClient(nbformat.read(tmp_path / "history.ipynb", 4), timeout=60).execute()
    assert wb.trainer.digest() in json.dumps(done.cells[-1].outputs)


def test_names_end_as_they_should(bench, tmp_path):                                     # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    with pytest.raises(ConfigError, match=r"script: '.*run\.rlb': expected a name that ends in \.py"):
        wb.script(tmp_path / "run.rlb")
    with pytest.raises(ConfigError, match=r"notebook: .*expected a name that ends in \.ipynb"):
        write_notebook(wb.forks, tmp_path / "run.py")
    assert list(tmp_path.iterdir()) == []
