"""The two sides of benchmarks/speed.py: `python speed_sides.py ours|peer ppo|dqn|sample|gae` prints one number."""
import sys
import time

import gymnasium as gym
import numpy as np
import torch

torch.set_num_threads(1)
CAPACITY, OBS, ACT, BATCH = 1_000_000, 17, 6, 256


def microseconds(call, repeats, warm_up=20):
    for _ in range(warm_up): call()
    start = time.perf_counter()
    for _ in range(repeats): call()
    return (time.perf_counter() - start) / repeats * 1e6


def rate(run, steps):
    start = time.perf_counter()
    run(steps)
    return steps / (time.perf_counter() - start)


class Ours:
    def ppo(self):
        from rlbench import Trainer
        trainer = Trainer("CartPole-v1", "ppo", seed=0, num_envs=8, horizon=128, epochs=4, minibatches=4, lr=1e-3)
        trainer.run(2048)
        return rate(trainer.run, 60 * 1024)

    def dqn(self):
        from rlbench import Trainer
        trainer = Trainer("CartPole-v1", "dqn", seed=0, double=False, lr=1e-3, batch=64, capacity=50_000, start=100, train_every=1, target_every=500, hidden=(64, 64), eps="linear(1, 0.05, 1000)")
        trainer.run(500)
        return rate(trainer.run, 8000)

    def sample(self):
        from rlbench.buffers.buffers import Ring
        ring, rng = Ring(CAPACITY, 1), np.random.default_rng(0)
        row = dict(obs=np.ones((1, OBS), np.float32), act=np.ones((1, ACT), np.float32), rew=np.ones(1, np.float32), term=np.zeros(1, bool), trunc=np.zeros(1, bool), next_obs=np.ones((1, OBS), np.float32))
        ring.add(row)
        for column in ring.rows.values(): column[:] = rng.random(column.shape) > .5
        ring.sizes[:] = CAPACITY
        columns = ("obs", "act", "rew", "term", "next_obs")                 # the five that the peer returns
        return microseconds(lambda: ring.gather(ring.uniform(rng, BATCH), columns), 2000)

    def gae(self):
        from rlbench.buffers.returns import gae
        rew, val, next_val = torch.randn(3, 2048, 8)
        none = torch.zeros(2048, 8, dtype=torch.bool)
        return microseconds(lambda: gae(rew, val, next_val, none, none, .99, .95), 200)


class Peer:
    def env(self, n):
        from stable_baselines3.common.env_util import make_vec_env
        return make_vec_env("CartPole-v1", n, seed=0)

    def ppo(self):
        from stable_baselines3 import PPO
        model = PPO("MlpPolicy", self.env(8), n_steps=128, batch_size=256, n_epochs=4, learning_rate=1e-3, seed=0, device="cpu")
        model.learn(2048)
        return rate(lambda steps: model.learn(steps), 60 * 1024)

    def dqn(self):
        from stable_baselines3 import DQN
        model = DQN("MlpPolicy", self.env(1), learning_rate=1e-3, batch_size=64, buffer_size=50_000, learning_starts=100, train_freq=1, gradient_steps=1,
                    target_update_interval=500, exploration_fraction=.1, policy_kwargs=dict(net_arch=[64, 64]), seed=0, device="cpu")
        model.learn(500)
        return rate(lambda steps: model.learn(steps), 8000)

    def sample(self):
        from stable_baselines3.common.buffers import ReplayBuffer
        box = gym.spaces.Box(-1, 1, (OBS,), np.float32)
        buffer = ReplayBuffer(CAPACITY, box, gym.spaces.Box(-1, 1, (ACT,), np.float32), device="cpu", n_envs=1)
        for column in (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards, buffer.dones): column[:] = np.random.random(column.shape) > .5
        buffer.full = True
        return microseconds(lambda: buffer.sample(BATCH), 2000)

    def gae(self):
        from stable_baselines3.common.buffers import RolloutBuffer
        box = gym.spaces.Box(-1, 1, (OBS,), np.float32)
        buffer = RolloutBuffer(2048, box, box, device="cpu", gamma=.99, gae_lambda=.95, n_envs=8)
        buffer.rewards[:], buffer.values[:] = np.random.randn(2048, 8), np.random.randn(2048, 8)
        return microseconds(lambda: buffer.compute_returns_and_advantage(torch.zeros(8, 1), np.zeros(8)), 50)


if __name__ == "__main__":
    print(getattr({"ours": Ours, "peer": Peer}[sys.argv[1]](), sys.argv[2])())
