"""The two sides of benchmarks/speed.py: `python speed_sides.py ours|peer NAME` prints one number.

Time is that of the processor, so others on the machine count little; everybody has one thread.
"""
import os
import sys
import time

import gymnasium as gym
import numpy as np
import torch

torch.set_num_threads(1)
CAPACITY = 1_000_000
OBS = 17
ACT = 6
BATCH = 256


def microseconds(call, repeats, warm_up=20):
    "Mean time of a call"
    for _ in range(warm_up): call()
    start = time.process_time()
    for _ in range(repeats): call()
    return (time.process_time() - start) / repeats * 1e6


def rate(run, steps):
    "Steps a second"
    start = time.process_time()
    run(steps)
    return steps / (time.process_time() - start)


def speed_of(trainer, warm_up, steps):
    "Steps a second of a trainer of ours"
    trainer.run(warm_up)
    return rate(trainer.run, steps)


def full_ring():
    "A replay memory of ours without a free row"
    from rlbench.buffers.ring import Ring
    from rlbench.core.batch import Batch
    ring = Ring(CAPACITY, 1)
    row = Batch(obs=np.ones((1, OBS), np.float32), act=np.ones((1, ACT), np.float32), rew=np.ones(1, np.float32),
                term=np.zeros(1, bool), next_obs=np.ones((1, OBS), np.float32))     # the five that the peer returns
    ring.add(row)
    rng = np.random.default_rng(0)
    for column in ring.rows.values():
        column[:] = rng.random(column.shape) > .5
    ring.written[:] = CAPACITY
    return ring


class Ours:
    "This library"

    def ppo(self, **more):
        from rlbench import Trainer
        trainer = Trainer("CartPole-v1", "ppo", num_envs=8, n_steps=128, n_epochs=4, batch_size=256, lr=1e-3,
                          normalize_reward=False, **more)
        return speed_of(trainer, 20 * 1024, 60 * 1024)

    def ppo_traced(self):
        return self.ppo(traced=True)

    def dqn(self, **more):
        from rlbench import Trainer
        trainer = Trainer("CartPole-v1", "dqn", double=False, lr=1e-3, batch_size=64, buffer_size=50_000,
                          learning_starts=100, train_freq=1, gradient_steps=1, n_step=1, target_update_interval=500,
                          hidden=(64, 64), epsilon="linear(1, 0.05, 1000)", **more)
        return speed_of(trainer, 500, 8000)

    def ppo_compiled(self):
        return self.ppo(compiled=True)

    def dqn_traced(self):
        return self.dqn(traced=True)

    def sac(self, **more):
        from rlbench import Trainer
        return speed_of(Trainer("Pendulum-v1", "sac", **more), 300, 1500)

    def sac_sbx(self):
        return self.sac(compiled=True)

    def td3_sbx(self):
        from rlbench import Trainer
        return speed_of(Trainer("Pendulum-v1", "td3", learning_starts=100, policy_delay=2, compiled=True), 300, 1500)

    def qlearning(self):
        return self.table("qlearning")

    def sarsa(self):
        return self.table("sarsa")

    def table(self, algo):
        from rlbench import Trainer
        return speed_of(Trainer("rlbench/CliffWalk-v0", algo), 1000, 10_000)

    def sample(self):
        rng = np.random.default_rng(0)
        ring = full_ring()
        return microseconds(lambda: ring.gather(ring.uniform(rng, BATCH)).torch(), 2000)

    def gae(self):
        from rlbench.buffers.returns import gae
        rew, val, next_val = torch.randn(3, 2048, 8)
        none = torch.zeros(2048, 8, dtype=torch.bool)
        return microseconds(lambda: gae(rew, val, next_val, none, none, .99, .95), 200)


def peer_speed(model, warm_up, steps):
    "Steps a second of a peer's model; a count that began again would skip updates until learning_starts"
    model.learn(warm_up)
    return rate(lambda n: model.learn(n, reset_num_timesteps=False), steps)


def sbx_speed(algo, env):
    "Steps a second of SBX, which compiles before the clock starts"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import sbx
    return peer_speed(getattr(sbx, algo)("MlpPolicy", env, seed=0), 400, 1500)


class Peer:
    "Stable-Baselines3 or SBX, with the same network and the same number of updates"

    def env(self, name, n):
        from stable_baselines3.common.env_util import make_vec_env
        return make_vec_env(name, n, seed=0)

    def ppo(self):
        from stable_baselines3 import PPO
        model = PPO("MlpPolicy", self.env("CartPole-v1", 8), n_steps=128, batch_size=256, n_epochs=4,
                    learning_rate=1e-3, seed=0, device="cpu")
        return peer_speed(model, 2048, 60 * 1024)

    def ppo_traced(self):
        return self.ppo()

    def ppo_compiled(self):
        return self.ppo()

    def dqn_traced(self):
        return self.dqn()

    def dqn(self):
        from stable_baselines3 import DQN
        model = DQN("MlpPolicy", self.env("CartPole-v1", 1), learning_rate=1e-3, batch_size=64, buffer_size=50_000,
                    learning_starts=100, train_freq=1, gradient_steps=1, target_update_interval=500,
                    exploration_fraction=.1, policy_kwargs=dict(net_arch=[64, 64]), seed=0, device="cpu")
        return peer_speed(model, 500, 8000)

    def sac(self):
        from stable_baselines3 import SAC
        model = SAC("MlpPolicy", self.env("Pendulum-v1", 1), seed=0, device="cpu")
        return peer_speed(model, 300, 1500)

    def sac_sbx(self):
        return sbx_speed("SAC", self.env("Pendulum-v1", 1))

    def td3_sbx(self):
        return sbx_speed("TD3", self.env("Pendulum-v1", 1))

    def sample(self):
        from stable_baselines3.common.buffers import ReplayBuffer
        obs_space = gym.spaces.Box(-1, 1, (OBS,), np.float32)
        act_space = gym.spaces.Box(-1, 1, (ACT,), np.float32)
        buffer = ReplayBuffer(CAPACITY, obs_space, act_space, device="cpu", n_envs=1)
        for column in (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards, buffer.dones):
            column[:] = np.random.random(column.shape) > .5
        buffer.full = True
        return microseconds(lambda: buffer.sample(BATCH), 2000)

    def gae(self):
        from stable_baselines3.common.buffers import RolloutBuffer
        box = gym.spaces.Box(-1, 1, (OBS,), np.float32)
        buffer = RolloutBuffer(2048, box, box, device="cpu", gamma=.99, gae_lambda=.95, n_envs=8)
        buffer.rewards[:] = np.random.randn(2048, 8)
        buffer.values[:] = np.random.randn(2048, 8)
        return microseconds(lambda: buffer.compute_returns_and_advantage(torch.zeros(8, 1), np.zeros(8)), 50)


if __name__ == "__main__":
    side = dict(ours=Ours, peer=Peer)[sys.argv[1]]
    print(getattr(side(), sys.argv[2])())
