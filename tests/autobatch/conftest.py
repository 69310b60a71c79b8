"""Engines and settings that tests run with; afterwards all is as it was at first."""

import contextlib
import itertools

import pytest

import dpmodule.autobatch as dy

SETTINGS = [*itertools.product(["python", "auto"], [False, True])]


@pytest.fixture(autouse=True)
def as_at_first():
    yield
    dy.configure(engine="auto", autobatch=False, dtype="float32", weight_decay=0.0, device="cpu")


@pytest.fixture(params=["python", "auto"])
def engine(request):
    """Each engine, with batches; its name."""
    dy.configure(engine=request.param, autobatch=True)
    return request.param


@pytest.fixture(params=SETTINGS, ids=lambda s: f"{s[0]}-{'on' if s[1] else 'off'}")
def setting(request):
    """Each engine with and without batches; its name, and whether it batches."""
    dy.configure(engine=request.param[0], autobatch=request.param[1])
    return request.param


@pytest.fixture
def batched():
    """The engine that would be chosen, with batches."""
    dy.configure(engine="auto", autobatch=True)


@pytest.fixture
def each_row(each_row):
    """Put back after every row of a walk the settings that it began with, and begin a new graph."""

    @contextlib.contextmanager
    def as_it_began():
        settings = dy.settings()
        try:
            with each_row():
                yield
        finally:
            dy.configure(**settings)

    return as_it_began
