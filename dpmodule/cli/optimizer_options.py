"""The options of optimizers, and the arguments that come of them."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping
from typing import Any

from ..base import ArgumentError
from ..optimizer import Optimizer
from . import options

_USUAL_MOMENTUM = {"sgd": 0.9, "nag": 0.9}


def add_options(group: Any, default: str, rates: Mapping[str, float]) -> None:
    """Add ``--optimizer``, ``--lr``, ``--momentum`` and ``--wd``.

    Args:
        rates: learning rates by the name of the optimizer, for those that have not its own.
    """
    by_rate: dict[float, list[str]] = {}
    for name, rate in rates.items():
        by_rate.setdefault(rate, []).append(name)
    usual = ", ".join(f"{rate:g} for {' and '.join(names)}" for rate, names in by_rate.items())
    group.add_argument(
        "--optimizer",
        type=options.optimizer_name,
        default=default,
        help=f"name of an optimizer, as mx.optimizer.create takes it (default: {default})",
    )
    group.add_argument(
        "--lr",
        type=options.learning_rate,
        help=f"learning rate (default: {usual}, else the optimizer's)",
    )
    group.add_argument(
        "--momentum",
        type=options.momentum,
        help="share of the last step that is repeated (default: 0.9 for sgd and nag, else the optimizer's)",
    )
    group.add_argument("--wd", type=options.weight_decay, default=0.0, help="weight decay (default: 0)")


def check(args: argparse.Namespace) -> None:
    """Look at what the options say together."""
    if args.momentum is not None and not _takes_momentum(args.optimizer):
        raise ArgumentError(
            f"--momentum {args.momentum:g} does not go with --optimizer {args.optimizer}, which has none"
        )


def params(args: argparse.Namespace, rates: Mapping[str, float]) -> dict[str, Any]:
    """Return the arguments of the optimizer that do not depend on data."""
    momentum = _USUAL_MOMENTUM.get(args.optimizer) if args.momentum is None else args.momentum
    rate = rates.get(args.optimizer) if args.lr is None else args.lr
    found = {"wd": args.wd, "momentum": momentum, "learning_rate": rate}
    return {name: value for name, value in found.items() if value is not None}


def _takes_momentum(optimizer: str) -> bool:
    return "momentum" in inspect.signature(Optimizer.opt_registry[optimizer]).parameters
