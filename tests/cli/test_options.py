"""Options: what they take, and that each refuses values without a meaning, with its name and the value."""

import argparse

import pytest

from dpmodule.cli import option_types as options
from dpmodule.cli.__main__ import make_parser
from dpmodule.context import cpu

SENSELESS = ["0", "-1", "nan", "inf", "-inf", "-1e3", "1e400", "9" * 30, "no such thing", "", " "]
ZERO = "wd momentum seed target validation index-base tolerance epoch load-epoch dropout"
TEXT = ("prefix", "output", "label-column", "validation-column", "files", "label")
TAKEN = {  # of these, what options take, or look at when the data have been read
    **{f"--{name}": ["0"] for name in ZERO.split()},
    **{f"--{name}": SENSELESS[:-2] for name in TEXT},
    "--scale": ["-1", "-1e3"],
    "train-files --validation": SENSELESS[:-2],
}
REQUIRED = {"convert": ["in", "out"], "im2rec": ["folder", "out"]}


def commands():
    parser = make_parser()
    subparsers = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return subparsers.choices.items()


def test_every_option_refuses_what_makes_no_sense(capsys):
    parser, count = make_parser(), 0
    for command, subparser in commands():
        for option in (a.option_strings[0] for a in subparser._actions if a.option_strings and a.nargs != 0):
            for value in SENSELESS:
                words = options.join_negative_values([command, option, value, *REQUIRED.get(command, ())])
                if value in TAKEN.get(f"{command} {option}", TAKEN.get(option, [])):
                    parser.parse_args(words)
                    continue
                with pytest.raises(SystemExit) as stopped:
                    parser.parse_args(words)
                assert stopped.value.code == 2
                line = capsys.readouterr().err
                assert line.startswith(f"dpmodule {command}: error: argument {option}: "), (words, line)
                assert repr(value) in line, (words, line)
                assert "expected " in line or "choose from" in line, (words, line)
                assert line.count("\n") == 1
                count += 1
    assert count > 400


def test_every_option_tells_its_default(run):
    for command, subparser in commands():
        for action in subparser._actions:
            told = "(default" in action.help or "(required)" in action.help
            assert told or "--help" in action.option_strings, (command, action.option_strings)
    assert run().out == run("--help").out
    assert "dpmodule fit" in run().out


TYPES = {
    "contexts": {" cpu:1 , cpu(0)": [cpu(1), cpu(0)]},
    "device": {"cpu(3)": cpu(3)},
    "shape": {"(1, 8, 8)": (1, 8, 8), "(64,)": (64,)},
    "input_shape": {"data:1,3": ("data", (1, 3)), "1,3": (None, (1, 3))},
    "workload": {"1,3": [1.0, 3.0]},
    "epoch": {"12": 12, "last": "last"},
    "optimizer_name": {"Adam": "adam"},
    "store": {"none": None},
}


WRONG = {
    "contexts": ["", "cpu(-1)", "cpu(0)cpu(1)"],
    "device": ["cpu(0),cpu(1)"],
    "workload": ["1,0", "1,nan"],
    "shape": ["1,-8", "1,,8", "8x8"],
    "input_shape": ["data", "=1,2"],
    "positive": ["1.5", "\u00b2", "9" * 5000],
    "fraction": ["1.1"],
}


def test_types():
    for read, taken in TYPES.items():
        assert {text: getattr(options, read)(text) for text in taken} == taken
    for read, texts in WRONG.items():
        for text in texts:
            with pytest.raises(argparse.ArgumentTypeError, match="expected") as caught:
                getattr(options, read)(text)
            assert repr(text) in str(caught.value)
