"What a run says of itself is what happens: every algorithm, every event"
import re

import pytest

from rlbench.algos.algorithm import algorithms
from rlbench.training.rule import Event
from tests.cases import CASES, ONE_EACH, Case

SPARSE = dict(train_freq=5, n_step=3, n_episodes=3, sweeps=2, planning_steps=3)     # settings that move an update
TIMED = [Case(one.algo, one.env, (*one.extra, (name, value))) for one in ONE_EACH for name, value in SPARSE.items()
         if name in algorithms()[one.algo].__dataclass_fields__ and name not in dict(one.extra)]
BEGINNINGS = dict(collect="environment step", process="targets and a to-do list", learn="update ", nothing="nothing")


def promised(text):
    "Environment steps that are said to come before the next update; None where no number is said"
    found = re.search(r"update after ([\d,]+) more steps", text)
    return found and int(found[1].replace(",", ""))


def told(trainer, events):
    "(words before, kind of the event, or collect where it takes a step, steps before) of the next events"
    for _ in range(events):
        words = trainer.next_text
        steps = trainer.steps
        event = trainer.advance()
        if event is None:
            yield words, "nothing", steps
            return
        yield words, "collect" if event.steps else event.kind, steps


@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize("case", CASES + TIMED, ids=str)
def test_the_words_of_what_comes_next_are_true(case, num_envs):
    trainer = case.trainer(num_envs=num_envs)
    goal = None                                     # steps at which an update was said to come
    for words, kind, steps in told(trainer, 70):
        assert words.startswith(BEGINNINGS[kind]), (words, kind)
        if kind == "process":
            slack = 0 if trainer.env.steady else 3 * trainer.env.num_envs
            assert goal is None or abs(steps - goal) <= slack, (goal, steps)
            goal = None
        elif kind == "collect" and goal is None and promised(words):
            goal = steps + promised(words)
            assert trainer.env.steady or "give or take" in words
    assert goal is None or trainer.steps < goal + (0 if trainer.env.steady else 3 * trainer.env.num_envs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_the_switches_off_the_words_say_so(case):
    trainer = case.begun()
    trainer.learning = False
    assert trainer.next_text == "environment step; no updates, learning is switched off"
    trainer.collecting = False
    assert trainer.next_text == "nothing: collecting and learning are switched off"
    trainer.learning = True
    for words, kind, _ in told(trainer, 100):
        assert words.startswith(BEGINNINGS[kind])
    if trainer.learner.settings.exact: return       # who plans goes on planning
    assert (kind, words) == ("nothing", "nothing: collecting is switched off")


@pytest.mark.parametrize("rows, words", [(1, "1 row processed"), (2_000, "2,000 rows processed")])
def test_one_row_is_not_told_as_many(rows, words):
    assert Event("process", "agent", range(rows)).text == f"{words} into targets"
