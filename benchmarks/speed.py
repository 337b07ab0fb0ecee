"""How fast, beside Stable-Baselines3: every pair is measured in turn, in one call, on one thread.

    python benchmarks/speed.py [--peer PYTHON] [--rounds 5] [--only ppo dqn sample gae] [--write]

PYTHON is an interpreter that has the peer (pip install stable-baselines3); without it, this one is tried.
Both sides train the same network on the same environment with the same number of updates, and print one number.
--write keeps the table in benchmarks/results/speed.md.
"""
import argparse
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOALS = {  # name -> (what is measured, unit, more is better, ratio to reach)
    "ppo": ("PPO, CartPole-v1, 8 environments x 128 steps, 4 epochs of 4 minibatches, 64x64", "steps/s", True, 2.0),
    "dqn": ("DQN, CartPole-v1, one update of 64 a step, 64x64", "steps/s", True, 1.5),
    "sample": ("uniform replay, 256 out of 1M transitions of 17 numbers", "µs", False, 0.5),
    "gae": ("advantages, 2048 x 8", "µs", False, 0.1),
}


def once(python, side, name):
    "One measurement in a process of its own"
    threads = dict(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    done = subprocess.run([python, str(HERE / "speed_sides.py"), side, name], env=os.environ | threads, capture_output=True, text=True)
    if done.returncode: sys.exit(f"{side} {name} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def measure(name, peer, rounds):
    "Both sides in turn -> medians and the median of the ratios"
    pairs = []
    for i in range(rounds):
        pairs.append((once(sys.executable, "ours", name), once(peer, "peer", name)))
        print(f"  {name} {i + 1}/{rounds}: ours {pairs[-1][0]:,.0f}, peer {pairs[-1][1]:,.0f}, ratio {pairs[-1][0] / pairs[-1][1]:.2f}", flush=True)
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    return ours, theirs, statistics.median(a / b for a, b in pairs)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--peer", default=sys.executable)
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--only", nargs="+", choices=GOALS, default=list(GOALS))
    args.add_argument("--write", action="store_true")
    args = args.parse_args()
    versions = subprocess.run([args.peer, "-c", "import stable_baselines3 as s, torch; print(f'Stable-Baselines3 {s.__version__}, torch {torch.__version__}')"], capture_output=True, text=True)
    if versions.returncode: sys.exit("the peer is not installed there: pip install stable-baselines3, and pass that interpreter with --peer")
    lines = ["| what | rlbench | peer | ratio | goal | |", "|---|---|---|---|---|---|"]
    for name in args.only:
        what, unit, more, goal = GOALS[name]
        ours, theirs, ratio = measure(name, args.peer, args.rounds)
        reached = "reached" if (ratio >= goal if more else ratio <= goal) else "not reached"
        lines.append(f"| {what} | {ours:,.0f} {unit} | {theirs:,.0f} {unit} | {ratio:.2f} | {'at least' if more else 'at most'} {goal} | {reached} |")
    head = f"Medians of {args.rounds} rounds, the two sides in turn, one thread, CPU, {os.cpu_count()} cores, Python {platform.python_version()}; peer: {versions.stdout.strip()}."
    table = "\n".join(["# Speed", "", "`python benchmarks/speed.py --write`", "", head, "", *lines, ""])
    print(table)
    if args.write: (HERE / "results" / "speed.md").write_text(table)


if __name__ == "__main__":
    main()
