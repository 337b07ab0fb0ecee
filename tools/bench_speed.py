"""Environment steps a second, learning included.

python tools/bench_speed.py              every pair below, 5 s a run
python tools/bench_speed.py 1            1 s a run
"""
import statistics
import sys
import time

import rlbench.envs.tabular  # noqa: F401  (its worlds have gymnasium ids)
from rlbench.training.trainer import Trainer

RUNS = [("CartPole-v1", "ppo"), ("CartPole-v1", "dqn"), ("Pendulum-v1", "ppo"), ("rlbench/CliffWalk-v0", "qlearning")]
REPEATS = 3


def speed(env, algo, seconds):
    "Steps a second, after a warm-up"
    trainer = Trainer(env, algo, seed=0)
    trainer.run(steps=2000)
    first, start = trainer.steps, time.perf_counter()
    while time.perf_counter() < start + seconds: trainer.run(steps=500)
    return (trainer.steps - first) / (time.perf_counter() - start)


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    print(f"{REPEATS} runs of {seconds:g} s each, one thread\n{'environment':22} {'algorithm':10} {'steps/s':>9}   lowest to highest")
    for env, algo in RUNS:
        rates = sorted(speed(env, algo, seconds) for _ in range(REPEATS))
        print(f"{env:22} {algo:10} {statistics.median(rates):9,.0f}   {rates[0]:,.0f} to {rates[-1]:,.0f}", flush=True)
