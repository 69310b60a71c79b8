"""The options of ``dpmodule fit``."""

from __future__ import annotations

import argparse
from typing import Any

from ..base import ArgumentError
from . import data, networks, optimizer_options, options, saving_options

_USUAL_RATES = {"sgd": 0.1, "nag": 0.1, "adam": 0.003}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options."""
    group = data.add_options(parser)
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--validation",
        type=options.share,
        metavar="SHARE",
        help="share of the samples kept apart for validation, the same ones every time (default: 0.2)",
    )
    which.add_argument(
        "--validation-column",
        type=options.filled,
        metavar="COLUMN",
        help="name or number of a CSV's column, or name of an .npz's array, that is 1 (or 'validation') for samples "
        "kept apart and 0 (or 'train') for the others (default: none)",
    )
    which.add_argument(
        "--validation-data",
        type=options.input_file,
        metavar="FILE",
        help="a second file, with the samples for validation (default: none)",
    )
    _add_network_options(parser.add_argument_group("network and files"))
    _add_training_options(parser.add_argument_group("training"))
    _add_optimizer_options(parser.add_argument_group("optimizer"))


def _add_network_options(group: Any) -> None:
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--network",
        choices=sorted(networks.NETWORKS),
        help="which of the networks that come along (default: lenet, or the saved one with --load-epoch)",
    )
    which.add_argument(
        "--symbol",
        type=options.input_file,
        metavar="FILE",
        help="train the network in this -symbol.json, with one input for samples and one whose name ends in 'label' "
        "(default: none)",
    )
    group.add_argument(
        "--classes",
        type=options.positive,
        metavar="COUNT",
        help="number of classes (default: as many as there are labels, which are then 0, 1, ... without a gap)",
    )
    saving_options.add_options(
        group,
        "continue, bit for bit, the newest run that is saved under PREFIX, if there is one; save after every epoch, of "
        "which the last two are kept without --save-every (default: start anew; Ctrl-C and SIGTERM save PREFIX-last.*)",
    )
    group.add_argument(
        "--save-batches",
        type=options.positive,
        metavar="BATCHES",
        help="also save after every so many batches of an epoch (default: none)",
    )


def _add_training_options(group: Any) -> None:
    group.add_argument(
        "--epochs", type=options.positive, default=20, help="number of the last epoch (default: 20)"
    )
    group.add_argument(
        "--batch-size", type=options.positive, default=64, help="samples per step (default: 64)"
    )
    options.add_contexts(group)
    group.add_argument(
        "--workload",
        type=options.workload,
        metavar="LIST",
        help="shares of each batch per device, such as 1,3 (default: equal ones)",
    )
    group.add_argument(
        "--kvstore",
        type=options.store,
        default="local",
        help="where gradients of several devices are summed: local, device or none; of several processes, which "
        "torchrun starts: dist_sync or dist_async (default: local)",
    )
    group.add_argument(
        "--on-nonfinite",
        choices=["raise", "skip", "warn", "ignore"],
        default="raise",
        help="what to do when an output of the network, or a gradient, is NaN or infinite (default: raise, which "
        "stops; skip leaves the batch out)",
    )
    options.add_check_labels(group, "warn")
    group.add_argument("--seed", type=options.seed, default=0, help="seed of all random numbers (default: 0)")
    group.add_argument(
        "--target",
        type=options.fraction,
        metavar="ACCURACY",
        help="exit with 1 if the final accuracy is below this (default: none)",
    )


def _add_optimizer_options(group: Any) -> None:
    optimizer_options.add_options(group, "sgd", _USUAL_RATES)
    group.add_argument(
        "--schedule",
        choices=["cosine", "constant"],
        default="cosine",
        help="how the learning rate goes on; cosine falls to 0 at the last epoch (default: cosine)",
    )


def check(args: argparse.Namespace) -> None:
    """Look at what options say together."""
    if args.workload is not None and len(args.workload) != len(args.contexts):
        raise ArgumentError(
            f"--workload has {len(args.workload)} shares, expected {len(args.contexts)}: one for each of --contexts"
        )
    optimizer_options.check(args)


def optimizer_params(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of the optimizer that do not depend on data."""
    return optimizer_options.params(args, _USUAL_RATES)
