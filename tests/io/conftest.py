"""Python's helper of shared memory runs before a module whose tests must leave nothing behind."""

from multiprocessing import resource_tracker

import pytest

from helpers.processes import resources


@pytest.fixture(scope="module")
def nothing_stays():
    resource_tracker.ensure_running()  # Python starts this once, and keeps it
    before = resources()
    yield
    assert resources() == before
