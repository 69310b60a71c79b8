"""``dpmodule fit``: train a network on digits, a CSV, an .npz or a LibSVM file."""

from __future__ import annotations

import argparse
import math
import sys
from contextlib import nullcontext
from typing import Any

from .. import callback, checkpoint, initializer, io, kvstore, lr_scheduler, optimizer, random
from . import data, files, fit_options, saved, starting
from .command import Command
from .data import Samples
from .keeping import KeepingModule, remove_interrupted, save_interrupted, tell_resume
from .shapes import width

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    """Add ``fit`` to the subcommands of the command line."""
    parser = commands.add_parser(
        "fit",
        help="train a network",
        description="Train a network that tells classes apart: by default a small LeNet on scikit-learn's "
        "handwritten digits. Ctrl-C saves what has been reached and prints the command that goes on.",
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
        files.make_ready(args.prefix, args.overwrite, args.load_epoch)
    iterators = [_iterator(start, samples, args.batch_size, i == 0) for i, samples in enumerate(start.parts)]
    _train(args, module, iterators[0], epoch, command, store)
    return _report(args, module, iterators[-1], "training" if len(iterators) == 1 else "validation", is_first)


def _module(args: argparse.Namespace, start: starting.Start) -> KeepingModule:
    """Return the module to train, with the parameters to go on from."""
    module = KeepingModule(
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
    module: KeepingModule,
    batches: io.NDArrayIter,
    begin_epoch: int,
    command: Command,
    store: kvstore.KVStoreBase | None,
) -> None:
    """Train, and save what has been reached even if it is broken off; of several processes, only the first saves."""
    workers, is_first = (1, True) if store is None else (store.num_workers, store.rank == 0)
    num_batches = math.ceil(batches.num_data / batches.batch_size / workers)
    every = args.save_every or args.epochs

    def save(epoch: int, *_: Any) -> None:
        if not is_first:
            return
        if (epoch + 1) % every == 0 or epoch + 1 == args.epochs:
            module.save_checkpoint(args.prefix, epoch + 1, save_optimizer_states=True)

    try:
        with (
            callback.TqdmBar(num_batches, batches.batch_size * workers) if is_first else nullcontext() as bar
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
                epoch_end_callback=save,
                on_nonfinite=args.on_nonfinite,
                check_labels=args.check_labels,
                checkpoint=_checkpoint(args) if args.resume else None,
                resume="auto" if args.resume else None,
            )
    except BaseException:
        if not is_first:
            raise
        if args.resume:
            tell_resume(args.prefix, command)
        else:
            save_interrupted(module.last_finite(), module.symbol, args.prefix, command)
        raise
    if is_first and args.load_epoch == checkpoint.INTERRUPTED:
        remove_interrupted(args.prefix)


def _checkpoint(args: argparse.Namespace) -> callback.Checkpoint:
    """Return what saves the state of the run."""
    return callback.Checkpoint(
        args.prefix,
        every_n_epochs=args.save_every or 1,
        every_n_batches=args.save_batches,
        keep_last=None if args.save_every else 2,
    )


def _optimizer_params(args: argparse.Namespace, num_batches: int, begin_epoch: int) -> dict[str, Any]:
    params = {**fit_options.optimizer_params(args), "begin_num_update": num_batches * begin_epoch}
    if args.schedule == "cosine":
        rate = params.get("learning_rate") or optimizer.create(args.optimizer).lr
        params["lr_scheduler"] = lr_scheduler.CosineScheduler(num_batches * args.epochs, base_lr=rate)
    return params


def _report(
    args: argparse.Namespace, module: KeepingModule, samples: io.DataIter, kind: str, is_first: bool
) -> int:
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
