"An eighth set for benchmarks/doctor.py: slips in methods of many kinds, and algorithms of one's own"
import copy
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import nn
from torch.nn.functional import mse_loss

from benchmarks.doctor_cases import DQN_FAST, POLE, SWING, Case, case
from rlbench import Trainer
from rlbench.algos.algorithm import Algorithm
from rlbench.algos.awr import AWR
from rlbench.algos.bc import BC
from rlbench.algos.c51 import C51
from rlbench.algos.cql import DiscreteCQL
from rlbench.algos.dqn import DQN
from rlbench.algos.dyna import Dyna
from rlbench.algos.gail import GAIL
from rlbench.algos.iql import IQL
from rlbench.algos.planning import PolicyIteration, ValueIteration
from rlbench.algos.ppo import PPO
from rlbench.algos.qlearning import QLearning
from rlbench.algos.r2d2 import R2D2
from rlbench.algos.recurrent_ppo import RecurrentPPO
from rlbench.algos.sac import SAC
from rlbench.algos.td import TD, Sarsa
from rlbench.algos.td3 import TD3
from rlbench.algos.trpo import TRPO
from rlbench.buffers.returns import gae
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.core.schedules import Linear
from rlbench.core.settings import hp
from rlbench.policies.exploration import Exploring
from rlbench.policies.networks import MLP, policy_net
from rlbench.training.record import record

BLIND = "rlbench/StatelessCartPole-v0"
CLIFF = "rlbench/CliffWalk-v0"
LAKE = "FrozenLake-v1"
MAZE = "rlbench/DynaMaze-v0"
MOON = "LunarLander-v3"
SMALL = dict(hidden=(64, 64), batch_size=64)
BY_PRIORITY = DQN_FAST | dict(prioritized_replay_alpha=.6)


class OneSided(PPO):
    "Ratios are cut above, and not below"

    def losses(self, nets, batch):
        pi = nets.policy(batch.obs)
        ratio = (pi.logp(batch.act) - batch.logp).exp()
        adv = self.scaled(batch.adv, nets.scale.worth)
        surr = torch.minimum(ratio * adv, ratio.clamp(max=1 + self.clip_range) * adv)
        v_loss = (nets.scale.worth * (self.values(nets, batch.obs) - batch.ret))**2
        ent = pi.entropy()
        loss = self.vf_coef * v_loss - surr - self.ent_coef * ent
        yield "all", loss.mean(), dict(ratio=ratio, adv=adv, surr=surr, v_loss=v_loss, ent=ent)


class Leaps(TRPO):
    "Takes a step that is five times as long as it was to be"

    def after(self, nets, own, taken):
        TRPO.after(replace(self, target_kl=25 * self.target_kl), nets, own, taken)


class BadNewsOnly(DQN):
    "What turned out better than expected is not urgent"

    def urgency(self, taken):
        index, error = super().urgency(taken)
        return index, error.clamp(max=0)


class Unweighted(DQN):
    "Draws by priorities, and counts all rows alike"

    def draw(self, memory, own, fresh, rng):
        drawn = super().draw(memory, own, fresh, rng)
        drawn.pop("weight")
        return drawn


class PaidLate(C51):
    "The reward is discounted, too"

    def wanted(self, nets, batch):
        return super().wanted(nets, Batch(batch, ret=self.gamma * batch.ret))


class CarriedOut(RecurrentPPO):
    "Stores what is carried out of a step for what is carried into it"

    def act(self, nets, obs, noise, carry):
        act, beside, after = super().act(nets, obs, noise, carry)
        return act, beside | dict(carry=after), after


class Doubled(R2D2):
    "Stores twice what it carries"

    def act(self, nets, obs, noise, carry):
        act, beside, after = super().act(nets, obs, noise, carry)
        return act, dict(carry=2 * beside["carry"] + .1), after


class Restless(SAC):
    "Aims at more entropy than there is"

    def wanted(self, nets, obs):
        return super().wanted(nets, obs) + 5


class Tossed(TD3):
    "Its noise is a tenth of what it says"

    def kick(self, noise, carry):
        kick, carry = super().kick(noise, carry)
        return .1 * kick, carry


class InFull(Sarsa):
    "Later errors are not discounted"

    def difference(self, q, judge, steps):
        later = super().difference(q, judge, steps[1:]) if steps[1:] else 0.
        return super().difference(q, judge, steps[:1]) + later


class WhereItIs(TD):
    "What follows is valued as what is left"

    def look(self, nets, now, then, coin):
        val = self.values(nets, now.obs)
        return val, val.clone(), torch.ones_like(val)


class Forgetful(Dyna):
    "Of what it was paid its model knows nothing"

    def nets(self, spec, rng):
        nets = super().nets(spec, rng)
        told = nets.model.predict
        nets.model.predict = lambda obs, act: Batch(told(obs, act), rew=torch.zeros(len(obs)).double())
        return nets


class Average(ValueIteration):
    "A state is worth the mean of its actions"

    def target(self, nets, obs):
        return self.q(nets, obs).mean(-1)


class HalfPaid(PolicyIteration):
    "Counts half of each reward"

    def target(self, nets, obs):
        paid = self.q(nets, obs) - nets.world.R[obs] / 2
        return (nets.policy(obs) * paid).sum(-1)


class LastNever(QLearning):
    "Chance never picks the last action"

    def act(self, nets, obs, noise, carry):
        if noise is not None:
            noise = noise.clone()
            noise[noise[:, 0] < self.epsilon, -1] = -1
        return super().act(nets, obs, noise, carry)


class Unlikely(BC):
    "Makes what was done unlikely"

    def losses(self, nets, batch):
        for group, loss, parts in super().losses(nets, batch):
            yield group, -loss, parts


class WorstFirst(AWR):
    "What turned out worst counts most"

    def losses(self, nets, batch):
        return super().losses(nets, Batch(batch, weight=2 * batch.weight.mean() - batch.weight))


class Lenient(IQL):
    "What is better than expected counts no more than what is worse"

    def losses(self, nets, batch):
        return IQL.losses(replace(self, expectile=.5), nets, batch)


class Encouraged(DiscreteCQL):
    "What nobody tried is thought well of"

    def losses(self, nets, batch):
        return DiscreteCQL.losses(replace(self, cql_alpha=-self.cql_alpha), nets, batch)


class Standing(DiscreteCQL):
    "Looks at where it is"

    def target(self, nets, batch):
        return super().target(nets, Batch(batch, next_obs=batch.obs))


class Deceived(GAIL):
    "Its judge takes one for the other"

    def losses(self, nets, batch):
        (_, loss, parts), *others = super().losses(nets, batch)
        yield "judge", -loss, parts
        yield from others


@dataclass(frozen=True)
class OwnActor(Algorithm):
    "A policy and a critic as one writes them oneself"
    on_policy = True
    n_steps = 32
    lr: float = hp(.003, "learning rate of Adam")
    paid: float = hp(.01, "weight of entropy")

    memory = PPO.memory
    noise = PPO.noise
    probs = PPO.probs
    due = PPO.due
    draw = PPO.draw

    def nets(self, spec, rng):
        seen = spec.observation_space
        value = MLP(seen, outputs=1, gain=1., generator=rng, hidden=(32,))
        return nn.ModuleDict(dict(policy=policy_net(seen, spec.action_space, (32,), rng), value=value))

    def act(self, nets, obs, noise, carry):
        act, _ = nets.policy(obs).act(noise)
        return act, {}, carry

    def values(self, nets, obs):
        return nets.value(obs).squeeze(-1)

    def targets(self, nets, rows, noise):
        val = self.values(nets, rows.obs)
        columns = rows.rew, val, self.values(nets, rows.next_obs), rows.term, rows.trunc
        in_time = [column.view(self.n_steps, -1) for column in columns]
        adv = gae(*in_time, self.gamma, .95).flatten()
        return Batch(rows, val=val, adv=adv, ret=adv + val)[rows.valid], [None]

    def losses(self, nets, batch):
        pi = nets.policy(batch.obs)
        logp = pi.logp(batch.act)
        ent = pi.entropy()
        adv = (batch.adv - batch.adv.mean()) / (batch.adv.std() + 1e-8)
        v_loss = (self.values(nets, batch.obs) - batch.ret)**2
        loss = .5 * v_loss.mean() - (logp * adv).mean() - self.paid * ent.mean()
        yield "all", loss, dict(logp=logp, adv=adv, ent=ent, v_loss=v_loss)


@dataclass(frozen=True)
class OwnValues(Exploring, Algorithm):
    "Action values and a network that follows them as one writes them oneself"
    replays = True
    exploration = "epsilon"
    lr: float = hp(1e-3, "learning rate of Adam")
    epsilon: float = hp(Linear(1, .05, 3000), "chance of any action")
    every: int = hp(100, "updates between two copies")

    def nets(self, spec, rng):
        layers = dict(gain=1., generator=rng, hidden=(64, 64), activation="relu")
        q = MLP(spec.observation_space, outputs=int(spec.action_space.n), **layers)
        return nn.ModuleDict(dict(q=q, target=copy.deepcopy(q).requires_grad_(False)))

    def memory(self, spec):
        return Ring(10_000, spec.num_envs)

    def own(self, spec, memory):
        return dict(updates=0)

    def act(self, nets, obs, noise, carry):
        return self.choose(nets.q(obs), noise), {}, carry

    def due(self, memory, own, fresh):
        return max(int(1 - fresh.sum()), 200 - len(memory))

    def draw(self, memory, own, fresh, rng):
        return Batch(index=memory.uniform(rng, 64))

    def targets(self, nets, rows, noise):
        return rows, [None]

    @torch.no_grad()
    def goal(self, nets, batch):
        return batch.rew + self.gamma * ~batch.term * nets.target(batch.next_obs).amax(-1)

    def taken(self, nets, batch):
        return nets.q(batch.obs).gather(-1, batch.act[:, None]).squeeze(-1)

    def losses(self, nets, batch):
        q = self.taken(nets, batch)
        target = self.goal(nets, batch)
        yield "all", mse_loss(q, target), dict(q=q, target=target, delta=target - q)

    def after(self, nets, own, taken):
        own["updates"] += 1
        if own["updates"] % self.every == 0:
            nets.target.load_state_dict(nets.q.state_dict())

    def values(self, nets, obs):
        return nets.q(obs)

    def td_error(self, nets, batch):
        return self.goal(nets, batch) - self.taken(nets, batch)


class WrongAxis(OwnValues):
    "The best of all rows, in place of the best action of each"

    @torch.no_grad()
    def goal(self, nets, batch):
        return batch.rew + self.gamma * ~batch.term * nets.target(batch.next_obs).amax(0).mean()


@cache
def shown():
    "What somebody did who has learned a little"
    return record(Trainer(POLE, "ppo").run(6000), episodes=20)


def given(*named, algo, steps=600, **settings):
    "A case that learns from what was shown"
    def make():
        return Trainer(POLE, algo, memory=shown(), log_every=500, check_env=False, **settings).run(steps)
    return Case(make, named)


METHOD_FAULTS = {
    "ppo: clipped above alone": case("other_gradient", env=MOON, algo=OneSided(), steps=6000),
    "trpo: five times as far": case("too_far", algo=Leaps(), steps=8000),
    "dqn: bad news alone is urgent": case("odd_priorities", env=MOON, algo=BadNewsOnly(**BY_PRIORITY), steps=2000),
    "dqn: no weights for what is drawn often": case("odd_priorities", algo=Unweighted(**BY_PRIORITY), steps=1500),
    "c51: the reward is discounted": case("other_target", "strange_target", algo=PaidLate(**DQN_FAST), steps=1500),
    "recurrent ppo: what is carried out": case("other_memory", env=BLIND, algo=CarriedOut(), steps=4000),
    "r2d2: twice what is carried": case("other_memory", env=BLIND, algo=Doubled(learning_starts=200), steps=1500),
    "sac: more entropy than there is": case("strange_entropy", env=SWING, algo=Restless(**SMALL), steps=700),
    "td3: a tenth of the noise": case("acts_otherwise", env=SWING, algo=Tossed(**SMALL), steps=1500),
    "sarsa: three steps in full": case("other_correction", env=CLIFF, algo=InFull(n_step=3), steps=3000),
    "td: what is left for what follows": case("other_correction", env="rlbench/Walk-v0", algo=WhereItIs(), steps=2000),
    "dyna: a model that pays nothing": case("other_model", env=MAZE, algo=Forgetful(), steps=4000),
    "value iteration: the mean": case("other_correction", env=LAKE, algo=Average(), steps=300),
    "policy iteration: half of the rewards": case("other_correction", env=LAKE, algo=HalfPaid(), steps=300),
    "qlearning: never the last by chance": case("acts_otherwise", env=CLIFF, algo=LastNever(epsilon=.1), steps=3000),
    "bc: makes it unlikely": given("other_gradient", "wrong_push", algo=Unlikely(n_epochs=3)),
    "awr: the worst counts most": given("other_gradient", algo=WorstFirst(n_epochs=3)),
    "iql: the mean of what was done": given("other_gradient", algo=Lenient(n_epochs=3)),
    "discrete cql: upwards": given("other_gradient", algo=Encouraged(n_epochs=3)),
    "discrete cql: where it is": given("other_target", "strange_target", algo=Standing(n_epochs=3)),
    "gail: the judge deceived": given("other_gradient", algo=Deceived(), steps=5000),
    "own actor: entropy costs": case("other_gradient", algo=OwnActor(paid=-.2), num_envs=4, steps=10_000),
    "own values: the best of all rows": case("strange_target", "mixed_rows", algo=WrongAxis(), steps=3000),
}
METHOD_HEALTHY = {
    "own actor": case(algo=OwnActor(), num_envs=4, steps=20_000),
    "own values": case(algo=OwnValues(), steps=4000),
    "own values, Acrobot": case(env="Acrobot-v1", algo=OwnValues(), steps=4000),
    "bc, finished": given(algo="bc", n_epochs=3),
    "awr, finished": given(algo="awr", n_epochs=3),
    "iql, finished": given(algo="iql", n_epochs=3),
    "discrete_cql, finished": given(algo="discrete_cql", n_epochs=3),
    "gail, CartPole": given(algo="gail", steps=5000),
    "value iteration, settled": case(env=LAKE, algo="value_iteration", steps=300),
    "policy iteration, settled": case(env="rlbench/FourRooms-v0", algo="policy_iteration", sweeps=3, steps=300),
    "tree_backup, CliffWalk": case(env=CLIFF, algo="tree_backup", steps=3000),
    "td, three steps": case(env="rlbench/Walk-v0", algo="td", n_step=3, steps=2000),
    "sac, HalfCheetah": case(env="HalfCheetah-v5", algo="sac", steps=1500, **SMALL),
    "rainbow by priorities, CartPole": case(algo="rainbow", steps=1000, **DQN_FAST),
    "ddpg, Hopper": case(env="Hopper-v5", algo="ddpg", steps=1500, learning_starts=200, **SMALL),
    "r2d2, StatelessCartPole": case(env=BLIND, algo="r2d2", learning_starts=200, steps=2000),
}
