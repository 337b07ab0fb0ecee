"What a lab must not do when somebody errs: lose its past, write what cannot be, or say what is not so"
import warnings

import numpy as np
import pytest

import rlbench
from rlbench import Workbench
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.lab.hands import operations
from rlbench.lab.time import timeline
from rlbench.training.learner import NotFinite
from rlbench.training.trainer import Trainer

PPO = dict(num_envs=2, n_steps=32, batch_size=32)


def bench(env="CartPole-v1", algo="dqn", **settings):
    "A workbench without pictures"
    return Workbench(env, algo, driver="sync", seed=0, views=[], **settings)


@pytest.fixture
def held():
    "One that holds sixty rows, with priorities"
    return bench(learning_starts=30, prioritized_replay_alpha=.5).step("step", 60)


def reproduced(wb, tmp_path):
    "The script of a workbench ends with an assertion that the state is the same"
    path = tmp_path / "again.py"
    wb.script(path)
    exec(compile(path.read_text(), path, "exec"), {})
    return True


@pytest.mark.parametrize("pace", [np.float32(250.), np.int64(1000)])
def test_a_pace_may_be_a_number_of_numpy(pace):
    wb = bench(learning_starts=30).speed(pace).step("step", 3)
    assert wb.player.problem is None and f"at most {pace:g} events a second" in wb.page.status.widget.value


def test_scripts_write_rows_and_numbers_of_any_kind(held, tmp_path):
    held.edit(held.rows("age < 2").numbers, rew=5.)
    held.edit(np.array([3, 4]), rew=np.float32(2.))
    held.edit(np.int64(6), rew=1.)
    held.prioritise([9], to=np.float32(2.))
    held.prioritise([8], by=np.float64(3.))
    held.duplicate([5], times=np.int64(2))
    assert reproduced(held.step("step", 5), tmp_path)


def test_rows_from_outside_are_written_down_under_names_of_their_own(held, tmp_path, monkeypatch):
    def rows(n):
        flags = dict.fromkeys(("term", "trunc"), np.zeros(n, bool))
        seen = dict.fromkeys(("obs", "next_obs"), np.zeros((n, 4), np.float32))
        return dict(seen, act=np.zeros(n, int), rew=np.full(n, float(n)), **flags)

    held.inject(rows(100))
    held.inject(rows(150))
    names = {line.split()[0] for line in held.snippet().splitlines() if line.startswith("rows_")}
    assert len(names) == 2
    assert reproduced(held.step("step", 5), tmp_path)
    monkeypatch.setattr(operations, "MANY_NUMBERS", 1000)
    held.inject(rows(120))
    assert "120 rows from outside, define them before" in held.script()


@pytest.mark.parametrize("changes, told", [
    (dict(act=9), "its act hold 9"),
    (dict(act=1.5), r"act = 1.5: expected numbers of shape \(\), int64"),
    (dict(rew=np.nan), "its rew hold nan"),
    (dict(term=5), r"term = 5: expected numbers of shape \(\), bool"),
    ({}, r"as in edit\(3, rew=1\.\)"),
])
def test_what_cannot_be_is_not_written(held, changes, told):
    before = held.trainer.digest()
    with pytest.raises((ValueError, ConfigError), match=told):
        held.edit(3, **changes)
    assert held.trainer.digest() == before


def test_parts_of_an_observation_are_edited_by_name():
    wb = bench("rlbench/Forbidden-v0", learning_starts=30).step("step", 40)
    name = next(name for name in wb.trainer.learner.memory.places["obs"] if name != "action_mask")
    shape = wb.trainer.learner.memory.places["obs"][name][3].shape
    wb.edit(3, obs={name: np.zeros(shape)})
    assert not wb.trainer.learner.memory.places["obs"][name][3].any()


def test_an_action_that_a_row_forbids_is_not_written():
    wb = bench("rlbench/Forbidden-v0", learning_starts=30).step("step", 40)
    memory = wb.trainer.learner.memory
    barred = int(memory.places["obs"]["action_mask"][3].argmin())
    before = wb.trainer.digest()
    with pytest.raises(ConfigError, match="what is written does not fit .* own action_mask forbids"):
        wb.edit(3, act=barred)
    rows = memory.gather(memory.latest())
    rows.act[:] = rows.obs["action_mask"].argmin(-1)
    with pytest.raises(ConfigError, match="the action in row 0 is one that the row's own action_mask forbids"):
        wb.inject(rows)
    assert wb.trainer.digest() == before


def test_more_rows_than_there_are_places_are_refused():
    wb = bench(buffer_size=60).step("step", 30)
    flags = dict.fromkeys(("term", "trunc"), np.zeros(100, bool))
    seen = dict.fromkeys(("obs", "next_obs"), np.zeros((100, 4), np.float32))
    with pytest.raises(ValueError, match="100 rows from outside: the memory has places for 60"):
        wb.inject(dict(seen, act=np.zeros(100, int), rew=np.zeros(100), **flags))


def test_a_refused_operation_leaves_counts_of_use(held):
    held.step("step", 100)
    before = repr(held.why_drawn(5))
    with pytest.raises(ValueError, match="copies of a row"):
        held.duplicate([5], times=0)
    assert repr(held.why_drawn(5)) == before


@pytest.mark.parametrize("text", ["obs[9] > 0", "rew[0] > 0", "obs[0.5] > 0"])
def test_a_component_that_is_none_is_named(held, text):
    with pytest.raises(ValueError, match="there is no component"):
        held.rows(text)
    held.break_when(text)
    with pytest.raises(ValueError, match="there is no component"):
        held.step("step", 2)


def test_nothing_stored_is_no_unknown_name():
    with pytest.raises(ValueError, match="holds for none of 0 rows"):
        bench().rows("rew > 0")


def test_a_fork_has_a_text_for_a_name(held):
    with pytest.raises(ValueError, match="name 3: expected a text"):
        held.beside(3)
    held.step("step")
    assert list(held.forks.known) == ["run"]


def test_an_error_while_rewinding_keeps_the_past(monkeypatch):
    wb = bench(algo="ppo", num_envs=1).step("event", 40)

    def fail(*path): raise OSError("away")

    with monkeypatch.context() as patch:
        patch.setattr(timeline, "lead", fail)
        with pytest.raises(OSError, match="away"):
            wb.rewind(30)
    assert wb.rewind(10).trainer.steps == 10


def test_a_breakpoint_joins_counts_and_columns():
    wb = bench(algo="ppo", **PPO)
    wb.break_when("updates > 3 and kl > 1e-9")
    wb.step("iteration", 20)
    assert "kl" in str(wb.player.hit) and wb.trainer.updates < 20


def test_a_breakpoint_says_that_it_cannot_be_hit():
    wb = bench(algo="ppo", **PPO).step("update", 3)
    with pytest.raises(ValueError, match="no event tells of loss and of episode_return"):
        wb.break_when("loss > 0 and episode_return > 0")
    with pytest.warns(UserWarning, match="told nothing of td_error so far"):
        wb.break_when("td_error > 0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in ("kl > 1", "entropy < 0", "reward > 2", "adv > 1e9", "episode_return > 1e9", "loss > 1e9"):
            wb.break_when(text)


def test_a_preference_that_changes_is_hit_at_the_same_events_after_a_rewind():
    wb = bench(algo="ppo", lr=.02, **PPO).step("update", 5)
    wb.break_when(obs=[0., 0, 0, 0])
    begun = wb.player.timeline.at

    def hits():
        found = []
        for _ in range(60):
            wb.step("update")
            if wb.player.hit: found.append(wb.player.timeline.at)
        return found

    first = hits()
    wb.rewind(begun)
    assert hits() == first


def test_the_first_number_that_is_none_is_told_where_a_run_stops():
    wb = bench(learning_starts=40).step("update", 3)

    def spoil(trainer): trainer.learner.memory.places["rew"][7] = np.nan

    wb.call(spoil)
    with pytest.raises(NotFinite, match="First: the minibatch of 128 rows had it already: ret in row"):
        wb.step("update", 50)


# ---- the doctor

def test_the_doctor_is_asked_of_one_behaviour():
    wb = bench("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo")).step("step", 20)
    assert wb.diagnose(who="runner", steps=30).evidence.who == "runner"
    assert wb.diagnose("chaser", steps=30).evidence.who == "chaser"


@pytest.mark.parametrize("asked, told", [(dict(steps=0), "steps = 0"), (dict(steps=1.5), "steps = 1.5"),
                                         (dict(seconds=-1), "seconds = -1"), (dict(seconds="a"), "seconds = 'a'")])
def test_the_doctor_needs_time(asked, told):
    with pytest.raises((ValueError, ConfigError), match=told):
        Trainer("CartPole-v1", "ppo").diagnose(**asked)


@pytest.mark.parametrize("env, algo, steps", [
    ("rlbench/Bandit-v0", "bandit", 500),
    ("rlbench/Bandit-v0", "gradient_bandit", 500),
    ("rlbench/CliffWalk-v0", "count_bonus", 10_000),
    ("rlbench/DynaMaze-v0", "prioritised_sweeping", 2_000),
    ("MountainCar-v0", "linear_sarsa", 20_000),
    ("rlbench/Walk-v0", "linear_td", 2_000),
])
def test_the_doctor_finds_nothing_in_healthy_runs_with_nothing_set(env, algo, steps):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not Trainer(env, algo, seed=0).run(steps).diagnose()


# ---- runs and demonstrations

def test_a_finished_run_is_told_as_it_ended(tmp_path):
    trainer = rlbench.train("CartPole-v1", "ppo", run_id="a", steps=1_900, folder=tmp_path, progress=False, **PPO)
    line = rlbench.Runs(tmp_path)[0]
    assert line.facts["steps"] == trainer.steps
    np.testing.assert_allclose(line.facts["return"], trainer.episodes.mean_return)
    rlbench.train("CartPole-v1", "dqn", run_id="short", steps=700, folder=tmp_path, progress=False)
    short = rlbench.train("CartPole-v1", "dqn", run_id="short", steps=700, folder=tmp_path, progress=False, resume=True)
    rows = (tmp_path / "short" / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == 1 and f'"mean_return": {short.episodes.mean_return}' in rows[0]


def test_demonstrations_are_kept_by_behaviour_and_begun_anew_by_a_seed():
    wb = bench()
    demo = wb.demonstrate()
    demo.act(0)
    assert wb.demonstrate() is demo
    other = wb.demonstrate(seed=9)
    assert other is not demo and not other.found
    while not other.returns:
        other.act(0)
    other.act(1)
    assert len(other.ring()) == len(other.ring(whole=True)) + 1
    chase = bench("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"))
    mine = chase.demonstrate("chaser").act(0)
    assert chase.demonstrate("runner") is not mine and chase.demonstrate("chaser") is mine


# ---- what is asked for in a way that cannot be

ASKED = [
    (lambda wb: wb.break_when(3), "break_when = 3: expected an expression such as 'kl > .05'"),
    (lambda wb: wb.break_when(), "break_when = None: expected an expression"),
    (lambda wb: wb.step("updat"), "unknown unit 'updat'; did you mean 'update'"),
    (lambda wb: wb.trainer.until("episodes"), "unknown unit 'episodes'; did you mean 'episode'"),
    (lambda wb: wb.explain(3), "unknown setting '3'"),
    (lambda wb: wb.go_on([3]), r"unknown run \[3\]. There are: run"),
    (lambda wb: wb.drop(3), "unknown run 3. There are: run"),
    (lambda wb: wb.explain_update().line(999), "row 999: the update had 128 rows, numbered from 0"),
    (lambda wb: wb.explain_update().diagram(-1), "row -1: the update had 128 rows"),
    (lambda wb: wb.place(obs=[0., 0., 0., 0.], who="x"), "unknown behaviour 'x'"),
    (lambda wb: Workbench(wb.trainer, driver="sync", views=["curv"]), "unknown view 'curv'; did you mean 'curve'"),
    (lambda wb: bench(budget=-1), "budget = -1: expected megabytes"),
    (lambda wb: bench(budget="much"), "budget = 'much': expected megabytes"),
]


@pytest.mark.parametrize("ask, told", ASKED)
def test_what_cannot_be_asked_for_is_told_with_what_can(held, ask, told):
    with pytest.raises((ValueError, ConfigError), match=told):
        ask(held)


def test_a_breakpoint_that_fails_is_dropped(held):
    held.break_when("obs[9] > 0")
    with pytest.raises(ValueError, match=r"breakpoint 1 is dropped: 'obs\[9\] > 0': there is no component \[9\]"):
        held.step("step", 2)
    steps = held.trainer.steps
    assert not held.breakpoints.conditions
    assert held.step("step", 2).trainer.steps == steps + 2


def test_snapshots_keep_to_a_budget_that_is_given():
    wb = bench(budget=2, learning_starts=40, buffer_size=20000).step("update", 400)
    assert wb.player.timeline.album.budget == 2 and wb.player.timeline.album.shelf.nbytes <= 2e6
    wb.beside("other", lr=.1)
    assert wb.forks["other"].timeline.album.budget == 2


def test_what_failed_is_no_problem_before_it():
    wb = bench(learning_starts=40).step("update", 3)
    wb.call(lambda trainer: trainer.learner.memory.places["rew"].fill(np.nan))
    with pytest.raises(NotFinite):
        wb.step("update", 50)
    assert isinstance(wb.player.problem, NotFinite)
    wb.rewind("update", -2)
    assert wb.player.problem is None
    wb.step("event")


def test_a_way_is_gone_back_to_by_its_number():
    wb = bench(learning_starts=30).step("update", 3)
    there = wb.snapshot()
    end = wb.timeline.at
    wb.rewind("update", -2).set(lr=.01).step("event", 5)
    wb.rewind(end, branch=1)
    assert same(wb.snapshot(), there)
    with pytest.raises(ValueError, match=f"branch 3: expected the number of one of 1: 0 to {end}, 2: "):
        wb.rewind(0, branch=3)


# ---- rows whose observations are no plain numbers

def test_stacked_frames_are_asked_for_and_refused_from_outside(tmp_path):
    wb = bench("MinAtar/Breakout-v1", "dqn", env_settings=dict(frame_stack=2), learning_starts=60).step("update", 4)
    memory = wb.trainer.learner.memory
    rows = wb.rows("obs[1, 9, 4, 0] > 0").numbers
    assert 0 < len(rows) < len(memory)
    assert memory.gather(rows).obs[:, 1, 9, 4, 0].all()
    wb.export_rows("age < 30", tmp_path / "rows.rlb")
    with pytest.raises(ValueError, match="stacked frames are kept picture by picture"):
        wb.inject(tmp_path / "rows.rlb")
    with pytest.raises(ConfigError, match="pictures, and what has parts, have no such names"):
        wb.name_observations(["a"])


def test_parts_of_observations_are_asked_for_by_their_names():
    wb = bench("rlbench/Forbidden-v0", learning_starts=30).step("step", 40)
    memory = wb.trainer.learner.memory
    name = next(name for name in memory.places["obs"] if name != "action_mask")
    held = memory.gather(memory.latest()).obs[name]
    middle = float(np.median(held))
    rows = wb.rows(f"obs.{name} >= {middle}").numbers
    assert len(rows) == (held.reshape(len(held), -1) >= middle).any(1).sum()
    assert len(wb.rows("obs.action_mask[0] > 0").numbers) == memory.gather(memory.latest()).obs.action_mask[:, 0].sum()
    with pytest.raises(ValueError, match="unknown name 'obs.nothing'"):
        wb.rows("obs.nothing > 0")
    wb.break_when("obs.action_mask[1] > 0")
    wb.step("step", 100)
    assert "obs.action_mask" in wb.player.hit.words


@pytest.mark.parametrize("ask, words", [
    (lambda wb: wb.look(["teach"]), "unknown look"),
    (lambda wb: wb.unbreak([1]), "unknown breakpoint"),
    (lambda wb: wb.unbreak({}), "unknown breakpoint"),
    (lambda wb: wb.unpin(["1"]), "unknown pin"),
    (lambda wb: wb.pin(name=["start"]), "expected a text"),
])
def test_names_that_are_no_texts_are_refused_in_words(ask, words):
    wb = bench()
    wb.pin()
    wb.break_when("nan")
    before = wb.trainer.digest()
    with pytest.raises(ValueError, match=words): ask(wb)
    assert (wb.trainer.digest(), [*wb.pins]) == (before, ["1"])
