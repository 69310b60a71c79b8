"""``dpmodule fit`` and ``predict``: train a network on a table of samples, and run samples through it."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io as _io
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from .. import callback, checkpoint, initializer, io, kvstore, lr_scheduler, optimizer, random, symbol
from .._core import markup
from .._files import write_atomically
from ..base import ArgumentError, ShapeError
from ..callback.base import RunLike
from ..callback.checkpoint import Checkpoint
from ..callback.loggers import figure_axes
from ..module import Module
from ..module.history import History
from ..ndarray import NDArray
from ..symbol import Symbol
from . import data, networks, options, saved_files
from .data import Samples
from .models import split_values
from .saved_files import Command, SavedNetwork, SavedRuns, print_resume_command
from .shapes import data_input, fit_samples, inferred, width


def fit(args: argparse.Namespace) -> int:
    """Check all options and data, then train."""
    _check_options(args)
    saved_files.check_prefix(args.prefix)
    store = kvstore.create(args.kvstore) if args.kvstore in kvstore.DIST else None
    random.seed(args.seed)
    epoch = first_epoch(args)
    loaded = None if args.load_epoch is None else saved_files.load_network(args.prefix, args.load_epoch)
    setup = make_setup(
        args,
        loaded,
        data.read_train_and_validation(args, None if loaded is None else width(loaded.net, loaded.values)),
    )
    command = Command(args.words)
    is_first = store is None or store.rank == 0
    if len(setup.parts) == 1 and args.validation != 0 and is_first:
        share = data.VALIDATION_SHARE if args.validation is None else args.validation
        count = len(setup.parts[0].x)
        print(
            f"note: --validation {share:g} of {count} samples is less than one, so all samples are used for training",
            file=sys.stderr,
        )
    if loaded is None and not args.overwrite and is_first:
        saved_files.check_same_network(args.prefix, setup.net, setup.shapes, command)
    module = _module(args, setup)
    if is_first:
        saved_files.prepare_prefix(args.prefix, args.overwrite, args.resume)
    iterators = [_iterator(setup, samples, args.batch_size, i == 0) for i, samples in enumerate(setup.parts)]
    kind = "training" if len(iterators) == 1 else "validation"
    saved_runs = SavedRuns(args.prefix)
    try:
        _train(args, module, iterators, epoch, store)
        return _report(args, module, iterators[-1], kind, is_first)
    except BaseException:
        if is_first:
            print_resume_command(saved_runs.newest(), command)
        raise


def _check_options(args: argparse.Namespace) -> None:
    """Check options that depend on each other."""
    if args.workload is not None and len(args.workload) != len(args.contexts):
        raise ArgumentError(
            f"--workload has {len(args.workload)} shares, expected {len(args.contexts)}: one for each of --contexts"
        )
    options.check_optimizer(args)


def _module(args: argparse.Namespace, setup: FitSetup) -> Module:
    """Return the module to train, with the parameters of ``--load-epoch``."""
    module = Module(
        setup.net,
        data_names=[setup.data_name],
        label_names=[setup.label_name],
        context=args.contexts,
        work_load_list=args.workload,
    )
    preload(module, args, setup.values)
    return module


def _iterator(setup: FitSetup, samples: Samples, batch_size: int, shuffle: bool) -> io.NDArrayIter:
    return io.NDArrayIter(
        samples.x,
        samples.y,
        min(batch_size, len(samples.x)),
        shuffle=shuffle,
        data_name=setup.data_name,
        label_name=setup.label_name,
    )


def _train(
    args: argparse.Namespace,
    module: Module,
    iterators: Sequence[io.NDArrayIter],
    begin_epoch: int,
    store: kvstore.KVStoreBase | None,
) -> None:
    """Train; of several processes, only the first one prints and saves."""
    batches = iterators[0]
    workers, is_first = (1, True) if store is None else (store.num_workers, store.rank == 0)
    num_batches = math.ceil(batches.num_data / batches.batch_size / workers)
    module.fit(
        batches,
        eval_data=iterators[1] if len(iterators) > 1 else None,
        eval_metric=["acc", "ce"],
        optimizer=args.optimizer,
        optimizer_params=_optimizer_params(args, num_batches, begin_epoch),
        initializer=initializer.Xavier(factor_type="in", magnitude=2.0),
        kvstore=args.kvstore if store is None else store,
        shard=store is not None,
        begin_epoch=begin_epoch,
        num_epoch=args.epochs,
        callbacks=[_EpochReport(_curve_file(args))] if is_first else None,
        on_nonfinite=args.on_nonfinite,
        check_labels=args.check_labels,
        checkpoint=_Checkpoint(args),
        resume="auto" if args.resume else None,
    )


def _curve_file(args: argparse.Namespace) -> str | None:
    return None if args.plot is None else f"{args.prefix}-curve.{args.plot}"


class _EpochReport(callback.Callback):
    """Prints a line after each epoch, and updates the training curve.

    Args:
        path: file of the curve, .svg or .png; None: there is none.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._ax = figure_axes("--plot png") if path is not None and path.endswith(".png") else None

    def on_epoch_end(self, run: RunLike) -> None:
        row = run.history.rows[-1]
        print(f"epoch {run.epoch + 1}: {_format_row(row)}, {row['time_s']:.2f} s", flush=True)
        if self._path is not None:
            self._write_curve(self._path, run.history)

    def _write_curve(self, path: str, history: History) -> None:
        names = [name for name in history.names if name.endswith("-accuracy")]
        if self._ax is None:
            epochs = [row["epoch"] + 1 for row in history]
            picture = markup.curve([(name, epochs, history[name]) for name in names], "accuracy by epoch")
            write_atomically(path, picture.encode())
            return
        file = _io.BytesIO()
        self._ax.clear()
        history.plot(*names, ax=self._ax).figure.savefig(file, format="png")
        write_atomically(path, file.getvalue())


def _format_row(row: Mapping[str, Any]) -> str:
    """Return the metrics of an epoch as text, those of training without a prefix."""
    values = {name: value for name, value in row.items() if name not in ("epoch", "batch", "time_s")}
    return ", ".join(
        f"{name.removeprefix('train-').replace('validation-', 'validation ')}={value:.4f}"
        for name, value in values.items()
    )


class _Checkpoint(Checkpoint):
    """A checkpoint with the options of the command, which also saves the last epoch."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(
            args.prefix,
            every_n_epochs=args.save_every or (1 if args.resume else args.epochs),
            every_n_batches=args.save_batches,
            keep_last=None if args.save_every or not args.resume else 2,
        )
        self._last = args.epochs

    def wants_epoch(self, epoch: int) -> bool:
        return epoch + 1 == self._last or super().wants_epoch(epoch)


def _optimizer_params(args: argparse.Namespace, num_batches: int, begin_epoch: int) -> dict[str, Any]:
    params = {**options.optimizer_params(args, "fit"), "begin_num_update": num_batches * begin_epoch}
    if args.schedule == "cosine":
        rate = params.get("learning_rate") or optimizer.create(args.optimizer).lr
        params["lr_scheduler"] = lr_scheduler.CosineScheduler(num_batches * args.epochs, base_lr=rate)
    return params


def _report(args: argparse.Namespace, module: Module, samples: io.DataIter, kind: str, is_first: bool) -> int:
    """Print the final accuracy and the written files in the first process; return the exit code."""
    accuracy = dict(module.score(samples, "acc"))["accuracy"]
    if not is_first:
        return 0
    print(f"final {kind} accuracy: {accuracy:.4f}")
    saved_files.print_written(args.prefix, args.epochs)
    if (curve := _curve_file(args)) is not None and os.path.exists(curve):
        print(f"written: {curve}")
    if args.target is not None and accuracy < args.target:
        print(f"the target of {args.target:.4f} was missed", file=sys.stderr)
        return 1
    return 0


@dataclass(frozen=True)
class FitSetup:
    """A network, its parameters if it is already trained, and samples in the shape of its input."""

    net: Symbol
    values: Mapping[str, NDArray]
    """Parameters and auxiliary states by name; empty: they are initialized."""
    parts: Sequence[Samples]
    """The training samples and, if there are any, the validation samples."""
    data_name: str
    label_name: str
    shapes: Mapping[str, tuple[int, ...]]
    """Known shapes of arguments."""


def first_epoch(args: argparse.Namespace) -> int:
    """Return the number of the first epoch."""
    saved = checkpoint.epochs(args.prefix) if args.resume and not args.overwrite else []
    if saved and saved[-1] > args.epochs:
        raise ArgumentError(
            f"--resume and --epochs {args.epochs}: epoch {saved[-1]} is saved under the prefix {args.prefix!r}; give "
            "--epochs at least that number, or another --prefix"
        )
    if args.load_epoch is None:
        return 0
    epoch = int(args.load_epoch)
    if epoch >= args.epochs:
        raise ArgumentError(
            f"--load-epoch {args.load_epoch} and --epochs {args.epochs} leave nothing to do: {epoch} epochs are "
            "done, and --epochs is the number of the last one"
        )
    return epoch


def preload(module: Module, args: argparse.Namespace, values: Mapping[str, NDArray]) -> None:
    """Load the parameters and the optimizer's states of ``--load-epoch`` into a module.

    Args:
        values: parameters and auxiliary states by name; empty: they are initialized.
    """
    if not values:
        return
    states = checkpoint.states_file(args.prefix, args.load_epoch)
    exists = os.path.exists(states)
    if not exists:
        print(f"note: {states} does not exist, so the optimizer starts with new states", file=sys.stderr)
    module.preload(*split_values(module.symbol, values)[:2], states if exists else None)


def make_setup(args: argparse.Namespace, loaded: SavedNetwork | None, parts: Sequence[Samples]) -> FitSetup:
    """Return the network of the options, with samples that fit it.

    Args:
        loaded: the network of ``--load-epoch``; None: the option is not given.
        parts: the training samples and, if there are any, the validation samples.
    """
    values: Mapping[str, NDArray] = {}
    if loaded is None:
        net = _requested_network(args, parts)
    else:
        net, values = loaded.net, loaded.values
    data_name, label_name = data_input(net, values), _label_name(net)
    batch = min(args.batch_size, len(parts[0].x))
    parts = [fit_samples(samples, net, values, batch) for samples in parts]
    if loaded is not None:
        _check_same_network(args, loaded, parts)
    shapes, outputs = inferred(net, values, {data_name: (batch, *parts[0].x.shape[1:])})
    _check_classes(args, parts, outputs)
    return FitSetup(net, values, parts, data_name, label_name, shapes)


def _requested_network(args: argparse.Namespace, parts: Sequence[Samples]) -> Symbol:
    if args.symbol is not None:
        return symbol.load(args.symbol)
    count = data.num_classes(parts, args.classes)
    return networks.build(args.network or "lenet", parts[0].x.shape[1:], count)


def _check_same_network(args: argparse.Namespace, loaded: SavedNetwork, parts: Sequence[Samples]) -> None:
    """Raise ArgumentError if the options name another network than the loaded one."""
    if args.symbol is None and args.network is None:
        return
    if _requested_network(args, parts).tojson() != loaded.net.tojson():
        option = f"--symbol {args.symbol}" if args.symbol is not None else f"--network {args.network}"
        raise ArgumentError(
            f"{option} gives another network for these samples than {loaded.name}, which --load-epoch continues; "
            "remove the option, or start a new training under another --prefix"
        )


def _label_name(net: Symbol) -> str:
    names = networks.label_names(net)
    if len(names) != 1:
        raise ArgumentError(
            f"the network has {len(names)} inputs for labels ({', '.join(names) or 'none'}), expected one, "
            "with a name that ends in 'label', as for a SoftmaxOutput"
        )
    return names[0]


def _check_classes(
    args: argparse.Namespace, parts: Sequence[Samples], outputs: Sequence[tuple[int, ...] | None]
) -> None:
    """Raise ArgumentError for labels without an output of the network."""
    if len(outputs) != 1 or outputs[0] is None or len(outputs[0]) != 2:
        return
    count = outputs[0][1]
    if args.classes is not None and args.classes != count:
        raise ArgumentError(f"--classes is {args.classes}, but the network has {count} classes")
    for samples in parts:
        largest = int(np.max(samples.y)) if samples.y is not None else 0
        if largest >= count > 0:
            raise ArgumentError(
                f"{samples.name}: the largest label is {largest}, but the network has {count} classes; "
                f"expected labels from 0 to {count - 1} (--label-column sets the column of labels)"
            )


# predict


def predict(args: argparse.Namespace) -> int:
    """Run samples through a network, and write its outputs as CSV."""
    if args.output is not None:
        saved_files.check_output(args.output, "--output")
    network = saved_files.find_network(args, default="model")
    if not network.values:
        raise ArgumentError(
            f"{network.name} has no parameters; expected PARAMS, their file, or a prefix with a saved epoch"
        )
    samples = _prediction_samples(args, network)
    scores = _scores(args, network, samples)
    classes = scores.argmax(axis=1)
    with _output(args.output) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["sample", "class", *(f"p{c}" for c in range(scores.shape[1]))])
        for number, (best, row) in enumerate(zip(classes, scores, strict=True)):
            writer.writerow([number, best, *(f"{value:.6g}" for value in row)])
    if samples.y is not None:
        print(f"accuracy: {np.mean(classes == samples.y):.4f} of {len(samples.y)} samples", file=sys.stderr)
    return 0


def _prediction_samples(args: argparse.Namespace, network: SavedNetwork) -> data.Samples:
    """Return the samples to predict, in the shape of the network's input."""
    samples = data.read(args, width(network.net, network.values))
    if args.data is None or args.validation is not None or samples.validation is not None:
        samples = data.split_samples(args, samples)[1]
    if not len(samples.x):
        option, value = "--validation-column", args.validation_column
        if value is None:
            option, value = "--validation", args.validation
        raise ArgumentError(f"{option} {value} leaves nothing of {samples.name} to predict")
    return fit_samples(samples, network.net, network.values, min(args.batch_size, len(samples.x)))


def _scores(args: argparse.Namespace, network: SavedNetwork, samples: data.Samples) -> np.ndarray[Any, Any]:
    name = data_input(network.net, network.values)
    module = Module(
        network.net, data_names=[name], label_names=networks.label_names(network.net), context=args.contexts
    )
    batches = io.NDArrayIter(samples.x, None, min(args.batch_size, len(samples.x)), data_name=name)
    module.bind(batches.provide_data, for_training=False)
    module.set_params(*split_values(network.net, network.values)[:2])
    outputs = module.predict(batches, always_output_list=True)
    if len(outputs) != 1 or outputs[0].ndim != 2:
        shown = ", ".join(f"{name} {o.shape}" for name, o in zip(network.net.list_outputs(), outputs))
        raise ShapeError(f"{network.name} gives {shown}; expected one output of shape (samples, classes)")
    return np.asarray(outputs[0].asnumpy())


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
    else:
        saved_files.make_folder(path)
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file
