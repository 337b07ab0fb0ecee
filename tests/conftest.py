"Shared by all tests: settings that make every algorithm learn within a few dozen steps"
import dataclasses
import gc
import os
import signal

import pytest

os.environ["OPENBLAS_NUM_THREADS"] = "1"    # before numpy is there: two workers already fill two cores
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:      # as a shell starts what it leaves in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

SMALL = dict(
    learning_starts=20,
    n_episodes=2,
    buffer_size=300,
    batch_size=8,
    n_steps=8,
    n_epochs=2,
    hidden=(16,),
    critic_hidden=(16,),
    memory_size=8,
    target_update_interval=7,
    shake_interval=5,
    theta=1e-2,
)


def small(cls, **more):
    "Settings out of SMALL that an algorithm has, and more of one's own"
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: value for name, value in SMALL.items() if name in names} | more


def pytest_collection_finish():
    "What is imported and collected by now stays, and need not be looked through for garbage"
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def small_settings():
    return small


@pytest.fixture(scope="session")
def rlax():
    "Another implementation of what learning is made of"
    return pytest.importorskip("rlax", reason="pip install 'rlbench[peers]'")
