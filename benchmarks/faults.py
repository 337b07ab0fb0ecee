"""What goes wrong when things go wrong: hostile files, unlucky moments, odd settings.

    python benchmarks/faults.py [--only FAMILY ...] [--cases 300] [--write]

Every case ends as one of these:

    refused    one of our own errors, in one clear message
    went on    nothing was wrong after all, and the run goes on
    FOREIGN    an error that is not ours
    CRASHED    accepted, and then an error, or the end of the process
    WRONG      accepted, and something else than promised came of it

The last three are faults: where there are any, they are told case by case, and the exit status is 1.
--write keeps the counts in benchmarks/results/faults.md.
"""
import argparse
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.fault_cases import FAULTS, OUTCOMES, ROOT, RUNS, begun, go_on, ours, outcome_of
from benchmarks.fault_liars import liars
from benchmarks.fault_uses import misuse, soak, wrong_environments

PAGE = ROOT / "benchmarks" / "results" / "faults.md"

# ---- checkpoints with one thing wrong

def places(tree, at=()):
    "The way to every part of a tree"
    yield at
    if isinstance(tree, dict): inside = tree.items()
    elif isinstance(tree, (list, tuple)): inside = enumerate(tree)
    else: inside = ()
    for name, part in inside:
        yield from places(part, (*at, name))


def part_at(tree, at):
    "The part of a tree that a way leads to"
    for name in at:
        tree = dict.__getitem__(tree, name) if isinstance(tree, dict) else tree[name]
    return tree


def replaced(tree, at, value):
    "The tree with something else at a place"
    if not at: return value
    first, *rest = at
    inside = replaced(part_at(tree, [first]), rest, value)
    if isinstance(tree, tuple):
        return tuple(inside if i == first else part for i, part in enumerate(tree))
    twin = copy.copy(tree)
    if isinstance(tree, dict): dict.__setitem__(twin, first, inside)
    else: twin[first] = inside
    return twin


def without(tree, rng):
    "A dictionary, list or array with one part less"
    if isinstance(tree, dict):
        gone = rng.choice(list(tree))
        return type(tree)({name: part for name, part in tree.items() if name != gone})
    return tree[:-1]


def worse(part, rng):
    "Something that should not stand where this part stands"
    import torch
    kinds = [None, "text", -1, 10**30, 1.5, float("nan"), [], {}, True, (1, 2), [[1], [2]], {"a": 1}]
    if isinstance(part, (np.ndarray, torch.Tensor)) and part.ndim:
        half = part[:len(part) // 2]
        is_array = isinstance(part, np.ndarray)
        doubled = np.concatenate([part, part]) if is_array else torch.cat([part, part])
        kinds += [half, doubled, part.swapaxes(0, -1), part[None], part[:0]]
        if is_array:
            kinds += [part.astype(np.int8), part.astype(str), torch.zeros(3)]
        else:
            kinds += [part.double(), part.int(), part.numpy()]
        if part.dtype not in (bool, torch.bool):
            kinds += [part * 0 + 1, part + 10**6, -part - 1]
    if isinstance(part, (dict, list)) and part:
        kinds += [without(part, rng)] * 4
    if isinstance(part, int):
        kinds += [part + 1, -part - 1, 10**12]
    return rng.choice(kinds)


def hostile_trees(rng, folder):
    "(name, outcome) of checkpoints that hold one wrong thing"
    from rlbench import load
    from rlbench.core.state import read_tree, write_tree
    trees = {}
    for name in RUNS:
        begun(name).save(folder / "run.rlb")
        trees[name] = read_tree(folder / "run.rlb", "checkpoint")
    ways = {name: list(places(tree)) for name, tree in trees.items()}
    while True:
        name = rng.choice(list(RUNS))
        at = rng.choice(ways[name])
        sly = replaced(trees[name], at, worse(part_at(trees[name], at), rng))
        try: write_tree(folder / "sly.rlb", sly, "checkpoint")
        except TypeError:                                 # not to be written at all
            continue
        told = f"{name}: {'.'.join(map(str, at))} is {str(part_at(sly, at))[:60]!r}"
        yield told, partial(outcome_of, partial(load, folder / "sly.rlb"), go_on)


def damaged_bytes(rng, folder):
    "(name, outcome) of checkpoints in which bytes were changed, lost or doubled"
    from rlbench import load
    whole = {}
    for name in RUNS:
        begun(name).save(folder / "run.rlb")
        whole[name] = (folder / "run.rlb").read_bytes()
    while True:
        name = rng.choice(list(RUNS))
        content = bytearray(whole[name])
        at = rng.randrange(len(content))
        if rng.random() < .5:                             # at the end, where the names are
            at = max(0, len(content) - rng.randrange(1, 20_000))
        how = rng.choice(["changed", "cut", "lost", "doubled"])
        if how == "changed": content[at] ^= 1 << rng.randrange(8)
        if how == "cut": del content[at:]
        few = rng.randrange(1, 50)
        if how == "lost": del content[at:at + few]
        if how == "doubled": content[at:at] = content[at:at + few]
        (folder / "sly.rlb").write_bytes(content)
        yield f"{name}: byte {at:,} {how}", partial(outcome_of, partial(load, folder / "sly.rlb"), go_on)


# ---- data sets and recordings

def learned_from(ring):
    "What a memory that was accepted must be able to do"
    import rlbench
    from rlbench.buffers.datasets import subset
    index = ring.latest()
    ring.ahead(index, 3)
    subset(ring, index).whole_episodes()
    learner = rlbench.Trainer("CartPole-v1", "bc", memory=ring, batch_size=4, hidden=(4,))
    learner.run(updates=2)
    learner.env.close()


def small_ring():
    "Some steps of CartPole, as they lie in the memory of a run"
    return begun("dqn").learner.memory.twin()


def changed_text(text, rng):
    "A text with a few letters changed, lost, doubled or exchanged for what could stand there"
    at = rng.randrange(len(text))
    to = at + rng.randrange(1, 6)
    odd = rng.choice(["", "-", "9", "999999999999", "1e999", "NaN", "null", "[]", "{}", '"x"', "true", "../", "\n"])
    return text[:at] + rng.choice([odd, text[at:to] * 2]) + text[to:]


def hostile_data(rng, folder):
    "(name, outcome) of data sets in which one thing is wrong"
    from rlbench.buffers.datasets import load_ring, read_lines, save_ring, write_lines
    from rlbench.buffers.ring import Ring
    from rlbench.core.state import read_tree, write_tree
    ring = small_ring().twin(Ring)
    save_ring(folder / "data.rlb", ring)
    tree = read_tree(folder / "data.rlb", "memory")
    ways = list(places(tree))
    write_lines(folder / "data.jsonl", ring)
    text = (folder / "data.jsonl").read_text()
    while True:
        if rng.random() < .5:
            sly = changed_text(text, rng)
            if rng.random() < .5:                         # in the first line, which says what all others are
                first, rest = text.split("\n", 1)
                sly = changed_text(first, rng) + "\n" + rest
            (folder / "sly.jsonl").write_text(sly)
            yield f"lines: {sly[:60]!r}", partial(outcome_of, partial(read_lines, folder / "sly.jsonl"), learned_from)
            continue
        at = rng.choice(ways)
        sly = replaced(tree, at, worse(part_at(tree, at), rng))
        try: write_tree(folder / "sly.rlb", sly, "memory")
        except TypeError: continue
        told = f"ring: {'.'.join(map(str, at))} is {str(part_at(sly, at))[:60]!r}"
        yield told, partial(outcome_of, partial(load_ring, folder / "sly.rlb"), learned_from)


def worse_json(text, rng):
    "JSON with one wrong part, or text that may be none any more"
    tree = json.loads(text)
    at = rng.choice(list(places(tree)))
    try: return json.dumps(replaced(tree, at, worse(part_at(tree, at), rng)))
    except TypeError: return changed_text(text, rng)


VALUES_OF = dict(obs=[np.nan, np.inf, 1], next_obs=[-np.inf, 2], act=[-1, 2, 10**6, 1], rew=[np.nan, np.inf, -5],
                 term=[2, 1], trunc=[255, 0])   # of each column some that cannot be, and one that can


def spoil(folder, name, rng):
    "Put something else into one row of a column"
    column = np.load(folder / f"{name}.npy", mmap_mode="r+")
    numbers = column.view(np.uint8) if column.dtype == bool else column
    numbers[rng.randrange(len(column))] = rng.choice(VALUES_OF[name])
    column.flush()


def recorded_on(recorder):
    "What a recording that was accepted must be able to do"
    learned_from(recorder)
    rows = recorder.gather(recorder.latest())
    for i in range(min(3, len(rows))):
        recorder.add(rows[i:i + 1])
    recorder.ahead(recorder.latest(), 3)
    recorder.close()


def hostile_recordings(rng, folder):
    "(name, outcome) of recordings in which one thing is wrong"
    from rlbench.buffers.recordings import open_recording, start_recording
    ring = small_ring()
    recorder = start_recording(folder / "good", 20, 1, 4)
    rows = ring.gather(ring.latest())
    for i in 2 * list(range(len(rows))):
        recorder.add(rows[i:i + 1])
    recorder.close()
    files = sorted((folder / "good").iterdir())
    while True:
        sly = folder / "sly"
        shutil.rmtree(sly, ignore_errors=True)
        shutil.copytree(folder / "good", sly)
        file = sly / rng.choice([*[one.name for one in files], *["ring.json"] * len(files)])
        spoiled = rng.choice(list(VALUES_OF))
        if rng.random() < .3:
            file = sly / f"{spoiled}.npy"
            spoil(sly, spoiled, rng)
        elif file.name == "ring.json":
            file.write_text(worse_json(file.read_text(), rng))
        else:
            content = bytearray(file.read_bytes())
            at = rng.randrange(128 if rng.random() < .7 else len(content))
            how = rng.choice(["changed", "cut", "lost", "doubled"])
            if how == "changed": content[at] ^= 1 << rng.randrange(8)
            if how == "cut": del content[at:]
            if how == "lost": del content[at:at + 3]
            if how == "doubled": content[at:at] = content[at:at + 3]
            file.write_bytes(content)
        told = f"recording: {file.name}: {file.read_bytes()[:70]!r}"
        yield told, partial(outcome_of, partial(open_recording, sly), recorded_on)


# ---- settings

VALUES = [None, "", "text", "5", 0, -1, 1, 3, .5, -.5, 1.5, 10**9, 10**30, float("nan"), float("inf"), True, (), (3,),
          (-3,), [4, 4], {}, "none", b"x"]


def odd_settings(rng, folder):
    "(name, outcome) of runs with one odd setting"
    import rlbench
    from rlbench.training.setup import cast_for, config_for
    from rlbench.envs.find import find
    while True:
        name = rng.choice(list(RUNS))
        env, algo, settings, _ = RUNS[name]
        known = [setting for _, setting in config_for(cast_for(find(env, {}), algo)).known]
        setting = rng.choice(known)
        value = rng.choice(VALUES)
        chosen = settings | {setting: value}
        made = partial(rlbench.Trainer, env, algo, **chosen)
        yield f"{name}: {setting}={value!r}", partial(outcome_of, made, go_on)


# ---- interrupts: Ctrl-C after any time

WAYS = {
    "run": lambda trainer: trainer.run(steps=10**9),
    "until": lambda trainer: trainer.until("step", 10**9),
    "iterate": lambda trainer: [None for _ in trainer],
    "advance": lambda trainer: [None for _ in iter(trainer.advance, None)],
}


def after_interrupt(name, way, seconds, folder):
    "Interrupt a run, save, load, go on; it must become what it would have become"
    import rlbench
    from rlbench.core.state import same
    trainer = begun(name)
    seen = []
    trainer.watchers.append(lambda _, event: seen.append(event.kind))
    signal.setitimer(signal.ITIMER_REAL, seconds, 5)      # once more, should it be lost in a destructor
    try: WAYS[way](trainer)
    except KeyboardInterrupt: pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    try: trainer.save(folder / "here.rlb")
    except ours() as problem:
        return "refused", str(problem)
    calm = begun(name)
    for _ in seen:
        calm.advance()
    if not same(calm.state(), trainer.state()):
        return "WRONG", "not the run that was never interrupted"
    again = rlbench.load(folder / "here.rlb")
    for _ in range(30):
        calm.advance()
        again.advance()
    return ("went on", "") if same(calm.state(), again.state()) else ("WRONG", "not the same after loading")


def interrupts(rng, folder):
    "(name, outcome) of runs that were interrupted"
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    while True:
        name = rng.choice(list(RUNS))
        way = rng.choice(list(WAYS))
        seconds = rng.uniform(.002, .2)
        yield f"{name}: {way}, {seconds:.3f} s", partial(after_interrupt, name, way, seconds, folder)


# ---- kills: the process ends, at any time

def train_command(folder, *words):
    return [sys.executable, "-m", "rlbench", "train", "CartPole-v1", "dqn", "--folder", str(folder), "--run-id", "run",
            "--steps", "3000", "--set", "checkpoint_every=200", "--set", "eval_every=0", "--quiet", *words]


def after_kill(seconds, sign, folder, whole):
    "Kill a run, resume it to the end; it must become what it would have become"
    from rlbench.core.state import read_tree, same
    from rlbench.training.checkpoints import newest
    subprocess.run(["rm", "-rf", str(folder / "run")], check=True)
    killed = subprocess.Popen(train_command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    time.sleep(seconds)
    killed.send_signal(sign)
    killed.wait()
    begun_at_all = (folder / "run" / "config.json").exists()
    again = subprocess.run(train_command(folder, *(["--resume"] if begun_at_all else [])), capture_output=True,
                           text=True, cwd=ROOT)
    if again.returncode: return "CRASHED", again.stderr[-300:]
    got = read_tree(newest(folder / "run"), "checkpoint")["state"]
    return ("went on", "") if same(got, whole) else ("WRONG", "not the run that was never killed")


def kills(rng, folder):
    "(name, outcome) of runs whose process was ended"
    from rlbench.core.state import read_tree
    from rlbench.training.checkpoints import newest
    subprocess.run(train_command(folder), check=True, capture_output=True, cwd=ROOT)
    whole = read_tree(newest(folder / "run"), "checkpoint")["state"]
    while True:
        seconds = rng.uniform(1.5, 6)
        sign = rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        yield f"{sign.name} after {seconds:.1f} s", partial(after_kill, seconds, sign, folder, whole)


# ---- all of them

FAMILIES = {    # name -> (generator of cases, share of the number of cases that is asked for)
    "checkpoints with one wrong thing": (hostile_trees, 1),
    "damaged bytes": (damaged_bytes, 1),
    "data sets": (hostile_data, 1),
    "recordings": (hostile_recordings, 1),
    "odd settings": (odd_settings, 1),
    "interrupts": (interrupts, .5),
    "kills": (kills, .1),
    "environments that cannot go back": (liars, .5),
    "wrong environments": (wrong_environments, 1),
    "misuse": (misuse, 1),
    "soak": (soak, .04),
}


def play(family, first, last):
    "The cases of a family from one number up to another: one line for each"
    import torch
    torch.set_num_threads(1)
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, run) in enumerate(FAMILIES[family][0](rng, Path(folder))):
            if number >= last: return
            if number < first: continue
            print(f"#{number}\t{name}", flush=True)
            outcome, why = run()
            print(f"={number}\t{outcome}\t{name}\t{' '.join(why.split())[:300]}", flush=True)


def outcomes(family, cases):
    "[(outcome, name, why), …]; a process that ends before its time is a crash, and another one goes on behind it"
    found = []
    while len(found) < cases:
        command = [sys.executable, __file__, "--family", family, str(len(found)), str(cases)]
        env = os.environ | dict(OMP_NUM_THREADS="1")
        child = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
        ended = [line.split("\t") for line in child.stdout.splitlines() if line.startswith("=")]
        found += [(outcome, name, why) for _, outcome, name, why in ended]
        if len(found) < cases:
            found.append(("CRASHED", f"case {len(found)}", f"exit status {child.returncode}: {child.stderr[-300:]}"))
    return found


def page(counts, command):
    "The counts as a page"
    lines = ["<!-- Written by benchmarks/faults.py -->", "", "# What goes wrong when things go wrong", "",
             f"`{command}`, with no faults where the last three columns are 0.", "",
             "| family | cases | " + " | ".join(OUTCOMES) + " |", "|---" * (len(OUTCOMES) + 2) + "|"]
    for family, count in counts.items():
        numbers = " | ".join(str(count[outcome]) for outcome in OUTCOMES)
        lines.append(f"| {family} | {count.total()} | {numbers} |")
    return "\n".join(lines) + "\n"


def main(only, cases, write):
    counts = {}
    for family, (_, share) in FAMILIES.items():
        if only and not any(word in family for word in only): continue
        found = outcomes(family, max(1, int(cases * share)))
        counts[family] = Counter(outcome for outcome, _, _ in found)
        print(f"{family}: {dict(counts[family])}", flush=True)
        for outcome, name, why in found:
            if outcome in FAULTS:
                print(f"  {outcome} {name}\n      {why}", flush=True)
    command = f"python benchmarks/faults.py --cases {cases}"
    if write:
        PAGE.write_text(page(counts, command), encoding="utf-8")
    return any(count[fault] for count in counts.values() for fault in FAULTS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="families whose name has one of these words")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--write", action="store_true", help="keep the counts")
    parser.add_argument("--family", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.family:
        family, first, last = asked.family
        play(family, int(first), int(last))
    else: sys.exit(main(asked.only, asked.cases, asked.write))
