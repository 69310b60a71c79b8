"""Argument types of the command line."""

import argparse

import pytest

from dpmodule.cli import options
from dpmodule.context import cpu, gpu


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu", [cpu(0)]),
        ("cpu(0),cpu(1)", [cpu(0), cpu(1)]),
        (" cpu:1 , gpu(2)", [cpu(1), gpu(2)]),
    ],
)
def test_contexts(text, expected):
    assert options.contexts(text) == expected


def test_shape_and_workload():
    assert options.shape("1,8,8") == options.shape("(1, 8, 8)") == (1, 8, 8)
    assert options.shape("64") == (64,)
    assert options.workload("1,3") == [1.0, 3.0]


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (options.contexts, ""),
        (options.contexts, "tpu(0)"),
        (options.contexts, "cpu(-1)"),
        (options.contexts, "cpu(0)cpu(1)"),
        (options.workload, "1,0"),
        (options.workload, "a"),
        (options.shape, ""),
        (options.shape, "1,-8"),
        (options.shape, "8x8"),
        (options.positive, "0"),
        (options.positive, "1.5"),
        (options.fraction, "1.1"),
        (options.fraction, "nan"),
    ],
)
def test_refuses_and_quotes_what_came(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected") as caught:
        read(text)
    assert repr(text) in str(caught.value)
