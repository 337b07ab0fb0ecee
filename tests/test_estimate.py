"Off-policy estimates: against exact values, against plain loops, and what is said where something is missing"
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch

import rlbench
from benchmarks.estimates import CASES, GAMMA, coverage, policies, watched
from rlbench import Trainer
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch, each
from rlbench.core.words import ConfigError
from rlbench.envs.tabular import Tabular, evaluate_policy
from rlbench.training.actor import Policy
from rlbench.training.estimate import (FOLDS, INTERVALS, METHODS, RandomFeatures, doubly_robust, episodes_in_time,
                                       estimate, estimates_of, evidence_of, share_never_done)
from tests.cases import demonstrations


@pytest.fixture(scope="module")
def seen():
    "(world, the policy in question, a memory)"
    world = CASES["garden"].world
    behaviour, wanted = policies(world)
    return world, wanted, watched(world, behaviour, 200, np.random.default_rng(0))


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("name", ["walk, 20 episodes", "garden, policy far away"])
def test_intervals_hold_the_truth(name, interval):
    found, _ = coverage(CASES[name], repeats=20, interval=interval)
    assert min(held for held, *_ in found.values()) >= .8
    width, error = found["dr"][1:3]
    assert error < width < 2                            # and do not hold everything


def test_one_episode_promises_nothing(seen):
    world, wanted, _ = seen
    alone = watched(world, np.full((7, 3), 1 / 3), 1, np.random.default_rng(0))
    for interval in INTERVALS:
        found = estimate(lambda obs: wanted[obs], alone, "wpdis", GAMMA, interval=interval)
        assert (found.low, found.high) == (-np.inf, np.inf)


@pytest.mark.parametrize("method", METHODS)
def test_a_bootstrap_holds_the_estimate_and_depends_on_its_seed_alone(seen, method):
    world, wanted, memory = seen
    behaviour, _ = policies(world)
    for episodes in (2, 5, 40):
        few = watched(world, behaviour, episodes, np.random.default_rng(episodes))
        found = [estimate(lambda obs: wanted[obs], few, method, GAMMA, interval="bootstrap", seed=seed)
                 for seed in (0, 0, 1)]
        assert all(one.low <= one.value <= one.high for one in found)
        assert found[0] == found[1]
        assert episodes < 40 or found[0] != found[2]
        assert found[0].value == estimate(lambda obs: wanted[obs], few, method, GAMMA).value
    with pytest.raises(ConfigError, match="unknown interval 'boostrap'; did you mean 'bootstrap'"):
        estimate(lambda obs: wanted[obs], memory, method, GAMMA, interval="boostrap")


def test_a_bootstrap_by_hand():
    "Two episodes that return 0 and 1: a quarter of the draws say 0, a quarter 1, and Student's factor for one is 12.7"
    found = estimate(first, told_of([1., 1.], [0, 1]), "is", 1., interval="bootstrap")
    assert found.value == .5
    assert (found.low, found.high) == pytest.approx((.5 - .5 * 12.706 / 1.96, .5 + .5 * 12.706 / 1.96), rel=.01)


@pytest.mark.parametrize("method", METHODS)
def test_many_counts_at_once_are_each_by_itself(seen, method, monkeypatch):
    world, wanted, memory = seen
    trials = episodes_in_time(memory)
    evidence = evidence_of(trials, lambda obs: wanted[obs], world.observation_space, GAMMA)
    counts = np.random.default_rng(0).multinomial(200, np.full(200, 1 / 200), size=7)
    each = [METHODS[method](evidence, count) for count in counts]
    np.testing.assert_allclose(METHODS[method](evidence, counts), each, rtol=1e-9)
    monkeypatch.setattr("rlbench.training.estimate.SUMS_AT_ONCE", 2000)
    np.testing.assert_allclose(estimates_of(METHODS[method], evidence, counts), each, rtol=1e-9)


def test_groups_of_episodes_tell_much_the_same(seen):
    world, wanted, memory = seen
    each = estimate(lambda obs: wanted[obs], memory, "dr", GAMMA)
    some = estimate(lambda obs: wanted[obs], memory, "dr", GAMMA, groups=50)
    assert each.value == some.value
    assert .6 < (some.high - some.low) / (each.high - each.low) < 1.7
    with pytest.raises(ValueError, match="groups = 1: expected a whole number of at least 2"):
        estimate(lambda obs: wanted[obs], memory, "dr", GAMMA, groups=1)


@pytest.mark.parametrize("method", METHODS)
def test_near_the_truth(seen, method):
    world, wanted, memory = seen
    truth = world.initial_state_distrib @ evaluate_policy(world.model(), wanted, GAMMA)
    found = estimate(lambda obs: wanted[obs], memory, method, GAMMA)
    assert found.low <= found.value <= found.high
    assert abs(found.value - truth) < .35
    assert 0 < found.effective <= found.episodes == 200
    again = estimate(lambda obs: wanted[obs], memory, method, GAMMA)
    assert found == again                   # nothing is left to chance


def test_doubly_robust_row_by_row(seen):
    world, wanted, memory = seen
    trials = episodes_in_time(memory)
    evidence = evidence_of(trials, lambda obs: wanted[obs], world.observation_space, GAMMA)
    ones = np.ones(trials.valid.shape[1])
    q, v = np.zeros((2, *trials.valid.shape))
    for fold in range(FOLDS):               # values of the other episodes
        mine = np.arange(len(ones)) % FOLDS == fold
        weights = evidence.weights(np.where(mine, 0., 1.))
        for values, rows in ((q, evidence.done), (v, evidence.would)):
            found = np.zeros(trials.valid.shape)
            found[trials.valid] = rows @ weights
            values[:, mine] = found[:, mine]
    total = []
    for e in range(len(ones)):
        value = 0.
        for t in reversed(range(trials.valid[:, e].sum())):
            ratio = wanted[trials.obs[t, e], trials.act[t, e]] * 3      # the behaviour took one of three
            value = v[t, e] + ratio * (trials.rew[t, e] + GAMMA * value - q[t, e])
        total.append(value)
    assert np.isclose(np.mean(total), doubly_robust(evidence, ones))


def test_values_of_a_table_are_those_of_its_empirical_model(seen):
    "Linear values with a feature for each pair: what iteration over the same rows ends with"
    world, wanted, memory = seen
    trials = episodes_in_time(memory)
    evidence = evidence_of(trials, lambda obs: wanted[obs], world.observation_space, GAMMA)
    rows = trials[trials.valid]
    q = np.zeros(wanted.shape)
    for _ in range(200):
        target = rows.rew + GAMMA * ~rows.term * (wanted * q).sum(1)[rows.next_obs]
        for s, a in np.ndindex(6, 3):
            q[s, a] = target[(rows.obs == s) & (rows.act == a)].mean()
    done = evidence.done @ evidence.weights(np.ones(trials.valid.shape[1]))
    np.testing.assert_allclose(done, q[rows.obs, rows.act], atol=1e-3)


def test_a_trainer_is_judged_by_a_memory_and_a_clone():
    memory = demonstrations("CartPole-v1", 4, steps=200)
    trainer = Trainer("CartPole-v1", "dqn", seed=0, hidden=(8,), gamma=.9)
    with pytest.raises(ConfigError, match="no column logp"):
        rlbench.estimate(trainer, memory)
    clone = Trainer("CartPole-v1", "bc", memory=memory, n_epochs=3, seed=0)
    clone.run(updates=30)
    found = rlbench.estimate(trainer, memory, "dm", behaviour=clone)
    assert 1 < found.value < 10             # 1 / (1 - γ) is the most
    assert found == rlbench.estimate(Policy(trainer.actors["agent"]), memory, "dm", behaviour=clone)
    with pytest.raises(ConfigError, match="dqn tells no probabilities"):
        rlbench.estimate(trainer, memory, greedy=False, behaviour=clone)


def test_what_is_missing_is_said(seen):
    world, wanted, memory = seen
    with pytest.raises(ConfigError, match="unknown method 'drr'; did you mean 'dr'"):
        estimate(lambda obs: wanted[obs], memory, "drr", GAMMA)
    with pytest.raises(ConfigError, match="which discount"):
        estimate(lambda obs: wanted[obs], memory)
    with pytest.raises(ConfigError, match="expected a Ring"):
        estimate(lambda obs: wanted[obs], 3, gamma=GAMMA)
    with pytest.raises(ConfigError, match="needs Discrete actions"):
        estimate(Trainer("Pendulum-v1", "ppo"), memory)
    never = np.zeros((7, 3))
    never[:, 0] = 1
    always = watched(world, np.tile([0., .5, .5], (7, 1)), 5, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="none of them counts"), pytest.warns(UserWarning, match="never taken"):
        estimate(lambda obs: never[obs], always, gamma=GAMMA)


def told(chances):
    return lambda obs: np.tile(chances, (len(obs), 1))


NO_CHANCES = [
    told([.5, .5, .5]),
    told([-1., 1., 1.]),
    told([.5, .5]),
    told([np.nan] * 3),
    lambda obs: np.ones(len(obs)),
    lambda obs: "often",
]


@pytest.mark.parametrize("wrong", NO_CHANCES)
def test_what_is_no_probability_is_told(seen, wrong):
    _, wanted, memory = seen
    with pytest.raises(ConfigError, match="expected probabilities .* that sum to 1"):
        estimate(wrong, memory, gamma=GAMMA)
    with pytest.raises(ConfigError, match="expected probabilities .* that sum to 1"):
        estimate(lambda obs: wanted[obs], memory, gamma=GAMMA, behaviour=wrong)


def test_chances_may_be_lists_or_tensors(seen):
    _, wanted, memory = seen
    found = estimate(lambda obs: wanted[obs], memory, gamma=GAMMA)
    for kind in (np.ndarray.tolist, torch.tensor):
        assert found == estimate(lambda obs: kind(wanted[obs]), memory, gamma=GAMMA)


def test_who_never_does_what_was_done_was_not_watched(seen):
    _, wanted, memory = seen
    with pytest.raises(ConfigError, match="never does, so it was not the one who was watched"):
        estimate(lambda obs: wanted[obs], memory, gamma=GAMMA, behaviour=told([0., .5, .5]))


@pytest.mark.parametrize("gamma", [-.1, 1.5, np.nan, "much"])
def test_a_discount_is_from_0_to_1(seen, gamma):
    _, wanted, memory = seen
    with pytest.raises(ConfigError, match="expected a number from 0 to 1"):
        estimate(lambda obs: wanted[obs], memory, gamma=gamma)


def steps(count, episodes, start=0, act=0):
    "Episodes of so many steps with a reward of 1 each, by one who hardly ever did that"
    memory = Ring(count * episodes, 1)
    for i in range(count * episodes):
        ends = np.array([i % count == count - 1])
        rew = np.ones(1, np.float32)
        obs = np.array([start])
        row = dict(obs=obs, act=np.array([act]), rew=rew, term=ends, trunc=~ends & False, next_obs=obs)
        memory.add(Batch(row, logp=np.log([.3]).astype(np.float32)), np.array([True]))
    return memory


@pytest.mark.parametrize("method", METHODS)
def test_weights_of_long_episodes_are_no_numbers_and_that_is_told(method):
    long = steps(900, 3)
    if method in ("is", "pdis", "dr"):
        with pytest.raises(ConfigError, match="larger than any number"):
            estimate(told([1., 0.]), long, method, gamma=1.)
    else:
        assert estimate(told([1., 0.]), long, method, gamma=1.).value == pytest.approx(900, rel=1e-3)


def test_states_and_actions_are_numbered_from_anywhere_and_from_0():
    assert estimate(told([.3, .7]), steps(3, 20, start=-2), "pdis", gamma=1.).value == pytest.approx(3)
    with pytest.raises(ConfigError, match="actions that are numbers from 0 on"):
        estimate(told([.3, .7]), steps(3, 20, act=-1), gamma=1.)


def test_few_episodes_of_equal_weight_are_warned_of(seen):
    world, wanted, memory = seen
    always = np.eye(3)[np.ones(7, int)]
    with pytest.warns(UserWarning, match="of equal weight, and an interval from so few may miss the truth"):
        estimate(lambda obs: always[obs], watched(world, np.full((7, 3), 1 / 3), 30, np.random.default_rng(0)),
                 "wpdis", GAMMA)


def test_importance_sampling_by_loops(seen):
    "An episode that is over keeps its weight; returns count by that of their episode, rewards by that of their time"
    world, wanted, memory = seen
    trials = episodes_in_time(memory)
    episodes = []                                         # of (weight so far, discounted reward)
    for e in range(trials.valid.shape[1]):
        weight, steps = 1., []
        for t in range(trials.valid[:, e].sum()):
            weight *= wanted[trials.obs[t, e], trials.act[t, e]] * 3
            steps.append((weight, GAMMA**t * trials.rew[t, e]))
        episodes.append(steps)
    weights = np.array([steps[-1][0] for steps in episodes])
    returns = np.zeros(len(episodes))
    decisions = np.zeros(len(episodes))
    for e, steps in enumerate(episodes):
        returns[e] = sum(rew for _, rew in steps)
        decisions[e] = sum(weight * rew for weight, rew in steps)
    by_time = 0.
    for t in range(max(map(len, episodes))):
        so_far = [steps[min(t, len(steps) - 1)][0] for steps in episodes]
        paid = sum(steps[t][0] * steps[t][1] for steps in episodes if t < len(steps))
        by_time += paid / sum(so_far)
    truth = {
        "is": np.mean(weights * returns),
        "pdis": np.mean(decisions),
        "wis": (weights * returns).sum() / weights.sum(),
        "wpdis": by_time,
    }
    for method, value in truth.items():
        assert estimate(lambda obs: wanted[obs], memory, method, GAMMA).value == pytest.approx(value)


def told_of(weights, rets):
    "Episodes of one step with these weights and rewards, under a policy that always takes action 0"
    n = len(weights)
    zero = np.zeros((n, 1), int)
    logp = -np.log(np.asarray(weights, float))[:, None]
    memory = Ring(n, 1)
    memory.extend(Batch(obs=zero, act=(logp > 1e3).astype(int), rew=np.float32(rets)[:, None], term=zero == 0,
                        trunc=zero > 0, next_obs=zero, logp=np.where(logp > 1e3, -.5, logp)))
    return memory


def first(obs):
    return np.tile([1., 0.], (len(obs), 1))


@pytest.mark.parametrize("method", ["wis", "wpdis"])
@pytest.mark.parametrize("groups", [2, 200])
@pytest.mark.filterwarnings("ignore:estimate")
def test_where_one_episode_has_all_the_weight_nothing_is_promised(method, groups):
    with np.errstate(divide="ignore"):
        memory = told_of([0, 0, 1, 0, 0, 0], [1, 2, 3, 1, 2, 3])
    found = estimate(first, memory, method, 1., groups=groups)
    assert (found.value, found.low, found.high, found.effective) == (3, -np.inf, np.inf, 1)
    for other in METHODS:
        found = estimate(first, memory, other, 1., groups=groups)
        assert not np.isnan([found.low, found.high]).any()


@pytest.mark.parametrize("method", ["wis", "wpdis"])
@pytest.mark.filterwarnings("ignore:estimate")
def test_beside_one_that_outweighs_them_the_others_still_count(method):
    memory = told_of([1., 1., 1., 1.], [1, 2, 3, 4])
    memory.rows.logp[2] = -800.
    found = estimate(first, memory, method, 1.)
    assert found.value == 3 and np.isfinite([found.low, found.high]).all() and found.low < 1


@pytest.fixture(scope="module")
def pole():
    "What an untrained policy does to a pole"
    trainer = Trainer("CartPole-v1", "ppo", seed=0)
    return trainer, rlbench.record(trainer, episodes=12, greedy=False)


@pytest.mark.parametrize("env, algo", [("Acrobot-v1", "ppo"), ("rlbench/CliffWalk-v0", "qlearning")])
@pytest.mark.parametrize("method", ["wis", "dm"])
def test_a_policy_of_another_environment_is_told(pole, env, algo, method):
    trainer, memory = pole
    other = Trainer(env, algo)
    with pytest.raises(ConfigError, match="the memory does not fit the environment: its obs have shapes"):
        estimate(other, memory, method, greedy=algo == "qlearning")
    with pytest.raises(ConfigError, match="the memory does not fit the environment: its obs have shapes"):
        estimate(trainer, memory, method, behaviour=other)


def test_a_value_of_another_environment_is_told():
    cliff = rlbench.record(Trainer("rlbench/CliffWalk-v0", "qlearning"), episodes=1, longest=30)
    with pytest.raises(ConfigError, match="the memory does not fit the environment: its obs hold 36 in row 0"):
        estimate(Trainer("FrozenLake-v1", "qlearning"), cliff, "dm", behaviour=told([.25] * 4))


def test_observations_of_another_precision(pole):
    trainer, memory = pole
    found = estimate(trainer, memory, "wis", greedy=False)
    wide = Ring(memory.capacity, memory.num_envs)
    rows = memory.gather(memory.latest())
    precise = dict(obs=rows.obs.astype(float), next_obs=rows.next_obs.astype(float))
    wide.extend(Batch({name: column[:, None] for name, column in (rows | precise).items()}))
    assert wide.rows.obs.dtype == float
    assert estimate(trainer, wide, "wis", greedy=False) == found


def coin_tossed(episodes):
    "What pushes that a coin decided on did to a pole"
    env = gym.make("CartPole-v1")
    rng = np.random.default_rng(0)
    rows = []
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            act = rng.integers(2)
            next_obs, rew, ended, cut, _ = env.step(act)
            rows.append(Batch(obs=obs, act=act, rew=rew, term=ended, trunc=cut, next_obs=next_obs, logp=np.log(.5)))
            obs = next_obs
    memory = Ring(len(rows), 1)
    memory.extend(each(lambda *column: np.array(column)[:, None], *rows))
    return memory


IMPOSSIBLE = [("rew", np.nan), ("rew", np.inf), ("obs", np.nan), ("logp", 3.), ("logp", np.nan), ("logp", -np.inf)]


@pytest.mark.parametrize("name, value", IMPOSSIBLE)
def test_a_column_that_cannot_be_is_told(pole, name, value):
    _, memory = pole
    broken = memory.twin()
    broken.places[name][5] = value
    column = rf"column {name} holds {value} in row 5, expected (a finite|the logarithm of a probability, at most 0)"
    for method in ("is", "wis", "dm"):
        with pytest.raises(ConfigError, match=column):
            estimate(told([.5, .5]), broken, method, .9)
    if name == "logp":
        assert np.isfinite(estimate(told([.5, .5]), broken, "wis", .9, behaviour=told([.4, .6])).value)


def test_logarithms_of_a_sure_thing_may_be_rounded():
    memory = told_of([1., 1., 1.], [1, 2, 3])
    memory.rows.logp[:] = 1e-6
    assert estimate(first, memory, "is", 1.).value == pytest.approx(2, abs=1e-4)


def test_values_do_not_run_away_where_actions_are_hardly_known():
    "A pole pushed by a coin, judged by one who pushes nearly like that: an episode pays some twenty"
    coin = lambda obs: np.tile([.5, .5], (len(obs), 1))
    memory = coin_tossed(150)
    paid = np.mean([(1 - .99**length) / .01 for length in memory.whole_episodes()[1]])
    found = estimate(coin, memory, "dm", .99, groups=30)
    assert found.low < found.value < found.high < found.low + .4 * paid
    assert abs(found.value - paid) < .2 * paid


def test_values_that_lead_far_away_are_warned_of(pole):
    def held_up(obs):
        right = obs[:, 2] + .4 * obs[:, 3] > 0
        return np.stack([~right, right], 1).astype(float)
    with pytest.warns(UserWarning, match="ahead.*, where .* steps can be told of"):
        estimate(held_up, coin_tossed(150), "dm", 1., groups=5)


def crowd(states=60, actions=4, end=.05):
    "Many states with few ways on; a reward of about 1 each time"
    rng = np.random.default_rng(0)
    table = []
    for _ in range(states):
        rows = []
        for _ in range(actions):
            there = rng.integers(states, size=3)
            rew = 1 + .3 * rng.normal()
            rows.append([(end, states, rew, True), *((round((1 - end) / 3, 9), int(to), rew, False) for to in there)])
        table.append(rows)
    start = np.r_[np.full(states, 1 / states), 0]
    return Tabular([*table, [[(1., states, 0., True)]] * actions], start)


@pytest.fixture(scope="module")
def thin():
    "(world, who was watched and is judged, ten memories of hardly two rows for each action of a state)"
    world = crowd()
    uniform = np.full(world.model().R.shape, 1 / 4)
    return world, uniform, [watched(world, uniform, 20, np.random.default_rng(seed)) for seed in range(10)]


@pytest.mark.filterwarnings("ignore:estimate")
@pytest.mark.parametrize("interval", INTERVALS)
def test_where_few_rows_tell_of_an_action_corrected_values_still_hold_the_truth(thin, interval, monkeypatch):
    "Values are corrected by episodes that they were not made of: in those they were made of nothing is left to correct"
    monkeypatch.setattr("rlbench.training.estimate.REDRAWN", 100)
    world, uniform, memories = thin
    truth = world.initial_state_distrib @ evaluate_policy(world.model(), uniform, .99)
    found = [estimate(lambda obs: uniform[obs], memory, "dr", .99, interval=interval) for memory in memories]
    assert np.mean([one.low <= truth <= one.high for one in found]) >= .8
    assert abs(np.mean([one.value for one in found]) - truth) < .25 * truth


def test_where_few_rows_tell_of_an_action_the_direct_method_guesses_and_that_is_told(thin, seen):
    _, uniform, memories = thin
    with pytest.warns(UserWarning, match="what the policy would do fewer than 3 rows tell, so 'dm' guesses"):
        estimate(lambda obs: uniform[obs], memories[0], "dm", .99)
    _, wanted, memory = seen
    assert not said_of(lambda obs: wanted[obs], memory, "dm", GAMMA)


def said_of(*asked):
    "Warnings of an estimate, and the words of its ConfigError"
    problems = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try: estimate(*asked)
        except ConfigError as problem: problems.append(str(problem))
    return problems + [str(one.message) for one in heard]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", [1., .5])
def test_what_nobody_did_is_told_by_every_method(method, share):
    "Action 0 always, in a single state"
    memory = told_of(np.ones(200), np.random.default_rng(0).normal(size=200))
    words = said_of(told([1 - share, share]), memory, method, 1.)
    assert any(f"{share:.0%} of the policy's probability is on actions that were never taken" in one for one in words)
    assert not any("take method='dm'" in one for one in words)


@pytest.mark.parametrize("name", CASES)
def test_where_everything_was_done_at_times_nothing_is_missed(name):
    case = CASES[name]
    behaviour, wanted = policies(case.world, case.far)
    for seed in range(10):
        trials = episodes_in_time(watched(case.world, behaviour, case.episodes, np.random.default_rng(seed)))
        assert not share_never_done(evidence_of(trials, lambda obs: wanted[obs], None, GAMMA))


def test_where_the_way_is_long_values_are_offered_that_need_no_weights(seen):
    "Every episode has another action than the policy's, and yet each action was done"
    _, _, memory = seen
    wanted = np.zeros((7, 3))
    wanted[:, 0] = 1
    long = watched(CASES["garden, four times as long"].world, np.full((7, 3), 1 / 3), 3, np.random.default_rng(4))
    with pytest.raises(ConfigError, match="none of them counts; take method='dm'"):
        estimate(lambda obs: wanted[obs], long, "wis", GAMMA)


def test_what_is_seldom_done_is_worth_as_much_among_many_rows():
    memory = told_of(np.ones(4000), np.zeros(4000))
    memory.rows.act[0] = 1
    memory.rows.rew[0] = 100
    found = estimate(told([0., 1.]), memory, "dm", 1., behaviour=told([.999, .001]))
    assert found.value == pytest.approx(100, abs=.01)


def pictures(rows=60, size=40):
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 255, (rows, 1, size, size, 3)).astype(np.uint8)
    ends = (np.arange(rows) % 10 == 9)[:, None]
    memory = Ring(rows, 1)
    memory.extend(Batch(obs=obs, act=rng.integers(0, 3, (rows, 1)), rew=rng.normal(size=(rows, 1)).astype(np.float32),
                        term=ends, trunc=ends & False, next_obs=obs, logp=np.full((rows, 1), np.log(1 / 3))))
    return memory


def test_features_are_no_more_than_rows_and_no_more_than_were_seen(seen):
    memory = pictures()
    space = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
    evidence = evidence_of(episodes_in_time(memory), told([1 / 3] * 3), space, GAMMA)
    assert evidence.done.shape == evidence.follows.shape == (60, 60)
    _, wanted, memory = seen
    wide = evidence_of(episodes_in_time(memory), lambda obs: wanted[obs], gym.spaces.Discrete(5000), GAMMA)
    assert wide.done.shape[1] == 18


def test_turned_features_have_the_values_of_the_equations_themselves():
    "More features than rows, against the equations in all features"
    memory = pictures(40, 4)
    space = gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)
    trials = episodes_in_time(memory)
    evidence = evidence_of(trials, told([.2, .3, .5]), space, GAMMA)
    rows = trials[trials.valid]
    features = RandomFeatures(space, rows.obs)
    act = np.eye(3)[rows.act]
    done = np.einsum("ba,bf->baf", act, features(rows.obs)).reshape(40, -1)
    later = np.einsum("a,bf->baf", [.2, .3, .5], features(rows.next_obs)).reshape(40, -1) * ~rows.term[:, None]
    system = done.T @ (done - GAMMA * later) + 40 * features.ridge * np.eye(done.shape[1])
    values = done @ np.linalg.solve(system, done.T @ rows.rew)
    np.testing.assert_allclose(evidence.done @ evidence.weights(np.ones(4)), values, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:estimate")
def test_what_would_take_too_long_is_refused(seen, monkeypatch):
    _, wanted, memory = seen
    def ask(method, **others):
        return estimate(lambda obs: wanted[obs], memory, method, GAMMA, **others)
    monkeypatch.setattr("rlbench.training.estimate.SOLVED", 18**3 * 150)
    with pytest.raises(ConfigError, match="'dr' is too slow, with 18 equations 1,000 times; take method='wis'.*=25"):
        ask("dr")
    with pytest.raises(ConfigError, match="or groups=125 with interval='jackknife'"):
        ask("dm", interval="bootstrap")
    for method, groups in (("dm", 125), ("dr", 25), ("wis", 200)):
        assert np.isfinite(ask(method, groups=groups).low)
    monkeypatch.setattr("rlbench.training.estimate.HELD", 1000)
    for method in ("dm", "dr"):
        with pytest.raises(ConfigError, match="rows of .* features are too many .* or method='wis'"):
            ask(method)
    assert np.isfinite(ask("wis").low)


def test_steps_of_values_are_told_apart():
    "Episodes that were cut after one step: values look a bit farther"
    memory = steps(1, 200)
    memory.rows.trunc[:] = True
    memory.rows.term[:] = False
    memory.rows.next_obs[100:] = 1
    with pytest.warns(UserWarning, match=r"look 1\.9 steps ahead, where 1\.0 steps can be told of"):
        estimate(told([1., 0.]), memory, "dm", .95)
