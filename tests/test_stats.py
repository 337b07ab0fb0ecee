"""Moments do not depend on portions; episodes agree with a plain count; timers balance."""
import json

import numpy as np
import torch
from hypothesis import given, settings, strategies as st

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
    twin.restore(json.loads(json.dumps({k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in episodes.state().items()}), object_hook=lambda d: d | {k: np.array(d[k]) for k in ("ret", "length")}))
    assert repr(twin) == repr(episodes)


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
