"""Options: what they take, and that each refuses what makes no sense, with its name and the value."""

import argparse

import pytest

import dpmodule as mx
from dpmodule.cli import option_types as options
from dpmodule.cli.__main__ import make_parser
from dpmodule.context import cpu

SENSELESS = ["0", "-1", "nan", "inf", "-inf", "-1e3", "1e400", "9" * 30, "no such thing", "", " "]
TAKEN = {  # of these, what options take, or look at when the data have been read
    **dict.fromkeys(("--lr", "--batch-size", "--classes", "--epochs", "--save-every", "--workload"), []),
    **dict.fromkeys(
        ("--wd", "--momentum", "--seed", "--target", "--validation", "--index-base", "--tolerance"), ["0"]
    ),
    **dict.fromkeys(("--epoch", "--load-epoch"), ["0"]),
    **dict.fromkeys(
        ("--prefix", "--output", "--label-column", "--validation-column", "--files", "--label"),
        SENSELESS[:-2],
    ),
    "--scale": ["-1", "-1e3"],
    "--dropout": ["0"],
    "train-files --validation": SENSELESS[:-2],
}
REQUIRED = {"convert": ["in", "out"], "im2rec": ["folder", "out"]}


def commands():
    parser = make_parser()
    subparsers = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return subparsers.choices.items()


def test_every_option_refuses_what_makes_no_sense(capsys):
    parser = make_parser()
    count = 0
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


def test_every_option_tells_its_default():
    for command, subparser in commands():
        for action in subparser._actions:
            if action.option_strings != ["-h", "--help"]:
                assert "(default" in action.help or "(required)" in action.help, (
                    command,
                    action.option_strings,
                )


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["fti"], "invalid choice: 'fti' (choose from"),
        (["fti"], "; did you mean fit? (see dpmodule --help)"),
        (["train_files"], "; did you mean train-files?"),
        (
            ["fit", "--epoch", "3"],
            "dpmodule fit: error: unrecognized arguments: --epoch 3; did you mean --epochs",
        ),
        (["convert", "a", "b", "--to", "onxx"], "; did you mean onnx?"),
        (["fit", "--learning-rate=3"], "unrecognized arguments: --learning-rate=3"),
        (["fit", "--lr"], "argument --lr: expected one argument"),
        (["fit", "--optimizer", "sdg"], "'sdg', expected one of adadelta, adagrad, adam"),
        (["fit", "--optimizer", "torchoptimizer"], "'torchoptimizer', expected one of adadelta"),
        (
            ["fit", "--kvstore", "dist_magic"],
            "'dist_magic', expected local, device, dist_sync, dist_async or none",
        ),
        (["fit", "--kvstore", "nccl"], "'nccl'"),
        (["fit", "--contexts", "gpu(99)"], "gpu(99) does not exist"),
        (["fit", "--data", "."], "'.', expected a file, not a folder"),
        (["fit", "--validation", "1"], "'1', expected a share from 0, below 1"),
        (
            ["fit", "--validation", "0.1", "--validation-data", __file__],
            "not allowed with argument --validation",
        ),
        (["explain", "lenet", "--disable", "dead_steps,all"], "'dead_steps,all', expected some of "),
    ],
)
def test_one_line_says_what_is_wrong(words, match, run):
    assert match in run(*words).error


def test_the_command_alone_prints_its_help(run):
    done = run()
    assert done.code == 0
    assert done.out == run("--help").out
    assert "dpmodule fit" in done.out


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (options.contexts, "cpu", [cpu(0)]),
        (options.contexts, " cpu:1 , cpu(0)", [cpu(1), cpu(0)]),
        (options.device, "cpu(3)", cpu(3)),
        (options.shape, "1,8,8", (1, 8, 8)),
        (options.shape, "(1, 8, 8)", (1, 8, 8)),
        (options.shape, "(64,)", (64,)),
        (options.input_shape, "data=1,3", ("data", (1, 3))),
        (options.input_shape, "data:1,3", ("data", (1, 3))),
        (options.input_shape, "1,3", (None, (1, 3))),
        (options.workload, "1,3", [1.0, 3.0]),
        (options.epoch, "last", "last"),
        (options.epoch, "12", 12),
        (options.optimizer_name, "Adam", "adam"),
        (options.store, "none", None),
        (options.store, "device", "device"),
    ],
)
def test_types(read, text, expected):
    assert read(text) == expected


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (options.contexts, ""),
        (options.contexts, "cpu(-1)"),
        (options.contexts, "cpu(0)cpu(1)"),
        (options.device, "cpu(0),cpu(1)"),
        (options.workload, "1,0"),
        (options.workload, "1,nan"),
        (options.shape, "1,-8"),
        (options.shape, "1,,8"),
        (options.shape, "8x8"),
        (options.input_shape, "data"),
        (options.input_shape, "=1,2"),
        (options.positive, "1.5"),
        (options.positive, "\u00b2"),
        (options.positive, "9" * 5000),
        (options.fraction, "1.1"),
    ],
)
def test_refuses_and_quotes_what_came(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected") as caught:
        read(text)
    assert repr(text) in str(caught.value)


def test_optimizers_that_others_use_inside_are_not_offered():
    inside = mx.contrib.svrg_optimization.svrg_optimizer._AssignmentOptimizer.__name__.lower()
    assert inside in mx.optimizer.Optimizer.opt_registry
    with pytest.raises(argparse.ArgumentTypeError, match="expected one of adadelta") as refused:
        options.optimizer_name(inside)
    assert not {inside, "test", "torchoptimizer"} & set(str(refused.value).replace(",", "").split())
