"""How fast is replay, beside cpprb: every pair is measured in turn, in one call, on one thread.

    python benchmarks/replay.py [--peer PYTHON] [--rounds 7] [--write]

PYTHON is an interpreter that has the peer (pip install cpprb); without it, this one is tried.
Both sides hold 1M transitions of the same columns and print one number, microseconds of processor time for 256 rows;
the last table is ours alone.
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
OBS = 17
ACT = 6
BATCH = 256
ROWS = 1_000_000
GOALS = {  # name -> (what is measured, ratio to reach)
    "uniform": ("uniform: 256 out of 1M transitions of 17 numbers", 1.0),
    "prioritised": ("prioritised: the same with weights, and their priorities changed", .8),
}
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)        # rows
FLAT = 2.0                                              # the dearest sample over the cheapest
KINDS = ("uniform row numbers", "prioritised draw and change", "the same, reading `obs`")


def microseconds(call, repeats=1500, warm_up=50):
    "Processor time of a call, the median of ten stretches"
    for _ in range(warm_up):
        call()
    spans = []
    for _ in range(10):
        start = time.process_time()
        for _ in range(repeats // 10):
            call()
        spans.append((time.process_time() - start) / (repeats // 10) * 1e6)
    return statistics.median(spans)


# ---- ours

def ring_of(rows, columns):
    "A full ring with columns of these shapes, and a generator"
    import torch

    from rlbench.buffers.ring import Ring
    from rlbench.core.batch import Batch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    ring = Ring(rows, 1)
    block = min(rows, 100_000)
    for _ in range(rows // block):
        numbers = {name: rng.random((block, 1, *shape), np.float32) > .5 for name, shape in columns.items()}
        floats = {name: column.astype(bool if name == "term" else np.float32) for name, column in numbers.items()}
        ring.extend(Batch(floats))
    return ring, rng


def transitions():
    "A full ring of the five columns that the peer returns too"
    return ring_of(ROWS, dict(obs=(OBS,), act=(ACT,), rew=(), term=(), next_obs=(OBS,)))


def priorities_of(ring, rng):
    "Priorities of every row, as uneven as errors are"
    from rlbench.buffers.priorities import Prioritised

    chosen = Prioritised(ring, alpha=.6, epsilon=1e-6)
    chosen.draw(rng, BATCH, .4)
    for rows in np.array_split(np.arange(len(ring)), 100):
        chosen.update(rows, rng.exponential(size=len(rows)))
    return chosen


class Ours:
    "What rlbench takes"

    def uniform(self):
        ring, rng = transitions()
        return microseconds(lambda: ring.gather(ring.uniform(rng, BATCH)))

    def prioritised(self):
        ring, rng = transitions()
        chosen = priorities_of(ring, rng)
        errors = rng.exponential(size=BATCH)

        def cycle():
            index, _ = chosen.draw(rng, BATCH, .4)
            ring.gather(index)
            chosen.update(index, errors)
        return microseconds(cycle)

    def sizes(self, rows):
        "Row numbers and weights, and their priorities changed; without and with reading 16 bytes of each row"
        ring, rng = ring_of(int(rows), dict(obs=(4,)))
        chosen = priorities_of(ring, rng)
        errors = rng.exponential(size=BATCH)

        def cycle(reading):
            index, _ = chosen.draw(rng, BATCH, .4)
            if reading: ring.gather(index)
            chosen.update(index, errors)
        costs = [
            microseconds(lambda: ring.uniform(rng, BATCH)),
            microseconds(lambda: cycle(False)),
            microseconds(lambda: cycle(True)),
        ]
        return " ".join(f"{cost:.2f}" for cost in costs)


# ---- the peer's

class Peer:
    "What cpprb takes"

    def filled(self, kind, **more):
        rng = np.random.default_rng(0)
        columns = {"obs": {"shape": OBS}, "act": {"shape": ACT}, "rew": {}, "next_obs": {"shape": OBS}, "done": {}}
        buffer = kind(ROWS, columns, **more)
        for _ in range(ROWS // 1000):
            buffer.add(
                obs=rng.random((1000, OBS)),
                act=rng.random((1000, ACT)),
                rew=rng.random(1000),
                next_obs=rng.random((1000, OBS)),
                done=np.zeros(1000),
            )
        return buffer, rng

    def uniform(self):
        from cpprb import ReplayBuffer
        buffer, _ = self.filled(ReplayBuffer)
        return microseconds(lambda: buffer.sample(BATCH))

    def prioritised(self):
        from cpprb import PrioritizedReplayBuffer
        buffer, rng = self.filled(PrioritizedReplayBuffer, alpha=.6)
        for rows in np.array_split(np.arange(ROWS), 100):
            buffer.update_priorities(rows, rng.exponential(size=len(rows)))
        errors = rng.exponential(size=BATCH)

        def cycle():
            sample = buffer.sample(BATCH, .4)
            buffer.update_priorities(sample["indexes"], errors)
        return microseconds(cycle)


# ---- both, in turn

def once(python, *what):
    "One measurement in a process of its own -> numbers"
    threads = dict(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    command = [python, __file__, *map(str, what)]
    done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True)
    if done.returncode: sys.exit(f"{what} failed:\n{done.stderr[-2000:]}")
    return [float(x) for x in done.stdout.split()]


def compare(name, peer, rounds):
    "Both sides in turn -> medians and the median of the ratios"
    pairs = []
    for i in range(rounds):
        [ours] = once(sys.executable, "ours", name)
        [theirs] = once(peer, "peer", name)
        pairs.append((ours, theirs))
        print(f"  {name} {i + 1}/{rounds}: ours {ours:,.0f}, peer {theirs:,.0f}, ratio {ours / theirs:.2f}", flush=True)
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    return ours, theirs, statistics.median(a / b for a, b in pairs)


def versus(peer, rounds):
    "The table of both sides"
    lines = ["| what | rlbench | cpprb | ratio | goal | |", "|---|---|---|---|---|---|"]
    for name, (what, goal) in GOALS.items():
        ours, theirs, ratio = compare(name, peer, rounds)
        verdict = "reached" if ratio <= goal else "not reached"
        lines.append(f"| {what} | {ours:,.0f} µs | {theirs:,.0f} µs | {ratio:.2f} | at most {goal} | {verdict} |")
    return lines


def costs_by_size(rounds):
    "{rows: costs of the three kinds}, medians"
    found = {rows: [] for rows in SIZES}
    for i in range(rounds):
        for rows in SIZES:
            found[rows].append(once(sys.executable, "ours", "sizes", rows))
        print(f"  sizes {i + 1}/{rounds}:", *(f"{rows:,}: {costs[-1]}" for rows, costs in found.items()), flush=True)
    return {rows: np.median(costs, axis=0).tolist() for rows, costs in found.items()}


def scaling(costs):
    "The table of the costs by size"
    lines = [f"| rows | {' | '.join(KINDS)} |", "|---|---|---|---|"]
    for rows, found in costs.items():
        lines.append(f"| {rows:,} | " + " | ".join(f"{cost:.0f} µs" for cost in found) + " |")
    reading = [found[2] for found in costs.values()]
    ratio = max(reading) / min(reading)
    verdict = "reached" if ratio <= FLAT else "not reached"
    told = f"Prioritised, drawn, read and changed, dearest over cheapest: {ratio:.2f}, goal at most {FLAT}: {verdict}."
    return [*lines, "", "![cost by size](replay.png)", "", told]


def figure(costs):
    "Cost of a sample by length of the memory"
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    fig, ax = plt.subplots(figsize=(5, 3), dpi=100)
    for name, kind in zip(KINDS, zip(*costs.values())):
        ax.plot(list(costs), kind, ".-", label=name.replace("`", ""))
    ax.set(xscale="log", xlabel="rows in the memory", ylabel="µs for 256 rows", ylim=(0, None))
    ax.grid(alpha=.3)
    ax.legend(fontsize=8)
    fig.tight_layout()
    fig.savefig(HERE / "results" / "replay.png")


def version_of(peer):
    "Name and version of the peer"
    ask = "import cpprb, importlib.metadata as m; print('cpprb', m.version('cpprb'))"
    done = subprocess.run([peer, "-c", ask], capture_output=True, text=True)
    if done.returncode:
        sys.exit("the peer is not installed there: pip install cpprb, and pass that interpreter with --peer")
    return done.stdout.strip()


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--peer", default=sys.executable)
    args.add_argument("--rounds", type=int, default=7)
    args.add_argument("--write", action="store_true")
    args = args.parse_args()
    version = version_of(args.peer)
    head = (f"Medians of {args.rounds} rounds, the sides in turn, one thread, CPU, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}; peer: {version}.")
    beside = versus(args.peer, args.rounds)
    costs = costs_by_size(max(1, args.rounds // 2))
    lines = ["# Replay", "", "`python benchmarks/replay.py --write`", "", head, "", *beside, "",
             "Cost of 256 rows by length of the memory:", "", *scaling(costs), ""]
    table = "\n".join(lines)
    print(table)
    if args.write:
        figure(costs)
        (HERE / "results" / "replay.md").write_text(table)


if __name__ == "__main__":
    sides = dict(ours=Ours, peer=Peer)
    if sys.argv[1:2] and sys.argv[1] in sides:
        _, side, name, *more = sys.argv
        print(getattr(sides[side](), name)(*more))
    else:
        main()
