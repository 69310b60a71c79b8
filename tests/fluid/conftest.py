"""Every test writes into programs of its own."""

import pytest

from helpers.fluid_programs import programs


@pytest.fixture(autouse=True)
def _programs():
    with programs():
        yield
