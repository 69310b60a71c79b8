"""Trainer over parameters of blocks, against results recorded with MXNet 1.9.1."""

import numpy as np
import pytest

import dpmodule as mx
from helpers import gluon_cases as cases
from helpers.gluon_files import GOLDEN, expected, nets, same


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets(tmp_path_factory.mktemp("nets"))


@pytest.mark.parametrize("name", cases.TRAININGS)
def test_training_as_in_mxnet(folder, name):
    same(cases.train(mx, folder, name), expected(f"train {name}"))


def test_stale_gradients_are_an_error_or_left(folder):
    same(cases.stale(mx, folder), expected("stale"))


@pytest.mark.parametrize("name", ["sgd", "adam", "two"])
def test_states_of_mxnet_are_resumed(folder, tmp_path, name):
    prefix = str(tmp_path / "run")
    cases.begin(mx, folder, name, prefix)  # our files
    same(cases.go_on(mx, name, prefix), expected(f"go on {name}"))
    (tmp_path / "run.states").write_bytes(GOLDEN[f"{name} states"].tobytes())
    same(cases.go_on(mx, name, prefix), expected(f"go on {name}"))
