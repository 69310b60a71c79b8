"""``dpmodule fit`` and ``predict``: train a network on a table of samples, and run samples through it."""

from __future__ import annotations

import argparse
import contextlib
import csv
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from .. import callback, checkpoint, initializer, io, kvstore, lr_scheduler, optimizer, random, symbol
from ..base import ArgumentError, ShapeError
from ..callback.checkpoint import Checkpoint
from ..module import Module
from ..ndarray import NDArray
from ..symbol import Symbol
from . import data, networks, options, saved_files
from .data import Samples
from .models import split_values
from .saved_files import Command, SavedNetwork, SavedRuns, print_resume_command
from .shapes import data_input, fit_samples, inferred, width


def fit(args: argparse.Namespace) -> int:
    """Look at everything that may be wrong, then train."""
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
            f"note: --validation {share:g} of {count} samples is less than one: none are kept for validation, all are "
            "trained on",
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
        _train(args, module, iterators[0], epoch, store)
        return _report(args, module, iterators[-1], kind, is_first)
    except BaseException:
        if is_first:
            print_resume_command(saved_runs.newest(), command)
        raise


def _check_options(args: argparse.Namespace) -> None:
    """Look at what options say together."""
    if args.workload is not None and len(args.workload) != len(args.contexts):
        raise ArgumentError(
            f"--workload has {len(args.workload)} shares, expected {len(args.contexts)}: one for each of --contexts"
        )
    options.check_optimizer(args)


def _module(args: argparse.Namespace, setup: FitSetup) -> Module:
    """Return the module to train, with the parameters of the epoch to continue."""
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
    batches: io.NDArrayIter,
    begin_epoch: int,
    store: kvstore.KVStoreBase | None,
) -> None:
    """Train; of several processes, only the first saves."""
    workers, is_first = (1, True) if store is None else (store.num_workers, store.rank == 0)
    num_batches = math.ceil(batches.num_data / batches.batch_size / workers)
    with (
        callback.TqdmBar(num_batches, batches.batch_size * workers)
        if is_first
        else contextlib.nullcontext() as bar
    ):
        module.fit(
            batches,
            eval_metric=["acc", "ce"],
            optimizer=args.optimizer,
            optimizer_params=_optimizer_params(args, num_batches, begin_epoch),
            initializer=initializer.Xavier(factor_type="in", magnitude=2.0),
            kvstore=args.kvstore if store is None else store,
            shard=store is not None,
            begin_epoch=begin_epoch,
            num_epoch=args.epochs,
            batch_end_callback=bar,
            on_nonfinite=args.on_nonfinite,
            check_labels=args.check_labels,
            checkpoint=_Checkpoint(args),
            resume="auto" if args.resume else None,
        )


class _Checkpoint(Checkpoint):
    """Saves as the options say, and after the last epoch."""

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
    """Print the final accuracy and what was written, in the first process; return the exit code."""
    accuracy = dict(module.score(samples, "acc"))["accuracy"]
    if not is_first:
        return 0
    print(f"final {kind} accuracy: {accuracy:.4f}")
    saved_files.print_written(args.prefix, args.epochs)
    if args.target is not None and accuracy < args.target:
        print(f"the target of {args.target:.4f} was missed", file=sys.stderr)
        return 1
    return 0


@dataclass(frozen=True)
class FitSetup:
    """A network, its parameters if it has been trained before, and samples in the shape that it takes."""

    net: Symbol
    values: Mapping[str, NDArray]
    """Parameters and auxiliary states by name; empty to initialize them."""
    parts: Sequence[Samples]
    """The samples for training and, if there are some, those for validation."""
    data_name: str
    label_name: str
    shapes: Mapping[str, tuple[int, ...]]
    """Shapes of all arguments that are known."""


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
            f"--load-epoch {args.load_epoch} and --epochs {args.epochs} leave nothing to do: {epoch} epochs are done, "
            "and --epochs is the number of the last one"
        )
    return epoch


def preload(module: Module, args: argparse.Namespace, values: Mapping[str, NDArray]) -> None:
    """Give a module the parameters and the optimizer's states that ``--load-epoch`` goes on from.

    Args:
        values: parameters and auxiliary states by name; empty to initialize them.
    """
    if not values:
        return
    states = checkpoint.states_file(args.prefix, args.load_epoch)
    exists = os.path.exists(states)
    if not exists:
        print(f"note: there is no {states}, so the optimizer starts anew", file=sys.stderr)
    module.preload(*split_values(module.symbol, values)[:2], states if exists else None)


def make_setup(args: argparse.Namespace, loaded: SavedNetwork | None, parts: Sequence[Samples]) -> FitSetup:
    """Return the network that the options name, with samples that fit it.

    Args:
        loaded: what ``--load-epoch`` has loaded, None without it.
        parts: the samples for training and, if there are some, those for validation.
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
    """Complain if the options name another network than the one to go on with."""
    if args.symbol is None and args.network is None:
        return
    if _requested_network(args, parts).tojson() != loaded.net.tojson():
        option = f"--symbol {args.symbol}" if args.symbol is not None else f"--network {args.network}"
        raise ArgumentError(
            f"{option} is, with these samples, another network than {loaded.name}, with which --load-epoch goes on; "
            "leave it out, or begin anew under another --prefix"
        )


def _label_name(net: Symbol) -> str:
    names = networks.label_names(net)
    if len(names) != 1:
        raise ArgumentError(
            f"the network has {len(names)} inputs for labels ({', '.join(names) or 'none'}), expected one, "
            "whose name ends in 'label', as of a SoftmaxOutput"
        )
    return names[0]


def _check_classes(
    args: argparse.Namespace, parts: Sequence[Samples], outputs: Sequence[tuple[int, ...] | None]
) -> None:
    """Complain about labels for which the network has no output."""
    if len(outputs) != 1 or outputs[0] is None or len(outputs[0]) != 2:
        return
    count = outputs[0][1]
    if args.classes is not None and args.classes != count:
        raise ArgumentError(f"--classes is {args.classes}, but the network tells {count} classes apart")
    for samples in parts:
        largest = int(np.max(samples.y)) if samples.y is not None else 0
        if largest >= count > 0:
            raise ArgumentError(
                f"{samples.name}: the largest label is {largest}, but the network tells {count} classes apart; "
                f"expected labels from 0 to {count - 1} (--label-column says which column holds them)"
            )


# predict


def predict(args: argparse.Namespace) -> int:
    """Run samples through a network, and write its scores as a CSV."""
    if args.output is not None:
        saved_files.check_output(args.output, "--output")
    found = saved_files.find_network(args, default="model")
    if not found.values:
        raise ArgumentError(
            f"{found.name} comes without parameters; expected PARAMS, their file, or a prefix with a saved epoch"
        )
    samples = _prediction_samples(args, found)
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


def _prediction_samples(args: argparse.Namespace, found: SavedNetwork) -> data.Samples:
    """Return the samples to predict, in the shape that the network takes."""
    samples = data.read(args, width(found.net, found.values))
    if args.data is None or args.validation is not None or samples.validation is not None:
        samples = data.split_samples(args, samples)[1]
    if not len(samples.x):
        option, value = "--validation-column", args.validation_column
        if value is None:
            option, value = "--validation", args.validation
        raise ArgumentError(
            f"{option} {value} leaves nothing of {samples.name} to predict; expected some samples"
        )
    return fit_samples(samples, found.net, found.values, min(args.batch_size, len(samples.x)))


def _scores(args: argparse.Namespace, found: SavedNetwork, samples: data.Samples) -> np.ndarray[Any, Any]:
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
        saved_files.make_folder(path)
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file
