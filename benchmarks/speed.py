"""How fast, beside Stable-Baselines3 and SBX: every pair is measured in turn, in one call, on one thread.

    python benchmarks/speed.py [--peer PYTHON] [--rounds 5] [--only ppo ppo_traced dqn …] [--write]

PYTHON is an interpreter that has the peers (pip install stable-baselines3 sbx-rl); without it, this one is tried.
Both sides train the same network on the same environment with the same number of updates, and print one number.
The peer has no tables; their goal is a number of steps a second.
--write keeps the table in benchmarks/results/speed.md; with --only, its other lines stay as they are.
"""
import argparse
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE / "results" / "speed.md"


@dataclass(frozen=True)
class Goal:
    "What is measured, and what is to be reached"
    what: str
    unit: str
    bound: float         # of the ratio; without a peer, of ours
    more: bool = True    # whether more is better
    peer: bool = True
    tried: str = ""      # where it is not reached

    def reached(self, number):
        return number >= self.bound if self.more else number <= self.bound

    def __str__(self):
        side = "at least" if self.more else "at most"
        return f"{side} {self.bound:,}{'' if self.peer else ' ' + self.unit}"


GOALS = dict(
    ppo=Goal("PPO, CartPole-v1, 8 environments x 128 steps, 4 epochs of 4 minibatches, 64x64", "steps/s", 2.0),
    dqn=Goal("DQN, CartPole-v1, one update of 64 a step, 64x64", "steps/s", 1.5),
    sac=Goal("SAC, Pendulum-v1, one update of 256 a step, 256x256", "steps/s", 1.0),
    ppo_traced=Goal("the same PPO with traced=True", "steps/s", 2.5),
    ppo_compiled=Goal("the same PPO with compiled=True", "steps/s", 3.0),
    dqn_traced=Goal("the same DQN with traced=True", "steps/s", 2.0),
    sac_sbx=Goal("the same SAC with compiled=True, beside SBX", "steps/s", 1.0),
    td3_sbx=Goal("TD3, Pendulum-v1, one update of 256 a step, 256x256, compiled=True, beside SBX", "steps/s", 1.0),
    sample=Goal("uniform replay, 256 out of 1M transitions of 17 numbers", "µs", 0.5, more=False),
    gae=Goal("advantages, 2048 x 8", "µs", 0.1, more=False),
    qlearning=Goal("Q-learning, rlbench/CliffWalk-v0, nothing set", "steps/s", 5000, peer=False),
    sarsa=Goal("SARSA, rlbench/CliffWalk-v0, nothing set", "steps/s", 5000, peer=False),
)


def once(python, side, name):
    "One measurement in a process of its own"
    threads = dict(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    command = [python, str(HERE / "speed_sides.py"), side, name]
    done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{side} {name} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def alone(name, rounds):
    "Our side -> its median"
    ours = [once(sys.executable, "ours", name) for _ in range(rounds)]
    print(f"  {name}: {', '.join(f'{one:,.0f}' for one in ours)}", flush=True)
    return statistics.median(ours)


def measure(name, peer, rounds):
    "Both sides in turn -> medians and the median of the ratios"
    ours = []
    theirs = []
    ratios = []
    for i in range(rounds):
        ours.append(once(sys.executable, "ours", name))
        theirs.append(once(peer, "peer", name))
        ratios.append(ours[-1] / theirs[-1])
        print(f"  {name} {i + 1}/{rounds}: {ours[-1]:,.0f} / {theirs[-1]:,.0f} = {ratios[-1]:.2f}", flush=True)
    return statistics.median(ours), statistics.median(theirs), statistics.median(ratios)


def line(name, peer, rounds):
    "A line of the table"
    goal = GOALS[name]
    if goal.peer:
        ours, theirs, number = measure(name, peer, rounds)
        beside = f"{theirs:,.0f} {goal.unit} | {number:.2f}"
    else:
        ours = number = alone(name, rounds)
        beside = "– | –"
    verdict = "reached" if goal.reached(number) else "; ".join(filter(None, ("not reached", goal.tried)))
    return f"| {goal.what} | {ours:,.0f} {goal.unit} | {beside} | {goal} | {verdict} |"


def kept_lines():
    "{what: line} of the table as it was written"
    if not PAGE.exists(): return {}
    return {one.split("|")[1].strip(): one for one in PAGE.read_text().splitlines() if one.startswith("| ")}


def versions_of(peer):
    "What the peer is"
    asked = ("from importlib.metadata import version as v; import stable_baselines3, sbx; "
             "print(f\"Stable-Baselines3 {v('stable-baselines3')}, torch {v('torch')}, SBX {v('sbx-rl')}\")")
    done = subprocess.run([peer, "-c", asked], capture_output=True, text=True)
    if done.returncode:
        sys.exit("the peers are not there: pip install stable-baselines3 sbx-rl, and pass that interpreter with --peer")
    return done.stdout.strip()


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--peer", default=sys.executable)
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--only", nargs="+", choices=GOALS, default=list(GOALS))
    args.add_argument("--write", action="store_true")
    args = args.parse_args()

    measured = {GOALS[name].what: name for name in args.only}
    kept = kept_lines() if args.write else {}
    whats = [goal.what for goal in GOALS.values() if goal.what in measured or goal.what in kept]
    peer = versions_of(args.peer) if any(GOALS[name].peer for name in args.only) else "not asked"
    lines = [
        "# Speed",
        "",
        "`python benchmarks/speed.py --write`",
        "",
        f"Medians of {args.rounds} rounds, the two sides in turn, one thread, seconds of the processor, "
        f"Python {platform.python_version()}; peer: {peer}.",
        "",
        "| what | rlbench | peer | ratio | goal | |",
        "|---|---|---|---|---|---|",
        *[line(measured[what], args.peer, args.rounds) if what in measured else kept[what] for what in whats],
        "",
    ]
    page = "\n".join(lines)
    print(page)
    if args.write:
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
