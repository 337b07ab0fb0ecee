"Streaming algorithms beside the same written out plainly: lists of traces, one backward pass for each row"
import copy
import math

import numpy as np
import pytest
import torch

from rlbench.algos.streaming import bounded_step
from rlbench.core.state import same
from rlbench.lab.hands.uses import uses_of
from rlbench.lab.page.workbench import Workbench
from rlbench.lab.time.accounts import explain_next, explain_update
from rlbench.lab.time.compare import Lockstep
from rlbench.lab.time.timeline import Timeline
from rlbench.training.evaluate import evaluate
from rlbench.training.learner import NotFinite
from rlbench.training.rule import MARKS
from rlbench.training.trainer import Trainer
from tests.cases import differs

SMALL = dict(hidden=(8,), seed=3)


class Plain:
    "One network with traces, as one would write it down"

    def __init__(self, net, num_envs, kappa):
        self.net = net
        self.kappa = kappa
        blank = [torch.zeros_like(weight) for weight in net.parameters()]
        self.traces = [copy.deepcopy(blank) for _ in range(num_envs)]

    def learn(self, env, fade, value, delta):
        self.net.zero_grad()
        value.backward(retain_graph=True)
        traces = self.traces[env]
        length = 0.
        for z, weight in zip(traces, self.net.parameters()):
            z.copy_(fade * z + weight.grad)
            length += z.abs().sum().item()
        step = 1. / max(1., self.kappa * max(abs(delta), 1.) * length)
        for z, weight in zip(traces, self.net.parameters()):
            weight.data += step * delta * z


def weighted(numbers, keep):
    "The mean of all that was seen, the newest counting most"
    weights = keep ** torch.arange(len(numbers) - 1., -1, -1)
    return torch.tensordot(weights / weights.sum(), torch.stack(numbers).float(), 1)


class PlainIntention:
    "The same with intentional steps, from lists of all gradients and errors"

    def __init__(self, net, num_envs, eta, keep, in_units=False):
        self.net = net
        self.eta = eta
        self.in_units = in_units
        self.keep = keep
        self.traces = [0.] * num_envs
        self.squares = []
        self.slopes = []
        self.errors = []

    def learn(self, env, fade, value, delta):
        self.net.zero_grad()
        value.backward(retain_graph=True)
        g = torch.cat([weight.grad.flatten() for weight in self.net.parameters()])
        self.traces[env] = z = fade * self.traces[env] + g
        self.squares.append(g**2)
        rho = 1 / (weighted(self.squares, .999).sqrt() + 1e-8)
        self.slopes.append((rho * g * g).sum())
        self.errors.append(torch.tensor(delta) ** 2)
        step = self.eta / (weighted(self.slopes, self.keep) * (rho * z * z).sum()).sqrt()
        usual = weighted(self.errors, .999).sqrt().item()
        cut = max(-20 * usual, min(20 * usual, delta))
        by = step * (cut / usual if self.in_units else cut) * rho * z
        torch.nn.utils.vector_to_parameters(weights_of(self.net) + by, self.net.parameters())


class Usual:
    "What is usual in observations and rewards, from lists of all that was seen"

    def __init__(self, num_envs, gamma):
        self.seen = []
        self.squares = [1.]
        self.totals = [0.] * num_envs
        self.gamma = gamma

    def notice(self, env, obs, rew, end):
        self.seen.append(np.asarray(obs, float))
        total = self.gamma * self.totals[env] + rew
        self.squares.append(total**2)
        self.totals[env] = 0. if end else total

    @property
    def unit(self):
        return np.sqrt(np.mean(self.squares))

    def moments(self):
        seen = np.array(self.seen)
        return seen.mean(0), seen.var(0)


def by_row(trainer, rounds):
    "(environment, row of plain numbers, whether an episode begins) of a run, each round learned from whole"
    first = [True] * trainer.env.num_envs
    for _ in range(rounds):
        event = trainer.until("step")
        rows = event.rows["agent"]
        made = np.flatnonzero(event.steps["agent"].valid)     # none where an environment begins anew
        yield [(env, rows[env], first[env]) for env in made]
        for env in made:
            first[env] = bool(rows.term[env] | rows.trunc[env])
        while trainer.owed:
            trainer.advance()


STREAMS = [("stream_q", "CartPole-v1"), ("stream_ac", "Pendulum-v1")]


@pytest.mark.parametrize("algo, env", STREAMS)
def test_one_transition_is_one_advance(algo, env):
    "It is taken and learned from, and nothing is owed after it"
    trainer = Trainer(env, algo, env_settings=dict(max_episode_steps=15), **SMALL)
    for count in range(1, 41):
        event = trainer.advance()
        assert (trainer.steps, trainer.updates, trainer.owed) == (count, count, False)
        assert {"step", "update", "iteration"} <= set(event.marks) and event.marks in MARKS
        assert ("episode" in event.marks) == bool(event.ended)
        assert np.array_equal(event.rows["agent"].obs, trainer.learner.last.batch.obs.numpy())
        assert event.data is trainer.learner.last.parts


@pytest.mark.parametrize("algo, env", STREAMS)
def test_taken_apart_it_learns_the_same(algo, env):
    "The step, its targets and the update as three events lead to the same place"
    whole, apart = (Trainer(env, algo, env_settings=dict(max_episode_steps=15), **SMALL) for _ in range(2))
    apart.streaming = []
    kinds = [apart.advance().kind for _ in range(120)]
    assert kinds == ["collect", "process", "learn"] * 40
    for _ in range(40): whole.advance()
    assert differs(whole.state(), apart.state()) == ""


@pytest.mark.parametrize("algo, env", STREAMS)
def test_of_several_environments_each_transition_is_one_advance(algo, env):
    "Where none of them begins anew, in which no transition is made"
    trainer = Trainer(env, algo, num_envs=3, **SMALL)
    for count in range(1, 13):
        event = trainer.advance()
        assert (trainer.steps, trainer.updates) == (3 * math.ceil(count / 3), count)
        assert bool(event.steps) == (count % 3 == 1) and event.left == -count % 3


def test_what_was_not_learned_from_is_learned_from_later():
    trainer = Trainer("CartPole-v1", "stream_q", **SMALL)
    trainer.learning = False
    assert [trainer.advance().kind for _ in range(3)] == ["collect"] * 3
    trainer.learning = True
    assert [trainer.advance().kind for _ in range(3)] == ["process", "learn", "learn"]
    assert (trainer.steps, trainer.updates) == (4, 2)          # the newest row alone, and then the next one


def test_an_event_that_is_both_is_two_for_who_asks():
    trainer = Trainer("CartPole-v1", "stream_q", **SMALL)
    event = trainer.advance()
    step, update = event.apart
    assert (step.kind, step.marks) == ("collect", ("step",))
    assert (update.kind, update.marks) == ("learn", ("update", "iteration"))
    assert step.data is event.rows["agent"] and update.data is event.data and update.apart == (update,)
    assert event.text == f"{step.text}; {update.text}"


def weights_of(net):
    return torch.cat([weight.detach().flatten() for weight in net.parameters()])


def put_norm(net, usual):
    "Give the copy of a network the moments that were counted by hand"
    mean, var = usual.moments()
    net.encode[0].mean.copy_(torch.from_numpy(mean))
    net.encode[0].var.copy_(torch.from_numpy(var))


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("rule", ["obgd", "intentional"])
def test_stream_q_is_the_plain_loop(num_envs, rule):
    how = dict(epsilon=.4, gamma=.9, td_lambda=.7, num_envs=num_envs, step_rule=rule, **SMALL)
    trainer = Trainer("CartPole-v1", "stream_q", env_settings=dict(max_episode_steps=15), **how)
    net = copy.deepcopy(trainer.learner.nets.q)
    mine = Plain(net, num_envs, 2.) if rule == "obgd" else PlainIntention(net, num_envs, .25, keep=.9 * .7)
    usual = Usual(num_envs, .9)
    over = [False] * num_envs
    for rows in by_row(trainer, 60):
        for env, row, first in rows:
            unit = usual.unit
            if usual.seen: put_norm(net, usual)
            q = net(torch.from_numpy(row.obs)[None])[0]
            follows = 0. if row.term else .9 * net(torch.from_numpy(row.next_obs)[None]).max().item()
            delta = row.rew / unit + follows - q[row.act].item()
            mine.learn(env, 0. if first or over[env] else .9 * .7, q[row.act], delta)
            over[env] = bool(q[row.act] < q.max())
            usual.notice(env, row.next_obs, row.rew, row.term or row.trunc)
    torch.testing.assert_close(weights_of(trainer.learner.nets.q), weights_of(net), rtol=1e-3, atol=2e-5)
    assert trainer.learner.nets.scale.unit.item() == pytest.approx(usual.unit, rel=1e-5)


def logp_and_entropy(out, act):
    "Of a Gaussian whose mean and logarithmic spread a network gave"
    mean, log_std = out.chunk(2)
    z = (act - mean) / log_std.exp()
    logp = (-.5 * z**2 - log_std - .5 * np.log(2 * np.pi)).sum()
    return logp, (log_std + .5 * np.log(2 * np.pi * np.e)).sum()


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("rule", ["obgd", "intentional"])
def test_stream_ac_is_the_plain_loop(num_envs, rule):
    how = dict(ent_coef=.1, gamma=.9, td_lambda=.7, num_envs=num_envs, step_rule=rule, **SMALL)
    trainer = Trainer("Pendulum-v1", "stream_ac", env_settings=dict(max_episode_steps=15), **how)
    policy = copy.deepcopy(trainer.learner.nets.policy.net)
    value = copy.deepcopy(trainer.learner.nets.value)
    actor = Plain(policy, num_envs, kappa=3.)
    critic = Plain(value, num_envs, kappa=2.)
    if rule == "intentional":
        actor = PlainIntention(policy, num_envs, .01, keep=.9 * .7, in_units=True)
        critic = PlainIntention(value, num_envs, .25, keep=.9 * .7)
    usual = Usual(num_envs, .9)
    for rows in by_row(trainer, 60):
        for env, row, first in rows:
            unit = usual.unit
            if usual.seen:
                put_norm(policy, usual)
                put_norm(value, usual)
            obs = torch.from_numpy(row.obs)[None]
            val = value(obs).squeeze()
            follows = .9 * value(torch.from_numpy(row.next_obs)[None]).item()
            delta = row.rew / unit + follows - val.item()
            logp, ent = logp_and_entropy(policy(obs)[0], torch.from_numpy(row.act))
            fade = 0. if first else .9 * .7
            actor.learn(env, fade, logp + .1 * np.sign(delta) * ent, delta)
            critic.learn(env, fade, val, delta)
            usual.notice(env, row.next_obs, row.rew, row.term or row.trunc)
    nets = trainer.learner.nets
    torch.testing.assert_close(weights_of(nets.policy.net), weights_of(policy), rtol=1e-3, atol=2e-5)
    torch.testing.assert_close(weights_of(nets.value), weights_of(value), rtol=1e-3, atol=2e-5)


def test_a_bounded_step_does_not_overshoot_where_slopes_are_at_most_one():
    rng = np.random.default_rng(0)
    for _ in range(200):
        slope = rng.uniform(-1, 1, rng.integers(1, 30))
        error = rng.normal() * 10 ** rng.uniform(-2, 2)
        step = bounded_step(torch.tensor(error), torch.from_numpy(slope), 1., 1.).item()
        moved = step * error * (slope @ slope)                # of a value that is linear in its weights
        assert abs(moved) <= abs(error) and moved * error >= 0


@pytest.mark.parametrize("algo, env, more", [
    ("stream_q", "CartPole-v1", {}),
    ("stream_q", "CartPole-v1", dict(step_rule="intentional")),
    ("stream_ac", "Pendulum-v1", {}),
    ("stream_ac", "Pendulum-v1", dict(step_rule="intentional")),
])
def test_a_row_that_is_learned_from_again_counts_once(algo, env, more):
    trainer = Trainer(env, algo, **more, **SMALL).run(steps=40)
    nets = trainer.learner.nets

    def remembered():
        kept = {name: part.clone() for name, part in nets.state_dict().items()}
        return {name: part for name, part in kept.items() if "layers" not in name and "norms" not in name}

    before = remembered()
    weights = weights_of(nets)
    trainer.learner.owe(3)
    while trainer.learner.todo:
        trainer.learner.learn()
    assert differs(remembered(), before) == ""
    assert not same(weights_of(nets), weights)


def test_traces_of_environments_are_kept_apart():
    trainer = Trainer("CartPole-v1", "stream_q", num_envs=2, epsilon=0., **SMALL)
    trainer.until("update", 3)                                # of two rows in a round: the first one's environment
    z = trainer.learner.nets.traces.z
    assert trainer.learner.nets.traces.reached.tolist() == [1, 0]
    assert not torch.allclose(z[0], z[1])


def test_nothing_but_the_newest_row_is_learned_from():
    one, two = (Trainer("CartPole-v1", "stream_q", buffer_size=n, **SMALL).run(steps=60) for n in (1, 1000))
    assert differs(one.state()["learners"]["agent"]["actor"], two.state()["learners"]["agent"]["actor"]) == ""
    assert len(one.learner.memory) == 2


@pytest.mark.parametrize("algo", ["stream_q", "stream_ac"])
def test_what_a_mask_forbids_is_never_done(algo):
    "and a run learns which of the others is best"
    trainer = Trainer("rlbench/Forbidden-v0", algo, seed=1).run(steps=3000)
    assert evaluate(trainer, episodes=5).mean > 23              # 27.09 is the best there is, 20 are had by chance


@pytest.mark.parametrize("algo", ["stream_q", "stream_ac"])
def test_nothing_need_be_forgotten(algo):
    "with gamma=1 and td_lambda=1 intentional steps measure against all that was"
    trainer = Trainer("CartPole-v1", algo, seed=0, gamma=1., td_lambda=1., step_rule="intentional").run(steps=200)
    assert all(weight.isfinite().all() for weight in trainer.learner.nets.parameters())


# ---- in the lab, where others have an event of each kind

def bench(algo="stream_q", env="CartPole-v1", **settings):
    return Workbench(env, algo, driver="sync", **SMALL, **settings)


def test_the_first_number_that_is_none_is_told_of_who_learns_as_it_acts():
    wb = bench().step("step", 10)

    def spoil(trainer): trainer.learner.nets.traces.z[0] = np.nan

    wb.call(spoil)
    with pytest.raises(NotFinite, match="First: .*traces.z was not finite before"):
        wb.step("step", 5)


@pytest.mark.parametrize("algo, env", STREAMS)
def test_every_event_is_gone_back_to(algo, env):
    wb = bench(algo, env)
    places = [wb.trainer.snapshot()]
    for _ in range(30):
        wb.step("event")
        places.append(wb.trainer.snapshot())
    for at in (29, 3, 17, 0, 30):
        wb.rewind(at)
        assert same(wb.trainer.snapshot(), places[at]) and wb.player.timeline.at == at
    assert wb.player.last_text == "one step; one update, the last of the iteration"


@pytest.mark.parametrize("text, at", [("steps >= 7", 7), ("updates >= 9", 9), ("trace > 0", 1), ("rew > 0", 1)])
def test_a_breakpoint_asks_the_step_and_the_update(text, at):
    wb = bench()
    wb.break_when(text)
    wb.step("step", 50)
    assert wb.player.hit.text == text and wb.trainer.steps == at


def test_a_breakpoint_at_the_end_of_an_episode():
    wb = bench()
    wb.break_when("episode_length > 5")
    wb.step("step", 500)
    assert "episode_length = " in wb.player.hit.words and wb.trainer.env.episodes["agent"].total > 0


@pytest.mark.parametrize("algo, env", STREAMS)
def test_its_updates_are_explained_before_and_after(algo, env):
    timeline = Timeline(Trainer(env, algo, **SMALL))
    trainer = timeline.trainer
    trainer.until("step", 20)
    coming = explain_next(trainer)
    assert coming.number == 21 and trainer.updates == 20
    trainer.until("step")
    last = explain_update(timeline)
    assert last.number == 21 and same(last.last.parts, trainer.learner.last.parts)
    assert same(coming.last.parts, last.last.parts) and coming.rows.keys() == last.rows.keys()
    assert explain_update(timeline, 5).number == 5


def test_each_row_is_used_once():
    trainer = Trainer("CartPole-v1", "stream_q", **SMALL)
    uses = uses_of(trainer, "agent")
    trainer.until("step", 20)
    assert uses.of(trainer, trainer.learner.memory.latest()).tolist() == [1] * 20


def test_a_fork_parts_with_the_first_step_that_differs():
    one = Trainer("CartPole-v1", "stream_q", epsilon=0., **SMALL)
    one.until("step", 5)
    pair = Lockstep(one, one.fork(epsilon=1.)).step("step", 30)
    here, there = pair.parted
    assert here.kind == there.kind == "learn" and not same(here.rows, there.rows)


def test_every_breakpoint_of_an_event_counts():
    wb = bench()
    for text in ("rew > 0", "delta > -1e9"): wb.break_when(text)
    wb.step("step")
    hit = wb.player.hit
    assert [one.text for one in (hit, *hit.also)] == ["rew > 0", "delta > -1e9"]
    assert list(wb.player.stops.hits.values()) == [1, 1]


def test_an_expression_may_ask_for_the_step_and_the_update_at_once():
    wb = bench()
    wb.break_when("episode_return > 0 and delta < 1e9")
    wb.step("episode")
    assert "episode_return" in wb.player.hit.words and "delta" in wb.player.hit.words


def test_a_function_is_asked_of_the_whole_event():
    wb = bench()
    wb.break_when(lambda trainer, event: event.kind == "learn" and bool(event.steps))
    wb.step("step")
    assert wb.player.hit.words == "it says so"


@pytest.mark.filterwarnings("ignore:.*told nothing of")
def test_a_breakpoint_that_others_can_never_hit_is_refused():
    wb = Workbench("CartPole-v1", "ppo", driver="sync", n_steps=16, batch_size=16, n_epochs=1).step("update")
    with pytest.raises(ValueError, match="no event tells of loss and of episode_return at once"):
        wb.break_when("loss > 0 and episode_return > 0")


def test_who_has_no_loss_is_told_so():
    wb = bench().step("step", 3)
    with pytest.warns(UserWarning, match="told nothing of loss"):
        wb.break_when("loss > 0")
