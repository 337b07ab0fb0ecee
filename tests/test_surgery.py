"Surgery on memories: nobody learns across a gap, order is kept, and a run with it is as exact as any other"
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.algos.algorithm import algorithms
from rlbench.algos.draws import draw_chances
from rlbench.buffers.frames import Frames, check_film
from rlbench.buffers.recordings import read_memory, start_recording
from rlbench.buffers.ring import ClosedRing
from rlbench.buffers.sequences import SequenceSampler
from rlbench.buffers.surgery import copy_rows, cut_rows, put_rows
from rlbench.core.batch import Batch, as_numpy, each
from rlbench.core.state import FileProblem, same
from rlbench.lab.pictures.components import as_page, is_revealed
from rlbench.lab.hands.filters import names_of_rows, rows_where
from rlbench.lab.hands.next_draws import drawn_now
from rlbench.lab.hands.uses import uses_of
from rlbench.lab.page.workbench import Workbench
from rlbench.lab.time.expressions import BadExpression, Expression
from rlbench.lab.views.inspect import errors_of
from rlbench.training.learner import acted_by_hand
from rlbench.training.surgery import delete_rows, duplicate_rows, inject_rows, prioritise_rows
from rlbench.training.trainer import Trainer, load
from tests.cases import CASES, differs
from tests.test_breakpoints import InParts
from tests.test_buffers import fill, row_at

def operable():
    "A case of every algorithm that draws rows again, and further ones of those that draw in other ways"
    known = {}
    for case in CASES:
        if not (case.cls.replays or case.cls.offline): continue
        kind = case.algo, "prioritized_replay_alpha" in dict(case.extra), "n_step" in dict(case.extra)
        known.setdefault(kind, case)
    return list(known.values())


OPERABLE = operable()
OTHERS = [name for name, cls in algorithms().items() if not (cls.replays or cls.offline)]


def names(ring, rows=None):
    "(environment, time) at which each row was made: nobody else has it"
    rows = ring.latest() if rows is None else rows
    return list(zip(ring.env_of(rows).tolist(), ring.gather(rows).obs[..., 0].astype(int).tolist()))


# ---- memories

shapes = given(capacity=st.integers(2, 12), num_envs=st.integers(1, 3), steps=st.integers(2, 40),
               seed=st.integers(0, 10**6))


def some_rows(ring, seed, share):
    "Numbers of some of the rows that are held, one at least"
    rng = np.random.default_rng(seed)
    rows = ring.latest()
    chosen = rows[rng.random(len(rows)) < share]
    return chosen if len(chosen) else rows[:1]


@settings(max_examples=80, deadline=None)
@shapes
def test_what_is_deleted_is_gone_and_the_rest_stays_in_order(capacity, num_envs, steps, seed):
    ring, _ = fill(capacity, num_envs, steps, seed)
    rows = some_rows(ring, seed, .4)
    gone = set(names(ring, rows))
    before = names(ring)
    written = ring.written.copy()
    moved = cut_rows(ring, rows)
    assert names(ring) == [name for name in before if name not in gone]
    assert same(ring.written, written)
    assert moved.numbers.tolist() == ring.latest().tolist() and not moved.added.any()
    if len(ring):
        drawn = ring.uniform(np.random.default_rng(seed), 200)
        assert not gone & set(names(ring, drawn))
    assert same(ring.twin().state(), ring.state())


@settings(max_examples=80, deadline=None)
@shapes
def test_nothing_is_read_across_a_gap(capacity, num_envs, steps, seed):
    "Windows of n steps and stretches hold rows that followed one another when they were made"
    ring, _ = fill(capacity, num_envs, steps, seed, p_valid=1.)
    more = fill(9, 1, 5, seed, p_valid=1.)[0]
    for at in np.random.default_rng(seed).permutation(3):
        if not len(ring): return
        some = some_rows(ring, seed + at, .3)
        operations = [partial(cut_rows, rows=some), partial(copy_rows, rows=some), partial(put_rows, given=more)]
        try: operations[at](ring)
        except ValueError: continue                       # there is no place
    if not len(ring): return
    rows = ring.latest()
    index, alive = ring.ahead(rows, 4)
    times = ring.gather(index).obs[..., 0]
    assert (times[1:] == times[:-1] + 1)[alive[1:]].all()
    sampler = SequenceSampler(ring, length=4, burn_in=2, every=2, across=False)
    around = sampler.around(rows)
    times = ring.gather(around.index).obs[..., 0]
    both = around.valid[1:] & around.valid[:-1]
    assert (times[1:] == times[:-1] + 1)[both].all()


@settings(max_examples=60, deadline=None)
@shapes
def test_copies_and_rows_from_outside_add_up(capacity, num_envs, steps, seed):
    ring, _ = fill(capacity, num_envs, steps, seed)
    rows = some_rows(ring, seed, .2)[:2]
    before = names(ring)
    newest = names(ring, ring.aged(0, np.arange(num_envs)))
    copied = set(names(ring, rows))
    try: moved = copy_rows(ring, rows, times=2)
    except ValueError: return                             # no place
    after = names(ring)
    assert set(after) <= set(before) and len(after) == len(moved.numbers) <= capacity * num_envs
    assert set(names(ring, moved.numbers[moved.added])) <= copied
    last = ring.aged(0, np.arange(num_envs))
    goes_on = ~ring.ends(last)
    assert [name for name, on in zip(names(ring, last), goes_on) if on] == [name for name in newest if goes_on[name[0]]]
    assert all(after.count(name) == 1 for name in set(after) - copied)


@settings(max_examples=40, deadline=None)
@shapes
def test_a_memory_goes_on_after_surgery_as_any_other(capacity, num_envs, steps, seed):
    ring, _ = fill(capacity, num_envs, steps, seed, p_valid=1.)
    cut_rows(ring, some_rows(ring, seed, .5))
    kept = [names(ring)[i] for i in range(len(ring))]
    rng = np.random.default_rng(seed)
    for t in range(100, 103):
        ring.add(row_at(t, num_envs, rng, 0.))
    for n in range(num_envs):
        expected = [name for name in kept if name[0] == n] + [(n, t) for t in range(100, 103)]
        assert [name for name in names(ring) if name[0] == n] == expected[-capacity:]


def row_of_film(t, num_envs):
    "A row of an environment that was at rest before"
    still = np.full((num_envs, 3, 1), t, np.float32)
    over = np.zeros(num_envs, bool)
    return Batch(obs=still, act=np.zeros(num_envs, int), rew=np.zeros(num_envs, np.float32), term=over, trunc=over,
                 next_obs=still)


def film(steps, capacity, num_envs, seed, share_ended=.3):
    "Stacks of three pictures that tell the time, of episodes of all lengths"
    rng = np.random.default_rng(seed)
    memory = Frames(capacity, num_envs, stack=3, blank=False)
    stack = np.zeros((num_envs, 3, 1), np.float32)
    for t in range(steps):
        end = rng.random(num_envs) < share_ended
        after = np.concatenate([stack[:, 1:], np.full((num_envs, 1, 1), t + 1, np.float32)], 1)
        memory.add(Batch(obs=stack, act=np.zeros(num_envs, int), rew=np.full(num_envs, t, np.float32), term=end,
                         trunc=np.zeros(num_envs, bool), next_obs=after))
        stack = np.where(end[:, None, None], np.float32(t + 1), after)
    return memory


@settings(max_examples=80, deadline=None)
@given(capacity=st.integers(3, 14), num_envs=st.integers(1, 2), steps=st.integers(3, 40), seed=st.integers(0, 10**6))
def test_rows_of_frames_show_what_they_showed_or_stay(capacity, num_envs, steps, seed):
    memory = film(steps, capacity, num_envs, seed)
    def shown():
        rows = memory.gather(memory.latest())
        envs = memory.env_of(memory.latest()).tolist()
        return {(n, int(t)): (a.tobytes(), b.tobytes()) for n, t, a, b in zip(envs, rows.rew, rows.obs, rows.next_obs)}
    before = shown()
    tree = memory.twin().state()
    operation = cut_rows if seed % 2 else copy_rows
    try: operation(memory, some_rows(memory, seed, .3))
    except ValueError:
        assert same(memory.state(), tree)                 # refused before anything was touched
        return
    after = shown()
    assert after.items() <= before.items()
    check_film(memory.state(), memory.gather(memory.latest()[:1].repeat(num_envs)).obs)
    assert same(memory.twin().state(), memory.state())


def test_pictures_from_before_the_oldest_row_are_written_down():
    memory = film(steps=9, capacity=40, num_envs=1, seed=0, share_ended=0.)
    copy_rows(memory, [5])                                # the copy comes first, and shows two pictures before its own
    held = memory.latest()
    assert memory.gather(held).obs[0, :, 0].tolist() == [3, 4, 5]
    assert same(memory.twin().gather(held), memory.gather(held))


def test_places_of_frames_that_no_row_was_in_are_alike_in_a_copy():
    memory = film(steps=9, capacity=40, num_envs=2, seed=0, share_ended=0.)
    copy_rows(memory, [5, 7])                             # of one environment
    twin = memory.twin()
    for one in (memory, twin): one.add(row_of_film(9, 2))
    assert same(twin.state(), memory.state())


# ---- learners: every algorithm that draws rows again

def seen_by(trainer):
    "A trainer with some rows stored, before its next update"
    if trainer.learner.settings.offline: trainer.until("update")
    else: trainer.run(steps=40)
    return trainer


def outside(learner):
    "Two rows as somebody might give them"
    rows = learner.memory.gather(learner.memory.latest()[:2])
    return each(np.copy, rows)


def operate(learner):
    "All that can be done to a learner's memory, one after the other"
    delete_rows(learner, learner.memory.latest()[3:9:2])
    duplicate_rows(learner, learner.memory.latest()[2:5], times=2)
    inject_rows(learner, outside(learner))
    if getattr(learner.algo, "prioritized_replay_alpha", 0):
        prioritise_rows(learner, learner.memory.latest()[:5], by=7.)


@pytest.mark.parametrize("case", OPERABLE, ids=str)
def test_training_goes_on_resumes_and_goes_back_to_the_bit(case, tmp_path):
    trainer = seen_by(case.trainer())
    here = trainer.snapshot()
    owed = len(trainer.learner.todo)
    operate(trainer.learner)
    assert len(trainer.learner.todo) == owed
    cut = trainer.snapshot()
    trainer.save(tmp_path / "cut.rlb")
    events = [trainer.advance().kind for _ in range(12)]
    there = trainer.snapshot()
    assert "learn" in events

    again = load(tmp_path / "cut.rlb")
    assert [again.advance().kind for _ in range(12)] == events
    assert differs(again.snapshot()["learners"], there["learners"]) == ""
    trainer.restore(cut)
    assert [trainer.advance().kind for _ in range(12)] == events
    assert differs(trainer.snapshot(), there) == ""
    trainer.restore(here)
    operate(trainer.learner)
    assert differs(trainer.snapshot(), cut) == ""
    trainer.restore(here)
    assert differs(trainer.snapshot(), here) == ""
    for one in (trainer, again): one.close()


@pytest.mark.parametrize("case", OPERABLE, ids=str)
def test_deleted_rows_are_in_no_update_that_comes(case):
    trainer = seen_by(case.trainer())
    learner = trainer.learner
    memory = learner.memory
    marked = memory.latest()[4:10]
    memory.places["rew"][marked] = 77.
    delete_rows(learner, marked)
    assert not (memory.places["rew"] == 77).any()
    for _ in range(10):
        event = trainer.advance()
        assert event.kind != "learn" or not (np.asarray(learner.last.batch.rew) == 77).any()
    trainer.close()


@pytest.mark.parametrize("case", OPERABLE, ids=str)
def test_a_draw_beside_the_run_is_the_next_one_and_moves_nothing(case):
    trainer = seen_by(case.trainer())
    learner = trainer.learner
    while learner.todo: trainer.advance()
    here = trainer.snapshot()
    rows = drawn_now(learner)
    assert differs(trainer.snapshot(), here) == ""
    chances = draw_chances(learner.algo, learner.memory, learner.own)
    if chances is not None:
        held, chance = chances
        assert set(rows.tolist()) <= set(held[chance > 0].tolist())
    else:
        assert learner.settings.offline and sorted(rows) == sorted(learner.memory.latest())
    trainer.close()


@pytest.mark.parametrize("algo", OTHERS)
def test_who_learns_once_is_refused_in_words(algo):
    case = next(case for case in CASES if case.algo == algo)
    trainer = case.trainer()
    with pytest.raises(ValueError, match="learns from its own steps once|plans with a model"):
        delete_rows(trainer.learner, [0])
    trainer.close()


def test_what_fails_changes_nothing():
    "A stretch that no longer fits is refused when updates are owed, and the learner is as it was"
    trainer = Trainer("CartPole-v1", "r2d2", num_envs=1, learning_starts=64, sequence_length=8, burn_in=8, seed=0)
    trainer.until("update")
    while not trainer.learner.todo: trainer.advance()
    here = trainer.snapshot()
    rows = trainer.learner.memory.latest()
    with pytest.raises(ValueError):
        delete_rows(trainer.learner, rows)
    assert differs(trainer.snapshot(), here) == ""
    trainer.close()


def pushed_by_hand(**settings):
    "A run in which a person acted now and then"
    trainer = Trainer("CartPole-v1", "dqn", learning_starts=8, batch_size=4, seed=0, **settings)
    trainer.until("step", 10)
    for act in (0, 1, 0, 1, 1): trainer.act(act)
    trainer.until("step", 10)
    return trainer


def states_by_hand(learner):
    "States in which a person acted, as the memory tells it, the oldest first"
    rows = learner.memory.latest()
    return learner.memory.gather(rows[acted_by_hand(learner, rows)]).obs


@pytest.mark.parametrize("settings", [dict(num_envs=1), dict(num_envs=3), dict(num_envs=2, buffer_size=36)], ids=str)
def test_marks_of_a_hand_go_where_their_rows_go(settings, tmp_path):
    trainer = pushed_by_hand(**settings)
    learner = trainer.learner
    seen = states_by_hand(learner)
    here = trainer.snapshot()
    young = learner.memory.aged(np.arange(18), np.zeros(18, int))      # of the first environment, the newest first
    by_hand = young[acted_by_hand(learner, young)]
    delete_rows(learner, young[:3])
    assert np.array_equal(states_by_hand(learner), seen)
    trainer.restore(here)
    delete_rows(learner, [by_hand[0], *young[-2:]])
    assert np.array_equal(states_by_hand(learner), seen[:-1])
    trainer.save(tmp_path / "cut.rlb")
    assert np.array_equal(states_by_hand(load(tmp_path / "cut.rlb").learner), seen[:-1])
    trainer.act(0)
    assert len(states_by_hand(learner)) == len(seen) > 3
    trainer.restore(here)
    duplicate_rows(learner, [young[0], by_hand[0]])
    shown = states_by_hand(learner)
    assert sorted(map(tuple, shown)) == sorted(map(tuple, [*seen, seen[-1]]))
    inject_rows(learner, outside(learner))
    assert np.array_equal(states_by_hand(learner), shown)
    learner.owe(1)
    with pytest.raises(ValueError, match="no row would be left"):
        delete_rows(learner, learner.memory.latest())
    assert np.array_equal(states_by_hand(learner), shown)
    trainer.close()


def test_rows_that_could_never_be_drawn_are_not_all_that_is_left():
    trainer = Trainer("CartPole-v1", "dqn", num_envs=1, learning_starts=20, prioritized_replay_alpha=.6, seed=0)
    trainer.until("step", 40)
    learner = trainer.learner
    prioritise_rows(learner, np.delete(np.arange(40), 5), to=0)
    for owed in (0, 2):
        if owed: learner.owe(owed)
        here = trainer.snapshot()
        with pytest.raises(ValueError, match="no row could be drawn: the sum of all priorities would be 0"):
            delete_rows(learner, [5])
        assert differs(trainer.snapshot(), here) == ""
    trainer.until("step", 20)
    trainer.close()


def test_given_data_is_operated_on_as_well():
    data, _ = fill(30, 1, 30, seed=0, p_valid=1.)
    closed = data.twin(ClosedRing)
    cut_rows(closed, closed.latest()[:10])
    put_rows(closed, data)
    assert len(closed) == 30


def test_a_recording_stays_what_it_is(tmp_path):
    recording = start_recording(tmp_path / "r", 8, 1, block=2)
    rng = np.random.default_rng(0)
    for t in range(6): recording.add(row_at(t, 1, rng, .1))
    with pytest.raises(ValueError, match="operate on a copy, memory.twin()"):
        cut_rows(recording, [0])
    recording.close()


# ---- the workbench

LAKE = dict(learning_starts=50, prioritized_replay_alpha=.5, seed=0, driver="sync")


def lake(**settings):
    return Workbench("rlbench/FrozenLake-v0", "dqn", **LAKE | settings)


def test_an_operation_is_repeated_undone_and_written_down():
    wb = lake()
    wb.step("step", 120)
    here = wb.snapshot()
    at = wb.player.timeline.at
    change = wb.delete("term and rew == 0")
    assert change.after.share(change.meant_now) == 0 and "Of all draws they had" in change.text
    wb.prioritise("age < 5", to=3.)
    wb.duplicate(wb.rows("age < 3"))
    wb.step("step", 20)
    there = wb.snapshot()
    branch = wb.player.timeline.branch
    room = {}
    exec(wb.snippet(), room)
    assert differs(room["trainer"].learner.state(), wb.trainer.learner.state()) == ""
    wb.rewind(at)
    assert differs(wb.snapshot(), here) == ""
    wb.player.rewind(branch.end, branch=branch).result()
    assert differs(wb.snapshot(), there) == ""
    wb.close()


def test_a_selection_is_written_down_by_what_its_expression_says_now():
    "After an edit, or under other settings, the old expression may mean other rows; the run is the same all the same"
    wb = Workbench("CartPole-v1", "dqn", num_envs=1, learning_starts=20, batch_size=8, hidden=(8,), driver="sync",
                   views=["curve"])
    wb.step("step", 60)
    wb.edit("age < 3", rew=100.)
    wrong = wb.rows("rew > 1")
    wb.edit(wrong, rew=1.)
    wb.delete(wrong)
    learner = wb.trainer.learner
    urgent = wb.rows(f"td_error > {np.median(errors_of(learner, learner.memory.latest())):.3f}")
    wb.set(gamma=.2)
    wb.duplicate(urgent)
    youngest = wb.rows("age < 2")
    wb.delete(youngest)
    text = wb.snippet()
    room = {}
    exec(text, room)
    assert differs(room["trainer"].learner.state(), wb.trainer.learner.state()) == ""
    assert "rew > 1" not in text and "td_error" not in text and "'age < 2'" in text
    wb.close()


REFUSED = [
    (lambda wb: wb.delete("rew > 7"), "holds for none of 60 rows"),
    (lambda wb: wb.edit("rew > 7", rew=1.), "holds for none of 60 rows"),
    (lambda wb: wb.delete("rewd > 7"), "did you mean 'rew'"),
    (lambda wb: wb.delete(9999), "row 9999 is not held"),
    (lambda wb: wb.delete([]), r"rows \[\]: expected numbers of rows"),
    (lambda wb: wb.delete(2.5), "rows 2.5: expected numbers"),
    (lambda wb: wb.duplicate(1, times=0), "copies of a row = 0"),
    (lambda wb: wb.prioritise(1), "to which number the priority is set"),
    (lambda wb: wb.prioritise(1, to=-1.), "expected a finite number from 0 up"),
    (lambda wb: wb.prioritise("age >= 0", to=0), "the sum of all priorities would be 0"),
    (lambda wb: wb.inject(dict(rew=[1.])), "the rows have no column obs"),
    (lambda wb: wb.inject("nowhere.rlb"), "nowhere.rlb"),
    (lambda wb: wb.export_rows("age < 3", "rows.txt"), "expected a name that ends in .rlb or .jsonl"),
    (lambda wb: wb.why_drawn(9999), "row 9999 is not held"),
    (lambda wb: wb.why_drawn([1, 2]), "one row at a time"),
    (lambda wb: wb.rows("term", who="nobody"), "nobody"),
    (lambda wb: wb.rows("term - trunc == 0"), "'term - trunc == 0': yes and no cannot be subtracted"),
    (lambda wb: wb.delete("-term == 0"), "'-term == 0': yes and no cannot be subtracted"),
    (lambda wb: wb.rows("1/0 > rew"), "'1/0 > rew': it divides by 0"),
    (lambda wb: wb.rows("10**400 > rew"), "'10\\*\\*400 > rew': a number in it is too large"),
    (lambda wb: wb.rows("9**9**9 > rew"), "a number in it is too large"),
    (lambda wb: wb.rows("1" * 400), "too large to convert to float"),
    (lambda wb: wb.rows("obs[rew] > 0"), "'obs.rew. > 0': "),
    (lambda wb: wb.rows(" and ".join(["rew"] * 2000)), "too much in one another"),
    (lambda wb: wb.rows("\ud800 > rew"), "surrogates not allowed"),
]


def test_refusals():
    "Each says why, and changes nothing"
    wb = lake()
    wb.step("step", 60)
    here = wb.snapshot()
    for ask, words in REFUSED:
        with pytest.raises((ValueError, FileProblem), match=words): ask(wb)
    assert differs(wb.snapshot(), here) == "" and wb.player.timeline.done == 0
    wb.close()


@pytest.mark.parametrize("shape", [(1,), (4,), (2, 3)], ids=str)
def test_a_filter_is_asked_of_each_row_alone_however_many_components_it_has(shape):
    class Noise(gym.Env):
        observation_space = gym.spaces.Box(-9, 9, shape)
        action_space = gym.spaces.Box(-1, 1, (2,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.np_random.normal(size=shape).astype(np.float32), {}

        def step(self, act):
            obs = self.np_random.normal(size=shape).astype(np.float32)
            return obs, float(self.np_random.normal()), bool(self.np_random.random() < .1), False, {}

    trainer = Trainer(Noise, "sac", learning_starts=99, seed=0)
    for steps in (3, 1, 30):                    # 4 rows of 4 components are not to be taken for one another
        trainer.until("step", steps)
        rows = trainer.learner.memory.gather(trainer.learner.memory.latest())
        for text in ("obs > 0 and rew > 0", "obs > rew", "not obs * rew < .5", "obs > 0 and not term"):
            holds = Expression(text)
            alone = [bool(np.any(holds(rows[i]))) for i in range(len(rows.rew))]
            found = rows_where(trainer.learner, text)
            assert sorted(found) == trainer.learner.memory.latest()[alone].tolist()
    assert rows_where(trainer.learner, "obs[0] > rew").size
    if shape == (4,):
        with pytest.raises(BadExpression, match=r"obs \(34, 4\), act \(34, 2\); take components, as in obs\[0\]"):
            rows_where(trainer.learner, "obs > act")
    trainer.close()


def test_where_nothing_is_stored_yet_there_is_no_row_to_edit():
    wb = lake()
    with pytest.raises(ValueError, match="'age < 3' holds for none of 0 rows"):
        wb.edit("age < 3", rew=1.)
    wb.close()


def test_rows_that_were_exported_train_others(tmp_path):
    wb = lake()
    wb.step("step", 80)
    for name in ("good.rlb", "good.jsonl"):
        wb.export_rows("age < 40", tmp_path / name)
        data = read_memory(tmp_path / name)
        assert len(data) == 40
        Trainer("rlbench/FrozenLake-v0", "bc", memory=data, n_epochs=1).run(updates=1)
    more = lake(seed=1)
    more.step("step", 60)
    assert len(more.inject(tmp_path / "good.rlb").added) == 40
    more.close()
    wb.close()


def test_uses_are_counted_and_begin_anew_after_going_back():
    wb = lake()
    wb.step("step", 100)
    row = wb.rows("age == 60").numbers[0]
    why = wb.why_drawn(row)
    assert why.since == 0 and why.used == wb.why_drawn(row, since=0).used > 0
    wb.delete("age == 70")
    moved = wb.rows("age == 60").numbers[0]
    assert wb.why_drawn(moved).used == why.used
    wb.rewind("step", -20)
    later = wb.why_drawn(wb.rows("age == 30").numbers[0])
    assert later.since == wb.trainer.updates and later.used == 0
    wb.close()


def test_counting_changes_nothing():
    def run(counted):
        trainer = Trainer("CartPole-v1", "dqn", learning_starts=50, prioritized_replay_alpha=.5, seed=0)
        if counted: uses_of(trainer, "agent")
        trainer.run(steps=120)
        return trainer.learner.state()
    assert same(run(True), run(False))


@pytest.mark.parametrize("algo, hp", [
    ("ppo", dict(n_steps=16, batch_size=24, n_epochs=3)), ("ppo", dict(n_steps=16, n_epochs=9, target_kl=1e-4)),
    ("a2c", {}), ("dqn", dict(learning_starts=20, buffer_size=40, gradient_steps=3))])
def test_uses_are_those_of_every_update_whenever_somebody_asks(algo, hp):
    trainer = Trainer("CartPole-v1", algo, seed=0, **hp)
    uses = uses_of(trainer, "agent")
    learner = trainer.learner
    counts = {}
    rng = np.random.default_rng(0)
    for _ in range(1200):
        event = trainer.advance()
        if event.kind == "learn":
            for row in as_numpy(learner.last.index).tolist():
                name = row, int(learner.memory.ordinal(row))
                counts[name] = counts.get(name, 0) + 1
        if len(learner.memory) and rng.random() < .02:
            learner.owe(int(rng.integers(1, 9)))
        if rng.random() > .05: continue
        rows = learner.memory.latest()
        names = zip(rows.tolist(), np.ravel(learner.memory.ordinal(rows)).tolist())
        assert uses.of(trainer, rows).tolist() == [counts.get(name, 0) for name in names]
    assert uses.since == 0 and learner.updates > 20



def test_the_bar_is_there_when_rows_are_meant_and_operates_on_them():
    wb = lake()
    wb.step("step", 100)
    view = next(card.view for card in wb.page.cards if card.view.name == "buffer")
    assert not is_revealed(view.bar.widget)
    as_page(view.table, filter="age < 10")
    assert view.table.total == 10 and is_revealed(view.bar.widget)
    as_page(view.table, chosen=view.table.ids[:3])
    view.do("delete")
    assert len(wb.trainer.learner.memory) == 97 and view.table.chosen == []
    assert "3 rows deleted" in view.change.words.value and is_revealed(view.change.widget)
    as_page(view.table, filter="nonsense > 1")
    assert "unknown name 'nonsense'" in view.table.problem
    as_page(view.table, filter="age < 2")
    view.do("duplicate", times=0)
    assert "copies of a row = 0" in wb.page.complaint.widget.value
    wb.rewind("step", -1)
    assert not is_revealed(view.change.widget) and len(wb.trainer.learner.memory) == 99
    view.wanted(5)
    assert "why is it drawn?" in view.why.value
    wb.close()


def test_parts_of_actions_are_filtered_by_the_names_that_are_offered():
    trainer = Trainer(InParts, "ppo", num_envs=2, n_steps=8, batch_size=8, seed=0)
    trainer.run(steps=12)
    memory = trainer.learner.memory
    names = names_of_rows(memory)
    assert {"act[0]", "act[1]", "obs.b"} <= {*names}
    for name in names: rows_where(trainer.learner, f"isfinite({name})")
    rows = rows_where(trainer.learner, "act[1] == 2 and obs.a[0] > 0")
    held = memory.gather(rows)
    assert len(rows) and (held.act["1"] == 2).all() and (held.obs.a[:, 0] > 0).all()
