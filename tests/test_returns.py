"""Returns against slow loops, against rlax, and their properties, with episodes that end both ways and padding anywhere."""
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.buffers import off_policy, returns

FLAT = dict(deadline=None, max_examples=60, derandomize=True)


def experience(seed, T=12, N=3, ends=.15, holes=0.):
    "Random columns (T, N) of every name that the functions ask for"
    rng = np.random.default_rng(seed)
    numbers = {name: torch.from_numpy(rng.standard_normal((T, N))) for name in ("rew", "val", "next_val", "q", "q2")}
    flags = {name: torch.from_numpy(rng.random((T, N)) < ends) for name in ("term", "trunc")}
    valid = torch.from_numpy(rng.random((T, N)) >= holes)
    return numbers | flags | dict(valid=valid, ratio=torch.from_numpy(rng.gamma(2., .5, (T, N))), prob=torch.from_numpy(rng.random((T, N))),
                                  greedy=torch.from_numpy(rng.random((T, N)) < .7))


def column(x, n):
    "One environment's valid rows as dicts of plain numbers"
    rows = [{k: v[t, n].item() for k, v in x.items()} for t in range(len(x["rew"])) if x["valid"][t, n]]
    for row, later in zip(rows, rows[1:] + [None]):
        row["later"] = None if row["term"] or row["trunc"] else later
        row["boot"] = 0. if row["term"] else row["next_val"]
    return rows


# the definitions, one row at a time: what follows a row is row["later"], None where the sum stops
def slow_lambda(row, gamma, lam):
    later = row["boot"] if row["later"] is None else (1 - lam) * row["boot"] + lam * slow_lambda(row["later"], gamma, lam)
    return row["rew"] + gamma * later


def slow_n_step(row, gamma, n):
    return row["rew"] + gamma * (row["boot"] if n == 1 or row["later"] is None else slow_n_step(row["later"], gamma, n - 1))


def slow_gae(row, gamma, lam):
    delta = row["rew"] + gamma * row["boot"] - row["val"]
    return delta + (0 if row["later"] is None else gamma * lam * slow_gae(row["later"], gamma, lam))


def slow_corrected(row, gamma, share):
    total, weight, now = row["q"], 1., row
    while now is not None:
        total += weight * (now["rew"] + gamma * now["boot"] - now["q"])
        now = now["later"]
        weight *= 0 if now is None else gamma * share(now)
    return total


def slow_vtrace(row, gamma, lam, rho_max, c_max):
    total, weight, now = row["val"], 1., row
    while now is not None:
        total += weight * min(rho_max, now["ratio"]) * (now["rew"] + gamma * now["boot"] - now["val"])
        weight, now = weight * gamma * lam * min(c_max, now["ratio"]), now["later"]
    return total


def slow_vtrace_advantage(row, gamma, lam, rho_max, c_max):
    later = row["later"]
    seen = row["boot"] + (0 if later is None else lam * (slow_vtrace(later, gamma, lam, rho_max, c_max) - later["val"]))
    return min(rho_max, row["ratio"]) * (row["rew"] + gamma * seen - row["val"])


def arguments(x, *names): return {name: x[name] for name in ("rew", *names, "next_val", "term", "trunc", "valid")}


CASES = {
    "monte carlo": (lambda x: returns.discounted(**arguments(x), gamma=.9), lambda row: slow_lambda(row, .9, 1.)),
    "lambda": (lambda x: returns.lambda_return(**arguments(x), gamma=.9, lam=.7), lambda row: slow_lambda(row, .9, .7)),
    "td(0)": (lambda x: returns.lambda_return(**arguments(x), gamma=.9, lam=0), lambda row: slow_n_step(row, .9, 1)),
    "3-step": (lambda x: returns.n_step_return(**arguments(x), gamma=.9, n=3), lambda row: slow_n_step(row, .9, 3)),
    "gae": (lambda x: returns.gae(**arguments(x, "val"), gamma=.9, lam=.7), lambda row: slow_gae(row, .9, .7)),
    "retrace": (lambda x: off_policy.retrace(**arguments(x, "q"), ratio=x["ratio"], gamma=.9, lam=.8),
                lambda row: slow_corrected(row, .9, lambda later: .8 * min(1, later["ratio"]))),
    "tree backup": (lambda x: off_policy.tree_backup(**arguments(x, "q"), prob=x["prob"], gamma=.9, lam=.8),
                    lambda row: slow_corrected(row, .9, lambda later: .8 * later["prob"])),
    "Q(λ)": (lambda x: off_policy.q_lambda(**arguments(x, "q"), greedy=x["greedy"], gamma=.9, lam=.8),
             lambda row: slow_corrected(row, .9, lambda later: .8 * later["greedy"])),
    "v-trace": (lambda x: off_policy.vtrace(**arguments(x, "val"), ratio=x["ratio"], gamma=.9, lam=.8, rho_max=1.2)[0],
                lambda row: slow_vtrace(row, .9, .8, 1.2, 1.)),
    "v-trace advantage": (lambda x: off_policy.vtrace(**arguments(x, "val"), ratio=x["ratio"], gamma=.9, lam=.8, rho_max=1.2)[1],
                          lambda row: slow_vtrace_advantage(row, .9, .8, 1.2, 1.)),
}


@pytest.mark.parametrize("case", CASES)
@settings(**FLAT)
@given(seed=st.integers(0, 10**6), T=st.integers(1, 20), holes=st.sampled_from([0., .3, .9]))
def test_equal_to_the_slow_loop(case, seed, T, holes):
    fast, slow = CASES[case]
    x = experience(seed, T, holes=holes)
    got = fast(x)
    assert got.shape == x["rew"].shape and not got[~x["valid"]].any()
    for n in range(3):
        np.testing.assert_allclose(got[x["valid"][:, n], n], [slow(row) for row in column(x, n)], atol=1e-9)


@pytest.mark.parametrize("case", CASES)
@settings(**FLAT)
@given(seed=st.integers(0, 10**6), where=st.lists(st.integers(0, 12), min_size=1, max_size=6))
def test_padding_changes_nothing(case, seed, where):
    "Rows put in anywhere, full of nan and with all flags up, leave every other row as it was; nor do they spoil a gradient"
    x, rubbish = experience(seed), dict(valid=False)
    keep = np.ones(12, bool)
    for at in sorted(where): keep = np.insert(keep, at, False)

    def stretched(name, v):
        out = torch.full((len(keep), 3), rubbish.get(name, True if v.dtype == torch.bool else math.nan), dtype=v.dtype)
        out[keep] = v
        return out

    fast = CASES[case][0]
    wide = {name: stretched(name, v) for name, v in x.items()}
    np.testing.assert_allclose(fast(wide)[keep], fast(x), atol=1e-12)
    assert not fast(wide)[~keep].any()


@settings(**FLAT)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 15))
def test_n_step_across_episode_ends_matches_the_rows_a_buffer_gives(seed, n):
    "The two forms, whole stretches and rows drawn from replay, agree"
    x = experience(seed, N=1)
    whole = returns.n_step_return(**arguments(x), gamma=.9, n=n)[:, 0]
    done = (x["term"] | x["trunc"])[:, 0]
    rows = torch.arange(12) + torch.arange(n)[:, None]
    alive = rows < 12
    rows = rows.clamp(max=11)
    alive[1:] &= ~done[rows[:-1]].cumsum(0).bool()
    ret, disc, last = returns.n_step(x["rew"][rows, 0], x["term"][rows, 0], alive, .9)
    at = rows.gather(0, last[None])[0]
    np.testing.assert_allclose(ret + disc * x["next_val"][at, 0], whole, atol=1e-9)


@settings(**FLAT)
@given(seed=st.integers(0, 10**6))
def test_the_ends_of_lambda_and_the_ways_to_say_the_same(seed):
    x = experience(seed)
    args, on = arguments(x), torch.ones_like(x["ratio"])
    one_step = x["rew"] + .9 * x["next_val"].masked_fill(x["term"], 0)
    far = returns.discounted(**args, gamma=.9)
    same = dict(atol=1e-9)
    np.testing.assert_allclose(returns.lambda_return(**args, gamma=.9, lam=0.), one_step, **same)
    np.testing.assert_allclose(returns.n_step_return(**args, gamma=.9, n=1), one_step, **same)
    np.testing.assert_allclose(returns.n_step_return(**args, gamma=.9, n=12), far, **same)
    np.testing.assert_allclose(off_policy.retrace(**args, q=x["q"], ratio=on, gamma=.9, lam=0.), one_step, **same)
    np.testing.assert_allclose(off_policy.tree_backup(**args, q=x["q"], prob=on * 0, gamma=.9), one_step, **same)
    adv = returns.gae(**args, val=x["val"], gamma=.9, lam=.7)
    np.testing.assert_allclose(off_policy.vtrace(**args, val=x["val"], ratio=on, gamma=.9, lam=.7)[0], x["val"] + adv, **same)
    np.testing.assert_allclose(returns.gae(**args, val=x["val"], gamma=.9, lam=0.), one_step - x["val"], **same)
    # with one value for each state, λ = 1 is Monte Carlo minus what was expected
    x["val"][1:] = torch.where((x["term"] | x["trunc"])[:-1], x["val"][1:], x["next_val"][:-1])
    np.testing.assert_allclose(x["val"] + returns.gae(**args, val=x["val"], gamma=.9, lam=1.), far, **same)


@settings(**FLAT)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 30))
def test_projection_keeps_mass_and_mean_and_maps_atoms_to_themselves(seed, n):
    rng = np.random.default_rng(seed)
    atoms = torch.linspace(-2, 3, n, dtype=torch.float64)
    prob, place = torch.from_numpy(rng.dirichlet(np.ones(9), 4)), torch.from_numpy(rng.normal(0, 3, (4, 9)))
    got = off_policy.project(prob, place, atoms)
    assert got.shape == (4, n) and (got >= 0).all()
    np.testing.assert_allclose(got.sum(-1), 1)
    np.testing.assert_allclose(got @ atoms, (prob * place.clamp(-2, 3)).sum(-1), atol=1e-9)
    np.testing.assert_allclose(off_policy.project(got, atoms.expand(4, n), atoms), got, atol=1e-9)


def test_projection_by_the_loop_of_the_paper():
    "Algorithm 1 of Bellemare et al. (2017), with a hit on an atom kept whole"
    rng = np.random.default_rng(0)
    atoms, prob, place = np.linspace(-1, 1, 11), rng.dirichlet(np.ones(11), 5), rng.normal(0, 1, (5, 11))
    place[0, :3] = -1, .2, 1
    want = np.zeros((5, 11))
    for i, j in np.ndindex(5, 11):
        b = (np.clip(place[i, j], -1, 1) + 1) / .2
        low, high = math.floor(round(b, 9)), math.ceil(round(b, 9))
        if low == high: want[i, low] += prob[i, j]
        else: want[i, [low, high]] += prob[i, j] * np.array([high - b, b - low])
    got = off_policy.project(*(torch.from_numpy(x) for x in (prob, place, atoms)))
    np.testing.assert_allclose(got, want, atol=1e-9)


@settings(**FLAT)
@given(st.floats(-1e6, 1e6).map(lambda x: round(x, 6)), st.sampled_from([0., 1e-3, 1e-2]))
def test_rescaling_is_undone_keeps_order_and_sign(x, eps):
    x = torch.tensor([x, x + 1], dtype=torch.float64)
    y = off_policy.rescale(x, eps)
    assert y[1] > y[0] and (y.sign() == x.sign()).all()
    np.testing.assert_allclose(off_policy.unscale(y, eps), x, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("call,words", [
    (lambda x: returns.lambda_return(**arguments(x) | dict(valid=x["valid"][1:]), gamma=.9, lam=1), "valid (11, 3)"),
    (lambda x: returns.n_step_return(**arguments(x), gamma=.9, n=0), "n=0; expected at least 1"),
    (lambda x: off_policy.retrace(**arguments(x, "q"), ratio=x["ratio"][:, 0], gamma=.9), "share (12,)"),
    (lambda x: off_policy.vtrace(**arguments(x, "val") | dict(val=x["val"][:-1]), ratio=x["ratio"], gamma=.9), "val (11, 3)"),
    (lambda x: off_policy.project(x["prob"], x["val"][0], torch.linspace(0, 1, 3)), "one place for each mass"),
])
def test_what_does_not_fit_is_named(call, words):
    with pytest.raises(ValueError) as caught: call(experience(0))
    assert words in str(caught.value)


# a peer's functions: rlax knows discounts per step and no truncation, so an end is a discount of 0 there
@pytest.fixture(scope="module")
def rlax(): return pytest.importorskip("rlax", reason="pip install 'rlbench[peers]'")


def peer_data(seed):
    x = experience(seed, T=15, N=1)
    x["trunc"][:], x["valid"][:] = False, True
    x["next_val"][:-1] = x["val"][1:]
    gamma = np.where(x["term"][:, 0], 0., .9)
    return x, {k: v[:, 0].numpy() for k, v in x.items()}, gamma


@pytest.mark.parametrize("seed", range(5))
def test_rlax_agrees_about_returns(rlax, seed):
    x, one, gamma = peer_data(seed)
    args, near = arguments(x), dict(atol=1e-4)
    np.testing.assert_allclose(returns.lambda_return(**args, gamma=.9, lam=.7)[:, 0], rlax.lambda_returns(one["rew"], gamma, one["next_val"], .7), **near)
    np.testing.assert_allclose(returns.discounted(**args, gamma=.9)[:, 0], rlax.discounted_returns(one["rew"], gamma, one["next_val"]), **near)
    np.testing.assert_allclose(returns.n_step_return(**args, gamma=.9, n=4)[:, 0],
                               rlax.n_step_bootstrapped_returns(one["rew"], gamma, one["next_val"], 4), **near)
    values = np.append(one["val"], one["next_val"][-1])
    np.testing.assert_allclose(returns.gae(**args, val=x["val"], gamma=.9, lam=.7)[:, 0],
                               rlax.truncated_generalized_advantage_estimation(one["rew"], gamma, .7, values), **near)


@pytest.mark.parametrize("seed", range(5))
def test_rlax_agrees_about_other_peoples_experience(rlax, seed):
    x, one, gamma = peer_data(seed)
    near = dict(atol=1e-4)
    got, adv = off_policy.vtrace(**arguments(x, "val"), ratio=x["ratio"], gamma=.9, lam=.8, rho_max=1.)
    want = rlax.vtrace_td_error_and_advantage(one["val"], one["next_val"], one["rew"], gamma, one["ratio"], lambda_=np.full(15, .8))
    np.testing.assert_allclose(got[:, 0] - one["val"], want.errors, **near)
    np.testing.assert_allclose(adv[:, 0], want.pg_advantage, **near)
    for share in (.8 * np.minimum(1, one["ratio"]), .8 * one["prob"], .8 * one["greedy"]):
        got = off_policy.corrected_return(**arguments(x, "q"), share=torch.from_numpy(share)[:, None], gamma=.9)[:, 0]
        want = rlax.general_off_policy_returns_from_q_and_v(one["q"][1:], one["next_val"], one["rew"], gamma, share[1:])
        np.testing.assert_allclose(got, want, **near)


def test_rlax_agrees_about_peng_and_retrace_from_action_values(rlax):
    rng = np.random.default_rng(0)
    q, pi, mu = rng.standard_normal((7, 4)), rng.dirichlet(np.ones(4), 7), rng.dirichlet(np.ones(4), 7)
    a, rew, gamma = rng.integers(4, size=7), rng.standard_normal(6), np.where(np.arange(6) == 3, 0., .9)
    none = torch.zeros(6, 1, dtype=torch.bool)
    flags = dict(rew=torch.from_numpy(rew)[:, None], term=torch.from_numpy(gamma == 0)[:, None], trunc=none)
    column = lambda v: torch.from_numpy(np.ascontiguousarray(v))[:, None]
    best = returns.lambda_return(**flags, next_val=column(q[1:].max(-1)), gamma=.9, lam=.75)[:, 0]
    chosen = q[np.arange(7), a]
    np.testing.assert_allclose(best - chosen[:-1], rlax.q_lambda(q[:-1], a[:-1], rew, gamma, q[1:], .75 + np.zeros(6)), atol=1e-5)
    ratio = (pi / mu)[np.arange(7), a]
    got = off_policy.retrace(**flags, q=column(chosen[:-1]), next_val=column((pi * q).sum(-1)[1:]), ratio=column(ratio[:-1]), gamma=.9, lam=.9)[:, 0]
    want = rlax.retrace(q[:-1], q[1:], a[:-1], a[1:], rew, gamma, pi[1:], mu[np.arange(7), a][1:], .9)
    np.testing.assert_allclose(got - chosen[:-1], want, atol=1e-5)


def test_rlax_agrees_about_projection_and_rescaling(rlax):
    rng = np.random.default_rng(0)
    atoms, prob, place = np.linspace(-1, 1, 11), rng.dirichlet(np.ones(9)), np.sort(rng.normal(0, 1, 9))
    got = off_policy.project(*(torch.from_numpy(x) for x in (prob[None], place[None], atoms)))[0]
    np.testing.assert_allclose(got, rlax.categorical_l2_project(place, prob, atoms), atol=1e-5)
    x = np.array([-1e4, -3., 0, .2, 700.])
    np.testing.assert_allclose(off_policy.rescale(torch.from_numpy(x)), rlax.signed_hyperbolic(x), rtol=1e-4, atol=1e-5)
    y = np.array([-90., -3., 0, .2, 20.])
    np.testing.assert_allclose(off_policy.unscale(torch.from_numpy(y)), rlax.signed_parabolic(y), rtol=1e-3)
