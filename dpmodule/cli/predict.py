"""``dpmodule predict``: run samples through a saved network."""

from __future__ import annotations

import argparse
import contextlib
import csv
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np

from .. import io
from ..base import ArgumentError, ShapeError
from ..module import Module
from . import data, files, networks, saved
from .models import split_values
from .shapes import data_input, fitted, width


def run(args: argparse.Namespace) -> int:
    """Run samples through a network, and write its scores as a CSV."""
    if args.output is not None:
        files.check_output(args.output, "--output")
    found = saved.find(args, default="model")
    if not found.values:
        raise ArgumentError(
            f"{found.name} comes without parameters; expected PARAMS, their file, or a prefix with a saved epoch"
        )
    samples = _samples(args, found)
    scores = _scores(args, found, samples)
    classes = scores.argmax(axis=1)
    with _output(args.output) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["sample", "class", *(f"p{c}" for c in range(scores.shape[1]))])
        for number, (best, row) in enumerate(zip(classes, scores, strict=True)):
            writer.writerow([number, best, *(f"{value:.6g}" for value in row)])
    if samples.y is not None:
        print(f"accuracy: {np.mean(classes == samples.y):.4f} of {len(samples.y)} samples", file=sys.stderr)
    return 0


def _samples(args: argparse.Namespace, found: saved.SavedNetwork) -> data.Samples:
    """Return the samples to predict, in the shape that the network takes."""
    samples = data.read(args, width(found.net, found.values))
    if args.data is None or args.validation is not None or samples.held is not None:
        samples = data.part(args, samples)[1]
    if not len(samples.x):
        option, value = "--validation-column", args.validation_column
        if value is None:
            option, value = "--validation", args.validation
        raise ArgumentError(
            f"{option} {value} leaves nothing of {samples.name} to predict; expected some samples"
        )
    return fitted(samples, found.net, found.values, min(args.batch_size, len(samples.x)))


def _scores(
    args: argparse.Namespace, found: saved.SavedNetwork, samples: data.Samples
) -> np.ndarray[Any, Any]:
    name = data_input(found.net, found.values)
    module = Module(
        found.net, data_names=[name], label_names=networks.label_names(found.net), context=args.contexts
    )
    batches = io.NDArrayIter(samples.x, None, min(args.batch_size, len(samples.x)), data_name=name)
    module.bind(batches.provide_data, for_training=False)
    module.set_params(*split_values(found.net, found.values)[:2])
    outputs = module.predict(batches, always_output_list=True)
    if len(outputs) != 1 or outputs[0].ndim != 2:
        shown = ", ".join(f"{name} {o.shape}" for name, o in zip(found.net.list_outputs(), outputs))
        raise ShapeError(f"{found.name} gives {shown}; expected one output of shape (samples, classes)")
    return np.asarray(outputs[0].asnumpy())


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
    else:
        files.make_folder(path)
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file
