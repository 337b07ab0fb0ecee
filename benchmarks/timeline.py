"""What going back costs: keeping a timeline, the way to any earlier event, breakpoints, a fork.

    python benchmarks/timeline.py [--events 100000] [--rounds 7] [--write]

PPO on CartPole-v1 with its defaults. Seconds are those of the processor, because others may be on the machine: two runs
beside each other differ by more than what is measured then, so the seconds are taken that are spent in the watcher or
in the condition itself. --write keeps the table in benchmarks/results/timeline.md.
"""
import argparse
import os
import statistics
import sys
from functools import partial
from pathlib import Path
from time import process_time, thread_time

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch

PART = 3000             # events of one measurement
BREAKPOINTS = ("nan", "kl > 1e9", "episode_return > 1e9")


def trainer():
    from rlbench import Trainer
    return Trainer("CartPole-v1", "ppo", seed=0)


def seconds_of(go):
    "Of the processor, for what a function does"
    begun = process_time()
    go()
    return process_time() - begun


class Clocked:
    "A function, and the seconds of the processor that it took in all"

    def __init__(self, function):
        self.function = function
        self.looking = 0.       # seconds that looking at the clock takes, each time
        self.seconds = 0.

    def __call__(self, *args):
        begun = thread_time()
        answer = self.function(*args)
        self.seconds += thread_time() - begun - self.looking
        return answer


def clocked_by(function):
    "The function on a clock whose own seconds do not count"
    bare = Clocked(lambda: None)
    for _ in range(10_000): bare()
    clocked = Clocked(function)
    clocked.looking = bare.seconds / 10_000
    return clocked


def share_of(clocked, go, rounds):
    "Share of the time of the rest that goes into one function, as the median over rounds"
    go()
    found = []
    for _ in range(rounds):
        clocked.seconds = 0.
        whole = seconds_of(go)
        if not clocked.seconds:
            raise RuntimeError("nobody asked what was to be measured")
        found.append(clocked.seconds / (whole - clocked.seconds))
    return statistics.median(found)


def timeline_share(rounds):
    "What a run is slower by with a timeline"
    from rlbench.lab.time.timeline import Timeline
    laden = trainer()
    clocked = clocked_by(Timeline(laden).note)
    laden.watchers = [clocked]
    return share_of(clocked, partial(laden.until, "event", PART), rounds)


def breakpoint_share(text, rounds):
    "What playing is slower by with a breakpoint"
    from rlbench.lab.time.player import Player
    laden = Player(trainer(), "sync")
    laden.stops.add(text, laden.trainer)
    hearing = laden.stops.hearing

    def asked(trainer, event):
        [(_, kept, ask)] = hearing[event.marks]
        return "" if kept and kept(trainer, event) else ask(trainer, event)

    clocked = clocked_by(asked)
    laden.stops.hearing = {marks: [(1, None, clocked)] * len(there) for marks, there in hearing.items()}
    return share_of(clocked, partial(laden.step, "event", PART), rounds)


def ways_back(events, tries=30):
    "(seconds to random events of a run, MB that its snapshots take)"
    from rlbench.lab.time.timeline import Timeline
    run = trainer()
    timeline = Timeline(run)
    run.until("event", events)
    took = []
    for event in np.random.default_rng(0).integers(0, events, tries):
        took.append(seconds_of(partial(timeline.rewind, int(event))))
    return took, timeline.album.shelf.nbytes / 1e6


def fork_seconds(tries=10):
    "Seconds until a fork is ready beside a run"
    from rlbench.lab.time.player import Player
    player = Player(trainer(), "sync")
    player.step("event", 5000)
    took = []
    for _ in range(tries):
        runs = []
        took.append(seconds_of(lambda: runs.append(player.beside(lr=1e-4).result())))
        player.drop(runs[0].name).result()
    return took


def line(what, value, goal, reached):
    return f"| {what} | {value} | {goal} | {'reached' if reached else 'not reached'} |"


def table(args):
    "What was measured, beside what is asked for"
    share = timeline_share(args.rounds)
    took, megabytes = ways_back(args.events)
    forks = fork_seconds()
    lines = [
        line("a timeline, of the time of a run", f"{share:.1%}", "at most 2 %", share <= .02),
        line(f"to a random event of {args.events:,}, median of {len(took)}", f"{statistics.median(took):.2f} s",
             "at most 0.3 s", statistics.median(took) <= .3),
        line("to the farthest of them", f"{max(took):.2f} s", "at most 0.3 s", max(took) <= .3),
        line("what its snapshots take", f"{megabytes:.0f} MB", "at most 256 MB", megabytes <= 256),
        line("a fork beside the run, the slowest of ten", f"{max(forks):.2f} s", "at most 0.5 s", max(forks) <= .5),
    ]
    for text in BREAKPOINTS:
        share = breakpoint_share(text, args.rounds)
        lines.append(line(f"the breakpoint `{text}`, of the time of playing", f"{share:.1%}", "below 1 %", share < .01))
    return "\n".join([
        "# Going back", "",
        "`python benchmarks/timeline.py --write`", "",
        f"PPO on CartPole-v1, one thread; medians of {args.rounds} rounds of {PART:,} events. "
        "Seconds are those of the processor.", "",
        "| what | measured | goal | |", "|---|---|---|---|", *lines, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = table(args)
    print(found)
    if args.write:
        (ROOT / "benchmarks" / "results" / "timeline.md").write_text(found)
