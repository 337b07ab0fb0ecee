"Going back to any event, by any algorithm, is exact; what was done on the way is done again"
import warnings

import gymnasium as gym
import numpy as np
import pytest

import rlbench
from rlbench.core.shelf import Shelf
from rlbench.core.state import same
from rlbench.lab.time.timeline import Timeline
from rlbench.training.trainer import CannotGoBack, Trainer
from tests.cases import ONE_EACH, differs

every_case = pytest.mark.parametrize("case", ONE_EACH, ids=str)


def one_reward_less(trainer):
    "An edit of what is stored"
    for learner in trainer.learners.values():
        if learner.memory.places:
            learner.memory.places["rew"][0] -= 1


@every_case
def test_every_event_can_be_reached_again_to_the_bit(case):
    trainer = case.begun(num_envs=2)
    timeline = Timeline(trainer, share=.2)
    there = [trainer.snapshot()]
    for event in range(60):
        if event == 20 and ("agent", "lr") in trainer.config.known:
            trainer.set(lr=1e-5)
        if event == 30: timeline.do(one_reward_less)
        if event == 40: trainer.exploring = False
        if trainer.advance() is None: break
        there.append(trainer.snapshot())
    for event in np.random.default_rng(0).permutation(len(there))[:12]:
        timeline.rewind(int(event))
        assert differs(trainer.snapshot(), there[event]) == ""
    assert len(timeline.branches) == 1


def test_what_is_kept_fits_into_its_budget():
    timeline = Timeline(Trainer("CartPole-v1", "dqn", learning_starts=50), budget=2, share=.5)
    trainer = timeline.trainer
    trainer.until("event", 1500)
    assert timeline.album.shelf.nbytes <= 2e6
    here = trainer.snapshot()
    timeline.rewind(3)
    timeline.rewind(1500)
    assert same(trainer.snapshot(), here)


def test_who_puts_the_run_elsewhere_begins_a_timeline_of_its_own():
    trainer = Trainer("CartPole-v1", "ppo", num_envs=2)
    timeline = Timeline(trainer)
    start = trainer.snapshot()
    trainer.until("event", 30)
    there = trainer.snapshot()
    trainer.restore(start)
    trainer.until("event", 10)
    first, second = timeline.branches
    assert second.parent is None
    timeline.rewind(30, branch=first)
    assert same(trainer.snapshot(), there)


def test_before_a_branch_began_the_run_stands_where_it_stood():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0)
    timeline = Timeline(trainer, share=1e-9)
    there = [trainer.snapshot()]
    for event in range(20):
        if event == 6: timeline.do(one_reward_less)
        if event == 12:                     # a snapshot between where it goes and the branch
            timeline.album.keep(trainer, timeline.branch, event)
        trainer.advance()
        there.append(trainer.snapshot())
    timeline.rewind(15)
    trainer.set(gamma=.5)
    trainer.until("event", 5)
    other = timeline.branch
    for event in (13, 8, 3):
        timeline.rewind(event, branch=other)
        assert same(trainer.snapshot(), there[event])
        assert same(timeline.fork(event, branch=other).snapshot(), there[event])


def test_a_failure_on_the_way_leaves_the_run_where_it_was():
    trainer = Trainer("CartPole-v1", "ppo", num_envs=2)
    timeline = Timeline(trainer, share=1e-9)
    trainer.until("event", 10)
    calls = []

    def once_only(trainer):
        calls.append(1)
        if len(calls) > 1: raise RuntimeError("not again")

    timeline.do(once_only)
    trainer.until("event", 10)
    here = trainer.snapshot()
    with pytest.raises(RuntimeError, match="not again"):
        timeline.rewind(15)
    assert same(trainer.snapshot(), here)
    assert timeline.at == 20 and trainer.watchers == [timeline.note]


def test_a_fork_in_the_past_leaves_the_present_alone():
    trainer = Trainer("CartPole-v1", "ppo", num_envs=2)
    timeline = Timeline(trainer)
    trainer.until("event", 40)
    there = trainer.snapshot()
    trainer.until("event", 40)
    here = trainer.snapshot()
    twin = timeline.fork(40, lr=.5)
    assert same(trainer.snapshot(), here)
    assert twin.learner.settings.lr == .5
    twin.set(lr=trainer.learner.settings.lr)
    assert same(twin.state()["learners"], there["learners"])


def test_what_happened_is_marked_on_the_timeline_and_found_again_by_its_kind():
    wb = rlbench.Workbench("CartPole-v1", "ppo", driver="sync", seed=0, num_envs=2, n_steps=16, views=[])
    wb.break_when("updates == 3")
    wb.step("update", 5)
    stopped = wb.player.timeline.at
    wb.unbreak()
    wb.step("event", 10).evaluate(episodes=1)
    judged = wb.player.timeline.at
    wb.step("event", 10).beside("other", lr=.1)
    left = wb.player.timeline.at
    wb.step("event", 10)
    for kind, at in dict(fork=left, evaluation=judged, breakpoint=stopped).items():
        assert wb.rewind(kind, -1).player.timeline.at == at
    assert [flag.kind for flag in wb.player.timeline.branch.flags] == ["breakpoint", "evaluation", "fork"]
    assert wb.page.timebar.marks.value.count("rl-flag") == 3 and "evaluation: Evaluation(" in wb.page.stops.deeds.value
    with pytest.raises(ValueError, match="unknown unit 'forks'; did you mean 'fork'"):
        wb.rewind("forks", -1)
    wb.close()


def test_a_fork_that_is_not_in_hand_is_saved_by_its_name(tmp_path):
    wb = rlbench.Workbench("CartPole-v1", "dqn", driver="sync", views=[])
    wb.beside("other", gamma=.5)
    wb.step("step", 5).save(tmp_path / "other.rlb", "other")
    saved = rlbench.load(tmp_path / "other.rlb")
    assert (saved.learner.settings.gamma, saved.steps) == (.5, 5)
    with pytest.raises(ValueError, match="did you mean 'other'"):
        wb.save(tmp_path / "none.rlb", "othr")
    wb.close()


def test_a_block_that_two_trees_hold_is_counted_once():
    shelf = Shelf()
    array = np.arange(100_000)
    for name in "abc": shelf.put(name, dict(array=array))
    assert shelf.nbytes == array.nbytes
    shelf.drop("a")
    shelf.drop("c")
    assert shelf.nbytes == array.nbytes
    assert (shelf.take("b")["array"] == array).all()


@pytest.mark.parametrize("value", [0., -0., float("nan"), True, 1, 2**70, "a", None, np.float32(-0.)])
def test_plain_values_come_back_as_they_are(value):
    shelf = Shelf()
    shelf.put(0, dict(value=0.))
    shelf.put(1, dict(value=value))
    out = shelf.take(1)["value"]
    assert type(out) is type(value) and repr(out) == repr(value)


def test_branches_keep_the_budget_as_well():
    trainer = Trainer("CartPole-v1", "dqn", seed=0, learning_starts=20, hidden=(64, 64))
    timeline = Timeline(trainer, budget=.7, share=1e9)        # a snapshot at every event
    there = {}
    for way in range(12):
        timeline.rewind(way)
        trainer.set(lr=.001 * (way + 1))
        trainer.until("event", 30)
        assert not timeline.album.full
        there[timeline.branch] = trainer.digest()
    assert len(timeline.branches) > 10
    for branch, digest in there.items():
        timeline.rewind(branch.end, branch=branch)
        assert trainer.digest() == digest


def test_events_are_a_unit_to_go_back_by():
    trainer = Trainer("FrozenLake-v1", "qlearning", seed=0)
    timeline = Timeline(trainer)
    trainer.until("event", 10)
    timeline.rewind("event", -1)
    assert timeline.at == 9
    timeline.rewind("event", -9)
    assert timeline.at == 0
    timeline.rewind("event", 4)
    assert timeline.at == 4
    with pytest.raises(ValueError, match="not so many before event 4"):
        timeline.rewind("event", -5)


def test_that_nobody_looked_whether_an_environment_goes_back_is_said():
    for check_env in (False, True):
        trainer = Trainer(Fading, "dqn", seed=0, check_env=check_env)
        timeline = Timeline(trainer)
        trainer.until("event", 5)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            timeline.rewind(2)
        assert [one.category for one in told] == [CannotGoBack] * (not check_env)


class Fading(gym.Wrapper):
    "CartPole, by somebody whom we do not know"

    def __init__(self, render_mode=None):
        super().__init__(gym.make("CartPole-v1"))


def raising(call, after):
    "The same function, which raises when it has done its work, at its n-th call"
    left = [after]
    def called(*args):
        answer = call(*args)
        left[0] -= 1
        if not left[0]: raise ZeroDivisionError("in the middle")
        return answer
    return called


def silent(trainer, event):
    "A watcher"


def in_counting(trainer):
    trainer.env.episodes["agent"].add = raising(trainer.env.episodes["agent"].add, 10)


def in_memory(trainer):
    trainer.learner.add = raising(trainer.learner.add, 10)


def in_metrics(trainer):
    trainer.log = raising(trainer.log, 3)


def in_process(trainer):
    trainer.learner.process = raising(trainer.learner.process, 2)


def in_learn(trainer):
    trainer.learner.learn = raising(trainer.learner.learn, 5)


def in_a_watcher(trainer):
    trainer.watchers.insert(0, raising(silent, 20))


def in_a_later_watcher(trainer):
    trainer.watchers.append(raising(silent, 20))


BROKEN = in_counting, in_memory, in_metrics, in_process, in_learn, in_a_watcher, in_a_later_watcher


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("back", [("rewind", 0), ("rewind", 3), ("reset",)], ids=str)
def test_whatever_raises_within_an_event_the_timeline_leads_back_to_any_earlier_one(broken, back):
    book = rlbench.Workbench("CartPole-v1", "ppo", driver="sync", num_envs=2, n_steps=4, batch_size=4, hidden=(4,),
                             log_every=8, views=[])
    broken(book.trainer)
    with pytest.raises(ZeroDivisionError):
        book.step("event", 100)
    reached = book.timeline.at
    for _ in range(2):                                      # who tries to go on is none the worse off for it
        try: book.step()
        except RuntimeError: pass
    verb, *to = back
    getattr(book, verb)(*to)
    again = Trainer("CartPole-v1", "ppo", num_envs=2, n_steps=4, batch_size=4, hidden=(4,), log_every=8)
    if book.timeline.at: again.until("event", book.timeline.at)
    assert differs(book.trainer.snapshot(), again.snapshot()) == ""
    assert reached > 3 and len(book.timeline.branches) == 1
    book.close()
