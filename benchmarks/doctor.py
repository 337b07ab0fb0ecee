"""Does the doctor name what is wrong, and say nothing where nothing is?

    python benchmarks/doctor.py [--more] [--only WORD …] [--write]

Each fault is put into a run of its own; it counts as named if one of the first two findings is the right one. --more
takes the second set, which was made when the checks for the first one were there, from other kinds of faults, and a
third, a fourth and a fifth one, of which most were written by somebody who had seen no check, a sixth and a
seventh one, of worlds, and an eighth one, of slips in methods.
--write keeps the table in benchmarks/results/doctor.md, that of the second set in doctor_more.md.
"""
import argparse
import time
import warnings
from pathlib import Path

import torch

from benchmarks.doctor_cases import FAULTS, HEALTHY
from benchmarks.doctor_fresh import FRESH_FAULTS, FRESH_HEALTHY
from benchmarks.doctor_methods import METHOD_FAULTS, METHOD_HEALTHY
from benchmarks.doctor_more import MORE_FAULTS, MORE_HEALTHY
from benchmarks.doctor_others import OTHER_FAULTS, OTHER_HEALTHY
from benchmarks.doctor_small import SMALL_FAULTS, SMALL_HEALTHY
from benchmarks.doctor_sums import SUM_FAULTS, SUM_HEALTHY
from benchmarks.doctor_worlds import WORLD_FAULTS, WORLD_HEALTHY

HERE = Path(__file__).resolve().parent


def examined(name, case):
    "(findings in order, seconds that looking took)"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = case.make()
        begun = time.perf_counter()
        found = run.diagnose().names
    run.close()
    print(f"{name}: {', '.join(found) or 'nothing'}", flush=True)
    return found, time.perf_counter() - begun


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", nargs="+", default=[""])
    args.add_argument("--more", action="store_true")
    args.add_argument("--write", action="store_true")
    args = args.parse_args()
    faults = MORE_FAULTS | OTHER_FAULTS | SUM_FAULTS | FRESH_FAULTS | WORLD_FAULTS | SMALL_FAULTS | METHOD_FAULTS
    healthy = MORE_HEALTHY | OTHER_HEALTHY | SUM_HEALTHY | FRESH_HEALTHY | WORLD_HEALTHY | SMALL_HEALTHY
    healthy |= METHOD_HEALTHY
    faults, healthy = (faults, healthy) if args.more else (FAULTS, HEALTHY)
    name_of_page = "doctor_more.md" if args.more else "doctor.md"
    torch.set_num_threads(1)

    lines = ["| run | what was wrong has the name | findings, in order | |", "|---|---|---|---|"]
    right = {}
    for name, case in (faults | healthy).items():
        if not any(word in name for word in args.only):
            continue
        found, seconds = examined(name, case)
        right[name] = bool(set(found[:2]) & set(case.named)) if case.named else not found
        verdict = "right" if right[name] else "wrong"
        lines.append(f"| {name} | {', '.join(case.named) or 'nothing'} | {', '.join(found) or 'nothing'} | {verdict} |")

    named = [right[name] for name in faults if name in right]
    quiet = [right[name] for name in healthy if name in right]
    said = (f"{sum(named)} of {len(named)} faults named in the first two findings; {len(quiet) - sum(quiet)} false "
            f"alarms in {len(quiet)} healthy runs.")
    print(said)
    if args.write:
        more = " --more" * args.more
        page = ["# The doctor", "", f"`python benchmarks/doctor.py{more} --write`", "", said, "", *lines, ""]
        (HERE / "results" / name_of_page).write_text("\n".join(page))


if __name__ == "__main__":
    main()
