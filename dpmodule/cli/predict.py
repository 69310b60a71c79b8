"""``dpmodule predict``: run samples through a saved network."""

from __future__ import annotations

import argparse
import contextlib
import csv
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np

from .. import checkpoint, context, io, symbol
from ..base import ArgumentError, ShapeError
from ..module import Module
from . import data, networks, options

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    """Add ``predict`` to the subcommands of the command line."""
    parser = commands.add_parser(
        "predict",
        help="run samples through a saved network",
        description="Print or write a CSV with one row per sample: its number, the class, the probabilities. "
        "Without --data the samples are the digits that `fit` keeps for validation.",
    )
    parser.set_defaults(run=_run)
    parser.add_argument("--prefix", default="model", help="prefix of the saved network (default: model)")
    parser.add_argument("--epoch", type=int, help="epoch to load (default: the last one saved)")
    parser.add_argument(
        "--output", metavar="FILE", help="write the CSV to this file (default: standard output)"
    )
    parser.add_argument(
        "--contexts", type=options.contexts, default=[context.cpu()], help="(default: cpu(0))"
    )
    parser.add_argument("--batch-size", type=options.positive, default=256, help="(default: 256)")
    options.add_data_options(parser)


def _run(args: argparse.Namespace) -> int:
    samples = data.read(args)
    if args.data is None:
        samples = data.split(samples, args.validation)[1]
    scores = _scores(args, samples)
    classes = scores.argmax(axis=1)
    with _output(args.output) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["sample", "class", *(f"p{c}" for c in range(scores.shape[1]))])
        for number, (best, row) in enumerate(zip(classes, scores, strict=True)):
            writer.writerow([number, best, *(f"{value:.6g}" for value in row)])
    if samples.y is not None:
        print(f"accuracy: {np.mean(classes == samples.y):.4f} of {len(samples.y)} samples", file=sys.stderr)
    return 0


def _scores(args: argparse.Namespace, samples: data.Samples) -> np.ndarray[Any, Any]:
    epoch = args.epoch if args.epoch is not None else _last(args.prefix)
    net = symbol.load(checkpoint.symbol_file(args.prefix))
    module = Module.load(args.prefix, epoch, label_names=networks.label_names(net), context=args.contexts)
    batches = io.NDArrayIter(
        samples.x, None, min(args.batch_size, len(samples.x)), data_name=module.data_names[0]
    )
    module.bind(batches.provide_data, for_training=False)
    scores = module.predict(batches).asnumpy()
    if scores.ndim != 2:
        raise ShapeError(f"the network gives shape {scores.shape}, expected (samples, classes)")
    return np.asarray(scores)


def _last(prefix: str) -> int:
    saved = checkpoint.epochs(prefix)
    if not saved:
        raise ArgumentError(
            f"nothing is saved under the prefix {prefix!r}; train with `dpmodule fit --prefix`"
        )
    return saved[-1]


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file
