"Every number that a run tells has its formula, its bounds with their reason, and what it means beyond them"
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import pytest

import rlbench
from rlbench.algos.algorithm import algorithms
from rlbench.core.formulas import mathml
from rlbench.core.words import ConfigError
from rlbench.lab.time.accounts import COLUMNS, explain_update
from rlbench.lab.time.timeline import Timeline
from rlbench.launch.cli import main
from rlbench.training.meanings import MEANINGS, known_number
from rlbench.training.runs import evaluation_row, exploring_row
from tests.cases import CASES

DOCTORS = {"clip_share", "ent_share", "explained_variance"}         # what only the doctor computes
RARE = {"time", "fresh_episodes"}                                   # columns of a run on disk


@cache
def told_by(case):
    "Names of the numbers that a short run of a case tells: columns of its metrics, and parts of its updates"
    trainer = case.trainer()
    trainer.until("update")
    parts = set()
    for _, event in zip(range(60), trainer):
        if event.kind == "learn": parts |= set(event.data)
    trainer.run(60)
    trainer.close()
    return set(trainer.metrics.names) | parts | set(trainer.learner.last.parts)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_number_of_every_algorithm_is_explained(case):
    assert {name for name in told_by(case) if known_number(name) is None} == set()


def test_the_table_explains_nothing_that_is_not_there():
    told = {known_number(name) for case in CASES for name in told_by(case)}
    trainer, found, most = evaluated()
    names = [*evaluation_row(trainer, found, most), *exploring_row(trainer, found, 2, 10**6)]
    of_evaluations = set(map(known_number, names))
    of_accounts = {"row", "obs", "act", "end", *COLUMNS}
    assert set(MEANINGS) == told | of_evaluations | of_accounts | DOCTORS | RARE | {"mean_return_"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_column_of_an_explained_update_is_explained(case):
    trainer = case.trainer()
    timeline = Timeline(trainer)
    trainer.until("update")
    account = explain_update(timeline)
    assert [name for name in account.table().heads if known_number(name) is None] == []
    trainer.close()


def evaluated():
    "A trainer, an evaluation, and the steps it was given"
    trainer = rlbench.Trainer("CartPole-v1", "ppo")
    return trainer, rlbench.evaluate(trainer, 2), 100


def test_formulas_of_algorithms_belong_to_numbers_that_they_tell():
    told = {}
    for case in CASES:
        told.setdefault(case.algo, set()).update(told_by(case))
    known = set(algorithms())
    for meaning in MEANINGS.values():
        assert set(meaning.by) <= known, meaning.name
        for algo in meaning.by:
            rare = (meaning.name, algo) == ("ratio", "monte_carlo")    # only where it learns off-policy
            assert rare or meaning.name in told[algo], (meaning.name, algo)


@pytest.mark.parametrize("name", ["kl", "tried_kl"])
def test_a_policy_that_stands_still_is_not_called_healthy(name):
    assert "hardly moves" in MEANINGS[name].beyond(2e-10) and not MEANINGS[name].beyond(.008)


@pytest.mark.parametrize("name", MEANINGS)
def test_an_entry_is_whole(name):
    one = MEANINGS[name]
    for text in (one.sentence, one.why, one.lower, one.higher):
        assert text and text == text.strip() and not text.endswith(".")
    for tex in (one.formula, *one.by.values()):
        root = ET.fromstring(mathml(tex))
        assert root.tag == "math" and "\\" not in "".join(root.itertext()), tex
        assert root.get("alttext") == tex
    for x in (one.low, one.high):
        assert x is None or one.beyond(x) == ""      # the bounds themselves are healthy
    assert one.name in repr(one) and "<math" in one._repr_html_()


def test_bounds_are_the_doctors():
    "Each of them is asked for where he looks, and nowhere is it written again"
    from rlbench.training.doctor import learning, policy
    modules = learning, policy
    text = "".join(Path(one.__file__).read_text(encoding="utf-8") for one in modules)
    asked = set(re.findall(r'MEANINGS\["(\w+)"\]', text))
    assert asked == {"kl"} | DOCTORS
    assert all(MEANINGS[name].low is not None or MEANINGS[name].high is not None for name in asked)


@pytest.mark.parametrize("algo", algorithms())
def test_one_question_for_settings_and_numbers(algo):
    assert rlbench.explain("gamma", algo)[0].setting.name == "gamma"
    assert rlbench.explain("mean_return", algo)[0].name == "mean_return"
    with pytest.raises(ConfigError, match="did you mean 'mean_return'"):
        rlbench.explain("mean_retrun", algo)


def test_a_name_may_be_both_and_a_run_knows_its_algorithms():
    steps = rlbench.explain("steps")
    assert [type(one).__name__ for one in steps] == ["Meaning", "Explanation"]
    chase = rlbench.Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"))
    assert chase.explain("chaser/delta").formula == MEANINGS["delta"].formula
    assert chase.explain("runner/kl").by == {}
    assert chase.explain("chaser.gamma").section == "chaser"
    with pytest.raises(ConfigError, match="did you mean 'kl'"):
        chase.explain("runner/kll")


def test_the_command_line_answers_too(capsys):
    assert main(["explain", "kl"]) == 0
    assert r"\rho - 1 - \log \rho" in capsys.readouterr().out
    assert main(["explain", "trpo", "kl"]) == 0
    assert r"\text{KL}" in capsys.readouterr().out
    assert main(["explain", "klo"]) == 2
    assert "did you mean 'kl'?" in capsys.readouterr().err
