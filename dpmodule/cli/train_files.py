"""``dpmodule train-files``: train a network straight from files of lines, with several workers."""

from __future__ import annotations

import argparse
import glob
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import checkpoint, initializer, metric, random, symbol
from ..base import ArgumentError, BoundsError, MXNetError, did_you_mean
from ..context import cpu
from ..hogwild import AsyncExecutor, DataFeedDesc, FileRange, check_files
from ..hogwild.data_feed import first_batch
from ..module import Module
from ..symbol import Symbol
from ..symbol import Variable as variable
from . import networks, options, saved_files
from .fit_predict import first_epoch, preload
from .networks import FILE_NETWORKS, NetworkSizes
from .saved_files import Command, SavedNetwork, print_resume_command

_TABLE_NAMES = r".*_(table|linear)_weight"
_STORAGE = "__storage_type__"


def train_files(args: argparse.Namespace) -> int:
    """Check all options and data, then train."""
    options.check_optimizer(args)
    saved_files.check_prefix(args.prefix)
    random.seed(args.seed)
    last = AsyncExecutor.last_snapshot(args.prefix) if args.resume else None
    epoch = first_epoch(args) if last is None else last.epoch
    loaded = None if args.load_epoch is None else saved_files.load_network(args.prefix, args.load_epoch)
    data = read_feed(args)
    net = choose_network(args, data, loaded)
    command = Command(args.words)
    if loaded is None and not args.overwrite:
        saved_files.check_same_network(args.prefix, net, {}, command)
    try:
        with AsyncExecutor(timeout_s=args.timeout) as executor:
            training = _FileTraining(args, data, net, loaded, executor)
            training.print_engine()
            saved_files.prepare_prefix(args.prefix, args.overwrite, args.resume)
            training.run(epoch, command, last is not None)
    except BoundsError as error:
        if "row of the table" in str(error):
            raise BoundsError(f"{error}; --rows SLOT=COUNT sets the number of rows") from error
        if loaded is None and args.symbol is None:
            raise BoundsError(f"{error}; --classes COUNT sets the number of classes") from error
        raise
    saved_files.print_written(args.prefix, args.epochs)
    return 0


class _FileTraining:
    """Training loop over files.

    Args:
        loaded: the network to continue; None: a new training.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        data: FileData,
        net: Symbol,
        loaded: SavedNetwork | None,
        executor: AsyncExecutor,
    ) -> None:
        self._args = args
        self._data = data
        self._executor = executor
        self._workers = _workers(args, data)
        self._metric = args.metric or [_default_metric(net, data)]
        slots = [slot.name for slot in data.feed.slots if slot.name in net.list_arguments()]
        inputs = [name for name in slots if name != data.label]
        self._module = Module(net, inputs, [data.label], context=cpu())
        preload(self._module, args, {} if loaded is None else loaded.values)
        self._initializer = initializer.Mixed(
            [_TABLE_NAMES, ".*"],
            [initializer.Uniform(0.05), initializer.Xavier(factor_type="in", magnitude=2.0)],
        )
        self._optimizer_params = options.optimizer_params(args, "train-files")

    def run(self, begin_epoch: int, command: Command, resumes: bool) -> None:
        """Train; if interrupted, save the progress.

        Args:
            begin_epoch: number of the first epoch.
            resumes: whether the first epoch continues from a snapshot.
        """
        args = self._args
        every = args.save_every or args.epochs
        for epoch in range(begin_epoch, args.epochs):
            updates = self._updates()
            try:
                self._epoch(epoch, args.prefix if resumes and epoch == begin_epoch else None)
            except BaseException:
                self._save_interrupted(epoch, updates, command)
                raise
            if (epoch + 1) % every == 0 or epoch + 1 == args.epochs:
                self._module.save_checkpoint(args.prefix, epoch + 1, save_optimizer_states=True)

    def print_engine(self) -> None:
        """Print the engine of the training, and the reason for its choice."""
        if self._args.quiet:
            return
        if self._args.mode != "auto":
            print(f"engine: {self._args.mode}")
            return
        choice = self._executor.explain(
            self._module.symbol,
            self._data.feed,
            self._workers,
            optimizer=self._args.optimizer,
            optimizer_params=self._optimizer_params,
        )
        print(f"engine: {choice}")

    def _epoch(self, epoch: int, resume: str | None) -> None:
        """Train on all lines once, or on the remaining lines, and print the metrics."""
        args = self._args
        results = self._executor.run_from_files(
            self._module,
            self._data.feed,
            self._data.files,
            self._workers,
            mode=args.mode,
            initializer=self._initializer,
            optimizer=args.optimizer,
            optimizer_params=self._optimizer_params,
            eval_metric=metric.create(self._metric),
            progress=not args.quiet and sys.stderr.isatty(),
            split_files=args.split_files,
            on_bad_line=args.on_bad_line,
            check_labels=args.check_labels,
            resume=resume,
        )
        if not results.examples and resume is None:
            raise ArgumentError(NO_LINE)
        values = [_format_values(results.metric)]
        if self._data.validation:
            values.append(f"validation {_format_values(self._validate())}")
        rate = results.examples / max(results.seconds, 1e-9)
        values.append(f"{results.examples:,} lines in {results.seconds:.2f} s ({rate:,.0f} a second)")
        if results.skipped:
            values.append(f"{results.skipped:,} bad lines skipped")
        if not args.quiet or epoch + 1 == args.epochs:
            print(f"epoch {epoch + 1}: {', '.join(values)}", flush=True)

    def _validate(self) -> list[tuple[str, Any]]:
        """Return the metrics of the validation files."""
        args, data = self._args, self._data
        metrics = metric.create(self._metric)
        outputs = self._module.symbol.list_outputs()
        batches = self._executor.infer_from_files(
            self._module,
            data.feed,
            data.validation,
            min(self._workers, len(data.validation)),
            [data.label, *outputs[:1]],
            mode="auto" if args.mode == "native" else args.mode,
            on_bad_line=args.on_bad_line,
        )
        for _, _, (label, output) in batches:
            metrics.update([label], [output])
        return metrics.get_name_value()

    def _updates(self) -> int:
        """Return the number of updates so far."""
        own = self._module.optimizer
        return 0 if own is None else own.num_update

    def _save_interrupted(self, epoch: int, before: int, command: Command) -> None:
        """Save a snapshot, or the last complete epoch if there was no update since, and print how to resume."""
        prefix, saved = self._args.prefix, checkpoint.params_file(self._args.prefix, epoch)
        if not self._updates() or not self._is_finite():
            print_resume_command(None, command)
            return
        try:
            if self._updates() > before:
                self._executor.snapshot(prefix, epoch)
                print_resume_command(saved, command)
            else:
                self._module.save_checkpoint(prefix, epoch, save_optimizer_states=True)
                print_resume_command(saved, command, ["--load-epoch", str(epoch)])
        except MXNetError as error:
            print(f"the parameters could not be saved: {error}", file=sys.stderr)

    def _is_finite(self) -> bool:
        """Return True if all parameters are finite."""
        return all(
            bool(array.raw.isfinite().all()) for each in self._module.get_params() for array in each.values()
        )


def _workers(args: argparse.Namespace, data: FileData) -> int:
    """Return the possible number of workers, and print a note if it is reduced."""
    most = args.workers if args.split_files else len(data.files)
    if args.mode == "serial":
        most = 1
    if args.workers <= most:
        return int(args.workers)
    reason = (
        "since --mode serial has one worker"
        if args.mode == "serial"
        else "the number of files; --split-files splits files"
    )
    print(f"note: --workers {args.workers} is reduced to {most}, {reason}", file=sys.stderr)
    return most


def _default_metric(net: Symbol, data: FileData) -> str:
    """Return "auc" for networks with two classes, else "acc"."""
    lines, ragged = data.feed.batch_size, variable("ragged", stype="ragged").attr(_STORAGE)
    attributes = net.attr_dict()
    inputs = [name for name in net.list_arguments() if attributes.get(name, {}).get(_STORAGE) == ragged]
    shapes = net.infer_shape_partial(**dict.fromkeys([*inputs, data.label], (lines,)))[1]
    return "acc" if shapes and len(shapes[0]) == 2 and shapes[0][1] > 2 else "auc"


def _format_values(values: list[tuple[str, Any]]) -> str:
    return ", ".join(f"{name}={value:.4f}" for name, value in values)


_DEFAULT_NET = "bow"
NO_LINE = "--files: the files have no lines to train on"


@dataclass(frozen=True)
class FileData:
    """Description of the lines, and their files."""

    feed: DataFeedDesc
    label: str
    files: Sequence[str]
    validation: Sequence[str]


def read_feed(args: argparse.Namespace) -> FileData:
    """Return the data of the options."""
    if args.feed is None or not args.files:
        raise ArgumentError(
            "no files are given; expected --feed FILE, their description, and --files PATTERN"
        )
    feed = DataFeedDesc(args.feed, allow_pipe_command=args.allow_pipe_command)
    if args.batch_size is not None:
        feed.set_batch_size(args.batch_size)
    label = networks.find_label(feed, args.label)
    return FileData(
        feed,
        label,
        _expand_patterns(args.files, "--files"),
        _expand_patterns(args.validation, "--validation"),
    )


def _expand_patterns(patterns: Sequence[str], option: str) -> list[str]:
    """Return the files that patterns name, each once."""
    files: dict[str, None] = {}
    for pattern in patterns:
        is_pattern = glob.has_magic(pattern)
        paths = sorted(glob.glob(pattern, recursive=True)) if is_pattern else [pattern]
        if not paths:
            raise ArgumentError(
                f"{option} {pattern!r} matches no file, expected a path or a pattern such as 'part-*'"
            )
        files.update(dict.fromkeys(paths))
    return check_files(list(files)) if files else []


def _float_widths(data: FileData, on_bad_line: str) -> dict[str, int]:
    """Return the number of values of each float slot in the first line."""
    floats = [slot.name for slot in data.feed.used_slots if slot.type == "float"]
    one = DataFeedDesc(data.feed.desc(), allow_pipe_command=True)  # already allowed by the user, or absent
    one.set_batch_size(1)
    one.set_dense_slots(floats)
    first = first_batch(one, map(FileRange, data.files), on_bad_line)
    if first is None:
        raise ArgumentError(NO_LINE)
    return {name: int(first.slots[name].values.shape[1]) for name in floats}


def choose_network(args: argparse.Namespace, data: FileData, loaded: SavedNetwork | None) -> Symbol:
    """Return the network of the options.

    Args:
        loaded: the network of ``--load-epoch``; None: the option is not given.
    """
    if loaded is not None and args.net is None and args.symbol is None and not _given_sizes(args):
        return _check_label(loaded.net, data, loaded.name)
    if args.symbol is not None:
        for option in _given_sizes(args):
            raise ArgumentError(
                f"--{option} {_option_text(args, option)} is not supported with --symbol, whose network has fixed sizes"
            )
        net = _check_label(symbol.load(args.symbol), data, args.symbol)
    else:
        net = network_of(args, data)
    if loaded is not None and net.tojson() != loaded.net.tojson():
        option = f"--symbol {args.symbol}" if args.symbol is not None else f"--net {args.net or _DEFAULT_NET}"
        raise ArgumentError(
            f"{option} gives another network for these slots and sizes than {loaded.name}, which --load-epoch "
            "continues; remove the option, or start a new training under another --prefix"
        )
    return net


def network_of(args: argparse.Namespace, data: FileData) -> Symbol:
    """Return the network of ``--net``."""
    name = args.net or _DEFAULT_NET
    network_kind = FILE_NETWORKS[name]
    has = {
        "width": network_kind.width > 0,
        "hidden": bool(network_kind.hidden),
        "dropout": bool(network_kind.hidden),
        "classes": not network_kind.is_binary,
    }
    for option, takes in has.items():
        if getattr(args, option) is not None and not takes:
            raise ArgumentError(f"--{option} {_option_text(args, option)} is not supported by --net {name}")
    sizes = NetworkSizes(
        *_table_rows(args, data),
        network_kind.width if args.width is None else args.width,
        network_kind.hidden if args.hidden is None else args.hidden,
        args.dropout or 0.0,
        args.classes or 2,
        _float_widths(data, args.on_bad_line),
    )
    return networks.build_over_files(name, data.feed, data.label, sizes)


def _table_rows(args: argparse.Namespace, data: FileData) -> tuple[int, dict[str, int]]:
    """Return the default number of rows of tables, and that of individual slots."""
    ids = [slot.name for slot in data.feed.used_slots if slot.type == "uint64" and slot.name != data.label]
    rows, rows_of = networks.TABLE_ROWS, {}
    for name, count in args.rows:
        if name is None:
            rows = count
        elif name in ids:
            rows_of[name] = count
        else:
            raise ArgumentError(
                f"--rows {name}={count}: {name!r} is not a used id slot; these are "
                f"{', '.join(ids) or 'none'}{did_you_mean(name, ids)}"
            )
    return rows, rows_of


def _given_sizes(args: argparse.Namespace) -> list[str]:
    """Return the names of the size options that are given."""
    options = ("rows", "width", "hidden", "dropout", "classes")
    return [option for option in options if getattr(args, option) not in (None, [])]


def _option_text(args: argparse.Namespace, option: str) -> str:
    value = getattr(args, option)
    if option == "rows":
        name, value = value[-1]
        return str(value) if name is None else f"{name}={value}"
    return (",".join(map(str, value)) or "none") if option == "hidden" else f"{value:g}"


def _check_label(net: Symbol, data: FileData, name: str) -> Symbol:
    """Return a network after checking that it has the label of the feed."""
    if data.label not in net.list_arguments():
        variables = [each for each in net.list_arguments() if each not in net.graph.parameters]
        raise ArgumentError(
            f"{name} has no variable {data.label!r}, the feed's label; --label SLOT names another slot. The feed has "
            f"the slots {', '.join(slot.name for slot in data.feed.slots)}, the network the variables "
            f"{', '.join(variables)}{did_you_mean(data.label, variables)}"
        )
    return net
