"""Does it learn? Every algorithm on its tasks, over five seeds, with settings that are fixed here.

    python benchmarks/learning.py [--only NAME ...] [--seeds 5] [--write]

Prints a table of greedy returns (mean of 100 evaluation episodes a seed); --write keeps it in benchmarks/results/learning.md, with every seed in learning.json;
what was measured before of tasks that are not run again stays.
"""
import argparse
import json
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
KEPT = HERE / "results" / "learning.json"
DQN = dict(n=3, lr="linear(0.001, 0, 50000)", batch=128, train_every=4, gradient_steps=2, target_every=200, eps="linear(1, 0.01, 6000)", hidden=[128, 128])
TASKS = {  # name -> (environment, algorithm, steps (whole iterations), settings, level that the median seed must reach, where the level comes from)
    "qlearning-cliff": ("rlbench/CliffWalk-v0", "qlearning", 40_000, dict(gamma=1., lr=.5, eps=.1), -13, "optimal path (Sutton & Barto, example 6.6)"),
    "qlearning-rooms": ("rlbench/FourRooms-v0", "qlearning", 40_000, dict(env_settings=dict(step=-1.), gamma=1., lr=.5, eps=.1), None, "optimal path, by dynamic programming"),
    "dqn-cartpole": ("CartPole-v1", "dqn", 50_000, DQN, 475, "solved, as registered by gymnasium"),
    "dqn-prioritised": ("CartPole-v1", "dqn", 50_000, DQN | dict(alpha=.6, beta="linear(0.4, 1, 50000)"), 475, "solved, as registered by gymnasium"),
    "dqn-boltzmann": ("CartPole-v1", "dqn", 50_000, DQN | dict(explore="boltzmann", temperature="linear(1, 0.05, 10000)"), 475, "solved, as registered by gymnasium"),
    "dqn-weight-noise": ("CartPole-v1", "dqn", 50_000, DQN | dict(explore="weights"), 475, "solved, as registered by gymnasium"),
    "ppo-cartpole": ("CartPole-v1", "ppo", 99_840, dict(gamma=.98, lam=.8, lr="linear(0.001, 0, 100000)", clip="linear(0.2, 0, 100000)", horizon=32, epochs=20, minibatches=1), 475, "solved, as registered by gymnasium"),
    "ppo-pendulum": ("Pendulum-v1", "ppo", 198_656, dict(gamma=.9, lam=.95, lr="linear(0.001, 0.0001, 200000)", horizon=256, epochs=10, minibatches=16, max_grad_norm=None), -250, "threshold used by Tianshou's tests"),
    "reinforce-cartpole": ("CartPole-v1", "reinforce", 50_000, dict(lr=.01), 150, "RLlib's policy gradient, within 100,000 steps"),
    "reinforce-no-baseline": ("CartPole-v1", "reinforce", 50_000, dict(lr=.01, baseline=False), 150, "RLlib's policy gradient, within 100,000 steps"),
    "recurrent-cartpole": ("rlbench/StatelessCartPole-v0", "recurrent_ppo", 199_936, dict(gamma=.98, lam=.8, lr="linear(0.002, 0, 200000)", clip="linear(0.2, 0, 200000)", horizon=32, epochs=10, minibatches=1, normalise_obs=True), 350,
                           "RLlib's PPO with LSTM, within 2,000,000 steps; its R2D2: 100 within 50,000"),
    "recurrent-repeat": ("rlbench/RepeatAfterMe-v0", "recurrent_ppo", 25_600, dict(env_settings=dict(delay=2, length=100), gamma=.9, lr=3e-3, horizon=64, epochs=8), 50, "RLlib's PPO with LSTM, within 100,000 steps; the best is 98"),
    "masked-ppo": ("rlbench/Forbidden-v0", "ppo", 20_480, dict(horizon=64), 25.7, "95 % of the optimum, 27.09 by counting the masks"),
    "hybrid-ppo": ("rlbench/SideAndForce-v0", "ppo", 20_480, dict(horizon=64, lr=3e-3, gamma=0.), 7.2, "90 % of the best, as ML-Agents asks of hybrid PPO within 20,000 steps; the best is 8"),
}


def train_one(name, seed):
    "One seed -> its greedy returns at ten places, and over 100 episodes at the end"
    import torch
    from rlbench import Trainer, evaluate
    from rlbench.envs.tabular import model_of
    torch.set_num_threads(1)
    env, algo, steps, settings, *_ = TASKS[name]
    trainer, curve = Trainer(env, algo, seed=seed, **settings), []
    for tenth in range(1, 11):
        trainer.run(steps * tenth // 10 - trainer.steps)
        curve.append((trainer.steps, evaluate(trainer, 10, seed=2).mean))
    final = evaluate(trainer, 100, seed=1)
    row = dict(name=name, seed=seed, steps=trainer.steps, updates=trainer.updates, curve=curve, mean=final.mean, std=final.std, length=float(final.lengths.mean()))
    model = model_of(trainer.env.single)
    if model is not None:                                                   # small worlds are solved exactly
        row["best"] = best_return(model, trainer)
    print(f"  {name} seed {seed}: {final.mean:.1f} ± {final.std:.1f} after {trainer.steps:,} steps", flush=True)
    return row


def best_return(model, trainer, episodes=50):
    "Return of the policy that is greedy in the exact values, played in the environment"
    from rlbench.envs.env import make
    from rlbench.envs.tabular import solve
    _, q = solve(model, trainer.learner.algo.gamma)
    game, total = make(trainer.source, **trainer.env_settings), 0.
    obs = game.reset(1)
    for _ in range(episodes):
        done = False
        while not done:
            step = game.step(q[obs].argmax(-1))
            obs, total, done = step.obs, total + step.rew[0], bool(step.term[0] or step.trunc[0])
    return float(total / episodes)


def table(rows):
    lines = ["| task | environment | algorithm | steps | seeds | median | mean ± spread over seeds | lowest, highest | level | |", "|---|---|---|---|---|---|---|---|---|---|"]
    for name, (env, algo, steps, settings, level, source) in TASKS.items():
        mine = [row for row in rows if row["name"] == name]
        if not mine: continue
        means = [row["mean"] for row in mine]
        level = mine[0]["best"] if level is None else level
        median, spread = statistics.median(means), statistics.stdev(means) if len(means) > 1 else 0.
        lines.append(f"| {name} | {env} | {algo} | {steps:,} | {len(mine)} | {median:.2f} | {statistics.mean(means):.2f} ± {spread:.2f} | {min(means):.2f}, {max(means):.2f} | "
                     f"{level:g} ({source}) | {'reached' if median >= level - 1e-6 else 'not reached'} |")
    return lines


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    args.add_argument("--seeds", type=int, default=5)
    args.add_argument("--workers", type=int, default=os.cpu_count())
    args.add_argument("--write", action="store_true")
    args = args.parse_args()
    with ProcessPoolExecutor(args.workers) as pool:
        rows = list(pool.map(train_one, *zip(*[(name, seed) for name in args.only for seed in range(args.seeds)])))
    if args.write and KEPT.exists(): rows += [row for row in json.loads(KEPT.read_text()) if row["name"] in set(TASKS) - set(args.only)]
    measured = [name for name in TASKS if any(row["name"] == name for row in rows)]
    settings = ["", "Settings, everything else at its default:", "", *(f"* {name}: `{TASKS[name][3]}`" for name in measured), ""]
    text = "\n".join(["# Learning", "", "`python benchmarks/learning.py --write`", "", "Mean return of 100 greedy episodes a seed, on environments of their own, seeds 0 to 4; the median seed is held against the level.", "", *table(rows), *settings])
    print(text)
    if args.write:
        (HERE / "results" / "learning.md").write_text(text)
        KEPT.write_text(json.dumps(sorted(rows, key=lambda row: (list(TASKS).index(row["name"]), row["seed"])), indent=1))


if __name__ == "__main__":
    main()
