"""How fast is replay, beside cpprb: every pair is measured in turn, in one call, on one thread.

    python benchmarks/replay.py [--peer PYTHON] [--rounds 7] [--write]

PYTHON is an interpreter that has the peer (pip install cpprb); without it, this one is tried.
Both sides hold 1M transitions of the same columns and print one number, microseconds of processor time for 256 rows; the last table is ours alone.
--write keeps the tables in benchmarks/results/replay.md, and the cost by size in replay.png.
"""
import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
OBS, ACT, BATCH, ROWS = 17, 6, 256, 1_000_000
GOALS = {  # name -> (what is measured, ratio to reach)
    "uniform": ("uniform: 256 out of 1M transitions of 17 numbers", 1.0),
    "prioritised": ("prioritised: the same with weights, and their priorities changed", .8),
}
SIZES, FLAT = (10_000, 100_000, 1_000_000, 10_000_000), 2.0                 # rows; the dearest sample over the cheapest


def microseconds(call, repeats=1500, warm_up=50):
    "Processor time of a call, the median of ten stretches"
    for _ in range(warm_up): call()
    spans = []
    for _ in range(10):
        start = time.process_time()
        for _ in range(repeats // 10): call()
        spans.append((time.process_time() - start) / (repeats // 10) * 1e6)
    return statistics.median(spans)


def ring_of(rows, obs, act):
    "A full ring"
    import torch

    from rlbench.buffers.buffers import Ring
    torch.set_num_threads(1)
    ring, rng = Ring(rows, 1), np.random.default_rng(0)
    ring.add(dict(obs=np.ones((1, obs), np.float32), act=np.ones((1, act), np.float32), rew=np.ones(1, np.float32), term=np.zeros(1, bool), trunc=np.zeros(1, bool), next_obs=np.ones((1, obs), np.float32)))
    for column in ring.rows.values(): column[:] = rng.random(column.shape, np.float32) > .5
    ring.heads[:], ring.sizes[:], ring.written[:] = 0, rows, rows
    return ring, rng


def priorities_of(ring, rng):
    "Priorities of every row, as uneven as errors are"
    from rlbench.buffers.priorities import Prioritised
    chosen = Prioritised(ring, alpha=.6, epsilon=1e-6)
    chosen.draw(rng, BATCH, .4)
    for rows in np.array_split(np.arange(len(ring)), 100): chosen.update(rows, rng.exponential(size=len(rows)))
    return chosen


COLUMNS = ("obs", "act", "rew", "term", "next_obs")                         # the five that the peer returns


class Ours:
    def uniform(self):
        ring, rng = ring_of(ROWS, OBS, ACT)
        return microseconds(lambda: ring.gather(ring.uniform(rng, BATCH), COLUMNS))

    def prioritised(self):
        ring, rng = ring_of(ROWS, OBS, ACT)
        chosen, errors = priorities_of(ring, rng), rng.exponential(size=BATCH)

        def cycle():
            index, weight = chosen.draw(rng, BATCH, .4)
            ring.gather(index, COLUMNS)
            chosen.update(index, errors)
        return microseconds(cycle)

    def sizes(self, rows):
        "Row numbers and weights, and their priorities changed; with and without reading 16 bytes of each row"
        ring, rng = ring_of(int(rows), 4, 1)
        chosen, errors = priorities_of(ring, rng), rng.exponential(size=BATCH)

        def cycle(names):
            index, weight = chosen.draw(rng, BATCH, .4)
            if names: ring.gather(index, names)
            chosen.update(index, errors)
        bare = microseconds(lambda: ring.uniform(rng, BATCH))
        return f"{bare:.2f} {microseconds(lambda: cycle(())):.2f} {microseconds(lambda: cycle(('obs',))):.2f}"


class Peer:
    def filled(self, kind):
        rng = np.random.default_rng(0)
        buffer = kind(ROWS, {"obs": {"shape": OBS}, "act": {"shape": ACT}, "rew": {}, "next_obs": {"shape": OBS}, "done": {}})
        for _ in range(ROWS // 1000):
            buffer.add(obs=rng.random((1000, OBS)), act=rng.random((1000, ACT)), rew=rng.random(1000), next_obs=rng.random((1000, OBS)), done=np.zeros(1000))
        return buffer, rng

    def uniform(self):
        from cpprb import ReplayBuffer
        buffer, _ = self.filled(ReplayBuffer)
        return microseconds(lambda: buffer.sample(BATCH))

    def prioritised(self):
        from cpprb import PrioritizedReplayBuffer
        buffer, rng = self.filled(lambda *args: PrioritizedReplayBuffer(*args, alpha=.6))
        for rows in np.array_split(np.arange(ROWS), 100): buffer.update_priorities(rows, rng.exponential(size=len(rows)))
        errors = rng.exponential(size=BATCH)

        def cycle():
            sample = buffer.sample(BATCH, .4)
            buffer.update_priorities(sample["indexes"], errors)
        return microseconds(cycle)


def once(python, *what):
    "One measurement in a process of its own -> numbers"
    threads = dict(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    done = subprocess.run([python, __file__, *map(str, what)], env=os.environ | threads, capture_output=True, text=True)
    if done.returncode: sys.exit(f"{what} failed:\n{done.stderr[-2000:]}")
    return [float(x) for x in done.stdout.split()]


def compare(name, peer, rounds):
    "Both sides in turn -> medians and the median of the ratios"
    pairs = []
    for i in range(rounds):
        pairs.append((*once(sys.executable, "ours", name), *once(peer, "peer", name)))
        print(f"  {name} {i + 1}/{rounds}: ours {pairs[-1][0]:,.0f}, peer {pairs[-1][1]:,.0f}, ratio {pairs[-1][0] / pairs[-1][1]:.2f}", flush=True)
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    return ours, theirs, statistics.median(a / b for a, b in pairs)


def versus(peer, rounds):
    lines = ["| what | rlbench | cpprb | ratio | goal | |", "|---|---|---|---|---|---|"]
    for name, (what, goal) in GOALS.items():
        ours, theirs, ratio = compare(name, peer, rounds)
        lines.append(f"| {what} | {ours:,.0f} µs | {theirs:,.0f} µs | {ratio:.2f} | at most {goal} | {'reached' if ratio <= goal else 'not reached'} |")
    return lines


def scaling(rounds):
    lines = ["| rows | uniform row numbers | prioritised draw and change | the same, reading `obs` |", "|---|---|---|---|"]
    table = {rows: [] for rows in SIZES}
    for i in range(rounds):
        for rows in SIZES: table[rows].append(once(sys.executable, "ours", "sizes", rows))
        print(f"  sizes {i + 1}/{rounds}:", *(f"{rows:,}: {table[rows][-1]}" for rows in SIZES), flush=True)
    costs = {rows: [statistics.median(column) for column in zip(*found)] for rows, found in table.items()}
    lines += [f"| {rows:,} | " + " | ".join(f"{x:.0f} µs" for x in found) + " |" for rows, found in costs.items()]
    spread = max(cost[2] for cost in costs.values()) / min(cost[2] for cost in costs.values())
    verdict = f"Prioritised, drawn, read and changed, dearest over cheapest: {spread:.2f}, goal at most {FLAT}: {'reached' if spread <= FLAT else 'not reached'}."
    return [*lines, "", "![cost by size](replay.png)", "", verdict], costs


def figure(costs):
    "Cost of a sample by length of the memory"
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    fig, ax = plt.subplots(figsize=(5, 3), dpi=100)
    for name, column in zip(("uniform row numbers", "prioritised draw and change", "the same, reading obs"), zip(*costs.values())): ax.plot(list(costs), column, ".-", label=name)
    ax.set(xscale="log", xlabel="rows in the memory", ylabel="µs for 256 rows", ylim=(0, None))
    ax.grid(alpha=.3), ax.legend(fontsize=8)
    fig.tight_layout()
    fig.savefig(HERE / "results" / "replay.png")


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--peer", default=sys.executable)
    args.add_argument("--rounds", type=int, default=7)
    args.add_argument("--write", action="store_true")
    args = args.parse_args()
    version = subprocess.run([args.peer, "-c", "import cpprb, importlib.metadata as m; print('cpprb', m.version('cpprb'))"], capture_output=True, text=True)
    if version.returncode: sys.exit("the peer is not installed there: pip install cpprb, and pass that interpreter with --peer")
    head = f"Medians of {args.rounds} rounds, the sides in turn, one thread, CPU, {os.cpu_count()} cores, Python {platform.python_version()}; peer: {version.stdout.strip()}."
    beside, (sizes, costs) = versus(args.peer, args.rounds), scaling(max(1, args.rounds // 2))
    table = "\n".join(["# Replay", "", "`python benchmarks/replay.py --write`", "", head, "", *beside, "", "Cost of 256 rows by length of the memory:", "", *sizes, ""])
    print(table)
    if args.write:
        figure(costs)
        (HERE / "results" / "replay.md").write_text(table)


if __name__ == "__main__":
    if sys.argv[1:2] in (["ours"], ["peer"]): print(getattr({"ours": Ours, "peer": Peer}[sys.argv[1]](), sys.argv[2])(*sys.argv[3:]))
    else: main()
