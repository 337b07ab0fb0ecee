"""The sum tree against a plain array; priorities and tallies against a list that forgets as the ring does."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.buffers import priorities
from rlbench.buffers.priorities import Prioritised, SumTree, Tally
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.core.state import same, snapshot, told_state, went_back


def add(ring, rng, p_valid=1.):
    "One row; the reward is a number that no other row has -> which environments wrote"
    valid = rng.random(ring.num_envs) < p_valid
    name = ring.added * ring.num_envs + np.arange(ring.num_envs)
    ring.add(Batch(rew=name, term=np.zeros(ring.num_envs, bool)), valid)
    return valid


def names_of(ring):
    "The reward at every place"
    return ring.places["rew"]


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 3000), changes=st.integers(0, 30), seed=st.integers(0, 10**6),
       top=st.sampled_from([16, 64, 4096]))
def test_tree_equals_a_plain_array(size, changes, seed, top):
    rng = np.random.default_rng(seed)
    plain = np.zeros(size)
    before = priorities.TOP
    priorities.TOP = top                                  # few rows, many levels
    try:
        tree = SumTree(size)
        for _ in range(changes):
            index = rng.integers(size, size=rng.integers(1, 40))
            value = rng.random(len(index)) ** 9 * 10. ** rng.integers(-8, 8) * (rng.random(len(index)) > .4)
            tree[index] = value
            plain[index] = value
        rebuilt = SumTree(size)
        rebuilt[np.arange(size)] = plain
    finally:
        priorities.TOP = before
    assert same(tree[:], plain)
    assert same(tree.levels, rebuilt.levels)              # the same code, so the same bits
    np.testing.assert_allclose(tree.total, plain.sum(), rtol=1e-12)
    if tree.total == 0: return
    edges = [0., tree.total, np.nextafter(tree.total, 0)]
    mass = np.concatenate([rng.random(200) * tree.total, edges, np.cumsum(plain)])
    mass = np.minimum(mass, tree.total)
    found = tree.find(mass / tree.total)
    ends = np.cumsum(plain)
    assert (plain[found] > 0).all()
    slack = 1e-12 * tree.total                            # sums in another order
    assert (mass <= ends[found] + slack).all()
    assert (mass >= ends[found] - plain[found] - slack).all()


def test_nothing_drifts_and_empty_items_are_never_found():
    tree = SumTree(5000)
    rng = np.random.default_rng(0)
    for power in range(-300, 300, 4):                     # 1e-300 … 1e296
        tree[rng.integers(5000, size=200)] = 10. ** power
        tree[rng.integers(5000, size=200)] = 0.
    held = tree[:].copy()
    for value in held[held > 1e200]:
        tree[np.flatnonzero(held == value)] = 0.          # sums kept by differences would be left with rubbish
    np.testing.assert_allclose(tree.total, tree[:].sum(), rtol=1e-12)
    assert (tree[tree.find(rng.random(1000))] > 0).all()


class Forgetful:
    "Priorities in a dictionary {name of a row: priority}, of the rows that are held"

    def __init__(self, ring, alpha, epsilon):
        self.ring = ring
        self.alpha = alpha
        self.epsilon = epsilon
        self.known = {}
        self.top = 1.

    def catch_up(self):
        names = names_of(self.ring)[self.ring.latest()]
        self.known = {name: self.known.get(name, self.top) for name in names}

    def priorities(self):
        "The priority at every place, 0 where no row is held"
        p = np.zeros(self.ring.capacity * self.ring.num_envs)
        held = self.ring.latest()
        p[held] = [self.known[name] for name in names_of(self.ring)[held]]
        return p

    def update(self, names, index, error):
        "Errors of rows that had these names when they were drawn"
        for name, i, e in zip(names, index, error):
            if names_of(self.ring)[i] == name:
                self.known[name] = (abs(e) + self.epsilon) ** self.alpha
                self.top = max(self.top, self.known[name])


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(1, 7), num_envs=st.integers(1, 3), seed=st.integers(0, 10**6), rounds=st.integers(1, 30),
       most=st.integers(1, 20))
def test_priorities_equal_a_dictionary_that_forgets(capacity, num_envs, seed, rounds, most):
    "Rows are named by their reward; rounds of up to `most` rows also lap the ring between two draws"
    rng = np.random.default_rng(seed)
    ring = Ring(capacity, num_envs)
    chosen = Prioritised(ring, alpha=.7, epsilon=.01)
    plain = Forgetful(ring, alpha=.7, epsilon=.01)
    for _ in range(rounds):
        for _ in range(rng.integers(0, most)):
            add(ring, rng, p_valid=.7)
        if not len(ring): continue
        index, weight = chosen.draw(rng, 5, beta=.5)
        plain.catch_up()
        want = plain.priorities()
        # powers of arrays and of single numbers may differ in the last bits, from one processor to another
        np.testing.assert_allclose(chosen.tree[:], want, rtol=1e-13)
        assert same(chosen.tree[:] == 0, want == 0)       # nothing is left where no row is held
        p = want[index]
        assert (p > 0).all() and weight.max() == 1 and weight.dtype == np.float32
        np.testing.assert_allclose(weight, (p / p.min()) ** -.5, rtol=1e-6)
        drawn = names_of(ring)[index].copy()
        for _ in range(rng.integers(0, 3)):
            add(ring, rng, p_valid=.7)                    # some of the drawn rows may go before their errors come
        error = rng.normal(size=5) * 10
        chosen.update(index, error)
        plain.update(drawn, index, error)
        # a late error of a row that is gone must not count as the largest either
        np.testing.assert_allclose(chosen.top, plain.top, rtol=1e-13)


def test_draws_are_proportional_stratified_and_shuffled():
    rng = np.random.default_rng(0)
    ring = Ring(100, 1)
    for _ in range(100):
        add(ring, rng)
    chosen = Prioritised(ring, alpha=1., epsilon=0.)
    errors = np.arange(100.) % 7
    chosen.draw(rng, 1, 0.)
    chosen.update(np.arange(100), errors)
    index, weight = chosen.draw(rng, 50_000, beta=1.)
    counts = np.bincount(index, minlength=100)
    # a stratum at each end is all that chance can move
    assert np.abs(counts - 50_000 * errors / errors.sum()).max() <= 2
    halves = counts - 2 * np.bincount(index[:25_000], minlength=100)
    assert np.abs(halves).max() < 8 * np.sqrt(counts.max())             # both halves of the draw look alike
    np.testing.assert_allclose(weight, 1 / errors[index], rtol=1e-6)


def test_alpha_0_and_beta_0_are_uniform_replay():
    rng = np.random.default_rng(0)
    ring = Ring(10, 2)
    for _ in range(13):
        add(ring, rng)
    chosen = Prioritised(ring, alpha=0., epsilon=1e-6)
    chosen.draw(rng, 1, 0.)
    chosen.update(np.arange(20), rng.normal(size=20) * 100)
    index, weight = chosen.draw(rng, 20_000, 1.)
    assert (weight == 1).all()
    assert np.abs(np.bincount(index) - 1000).max() <= 2


BAD = [([0, 1], [1., np.inf], "1 of them not finite"), ([0], [1., 2.], r"expected \(1,\) finite errors")]


@pytest.mark.parametrize("index,error,found", BAD)
def test_bad_errors_are_refused(index, error, found):
    ring = Ring(4, 1)
    add(ring, np.random.default_rng(0))
    with pytest.raises(ValueError, match=found):
        Prioritised(ring, 1., .1).update(np.array(index), np.array(error))


@settings(max_examples=30, deadline=None)
@given(capacity=st.integers(1, 9), num_envs=st.integers(1, 3), steps=st.integers(0, 25), seed=st.integers(0, 10**6))
def test_what_an_algorithm_keeps_beside_its_memory_survives_a_snapshot(capacity, num_envs, steps, seed):
    def make():
        ring = Ring(capacity, num_envs)
        return ring, dict(priorities=Prioritised(ring, .6, .01), tally=Tally(ring))

    def go(ring, own, rng):
        draw = own["tally"].watch(own["priorities"].draw)
        add(ring, rng, p_valid=.7)
        if len(ring):
            index, _ = draw(rng, 4, .4)
            own["priorities"].update(index, rng.normal(size=4))

    ring, own = make()
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        go(ring, own, rng)
    twin, twins_own = make()
    twin.restore(snapshot(ring.state()))
    went_back(twins_own, snapshot(told_state(own)))
    assert same(told_state(twins_own), told_state(own))
    for memory, beside in ((ring, own), (twin, twins_own)):
        rng = np.random.default_rng(1)
        for _ in range(5):
            go(memory, beside, rng)
    assert same(twin.state(), ring.state())
    assert same(told_state(twins_own), told_state(own))
    assert same(twins_own["priorities"].tree.levels, own["priorities"].tree.levels)


@settings(max_examples=40, deadline=None)
@given(capacity=st.integers(1, 7), num_envs=st.integers(1, 3), seed=st.integers(0, 10**6), rounds=st.integers(1, 20),
       most=st.integers(1, 20))
def test_tally_equals_a_list_of_everything_drawn(capacity, num_envs, seed, rounds, most):
    rng = np.random.default_rng(seed)
    ring = Ring(capacity, num_envs)
    tally = Tally(ring)
    hits = {}
    ages = []
    draw = tally.watch(ring.uniform)
    for _ in range(rounds):
        for _ in range(rng.integers(0, most)):
            first = ring.added * num_envs
            valid = add(ring, rng, p_valid=.7)
            hits |= {name: 0 for name in (first + np.flatnonzero(valid)).tolist()}
        if not len(ring): continue
        index = draw(rng, 6)
        for i in index:
            hits[int(names_of(ring)[i])] += 1
        ages += [age_by_hand(ring, i) for i in index]
    tally.catch_up()
    if not len(ring): return
    held = {int(names_of(ring)[i]): i for i in ring.latest()}
    assert {name: int(tally.hits[i]) for name, i in held.items()} == {name: hits[name] for name in held}
    gone = [count for name, count in hits.items() if name not in held]
    assert same(tally.gone, np.bincount([count.bit_length() for count in gone], minlength=64))
    assert same(tally.ages, np.bincount([age.bit_length() for age in ages], minlength=64))
    assert tally.sampled == len(ages)
    assert f"{len(ages):,}" in repr(tally.report())


def age_by_hand(ring, index):
    "How many rows of the same environment are newer: names grow"
    names = names_of(ring)[ring.latest()]
    same_env = names[names % ring.num_envs == names_of(ring)[index] % ring.num_envs]
    return int((same_env > names_of(ring)[index]).sum())
