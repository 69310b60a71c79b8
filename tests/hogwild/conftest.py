"""Files of lines that many tests train on."""

import pytest

from helpers.hogwild import write_bags, write_dense


@pytest.fixture
def dense(tmp_path):
    return write_dense(tmp_path)


@pytest.fixture
def bags(tmp_path):
    return write_bags(tmp_path)
