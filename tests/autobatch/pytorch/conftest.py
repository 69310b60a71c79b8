"""Every block of these tests is recorded, also those without company."""

import pytest

from dpmodule.autobatch.pytorch import batching


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    monkeypatch.setattr(batching, "BLOCKS_BETWEEN_TRIALS", 0)
