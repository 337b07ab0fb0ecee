"Learning from what is given: data sets that are the same every time, and methods that do better than they"
import numpy as np
import pytest
import torch

from benchmarks.datasets import RECIPES, Recipe, check_same, dataset, episodes_told, played
from rlbench import Trainer, load
from rlbench.algos.algorithm import algorithms, get
from rlbench.algos.awr import advantage_weights, judged_returns, rows_in_time
from rlbench.algos.cql import box_gap, value_gap
from rlbench.algos.iql import expectile_loss
from rlbench.buffers.datasets import digest, load_ring
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.core.state import same
from rlbench.core.words import ConfigError


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
