"Moments do not depend on portions; metrics are plain numbers; timers balance"
import json
import math
import timeit

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.core.state import read_tree, same, write_tree
from rlbench.core.stats import Metrics, RunningNorm, Timers, merged_moments, timers_json
from rlbench.envs.env import Ended, Episodes

# ---- running moments


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(0, 10**6))
def test_moments_are_exact_whatever_the_portions(sizes, seed):
    rng = np.random.default_rng(seed)
    norm = RunningNorm((3,))
    parts = [rng.normal(1e3, 2, (n, 3)) for n in sizes]
    for part in parts:
        norm.update(torch.from_numpy(part))
    data = np.concatenate(parts)
    assert norm.count == len(data)
    if len(data):
        np.testing.assert_allclose(norm.mean, data.mean(0), rtol=1e-9)
        np.testing.assert_allclose(norm.var, data.var(0), rtol=1e-6, atol=1e-9)


def test_two_sets_together():
    a = np.array([1., 2., 4.])
    b = np.array([10., 11.])
    n, mean, var = merged_moments((3, a.mean(), a.var()), (2, b.mean(), b.var()))
    both = np.r_[a, b]
    assert (n, mean, var) == (5, pytest.approx(both.mean()), pytest.approx(both.var()))


def test_moments_move_only_when_told_and_are_saved():
    rng = torch.Generator().manual_seed(0)
    norm = RunningNorm((2,))
    norm(torch.randn(5, 2, generator=rng))
    assert norm.count == 0
    norm.update(torch.randn(4, 6, 2, generator=rng))
    assert norm.count == 24
    twin = RunningNorm((2,))
    twin.load_state_dict(norm.state_dict())
    x = torch.randn(3, 2, generator=rng)
    assert torch.equal(norm(x), twin(x))


def test_moments_do_not_lose_digits_far_from_zero():
    data = torch.from_numpy(np.random.default_rng(0).normal(1e6, .1, (5000, 1)))
    norm = RunningNorm((1,))
    for part in data.split(7):
        norm.update(part)
    assert norm.var.item() == pytest.approx(data.var(correction=0).item(), rel=1e-6)


@pytest.mark.parametrize("shape,good,bad", [((), (4,), None), ((2,), (3, 5, 2), (3, 4)), ((2, 3), (7, 2, 3), (6,))])
def test_shapes_of_observations(shape, good, bad):
    norm = RunningNorm(shape)
    norm.update(torch.ones(good))
    assert norm.count == math.prod(good) // math.prod(shape)
    assert norm(torch.ones(good)).shape == good
    if bad:
        with pytest.raises(ValueError, match="must end in"):
            norm.update(torch.ones(bad))


def test_moments_say_what_they_have_seen():
    norm = RunningNorm((2, 3))
    norm.update(torch.ones(7, 2, 3))
    assert norm(torch.zeros(2, 3, dtype=torch.uint8)).dtype == torch.float32
    assert "7 seen" in repr(norm)


# ---- episodes

class PlainCount:
    "Returns and lengths, environment by environment"

    def __init__(self, num_envs):
        self.ret = [0.] * num_envs
        self.length = [0] * num_envs

    def add(self, rew, term, trunc, valid):
        ended = []
        for i in np.flatnonzero(valid):
            self.ret[i] += float(rew[i])
            self.length[i] += 1
            if term[i] or trunc[i]:
                ended.append((i, self.ret[i], self.length[i], bool(term[i])))
                self.ret[i] = 0.
                self.length[i] = 0
        return ended


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 60), st.integers(0, 10**6))
def test_episodes_agree_with_a_plain_count(num_envs, steps, seed):
    rng = np.random.default_rng(seed)
    episodes = Episodes(num_envs, "cart")
    plain = PlainCount(num_envs)
    want = []
    for _ in range(steps):
        valid = rng.random(num_envs) < .8
        rew = np.where(valid, rng.normal(size=num_envs), 0).astype(np.float32)
        term = (rng.random(num_envs) < .1) & valid
        trunc = (rng.random(num_envs) < .1) & valid
        got = episodes.add(rew, term, term | trunc, valid)
        now = plain.add(rew, term, trunc, valid)
        assert [(one.env, one.length, one.term) for one in got] == [(i, length, end) for i, _, length, end in now]
        np.testing.assert_allclose([one.ret for one in got], [ret for _, ret, _, _ in now], rtol=1e-6, atol=1e-6)
        want += now
    assert episodes.total == len(want)
    assert {one.who for one in episodes.finished} <= {"cart"}
    if want:
        mean = np.mean([ret for _, ret, _, _ in want[-100:]])
        np.testing.assert_allclose(episodes.mean_return, mean, rtol=1e-6, atol=1e-6)


def test_episodes_go_on_from_their_state():
    episodes = Episodes(2)
    ends = np.ones(2, bool)
    rew = np.ones(2, np.float32)
    episodes.add(rew, ends, ends, ends)
    episodes.add(rew, ~ends, ~ends, ends)
    twin = Episodes(2)
    twin.restore(episodes.state())
    assert repr(twin) == repr(episodes) and same(twin.state(), episodes.state())
    assert twin.add(rew, ends, ends, ends) == episodes.add(rew, ends, ends, ends)


def test_an_episode_that_never_began_has_no_mean():
    assert math.isnan(Episodes(1).mean_return)
    assert repr(Episodes(1)).startswith("Episodes(0 finished")


def test_returns_are_added_in_double_precision():
    episodes = Episodes(1)
    rew = np.array([.1], np.float32)
    yes = np.ones(1, bool)
    for _ in range(20_000):
        episodes.add(rew, ~yes, ~yes, yes)
    [ended] = episodes.add(rew, ~yes, yes, yes)
    assert ended.ret == pytest.approx(20_001 * float(np.float32(.1)), rel=1e-12)
    assert (ended.length, ended.term) == (20_001, False)


def test_only_the_last_hundred_count():
    episodes = Episodes(1)
    yes = np.ones(1, bool)
    for i in range(250):
        episodes.add(np.array([float(i)]), yes, yes, yes)
    assert (episodes.total, len(episodes.finished)) == (250, 100)
    assert episodes.mean_return == np.mean(range(150, 250))
    last = episodes.finished[-1]
    assert isinstance(last, Ended)
    assert [type(part) for part in last] == [int, float, int, bool, str]


def test_the_hot_path_is_cheap():
    "Some microseconds on an idle machine; the bound leaves room for a busy one"
    episodes = Episodes(8)
    rew = np.ones(8, np.float32)
    no = np.zeros(8, bool)
    spent = timeit.repeat(lambda: episodes.add(rew, no, no, ~no), number=100, repeat=200)
    assert min(spent) / 100 < 20e-6
    timers = Timers()
    spent = timeit.repeat(lambda: timers.lap("collect", 0., 1., 2., parts=("act",)), number=100, repeat=200)
    assert min(spent) / 100 < 5e-6


# ---- metrics

def test_metrics_have_the_union_of_columns():
    metrics = Metrics()
    metrics.add(dict(a=1))
    metrics.add(dict(b=2.))
    assert metrics.names == ["a", "b"]
    assert np.isnan(metrics.column("b")[0]) and metrics.column("b")[1] == 2


def test_metrics_hold_plain_numbers_only():
    metrics = Metrics()
    assert metrics.column("nothing").size == 0 and "no rows" in repr(metrics)
    metrics.add(dict(a=np.int64(3), b=torch.tensor(.5), c=np.float32(.25), d=True, e=float("nan")))
    assert [type(value) for value in metrics.rows[0].values()] == [int, float, float, int, float]
    assert "nan" in repr(metrics)
    with pytest.raises(KeyError, match="no column 'aa'"):
        metrics.column("aa")


@pytest.mark.parametrize("bad", ["1", None, np.zeros(2), torch.zeros(3), [1, 2]], ids=repr)
def test_what_is_no_number_is_no_metric(bad):
    metrics = Metrics()
    with pytest.raises(ValueError, match="metric loss = .*: expected one number") as problem:
        metrics.add(dict(a=1, loss=bad))
    assert "\n" not in str(problem.value)
    assert len(metrics) == 0 and "loss" not in metrics.names


def test_statistics_survive_a_file(tmp_path):
    metrics = Metrics()
    metrics.add(dict(a=1, b=math.nan))
    metrics.add(dict(c=.1))
    episodes = Episodes(2)
    yes = np.ones(2, bool)
    episodes.add(np.array([.1, .2]), yes, yes, yes)
    write_tree(tmp_path / "x", dict(metrics=metrics.state(), episodes=episodes.state()), "test")
    tree = read_tree(tmp_path / "x", "test")
    metrics_again = Metrics()
    metrics_again.restore(tree["metrics"])
    episodes_again = Episodes(2)
    episodes_again.restore(tree["episodes"])
    assert same(metrics_again.state(), metrics.state()) and metrics_again.names == metrics.names
    assert same(episodes_again.state(), episodes.state())


def test_numbers_come_back_from_a_file_as_numbers(tmp_path):
    "An array without axes would be changed in place by +=, also under whoever keeps the old number"
    tree = dict(count=np.int64(7), share=np.float32(.5), flag=np.True_, axes=np.asarray(3), plain=7)
    write_tree(tmp_path / "x", tree, "test")
    back = read_tree(tmp_path / "x", "test")
    assert {name: type(value) for name, value in back.items()} == {name: type(value) for name, value in tree.items()}
    assert same(back, tree)


# ---- timers

def test_a_lap_counts_the_whole_and_its_parts():
    timers = Timers()
    for _ in range(5):
        timers.lap("collect", 0., 1., 3., 6., parts=("act", "env", "add"))
        timers.lap("learn", 6., 8.)
    assert timers.totals["collect",] == [30., 5]
    assert [timers.totals["collect", part] for part in ("act", "env", "add")] == [[5., 5], [10., 5], [15., 5]]
    assert timers.totals["learn",] == [10., 5]
    assert timers.own("collect") == 0 and timers.own("learn") == 10


def test_own_times_add_up_to_the_whole():
    timers = Timers()
    timers.lap("collect", 0., 1., 3., 7., parts=("act", "env"))
    timers.lap("learn", 7., 9.)
    assert sum(timers.own(*path) for path in timers.totals) == pytest.approx(9)
    assert timers.own("collect") == 4
    assert [line.split()[0] for line in repr(timers).splitlines()] == ["timer", "collect", "act", "env", "learn"]
    assert repr(Timers()).startswith("Timers(nothing")


def test_the_timer_file_has_the_form_of_its_card():
    timers = Timers()
    timers.lap("advance", 0., 1., 3., parts=("env_step",))
    metrics = Metrics()
    for value in (.2, .1, math.nan, .9, .2):
        metrics.add({"v_loss": value, "kl": math.nan})
    tree = json.loads(timers_json(timers, metrics), parse_constant=pytest.fail)
    assert (tree["name"], tree["count"]) == ("root", 1)
    assert tree["gauges"] == {"v_loss": dict(value=.2, min=.1, max=.9, count=4)}
    about = tree["metadata"]
    assert set(about) >= {"timer_format_version", "start_time_seconds", "end_time_seconds", "python_version",
                          "command_line_arguments"}
    assert all(isinstance(value, str) for value in about.values())
    assert about["timer_format_version"] == "0.1.0"
    advance = tree["children"]["advance"]
    assert set(advance) == {"total", "count", "self", "children"}
    assert advance["children"]["env_step"] == dict(total=1., count=1, self=1.)
    assert advance["total"] >= advance["children"]["env_step"]["total"]
    assert json.loads(timers_json(Timers()))["gauges"] == {}


def test_two_clocks_do_not_mix():
    one = Timers()
    two = Timers()
    one.lap("a", 0., 1.)
    two.lap("b", 0., 1.)
    assert list(one.totals) == [("a",)] and list(two.totals) == [("b",)]
