"""``dpmodule fit``: train a network on digits, a CSV, an .npz or a LibSVM file."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import callback, checkpoint, initializer, io, kvstore, lr_scheduler, optimizer, random, symbol
from ..base import ArgumentError
from ..callback.checkpoint import Checkpoint
from ..module import Module
from ..ndarray import NDArray
from ..symbol import Symbol
from . import data, files, networks, options, saved
from .data import Samples
from .files import Command, SavedRuns, tell_resume
from .models import split_values
from .saved import SavedNetwork
from .shapes import data_input, fitted, inferred, width


def run(args: argparse.Namespace) -> int:
    """Look at everything that may be wrong, then train."""
    _check_options(args)
    files.check_prefix(args.prefix)
    store = kvstore.create(args.kvstore) if args.kvstore in kvstore.DIST else None
    random.seed(args.seed)
    epoch = first_epoch(args)
    loaded = None if args.load_epoch is None else saved.load(args.prefix, args.load_epoch)
    start = choose(
        args, loaded, data.read_both(args, None if loaded is None else width(loaded.net, loaded.values))
    )
    command = Command(args.words)
    is_first = store is None or store.rank == 0
    if len(start.parts) == 1 and args.validation != 0 and is_first:
        share = data.SHARE if args.validation is None else args.validation
        count = len(start.parts[0].x)
        print(
            f"note: --validation {share:g} of {count} samples is less than one: none are kept for validation, all are "
            "trained on",
            file=sys.stderr,
        )
    if loaded is None and not args.overwrite and is_first:
        files.refuse_others(args.prefix, start.net, start.shapes, command)
    module = _module(args, start)
    if is_first:
        files.make_ready(args.prefix, args.overwrite, args.resume)
    iterators = [_iterator(start, samples, args.batch_size, i == 0) for i, samples in enumerate(start.parts)]
    kind = "training" if len(iterators) == 1 else "validation"
    saved_runs = SavedRuns(args.prefix)
    try:
        _train(args, module, iterators[0], epoch, store)
        return _report(args, module, iterators[-1], kind, is_first)
    except BaseException:
        if is_first:
            tell_resume(saved_runs.newest(), command)
        raise


def _check_options(args: argparse.Namespace) -> None:
    """Look at what options say together."""
    if args.workload is not None and len(args.workload) != len(args.contexts):
        raise ArgumentError(
            f"--workload has {len(args.workload)} shares, expected {len(args.contexts)}: one for each of --contexts"
        )
    options.check_optimizer(args)


def _module(args: argparse.Namespace, start: Start) -> Module:
    """Return the module to train, with the parameters of the epoch to continue."""
    module = Module(
        start.net,
        data_names=[start.data_name],
        label_names=[start.label_name],
        context=args.contexts,
        work_load_list=args.workload,
    )
    preload(module, args, start.values)
    return module


def _iterator(start: Start, samples: Samples, batch_size: int, shuffle: bool) -> io.NDArrayIter:
    return io.NDArrayIter(
        samples.x,
        samples.y,
        min(batch_size, len(samples.x)),
        shuffle=shuffle,
        data_name=start.data_name,
        label_name=start.label_name,
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
    with callback.TqdmBar(num_batches, batches.batch_size * workers) if is_first else nullcontext() as bar:
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
    files.tell_written(args.prefix, args.epochs)
    if args.target is not None and accuracy < args.target:
        print(f"the target of {args.target:.4f} was missed", file=sys.stderr)
        return 1
    return 0


@dataclass(frozen=True)
class Start:
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
    there = os.path.exists(states)
    if not there:
        print(f"note: there is no {states}, so the optimizer starts anew", file=sys.stderr)
    module.preload(*split_values(module.symbol, values)[:2], states if there else None)


def choose(args: argparse.Namespace, loaded: SavedNetwork | None, parts: Sequence[Samples]) -> Start:
    """Return the network that the options name, with samples that fit it.

    Args:
        loaded: what ``--load-epoch`` has loaded, None without it.
        parts: the samples for training and, if there are some, those for validation.
    """
    values: Mapping[str, NDArray] = {}
    if loaded is None:
        net = _named(args, parts)
    else:
        net, values = loaded.net, loaded.values
    data_name, label_name = data_input(net, values), _label(net)
    batch = min(args.batch_size, len(parts[0].x))
    parts = [fitted(samples, net, values, batch) for samples in parts]
    if loaded is not None:
        _check_same(args, loaded, parts)
    shapes, outputs = inferred(net, values, {data_name: (batch, *parts[0].x.shape[1:])})
    _check_classes(args, parts, outputs)
    return Start(net, values, parts, data_name, label_name, shapes)


def _named(args: argparse.Namespace, parts: Sequence[Samples]) -> Symbol:
    if args.symbol is not None:
        return symbol.load(args.symbol)
    count = data.num_classes(parts, args.classes)
    return networks.build(args.network or "lenet", parts[0].x.shape[1:], count)


def _check_same(args: argparse.Namespace, loaded: SavedNetwork, parts: Sequence[Samples]) -> None:
    """Complain if the options name another network than the one to go on with."""
    if args.symbol is None and args.network is None:
        return
    if _named(args, parts).tojson() != loaded.net.tojson():
        option = f"--symbol {args.symbol}" if args.symbol is not None else f"--network {args.network}"
        raise ArgumentError(
            f"{option} is, with these samples, another network than {loaded.name}, with which --load-epoch goes on; "
            "leave it out, or begin anew under another --prefix"
        )


def _label(net: Symbol) -> str:
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
