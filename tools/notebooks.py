"""Every notebook from top to bottom, two at a time, each in a process of its own.

python tools/notebooks.py                    all of them
python tools/notebooks.py nbs/4_algos/*      these

A notebook that registers a class of its own must not change what the next one finds. So every notebook gets a fork of
a process in which everything large is imported already: a first optimiser alone brings a thousand modules of torch.
"""
import argparse
import gc
import os
import sys
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["OPENBLAS_NUM_THREADS"] = "1"    # before numpy is there: two processes already fill two cores


def run(path):
    "(path, did it run through, seconds)"
    from nbdev.test import test_nb
    passed, seconds = test_nb(path, skip_flags=["slow", "cuda", "notest"], basepath=ROOT)
    return path, passed, seconds


def import_what_they_use():
    "Here, once, and not in every fork"
    import matplotlib.pyplot  # noqa: F401
    import nbdev.test  # noqa: F401
    import torch._dynamo  # noqa: F401
    import rlbench
    torch.set_num_threads(1)
    for name in rlbench.HOMES: getattr(rlbench, name)
    gc.freeze()         # nor looked through in every fork


def main(paths):
    "Run them; the exit status"
    import_what_they_use()
    failed = []
    with get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for path, passed, seconds in pool.imap_unordered(run, paths, chunksize=1):
            print(f"{'ok' if passed else 'FAILED'} {path.relative_to(ROOT)} {seconds:.0f} s", flush=True)
            if not passed:
                failed.append(str(path.relative_to(ROOT)))
    if failed:
        print(f"\nNotebooks that do not run: {', '.join(sorted(failed))}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks; all, when none is named")
    named = [path.resolve() for path in parser.parse_args().paths]
    sys.exit(main(named or sorted((ROOT / "nbs").rglob("*.ipynb"))))
