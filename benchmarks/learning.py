"""Does it learn? Every algorithm on its tasks, over five seeds, with settings that are fixed here.

    python benchmarks/learning.py [--only NAME ...] [--seeds 5] [--write]

Prints a table of greedy returns (mean of 100 evaluation episodes a seed). --write keeps it in
benchmarks/results/learning.md, with every seed in learning.json; what was measured before of tasks
that are not run again stays.
"""
import argparse
import json
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
RESULTS = Path(__file__).resolve().parent / "results"
KEPT = RESULTS / "learning.json"
SOLVED = "solved, as registered by gymnasium"
RLLIB_PG = "RLlib's policy gradient, within 100,000 steps"


@dataclass(frozen=True)
class Task:
    "What is trained where, for how long, and what is expected"
    env: str
    algo: str
    steps: int                                     # of the environment; whole iterations
    level: float | None                            # that the median seed must reach; None: the optimum
    source: str                                    # of the level
    settings: dict = field(default_factory=dict)   # everything else is at its default

    def trainer(self, seed):
        from rlbench import Trainer
        memory = expert_episodes(10) if self.algo == "bc" else None
        return Trainer(self.env, self.algo, seed=seed, memory=memory, **self.settings)


def expert_episodes(episodes):
    "A Ring with episodes of CartPole-v1 played by a rule that never lets the pole fall"
    import numpy as np
    from rlbench.buffers.ring import Ring
    from rlbench.core.batch import Batch
    from rlbench.envs.find import make
    env = make("CartPole-v1", num_envs=episodes)
    obs = env.reset(0)["agent"]
    ring = Ring(500, episodes)
    for _ in range(500):
        place, speed, angle, turning = obs.T
        act = (angle + .4 * turning + .05 * speed + .02 * place > 0).astype(np.int64)
        step = env.step(dict(agent=act))["agent"]
        row = Batch(obs=obs, act=act, rew=step.rew, term=step.term, trunc=step.trunc, next_obs=step.next_obs)
        ring.add(row, step.valid)
        obs = step.obs
    return ring


DQN = dict(
    n_step=3,
    lr="linear(0.001, 0, 50000)",
    batch_size=128,
    train_freq=4,
    gradient_steps=2,
    target_update_interval=200,
    epsilon="linear(1, 0.01, 6000)",
    hidden=[128, 128],
)
CLIFF = dict(gamma=1., lr=.5, epsilon=.1)
TASKS = {
    "qlearning-cliff": Task(
        "rlbench/CliffWalk-v0", "qlearning", 40_000, -13, "optimal path (Sutton & Barto, example 6.6)", CLIFF),
    "qlearning-rooms": Task(
        "rlbench/FourRooms-v0", "qlearning", 40_000, None, "optimal path, by dynamic programming",
        CLIFF | dict(env_settings=dict(step=-1.))),
    "count-bonus-lake": Task(
        "FrozenLake-v1", "count_bonus", 8_000, 1, "the goal is reached",
        dict(env_settings=dict(map_name="8x8", is_slippery=False))),
    "dqn-cartpole": Task("CartPole-v1", "dqn", 50_000, 475, SOLVED, DQN),
    "dqn-prioritised": Task(
        "CartPole-v1", "dqn", 50_000, 475, SOLVED,
        DQN | dict(prioritized_replay_alpha=.6, prioritized_replay_beta="linear(0.4, 1, 50000)")),
    "dqn-boltzmann": Task(
        "CartPole-v1", "dqn", 50_000, 475, SOLVED,
        DQN | dict(exploration="boltzmann", temperature="linear(1, 0.05, 10000)")),
    "dqn-weight-noise": Task("CartPole-v1", "dqn", 50_000, 475, SOLVED, DQN | dict(exploration="weights")),
    "ppo-cartpole": Task(
        "CartPole-v1", "ppo", 99_840, 475, SOLVED,
        dict(gamma=.98, gae_lambda=.8, lr="linear(0.001, 0, 100000)", clip_range="linear(0.2, 0, 100000)",
             n_steps=32, n_epochs=20, batch_size=256)),
    "ppo-pendulum": Task(
        "Pendulum-v1", "ppo", 198_656, -250, "threshold used by Tianshou's tests",
        dict(gamma=.9, gae_lambda=.95, lr="linear(0.001, 0.0001, 200000)", n_steps=256, n_epochs=10,
             batch_size=128, max_grad_norm=None)),
    "dqn-defaults": Task("CartPole-v1", "dqn", 50_000, 475, SOLVED),
    "dqn-defaults-acrobot": Task("Acrobot-v1", "dqn", 30_000, -100, SOLVED),
    "ppo-defaults": Task("CartPole-v1", "ppo", 99_328, 475, SOLVED),
    "ppo-defaults-acrobot": Task("Acrobot-v1", "ppo", 99_328, -100, SOLVED),
    "sac-pendulum": Task("Pendulum-v1", "sac", 20_000, -170, "Stable-Baselines3's SAC, within as many steps"),
    "bc-cartpole": Task("CartPole-v1", "bc", 0, 475, SOLVED + "; from ten episodes of an expert, no step taken"),
    "reinforce-cartpole": Task("CartPole-v1", "reinforce", 50_000, 150, RLLIB_PG, dict(lr=.01)),
    "reinforce-no-baseline": Task("CartPole-v1", "reinforce", 50_000, 150, RLLIB_PG, dict(lr=.01, baseline=False)),
    "recurrent-cartpole": Task(
        "rlbench/StatelessCartPole-v0", "recurrent_ppo", 199_936, 350,
        "RLlib's PPO with LSTM, within 2,000,000 steps; its R2D2: 100 within 50,000",
        dict(gamma=.98, gae_lambda=.8, lr="linear(0.002, 0, 200000)", clip_range="linear(0.2, 0, 200000)",
             n_steps=32, n_epochs=10, normalize_obs=True)),
    "recurrent-repeat": Task(
        "rlbench/RepeatAfterMe-v0", "recurrent_ppo", 25_600, 50,
        "RLlib's PPO with LSTM, within 100,000 steps; the best is 98",
        dict(env_settings=dict(delay=2, length=100), gamma=.9, lr=3e-3, n_steps=64, n_epochs=8, batch_size=128)),
    "masked-ppo": Task(
        "rlbench/Forbidden-v0", "ppo", 20_480, 25.7, "95 % of the optimum, 27.09 by counting the masks",
        dict(n_steps=64, n_epochs=4, batch_size=128)),
    # policies learned off-policy, with actions that are numbers, choices or both
    "td3-pendulum": Task("Pendulum-v1", "td3", 20_000, -170, "-152 by rl-zoo3, one run", dict(gamma=.98)),
    "ddpg-pendulum": Task("Pendulum-v1", "ddpg", 20_000, -170, "-152 by rl-zoo3, one run", dict(gamma=.98)),
    "tqc-pendulum": Task("Pendulum-v1", "tqc", 20_000, -170, "-151 by rl-zoo3, one run", dict(lr=1e-3)),
    "crossq-pendulum": Task("Pendulum-v1", "crossq", 20_000, -170, "-146 by SLM-Lab, within 300,000 steps"),
    "droq-pendulum": Task(
        "Pendulum-v1", "sac", 3_000, -170, "Stable-Baselines3's SAC, within 20,000 steps",
        dict(dropout=.01, critic_norm="layer", gradient_steps=10, lr=1e-3, hidden=[64, 64])),
    "crossq-mountain-car": Task(
        "MountainCarContinuous-v0", "crossq", 50_000, 92, "SAC: 94.7 by rl-zoo3, one run", dict(hidden=[64, 64])),
    "td3-inverted-pendulum": Task("InvertedPendulum-v5", "td3", 50_000, 1000, "the authors' curve, v1"),
    "td3-half-cheetah": Task(
        "HalfCheetah-v5", "td3", 100_000, 5500, "5683 by the authors' code, v4", dict(learning_starts=10_000)),
    "sac-cartpole": Task(
        "CartPole-v1", "sac", 200_000, 450, "406 by SLM-Lab, within as many steps",
        dict(lr=1e-3, tau=.05, target_entropy_scale=.3, batch_size=64, train_freq=2, hidden=[64, 64])),
    "sac-hybrid": Task(
        "rlbench/SideAndForce-v0", "sac", 3_000, 7.2, "90 % of the best, as ML-Agents asks of hybrid SAC",
        dict(gamma=0., lr=3e-3, critic_lr=3e-3, batch_size=64, hidden=[64, 64])),
    "sac-masked": Task(
        "rlbench/Forbidden-v0", "sac", 5_000, 25.7, "95 % of the optimum, 27.09 by counting the masks",
        dict(lr=3e-3, target_entropy_scale=.1, batch_size=64, hidden=[64, 64])),
    "hybrid-ppo": Task(
        "rlbench/SideAndForce-v0", "ppo", 20_480, 7.2,
        "90 % of the best, as ML-Agents asks of hybrid PPO within 20,000 steps; the best is 8",
        dict(n_steps=64, n_epochs=4, batch_size=128, lr=3e-3, gamma=0.)),
}


def learn_it_all(trainer, evaluate):
    "Learn until nothing is owed any more, where the memory is given -> [(updates, mean return)]"
    while not trainer.settled:
        trainer.until("iteration")
    return [(trainer.updates, evaluate(trainer, 10, seed=2).mean)]


def learn_in_tenths(trainer, steps, evaluate):
    "Train, with ten looks on the way -> [(steps, mean return)]"
    curve = []
    for tenth in range(1, 11):
        trainer.run(steps * tenth // 10 - trainer.steps)
        curve.append((trainer.steps, evaluate(trainer, 10, seed=2).mean))
    return curve


def train_one(name, seed):
    "One seed -> its greedy returns on the way, and over 100 episodes at the end"
    import torch
    from rlbench import evaluate
    from rlbench.envs.tabular import model_of
    torch.set_num_threads(1)
    task = TASKS[name]
    trainer = task.trainer(seed)
    curve = learn_in_tenths(trainer, task.steps, evaluate) if task.steps else learn_it_all(trainer, evaluate)
    final = evaluate(trainer, 100, seed=1)
    row = dict(name=name, seed=seed, steps=trainer.steps, updates=trainer.updates, curve=curve,
               mean=final.mean, std=final.std, length=float(final.lengths.mean()))
    model = model_of(trainer.env.single)
    if model is not None:                          # small worlds are solved exactly
        row["best"] = best_return(model, trainer)
    print(f"  {name} seed {seed}: {final.mean:.1f} ± {final.std:.1f} after {row['steps']:,} steps", flush=True)
    return row


def best_return(model, trainer, episodes=50):
    "Return of the policy that is greedy in the exact values, played in the environment"
    from rlbench.envs.find import find
    from rlbench.envs.tabular import solve
    _, q = solve(model, trainer.learner.algo.gamma)
    game = find(trainer.source, trainer.env_settings).vector(1, native=False)
    obs = game.reset(1)["agent"]
    total = 0.
    for _ in range(episodes):
        done = False
        while not done:
            step = game.step(dict(agent=q[obs].argmax(-1)))["agent"]
            obs = step.obs
            total += step.rew[0]
            done = bool(step.term[0] or step.trunc[0])
    return float(total / episodes)


COLUMNS = ("task", "environment", "algorithm", "steps", "seeds", "median", "mean ± spread over seeds",
           "lowest, highest", "level", "")


def line(cells):
    "A line of a table"
    return f"| {' | '.join(cells)} |"


def table_row(name, rows):
    "One line of the table"
    task = TASKS[name]
    means = [row["mean"] for row in rows]
    level = rows[0]["best"] if task.level is None else task.level
    median = statistics.median(means)
    spread = statistics.stdev(means) if len(means) > 1 else 0.
    verdict = "reached" if median >= level - 1e-6 else "not reached"
    cells = [name, task.env, task.algo, f"{task.steps:,}", str(len(rows)), f"{median:.2f}",
             f"{statistics.mean(means):.2f} ± {spread:.2f}", f"{min(means):.2f}, {max(means):.2f}",
             f"{level:g} ({task.source})", verdict]
    return line(cells)


def page(rows):
    "The whole page"
    by_name = {}
    for row in rows:
        by_name.setdefault(row["name"], []).append(row)
    lines = [
        "# Learning",
        "",
        "`python benchmarks/learning.py --write`",
        "",
        "Mean return of 100 greedy episodes a seed, on environments of their own, seeds 0 to 4; "
        "the median seed is held against the level.",
        "",
        line(COLUMNS),
        line(["---"] * len(COLUMNS)),
        *[table_row(name, by_name[name]) for name in by_name],
        "",
        "Settings, everything else at its default:",
        "",
        *[f"* {name}: `{TASKS[name].settings}`" for name in by_name],
        "",
    ]
    return "\n".join(lines)


def place_in_table(row):
    "Where a row stands among all"
    return list(TASKS).index(row["name"]), row["seed"]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    args.add_argument("--seeds", type=int, default=5)
    args.add_argument("--workers", type=int, default=os.cpu_count())
    args.add_argument("--write", action="store_true")
    args = args.parse_args()

    jobs = [(name, seed) for name in args.only for seed in range(args.seeds)]
    with ProcessPoolExecutor(args.workers) as pool:
        rows = list(pool.map(train_one, *zip(*jobs)))
    if args.write and KEPT.exists():
        kept = json.loads(KEPT.read_text())
        rows += [row for row in kept if row["name"] in TASKS and row["name"] not in args.only]
    rows.sort(key=place_in_table)
    print(page(rows))
    if args.write:
        (RESULTS / "learning.md").write_text(page(rows))
        KEPT.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
