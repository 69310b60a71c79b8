"""``dpmodule fit``: train a network on digits, a CSV, an .npz or a LibSVM file."""

from __future__ import annotations

import argparse
import math
import sys
from contextlib import nullcontext
from typing import Any

from .. import callback, initializer, io, kvstore, lr_scheduler, optimizer, random
from ..callback.checkpoint import Checkpoint
from ..module import Module
from . import data, files, fit_options, saved, starting
from .command import Command
from .data import Samples
from .interrupted import SavedRuns, tell_resume
from .shapes import width


def add_commands(commands: Any) -> None:
    """Add ``fit`` to the subcommands of the command line."""
    parser = commands.add_parser(
        "fit",
        help="train a network",
        description="Train a network that tells classes apart: by default a small LeNet on scikit-learn's "
        "handwritten digits. Ctrl-C saves the run and prints the command that resumes it.",
    )
    parser.set_defaults(run=_run)
    fit_options.add_options(parser)


def _run(args: argparse.Namespace) -> int:
    """Look at everything that may be wrong, then train."""
    fit_options.check(args)
    files.check_prefix(args.prefix)
    store = kvstore.create(args.kvstore) if args.kvstore in kvstore.DIST else None
    random.seed(args.seed)
    epoch = starting.first_epoch(args)
    loaded = None if args.load_epoch is None else saved.load(args.prefix, args.load_epoch)
    start = starting.choose(
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


def _module(args: argparse.Namespace, start: starting.Start) -> Module:
    """Return the module to train, with the parameters of the epoch to continue."""
    module = Module(
        start.net,
        data_names=[start.data_name],
        label_names=[start.label_name],
        context=args.contexts,
        work_load_list=args.workload,
    )
    starting.preload(module, args, start.values)
    return module


def _iterator(start: starting.Start, samples: Samples, batch_size: int, shuffle: bool) -> io.NDArrayIter:
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
    params = {**fit_options.optimizer_params(args), "begin_num_update": num_batches * begin_epoch}
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
