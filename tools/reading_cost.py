"""What has to be read to follow PPO from an observation to a gradient step?

A short run on CartPole is traced: which functions of the library run, how long they are, and how often the path jumps
from file to file while one environment step is taken. Where stable_baselines3 is installed, its PPO is measured likewise.

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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "results" / "reading_cost.md"
STEPS = 64              # environment steps that are traced
PEER = 6514             # tokens of Stable-Baselines3 2.7, by the same count
TARGETS = dict(files=10, lines=250, tokens=PEER // 2, jumps=9)
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

    def __call__(self, frame, event, argument):
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


def cost_of(acting, learning):
    "The cost of two traces: of STEPS environment steps, and of a gradient step"
    firsts = {}
    for code in acting.calls + learning.calls:
        firsts.setdefault(Path(code.co_filename), set()).add(code.co_firstlineno)
    read = {path: code_lines(path, numbers) for path, numbers in firsts.items()}
    path = [code.co_filename for code in acting.calls]
    return Cost(
        files=len(firsts),
        functions=sum(map(len, firsts.values())),
        lines=sum(map(len, read.values())),
        tokens=sum(tokens_in(path, lines) for path, lines in read.items()),
        jumps=sum(one != other for one, other in zip(path, path[1:])) / STEPS,
    )


def ours():
    "The cost of this library's PPO"
    import rlbench
    trainer = rlbench.Trainer("CartPole-v1", "ppo", seed=0, num_envs=1, n_steps=STEPS)
    folder = Path(rlbench.__file__).parent
    with Trace(folder) as acting:
        left = STEPS
        while left:
            left -= trainer.advance().kind == "collect"
    with Trace(folder) as learning:
        while trainer.advance().kind != "learn":
            pass
    return cost_of(acting, learning)


def theirs():
    "The cost of Stable-Baselines3's PPO; None where it is not installed"
    if importlib.util.find_spec("stable_baselines3") is None: return None
    import stable_baselines3
    agent = stable_baselines3.PPO("MlpPolicy", "CartPole-v1", seed=0, n_steps=STEPS, n_epochs=1, batch_size=STEPS)
    folder = Path(stable_baselines3.__file__).parent
    total, callback = agent._setup_learn(10 * STEPS)
    with Trace(folder) as acting:
        agent.collect_rollouts(agent.env, callback, agent.rollout_buffer, n_rollout_steps=STEPS)
    with Trace(folder) as learning:
        agent.train()
    return cost_of(acting, learning)


INTRO = f"""<!-- Written by tools/reading_cost.py -->

# What PPO's way costs to read

PPO on CartPole is traced through {STEPS} environment steps and one gradient step. Counted are all functions of the library that run: their files,
lines and tokens, without blank lines, comments and docstrings. The last column is how often the path goes on in another
file, for each environment step.

| | files | functions | lines | tokens | changes of file a step |
|---|---|---|---|---|---|
"""


def row(name, cost):
    "One line of the table"
    return f"| {name} | {cost.files} | {cost.functions} | {cost.lines:,} | {cost.tokens:,} | {cost.jumps:.1f} |\n"


def page(mine, peer):
    "The table as a page"
    limits = [f"at most {TARGETS[name]:,}" for name in ("files", "lines", "tokens", "jumps")]
    files, lines, tokens, jumps = limits
    text = INTRO + row("rlbench", mine) + f"| target | {files} | | {lines} | {tokens} | {jumps} |\n"
    if peer: return text + row("Stable-Baselines3", peer)
    return text + (f"| Stable-Baselines3 | 15 | | 708 | {PEER:,} | |\n\nThe line of Stable-Baselines3 is an earlier measurement by "
                   "the same count; where the package is installed, it is measured anew.\n")


def missed(cost):
    "Which targets a cost misses, in words"
    return [f"{name}: {getattr(cost, name):g}, expected at most {limit}" for name, limit in TARGETS.items()
            if getattr(cost, name) > limit]


def main(check):
    mine = ours()
    text = page(mine, theirs())
    print(text.split("\n\n", 3)[-1])
    if not check:
        PAGE.write_text(text, encoding="utf-8", newline="\n")
    for line in missed(mine):
        print(line, file=sys.stderr)
    return bool(missed(mine))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    sys.exit(main(parser.parse_args().check))
