"Whatever is done to a run, in any order: the way back and the script lead to the same bits, looking changes nothing"
from itertools import zip_longest
from zlib import crc32

import numpy as np
import pytest

from rlbench.algos.algorithm import algorithms
from rlbench.core.batch import Batch
from rlbench.core.words import ConfigError
from rlbench.envs.env import EnvProblem
from rlbench.lab.hands.hands import Hands
from rlbench.lab.time.compare import alike
from rlbench.lab.time.histories import write_script
from rlbench.lab.time.owner import next_event
from rlbench.lab.time.player import Player
from rlbench.lab.time.timeline import deeds_on, done_before, lead
from rlbench.training.trainer import Trainer
from tests.cases import ONE_EACH, demonstrations, differs
from tests.conftest import small

REFUSED = ValueError, ConfigError, EnvProblem


def run_of(env, algo, env_settings=None, **settings):
    "A small run of one algorithm, or of several by behaviour"
    cast = algo if isinstance(algo, dict) else {"": algo}
    own = {}
    for who, name in cast.items():
        own |= {f"{who}.{key}" if who else key: value for key, value in small(algorithms()[name]).items()}
    return lambda: Trainer(env, algo, env_settings=env_settings, seed=0, num_envs=2, log_every=50, **own | settings)


MORE = {
    "a mask": run_of("rlbench/Forbidden-v0", "dqn"),
    "a mask for ppo": run_of("rlbench/Forbidden-v0", "ppo"),
    "priorities": run_of("CartPole-v1", "dqn", prioritized_replay_alpha=.6, n_step=3, gradient_steps=2),
    "pictures": run_of("MinAtar/Breakout-v1", "dqn", dict(frame_stack=2)),
    "two parts": run_of("rlbench/SideAndForce-v0", "ppo"),
    "two parts replayed": run_of("rlbench/SideAndForce-v0", "sac"),
    "a memory": run_of("rlbench/StatelessCartPole-v0", "recurrent_ppo"),
    "stretches": run_of("rlbench/StatelessCartPole-v0", "r2d2"),
    "two who learn": run_of("rlbench/Chase-v0", dict(chaser="dqn", runner="sac")),
    "two of a kind": run_of("rlbench/Pennies-v0", "ppo"),
    "scaled": run_of("Pendulum-v1", "ppo", normalize_obs=True, normalize_reward=True, distribution="gsde"),
}
RUNS = {str(case): (lambda case=case: case.trainer(num_envs=2)) for case in ONE_EACH} | MORE
GIVEN = {str(case): case.env for case in ONE_EACH}


# ---- deeds

def goes_on(hands, rng):
    hands.step(str(rng.choice(["event", "step", "update"])), int(rng.integers(1, 9)))


def pick(rng, these):
    these = list(these)
    return these[rng.integers(len(these))]


def who_learns(hands, rng):
    return pick(rng, hands.trainer.learners)


def sets(hands, rng):
    "Any number that can change between two events"
    config = hands.trainer.config
    found = {}
    for section, name in config.known:
        value = getattr(config.values[section], name)
        if section in ("trainer", "env") or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        found[section, name] = value
    section, name = pick(rng, found)
    change = {name if len(config.address(name)) == 1 else f"{section}.{name}":
              pick(rng, [found[section, name] * 2, found[section, name] / 2, found[section, name] + 1])}
    hands.set(**change)


def sets_gamma(hands, rng):
    hands.set(gamma=float(rng.choice([.5, .7, .9])))


def switches(hands, rng):
    which = str(rng.choice(["collecting", "learning"]))
    hands.switch(**{which: False})
    hands.step("event", 2)
    hands.switch(**{which: True})


def explores_not(hands, rng):
    hands.trainer.exploring = not hands.trainer.exploring


def some_rows(hands, rng, who):
    "Rows by number, by a list, by an expression, or as a selection"
    rows = hands.trainer.learners[who].memory.latest()
    if not len(rows): return 0
    some = rng.choice(rows, min(3, len(rows)), replace=False).tolist()
    return pick(rng, [some[0], some, np.array(some), "age < 3", "rew > -100 and env == 1 and age < 2",
                      hands.rows("age == 2", who)])


def first_row(hands, who):
    return int(hands.trainer.learners[who].memory.latest()[:1].sum())


def edits(hands, rng):
    who = who_learns(hands, rng)
    which = some_rows(hands, rng, who)
    changes = pick(rng, [dict(rew=float(rng.normal())), dict(rew=np.float32(2)), dict(rew=1, term=True)])
    hands.edit(which, who, **changes)


def deletes(hands, rng):
    who = who_learns(hands, rng)
    hands.delete(some_rows(hands, rng, who), who)


def duplicates(hands, rng):
    who = who_learns(hands, rng)
    hands.duplicate(some_rows(hands, rng, who), int(rng.integers(1, 3)), who)


def prioritises(hands, rng):
    who = who_learns(hands, rng)
    change = pick(rng, [dict(to=2.), dict(by=3), dict(to=np.float32(0))])
    hands.prioritise(some_rows(hands, rng, who), who=who, **change)


def injects(hands, rng):
    who = who_learns(hands, rng)
    memory = hands.trainer.learners[who].memory
    if not len(memory): return hands.inject({}, who)
    rows = memory.gather(memory.latest()[:3])
    hands.inject(Batch(rows, rew=rows.rew + 1), who)


def learns_more(hands, rng):
    hands.learn(int(rng.integers(1, 4)), who_learns(hands, rng))


def acts(hands, rng):
    who = pick(rng, hands.trainer.actors)
    space = hands.trainer.env.behaviours[who].action_space
    space.seed(int(rng.integers(99)))
    hands.act(space.sample(), who)


def places(hands, rng):
    who = pick(rng, hands.trainer.actors)
    learner = hands.trainer.learners[who]
    if rng.random() < .5 and len(learner.memory):
        return hands.place(row=int(learner.memory.latest()[0]))
    hands.place(hands.trainer.obs[who][0])


def tunes(hands, rng):
    parameters = list(hands.trainer.env.parameters)
    if not parameters: return
    name = pick(rng, parameters)
    value = getattr(hands.trainer.env.single.unwrapped, name)
    hands.set_env(**{name: value * float(rng.choice([.5, .9]))})


def goes_back(hands, rng):
    way = int(rng.integers(len(hands.timeline.ways)))
    branch = hands.timeline.ways[way]
    first = branch.path(branch.end)[0][0].since
    hands.rewind(int(rng.integers(first, branch.end + 1)), branch=way + 1)


def forks_off(hands, rng):
    if len(hands.forks.known) < 4:
        hands.beside(**pick(rng, [dict(gamma=float(rng.choice([.3, .4]))), dict()]))


def goes_over(hands, rng):
    hands.go_on(pick(rng, hands.forks.known))


def drops(hands, rng):
    if len(hands.forks.known) > 3: hands.drop(pick(rng, hands.forks.known))


def begins_again(hands, rng):
    if rng.random() < .3: hands.reset()


def looks(hands, rng):
    "What only reads"
    who = who_learns(hands, rng)
    before = hands.trainer.digest()
    several = len(hands.trainer.actors) > 1
    look = pick(rng, [
        lambda: hands.evaluate(episodes=1, longest=5),
        lambda: hands.rollout(who=who, steps=3, times=2),
        lambda: hands.advice(who),
        lambda: hands.explain_update(who=who),
        lambda: hands.explain_update(1, who),
        lambda: hands.value_against_return(who, episodes=1, longest=5),
        lambda: hands.why_drawn(first_row(hands, who), who),
        lambda: hands.why_drawn(first_row(hands, who), who, since=0),
        lambda: hands.pin(hands.trainer.obs[who][0], who=who if several else None),
        lambda: hands.trainer.diagnose(who, steps=20, seconds=.2),
        lambda: hands.break_when("rew > 1e9"),
        lambda: hands.trainer.fork().close(),
    ])
    try: look()
    finally: assert hands.trainer.digest() == before


DEEDS = [goes_on] * 8 + [sets, sets_gamma, switches, explores_not, edits, deletes, duplicates, prioritises, injects,
                         learns_more, learns_more, acts, acts, places, tunes, goes_back, goes_back, goes_back,
                         forks_off, forks_off, goes_over, goes_over, drops, begins_again, looks, looks]


# ---- what has to hold after each

def told(trainer):
    "All but who set what"
    return {name: part for name, part in trainer.state().items() if name != "config"} | dict(digest=trainer.digest())


def check_way_back(hands):
    "A second trainer that is led here, from the nearest snapshot or from the first, stands at the same bits"
    timeline = hands.timeline
    timeline.look()
    twin = timeline.twin(timeline.path)
    found = differs(told(twin), told(hands.trainer))
    assert found == "", found
    root = timeline.path[0][0]
    list(events_along(timeline, root.since, twin))
    found = differs(told(twin), told(hands.trainer))
    assert found == "", found
    twin.close()


def events_along(timeline, since, twin):
    "The events of a run after so many, once more, by a second trainer"
    path = timeline.path
    deeds = deeds_on(path, since)
    begun = [(branch, min(upto, since), min(done, done_before(branch.deeds, since)))
             for branch, upto, done in path if branch.since <= since]
    lead(twin, begun)
    for at in range(since, timeline.at):
        for deed in deeds.get(at, ()): deed.act(twin)
        yield next_event(twin)
    for deed in deeds.get(timeline.at, ()): deed.act(twin)


def check_pairs(hands):
    "Forks say right for how many events they are alike with the run in hand, and where they part"
    for run in hands.forks.others:
        pair = run.pair
        if pair.lost or pair.waits or run.problem: continue
        here, there = run.level
        count = 0
        twins = hands.trainer.fresh(), run.trainer.fresh()
        both = events_along(hands.timeline, here, twins[0]), events_along(run.timeline, there, twins[1])
        for one, two in zip_longest(*both):
            if not alike(one, two): break
            count += 1
        else: one = two = None
        assert count == pair.events, (run, count, pair)
        if pair.parted:
            assert alike(pair.parted[0], one) and alike(pair.parted[1], two), (run, pair.parted, one, two)
        else: assert one is None, (run, count, pair)
        for twin in twins: twin.close()


def repeated(script, **scope):
    "{name: trainer} of all runs that a script makes"
    exec(script, scope)
    return scope.get("runs") or dict(run=scope["trainer"])


def check_script(hands, **scope):
    script = write_script(hands.forks)
    runs = repeated(script, **scope)
    for name, run in hands.forks.known.items():
        assert differs(told(runs[name]), told(run.trainer)) == "", script
    for run in runs.values(): run.close()


def do(hands, deed, rng):
    "A deed; one that is refused leaves everything as it was"
    hands.timeline.look()
    before = hands.trainer.digest()
    lines = hands.timeline.script()
    try: deed(hands, rng)
    except REFUSED as problem:
        if deed not in (switches, goes_on, learns_more, acts):
            assert (hands.trainer.digest(), hands.timeline.script()) == (before, lines), problem
        return f"{deed.__name__}: {problem}"
    return deed.__name__


def walk(name, seed, n=12, every=True):
    "So many deeds in any order; what they were"
    rng = np.random.default_rng([seed, crc32(name.encode())])
    hands = Hands(Player(RUNS[name](), "sync"))
    scope = {}
    if any(learner.given for learner in hands.trainer.learners.values()):
        scope = dict(memory=demonstrations(GIVEN[name], 2))
    hands.step("event", 12)
    done = []
    try:
        for _ in range(n):
            done.append(do(hands, pick(rng, DEEDS), rng))
            if every: check_way_back(hands)
            if every: check_pairs(hands)
        check_script(hands, **scope)
    except BaseException:
        print(*done, sep="\n")
        raise
    finally:
        hands.player.close()
    return done


# many more seeds by hand: walk(name, seed, n=12) for any name in RUNS

@pytest.mark.parametrize("name", RUNS)
def test_any_deeds_lead_to_the_same_bits(name):
    walk(name, seed=len(name), n=9, every=name in MORE)
