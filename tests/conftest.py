"""Shared by all tests: one torch thread, and small settings that make every algorithm start learning within a few dozen steps."""
import dataclasses

import pytest
import torch

torch.set_num_threads(1)
SMALL = dict(start=40, episodes=2, capacity=300, batch=16, horizon=16, minibatches=2, epochs=2, hidden=(16,), target_every=7, theta=1e-4, log_every=50)


def small(cls, **more):
    "Settings out of SMALL that an algorithm has"
    names = {field.name for field in dataclasses.fields(cls)} | {"log_every"}
    return {k: v for k, v in SMALL.items() if k in names} | more


@pytest.fixture(scope="session")
def small_settings():
    return small
