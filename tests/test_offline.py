"Learning from what is given: data sets that are the same every time, and methods that do better than they"
import gymnasium as gym
import numpy as np
import pytest
import torch

from benchmarks.datasets import RECIPES, Recipe, check_same, dataset, episodes_told, played
from rlbench import Trainer, estimate, load, record, suggest
from rlbench.algos.algorithm import algorithms, get
from rlbench.algos.awr import advantage_weights, judged_returns, rows_in_time
from rlbench.algos.cql import box_gap, value_gap
from rlbench.algos.iql import expectile_loss
from rlbench.buffers.datasets import digest, load_ring, read_lines, subset, write_lines
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch, columns, each
from rlbench.core.spaces import SpaceProblem, Spec
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.policies.encoders import Normaliser
from rlbench.training.learner import NotFinite
from tests.cases import demonstrations


# ---- data sets

def test_a_data_set_is_made_once_and_is_the_same_every_time(tmp_path):
    path = dataset("cartpole-expert", tmp_path)
    first = path.stat().st_mtime_ns
    assert dataset("cartpole-expert", tmp_path).stat().st_mtime_ns == first
    ring = load_ring(path)
    assert digest(ring) == digest(played(RECIPES["cartpole-expert"]))
    assert check_same("cartpole-expert", ring).startswith("the same")
    with pytest.raises(ValueError, match="unknown data set 'cartpole'; did you mean 'cartpole-"):
        dataset("cartpole", tmp_path)


def test_other_rows_are_told_from_last_bits():
    ring = played(RECIPES["cartpole-random"])
    ring.places["obs"][0] += 1e-7
    assert check_same("cartpole-random", ring) == "the same but for the last bits"
    ring.places["rew"] *= 2
    with pytest.raises(ValueError, match="expected 459 that return 21.3"):
        check_same("cartpole-random", ring)


def test_players_say_how_likely_their_actions_were():
    noisy = Recipe("CartPole-v1", RECIPES["cartpole-mixed"].players, 400, "", (0, 0))
    ring = played(noisy)
    rows = ring.gather(ring.latest())
    for i, player in enumerate(noisy.players):
        own = rows[ring.env_of(ring.latest()) == i]
        followed = own.act == player.rule(own.obs)
        assert np.isclose(followed.mean(), 1 - player.noise / 2, atol=.08)
        assert np.allclose(np.exp(own.logp), np.where(followed, 1 - player.noise / 2, player.noise / 2))
    assert episodes_told(ring)[0] == int(ring.ends(ring.latest()).sum()) or len(noisy.players) > 0


# ---- AWR

def by_loop(rew, val, next_val, term, cut, gamma, lam):
    "λ-returns as sums of deltas, row by row"
    ret = np.zeros(len(rew))
    for t in range(len(rew)):
        share = 1.
        for k in range(t, len(rew)):
            ret[t] += share * (rew[k] + gamma * next_val[k] * (not term[k]) - val[k])
            share *= gamma * lam
            if term[k] or cut[k]: break
        ret[t] += val[t]
    return ret


def test_returns_stop_at_seams_of_a_memory(seed=0):
    rng = np.random.default_rng(seed)
    T, N = 9, 3
    obs = rng.normal(size=(T + 1, N, 2)).astype(np.float32)
    ring = Ring(6, N)                       # it has wrapped
    rows = Batch(obs=obs[:-1], act=np.zeros((T, N), int), rew=rng.normal(size=(T, N)).astype(np.float32),
                 term=rng.random((T, N)) < .15, trunc=rng.random((T, N)) < .15, next_obs=obs[1:])
    ring.extend(rows)
    drawn = rows_in_time(ring, ring.latest())
    flat = Batch(ring.gather(drawn.index), **drawn)
    val = flat.obs.sum(-1).astype(np.float64)
    next_val = flat.next_obs.sum(-1).astype(np.float64)
    tensors = Batch({name: torch.from_numpy(flat[name]) for name in ("term", "trunc")}, rew=torch.from_numpy(flat.rew))
    ret, adv = judged_returns(Batch(tensors, rew=tensors.rew.double()), torch.from_numpy(val),
                              torch.from_numpy(next_val), .9, .8)
    for env in range(N):                    # each environment alone, in its own order
        mine = ring.env_of(drawn.index) == env
        own = rows[-6:, env]
        alone = by_loop(own.rew, own.obs.sum(-1), own.next_obs.sum(-1), own.term,
                        own.trunc | (np.arange(6) == 5), .9, .8)
        np.testing.assert_allclose(ret[mine], alone, atol=1e-5)
    assert torch.equal(adv, ret - torch.from_numpy(val))


def test_without_advantages_it_is_cloning():
    given = played(Recipe("CartPole-v1", RECIPES["cartpole-mixed"].players, 50, "", (0, 0)))
    made = {}
    for algo, extra in (("bc", {}), ("awr", dict(beta=0., vf_coef=0.))):
        made[algo] = Trainer("CartPole-v1", algo, memory=given, n_epochs=2, hidden=(8,), seed=0, **extra)
        made[algo].until("iteration", 2)
    weights = [made[algo].learner.nets.policy.state_dict() for algo in made]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weight, weights[1][name], rtol=0, atol=1e-6)


def test_weights_have_a_highest_and_no_unit():
    adv = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    weight = advantage_weights(adv, 3., None)
    assert torch.allclose(weight, torch.exp(3 * adv / (adv**2).mean().sqrt()), rtol=1e-4)
    assert advantage_weights(adv, 3., 5.).max() == 5


def test_who_needs_rewards_says_so():
    given = played(RECIPES["cartpole-expert"])
    given.places.pop("rew")
    Trainer("CartPole-v1", "bc", memory=given)
    with pytest.raises(ConfigError, match="it has no column rew; it has obs"):
        Trainer("CartPole-v1", "awr", memory=given)


@pytest.mark.parametrize("column, kind, shape", [
    ("term", np.uint8, (60,)), ("trunc", np.int64, (60,)), ("rew", bool, (60,)),
    ("rew", np.float32, (60, 1)), ("term", bool, (60, 1)), ("logp", np.float32, (60, 1))])
def test_rewards_and_flags_are_one_of_their_kind_in_each_row(column, kind, shape):
    given = demonstrations("CartPole-v1", 1).twin()
    given.places[column] = np.zeros(shape, kind)
    told = f"column {column}: ndarray {np.dtype(kind)} .*, expected {'bool' if column[0] == 't' else 'numbers'}"
    for name in ("bc", "awr", "iql", "discrete_cql", "gail", "dqn"):
        with pytest.raises(ConfigError, match=f"memory: {told}"):
            Trainer("CartPole-v1", name, memory=given, num_envs=given.num_envs)
    with pytest.raises(ConfigError, match=f"suggest: memory: {told}"):
        suggest("CartPole-v1", seconds=.1, memory=given)
    with pytest.raises(ConfigError, match=f"estimate: memory: {told}"):
        estimate(lambda obs: np.full((len(obs), 2), .5), given, gamma=.9)
    with pytest.raises(ConfigError, match=told):
        subset(given, given.latest())


# ---- IQL, TD3+BC, CQL

@pytest.mark.parametrize("share", [.5, .8, .99])
def test_expectiles_lie_where_the_weighted_pulls_are_even(share):
    rng = np.random.default_rng(0)
    goals = torch.from_numpy(rng.normal(size=500))
    value = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([value], line_search_fn="strong_wolfe", max_iter=100)

    def closure():
        optimiser.zero_grad()
        loss = expectile_loss(goals - value, share).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    above = (goals - value).clamp(min=0).sum() * share
    below = (value - goals).clamp(min=0).sum() * (1 - share)
    torch.testing.assert_close(above, below, rtol=1e-3, atol=1e-3)


def test_gap_of_choices_is_cross_entropy():
    "The mean gap is torch's own cross-entropy of the softmax of the values"
    q = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    act = torch.arange(50) % 4
    torch.testing.assert_close(value_gap(q, act).mean(), torch.nn.functional.cross_entropy(q, act))


def swung(rows=60):
    "A short memory of Pendulum"
    return played(Recipe("Pendulum-v1", RECIPES["pendulum-mixed"].players, rows, "", (0, 0)))


def test_gap_of_numbers_as_a_slow_sum():
    trainer = Trainer("Pendulum-v1", "cql", memory=swung(), hidden=(8,), tries=3, batch_size=8, n_epochs=1)
    trainer.until("update")
    batch = trainer.learner.last.batch
    nets = trainer.learner.nets
    gap = box_gap(nets, batch)
    for i in range(3):
        obs = batch.obs[i:i + 1]
        total = torch.zeros(2)
        for k in range(3):
            anywhere = 4 * batch.tries.uniform[i:i + 1, k] - 2
            likely, logp = nets.policy(obs).act(batch.tries.normal[i:i + 1, k])
            total += nets.critic(obs, anywhere)[0].exp() * 4 / 6
            total += nets.critic(obs, likely)[0].exp() / logp.exp() / 6
        torch.testing.assert_close(gap[i], total.log() - nets.critic(obs, batch.act[i:i + 1])[0], rtol=1e-4, atol=1e-4)


def test_the_policy_of_td3_bc_waits_for_the_critics():
    trainer = Trainer("Pendulum-v1", "td3_bc", memory=swung(), hidden=(8,), batch_size=50, n_epochs=1, policy_delay=3)
    moved = []
    while not trainer.settled:
        before = [weight.clone() for weight in trainer.learner.nets.policy.parameters()]
        if trainer.advance().kind != "learn": continue
        moved.append(not all(map(torch.equal, before, trainer.learner.nets.policy.parameters())))
    assert moved == [turn % 3 == 2 for turn in range(12)]


@pytest.mark.parametrize("name", ["awr", "iql", "td3_bc", "cql", "discrete_cql"])
def test_so_many_passes_and_no_step(name):
    env = "Pendulum-v1" if name in ("td3_bc", "cql") else "CartPole-v1"
    given = played(Recipe(env, RECIPES[env.split("-")[0].lower() + "-mixed"].players, 20, "", (0, 0)))
    trainer = Trainer(env, name, memory=given, hidden=(8,), batch_size=64, n_epochs=2)
    trainer.run(updates=1000)
    passes = 2 * -(-len(given) // 64)
    assert (trainer.updates, trainer.steps, trainer.settled) == (passes, 0, True)
    assert get(name).offline


# ---- GAIL

def test_an_imitator_keeps_what_it_is_shown_apart(tmp_path):
    shown = played(RECIPES["cartpole-expert"])
    one = Trainer("CartPole-v1", "gail", memory=shown, hidden=(8,), n_steps=16, seed=0)
    one.until("update", 3)
    assert same(one.learner.own["shown"].rows, shown.rows)
    assert len(one.learner.memory) > 100 and set(one.learner.memory.gather(one.learner.memory.latest()).rew) == {1.}
    assert one.learner.data.rew.min() >= 0 and len(set(one.learner.data.rew.tolist())) > 1
    one.save(tmp_path / "one.rlb")
    twins = [load(tmp_path / "one.rlb"), one.fork()]
    for trainer in (one, *twins):
        trainer.until("update", 5)
    assert same(one.state()["learners"], twins[0].state()["learners"])
    assert same(one.state()["learners"], twins[1].state()["learners"])


def test_an_imitator_needs_observations_and_actions_of_the_task():
    with pytest.raises(ConfigError, match="gail learns from a memory that is given"):
        Trainer("CartPole-v1", "gail")
    with pytest.raises(ConfigError, match="does not fit the environment"):
        Trainer("Acrobot-v1", "gail", memory=played(RECIPES["cartpole-expert"]))


@pytest.mark.parametrize("name", [name for name, cls in algorithms().items() if cls.offline])
def test_who_takes_no_step_of_his_own_has_no_settings_for_it(name):
    steps = {"exploration", "epsilon", "epsilon_spread", "temperature", "shake_interval", "noisy", "exploration_noise",
             "train_freq", "gradient_steps", "learning_starts", "buffer_size", "prioritized_replay_alpha"}
    fields = algorithms()[name].__dataclass_fields__
    assert steps & set(fields) == set()
    assert [field.name for field in fields.values() if "Schedule" in str(field.type)] == []   # it would stand still


@pytest.mark.parametrize("num_envs", [1, 2, 3])
@pytest.mark.parametrize("name", ["bc", "gail"])
def test_data_of_two_environments_teach_who_acts_in_any_number(name, num_envs):
    "When all is learned, or for an imitator at once, it takes steps of its own; they count once"
    shown = Trainer("CartPole-v1", "dqn", num_envs=2, hidden=(4,)).run(steps=60).learner.memory
    how = dict(n_epochs=1, batch_size=30, hidden=(4,)) | (dict(n_steps=8) if name == "gail" else {})
    trainer = Trainer("CartPole-v1", name, memory=shown, num_envs=num_envs, **how)
    trainer.until("step", 20)
    assert trainer.updates and trainer.steps == trainer.learner.steps == trainer.env.steps > 0


# ---- what is given and does not fit as it is

def widened(ring, *names):
    "The same rows; these columns, parts included, with 64 bits for every number"
    rows = subset(ring, ring.latest()).rows
    wide = dict(f=np.float64, i=np.int64, u=np.int64, b=bool)
    for name in names:
        rows[name] = each(lambda column: column.astype(wide[column.dtype.kind]), Batch(it=rows[name]))["it"]
    made = Ring(len(rows), 1)
    made.extend(rows)
    return made


def weights_of(env, name, given):
    "All weights after three updates, in one row"
    how = dict(n_steps=8) if name == "gail" else {}
    trainer = Trainer(env, name, memory=given, hidden=(8,), seed=0, **how).run(updates=3)
    return torch.cat([weight.detach().flatten() for weight in trainer.learner.nets.parameters()])


EITHER = dict.fromkeys(("bc", "awr", "iql", "gail"), ("CartPole-v1", "Pendulum-v1"))
FITTING = EITHER | dict(discrete_cql=("CartPole-v1",), td3_bc=("Pendulum-v1",), cql=("Pendulum-v1",))


@pytest.mark.parametrize("name, env", [(name, env) for name, envs in FITTING.items() for env in envs])
def test_numbers_of_more_bits_teach_the_same(name, env):
    given = played(Recipe(env, RECIPES[env.split("-")[0].lower() + "-mixed"].players, 60, "", (0, 0)))
    wide = widened(given, "obs", "act", "next_obs")
    before = digest(wide)
    expected = weights_of(env, name, widened(given))
    assert torch.equal(weights_of(env, name, wide), expected)
    assert torch.equal(weights_of(env, name, widened(given, "act")), expected)
    assert digest(wide) == before                          # what is given stays as it is


class Parts(gym.Env):
    "Observations and actions of several parts"
    observation_space = gym.spaces.Dict(
        view=gym.spaces.Box(0, 255, (3,), np.uint8),
        pair=gym.spaces.Tuple([gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(3)]))
    action_space = gym.spaces.Tuple([gym.spaces.Discrete(2, start=1), gym.spaces.Box(-1, 1, (1,))])

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.seen(), {}

    def step(self, act):
        return self.seen(), 1., bool(self.np_random.random() < .2), False, {}

    def seen(self):
        x = self.np_random.random(3)
        return dict(view=(255 * x).astype(np.uint8), pair=(x[:2].astype(np.float32), np.int64(3 * x[2])))


@pytest.fixture(scope="module")
def parts():
    "A task of several parts, and what somebody did there"
    env = "tests/OfflineParts-v0"
    gym.register(env, Parts)
    yield env, record(Trainer(env, "ppo", hidden=(8,)), episodes=12)
    del gym.registry[env]


@pytest.mark.parametrize("name", ["bc", "awr", "iql", "gail"])
def test_parts_of_more_bits_teach_the_same(parts, name, tmp_path):
    env, given = parts
    wide = widened(given, "obs", "act", "next_obs")
    assert {str(column.dtype) for _, column in columns(wide.places.obs)} == {"float64", "int64"}
    write_lines(tmp_path / "wide.jsonl", wide)
    expected = weights_of(env, name, given)
    assert torch.equal(weights_of(env, name, wide), expected)
    assert torch.equal(weights_of(env, name, read_lines(tmp_path / "wide.jsonl")), expected)


@pytest.mark.parametrize("name", ["bc", "awr", "iql", "gail"])
def test_parts_in_another_order_teach_the_same(parts, name):
    env, given = parts
    turned = given.twin()
    for column in ("obs", "act", "next_obs"):
        turned.places[column] = Batch(reversed(given.places[column].items()))
    assert list(turned.rows.obs) == list(given.rows.obs)[::-1]
    assert torch.equal(weights_of(env, name, turned), weights_of(env, name, given))


def test_a_number_that_a_type_has_not_is_refused(parts):
    env, given = parts
    for part, value in dict(view=256, pair=1e300).items():
        wide = widened(given, "obs", "act", "next_obs")
        column = wide.places.obs[part] if part == "view" else wide.places.obs[part]["0"]
        column[5, 1] = value
        with pytest.raises(ConfigError, match=rf"its obs\.{part}\S* hold .* in row 5, expected those of"):
            Trainer(env, "bc", memory=wide)


def test_a_next_observation_has_the_shape_of_an_observation():
    given = widened(swung())
    given.places["next_obs"] = given.places["next_obs"][:, :2]
    with pytest.raises(ConfigError, match=r"its next_obs have shapes \(2,\), those of"):
        Trainer("Pendulum-v1", "iql", memory=given)


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_who_goes_on_writing_writes_into_a_copy_of_other_types(name):
    shown = Trainer("CartPole-v1", "dqn", num_envs=1, hidden=(4,)).run(steps=60).learner.memory
    wide = widened(shown, "obs", "next_obs")
    before = digest(wide)
    how = dict(num_envs=1, hidden=(8,), learning_starts=10, batch_size=8)
    trainer = Trainer("CartPole-v1", name, memory=wide, **how).run(steps=5)
    assert trainer.updates and trainer.learner.memory.places.obs.dtype == np.float32
    assert digest(wide) == before


@pytest.fixture(scope="module")
def crossing():
    "What somebody did where not all is allowed, and the same rows with what was not"
    ring = record(Trainer("rlbench/Forbidden-v0", "ppo", num_envs=2), episodes=5)
    wrong = ring.twin()
    wrong.places.act[7] = wrong.places.obs["action_mask"][7].argmin()
    return ring, wrong


@pytest.mark.parametrize("name", ["bc", "awr", "iql", "discrete_cql", "gail", "dqn"])
def test_what_a_mask_forbids_is_not_learned_from(crossing, name):
    right, wrong = crossing
    how = dict(num_envs=1, hidden=(8,))
    Trainer("rlbench/Forbidden-v0", name, memory=right, **how)
    with pytest.raises(ConfigError, match="the action in row 7 is one that the row's own action_mask forbids"):
        Trainer("rlbench/Forbidden-v0", name, memory=wrong, **how)


@pytest.mark.parametrize("name", ["bc", "awr", "iql"])
def test_a_loss_that_is_infinite_stops_a_run(crossing, name):
    "Its gradient is not: what is forbidden is as unlikely whatever the weights are"
    right, wrong = crossing
    trainer = Trainer("rlbench/Forbidden-v0", name, memory=right, hidden=(8,))
    trainer.learner.memory.places.act[:] = wrong.places.obs["action_mask"].argmin(-1)
    with pytest.raises(NotFinite, match="the loss of (all|policy) of agent is inf; of the parts of the loss nll"):
        trainer.run(updates=20)


@pytest.mark.parametrize("name, beta", [("awr", 100.), ("iql", 30.)])
def test_weights_without_a_limit_are_named_where_they_run_away(name, beta):
    given = played(RECIPES["cartpole-mixed"])
    trainer = Trainer("CartPole-v1", name, memory=given, hidden=(8,), beta=beta, max_weight=None, seed=0)
    with pytest.raises(NotFinite, match="A row counts .* times: set max_weight, or a smaller beta"):
        trainer.run(updates=200)


@pytest.mark.parametrize("actions", [gym.spaces.Discrete(3, start=1), gym.spaces.MultiDiscrete([2, 3]),
                                     gym.spaces.MultiBinary(3)])
@pytest.mark.parametrize("name", ["discrete_cql", "td3_bc", "cql"])
def test_who_is_named_instead_learns_from_a_memory_too(name, actions):
    spec = Spec(gym.spaces.Box(-1, 1, (2,)), actions, 1)
    with pytest.raises(SpaceProblem, match="try iql or bc$"):
        get(name)().nets(spec, None)
    for other in ("iql", "bc"): get(other)().nets(spec, None)


@pytest.mark.parametrize("name", ["bc", "iql", "cql"])
def test_a_schedule_where_no_steps_are_taken(name):
    with pytest.raises(ConfigError, match="lr = .*expected a number .*and no schedule: those go by environment steps"):
        Trainer("CartPole-v1", name, memory=Ring(4, 1), lr="linear(0.001, 0, 1000)")


def test_who_has_nobody_to_imitate_says_so():
    trainer = Trainer("CartPole-v1", "gail", memory=Ring(4, 1), n_steps=8, hidden=(4,))
    with pytest.raises(ValueError, match="gail: the memory that is given is empty, there is nobody to imitate"):
        trainer.run(updates=1)


@pytest.mark.parametrize("body", ["mlp", "layer_norm"])
def test_a_judge_sees_what_the_policy_sees(body):
    given = played(RECIPES["cartpole-expert"])
    how = dict(n_steps=16, hidden=(8,), body=body, seed=0)
    trainer = Trainer("CartPole-v1", "gail", memory=given, normalize_obs=True, **how).run(updates=100)
    nets = trainer.learner.nets
    usual = nets.usual[0]
    assert [one for one in nets.judge.modules() if isinstance(one, Normaliser)] == [usual]
    rows = trainer.learner.last.batch
    real = trainer.learner.algo.real(nets, rows)
    usual[0].update(1000 + rows.obs)                       # what is usual has become something else
    assert not torch.allclose(trainer.learner.algo.real(nets, rows), real)
