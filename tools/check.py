"""Everything that must hold before a change lands, cheapest first.

python tools/check.py                  every step (make test does this)
python tools/check.py clean sync       the named steps only
"""
import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest"]
TWO = [*PYTEST, "-n", "2", "--dist", "loadfile"]    # at a time; what a file's tests share is made once
LINTS = ["tests/test_project.py", "tests/test_layers.py", "tests/test_style.py"]
BROWSER = "tests/browser"


def tool(name, *words):
    "The command of a tool of ours"
    return [sys.executable, f"tools/{name}.py", *words]


STEPS = {               # name -> (command, limit in seconds)
    "clean": (tool("clean_notebooks", "--check"), 120),
    "sync": (tool("sync", "--check"), 120),
    "readme": (tool("readme", "--check"), 120),
    "pages": (tool("pages", "--check"), 120),
    "lint": ([*TWO, *LINTS], 300),
    "reading": (tool("reading_cost", "--check"), 120),
    "notebooks": (tool("notebooks"), 1500),
    "tests": ([*TWO, "-m", "not long", "--durations=10", *(f"--ignore={path}" for path in (*LINTS, BROWSER))], 1800),
    "browser": ([*PYTEST, "-n", "2", "--timeout", "300", "--timeout-method", "thread", BROWSER], 900),
}


def run(command, limit):
    "Run one step; 'passed', or what went wrong. Its whole process group ends with it"
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        status = process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        end_group(process)
    if status is None: return f"stopped after its {limit} s"
    return "passed" if status == 0 else f"failed with status {status}"


def end_group(process):
    "End what a step left running, and the step itself when it ran out of time"
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return          # nothing left
    process.wait()


def main(names):
    "Run the named steps in order, all of them even when one fails; the exit status"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:       # as a shell starts what it leaves in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    results = {}
    for name in names:
        print(f"\n== {name}", flush=True)
        start = time.monotonic()
        results[name] = run(*STEPS[name])
        print(f"== {name} {results[name]} ({time.monotonic() - start:.0f} s)", flush=True)
    failed = [name for name in names if results[name] != "passed"]
    if failed:
        again = f"{os.path.relpath(sys.executable, ROOT)} tools/check.py {failed[0]}"
        print(f"\nNot in order: {', '.join(failed)}. One step again: {again}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="step", help=f"out of: {' '.join(STEPS)}; all when none is named")
    steps = parser.parse_args().steps or list(STEPS)
    unknown = [step for step in steps if step not in STEPS]
    if unknown:
        parser.error(f"no step {' '.join(unknown)}; there are: {' '.join(STEPS)}")
    sys.exit(main(steps))
