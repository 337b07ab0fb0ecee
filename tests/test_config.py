"Every value knows its source; every mistake is named; nothing changes when a layer is refused"
import dataclasses
import inspect
import json
import typing
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbench.algos.algorithm import algorithms
from rlbench.core.config import Config, add_file, read_config
from rlbench.core.schedules import Cosine, Exponential, Linear, Piecewise, Schedule, at, parse_schedule, schedules
from rlbench.core.settings import Setting, changed, check, fields_of, from_plain, hp, parse_value, to_plain
from rlbench.core.words import ELSEWHERE, ConfigError
from rlbench.training.setup import TrainerSettings

number = st.floats(-1e6, 1e6, allow_nan=False)
lengths = st.integers(1, 10**6)
positive = st.floats(1e-6, 1e3)
ramps = st.one_of(
    st.builds(Linear, number, number, lengths),
    st.builds(Exponential, positive, positive, lengths),
    st.builds(Cosine, number, number, lengths),
)
corners = st.dictionaries(st.integers(0, 10**6), number, min_size=1, max_size=5)
points = corners.map(lambda at_steps: Piecewise(tuple(sorted(at_steps.items()))))


@dataclass(frozen=True)
class Toy:
    "One field of every kind"
    gamma: float = hp(.99, "discount per step", up="rewards come late", low=0, high=1)
    batch_size: int = hp(64, "transitions", low=1)
    epsilon: float | Schedule = hp(.1, "probability of a random action", low=0, high=1)
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
    "A section with another name"
    steps: int = hp(1000, "environment steps", low=0)


def toy():
    return Config(dict(agent=Toy, run=Run))


def ppo():
    return Config(dict(trainer=TrainerSettings, agent=algorithms()["ppo"]))


def refusal(call, *args):
    "The message of a refused call: one line"
    with pytest.raises(ConfigError) as problem:
        call(*args)
    assert "\n" not in str(problem.value)
    return str(problem.value)


# ---- schedules

@given(st.one_of(ramps, points))
def test_a_schedule_is_its_text(schedule):
    assert parse_schedule(str(schedule)) == schedule


@given(ramps, st.integers(0, 2 * 10**6))
def test_a_schedule_stays_between_its_ends(schedule, steps):
    low, high = sorted(schedule.ends)
    slack = 1e-9 * max(1, abs(low), abs(high))
    assert low - slack <= schedule.at(steps) <= high + slack
    assert schedule.at(0) == schedule.start
    assert schedule.at(schedule.steps) == schedule.end == schedule.at(10**9)


def test_cosine_is_symmetric_and_starts_and_ends_level():
    schedule = Cosine(2., 1., 1000)
    assert schedule.at(500) == pytest.approx(1.5)
    assert schedule.at(200) - 1.5 == pytest.approx(1.5 - schedule.at(800))
    at_start = schedule.at(0) - schedule.at(10)
    in_the_middle = schedule.at(495) - schedule.at(505)
    assert at_start < .1 * in_the_middle
    assert parse_schedule("cosine(2, 1, 1000)") == schedule


def test_piecewise_passes_through_its_points():
    schedule = Piecewise(((0, 1.), (10, .5), (30, 0.)))
    assert [schedule.at(steps) for steps, _ in schedule.points] == [1., .5, 0.]


def test_at_gives_the_same_object_without_schedules():
    cls = algorithms()["ppo"]
    still = cls()
    assert at(still, 5) is still
    falling = cls(lr=Linear(1, 0, 10))
    assert at(falling, 5).lr == .5
    assert list(schedules(falling)) == ["lr"]
    assert not schedules(still)


def test_schedules_are_kept_as_schedules():
    sections = dict(agent=algorithms()["dqn"])
    config = Config(sections)
    config.add("python", dict(epsilon="linear(1, 0, 100)"))
    assert isinstance(config.values["agent"].epsilon, Schedule)
    twin = Config(sections)
    twin.restore(json.loads(json.dumps(config.state())))
    assert twin.values == config.values
    assert twin.diff() == {"epsilon": "linear(1, 0, 100)"}


# ---- algorithms' settings

@pytest.mark.parametrize("name", algorithms())
def test_every_setting_is_documented_and_survives_being_written_down(name):
    cls = algorithms()[name]
    assert {field.name for field in dataclasses.fields(cls)} == {setting.name for setting in fields_of(cls)}
    for setting in fields_of(cls):
        assert setting.doc and check(setting, setting.default) == setting.default
    assert from_plain(cls, json.loads(json.dumps(to_plain(cls())))) == cls()
    assert changed(cls()) == {}


@pytest.mark.parametrize("name", algorithms())
def test_the_nearest_default_counts(name):
    "Parts that inherit settings must not bring back a default that a class before them has changed"
    algo = algorithms()[name]
    for field in dataclasses.fields(algo):
        nearest = next(cls for cls in algo.__mro__ if field.name in vars(cls).get("__annotations__", {}))
        assert nearest.__dataclass_fields__[field.name].default == field.default, (nearest, field.name)


@pytest.mark.parametrize("name", algorithms())
def test_one_default_one_place(name):
    "No method of an algorithm has a default for something that is a setting"
    cls = algorithms()[name]
    settings = {setting.name for setting in fields_of(cls)}
    for _, function in inspect.getmembers(cls, inspect.isfunction):
        if function.__name__ == "__init__": continue
        parameters = inspect.signature(function).parameters.values()
        with_default = {parameter.name for parameter in parameters if parameter.default is not parameter.empty}
        assert not with_default & settings, function


@pytest.mark.parametrize("name", algorithms())
def test_what_is_said_elsewhere_is_understood_everywhere(name):
    "A setting's name in another library leads to ours"
    config = Config(dict(agent=algorithms()[name]))
    ours = {setting.name for setting in fields_of(algorithms()[name])}
    for setting in ours & set(ELSEWHERE):
        for library, words in ELSEWHERE[setting].items():
            for word in set(words) - ours:
                message = refusal(config.add, "python", {word: 1})
                assert repr(setting) in message and library in message


# ---- one field of every kind

@pytest.mark.parametrize("name,value,held", [
    ("gamma", 1, 1.), ("gamma", np.float32(.5), .5),
    ("batch_size", 8., 8), ("batch_size", np.int64(8), 8),
    ("epsilon", 0, 0.), ("epsilon", "linear(1, 0.05, 9)", Linear(1, .05, 9)),
    ("epsilon", Piecewise(((0, 1), (9, 0))), Piecewise(((0, 1), (9, 0)))),
    ("hidden", [32, 16.], (32, 16)), ("hidden", (), ()), ("pair", [2, 1], (2, 1.)),
    ("label", "x", "x"), ("device", "cuda", "cuda"),
    ("limit", None, None), ("limit", 3, 3.), ("either", 3, 3), ("either", .5, .5),
    ("double", np.bool_(False), False), ("extra", {"a": 1}, {"a": 1}),
])
def test_what_fits_is_held_as_the_field_says(name, value, held):
    config = toy()
    config.add("python", {name: value})
    got = getattr(config.values["agent"], name)
    assert got == held and type(got) is type(held)
    json.dumps(config.resolved())


@pytest.mark.parametrize("name,value,words", [
    ("gamma", "high", "gamma = 'high': expected a number from 0 to 1 (discount per step)"),
    ("gamma", 1.5, "gamma = 1.5: expected"),
    ("gamma", float("nan"), "gamma = nan: expected"),
    ("gamma", True, "gamma = True: expected a number"),
    ("gamma", None, "gamma = None: expected"),
    ("gamma", "linear(1, 0, 9)", "gamma = 'linear(1, 0, 9)': expected a number"),
    ("gamma", Linear(1, 0, 9), "gamma = linear(1, 0, 9): expected a number from 0 to 1"),
    ("gamma", np.zeros((2, 2)), "gamma = array([[0., 0.], [0., 0.]]): expected"),
    ("batch_size", 3.5, "batch_size = 3.5: expected a whole number of at least 1 (transitions)"),
    ("batch_size", float("inf"), "batch_size = inf: expected"),
    ("batch_size", float("nan"), "batch_size = nan: expected"),
    ("batch_size", 0, "batch_size = 0: expected"),
    ("batch_size", True, "batch_size = True: expected"),
    ("epsilon", "hello", "epsilon = 'hello': expected a number from 0 to 1 or a schedule such as linear(1, 0.05, "),
    ("epsilon", "linear(2, 0, 9)", "epsilon = 'linear(2, 0, 9)': expected a number from 0 to 1"),
    ("epsilon", Piecewise(((0, 1), (9, 7))), "epsilon = piecewise((0, 1), (9, 7)): expected a number from 0 to 1"),
    ("epsilon", Linear(1, 0, 0), "epsilon = linear(1, 0, 0): steps must be above 0"),
    ("epsilon", "linear(1, 0, 0)", "epsilon: 'linear(1, 0, 0)': steps must be above 0"),
    ("epsilon", "linaer(1, 0, 9)", "epsilon: unknown schedule 'linaer'; did you mean 'linear'?"),
    ("epsilon", "linear(1, 0)", "epsilon: 'linear(1, 0)': linear takes (start, end, steps)"),
    ("epsilon", "linear(1, 0, x)", "cannot be read"),
    ("epsilon", "linear('a', 0, 9)", "linear takes numbers"),
    ("epsilon", "linear(1, 0, 'x')", "linear takes numbers"),
    ("epsilon", "exponential(1, 0, 9)", "both ends must be above 0"),
    ("epsilon", "piecewise(1, 2)", "piecewise takes (steps, value)"),
    ("epsilon", "piecewise((5, 1), (5, 0))", "steps must rise from point to point"),
    ("epsilon", "piecewise()", "cannot be read"),
    ("hidden", 64, "hidden = 64: expected numbers such as (64, 64)"),
    ("hidden", (64, 0), "of at least 1 (units)"),
    ("hidden", (8.5,), "hidden = (8.5,): expected"),
    ("hidden", "64", "hidden = '64': expected"),
    ("pair", (1,), "pair = (1,): expected"),
    ("label", 7, "label = 7: expected text"),
    ("device", "tpu", "device = 'tpu': expected one of cpu, cuda"),
    ("limit", "x", "limit = 'x': expected a number of at least 0 or none"),
    ("double", 1, "double = 1: expected true or false"),
    ("extra", 3, "extra = 3: expected a table"),
])
def test_what_does_not_fit_is_refused_in_one_line(name, value, words):
    config = toy()
    message = refusal(config.add, "python", {name: value})
    assert message.startswith("python: ") and words in message
    assert config.layers == []


@given(st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.tuples(st.integers(), st.integers()),
))
def test_values_survive_the_command_line(value):
    assert parse_value(str(value)) == value


def test_values_on_the_command_line_know_their_setting():
    by_name = {setting.name: setting for setting in fields_of(Toy)}
    label = by_name["label"]
    limit = by_name["limit"]
    assert isinstance(label, Setting)
    assert parse_value("007", label) == "007" and parse_value("true", label) == "true"
    assert parse_value("none", limit) is None and parse_value("2", limit) == 2
    assert parse_value("{[]: 1}") == "{[]: 1}"


def test_fields_are_inherited_and_know_their_owner():
    @dataclass(frozen=True)
    class Child(Toy):
        batch_size: int = hp(8, "transitions", low=1)
        plain: int = 3                      # not a setting: nobody can set it from outside

    fields = {setting.name: setting for setting in fields_of(Child)}
    assert fields["gamma"].owner == "Toy"
    assert (fields["batch_size"].owner, fields["batch_size"].default) == ("Child", 8)
    assert "plain" not in fields
    assert fields["limit"].kinds == (float, type(None)) and fields["either"].kinds == (int, float)
    assert not fields["hidden"].live


# ---- layers

def test_the_last_layer_wins_and_says_so(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("[default]\ngamma = 0.5\nlr = 0.25\n[behaviours.agent]\nlr = 0.125\n[trainer]\nseed = 9\n")
    config = ppo()
    add_file(config, path)
    config.add("command line", {"agent.clip_range": .1})
    agent = config.values["agent"]
    assert (agent.gamma, agent.lr, agent.clip_range) == (.5, .125, .1)
    assert config.values["trainer"].seed == 9
    assert config.where("lr").endswith("[behaviours.agent]")
    assert config.where("clip_range") == "command line"
    assert config.where("n_steps") == "default"
    text = repr(config.explain("gamma"))
    for words in ("0.5", "a.toml [default]", "rewards come late", "Algorithm"):
        assert words in text


def test_unknown_words_are_named_with_the_nearest():
    config = toy()
    message = refusal(config.add, "command line", {"gama": 1})
    assert message.startswith("command line: unknown setting 'gama'; did you mean 'gamma'? There are: batch_size, ")
    assert "unknown setting 'zzz'. There are: " in refusal(config.add, "python", {"zzz": 1})
    assert "unknown section 'agnet'; did you mean 'agent'? There are: agent, run" in refusal(
        config.add, "python", {"agnet.gamma": 1})
    assert "gamma belongs to section 'agent', not 'run'" in refusal(config.add, "python", {"run": {"gamma": 1}})
    assert "agent = 'ppo': expected a table of its settings" in refusal(config.add, "python", {"agent": "ppo"})
    for ask in (config.where, config.explain, config.history, config.field):
        assert "did you mean 'gamma'?" in refusal(ask, "gama")
    assert "did you mean 'gamma'?" in refusal(from_plain, Toy, {"gama": 1})
    assert config.layers == []


def test_a_bare_name_means_every_section_that_has_it():
    config = Config(dict(chaser=algorithms()["dqn"], runner=algorithms()["ppo"]))
    config.add("python", dict(gamma=.5))
    assert [values.gamma for values in config.values.values()] == [.5, .5]
    config.add("command line", {"runner.gamma": .6, "chaser": dict(lr=.1)})
    assert config.values["chaser"].gamma == .5 and config.values["runner"].gamma == .6
    assert config.values["runner"].lr != .1 == config.values["chaser"].lr
    assert [one.value for one in config.explain("gamma")] == [.5, .6]
    assert [one.source for one in config.explain("gamma")] == ["python", "command line"]
    assert config.explain("runner.gamma").value == .6
    assert config.where("chaser.gamma") == "python" and config.where("runner.gamma") == "command line"
    assert config.diff() == {"chaser.gamma": .5, "runner.gamma": .6, "chaser.lr": .1}
    assert config.values["runner"].n_steps == 256
    config.add("python", dict(n_steps=4))
    assert config.values["runner"].n_steps == 4
    assert "n_steps belongs to section 'runner', not 'chaser'" in refusal(config.add, "python", {"chaser.n_steps": 4})


def test_nothing_of_a_refused_layer_stays():
    config = toy()
    config.add("python", dict(gamma=.5))
    before = config.state()
    values = config.values
    refusal(config.add, "python", dict(gamma=.7, batch_size=0))
    refusal(config.restore, [["a", dict(gamma=.7)], ["b", dict(batch_size=0)]])
    assert config.state() == before and config.values == values


said = st.dictionaries(st.sampled_from(["gamma", "epsilon", "agent.gamma"]), st.floats(0, 1))


@given(st.lists(st.tuples(st.sampled_from("abc"), said, st.integers(0, 9)), max_size=8))
def test_the_last_word_counts_whatever_the_layers(layers):
    config = toy()
    want = dataclasses.asdict(Toy()) | dict(steps=1000)
    by = {}
    for source, mapping, steps in layers:
        config.add(source, mapping | {"run": {"steps": steps}})
        new = {name.rpartition(".")[2]: value for name, value in mapping.items()} | dict(steps=steps)
        want |= new
        by |= dict.fromkeys(new, source)
    values = dataclasses.asdict(config.values["agent"]) | dataclasses.asdict(config.values["run"])
    assert values == want
    assert all(config.where(name) == by.get(name, "default") for name in want)
    assert config.diff() == {name: want[name] for name in by if want[name] != config.field(name).default}
    sources = [source for source, _ in config.layers]
    assert all(one != other for one, other in zip(sources, sources[1:]))    # neighbours of one source are one layer
    twin = toy()
    twin.restore(json.loads(json.dumps(config.state())))
    assert twin.state() == config.state()
    assert twin.values == config.values and twin.resolved() == config.resolved()


def test_what_was_set_back_to_its_default_is_no_difference():
    config = toy()
    for gamma in (.5, .99):
        config.add(f"said {gamma}", dict(gamma=gamma))
    assert config.diff() == {}
    assert config.where("gamma") == "said 0.99"
    assert [value for _, value in config.history("gamma")] == [.99, .5, .99]


def test_copies_go_their_own_way():
    config = toy()
    config.add("python", dict(gamma=.5, steps=7))
    twin = config.copy()
    part = config.part("run")
    twin.add("python", dict(gamma=.6))
    part.add("python", dict(steps=8))
    assert (config.values["agent"].gamma, twin.values["agent"].gamma) == (.5, .6)
    assert (config.values["run"].steps, part.values) == (7, dict(run=Run(8)))
    assert "unknown setting 'gamma'" in refusal(part.add, "python", dict(gamma=1))


def test_everything_is_explained():
    config = toy()
    assert repr(config) == "Config(agent, run: all 12 settings at their defaults)"
    config.add("file <a>.toml", dict(gamma=.5))
    config.add("command line", dict(gamma=.7, hidden=(8,)))
    text = repr(config.explain("gamma"))
    html = config.explain("gamma")._repr_html_()
    for words in ("0.7", "command line", "0.5 (file <a>.toml), 0.99 (default)", "discount per step",
                  "rewards come late", "a number from 0 to 1", "Toy (section agent)",
                  "can change between any two events"):
        assert words in text
        assert words.replace("<", "&lt;").replace(">", "&gt;") in html
    assert "fixed from the start" in repr(config.explain("hidden"))
    assert "gamma" in repr(config) and "batch_size" not in repr(config)


# ---- files

@pytest.mark.parametrize("text,words", [
    ("[default]\ngama = 1\n", ["a.toml [default]", "'gama'", "did you mean 'gamma'"]),
    ("[default]\ngamma = 2\n", ["a.toml [default]", "gamma = 2", "from 0 to 1", "discount"]),
    ("[default]\ngamma = 'high'\n", ["gamma = 'high'", "expected a number"]),
    ("[default]\nn_steps = 1.5\n", ["n_steps = 1.5", "whole number"]),
    ("[default]\nhidden = 64\n", ["hidden = 64", "(64, 64)"]),
    ("[default]\nnormalize_obs = 1\n", ["normalize_obs = 1", "true or false"]),
    ("[default]\nlr = 'linear(1, 2)'\n", ["takes (start, end, steps)"]),
    ("[default]\nclip_coef = 0.1\n", ["unknown setting 'clip_coef' (CleanRL)", "here it is 'clip_range'"]),
    ("[trainer]\ngamma = .5\n", ["a.toml"]),
    ("[behaviour.agent]\ngamma = 0.5\n", ["'behaviour'", "did you mean 'behaviours'"]),
    ("[default\n", ["a.toml", "line 1"]),
])
def test_a_mistake_in_a_file_names_file_key_and_what_was_expected(tmp_path, text, words):
    (tmp_path / "a.toml").write_text(text)
    config = ppo()
    message = refusal(add_file, config, tmp_path / "a.toml")
    assert all(word in message for word in words), message
    assert config.layers == []


@pytest.mark.parametrize("text,words", [
    ("default = 3\n", "a.toml: default = 3: expected a table"),
    ("behaviours = 3\n", "behaviours = 3: expected a table"),
    ("[behaviours]\nagent = 3\n", "behaviours.agent = 3: expected a table"),
    ("run = 3\n", "run = 3: expected a table"),
    ("env = 3\n", "env = 3: expected text"),
    ("algo = 3\n", "algo = 3: expected text or a table"),
    ("env_settings = 'x'\n", "env_settings = 'x': expected a table"),
    ("[behaviours.agnet]\ngamma = 0.5\n", "unknown behaviour 'agnet'; did you mean 'agent'? There are: agent"),
    ("[default]\ngamma = 0.5\n[run]\nsteps = -1\n",
     "a.toml [run]: steps = -1: expected a whole number of at least 0"),
    ("[default]\ngamma = 0.5\n[behaviours.agent]\nbatch_size = 0\n", "a.toml [behaviours.agent]: batch_size = 0"),
    ("[default]\ngamma = 0.5\ngamma = 0.6\n", "at line 3"),
    ("[default]\ngamma = ", "at line 2, the end of the file"),
    ("[default]\ngamma = inf\n", "gamma = inf: expected"),
    ("[default]\ngamma = 2026-01-01\n", "expected a number"),
])
def test_a_file_is_taken_whole_or_not_at_all(tmp_path, text, words):
    (tmp_path / "a.toml").write_text(text)
    config = toy()
    assert words in refusal(add_file, config, tmp_path / "a.toml")
    assert config.layers == []


def test_a_file_says_more_than_settings(tmp_path):
    (tmp_path / "a.toml").write_text('env = "CartPole-v1"\nalgo = "dqn"\n'
                                     'env_settings = {sutton_barto_reward = true}\n'
                                     '[behaviours.agent]\nepsilon = "linear(1, 0, 9)"\n')
    config = toy()
    told = add_file(config, tmp_path / "a.toml")
    assert told == dict(env="CartPole-v1", algo="dqn", env_settings=dict(sutton_barto_reward=True))
    assert config.values["agent"].epsilon == Linear(1, 0, 9)
    (tmp_path / "b.json").write_text('{"behaviours": {"agent": {"batch_size": 8}}, "env_settings": {}, '
                                     '"default": {"batch_size": 7, "hidden": [4]}}')
    assert add_file(config, tmp_path / "b.json") == dict(env_settings={})
    assert config.values["agent"].batch_size == 8 and config.values["agent"].hidden == (4,)
    assert config.where("batch_size").endswith("b.json [behaviours.agent]")


def test_a_file_for_two_behaviours(tmp_path):
    (tmp_path / "a.toml").write_text("[default]\ngamma = 0.5\n[behaviours.runner]\ngamma = 0.6\n")
    config = Config(dict(trainer=TrainerSettings, chaser=algorithms()["dqn"], runner=algorithms()["ppo"]))
    add_file(config, tmp_path / "a.toml", behaviours=("chaser", "runner"))
    assert (config.values["chaser"].gamma, config.values["runner"].gamma) == (.5, .6)
    (tmp_path / "b.toml").write_text("[behaviours.runer]\ngamma = 0.5\n")
    message = refusal(add_file, config, tmp_path / "b.toml", ("chaser", "runner"))
    assert "unknown behaviour 'runer'; did you mean 'runner'?" in message


def test_json_is_read_and_its_mistakes_too(tmp_path):
    (tmp_path / "a.json").write_text('{"default": {"gamma": 0.5}}')
    assert read_config(tmp_path / "a.json") == {"default": {"gamma": .5}}
    (tmp_path / "a.json").write_text('{"default": {"gamma": }}')
    assert "line 1" in refusal(read_config, tmp_path / "a.json")


@pytest.mark.parametrize("name,content,words", [
    ("none.toml", None, "no such file"),
    ("folder.toml", "folder", "irectory"),
    ("a.yaml", b"gamma: 1", "expected a .toml or .json file"),
    ("a.toml", b"\xff\xfe\x00", "is not text"),
    ("a.json", b"[1]", "expected tables, found a list"),
    ("a.json", b"{", "line 1"),
    ("a.json", b"", "line 1"),
])
def test_a_file_that_cannot_be_read_says_why(tmp_path, name, content, words):
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    message = refusal(read_config, path)
    assert message.startswith(f"file {path}: ") and words in message


@pytest.mark.parametrize("name, text", [("a.toml", 'env = "Pole"'), ("a.json", '{"env": "Pole"}')])
def test_a_byte_order_mark_is_no_mistake(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert (tmp_path / name).read_bytes().startswith(b"\xef\xbb\xbf")
    assert read_config(tmp_path / name) == dict(env="Pole")
