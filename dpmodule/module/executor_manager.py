"""MXNet's first data-parallel classes, which programs older than `Module` call directly.

`DataParallelExecutorManager` splits batches over contexts and, given a `sym_gen`, keeps one executor group for each
bucket; `dpmodule.module.DataParallelExecutorGroup` does the work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._core import lazy
from ..base import ArgumentError, ShapeError
from ..context import Context
from ..ndarray import NDArray
from ..symbol import Symbol
from . import DataParallelExecutorGroup as ExecutorGroup
from .group.batch_splitter import split_input_slice as _split_input_slice
from .group.input_order import in_order

__all__ = ["DataParallelExecutorGroup", "DataParallelExecutorManager"]

lazy.publish(__name__, __all__)


def _check_arguments(symbol: Symbol) -> None:
    """Raise ArgumentError if two arguments, or two auxiliary states, have the same name."""
    for what, names in (
        ("argument", symbol.list_arguments()),
        ("auxiliary state", symbol.list_auxiliary_states()),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ArgumentError(f"the network has more than one {what} named {', '.join(twice)}")


def _load_general(data: Sequence[NDArray], targets: Sequence[Any]) -> None:
    """Copy arrays into targets: an array for each, or a list of (slice of the batch, array)."""
    for source, target in zip(data, targets):
        if isinstance(target, NDArray):
            source.copyto(target)
            continue
        stop = target[-1][0].stop
        if stop != source.shape[0]:
            raise ShapeError(f"a batch has {source.shape[0]} samples, expected {stop}")
        for part, array in target:
            source[part].copyto(array)


def _load_data(batch: Any, targets: Sequence[Any]) -> None:
    """Copy a batch's inputs."""
    _load_general(batch.data, targets)


def _load_label(batch: Any, targets: Sequence[Any]) -> None:
    """Copy a batch's labels."""
    _load_general(batch.label, targets)


class DataParallelExecutorGroup:
    """Executors of one network on several contexts, each with its slice of a batch.

    Args:
        arg_names: names of the symbol's arguments.
        param_names: names of the trained arguments.
        ctx: devices, each of which gets a slice of the batch.
        slices: each context's slice of a batch.
        train_data: iterator whose `provide_data` and `provide_label` hold the shapes.
        shared_group: group whose parameters and memory this one uses.

    Attributes:
        param_arrays: for each parameter, its array on each context.
        grad_arrays: for each parameter, its gradient on each context.
        aux_arrays: for each auxiliary state, its array on each context.
        data_arrays: for each input, (slice, array) of each context.
        label_arrays: for each label, (slice, array) of each context.
        train_execs: the executors.

    Source: MXNet 1.9.1 `executor_manager.DataParallelExecutorGroup`.
    """

    def __init__(
        self,
        sym: Symbol,
        arg_names: Sequence[str],
        param_names: Sequence[str],
        ctx: Sequence[Context],
        slices: Sequence[slice],
        train_data: Any,
        shared_group: DataParallelExecutorGroup | None = None,
    ) -> None:
        _check_arguments(sym)
        self.data_names = [d[0] for d in train_data.provide_data]
        self.label_names = [d[0] for d in train_data.provide_label]
        self.param_idx = [i for i, name in enumerate(arg_names) if name in set(param_names)]
        self.param_names = [arg_names[i] for i in self.param_idx]
        self.aux_names = sym.list_auxiliary_states()
        self.slices = list(slices)
        self.executor_group: ExecutorGroup = ExecutorGroup(
            sym,
            list(ctx),
            [s.stop - s.start for s in slices],
            train_data.provide_data,
            train_data.provide_label,
            self.param_names,
            for_training=True,
            inputs_need_grad=False,
            shared_group=None if shared_group is None else shared_group.executor_group,
        )
        self._batch: Any = None

    @property
    def train_execs(self) -> list[Any]:
        """The executors, one for each context."""
        return self.executor_group.execs

    @property
    def shared_data_arrays(self) -> list[dict[str, NDArray]]:
        """Input memory that groups share, one dictionary for each context."""
        return self.executor_group.shared_data_arrays

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """For each parameter, its array on each context."""
        return self.executor_group.param_arrays

    @property
    def grad_arrays(self) -> list[list[NDArray]]:
        """For each parameter, its gradient on each context."""
        return [[g for g in grads if g is not None] for grads in self.executor_group.grad_arrays or ()]

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """For each auxiliary state, its array on each context."""
        return self.executor_group.aux_arrays

    def _inputs(self, names: Sequence[str]) -> list[list[tuple[slice, NDArray]]]:
        return [[(s, e.arg_dict[name]) for s, e in zip(self.slices, self.train_execs)] for name in names]

    @property
    def data_arrays(self) -> list[list[tuple[slice, NDArray]]]:
        """For each input, the slice and the array of each context."""
        return self._inputs(self.data_names)

    @property
    def label_arrays(self) -> list[list[tuple[slice, NDArray]]]:
        """For each label, the slice and the array of each context."""
        return self._inputs(self.label_names)

    def load_data_batch(self, data_batch: Any) -> None:
        """Copy a batch's inputs and labels into the executors.

        Args:
            data_batch: has `data` and `label`, arrays of (N, ...), and, with buckets, `bucket_key`.

        Raises:
            ShapeError: the size of the batch differs from that of the slices.
        """
        data_batch, _ = in_order(data_batch, self.data_names, self.label_names)
        _load_data(data_batch, self.data_arrays)
        _load_label(data_batch, self.label_arrays)

    def forward(self, is_train: bool = False) -> None:
        """Run every executor on the loaded batch.

        Args:
            is_train: True for training mode, which keeps values for backward.
        """
        for executor in self.train_execs:
            executor.forward(is_train=is_train)

    def backward(self) -> None:
        """Compute the gradients on every context; the outputs must be losses."""
        self.executor_group.backward()

    def update_metric(self, metric: Any, labels: Sequence[NDArray], pre_sliced: bool = False) -> None:
        """Update a metric with each context's labels and outputs.

        Args:
            metric: an `EvalMetric`.
            labels: labels of the whole batch; with `pre_sliced` a list for each context.
        """
        for number, (executor, part) in enumerate(zip(self.train_execs, self.slices)):
            own = labels[number] if pre_sliced else [label[part] for label in labels]
            metric.update(own, executor.outputs)


class DataParallelExecutorManager:
    """Trains one network, or with `sym_gen` one for each bucket, on several contexts.

    Args:
        symbol: the network; with `sym_gen`, that of the default bucket.
        ctx: devices, each of which gets a slice of the batch.
        train_data: iterator with shapes and batch size.
        arg_names: names of the network's arguments; None = as listed.
        param_names: names of trained arguments; None = all but inputs and labels.
        aux_names: names of the auxiliary states; None = as listed.
        work_load_list: share of each context; None = equal.
        logger: logger of messages.
        sym_gen: function from a bucket key to a network.

    Raises:
        ArgumentError: the lengths of `work_load_list` and `ctx` differ.

    Source: MXNet 1.9.1 `DataParallelExecutorManager`.
    """

    def __init__(
        self,
        symbol: Symbol,
        ctx: Sequence[Context],
        train_data: Any,
        arg_names: Sequence[str] | None = None,
        param_names: Sequence[str] | None = None,
        aux_names: Sequence[str] | None = None,
        work_load_list: Sequence[float] | None = None,
        logger: Any = None,
        sym_gen: Callable[[Any], Symbol] | None = None,
    ) -> None:
        shares = [1] * len(ctx) if work_load_list is None else list(work_load_list)
        if len(shares) != len(ctx):
            raise ArgumentError(f"work_load_list has {len(shares)} entries for {len(ctx)} contexts")
        inputs = {d[0] for d in (*train_data.provide_data, *train_data.provide_label)}
        self.arg_names = list(arg_names or symbol.list_arguments())
        self.param_names = list(param_names or (n for n in self.arg_names if n not in inputs))
        self.aux_names = list(aux_names or symbol.list_auxiliary_states())
        self.ctx = list(ctx)
        self.slices = _split_input_slice(train_data.batch_size, shares)
        self.symbol = symbol
        self.sym_gen = sym_gen
        self.logger = logger or logging
        self.execgrp = DataParallelExecutorGroup(
            symbol, self.arg_names, self.param_names, self.ctx, self.slices, train_data
        )
        self.curr_execgrp = self.execgrp
        self.execgrp_bucket = {getattr(train_data, "default_bucket_key", None): self.execgrp}

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """For each parameter, its array on each context; all buckets share them."""
        return self.execgrp.param_arrays

    @property
    def grad_arrays(self) -> list[list[NDArray]]:
        """For each parameter, its gradient on each context."""
        return self.execgrp.grad_arrays

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """For each auxiliary state, its array on each context."""
        return self.execgrp.aux_arrays

    def install_monitor(self, monitor: Any) -> None:
        """Install a monitor on every executor.

        Args:
            monitor: an `mx.mon.Monitor`.

        Raises:
            ArgumentError: there are buckets, which MXNet's manager cannot monitor either.
        """
        if self.sym_gen is not None:
            raise ArgumentError("DataParallelExecutorManager cannot monitor buckets; use BucketingModule")
        for executor in self.execgrp.train_execs:
            monitor.install(executor)

    def set_params(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
        """Copy parameters and auxiliary states to every context; unknown names are ignored.

        Args:
            arg_params: parameters by name, of the bound shapes.
            aux_params: auxiliary states by name, of the bound shapes.
        """
        for executor in self.execgrp.train_execs:
            executor.copy_params_from(arg_params, aux_params, allow_extra_params=True)

    def copy_to(self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray]) -> None:
        """Write the mean over contexts of every parameter and auxiliary state into given arrays.

        Args:
            arg_params: an array for every parameter, or an empty dictionary to fill.
            aux_params: the same for the auxiliary states.
        """
        for names, arrays, into in (
            (self.param_names, self.param_arrays, arg_params),
            (self.aux_names, self.aux_arrays, aux_params),
        ):
            for name, parts in zip(names, arrays):
                total = parts[0].copy()
                for other in parts[1:]:
                    total += other.as_in_context(total.context)
                mean = total / len(parts)
                if name in into:
                    mean.astype(into[name].dtype).copyto(into[name])
                else:
                    into[name] = mean

    def load_data_batch(self, data_batch: Any) -> None:
        """Copy a batch into the executors of its bucket, or of the only group.

        Args:
            data_batch: has `data` and `label`, arrays of (N, ...), and, with buckets, `bucket_key`.
        """
        self.curr_execgrp = self.execgrp
        if self.sym_gen is not None:
            key = data_batch.bucket_key
            if key not in self.execgrp_bucket:
                net = self.sym_gen(key)
                names = net.list_arguments()
                self.execgrp_bucket[key] = DataParallelExecutorGroup(
                    net, names, self.param_names, self.ctx, self.slices, data_batch, self.execgrp
                )
            self.curr_execgrp = self.execgrp_bucket[key]
        self.curr_execgrp.load_data_batch(data_batch)

    def forward(self, is_train: bool = False) -> None:
        """Run every executor on the loaded batch.

        Args:
            is_train: True for training mode, which keeps values for backward.
        """
        self.curr_execgrp.forward(is_train=is_train)

    def backward(self) -> None:
        """Compute the gradients on every context."""
        self.curr_execgrp.backward()

    def update_metric(self, metric: Any, labels: Sequence[NDArray], pre_sliced: bool = False) -> None:
        """Update a metric with each context's labels and outputs.

        Args:
            metric: an `EvalMetric`.
            labels: arrays of (N, ...), N the samples of the batch.
            pre_sliced: True if `labels` is a list for each context.
        """
        self.curr_execgrp.update_metric(metric, labels, pre_sliced)
