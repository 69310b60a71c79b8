"""Every test writes into programs of its own."""

import pytest

import dpmodule.fluid as fluid


@pytest.fixture(autouse=True)
def _programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        yield
