"""Does it learn? Every algorithm on its tasks, over fixed seeds, with settings that are fixed in learning_tasks.py.

    python benchmarks/learning.py [--only NAME ...] [--long] [--seeds 5] [--again] [--write]

Prints a table of greedy returns (mean of 100 evaluation episodes a seed). --write keeps each seed as it ends in
benchmarks/results/learning.json, with every setting that it had, and the page with its curves in learning.md. What
stands there already is not run again, unless --again says so or the task or a default has changed since. Tasks marked
as long, all of MuJoCo among them, are run with --long, or by name.
"""
import argparse
import json
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.learning_page import draw, page
from benchmarks.learning_tasks import TASKS, why_stale

RESULTS = Path(__file__).resolve().parent / "results"
KEPT = RESULTS / "learning.json"
LOOKS = 10                                         # at the policy on the way


def learn_it_all(trainer):
    "Learn until nothing is owed any more, where the memory is given"
    while not trainer.settled:
        trainer.until("iteration")
        yield trainer.updates


def learn_in_parts(trainer, steps, parts):
    "Train, with pauses on the way"
    for part in range(1, parts + 1):
        trainer.run(max(0, steps * part // parts - trainer.steps))
        yield trainer.steps


def train(task, seed, looks=LOOKS, final=100):
    "One seed of a task -> its greedy returns on the way, ten episodes at each look, and at the end"
    import torch
    from rlbench import evaluate
    torch.set_num_threads(1)
    trainer = task.trainer(seed)
    spent = 0.
    born = process_time()
    curve = [(0, evaluate(trainer, 10, seed=2).mean)]
    begun = process_time()
    for count in learn_in_parts(trainer, task.steps, looks) if task.steps else learn_it_all(trainer):
        spent += process_time() - begun
        if task.steps: curve.append((count, evaluate(trainer, 10, seed=2).mean))
        begun = process_time()
    end = evaluate(trainer, final, seed=1)
    looking = process_time() - born - spent
    return dict(seed=seed, task=task.told, settings=task.whole, steps=trainer.steps, updates=trainer.updates,
                minutes=round(spent / 60, 2), looking=round(looking / 60, 2), mean=end.mean, std=end.std,
                length=float(end.lengths.mean()), best=best_return(trainer), curve=curve)


def train_one(name, seed):
    "One seed of a line of the table"
    return dict(name=name) | train(TASKS[name], seed)


def best_return(trainer, episodes=50):
    "Return of the policy that is greedy in the exact values of a small world, played there; None where it is not small"
    from rlbench.envs.find import find
    from rlbench.envs.tabular import model_of, solve
    model = model_of(trainer.env.single)
    if model is None: return None
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


def read_rows():
    "{(task, seed): row} of what was measured, however long ago"
    rows = json.loads(KEPT.read_text()) if KEPT.exists() else []
    return {(row["name"], row["seed"]): row for row in rows if row["name"] in TASKS}


def read_kept():
    "{(task, seed): row} of what was measured, as far as tasks and defaults are still the same"
    return {place: row for place, row in read_rows().items() if not why_stale(row)}


def quickest(count):
    "Names of the tasks that a seed takes the fewest minutes of"
    minutes = {}
    for (name, _), row in read_rows().items():
        if row["minutes"] is not None:
            minutes.setdefault(name, []).append(row["minutes"])
    return sorted(minutes, key=lambda name: statistics.median(minutes[name]))[:count]


def in_order(kept):
    "Rows as the tasks stand"
    return sorted(kept.values(), key=lambda row: (list(TASKS).index(row["name"]), row["seed"]))


def put(texts):
    "Write {path: text}; whoever reads meanwhile sees the old ones or the new"
    for path, text in texts.items():
        fresh = path.with_suffix(".tmp")
        fresh.write_text(text)
        fresh.replace(path)


def as_lines(rows):
    "Rows as JSON, one a line"
    lines = ",\n".join(json.dumps(row) for row in rows)
    return f"[\n{lines}\n]\n"


def write(kept):
    "All rows, and the page"
    put({KEPT: as_lines(in_order(kept)), RESULTS / "learning.md": page(in_order(kept))})


def end_with_parent():
    "End this process when its parent is gone, however that ended"
    def watch():
        parent_process().join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def measure(jobs, workers, one=train_one):
    "Rows of the table as they are ready; the workers end with this process"
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        for done in as_completed([pool.submit(one, *job) for job in jobs]):
            row = done.result()
            print(f"  {row['name']} seed {row['seed']}: {row['mean']:.1f} ± {row['std']:.1f} after {row['steps']:,} "
                  f"steps, {row['minutes']:.1f} CPU minutes", flush=True)
            yield row


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", nargs="+", choices=TASKS)
    args.add_argument("--long", action="store_true")
    args.add_argument("--seeds", type=int, default=5)
    args.add_argument("--workers", type=int, default=os.cpu_count())
    args.add_argument("--again", action="store_true")
    args.add_argument("--write", action="store_true")
    args = args.parse_args()

    names = args.only or [name for name, task in TASKS.items() if args.long or not task.long]
    rows = read_rows() if args.write else {}
    stale = {place: why_stale(row) for place, row in rows.items() if why_stale(row)}
    jobs = [(name, seed) for name in names for seed in range(args.seeds)]
    missing = [job for job in jobs if args.again or job not in rows or job in stale]
    for job in missing:
        if job in stale:
            print(f"  {job[0]} seed {job[1]} was {stale[job]}", flush=True)
    print(f"{len(missing)} of {len(jobs)} runs to make", flush=True)
    for row in measure(missing, args.workers):
        rows[row["name"], row["seed"]] = row
        if args.write: write(rows)
    print(page(in_order(rows)))
    if args.write:
        write(rows)
        draw(in_order(rows), RESULTS / "learning.png")


if __name__ == "__main__":
    main()
