"""Returns against slow loops, against rlax, and their properties, with both kinds of ends and padding anywhere."""
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.buffers import off_policy, returns

FLAT = dict(deadline=None, max_examples=60, derandomize=True)
NUMBERS = ("rew", "val", "next_val", "q", "q2")


def experience(seed, T=12, N=3, ends=.15, holes=0.):
    "Random columns (T, N) of every name that the functions ask for"
    rng = np.random.default_rng(seed)
    x = {name: rng.standard_normal((T, N)) for name in NUMBERS}
    x |= {name: rng.random((T, N)) < ends for name in ("term", "trunc")}
    x["valid"] = rng.random((T, N)) >= holes
    x["ratio"] = rng.gamma(2., .5, (T, N))
    x["prob"] = rng.random((T, N))
    x["greedy"] = rng.random((T, N)) < .7
    return {name: torch.from_numpy(column) for name, column in x.items()}


def column(x, n):
    "One environment's valid rows as dicts of plain numbers"
    times = [t for t in range(len(x["rew"])) if x["valid"][t, n]]
    rows = []
    for t in times:
        rows.append({name: v[t, n].item() for name, v in x.items()})
    for row, later in zip(rows, rows[1:] + [None]):
        row["later"] = None if row["term"] or row["trunc"] else later
        row["boot"] = 0. if row["term"] else row["next_val"]
    return rows


# the definitions, one row at a time: what follows a row is row["later"], None where the sum stops
def slow_lambda(row, gamma, lam):
    later = row["boot"]
    if row["later"] is not None:
        later = (1 - lam) * row["boot"] + lam * slow_lambda(row["later"], gamma, lam)
    return row["rew"] + gamma * later


def slow_n_step(row, gamma, n):
    last = n == 1 or row["later"] is None
    return row["rew"] + gamma * (row["boot"] if last else slow_n_step(row["later"], gamma, n - 1))


def slow_gae(row, gamma, lam):
    delta = row["rew"] + gamma * row["boot"] - row["val"]
    return delta + (0 if row["later"] is None else gamma * lam * slow_gae(row["later"], gamma, lam))


def slow_corrected(row, gamma, share):
    total = row["q"]
    weight = 1.
    now = row
    while now is not None:
        total += weight * (now["rew"] + gamma * now["boot"] - now["q"])
        now = now["later"]
        weight *= 0 if now is None else gamma * share(now)
    return total


def slow_vtrace(row, gamma, lam, rho_max, c_max):
    total = row["val"]
    weight = 1.
    now = row
    while now is not None:
        total += weight * min(rho_max, now["ratio"]) * (now["rew"] + gamma * now["boot"] - now["val"])
        weight *= gamma * lam * min(c_max, now["ratio"])
        now = now["later"]
    return total


def slow_vtrace_advantage(row, gamma, lam, rho_max, c_max):
    later, seen = row["later"], row["boot"]
    if later is not None:
        seen += lam * (slow_vtrace(later, gamma, lam, rho_max, c_max) - later["val"])
    return min(rho_max, row["ratio"]) * (row["rew"] + gamma * seen - row["val"])


def retrace_share(row):
    return .8 * min(1, row["ratio"])


def tree_share(row):
    return .8 * row["prob"]


def greedy_share(row):
    return .8 * row["greedy"]


def arguments(x, *names):
    return {name: x[name] for name in ("rew", *names, "next_val", "term", "trunc", "valid")}


def fast_vtrace(x):
    return off_policy.vtrace(**arguments(x, "val"), ratio=x["ratio"], gamma=.9, lam=.8, rho_max=1.2)


FAST = {
    "monte carlo": lambda x: returns.discounted(**arguments(x), gamma=.9),
    "lambda": lambda x: returns.lambda_return(**arguments(x), gamma=.9, lam=.7),
    "td(0)": lambda x: returns.lambda_return(**arguments(x), gamma=.9, lam=0),
    "3-step": lambda x: returns.n_step_return(**arguments(x), gamma=.9, n=3),
    "gae": lambda x: returns.gae(**arguments(x, "val"), gamma=.9, lam=.7),
    "retrace": lambda x: off_policy.retrace(**arguments(x, "q"), ratio=x["ratio"], gamma=.9, lam=.8),
    "tree backup": lambda x: off_policy.tree_backup(**arguments(x, "q"), prob=x["prob"], gamma=.9, lam=.8),
    "Q(λ)": lambda x: off_policy.q_lambda(**arguments(x, "q"), greedy=x["greedy"], gamma=.9, lam=.8),
    "v-trace": lambda x: fast_vtrace(x)[0],
    "v-trace advantage": lambda x: fast_vtrace(x)[1],
}
SLOW = {
    "monte carlo": lambda row: slow_lambda(row, .9, 1.),
    "lambda": lambda row: slow_lambda(row, .9, .7),
    "td(0)": lambda row: slow_n_step(row, .9, 1),
    "3-step": lambda row: slow_n_step(row, .9, 3),
    "gae": lambda row: slow_gae(row, .9, .7),
    "retrace": lambda row: slow_corrected(row, .9, retrace_share),
    "tree backup": lambda row: slow_corrected(row, .9, tree_share),
    "Q(λ)": lambda row: slow_corrected(row, .9, greedy_share),
    "v-trace": lambda row: slow_vtrace(row, .9, .8, 1.2, 1.),
    "v-trace advantage": lambda row: slow_vtrace_advantage(row, .9, .8, 1.2, 1.),
}


@pytest.mark.parametrize("case", FAST)
@settings(**FLAT)
@given(seed=st.integers(0, 10**6), T=st.integers(1, 20), holes=st.sampled_from([0., .3, .9]))
def test_equal_to_the_slow_loop(case, seed, T, holes):
    x = experience(seed, T, holes=holes)
    got = FAST[case](x)
    assert got.shape == x["rew"].shape and not got[~x["valid"]].any()
    for n in range(3):
        want = [SLOW[case](row) for row in column(x, n)]
        np.testing.assert_allclose(got[x["valid"][:, n], n], want, atol=1e-9)


@pytest.mark.parametrize("case", FAST)
@settings(**FLAT)
@given(seed=st.integers(0, 10**6), where=st.lists(st.integers(0, 12), min_size=1, max_size=6))
def test_padding_changes_nothing(case, seed, where):
    "Rows put in anywhere, full of nan and with all flags up, leave every other row as it was"
    x = experience(seed)
    keep = np.ones(12, bool)
    for at in sorted(where): keep = np.insert(keep, at, False)

    def stretched(name, v):
        rubbish = name != "valid" if v.dtype == torch.bool else math.nan
        out = torch.full((len(keep), 3), rubbish, dtype=v.dtype)
        out[keep] = v
        return out

    fast = FAST[case]
    wide = {name: stretched(name, v) for name, v in x.items()}
    np.testing.assert_allclose(fast(wide)[keep], fast(x), atol=1e-12)
    assert not fast(wide)[~keep].any()


@pytest.mark.parametrize("case", FAST)
@pytest.mark.parametrize("T", [1, 12])
def test_padding_takes_no_gradient_and_leaves_the_others_theirs(case, T):
    x = experience(0, T, holes=.4)
    for name in NUMBERS: x[name].requires_grad_()
    FAST[case](x).sum().backward()
    for name in NUMBERS:
        grad = x[name].grad
        assert grad is None or torch.isfinite(grad).all() and not grad[~x["valid"]].any()


# the meta device has shapes and no numbers, and refuses to be mixed with ordinary tensors
@pytest.mark.parametrize("case", FAST)
@pytest.mark.parametrize("padded", [False, True])
def test_nothing_is_made_on_another_device(case, padded):
    x = {name: v.to("meta") for name, v in experience(0).items()}
    if not padded: x["valid"] = None
    got = FAST[case](x)
    assert got.device.type == "meta" and got.shape == (12, 3) and got.dtype == torch.float64


def test_nor_by_what_works_on_drawn_rows_and_distributions():
    x = {name: v.to("meta") for name, v in experience(0).items()}
    made = [*returns.n_step(x["rew"], x["term"], x["valid"], .9), off_policy.project(x["prob"], x["val"], x["q"][:, 0]),
            off_policy.rescale(x["val"]), off_policy.unscale(x["val"]), off_policy.unscale(x["val"], 0)]
    assert all(one.device.type == "meta" for one in made)


@pytest.mark.parametrize("case", FAST)
@pytest.mark.parametrize("holes", [0., .4])
def test_arguments_stay_as_they_were(case, holes):
    x = experience(0, holes=holes)
    FAST[case](x)
    assert all(torch.equal(v, experience(0, holes=holes)[name]) for name, v in x.items())


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
    args, same = arguments(x), torch.ones_like(x["ratio"])
    one_step = x["rew"] + .9 * x["next_val"].masked_fill(x["term"], 0)
    far = returns.discounted(**args, gamma=.9)
    near = dict(atol=1e-9)
    np.testing.assert_allclose(returns.lambda_return(**args, gamma=.9, lam=0.), one_step, **near)
    np.testing.assert_allclose(returns.n_step_return(**args, gamma=.9, n=1), one_step, **near)
    np.testing.assert_allclose(returns.n_step_return(**args, gamma=.9, n=12), far, **near)
    np.testing.assert_allclose(off_policy.retrace(**args, q=x["q"], ratio=same, gamma=.9, lam=0.), one_step, **near)
    np.testing.assert_allclose(off_policy.tree_backup(**args, q=x["q"], prob=same * 0, gamma=.9), one_step, **near)
    adv = returns.gae(**args, val=x["val"], gamma=.9, lam=.7)
    corrected, _ = off_policy.vtrace(**args, val=x["val"], ratio=same, gamma=.9, lam=.7)
    np.testing.assert_allclose(corrected, x["val"] + adv, **near)
    np.testing.assert_allclose(returns.gae(**args, val=x["val"], gamma=.9, lam=0.), one_step - x["val"], **near)
    # with one value for each state, λ = 1 is Monte Carlo minus what was expected
    x["val"][1:] = torch.where((x["term"] | x["trunc"])[:-1], x["val"][1:], x["next_val"][:-1])
    np.testing.assert_allclose(x["val"] + returns.gae(**args, val=x["val"], gamma=.9, lam=1.), far, **near)


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
    atoms = np.linspace(-1, 1, 11)
    prob, place = rng.dirichlet(np.ones(11), 5), rng.normal(0, 1, (5, 11))
    place[0, :3] = -1, .2, 1
    want = np.zeros((5, 11))
    for i, j in np.ndindex(5, 11):
        b = (np.clip(place[i, j], -1, 1) + 1) / .2
        low, high = math.floor(round(b, 9)), math.ceil(round(b, 9))
        if low == high:
            want[i, low] += prob[i, j]
        else:
            want[i, [low, high]] += prob[i, j] * np.array([high - b, b - low])
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
    (lambda x: off_policy.vtrace(**arguments(x), val=x["val"][:-1], ratio=x["ratio"], gamma=.9), "val (11, 3)"),
    (lambda x: off_policy.project(x["prob"], x["val"][0], torch.linspace(0, 1, 3)), "one place for each mass"),
])
def test_what_does_not_fit_is_named(call, words):
    with pytest.raises(ValueError) as caught: call(experience(0))
    assert words in str(caught.value)


# a peer's functions: rlax knows discounts per step and no truncation, so an end is a discount of 0 there
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

    got = returns.lambda_return(**args, gamma=.9, lam=.7)[:, 0]
    np.testing.assert_allclose(got, rlax.lambda_returns(one["rew"], gamma, one["next_val"], .7), **near)
    got = returns.discounted(**args, gamma=.9)[:, 0]
    np.testing.assert_allclose(got, rlax.discounted_returns(one["rew"], gamma, one["next_val"]), **near)
    got = returns.n_step_return(**args, gamma=.9, n=4)[:, 0]
    np.testing.assert_allclose(got, rlax.n_step_bootstrapped_returns(one["rew"], gamma, one["next_val"], 4), **near)

    values = np.append(one["val"], one["next_val"][-1])
    got = returns.gae(**args, val=x["val"], gamma=.9, lam=.7)[:, 0]
    want = rlax.truncated_generalized_advantage_estimation(one["rew"], gamma, .7, values)
    np.testing.assert_allclose(got, want, **near)


@pytest.mark.parametrize("seed", range(5))
def test_rlax_agrees_about_other_peoples_experience(rlax, seed):
    x, one, gamma = peer_data(seed)
    near = dict(atol=1e-4)
    got, adv = off_policy.vtrace(**arguments(x, "val"), ratio=x["ratio"], gamma=.9, lam=.8, rho_max=1.)
    want = rlax.vtrace_td_error_and_advantage(one["val"], one["next_val"], one["rew"], gamma, one["ratio"],
                                              lambda_=np.full(15, .8))
    np.testing.assert_allclose(got[:, 0] - one["val"], want.errors, **near)
    np.testing.assert_allclose(adv[:, 0], want.pg_advantage, **near)

    for share in (.8 * np.minimum(1, one["ratio"]), .8 * one["prob"], .8 * one["greedy"]):
        share_t = torch.from_numpy(share)[:, None]
        got = off_policy.corrected_return(**arguments(x, "q"), share=share_t, gamma=.9)[:, 0]
        want = rlax.general_off_policy_returns_from_q_and_v(one["q"][1:], one["next_val"], one["rew"], gamma, share[1:])
        np.testing.assert_allclose(got, want, **near)


def one_column(v):
    return torch.from_numpy(np.ascontiguousarray(v))[:, None]


def test_rlax_agrees_about_peng_and_retrace_from_action_values(rlax):
    rng = np.random.default_rng(0)
    q = rng.standard_normal((7, 4))
    pi, mu = rng.dirichlet(np.ones(4), 7), rng.dirichlet(np.ones(4), 7)
    a, rew = rng.integers(4, size=7), rng.standard_normal(6)
    gamma = np.where(np.arange(6) == 3, 0., .9)
    rows = np.arange(7)
    chosen = q[rows, a]
    flags = dict(rew=one_column(rew), term=one_column(gamma == 0), trunc=torch.zeros(6, 1, dtype=torch.bool))

    best = returns.lambda_return(**flags, next_val=one_column(q[1:].max(-1)), gamma=.9, lam=.75)[:, 0]
    want = rlax.q_lambda(q[:-1], a[:-1], rew, gamma, q[1:], .75 + np.zeros(6))
    np.testing.assert_allclose(best - chosen[:-1], want, atol=1e-5)

    ratio, next_val = (pi / mu)[rows, a], (pi * q).sum(-1)[1:]
    got = off_policy.retrace(**flags, q=one_column(chosen[:-1]), next_val=one_column(next_val),
                             ratio=one_column(ratio[:-1]), gamma=.9, lam=.9)[:, 0]
    want = rlax.retrace(q[:-1], q[1:], a[:-1], a[1:], rew, gamma, pi[1:], mu[rows, a][1:], .9)
    np.testing.assert_allclose(got - chosen[:-1], want, atol=1e-5)


def test_rlax_agrees_about_projection_and_rescaling(rlax):
    rng = np.random.default_rng(0)
    atoms = np.linspace(-1, 1, 11)
    prob, place = rng.dirichlet(np.ones(9)), np.sort(rng.normal(0, 1, 9))
    got = off_policy.project(*(torch.from_numpy(x) for x in (prob[None], place[None], atoms)))[0]
    np.testing.assert_allclose(got, rlax.categorical_l2_project(place, prob, atoms), atol=1e-5)
    x = np.array([-1e4, -3., 0, .2, 700.])
    np.testing.assert_allclose(off_policy.rescale(torch.from_numpy(x)), rlax.signed_hyperbolic(x), rtol=1e-4, atol=1e-5)
    y = np.array([-90., -3., 0, .2, 20.])
    np.testing.assert_allclose(off_policy.unscale(torch.from_numpy(y)), rlax.signed_parabolic(y), rtol=1e-3)
