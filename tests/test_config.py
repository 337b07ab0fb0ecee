"""Every value knows its source; every mistake is named; nothing changes when a layer is refused."""
import dataclasses
import inspect
import json
import typing
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rlbench.algos.algorithm import algorithms
from rlbench.core.config import (Config, ConfigError, Cosine, Exponential, Linear, Piecewise, Schedule, Setting, at, check, fields_of,
                                 from_plain, hp, parse_schedule, parse_value, read_config, to_plain)
from rlbench.training.trainer import TrainerSettings

number = st.floats(-1e6, 1e6, allow_nan=False)
lengths, positive = st.integers(1, 10**6), st.floats(1e-6, 1e3)
ramps = st.one_of(st.builds(Linear, number, number, lengths), st.builds(Exponential, positive, positive, lengths), st.builds(Cosine, number, number, lengths))
points = st.dictionaries(st.integers(0, 10**6), number, min_size=1, max_size=5).map(lambda d: Piecewise(tuple(sorted(d.items()))))


@dataclass(frozen=True)
class Toy:
    "One field of every kind"
    gamma: float = hp(.99, "discount per step", up="rewards come late", low=0, high=1)
    batch: int = hp(64, "transitions", low=1)
    eps: float | Schedule = hp(.1, "probability of a random action", low=0, high=1)
    hidden: tuple[int, ...] = hp((64, 64), "units", low=1, live=False)
    pair: tuple[int, float] = hp((1, .5), "a pair")
    label: str = hp("", "name of the run")
    device: str = hp("cpu", "where", choices=("cpu", "cuda"))
    limit: typing.Optional[float] = hp(None, "longest gradient", low=0)
    either: "int | float" = hp(1, "annotated by text")
    double: bool = hp(True, "two networks")
    extra: dict = hp(None, "whatever the environment takes")


@dataclass(frozen=True)
class Run:
    steps: int = hp(1000, "environment steps", low=0)


def toy(): return Config(dict(algo=Toy, run=Run))


def refusal(call, *args):
    "The message of a refused call: one line"
    with pytest.raises(ConfigError) as problem:
        call(*args)
    assert "\n" not in str(problem.value)
    return str(problem.value)


@given(st.one_of(ramps, points))
def test_a_schedule_is_its_text(schedule):
    assert parse_schedule(str(schedule)) == schedule


@given(ramps, st.integers(0, 2 * 10**6))
def test_a_schedule_stays_between_its_ends(schedule, steps):
    low, high = sorted(schedule.ends)
    slack = 1e-9 * max(1, abs(low), abs(high))
    assert low - slack <= schedule.at(steps) <= high + slack
    assert schedule.at(0) == schedule.start and schedule.at(schedule.steps) == schedule.end == schedule.at(10**9)


def test_cosine_is_symmetric_and_starts_and_ends_level():
    schedule = Cosine(2., 1., 1000)
    assert schedule.at(500) == pytest.approx(1.5) and schedule.at(200) - 1.5 == pytest.approx(1.5 - schedule.at(800))
    assert schedule.at(0) - schedule.at(10) < .1 * (schedule.at(495) - schedule.at(505))         # level at the start, steep in the middle
    assert parse_schedule("cosine(2, 1, 1000)") == schedule


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


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none(),
                 st.tuples(st.integers(), st.integers())))
def test_values_survive_the_command_line(value):
    assert parse_value(str(value)) == value


def test_schedules_are_kept_as_schedules():
    cfg = Config(dict(algo=algorithms()["dqn"]))
    cfg.add("python", dict(eps="linear(1, 0, 100)"))
    assert isinstance(cfg.values["algo"].eps, Schedule)
    twin = Config(dict(algo=algorithms()["dqn"]))
    twin.restore(json.loads(json.dumps(cfg.state())))
    assert twin.values == cfg.values and twin.diff() == {"eps": "linear(1, 0, 100)"}


# ---- one field of every kind

@pytest.mark.parametrize("name,value,held", [
    ("gamma", 1, 1.), ("gamma", np.float32(.5), .5), ("batch", 8., 8), ("batch", np.int64(8), 8), ("eps", 0, 0.),
    ("eps", "linear(1, 0.05, 9)", Linear(1, .05, 9)), ("eps", Piecewise(((0, 1), (9, 0))), Piecewise(((0, 1), (9, 0)))),
    ("hidden", [32, 16.], (32, 16)), ("hidden", (), ()), ("pair", [2, 1], (2, 1.)), ("label", "x", "x"), ("device", "cuda", "cuda"),
    ("limit", None, None), ("limit", 3, 3.), ("either", 3, 3), ("either", .5, .5), ("double", np.bool_(False), False), ("extra", {"a": 1}, {"a": 1}),
])
def test_what_fits_is_held_as_the_field_says(name, value, held):
    cfg = toy()
    cfg.add("python", {name: value})
    got = getattr(cfg.values["algo"], name)
    assert got == held and type(got) is type(held)
    json.dumps(cfg.resolved())


@pytest.mark.parametrize("name,value,words", [
    ("gamma", "high", "gamma = 'high': expected a number from 0 to 1 (discount per step)"),
    ("gamma", 1.5, "gamma = 1.5: expected"), ("gamma", float("nan"), "gamma = nan: expected"), ("gamma", True, "gamma = True: expected a number"),
    ("gamma", None, "gamma = None: expected"), ("gamma", "linear(1, 0, 9)", "gamma = 'linear(1, 0, 9)': expected a number"),
    ("gamma", Linear(1, 0, 9), "gamma = linear(1, 0, 9): expected a number from 0 to 1"),
    ("gamma", np.zeros((2, 2)), "gamma = array([[0., 0.], [0., 0.]]): expected"),
    ("batch", 3.5, "batch = 3.5: expected a whole number of at least 1 (transitions)"), ("batch", float("inf"), "batch = inf: expected"),
    ("batch", float("nan"), "batch = nan: expected"), ("batch", 0, "batch = 0: expected"), ("batch", True, "batch = True: expected"),
    ("eps", "hello", "eps = 'hello': expected a number from 0 to 1 or a schedule such as linear(1, 0.05, 10000)"),
    ("eps", "linear(2, 0, 9)", "eps = 'linear(2, 0, 9)': expected a number from 0 to 1"),
    ("eps", Piecewise(((0, 1), (9, 7))), "eps = piecewise((0, 1), (9, 7)): expected a number from 0 to 1"),
    ("eps", Linear(1, 0, 0), "eps = linear(1, 0, 0): steps must be above 0"),
    ("eps", "linear(1, 0, 0)", "eps: 'linear(1, 0, 0)': steps must be above 0"),
    ("eps", "linaer(1, 0, 9)", "eps: unknown schedule 'linaer'; did you mean 'linear'?"),
    ("eps", "linear(1, 0)", "eps: 'linear(1, 0)': linear takes (start, end, steps)"), ("eps", "linear(1, 0, x)", "cannot be read"),
    ("eps", "linear('a', 0, 9)", "linear takes numbers"), ("eps", "linear(1, 0, 'x')", "linear takes numbers"),
    ("eps", "exponential(1, 0, 9)", "both ends must be above 0"), ("eps", "piecewise(1, 2)", "piecewise takes (steps, value)"),
    ("eps", "piecewise((5, 1), (5, 0))", "steps must rise from point to point"), ("eps", "piecewise()", "cannot be read"),
    ("hidden", 64, "hidden = 64: expected numbers such as (64, 64)"), ("hidden", (64, 0), "of at least 1 (units)"),
    ("hidden", (8.5,), "hidden = (8.5,): expected"), ("hidden", "64", "hidden = '64': expected"), ("pair", (1,), "pair = (1,): expected"),
    ("label", 7, "label = 7: expected text"), ("device", "tpu", "device = 'tpu': expected one of cpu, cuda"),
    ("limit", "x", "limit = 'x': expected a number of at least 0 or none"), ("double", 1, "double = 1: expected true or false"),
    ("extra", 3, "extra = 3: expected a table"),
])
def test_what_does_not_fit_is_refused_in_one_line(name, value, words):
    cfg = toy()
    assert refusal(cfg.add, "python", {name: value}).startswith("python: ")
    assert words in refusal(cfg.add, "python", {name: value}) and cfg.layers == []


def test_values_on_the_command_line_know_their_setting():
    label, limit = (next(s for s in fields_of(Toy) if s.name == name) for name in ("label", "limit"))
    assert isinstance(label, Setting) and parse_value("007", label) == "007" and parse_value("true", label) == "true"
    assert parse_value("none", limit) is None and parse_value("2", limit) == 2 and parse_value("{[]: 1}") == "{[]: 1}"


def test_fields_are_inherited_and_know_their_owner():
    @dataclass(frozen=True)
    class Child(Toy):
        batch: int = hp(8, "transitions", low=1)
        plain: int = 3                                       # not a setting: nobody can set it from outside
    fields = {s.name: s for s in fields_of(Child)}
    assert (fields["gamma"].owner, fields["batch"].owner, fields["batch"].default) == ("Toy", "Child", 8) and "plain" not in fields
    assert fields["limit"].kinds == (float, type(None)) and fields["either"].kinds == (int, float) and not fields["hidden"].live


# ---- layers

def test_unknown_words_are_named_with_the_nearest():
    cfg = toy()
    assert refusal(cfg.add, "command line", {"gama": 1}).startswith("command line: unknown setting 'gama'; did you mean 'gamma'? There are: batch, ")
    assert "unknown setting 'zzz'. There are: " in refusal(cfg.add, "python", {"zzz": 1})
    assert "unknown section 'agent'. There are: algo, run" in refusal(cfg.add, "python", {"agent.gamma": 1})
    assert "gamma belongs to section 'algo', not 'run'" in refusal(cfg.add, "python", {"run": {"gamma": 1}})
    assert "algo = 'ppo': expected a table of its settings" in refusal(cfg.add, "python", {"algo": "ppo"})
    for ask in (cfg.where, cfg.explain, cfg.history, cfg.field):
        assert "did you mean 'gamma'?" in refusal(ask, "gama")
    assert "did you mean 'gamma'?" in refusal(from_plain, Toy, {"gama": 1})
    assert cfg.layers == []


def test_nothing_of_a_refused_layer_stays():
    cfg = toy()
    cfg.add("python", dict(gamma=.5))
    before, values = cfg.state(), cfg.values
    refusal(cfg.add, "python", dict(gamma=.7, batch=0))
    refusal(cfg.restore, [["a", dict(gamma=.7)], ["b", dict(batch=0)]])
    assert cfg.state() == before and cfg.values == values


@given(st.lists(st.tuples(st.sampled_from("abc"), st.dictionaries(st.sampled_from(["gamma", "eps", "algo.gamma"]), st.floats(0, 1)), st.integers(0, 9)), max_size=8))
def test_the_last_word_counts_whatever_the_layers(layers):
    cfg, want, by = toy(), dataclasses.asdict(Toy()) | dict(steps=1000), {}
    for source, mapping, steps in layers:
        cfg.add(source, mapping | {"run": {"steps": steps}})
        said = {name.rpartition(".")[2]: value for name, value in mapping.items()} | dict(steps=steps)
        want, by = want | said, by | dict.fromkeys(said, source)
    values = dataclasses.asdict(cfg.values["algo"]) | dataclasses.asdict(cfg.values["run"])
    assert values == want and all(cfg.where(name) == by.get(name, "default") for name in want)
    assert cfg.diff() == {name: want[name] for name in by if want[name] != cfg.field(name).default}
    assert all(a[0] != b[0] for a, b in zip(cfg.layers, cfg.layers[1:]))      # neighbours of one source are one layer
    twin = toy()
    twin.restore(json.loads(json.dumps(cfg.state())))
    assert twin.state() == cfg.state() and twin.values == cfg.values and twin.resolved() == cfg.resolved()


def test_what_was_set_back_to_its_default_is_no_difference():
    cfg = toy()
    for gamma in (.5, .99):
        cfg.add(f"said {gamma}", dict(gamma=gamma))
    assert cfg.diff() == {} and cfg.where("gamma") == "said 0.99" and [v for _, v in cfg.history("gamma")] == [.99, .5, .99]


def test_copies_go_their_own_way():
    cfg = toy()
    cfg.add("python", dict(gamma=.5, steps=7))
    twin, part = cfg.copy(), cfg.part("run")
    twin.add("python", dict(gamma=.6))
    part.add("python", dict(steps=8))
    assert (cfg.values["algo"].gamma, twin.values["algo"].gamma) == (.5, .6)
    assert (cfg.values["run"].steps, part.values) == (7, dict(run=Run(8))) and "unknown setting 'gamma'" in refusal(part.add, "python", dict(gamma=1))


def test_everything_is_explained():
    cfg = toy()
    assert repr(cfg) == "Config(algo, run: all 12 settings at their defaults)"
    cfg.add("file <a>.toml", dict(gamma=.5))
    cfg.add("command line", dict(gamma=.7, hidden=(8,)))
    text, html = repr(cfg.explain("gamma")), cfg.explain("gamma")._repr_html_()
    for words in ("0.7", "command line", "0.5 (file <a>.toml), 0.99 (default)", "discount per step", "rewards come late", "a number from 0 to 1",
                  "Toy (section algo)", "can change between any two events"):
        assert words in text
        assert words.replace("<", "&lt;").replace(">", "&gt;") in html
    assert "fixed from the start" in repr(cfg.explain("hidden")) and "gamma" in repr(cfg) and "batch" not in repr(cfg)


# ---- files

@pytest.mark.parametrize("text,words", [
    ("default = 3\n", "a.toml: default = 3: expected a table"), ("behaviours = 3\n", "behaviours = 3: expected a table"),
    ("[behaviours]\nagent = 3\n", "behaviours.agent = 3: expected a table"), ("run = 3\n", "run = 3: expected a table"),
    ("env = 3\n", "env = 3: expected text"), ("algo = 3\n", "algo = 3: expected text or a table"),
    ("env_settings = 'x'\n", "env_settings = 'x': expected a table"),
    ("[behaviours.agnet]\ngamma = 0.5\n", "unknown behaviour 'agnet'; did you mean 'agent'? There are: agent"),
    ("[default]\ngamma = 0.5\n[run]\nsteps = -1\n", "a.toml [run]: steps = -1: expected a whole number of at least 0"),
    ("[default]\ngamma = 0.5\n[behaviours.agent]\nbatch = 0\n", "a.toml [behaviours.agent]: batch = 0"),
    ("[default]\ngamma = 0.5\ngamma = 0.6\n", "at line 3"), ("[default]\ngamma = ", "at line 2, the end of the file"),
    ("[default]\ngamma = inf\n", "gamma = inf: expected"), ("[default]\ngamma = 2026-01-01\n", "expected a number"),
])
def test_a_file_is_taken_whole_or_not_at_all(tmp_path, text, words):
    (tmp_path / "a.toml").write_text(text)
    cfg = toy()
    assert words in refusal(cfg.add_file, tmp_path / "a.toml") and cfg.layers == []


def test_a_file_says_more_than_settings(tmp_path):
    text = 'env = "CartPole-v1"\nalgo = "dqn"\nenv_settings = {sutton_barto_reward = true}\n[behaviours.agent]\neps = "linear(1, 0, 9)"\n'
    (tmp_path / "a.toml").write_text(text)
    cfg = toy()
    assert cfg.add_file(tmp_path / "a.toml") == dict(env="CartPole-v1", algo="dqn", env_settings=dict(sutton_barto_reward=True))
    assert cfg.values["algo"].eps == Linear(1, 0, 9)
    (tmp_path / "b.json").write_text('{"algo": {"batch": 8}, "default": {"batch": 7, "hidden": [4]}, "env_settings": {}}')
    assert cfg.add_file(tmp_path / "b.json") == dict(env_settings={})
    assert cfg.values["algo"].batch == 8 and cfg.values["algo"].hidden == (4,) and cfg.where("batch").endswith("b.json [algo]")


@pytest.mark.parametrize("name,content,words", [
    ("none.toml", None, "no such file"), ("folder.toml", "folder", "irectory"), ("a.yaml", b"gamma: 1", "expected a .toml or .json file"),
    ("a.toml", b"\xff\xfe\x00", "is not text"), ("a.json", b"[1]", "expected tables, found a list"), ("a.json", b"{", "line 1"), ("a.json", b"", "line 1"),
])
def test_a_file_that_cannot_be_read_says_why(tmp_path, name, content, words):
    path = tmp_path / name
    if content == "folder": path.mkdir()
    elif content is not None: path.write_bytes(content)
    message = refusal(read_config, path)
    assert message.startswith(f"file {path}: ") and words in message
