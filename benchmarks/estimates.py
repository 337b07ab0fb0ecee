"""Do the intervals of off-policy estimates hold the truth? Worlds that are solved exactly, a hundred memories of each.

    python benchmarks/estimates.py [--repeats 100] [--write]

Prints how often the 95 % interval of every method held the exact value and how wide it was (median), both for the
jackknife and the bootstrap, how far the estimates lay from the truth, and how many episodes were worth something.
--write keeps it in benchmarks/results/estimates.md.
"""
import argparse
import os
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.envs.tabular import Tabular, evaluate_policy
from rlbench.training.estimate import INTERVALS, METHODS, estimate

PAGE = Path(__file__).resolve().parent / "results" / "estimates.md"
GAMMA = .9


def walk(places=5):
    "Places in a row; a step goes the other way one time in five; the last pays 1 and is the end"
    last = places - 1
    def towards(place, by):
        there = max(0, place + by)
        return there, float(there == last), there == last
    def outcomes(place, by):
        return [(.8, *towards(place, by)), (.2, *towards(place, -by))]
    table = [[outcomes(place, -1), outcomes(place, 1)] for place in range(last)]
    return Tabular([*table, [[(1., last, 0., True)]] * 2], [1] + [0] * last)


def garden(end=.2):
    "Six states, three actions, chances and rewards drawn once; every step may be the last, with chance `end`"
    rng = np.random.default_rng(0)
    table = []
    for _ in range(6):
        rows = []
        for _ in range(3):
            chances = rng.dirichlet(np.ones(6)) * (1 - end)
            rew = rng.normal(size=6)
            rows.append([(end, 6, 0., True), *zip(chances, range(6), rew, [False] * 6)])
        table.append(rows)
    return Tabular([*table, [[(1., 6, 0., True)]] * 3], [.5, .5, 0, 0, 0, 0, 0])


def policies(world, far=.5):
    "(behaviour, the policy in question), (S, A) probabilities; `far` is the share in which they differ"
    S, A = world.model().R.shape
    rng = np.random.default_rng(1)
    return np.full((S, A), 1 / A), (1 - far) / A + far * rng.dirichlet(np.ones(A), size=S)


@dataclass(frozen=True)
class Case:
    "A world, how far the policy in question is from the one that was watched, and for how many episodes it was"
    world: Tabular
    far: float = .5
    episodes: int = 60


CASES = {
    "walk": Case(walk()),
    "walk, 20 episodes": Case(walk(), episodes=20),
    "walk, policy far away": Case(walk(), far=.9),
    "walk of eight places": Case(walk(8)),
    "garden": Case(garden()),
    "garden, 200 episodes": Case(garden(), episodes=200),
    "garden, policy far away": Case(garden(), far=.9),
    "garden, four times as long": Case(garden(.05)),
    "the same, policy near": Case(garden(.05), far=.2),
}


def watched(world, behaviour, episodes, rng):
    "A Ring with whole episodes of a policy (S, A), and how likely its actions were"
    rows = []
    for _ in range(episodes):
        obs, _ = world.reset(seed=int(rng.integers(2**31)))
        ended = False
        while not ended:
            act = int(rng.choice(behaviour.shape[1], p=behaviour[obs]))
            next_obs, rew, ended, _, _ = world.step(act)
            rows.append((obs, act, rew, ended, next_obs, np.log(behaviour[obs, act])))
            obs = next_obs
    obs, act, rew, term, next_obs, logp = (np.array(column)[:, None] for column in zip(*rows))
    ring = Ring(len(rows), 1)
    ring.extend(Batch(obs=obs, act=act, rew=rew, term=term, trunc=np.zeros_like(term), next_obs=next_obs, logp=logp))
    return ring


def coverage(case, repeats, methods=METHODS, interval="jackknife"):
    "{method: (share of intervals that hold the truth, their median width, RMS error, mean effective episodes)}, truth"
    world = case.world
    behaviour, wanted = policies(world, case.far)
    truth = world.initial_state_distrib @ evaluate_policy(world.model(), wanted, GAMMA)
    found = {method: [] for method in methods}
    for repeat in range(repeats):
        memory = watched(world, behaviour, case.episodes, np.random.default_rng(repeat))
        for method in methods:
            one = estimate(lambda obs: wanted[obs], memory, method, GAMMA, interval=interval)
            found[method].append((one.low <= truth <= one.high, one.high - one.low, one.value - truth, one.effective))
    return {method: summed_up(np.array(rows)) for method, rows in found.items()}, truth


def summed_up(rows):
    "(share held, median width, RMS error, mean effective episodes) of rows (R, 4)"
    held, width, error, worth = rows.T
    return held.mean(), np.median(width), np.sqrt((error**2).mean()), worth.mean()


def page(repeats):
    "The whole page"
    lines = ["# Off-policy estimates", "", "`python benchmarks/estimates.py --write`", "",
             f"{repeats} memories of 60 episodes of each world, where it says nothing else; how many of the 95 % "
             "intervals held the exact value, their median width, and the root mean square error of the estimate. The "
             "jackknife leaves episodes out; the bootstrap draws them anew.", "",
             "| world | exact | method | jackknife held | width | bootstrap held | width | error | "
             "episodes that counted |",
             "|---|---|---|---|---|---|---|---|---|"]
    least = dict.fromkeys(INTERVALS, 1.)
    for name, case in CASES.items():
        both, (truth, _) = zip(*(coverage(case, repeats, interval=interval) for interval in INTERVALS))
        for method in METHODS:
            *_, error, worth = both[0][method]
            cells = []
            for interval, found in zip(INTERVALS, both):
                held, width = found[method][:2]
                least[interval] = min(least[interval], held)
                cells.append(f"{held:.2f} | {width:.2f}")
            lines.append(f"| {name} | {truth:.3f} | {method} | {' | '.join(cells)} | {error:.3f} | {worth:.1f} |")
    told = ", ".join(f"{interval} {held:.2f}" for interval, held in least.items())
    return "\n".join([*lines, "", f"The fewest that held it: {told}.", ""])


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--repeats", type=int, default=100)
    args.add_argument("--write", action="store_true")
    args = args.parse_args()
    text = page(args.repeats)
    print(text)
    if args.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
