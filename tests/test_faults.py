"Some cases of the families of benchmarks/faults.py; for kills see test_runs.py"
import subprocess
import sys

import pytest

from benchmarks.fault_cases import FAULTS, ROOT

CASES = {"checkpoints with one wrong thing": 30, "damaged bytes": 22, "data sets": 30, "recordings": 24,
         "odd settings": 21, "interrupts": 3, "environments that cannot go back": 6, "wrong environments": 21}
PLAY = """
import os
import sys
import torch._dynamo                    # takes long, as the next one does: each family has a process with only these
from benchmarks.faults import play
for number in range(2, len(sys.argv), 2):
    family, cases = sys.argv[number:number + 2]
    if not os.fork():
        sys.stdout = open(os.path.join(sys.argv[1], family), "w", encoding="utf-8")
        play(family, 0, int(cases))
        break
    os.wait()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    "The folder with what each family had to say; one that ends before its time says too little"
    folder = tmp_path_factory.mktemp("faults")
    words = [str(word) for pair in CASES.items() for word in pair]
    subprocess.run([sys.executable, "-c", PLAY, folder, *words], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("family", CASES)
def test_nothing_is_lost_run_or_silently_wrong(family, told):
    lines = (told / family).read_text().splitlines()
    found = [line.split("\t")[1:] for line in lines if line.startswith("=")]
    assert len(found) == CASES[family], f"it ended in the middle of {lines[-1]}"
    assert [case for case in found if case[0] in FAULTS] == []
    if CASES[family] > 20:
        assert {outcome for outcome, *_ in found} == {"refused", "went on"}       # and both do occur
