"""What has to be read to follow PPO from an observation to a gradient step?

A short run on CartPole is traced: which functions of the library run, how long they are, and how often the path goes on
in another file while an environment step is taken. Where stable_baselines3 is installed, its PPO is measured likewise.

python tools/reading_cost.py            measure, and write benchmarks/results/reading_cost.md
python tools/reading_cost.py --check    measure; exit 1 where a target is missed, write nothing
"""
import argparse
import ast
import importlib.util
import io
import sys
import tokenize
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))           # the package beside this folder, installed or not
PAGE = ROOT / "benchmarks" / "results" / "reading_cost.md"
STEPS = 64              # environment steps that are traced
PEER = 6514             # tokens of Stable-Baselines3's whole call, by the same count
TARGETS = dict(files=10, lines=250, tokens=3340, jumps=9)
LAYOUT = {              # tokens that are no reading matter
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


class Trace:
    "Every call of a function that stands in a folder, in the order of the calls"

    def __init__(self, folder):
        self.folder = str(folder)
        self.calls = []                 # code objects

    def __call__(self, frame, event, _):
        code = frame.f_code
        ours = event == "call" and code.co_filename.startswith(self.folder)
        if ours and not code.co_name.startswith("<"):       # comprehensions and lambdas are part of a function
            self.calls.append(code)

    def __enter__(self):
        sys.setprofile(self)
        return self

    def __exit__(self, *problem):
        sys.setprofile(None)


@dataclass(frozen=True)
class Cost:
    "What a traced run asks a reader for"
    files: int
    functions: int
    lines: int
    tokens: int
    jumps: float        # changes of file in one environment step


def functions_in(path):
    "{first line, decorators included: node} of every function in a file"
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            found[min([node.lineno, *(one.lineno for one in node.decorator_list)])] = node
    return found


def docstring_lines(node):
    "Numbers of the lines that hold nothing but a function's docstring"
    first = node.body[0]
    if ast.get_docstring(node) is None or first.lineno == node.lineno:
        return set()
    return set(range(first.lineno, first.end_lineno + 1))


def code_lines(path, firsts):
    "Numbers of the lines of code in the functions that begin at these lines"
    text = path.read_text(encoding="utf-8").splitlines()
    wanted = set()
    for first, node in functions_in(path).items():
        if first in firsts:
            wanted |= set(range(node.lineno, node.end_lineno + 1)) - docstring_lines(node)
    return {number for number in wanted if text[number - 1].strip() and not text[number - 1].lstrip().startswith("#")}


def tokens_in(path, lines):
    "Tokens on these lines, comments and layout left out"
    text = path.read_text(encoding="utf-8")
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.start[0] in lines and token.type not in LAYOUT for token in found)


def cost_of(*traces):
    "The cost of some traces together; the first is the one whose jumps are counted"
    firsts = {}
    for code in (code for trace in traces for code in trace.calls):
        firsts.setdefault(Path(code.co_filename), set()).add(code.co_firstlineno)
    read = {path: code_lines(path, numbers) for path, numbers in firsts.items()}
    path = [code.co_filename for code in traces[0].calls]
    return Cost(
        files=len(firsts),
        functions=sum(map(len, firsts.values())),
        lines=sum(map(len, read.values())),
        tokens=sum(tokens_in(path, lines) for path, lines in read.items()),
        jumps=sum(one != other for one, other in zip(path, path[1:])) / STEPS,
    )


def ours():
    "The cost of this library's PPO: of its steps, and of the whole call"
    import rlbench
    folder = Path(rlbench.__file__).parent
    settings = dict(seed=0, num_envs=1, n_steps=STEPS)
    trainer = rlbench.Trainer("CartPole-v1", "ppo", **settings)
    with Trace(folder) as acting:
        left = STEPS
        while left:
            left -= trainer.advance().kind == "collect"
    with Trace(folder) as learning:
        while trainer.advance().kind != "learn":
            pass
    trainer = rlbench.Trainer("CartPole-v1", "ppo", **settings)
    with Trace(folder) as whole:
        trainer.run(steps=2 * STEPS)
    return cost_of(acting, learning), cost_of(whole)


def theirs():
    "The same of Stable-Baselines3's PPO; None where it is not installed"
    if importlib.util.find_spec("stable_baselines3") is None: return None
    import stable_baselines3
    folder = Path(stable_baselines3.__file__).parent

    def agent():
        return stable_baselines3.PPO("MlpPolicy", "CartPole-v1", seed=0, n_steps=STEPS, batch_size=STEPS)

    stepped = agent()
    _, callback = stepped._setup_learn(10 * STEPS)
    with Trace(folder) as acting:
        stepped.collect_rollouts(stepped.env, callback, stepped.rollout_buffer, n_rollout_steps=STEPS)
    with Trace(folder) as learning:
        stepped.train()
    called = agent()
    with Trace(folder) as whole:
        called.learn(2 * STEPS)
    return cost_of(acting, learning), cost_of(whole)


INTRO = f"""<!-- Written by tools/reading_cost.py -->

# What PPO's way costs to read

PPO on CartPole is traced through {STEPS} environment steps and a gradient step. Counted are all functions of the
library that run: their files, lines and tokens, without blank lines, comments and docstrings. The last column is how
often the path goes on in another file, for each environment step.

*Steps* is what happens again and again: `advance` here, `collect_rollouts` and `train` there. *Whole call* is
everything from `run` or `learn` on, with what a library does besides (progress, logging, callbacks), without the
construction.
The target for tokens is about half of the {PEER:,} which an earlier count found in Stable-Baselines3's whole call.

| | files | functions | lines | tokens | changes of file a step |
|---|---|---|---|---|---|
"""
EARLIER = """
Stable-Baselines3 is not installed here; its line is an earlier measurement of its whole call, by the same count. Where
the package is installed, it is measured anew, its steps too.
"""


def row(name, cost, jumps=True):
    "One line of the table"
    changes = f"{cost.jumps:.1f}" if jumps else ""
    return f"| {name} | {cost.files} | {cost.functions} | {cost.lines:,} | {cost.tokens:,} | {changes} |\n"


def both(name, costs):
    "The lines of one library"
    steps, whole = costs
    return row(f"{name}, steps", steps) + row(f"{name}, whole call", whole, jumps=False)


def page(mine, peer):
    "The table as a page"
    limits = [f"at most {TARGETS[name]:,}" for name in ("files", "lines", "tokens", "jumps")]
    files, lines, tokens, jumps = limits
    text = INTRO + f"| target for steps | {files} | | {lines} | {tokens} | {jumps} |\n" + both("rlbench", mine)
    if peer:
        return text + both(f"Stable-Baselines3 {version('stable_baselines3')}", peer)
    return text + f"| Stable-Baselines3, whole call | 15 | | 708 | {PEER:,} | |\n" + EARLIER


def missed(cost):
    "Which targets a cost misses, in words"
    return [f"{name}: {getattr(cost, name):g}, expected at most {limit}" for name, limit in TARGETS.items()
            if getattr(cost, name) > limit]


def main(check):
    mine = ours()
    text = page(mine, theirs())
    print(text.removeprefix(INTRO.rpartition("\n\n")[0]).strip())
    if not check:
        PAGE.write_text(text, encoding="utf-8", newline="\n")
    wrong = missed(mine[0])
    for line in wrong:
        print(line, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    sys.exit(main(parser.parse_args().check))
