"What was done to a run is written down, and whoever runs that has the same state, to the bit"
import ast
import base64
import io
import json
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser

import gymnasium as gym
import nbformat
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from nbclient import NotebookClient
from PIL import Image

from rlbench.buffers.datasets import load_ring, save_ring
from rlbench.buffers.recordings import read_memory
from rlbench.buffers.ring import Ring
from rlbench.core.digests import OtherVersions
from rlbench.core.state import FileProblem
from rlbench.core.words import ConfigError
from rlbench.envs.env import EnvProblem
from rlbench.lab.hands import operations
from rlbench.lab.time import journal
from rlbench.lab.time.histories import doubts_of, write_notebook
from rlbench.lab.pictures.components import as_page
from rlbench.lab.views.updates import sum_text
from rlbench.launch.cli import main
from rlbench.training.checkpoints import RunProblem
from rlbench.training.films import film, take
from rlbench.training.pictures import write_animation
from rlbench.training.train import train
from rlbench.training.trainer import Trainer
from tests.cases import demonstrations, differs
from tests.test_player import SMALL
from tests.test_workbench import bench, part      # noqa: F401

NASTY = "<b0>'\"&</b0>"
REPLAY = dict(seed=0, learning_starts=20, batch_size=8)


def make_pole():
    "An environment by a function that an import finds"
    return gym.make("CartPole-v1")


def repeated(script, **scope):
    "{name: trainer} of all runs that a script makes"
    exec(script, scope)
    return scope.get("runs") or dict(run=scope["trainer"])


def digests_claimed(script):
    "{name: digest} of what a script asserts"
    return ast.literal_eval(script.partition("expected = ")[2].partition("}")[0] + "}")


def told(trainer):
    "All but who set what"
    return {name: part for name, part in trainer.state().items() if name != "config"} | dict(digest=trainer.digest())


def test_in_a_fresh_process(bench, tmp_path):                                           # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25).set(lr=.01).step("update", 3).step("step", 4)
    wb.rewind("update", -2).edit("age < 5 and not term", rew=3.).learn(4).beside("short sight", gamma=.5)
    wb.step("step", 9).beside(lr=.1)
    wb.step("episode").go_on("short sight").set(gamma=.6).step("update")
    script = wb.script(tmp_path / "history.py")
    assert (tmp_path / "history.py").read_text() == script and script.count(".fork()") == 3   # two, and a way
    found = subprocess.run([sys.executable, "history.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(run.trainer.digest() in found.stdout for run in wb.forks.known.values())
    assert "rows_where" in script.split("runs = {}")[0]
    with pytest.raises(AssertionError, match="these are other states"):
        repeated(script.replace("= 3.0", "= 4.0"))


def test_ways_that_were_left_again_are_gone_in_a_fresh_process(bench, tmp_path):        # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 40).rewind("step", -5).set(lr=.01).step("step", 12)                 # nothing was done on the first
    wb.beside("sharp", gamma=.5)                                                        # and this one leaves the second
    wb.step("step", 4).rewind("step", -8).edit("age < 5 and not term", rew=3.).step("step", 6)
    wb.rewind("step", -2).switch(learning=False).step("step", 3)                        # a way off a way off a way
    wb.rewind("step", -30).set(lr=.1).step("step", 7)
    wb.rewind("step", -1).learn(3).rewind("step", -1)
    wb.go_on("sharp").step("step", 5).rewind("step", -3).set(gamma=.4)
    ends = {run.timeline.twin(branch.path(branch.end, len(branch.deeds))).digest()
            for run in wb.forks.known.values() for branch in run.timeline.ways}
    script = wb.script(tmp_path / "history.py")
    expected = digests_claimed(script)
    names = ["run", *(f"run, way {n}" for n in range(1, 7)), "sharp", "sharp, way 1"]
    assert list(expected) == names and ends == set(expected.values())
    assert "Left 'run, way 2' after event 68" in script and "7 ways" in script.split("import rlbench")[0]
    found = subprocess.run([sys.executable, "history.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(digest in found.stdout for digest in expected.values())


def test_a_fork_that_went_back_to_before_it_was_one_is_told_from_there(bench):            # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("event", 40).rewind(30).act(0).step("event", 9)
    wb.beside("other", lr=.01)
    wb.step("step", 2).go_on("other").rewind(40, branch=1).learn(2)    # on the way that its run had left
    script = wb.script()
    assert set(repeated(script)) == set(digests_claimed(script)) > {"run", "other"}


def test_to_ask_a_policy_changes_nothing(bench):                                         # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    before = wb.step("step", 25).trainer.digest()
    wb.break_when(obs=np.zeros(4, np.float32))
    wb.trainer.policy.act(np.zeros(4, np.float32))
    assert wb.trainer.digest() == before
    drawn = {wb.trainer.policy.act(np.zeros(4, np.float32), greedy=False) for _ in range(30)}
    assert wb.trainer.digest() == before and drawn == {0, 1}        # from a stream beside the run
    repeated(wb.step("step", 2).script())


def test_a_way_is_whatever_was_left_and_nothing_else(bench):                            # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25).rewind("step", -3).step("step", 1)                              # its future is still its own
    assert "way" in wb.script() and digests_claimed(wb.script())["run"] == wb.trainer.digest()
    wb.step("step", 2)
    assert "runs" not in wb.script()                                                    # and now nothing was left


def test_a_way_that_no_line_repeats_claims_nothing_and_says_so_once(bench):             # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25).call(lambda trainer: trainer.learner.nets)
    wb.step("step", 5).rewind("step", -2).set(lr=.01).step("step", 2).rewind("step", -10).set(lr=.1)
    script = wb.script()
    assert list(digests_claimed(script)) == ["run"] and "runs['run, way 2']" in script
    assert script.count("<lambda> was called on the trainer") == 2                      # at the top, and where it was
    assert set(repeated(script)) == {"run, way 1", "run, way 2", "run"}


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
    assert digests_claimed(script) == {"before": wb.forks["before"].trainer.digest()}
    assert list(repeated(script)) == ["before", "run"]
    wb.drop("before")
    assert "No digest is claimed" in wb.script() and "assert " not in wb.script()


def test_a_place_that_changed_past_the_workbench_is_said(bench):                        # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25)
    wb.trainer.restore(wb.trainer.snapshot())
    assert "the place changed past the workbench" in wb.script().split("import rlbench")[0]


HANDS = dict(
    act=lambda trainer: trainer.act(1),
    choose=lambda trainer: trainer.choose(1),
    world=lambda trainer: trainer.set_env(gravity=20.),
    owe=lambda trainer: trainer.learner.owe(3),
)


@pytest.mark.parametrize("lend", HANDS.values(), ids=HANDS)
def test_a_hand_that_is_lent_past_the_workbench_is_said(bench, lend):                    # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25)
    lend(wb.trainer)
    wb.step("step", 10)
    at, there = wb.timeline.at, wb.trainer.digest()
    script = wb.script()
    assert "the place changed past the workbench" in script and "run" not in digests_claimed(script)
    wb.step("step", 5).rewind(at)
    assert wb.trainer.digest() == there


def test_what_was_put_into_a_run_before_its_first_event_is_said(bench):                  # noqa: F811
    heavy = Trainer("CartPole-v1", "dqn", **REPLAY)
    heavy.set_env(gravity=20.)
    warm = Trainer("CartPole-v1", "dqn", **REPLAY)
    for weight in warm.learner.nets.parameters(): weight.data *= .5
    assert "a hand was lent before the first event" in bench(heavy).step("step", 5).script()
    assert "the run held something before its first event" in bench(warm).step("step", 5).script()
    assert "No line repeats" not in bench(Trainer("CartPole-v1", "dqn", **REPLAY)).step("step", 5).script()


def test_environments_from_a_function_are_said_to_come_from_outside(bench):             # noqa: F811
    wb = bench(lambda: CartPoleEnv(), "dqn", views=["curve"], **REPLAY).step("step", 3)
    script = wb.script()
    assert "env: comes from outside" in script.split("import rlbench")[0] and "assert " not in script
    assert repeated(script, env=CartPoleEnv)["run"].steps == 3


def chased_by_a_given_actor():
    known = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), seed=0, learning_starts=20)
    return Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner=known.actors["runner"]), seed=0, learning_starts=20)


def shown_by_others():
    return Trainer("CartPole-v1", "bc", memory=demonstrations("CartPole-v1", 2), seed=0, num_envs=2)


GIVEN = [(shown_by_others, "memory"), (chased_by_a_given_actor, "runner_actor")]


@pytest.mark.parametrize("make, name", GIVEN)
def test_a_script_that_needs_what_is_outside_says_so_in_a_fresh_process(bench, make, name, tmp_path,    # noqa: F811
                                                                        monkeypatch):
    monkeypatch.setattr(journal, "MANY_NUMBERS", 3)
    trainer = make()
    held = dict(memory=trainer.learners["agent"].memory.twin()) if name == "memory" else dict(trainer.actors)
    bench(trainer, views=["curve"]).step("event", 30).script(tmp_path / "run.py")
    done = subprocess.run([sys.executable, tmp_path / "run.py"], capture_output=True, text=True)
    told = f"NameError: {{'{name}'}} came from outside this script: define them above this line"
    assert done.returncode and done.stderr.strip().splitlines()[-1] == told
    given = held.get("memory") or held["runner"]
    there = repeated((tmp_path / "run.py").read_text(), **{name: given})["run"]
    assert there.steps == trainer.steps and there.updates == trainer.updates


def written_on():
    "A memory that a run goes on writing into; and its settings"
    memory = demonstrations("CartPole-v1", 2)
    return Trainer("CartPole-v1", "dqn", memory=memory, seed=0, num_envs=2, learning_starts=20, batch_size=8)


def imitated():
    return Trainer("CartPole-v1", "gail", memory=demonstrations("CartPole-v1", 3), seed=0, num_envs=2, n_steps=8)


def chased_by(algo, **more):
    "By an actor that learned before, and learns no more"
    def make():
        known = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner=algo), seed=0, learning_starts=20, **more)
        known.run(steps=40)
        cast = dict(chaser="dqn", runner=known.actors["runner"])
        return Trainer("rlbench/Chase-v0", cast, seed=0, learning_starts=20)
    return make


def acted_by_a_table():
    lake = dict(env_settings=dict(is_slippery=False))
    return Trainer("FrozenLake-v1", Trainer("FrozenLake-v1", "qlearning", **lake).run(steps=90).actors["agent"], **lake)


def shown_to_one_of_two():
    shown = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="sac"), seed=0, num_envs=2).run(steps=40)
    memory = dict(chaser=shown.learners["chaser"].memory)
    return Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), memory=memory, seed=1, num_envs=2,
                   learning_starts=20)


MADE = [shown_by_others, written_on, imitated, chased_by("sac"), chased_by("ppo", traced=True),
        chased_by("recurrent_ppo", **{"runner.n_steps": 8}), acted_by_a_table, shown_to_one_of_two]


@pytest.mark.parametrize("make", MADE)
def test_what_was_given_is_in_the_script_with_its_numbers(bench, make):                 # noqa: F811
    wb = bench(make(), views=["curve"]).step("event", 30)
    wb.beside("other")
    wb.step("event", 5)
    script = wb.script()
    assert "outside" not in script and set(repeated(script)) == {"run", "other"}
    assert repeated(wb.snippet())["run"].digest() == wb.trainer.digest()


class OwnRing(Ring):
    "Somebody's own, that an import finds"


def test_a_memory_is_told_only_where_its_class_and_its_rows_are_known(bench):           # noqa: F811
    mine = Trainer("CartPole-v1", "dqn", memory=OwnRing(90, 2), num_envs=2, **REPLAY)
    wb = bench(mine, views=["curve"]).step("step", 30)
    assert repeated(wb.script())["run"].digest() == mine.digest() and "import OwnRing" in wb.script()
    late = Trainer("CartPole-v1", "dqn", memory=Ring(90, 2), num_envs=2, **REPLAY).run(steps=10)
    assert "memory: comes from outside" in bench(late, views=["curve"]).snippet()
    nameless = type("Nameless", (Ring,), {})(90, 2)
    unknown = Trainer("CartPole-v1", "dqn", memory=nameless, num_envs=2, **REPLAY)
    assert "memory: comes from outside" in bench(unknown, views=["curve"]).snippet()


def test_rows_of_a_file_that_are_too_many_are_read_from_it_again(bench, tmp_path, monkeypatch):     # noqa: F811
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "MANY_NUMBERS", 3)
    save_ring("shown.rlb", demonstrations("CartPole-v1", 2))
    for read in (load_ring, read_memory):
        wb = bench(Trainer("CartPole-v1", "bc", memory=read("shown.rlb"), seed=0, num_envs=2), views=["curve"])
        script = wb.step("event", 30).script()
        monkeypatch.chdir("/")
        assert repeated(script)["run"].digest() == wb.trainer.digest()
        monkeypatch.chdir(tmp_path)
    (tmp_path / "shown.rlb").unlink()
    with pytest.raises(FileProblem, match="shown.rlb: no such file"):
        repeated(script)
    save_ring("shown.rlb", demonstrations("CartPole-v1", 2, steps=50))
    with pytest.raises(AssertionError, match="this is another state"):
        repeated(script)


def test_nobody_else_trains_an_actor_that_was_given():
    known = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), seed=0, learning_starts=20, n_steps=8)
    trainer = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner=known.actors["runner"]), seed=0)
    here = trainer.snapshot()
    begun = trainer.digest()
    learned = known.run(steps=200).digest()
    assert trainer.digest() == begun
    trainer.restore(here)
    assert known.digest() == learned


@pytest.mark.parametrize("env", [CartPoleEnv, make_pole], ids=["class", "function"])
def test_environments_that_an_import_finds_are_imported(bench, env):                     # noqa: F811
    wb = bench(env, "dqn", views=["curve"], **REPLAY).step("step", 3)
    script = wb.script()
    assert f"from {env.__module__} import {env.__name__}" in script and "outside" not in script
    assert repeated(script)["run"].digest() == wb.trainer.digest()


def test_an_id_that_was_registered_here_is_registered_by_the_script(bench):              # noqa: F811
    gym.register("Nine-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv", max_episode_steps=9)
    gym.register("Nine-v1", lambda: make_pole(), max_episode_steps=9)
    known, unknown = [bench(id, "dqn", views=["curve"], **REPLAY).step("step", 20) for id in ("Nine-v0", "Nine-v1")]
    script = known.script()
    assert "Nine-v1: registered by code in no module" in unknown.script()
    for id in ("Nine-v0", "Nine-v1"):
        del gym.registry[id]
    assert repeated(script)["run"].digest() == known.trainer.digest()


@pytest.mark.parametrize("few", [True, False])
def test_rows_of_a_file_are_in_the_script_or_it_says_that_they_are_not(bench, few, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    wb = bench(algo="dqn", views=["curve"], **REPLAY).step("step", 30)
    wb.export_rows("age < 9", "rows.rlb")
    if not few: monkeypatch.setattr(operations, "MANY_NUMBERS", 3)
    if not few: monkeypatch.setattr(operations, "FEW_NUMBERS", 3)
    wb.inject("rows.rlb")
    script = wb.step("step", 4).script()
    top = script.split("import rlbench")[0]
    assert ("9 rows from outside" in top, "assert digest" in script) == (not few, few)
    if few: (tmp_path / "rows.rlb").unlink()
    monkeypatch.chdir("/")
    assert repeated(script)["run"].digest() == wb.trainer.digest()


def test_names_that_only_this_process_knows_are_said():
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


# the page as a file

class Outline(HTMLParser):
    "Which elements a page has, what they ask for, and its text"

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.tags = Counter()
        self.asked = []
        self.said = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        if tag not in ("meta", "img", "source", "br"):
            self.open.append(tag)
        self.asked += [value for name, value in attributes if name in ("src", "srcset", "href", "xlink:href")]

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if self.open[-1:] == [tag]: self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]: self.said.append(data)

    @property
    def text(self):
        return "\n".join(self.said)


def exported(wb, folder):
    wb.export(folder / "page.html")
    return Outline((folder / "page.html").read_text())


def test_the_page_is_whole_and_asks_for_nothing(bench, tmp_path):                       # noqa: F811
    wb = bench(algo="dqn", views=None, **REPLAY)
    wb.step("step", 60).beside(NASTY, gamma=.5)
    wb.step("step", 9).set(lr=.01).break_when("abs(td_error) > 1000")
    before = wb.trainer.digest()
    page = exported(wb, tmp_path)
    assert page.open == [] and page.tags["script"] == page.tags["b0"] == 0
    assert page.asked and all(one.startswith(("data:image/png;base64,", "#")) for one in page.asked)
    for words in ("CartPole-v1", "Learning curve", "Buffer: 8 of 69 rows", "agent.learning_starts", "abs(td_error)",
                  "trainer.until('event'", "learning rate", NASTY, wb.trainer.digest(), "python"):
        assert words in page.text, words
    assert wb.trainer.digest() == before


def test_pictures_are_there_for_either_theme_and_figures_are_sharp(bench, tmp_path):    # noqa: F811
    wb = bench(views=["curve", "buffer"], **SMALL)
    wb.step("iteration", 3)
    shown = wb.page.cards[0].view.image.html
    page = exported(wb, tmp_path)
    assert page.tags["img"] == page.tags["source"] == 1                # the buffer is a table
    light, dark = [Image.open(io.BytesIO(base64.b64decode(one.split(",")[1]))) for one in sorted(page.asked)]
    assert light.size == dark.size == (800, 472)
    tones = sorted(np.asarray(one.convert("L"))[0, 0] for one in (light, dark))
    assert tones[0] < 60 and tones[1] > 240
    assert wb.page.cards[0].view.image.html == shown                  # and what is on the screen stays


def test_the_transition_that_is_opened_is_there(bench, tmp_path):                       # noqa: F811
    wb = bench(algo="dqn", views=["buffer"], **REPLAY)
    wb.step("step", 9)
    closed = exported(wb, tmp_path)
    wb.page.cards[0].view.open(wb.trainer, 4)
    page = exported(wb, tmp_path)
    assert page.open == [] and closed.tags["svg"] == 0 and page.tags["svg"] == 2         # the state and the next one
    assert "Buffer: row 4" in page.text and "4, of environment 0" in page.text
    assert "why is it drawn?" in page.text and "roll out" not in page.text              # no buttons
    assert "Buffer: row" not in closed.text
    wb.page.cards[0].view.transition.here.roll(wb.trainer)
    assert exported(wb, tmp_path).tags["svg"] > 2                                       # and how it plays on from there


def test_the_row_of_the_last_update_that_is_opened_is_there(bench, tmp_path):           # noqa: F811
    wb = bench(algo="dqn", views=["targets"], **REPLAY)
    wb.step("update", 5)
    targets = wb.page.cards[0].view
    account = wb.page.account
    account.explain()
    closed = exported(wb, tmp_path)
    assert closed.tags["svg"] == 0 and "update 5 of agent by dqn" in closed.text
    assert "The last update" in closed.text and "Account(" not in closed.text
    for table in (targets.table, account.table):
        as_page(table, selected=table.ids[3], opened=1)
    page = exported(wb, tmp_path)
    assert page.open == [] and page.tags["svg"] == 1 and "The last update: row 3" in page.text
    told = sum_text(targets.terms, 3, targets.gamma)
    assert account.account.line(3) in page.text and told in page.text
    assert targets.text() == told                                                       # and on the page it stays so


def test_findings_are_there_once_somebody_has_asked(bench, tmp_path):                   # noqa: F811
    wb = bench("rlbench/Walk-v0", "qlearning", views=["curve"], lr=1e-6)
    wb.step("step", 30)
    assert "Why does it not learn?" not in exported(wb, tmp_path).text
    found = wb.diagnose()
    text = exported(wb, tmp_path).text
    assert "Why does it not learn?" in text
    assert all(sentence in text for one in found for sentence in one.sentences)


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(bench, tmp_path):        # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    with pytest.raises(ConfigError, match="expected a name that ends in .html"):
        wb.export(tmp_path / "page.pdf")
    with pytest.raises(FileProblem, match="is a folder"):
        (tmp_path / "there.html").mkdir()
        wb.export(tmp_path / "there.html")
    assert [one.name for one in tmp_path.iterdir()] == ["there.html"]


# films

def frames_in(path):
    return getattr(Image.open(path), "n_frames", 1)


def test_a_film_of_a_run_folder(tmp_path):
    settings = dict(num_envs=2, n_steps=16, batch_size=16, hidden=(8,), keep_checkpoints=9, eval_every=0)
    train("CartPole-v1", "ppo", steps=400, checkpoint_every=100, folder=tmp_path, run_id="pole", progress=False,
          **settings)
    made = film("pole", tmp_path / "a.gif", k=3, max_steps=15, frames=6, width=60, folder=tmp_path)
    assert made.captions[0] == "before learning" and len(made.captions) == 3
    assert made.captions[-1].startswith("4") and made.frames <= 6 and frames_in(tmp_path / "a.gif") <= 6
    assert "one for every 4 of 16 steps" in repr(made) and made.nbytes == (tmp_path / "a.gif").stat().st_size
    one = next((tmp_path / "pole" / "checkpoints").iterdir())
    assert film([str(one), one], tmp_path / "b.webp", max_steps=3).captions[0].endswith("steps")


def test_a_film_begins_once(tmp_path):
    settings = dict(num_envs=2, n_steps=16, hidden=(8,), eval_every=0, folder=tmp_path, run_id="pole", progress=False)
    train("CartPole-v1", "ppo", steps=0, **settings)        # a checkpoint of the beginning is there, too
    train("CartPole-v1", "ppo", steps=64, resume=True, **settings)
    made = film("pole", tmp_path / "a.gif", k=9, max_steps=3, width=60, folder=tmp_path)
    assert [caption.startswith("before") for caption in made.captions] == [True, False, False]


def test_a_film_of_a_workbench_goes_back_and_changes_nothing(bench, tmp_path):          # noqa: F811
    wb = bench("FrozenLake-v1", "qlearning", views=["curve"], seed=0)
    wb.step("step", 40)
    before = wb.trainer.digest(), wb.player.timeline.at
    made = film(wb, tmp_path / "lake.gif", k=3, max_steps=5, width=60)
    assert made.captions[0] == "before learning" and made.captions[-1] == "40 steps" and len(made.captions) == 3
    assert (wb.trainer.digest(), wb.player.timeline.at) == before
    assert wb.film(tmp_path / "one.gif", k=1, max_steps=5, width=60).captions == ["40 steps"]


def test_equal_policies_play_the_same(tmp_path):
    trainer = Trainer("CartPole-v1", "ppo", **SMALL)
    one, other = [take(trainer, "", seed=3, max_steps=20, width=60) for _ in range(2)]
    assert one.words == other.words and one.words[0] == "return 0"
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one.pictures, other.pictures))


REFUSED = [
    (dict(k=0), ValueError, "film: k"),
    (dict(fps=0), ValueError, "film: fps = 0"),
    (dict(width=3), ValueError, "film: width"),
    (dict(path="a.avi"), ConfigError, "expected a name that ends in .gif"),
    (dict(path=""), ConfigError, "film: path: expected the name of a file"),
    (dict(run=[]), ConfigError, "no policy is given"),
    (dict(run="nobody"), RunProblem, "no run 'nobody'"),
    (dict(run=Trainer("rlbench/Walk-v0", "qlearning")), EnvProblem, "cannot be drawn: it was not made with"),
]


@pytest.mark.parametrize("how, kind, words", REFUSED)
def test_films_that_cannot_be_are_refused_in_words(tmp_path, how, kind, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usual = dict(run=Trainer("FrozenLake-v1", "qlearning"), path="a.gif")
    with pytest.raises(kind, match=words):
        film(**usual | how)
    assert list(tmp_path.iterdir()) == []


def test_an_mp4_needs_ffmpeg_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="pip install imageio-ffmpeg, or take a .gif"):
        film(Trainer("FrozenLake-v1", "qlearning"), tmp_path / "a.mp4")
    fake = tmp_path / "ffmpeg"
    says = "open(sys.argv[-1], 'wb').write(b'%d' % len(sys.stdin.buffer.read()))"
    fake.write_text(f"#!{sys.executable}\nimport sys\n{says}")
    fake.chmod(0o755)
    write_animation(tmp_path / "a.mp4", [np.zeros((9, 8, 3), np.uint8)] * 2, 10)
    assert (tmp_path / "a.mp4").read_bytes() == b"384"                  # an even number of lines
    fake.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no room')")
    with pytest.raises(FileProblem, match="ffmpeg failed: no room"):
        write_animation(tmp_path / "b.mp4", [np.zeros((8, 8, 3), np.uint8)], 10)


def test_the_command_makes_a_film(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Trainer("FrozenLake-v1", "qlearning").run(steps=20).save("lake.rlb")
    status = main(["film", "lake.rlb", "--output", "lake.gif", "--policies", "2", "--max-steps", "4"])
    assert status == 0 and capsys.readouterr().out.startswith("lake.gif: before learning, 20 steps; ")
    assert main(["film", "lake.rlb", "--output", "lake.pdf"]) == 2


# the buttons

PAPERS = dict(script=".py", notebook=".ipynb", page=".html", film=".gif")


@pytest.mark.parametrize("what, suffix", list(PAPERS.items()))
def test_a_button_writes_and_says_what(bench, tmp_path, what, suffix):                  # noqa: F811
    wb = bench("FrozenLake-v1", "qlearning", views=["curve"], seed=0)
    wb.step("step", 5)
    part(wb, "path").value = str(tmp_path / "run.rlb")
    part(wb, f"write-{what}").click()
    assert (tmp_path / f"run{suffix}").stat().st_size > 500
    said = part(wb, "writing-said").value
    assert f"run{suffix}" in said and "KB" in said and "rl-problem" not in said
    part(wb, "path").value = ""
    part(wb, f"write-{what}").click()
    assert "got an empty path" in part(wb, "writing-said").value
