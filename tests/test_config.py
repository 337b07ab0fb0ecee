"""Every value knows its source; every mistake is named; nothing changes when a layer is refused."""
import dataclasses
import json
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from rlbench.algos.algorithm import algorithms
from rlbench.core.config import Config, ConfigError, Exponential, Linear, Piecewise, Schedule, at, check, fields_of, from_plain, hp, parse_schedule, parse_value, read_config, to_plain
from rlbench.training.trainer import TrainerSettings

number = st.floats(-1e6, 1e6, allow_nan=False)
schedules = st.one_of(st.builds(Linear, number, number, st.integers(1, 10**6)), st.builds(Exponential, st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.integers(1, 10**6)))


@given(schedules)
def test_a_schedule_is_its_text(schedule):
    assert parse_schedule(str(schedule)) == schedule


@given(schedules, st.integers(0, 2 * 10**6))
def test_a_schedule_stays_between_its_ends(schedule, steps):
    low, high = sorted(schedule.ends)
    slack = 1e-9 * max(1, abs(low), abs(high))
    assert low - slack <= schedule.at(steps) <= high + slack
    assert schedule.at(0) == pytest.approx(schedule.start) and schedule.at(schedule.steps) == pytest.approx(schedule.end)


def test_piecewise_passes_through_its_points():
    schedule = Piecewise(((0, 1.), (10, .5), (30, 0.)))
    assert [schedule.at(s) for s, _ in schedule.points] == [1., .5, 0.]


@pytest.mark.parametrize("name", algorithms())
def test_every_setting_is_documented_and_survives_being_written_down(name):
    cls = algorithms()[name]
    assert {f.name for f in dataclasses.fields(cls)} == {s.name for s in fields_of(cls)}
    for setting in fields_of(cls):
        assert setting.doc and check(setting, setting.default) == setting.default
    assert from_plain(cls, json.loads(json.dumps(to_plain(cls())))) == cls()


@pytest.mark.parametrize("name", algorithms())
def test_one_default_one_place(name):
    "No method of an algorithm has a default for something that is a setting"
    import inspect
    cls = algorithms()[name]
    settings = {s.name for s in fields_of(cls)}
    for _, function in inspect.getmembers(cls, inspect.isfunction):
        if function.__name__ == "__init__":
            continue
        shadows = {p.name for p in inspect.signature(function).parameters.values() if p.default is not p.empty} & settings
        assert not shadows, (function, shadows)


def test_the_last_layer_wins_and_says_so(tmp_path):
    (tmp_path / "a.toml").write_text("[default]\ngamma = 0.5\nlr = 0.25\n[behaviours.agent]\nlr = 0.125\n[trainer]\nseed = 9\n")
    cfg = Config(dict(trainer=TrainerSettings, algo=algorithms()["ppo"]))
    cfg.add_file(tmp_path / "a.toml")
    cfg.add("command line", {"algo.clip": .1})
    algo, trainer = cfg.values["algo"], cfg.values["trainer"]
    assert (algo.gamma, algo.lr, algo.clip, trainer.seed) == (.5, .125, .1, 9)
    assert cfg.where("lr").endswith("[behaviours.agent]") and cfg.where("clip") == "command line" and cfg.where("horizon") == "default"
    text = repr(cfg.explain("gamma"))
    assert "0.5" in text and "a.toml [default]" in text and "rewards come late" in text and "Algorithm" in text


@pytest.mark.parametrize("text,words", [
    ("[default]\ngama = 1\n", ["a.toml [default]", "'gama'", "did you mean 'gamma'"]),
    ("[default]\ngamma = 2\n", ["a.toml [default]", "gamma = 2", "from 0 to 1", "discount"]),
    ("[default]\ngamma = 'high'\n", ["gamma = 'high'", "expected a number"]),
    ("[default]\nhorizon = 1.5\n", ["horizon = 1.5", "whole number"]),
    ("[default]\nhidden = 64\n", ["hidden = 64", "(64, 64)"]),
    ("[default]\nnormalise_obs = 1\n", ["normalise_obs = 1", "true or false"]),
    ("[default]\nlr = 'linear(1, 2)'\n", ["takes (start, end, steps)"]),
    ("[trainer]\ngamma = .5\n", ["a.toml"]),
    ("[behaviour.agent]\ngamma = 0.5\n", ["'behaviour'", "did you mean 'behaviours'"]),
    ("[default\n", ["a.toml", "line 1"]),
])
def test_a_mistake_in_a_file_names_file_key_and_what_was_expected(tmp_path, text, words):
    (tmp_path / "a.toml").write_text(text)
    cfg = Config(dict(trainer=TrainerSettings, algo=algorithms()["ppo"]))
    with pytest.raises(ConfigError) as problem:
        cfg.add_file(tmp_path / "a.toml")
    message = str(problem.value)
    assert all(word in message for word in words) and "\n" not in message, message
    assert cfg.layers == []


def test_json_is_read_and_its_mistakes_too(tmp_path):
    (tmp_path / "a.json").write_text('{"default": {"gamma": 0.5}}')
    assert read_config(tmp_path / "a.json") == {"default": {"gamma": .5}}
    (tmp_path / "a.json").write_text('{"default": {"gamma": }}')
    with pytest.raises(ConfigError, match="line 1"):
        read_config(tmp_path / "a.json")


def test_sections_may_not_share_a_name():
    @dataclass(frozen=True)
    class Other:
        gamma: float = hp(.5, "another discount")
    with pytest.raises(ConfigError, match="two sections"):
        Config(dict(algo=algorithms()["ppo"], other=Other))


def test_at_gives_the_same_object_without_schedules():
    cls = algorithms()["ppo"]
    assert at(algo := cls(), 5) is algo and at(cls(lr=Linear(1, 0, 10)), 5).lr == .5


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none(), st.tuples(st.integers(), st.integers())))
def test_values_survive_the_command_line(value):
    assert parse_value(str(value)) == value


def test_schedules_are_kept_as_schedules():
    cfg = Config(dict(algo=algorithms()["dqn"]))
    cfg.add("python", dict(eps="linear(1, 0, 100)"))
    assert isinstance(cfg.values["algo"].eps, Schedule)
    twin = Config(dict(algo=algorithms()["dqn"]))
    twin.restore(json.loads(json.dumps(cfg.state())))
    assert twin.values == cfg.values and twin.diff() == {"eps": "linear(1, 0, 100)"}
