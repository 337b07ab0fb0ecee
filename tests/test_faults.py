"Some cases of the families of benchmarks/faults.py; for kills see test_runs.py"
import pytest

from benchmarks.faults import FAULTS, outcomes

CASES = {"checkpoints with one wrong thing": 30, "damaged bytes": 22, "data sets": 30, "recordings": 24,
         "odd settings": 21, "interrupts": 3, "environments that cannot go back": 6, "wrong environments": 21}


@pytest.mark.parametrize("family", CASES)
def test_nothing_is_lost_run_or_silently_wrong(family):
    found = outcomes(family, CASES[family])
    assert [case for case in found if case[0] in FAULTS] == []
    if CASES[family] > 20:
        assert {outcome for outcome, _, _ in found} == {"refused", "went on"}       # and both do occur
