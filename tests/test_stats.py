"""Moments do not depend on portions; episodes agree with a plain count; timers balance."""
import json
import math
import timeit

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from rlbench.core.state import load, same, save, snapshot
from rlbench.core.stats import Episodes, Metrics, RunningNorm, Timers


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(0, 10**6))
def test_moments_are_exact_whatever_the_portions(sizes, seed):
    rng, norm = np.random.default_rng(seed), RunningNorm((3,))
    parts = [rng.normal(1e3, 2, (n, 3)) for n in sizes]
    for part in parts:
        norm.update(torch.from_numpy(part))
    data = np.concatenate(parts)
    assert norm.count == len(data)
    if len(data):
        np.testing.assert_allclose(norm.mean, data.mean(0), rtol=1e-9)
        np.testing.assert_allclose(norm.var, data.var(0), rtol=1e-6, atol=1e-9)


def test_moments_move_only_when_told_and_are_saved():
    norm = RunningNorm((2,))
    norm(torch.randn(5, 2))
    assert norm.count == 0
    norm.update(torch.randn(4, 6, 2))
    assert norm.count == 24
    twin = RunningNorm((2,))
    twin.load_state_dict(norm.state_dict())
    x = torch.randn(3, 2)
    assert torch.equal(norm(x), twin(x))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 60), st.integers(0, 10**6))
def test_episodes_agree_with_a_plain_count(num_envs, steps, seed):
    rng, episodes, want = np.random.default_rng(seed), Episodes(num_envs), []
    ret, length = [0.] * num_envs, [0] * num_envs
    for t in range(steps):
        rew, valid = rng.normal(size=num_envs).astype(np.float32), rng.random(num_envs) < .8
        term, trunc = rng.random(num_envs) < .1, rng.random(num_envs) < .1
        got = episodes.add(rew, term, trunc, valid)
        now = []
        for i in np.flatnonzero(valid):
            ret[i], length[i] = ret[i] + float(rew[i]), length[i] + 1
            if term[i] or trunc[i]:
                now.append((i, ret[i], length[i], bool(term[i])))
                ret[i], length[i] = 0., 0
        assert [(a, c, d) for a, _, c, d in got] == [(a, c, d) for a, _, c, d in now]
        np.testing.assert_allclose([e[1] for e in got], [e[1] for e in now], rtol=1e-6)
        want += now
    assert episodes.total == len(want)
    if want:
        np.testing.assert_allclose(episodes.mean_return, np.mean([e[1] for e in want[-100:]]), rtol=1e-6)
    twin = Episodes(num_envs)
    twin.restore(snapshot(episodes.state()))
    assert repr(twin) == repr(episodes) and same(twin.state(), episodes.state())
    rew, ends = np.ones(num_envs, np.float32), np.ones(num_envs, bool)
    assert twin.add(rew, ends, ~ends, ends) == episodes.add(rew, ends, ~ends, ends)


def test_metrics_have_the_union_of_columns():
    metrics = Metrics()
    metrics.add(dict(a=1)), metrics.add(dict(b=2.))
    assert metrics.names == ["a", "b"] and np.isnan(metrics.column("b")[0]) and metrics.column("b")[1] == 2


def test_timers_balance_and_survive_errors():
    timers = Timers()
    for _ in range(5):
        try:
            with timers("a"):
                with timers("b"):
                    raise ValueError
        except ValueError:
            pass
    tree = json.loads(timers.json())
    a = tree["children"]["a"]
    assert (a["count"], a["children"]["b"]["count"], timers.here.name) == (5, 5, "root")
    assert a["total"] >= a["children"]["b"]["total"] and set(tree["metadata"]) >= {"timer_format_version", "start_time_seconds", "python_version"}


# ---- running moments

def test_moments_do_not_lose_digits_far_from_zero():
    data = torch.from_numpy(np.random.default_rng(0).normal(1e6, .1, (5000, 1)))
    norm = RunningNorm((1,))
    for part in data.split(7):
        norm.update(part)
    assert norm.var.item() == pytest.approx(data.var(correction=0).item(), rel=1e-6)


def test_shapes_of_observations():
    for shape, good, bad in (((), (4,), None), ((2,), (3, 5, 2), (3, 4)), ((2, 3), (7, 2, 3), (6,))):
        norm = RunningNorm(shape)
        norm.update(torch.ones(good))
        assert norm.count == math.prod(good) // math.prod(shape) and norm(torch.ones(good)).shape == good
        if bad:
            with pytest.raises(ValueError, match="must end in"):
                norm.update(torch.ones(bad))
    assert norm(torch.zeros(2, 3, dtype=torch.uint8)).dtype == torch.float32 and "7 seen" in repr(norm)


# ---- episodes

def test_rows_that_are_no_transition_contribute_nothing():
    episodes, none, both = Episodes(2), np.zeros(2, bool), np.ones(2, bool)
    episodes.add(np.ones(2, np.float32), none, none, both)
    assert episodes.add(np.full(2, np.nan), both, both, none) == []
    assert episodes.add(np.ones(2, np.float32), both, none, both) == [(0, 2., 2, True), (1, 2., 2, True)]
    assert math.isnan(Episodes(1).mean_return) and repr(Episodes(1)).startswith("Episodes(0 finished")


def test_returns_are_added_in_double_precision():
    episodes, none, both = Episodes(1), np.zeros(1, bool), np.ones(1, bool)
    for _ in range(20_000):
        episodes.add(np.array([.1], np.float32), none, none, both)
    [(_, ret, length, term)] = episodes.add(np.array([.1], np.float32), none, both, both)
    assert ret == pytest.approx(20_001 * float(np.float32(.1)), rel=1e-12) and (length, term) == (20_001, False)


def test_only_the_last_hundred_count():
    episodes, yes, no = Episodes(1), np.ones(1, bool), np.zeros(1, bool)
    for i in range(250):
        episodes.add(np.array([float(i)]), yes, no, yes)
    assert (episodes.total, len(episodes.finished), episodes.mean_return) == (250, 100, np.mean(range(150, 250)))
    assert all(type(x) in (int, float, bool) for x in episodes.finished[-1])


def test_the_hot_path_is_cheap():
    "3.6 µs on an idle machine; the bound leaves room for a busy one"
    episodes, rew, no, yes = Episodes(8), np.ones(8, np.float32), np.zeros(8, bool), np.ones(8, bool)
    assert min(timeit.repeat(lambda: episodes.add(rew, no, no, yes), number=100, repeat=200)) / 100 < 20e-6
    timers = Timers()

    def block():
        with timers("x"): pass
    assert min(timeit.repeat(block, number=100, repeat=200)) / 100 < 5e-6


# ---- metrics

def test_metrics_hold_plain_numbers_only():
    metrics = Metrics()
    assert metrics.column("nothing").size == 0 and "no rows" in repr(metrics)
    metrics.add(dict(a=np.int64(3), b=torch.tensor(.5), c=np.float32(.25), d=True, e=float("nan")))
    assert [type(v) for v in metrics.rows[0].values()] == [int, float, float, int, float] and "nan" in repr(metrics)
    for bad in ("1", None, np.zeros(2), torch.zeros(3), [1, 2]):
        with pytest.raises(ValueError, match="metric loss = .*: expected one number") as problem:
            metrics.add(dict(a=1, loss=bad))
        assert "\n" not in str(problem.value)
    assert len(metrics) == 1 and "loss" not in metrics.names
    with pytest.raises(KeyError, match="no column 'aa'"):
        metrics.column("aa")


def test_statistics_survive_a_file(tmp_path):
    metrics, episodes, yes = Metrics(), Episodes(2), np.ones(2, bool)
    metrics.add(dict(a=1, b=math.nan)), metrics.add(dict(c=.1))
    episodes.add(np.array([.1, .2]), yes, ~yes, yes)
    save(tmp_path / "x", dict(metrics=metrics.state(), episodes=episodes.state()), "test")
    tree, m, e = load(tmp_path / "x", "test"), Metrics(), Episodes(2)
    m.restore(tree["metrics"]), e.restore(tree["episodes"])
    assert same(m.state(), metrics.state()) and same(e.state(), episodes.state()) and m.names == metrics.names


# ---- timers

def total(node): return node["self"] + sum(map(total, node.get("children", {}).values()))


def test_own_times_add_up_to_the_whole():
    timers = Timers()
    for _ in range(20):
        with timers("a"):
            with timers("b"): sum(range(100))
            with timers("c"):
                with timers("b"): sum(range(100))
    tree = timers.tree()
    assert total(tree) == pytest.approx(tree["total"], rel=1e-6) and tree["children"]["a"]["children"]["c"]["children"]["b"]["count"] == 20
    assert [line.split()[0] for line in repr(timers).splitlines()] == ["timer", "a", "b", "c", "b"] and repr(Timers()).startswith("Timers(nothing")
    assert json.loads(timers.json())["total"] >= tree["total"]              # live: it can be asked again and again


def test_the_timer_file_has_the_form_of_its_card():
    timers, metrics = Timers(), Metrics()
    with timers("advance"):
        with timers("env_step"): pass
    for value in (.2, .1, math.nan, .9, .2):
        metrics.add({"v_loss": value, "kl": math.nan})
    tree = json.loads(timers.json(metrics), parse_constant=pytest.fail)
    assert (tree["name"], tree["count"]) == ("root", 1)
    assert tree["gauges"] == {"v_loss": dict(value=.2, min=.1, max=.9, count=4)}
    assert set(tree["metadata"]) >= {"timer_format_version", "start_time_seconds", "end_time_seconds", "python_version", "command_line_arguments"}
    assert all(isinstance(v, str) for v in tree["metadata"].values()) and tree["metadata"]["timer_format_version"] == "0.1.0"
    assert set(tree["children"]["advance"]) == {"total", "count", "self", "children"} and set(tree["children"]["advance"]["children"]["env_step"]) == {"total", "count", "self"}
    assert json.loads(Timers().json())["gauges"] == {}


def test_two_trees_do_not_mix():
    one, two = Timers(), Timers()
    with one("a"):
        with two("b"): pass
    assert list(one.root.children) == ["a"] and list(two.root.children) == ["b"] and not one.root.children["a"].children
