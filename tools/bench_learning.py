"""What the algorithms reach with their default settings: greedy returns after a fixed number of steps, over seeds.

python tools/bench_learning.py           every pair below, 5 seeds
python tools/bench_learning.py 2         2 seeds
"""
import statistics
import sys
import time

import rlbench.envs.tabular  # noqa: F401  (its worlds have gymnasium ids)
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer

RUNS = [("rlbench/CliffWalk-v0", "qlearning", 20_000), ("CartPole-v1", "ppo", 100_000), ("CartPole-v1", "dqn", 50_000)]


if __name__ == "__main__":
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    print(f"greedy return over 100 episodes, {len(seeds)} seeds\n{'environment':22} {'algorithm':10} {'steps':>8} {'median':>8} {'s/run':>6}   each seed")
    for env, algo, steps in RUNS:
        start = time.perf_counter()
        means = [evaluate(Trainer(env, algo, seed=seed).run(steps=steps), episodes=100, seed=1).mean for seed in seeds]
        each = (time.perf_counter() - start) / len(seeds)
        print(f"{env:22} {algo:10} {steps:8,} {statistics.median(means):8.1f} {each:6.0f}   {' '.join(f'{mean:.1f}' for mean in means)}", flush=True)
