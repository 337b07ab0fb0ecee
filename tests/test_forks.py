"Runs side by side: who keeps up with whom, and what becomes of them"
from itertools import zip_longest

import numpy as np
import pytest

from rlbench import Trainer, Workbench
from rlbench.algos.algorithm import algorithms
from rlbench.core.state import same
from rlbench.lab.page.fork_views import GridChoices
from rlbench.lab.time.compare import Lockstep, alike, choices_differ
from rlbench.lab.time.forks import alike_until, told_run
from tests.conftest import small
from tests.test_any_deeds import events_along

RUNS = [
    ("CartPole-v1", "dqn"),
    ("CartPole-v1", "recurrent_ppo"),
    ("Pendulum-v1", "sac"),
    ("FrozenLake-v1", "qlearning"),
    ("CartPole-v1", "stream_q"),
    ("rlbench/Pennies-v0", "ppo"),
]


def bench(env, algo, **settings):
    return Workbench(env, algo, driver="sync", views=[], seed=0, **small(algorithms()[algo]), **settings)


@pytest.mark.parametrize("env, algo", RUNS)
def test_a_twin_stays_the_same_to_the_bit(env, algo):
    wb = bench(env, algo)
    wb.step("event", 60)
    run = wb.beside("twin")
    wb.step("event", 200)
    assert run.pair.events == 200 and not run.pair.parted
    assert same(run.trainer.state(), wb.trainer.state())
    wb.close()


@pytest.mark.parametrize("env, algo", RUNS)
def test_looking_at_forks_changes_neither_run(env, algo):
    wb = Workbench(env, algo, driver="sync", seed=0, **small(algorithms()[algo]))
    wb.step("event", 60)
    alone = [wb.trainer.fork(), wb.trainer.fork(gamma=.5)]
    run = wb.beside(gamma=.5)
    wb.step("step", 20)
    alone[0].until("step", 20)
    assert same(wb.trainer.state(), alone[0].state())
    while (alone[1].steps, alone[1].updates) < (run.trainer.steps, run.trainer.updates):
        alone[1].advance()
    assert same(run.trainer.state(), alone[1].state())
    wb.close()


def test_the_better_one_is_gone_on_with_and_has_its_own_past():
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 5)
    wb.beside("bold", lr=.01)
    wb.step("update", 5)
    wb.go_on("bold")
    assert wb.trainer.learner.settings.lr == .01
    assert "trainer.set(lr=0.01)" in wb.snippet()
    there = wb.trainer.snapshot()
    wb.step("update", 3).rewind("update", -3)
    assert same(wb.trainer.snapshot(), there)
    space = {}
    exec(str(wb.snippet()), space)
    again, here = (trainer.state() | dict(config=None) for trainer in (space["trainer"], wb.trainer))
    assert same(again, here)                                # but for who said which setting
    wb.go_on("run")
    assert wb.trainer.learner.settings.lr != .01
    wb.close()


def test_a_trainer_that_was_given_is_nobody_elses_to_close():
    trainer = Trainer("CartPole-v1", "dqn", seed=0, learning_starts=10)
    wb = Workbench(trainer, driver="sync", views=[])
    wb.step("step", 20)
    wb.beside("other")
    wb.go_on("other")
    wb.drop("run")
    wb.close()
    trainer.run(10)
    assert not trainer.watchers


def test_what_is_started_again_has_its_past_and_its_forks():
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 5)
    run = wb.beside("other", lr=.01)
    wb.step("update", 5)
    first = wb.player.timeline.branch
    there = wb.snapshot()
    wb.set(gamma=.9).reset()
    assert wb.trainer.steps == 0 and wb.trainer.learner.settings.gamma == .9
    assert wb.trainer.digest() == wb.trainer.fresh().digest()
    assert wb.forks.others == [run] and run.pair.waits == run.at and run.trainer.updates == 5
    wb.step("update", 7)
    assert wb.trainer.learner.settings.gamma == .9
    wb.rewind(first.end, branch=first)
    assert same(wb.snapshot()["learners"], there["learners"])
    wb.close()


def test_a_snapshot_is_gone_back_to_without_losing_anything():
    wb = bench("CartPole-v1", "dqn")
    here = wb.step("update", 5).snapshot()
    run = wb.beside("other", lr=.01)
    wb.step("update", 5)
    there = wb.snapshot()
    events = wb.player.timeline.at
    wb.rewind(here)
    assert same(wb.snapshot(), here) and wb.forks.others == [run]
    wb.step("update", 3)
    wb.rewind(events, branch=wb.player.timeline.branches[0])
    assert same(wb.snapshot(), there)
    wb.close()


def lockstep_of(wb, name):
    "How two runs stand: events alike, where they parted, how far each is"
    run = wb.forks[name]
    return run.pair.events, bool(run.pair.parted), wb.trainer.steps, run.trainer.steps


@pytest.mark.parametrize("back", [1, 4, 9])
def test_forks_go_back_with_the_run_and_part_where_they_parted(back):
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 3)
    wb.beside("other", lr=.01)
    begun = wb.player.timeline.at
    wb.step("update", 8)
    parted = lockstep_of(wb, "other")
    assert parted[1] and parted[0] < wb.player.timeline.at - begun
    wb.rewind(begun + parted[0] - back)
    if parted[0] >= back:
        assert lockstep_of(wb, "other")[:2] == (parted[0] - back, False)
    else:
        assert wb.forks["other"].pair.waits == back - parted[0]
    wb.step("event", back + 12)
    assert lockstep_of(wb, "other")[:2] == parted[:2]
    wb.rewind(begun)
    wb.step("event").rewind(begun + parted[0] + 12)         # ahead, by events that nobody compared
    assert "then not compared" in repr(wb.forks)
    wb.step("update", 3)
    assert lockstep_of(wb, "other")[:2] == (1, False) and lockstep_of(wb, "other")[2] == lockstep_of(wb, "other")[3]
    wb.close()


def test_two_forks_go_back_where_one_of_them_is_in_hand():
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 3)
    wb.beside("early", lr=.01)
    wb.step("event", 1)
    wb.beside("late", gamma=.5)
    wb.step("update", 6)
    wb.go_on("late")
    at = wb.player.timeline.at
    wb.rewind(wb.forks["late"].at)
    for name in ("run", "early"):
        assert wb.forks[name].pair.parted is None
        assert wb.forks[name].trainer.steps == wb.trainer.steps
    wb.step("event", at)
    assert wb.forks["run"].pair.parted and wb.forks["early"].pair.parted
    wb.close()


def test_where_two_part_is_told_from_either_side():
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 3).beside("other", lr=.01)
    wb.step("update", 8)
    mine, its = wb.forks["other"].pair.parted
    assert not alike(mine, its)
    wb.go_on("other")
    assert wb.forks["run"].pair.parted == (its, mine)
    wb.close()


def test_forks_that_parted_from_the_run_are_compared_with_each_other():
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 3)
    for name, changes in dict(one=dict(lr=.01), two=dict(lr=.02), like_one=dict(lr=.01)).items():
        wb.beside(name, **changes)
    wb.step("update", 8)
    events = {run.pair.events for run in wb.forks.others}
    parted = {run.name: run.pair.parted[1] for run in wb.forks.others}
    wb.go_on("one")
    assert events == {wb.forks["two"].pair.events} and wb.forks["two"].pair.parted == (parted["one"], parted["two"])
    assert "alike for" in told_run(wb.forks["like_one"]) and "then not compared" in told_run(wb.forks["like_one"])
    wb.close()


def test_a_fork_that_began_after_another_had_parted_parts_from_it_where_the_run_did():
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 3).beside("bold", lr=.01)
    wb.step("update", 8).beside("late")
    mine, its = wb.forks["bold"].pair.parted
    events = wb.forks["bold"].pair.events
    wb.step("update", 2).go_on("bold")
    assert wb.forks["late"].pair.events == events and wb.forks["late"].pair.parted == (its, mine)
    wb.go_on("late")
    assert wb.forks["bold"].pair.events == events and wb.forks["bold"].pair.parted == (mine, its)
    wb.close()


def test_a_fork_is_not_said_to_be_alike_on_a_way_that_it_never_went():
    wb = bench("CartPole-v1", "dqn")
    wb.step("event", 100)
    wb.rewind(60).set(gamma=.5).step("event", 20)
    wb.beside("other", lr=.01)
    wb.step("event", 30)
    assert wb.forks["other"].pair.parted
    wb.rewind(100, branch=1)
    assert not wb.forks["other"].pair.parted and "alike for 0 events since, then not compared" in repr(wb.forks)
    wb.close()


def test_another_run_is_not_loaded_over_forks(tmp_path):
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 3).save(tmp_path / "run.rlb")
    wb.beside("other", lr=.01)
    with pytest.raises(ValueError, match="would let go of other: save what you want to keep"):
        wb.load(tmp_path / "run.rlb")
    assert wb.forks["other"].trainer.updates == 3
    wb.drop("other").load(tmp_path / "run.rlb")
    wb.close()


def test_a_fork_that_fails_stands_still_and_says_why():
    wb = bench("CartPole-v1", "dqn")
    wb.step("step", 20)
    run = wb.beside("other")

    def fail(trainer, event):
        raise RuntimeError("a cable broke")

    run.trainer.watchers.append(fail)
    wb.step("step", 5)
    assert "stands still: a cable broke" in repr(wb.forks)
    wb.close()


MOVED = dict(
    run=lambda trainer: trainer.run(steps=10),
    until=lambda trainer: trainer.until("update", 3),
    advance=lambda trainer: [trainer.advance() for _ in range(7)],
    iterated=lambda trainer: [event for event, _ in zip(trainer, range(7))],
)


@pytest.mark.parametrize("how", MOVED)
def test_a_fork_keeps_up_with_a_run_that_its_own_methods_move(how):
    wb = bench("CartPole-v1", "dqn")
    wb.step("step", 30).beside("twin")
    wb.step("step", 5)
    MOVED[how](wb.trainer)
    assert same(wb.trainer.state(), wb.forks["twin"].trainer.state())
    begun = wb.forks["twin"].at
    wb.step("step", 10)
    run = wb.forks["twin"]
    assert run.pair.parted is None and run.pair.events == wb.timeline.at - begun
    assert wb.trainer.digest() == run.trainer.digest()
    wb.go_on("twin")
    MOVED[how](wb.trainer)
    assert wb.forks["run"].pair.parted is None and not wb.forks["run"].pair.lost
    assert wb.trainer.digest() == wb.forks["run"].trainer.digest()
    wb.drop("run")
    MOVED[how](wb.trainer)
    wb.close()
    assert not wb.trainer.watchers


ELSEWHERE = dict(
    run_restored=lambda wb, early: wb.trainer.restore(early),
    run_rewound=lambda wb, early: wb.timeline.rewind(32),
    snapshot=lambda wb, early: wb.rewind(early),
    fork_moved=lambda wb, early: wb.forks["twin"].trainer.run(steps=3),
    fork_restored=lambda wb, early: wb.forks["twin"].trainer.restore(early),
    fork_rewound=lambda wb, early: wb.forks["twin"].timeline.rewind(32),
)


@pytest.mark.parametrize("how", ELSEWHERE)
def test_nobody_says_that_two_have_parted_of_which_one_was_put_elsewhere(how):
    wb = bench("CartPole-v1", "dqn")
    early = wb.step("step", 20).snapshot()
    wb.step("step", 10).beside("twin")
    wb.step("step", 5)
    ELSEWHERE[how](wb, early)
    wb.step("step", 10)
    run = wb.forks["twin"]
    assert run.pair.parted is None and "then not compared" in repr(wb.forks) and "ways part" not in repr(wb.forks)
    assert not run.problem
    wb.close()


def test_choices_in_parts_are_compared_part_by_part():
    trainer = Trainer("rlbench/SideAndForce-v0", "ppo", seed=0, n_steps=8, num_envs=2)
    trainer.run(steps=40)
    twin = trainer.fork(lr=.1)
    twin.run(steps=40)
    one, two = (run.actors["agent"] for run in (trainer, twin))
    obs = trainer.obs["agent"]
    assert not choices_differ(one, one, obs).any()
    found = choices_differ(one, two, obs)
    acts = [actor.twin(None).act(obs, greedy=True)[0] for actor in (one, two)]
    apart = [np.abs(acts[0][part].reshape(2, -1) - acts[1][part].reshape(2, -1)).max(1) > .01 for part in acts[0]]
    assert found.tolist() == np.any(apart, 0).tolist()


@pytest.mark.parametrize("wrong, words", [
    (lambda wb: wb.go_on("bald"), "did you mean 'bold'"),
    (lambda wb: wb.drop("run"), "'run' is the run in hand"),
    (lambda wb: wb.beside(gama=.5), "did you mean 'gamma'"),
    (lambda wb: wb.beside(hidden=[8]), "hidden"),
])
def test_refusals_say_what_would_do(wrong, words):
    wb = bench("CartPole-v1", "dqn")
    wb.step("step", 20).beside("bold")
    with pytest.raises(ValueError, match=words): wrong(wb)
    assert list(wb.forks.known) == ["run", "bold"]
    wb.close()


def test_the_past_of_a_fork_is_that_of_the_run_it_left(tmp_path):
    wb = bench("CartPole-v1", "dqn")
    early = wb.step("update", 2).snapshot()
    events = wb.player.timeline.at
    wb.set(gamma=.9).step("update", 6)
    wb.beside("bold", lr=.01)
    wb.step("update", 5).go_on("bold")
    late = wb.snapshot()
    end = wb.player.timeline.at
    assert wb.explain_update(2).number == 2
    wb.rewind(events)                                       # to before the fork was one
    assert same(wb.snapshot(), early)
    wb.step("update", 3)
    assert wb.trainer.learner.settings.gamma != .9
    _, own, new = wb.player.timeline.branches
    assert new.since == events
    wb.rewind(end, branch=own)
    assert same(wb.snapshot(), late)
    script = wb.script()
    assert script.count("trainer.set(gamma=0.9)") == 1 and script.count("trainer.set(lr=0.01)") == 1
    space = {}
    exec(str(script), space)
    wb.go_on("run").drop("bold")
    wb.close()


def test_who_stands_where_a_run_was_before_it_was_left_changes_nothing_there():
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 4)
    wb.beside("other", lr=.01)
    wb.step("update", 2).go_on("other")
    [branch] = wb.forks["run"].timeline.branches
    before = bytes(branch.marks)
    wb.rewind(2).set(gamma=.5).step("event", 3)
    wb.rewind(2).step("event", 300)
    assert wb.forks["run"].timeline.branches == [branch] and not branch.deeds
    assert branch.marks.startswith(before)
    wb.close()


def test_a_fork_is_started_again_with_its_own_settings():
    wb = bench("CartPole-v1", "dqn")
    wb.step("update", 4)
    wb.beside("other", lr=.01)
    wb.step("update", 2).go_on("other").reset()
    assert wb.trainer.steps == 0 and wb.trainer.digest() == wb.trainer.fresh(lr=.01).digest()
    assert [run.name for run in wb.forks.others] == ["run"]
    wb.close()


@pytest.mark.parametrize("env, algo", [("CartPole-v1", "dqn"), ("CartPole-v1", "ppo"), ("rlbench/Pennies-v0", "ppo")])
def test_histories_of_parts_go_on_beside_a_fork_and_after_it(env, algo):
    wb = Workbench(env, algo, driver="sync", seed=0, log_every=40, **small(algorithms()[algo]))
    wb.step("step", 300)
    view = [card.view for card in wb.page.cards if card.view.name == "parts"][0]
    before = view.stories.told("loss").tolist()
    wb.beside("bold", lr=.01)
    assert view.stories.told("loss")[:len(before)].tolist() == before
    wb.step("step", 100)
    wb.drop("bold")
    assert view.stories.told("loss")[:len(before)].tolist() == before
    wb.rewind("update", -3)
    at = view.stories.told("loss")[:, 0]
    assert len(at) > len(before) / 2 and at[-1] == wb.trainer.updates and (at[1:] > at[:-1]).all()
    assert view.stories.before["loss"]
    wb.reset()
    assert not view.stories
    wb.close()


def claims(wb):
    "How long each fork is said to be alike with the run in hand, beside how long it is so, by their own ways"
    found = {}
    for run in wb.forks.others:
        pair = run.pair
        twins = wb.trainer.fresh(), run.trainer.fresh()
        both = events_along(wb.timeline, 0, twins[0]), events_along(run.timeline, 0, twins[1])
        count = 0
        for one, two in zip_longest(*both):
            if not alike(one, two): break
            count += 1
        said = alike_until(run)
        true = count if pair.lost or pair.waits else said
        found[run.name] = min(said, wb.timeline.at, run.timeline.at) <= count and true == count
        for twin in twins: twin.close()
    return found


def test_a_waiting_fork_is_not_compared_with_a_run_that_took_another_way():
    wb = bench("CartPole-v1", "dqn")
    wb.step("event", 43).beside("f")
    wb.rewind(20).set(lr=.1).step("event", 30)
    pair = wb.forks["f"].pair
    assert pair.lost and pair.parted is None and alike_until(wb.forks["f"]) == 20
    told = "alike for 0 events since, then not compared; their ways part after event 20; agent.lr is 0.1 in hand, "
    assert told in repr(wb.forks) and "; their weights are " in repr(wb.forks)
    wb.rewind(10)                                           # on both ways
    assert wb.forks["f"].pair.waits == 33 and not wb.forks["f"].pair.lost and "ways part" not in repr(wb.forks)
    wb.step("event", 40)
    assert wb.forks["f"].pair.events == 7 and wb.trainer.digest() == wb.forks["f"].trainer.digest()
    wb.close()


def test_a_fork_of_another_way_takes_over_from_nobody():
    wb = bench("CartPole-v1", "dqn")
    wb.step("event", 43).beside("f")
    wb.rewind(20).beside("g", lr=.1)
    wb.go_on("g").step("event", 30)
    assert wb.forks["f"].pair.parted is None and wb.forks["f"].pair.lost
    wb.go_on("run")
    pair = wb.forks["f"].pair
    assert wb.trainer.digest() == wb.forks["f"].trainer.digest()
    assert pair.parted is None and pair.events == 0
    wb.rewind(43)
    assert not pair.lost and not pair.waits
    wb.step("event", 5)
    assert (pair.events, pair.parted, wb.trainer.digest()) == (5, None, wb.forks["f"].trainer.digest())
    wb.close()


def test_a_run_goes_back_on_the_way_on_which_it_was_left():
    wb = bench("CartPole-v1", "dqn")
    wb.step("event", 8).edit(0, rew=5.).step("event", 12)
    wb.beside("f", lr=.1)
    there = wb.trainer.digest()
    wb.rewind(5).go_on("f").step("event", 30)
    run = wb.forks["run"]
    assert run.trainer.learner.memory.places.rew[0] == 1
    wb.rewind(20).step()
    assert run.trainer.learner.memory.places.rew[0] == 5 and not run.problem
    assert run.timeline.twin(run.timeline.path_to(20)).digest() == there
    assert all(claims(wb).values())
    wb.close()


def wander(wb, rng, what):
    "One of the things that one does with forks"
    names = list(wb.forks.known)
    if what == "step":
        wb.step("event", int(rng.integers(1, 15)))
    elif what == "rewind":
        wb.rewind(int(rng.integers(wb.timeline.at + 1)))
    elif what == "set":
        wb.set(gamma=float(rng.choice([.5, .9])))
    elif what == "go_on":
        wb.go_on(str(rng.choice(names)))
    elif what == "beside" and len(names) < 4:
        wb.beside(**{"epsilon": .5} if rng.random() < .5 else {})
    elif what == "way":
        way = wb.timeline.ways[rng.integers(len(wb.timeline.ways))]
        wb.rewind(int(rng.integers(way.since, way.end + 1)), branch=way)


WAYS = ["step", "rewind", "set", "go_on", "beside", "way"]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_said_of_forks_holds_whatever_way_they_go(seed):
    rng = np.random.default_rng(seed)
    wb = bench("FrozenLake-v1", "qlearning")
    wb.step("event", 12)
    for at in range(20):
        what = str(rng.choice(WAYS))
        wander(wb, rng, what)
        assert all(claims(wb).values()), (at, what, wb.forks, claims(wb))
        assert not any(run.problem for run in wb.forks.others), wb.forks
    wb.close()


@pytest.mark.parametrize("env, algo", [
    ("rlbench/StatelessCartPole-v0", "recurrent_ppo"), ("rlbench/StatelessCartPole-v0", "r2d2"),
    ("FrozenLake-v1", "qlearning"), ("FrozenLake-v1", "reinforce"), ("CartPole-v1", "dqn"), ("Pendulum-v1", "sac"),
    ("Blackjack-v1", "dqn"), ("rlbench/Pennies-v0", "ppo")])
def test_values_and_policies_of_forks_are_told_apart(env, algo):
    wb = Workbench(env, algo, driver="sync", seed=0, **small(algorithms()[algo]))
    wb.step("step", 40).beside("f", lr=.2)
    wb.step("step", 60)
    cards = {card.view.title: card.view.text() for card in wb.page.cards}
    told = [words for title, words in cards.items() if title.endswith(", minus f")]
    assert len(told) > 1 and not any("cannot be drawn" in words for words in told), cards
    if env not in ("Blackjack-v1", "rlbench/Pennies-v0"):
        assert "something else is done" in cards["Policies, minus f"]
    assert algo == "reinforce" or "Values, minus f" in cards
    wb.close()


def test_a_map_shows_where_two_policies_differ():
    wb = bench("FrozenLake-v1", "qlearning")
    wb.step("step", 20).beside("f")
    view = GridChoices(wb.forks, wb.trainer, "agent")
    view.draw(wb.trainer, moving=False)
    assert "in 0 of" in view.text()
    wb.trainer.learner.nets.q.values[3] = wb.trainer.learner.nets.q.values[3].flip(0) * 0 + 1
    wb.trainer.learner.nets.q.values[3, 2] = 2.
    wb.forks["f"].trainer.learner.nets.q.values[3, 1] = 2.
    view.draw(wb.trainer, moving=False)
    assert "in 1 of" in view.text()
    wb.close()


def test_lockstep_with_nobody_is_refused():
    with pytest.raises(ValueError, match="expected a trainer"):
        Lockstep(Trainer("FrozenLake-v1", "qlearning"), None).step()


def test_a_fork_is_called_by_what_it_sets_whoever_has_that_setting():
    wb = Workbench("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), driver="sync", views=[])
    wb.step("step", 3).beside(**{"chaser.lr": .1}, gamma=.9)
    assert list(wb.forks.known) == ["run", "chaser.lr=0.1, gamma=0.9"]
    wb.close()
