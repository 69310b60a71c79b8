"""Updates of parameters from gradients on several devices: through a store, or device by device."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .. import kvstore as kv
from .. import optimizer as opt
from ..base import ArgumentError, StateError, dtype_name
from ..context import Context
from ..executor.backward import Listener
from ..executor.sparse_arrays import array_of
from ..ndarray import NDArray
from ..ndarray.growing_table import GrowingTable, HashedArray
from ..ndarray.row_sparse import distinct_rows, row_numbers
from ..ndarray.sparse_base import BaseSparseNDArray, clear
from ..ops.sparse import all_rows
from .arguments import OptimizerArguments
from .mxnet_helpers import create_kvstore
from .nonfinite import GradientCheck

if TYPE_CHECKING:
    from ..params import ParamStore
    from .initial_rows import InitialRows
    from .types import CompressionLike, KVStoreLike, OptimizerLike, OptimizerParams

_logger = logging.getLogger(__name__)

Grads = Sequence[Sequence[NDArray | None]]


class GradientAccumulator:
    """Accumulates gradients of batches by parameter name, on every device.

    The buckets of a network share it: gradients wait for the next update of a bucket that has their parameter.

    Attributes:
        sums: accumulated gradients by name of the parameter and index of the device.
    """

    def __init__(self) -> None:
        self.sums: dict[tuple[str, int], NDArray] = {}

    def keep(self, names: Sequence[str], grads: Grads) -> None:
        """Add the gradients of a batch.

        Args:
            grads: gradients of each parameter on every device; they are copied.

        Shape:
            grads[i][k]: the shape of the parameter.
        """
        for name, row in zip(names, grads, strict=True):
            for k, grad in enumerate(row):
                if grad is None:
                    continue
                if (name, k) in self.sums:
                    self.sums[name, k] += grad
                else:
                    self.sums[name, k] = grad.copy()

    def give(self, names: Sequence[str], grads: Grads) -> None:
        """Add the accumulated gradients to those of the last batch, and remove them.

        Shape:
            grads[i][k]: the shape of the parameter.
        """
        for name, row in zip(names, grads, strict=True):
            for k, grad in enumerate(row):
                known = self.sums.pop((name, k), None)
                if known is not None and grad is not None:
                    grad += known  # in place

    def state_dict(self) -> dict[str, list[Any]]:
        """Return the sums by parameter name and index of the device."""
        return {f"{name}@{k}": [name, k, array] for (name, k), array in self.sums.items()}

    def load_state_dict(self, state: Mapping[str, list[Any]], contexts: Sequence[Context]) -> None:
        """Load a result of `state_dict`."""
        self.sums = {(name, k): array.as_in_context(contexts[k]).copy() for name, k, array in state.values()}


def squared_norm(grads: Grads) -> float:
    """Return the sum of the squares of gradients, which are first summed over devices.

    Shape:
        grads[i][k]: the shape of the parameter.
    """
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for row in grads:
        known = [grad for grad in row if grad is not None]
        if not known:
            continue
        whole = known[0]
        for other in known[1:]:
            whole = whole + other.as_in_context(whole.context)
        stored = whole.data if isinstance(whole, BaseSparseNDArray) else whole
        by_device.setdefault(stored.raw.device, []).append(stored.raw.detach())
    norms = (torch._foreach_norm(tensors, 2, torch.float32) for tensors in by_device.values())
    return sum(float(torch.stack(list(norm)).double().square().sum()) for norm in norms)


_DEFAULT_ARGUMENTS = (("learning_rate", 0.01),)
"""Default optimizer arguments of `init_optimizer` and `fit`."""


class ParameterGroup(Protocol):
    """Parameters and gradients on contexts, of an executor group or a collection."""

    @property
    def symbol(self) -> Any:
        """The symbol with the attributes of the parameters."""

    @property
    def contexts(self) -> Sequence[Context]:
        """Contexts of the parameters."""

    @property
    def active(self) -> Sequence[int]:
        """Indices of the contexts with samples."""

    @property
    def arg_names(self) -> Sequence[str]:
        """Names of the arguments, including parameters, in the order of `param_arrays`."""

    @property
    def param_names(self) -> Sequence[str]:
        """Names of the parameters, in the order of their indices in optimizers."""

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """For each parameter its array on every context.

        Shape:
            returns[i][k]: the shape of the parameter.
        """

    @property
    def grad_arrays(self) -> Sequence[Sequence[NDArray | None]] | None:
        """For each parameter its gradient on every context.

        Shape:
            returns[i][k]: the shape of the parameter.
        """

    @property
    def row_sparse_names(self) -> Collection[str]:
        """Names of the row-sparse parameters."""

    @property
    def num_samples(self) -> int:
        """Samples in a whole batch."""


def check_compression(params: CompressionLike) -> None:
    """Raise ArgumentError for invalid compression parameters, before a store exists."""
    if params:
        from ..kvstore import Compression

        Compression(params)


def make_store(
    kvstore: KVStoreLike, group: ParameterGroup, compression_params: CompressionLike = None
) -> tuple[kv.KVStoreBase | None, bool]:
    """Return the store, None if a single device needs none, and True if the optimizer runs inside it.

    Args:
        kvstore: a name, a store or None; see `create_kvstore`.
        compression_params: gradient compression of the store; None = no compression.
    """
    firsts = {str(i): arrays[0] for i, arrays in enumerate(group.param_arrays)}
    store, on_store = create_kvstore(kvstore, len(group.contexts), firsts)
    if store is not None and compression_params:
        store.set_gradient_compression(compression_params)
    elif compression_params:
        warnings.warn("compression_params have no effect, because no store sums gradients", stacklevel=6)
    return store, on_store


def make_optimizer(
    optimizer: OptimizerLike,
    params: OptimizerParams,
    group: ParameterGroup,
    on_store: bool,
    num_samples: int | None = None,
) -> opt.Optimizer:
    """Return an optimizer with the names of the parameters.

    Args:
        optimizer: a name, an `Optimizer`, or a torch class, see `opt.TorchOptimizer`.
        params: arguments for a named one or a class; rescale_grad is 1 / `num_samples` unless given.
        on_store: True if it runs inside a store, where a parameter has one index for all devices.
        num_samples: number of samples in the batches of all processes that sum gradients; None = those of the group's
            batch.
    """
    devices = 1 if on_store else len(group.contexts)
    names = {i * devices + k: name for i, name in enumerate(group.param_names) for k in range(devices)}
    rescale = 1.0 / (num_samples or group.num_samples)
    if isinstance(optimizer, str) or (callable(optimizer) and not isinstance(optimizer, opt.Optimizer)):
        is_default = params == _DEFAULT_ARGUMENTS and not isinstance(optimizer, str)
        if not isinstance(params, (Mapping, list, tuple)):
            raise ArgumentError(
                f"optimizer_params is {params!r}, expected a dict or pairs of a name and a value"
            )
        arguments = {} if is_default else dict(params)  # a class of torch.optim has a default rate
        arguments.setdefault("rescale_grad", rescale)
        return opt.create(optimizer, sym=group.symbol, param_idx2name=names, **arguments)
    if not isinstance(optimizer, opt.Optimizer):
        raise ArgumentError(f"optimizer is {optimizer!r}, expected a name, an Optimizer or a torch class")
    if optimizer.rescale_grad != rescale:
        warnings.warn(
            f"the optimizer was made outside Module with rescale_grad={optimizer.rescale_grad}, which is not "
            f"1 / batch size{' of all workers' if num_samples else ''} ({rescale}); is this intended?",
            stacklevel=6,
        )
    optimizer.idx2name = names
    return optimizer


def _rows_of(state: Any, rows: torch.Tensor) -> Any:
    """Return some rows of an optimizer's state of a whole table."""
    if isinstance(state, (tuple, list)):
        return type(state)(_rows_of(part, rows) for part in state)
    return None if state is None else NDArray(state.raw[rows], state.context)


def rows_of_ids(array: Any) -> GrowingTable:
    """Return the rows of a table with ``hash_rows=True`` that this process keeps."""
    source = array.source
    rows: GrowingTable = source if isinstance(source, GrowingTable) else source.rows
    return rows


def trains_spread_rows(optimizer: opt.Optimizer) -> bool:
    """Return True if an optimizer can train tables whose rows are spread over processes."""
    return type(optimizer) in (opt.SGD, opt.Adam, opt.AdaGrad, opt.PlainAdaGrad, opt.Ftrl)


def prefetch_rows(row_ids: object, names: Collection[str], store: ParamStore) -> None:
    """Fetch rows of tables that are spread; raise an error for row numbers that a parameter does not have.

    Args:
        row_ids: the result of a user's `sparse_row_id_fn`.
        names: those of the parameters.
    """
    if row_ids is None:  # MXNet does not call the function without a store
        return
    if not isinstance(row_ids, Mapping):
        raise ArgumentError(f"sparse_row_id_fn returned {type(row_ids).__name__}, expected a dict")
    for name, rows in row_ids.items():
        if name not in names:
            raise ArgumentError(
                f"sparse_row_id_fn names {name!r}, which is not a parameter; the parameters are {', '.join(names)}"
            )
        table: Any = store.array(name, 0)
        if hasattr(table, "source"):
            table.source.prefetch(distinct_rows(rows))
        else:
            row_numbers(rows, table.shape[0])


def _store_of_ids(store: Any, group: ParameterGroup) -> kv.KVStoreBase:
    """Return the store of a module that has tables with ``hash_rows=True``: one process has a store of its own."""
    if any(context.device_type != "cpu" for context in group.contexts):
        raise ArgumentError(
            f"a table with hash_rows=True needs a CPU context; the module is on {group.contexts[0]}"
        )
    if hasattr(store, "sharded"):
        return store  # type: ignore[no-any-return]
    if len(group.contexts) > 1 or (store is not None and type(store) is not kv.KVStore):
        raise ArgumentError(
            f"a table with hash_rows=True needs one context and the kvstore 'local' or 'dist_sync'; the module has "
            f"{len(group.contexts)} contexts, and the kvstore is {type(store).__name__}"
        )
    from ..kvstore.ranks import Ranks  # few networks have such tables

    return kv.DistKVStore("dist_sync", ranks=Ranks(None, 0.0, None))


def _num_summed(store: Any) -> int:
    """Return the number of processes that sum gradients in a store."""
    return store.num_workers if getattr(store, "adds_up", False) else 1


def _count_samples(store: Any, group: ParameterGroup) -> int | None:
    """Return the number of samples in the batches of all processes that sum gradients; None for one process.

    Args:
        store: the store of the module, or None.
    """
    if not hasattr(store, "count_samples") or store.num_workers == 1:
        return None
    number: int = store.count_samples(group.num_samples)
    return number if store.adds_up else None


def _settings(optimizer: opt.Optimizer) -> dict[str, Any]:
    """Return the settings of an optimizer and its schedule as plain data."""
    schedule = getattr(optimizer, "lr_scheduler", None)
    settings: dict[str, Any] = {
        "the class": type(optimizer).__name__,
        "lr_scheduler": type(schedule).__name__,
    }
    for prefix, owner in ("", optimizer), ("lr_scheduler.", schedule):
        for name, value in getattr(owner, "__dict__", {}).items():
            if value is None or isinstance(value, (int, float, str)):
                settings[prefix + name] = value
    return settings


class Updates:
    """Applies an optimizer to the parameters of an executor group.

    Args:
        store: sums gradients over devices; None = independent devices.
        updater: applies the optimizer outside the store; None = the store does it.
        parameters: names in the order of their state indices; None = the order of the group.

    Attributes:
        kept: gradients of batches before the last, for the next update; buckets share them.
        scale: factor for the gradients of the next update.
    Source: MXNet 1.9.1 `model._update_params` and `_update_params_on_kvstore`, including the numbering of states:
    parameter i on device k of n has the index ``i * n + k``.
    """

    def __init__(
        self,
        group: ParameterGroup,
        optimizer: opt.Optimizer,
        store: kv.KVStoreBase | None,
        updater: opt.Updater | None,
        parameters: Sequence[str] | None = None,
    ) -> None:
        self.group = group
        self.optimizer = optimizer
        self.store = store
        self.updater = updater
        used = [name for name in group.arg_names if name in group.param_names]
        self.parameters = list(parameters or used)
        position = {name: i for i, name in enumerate(self.parameters)}
        rows = [
            (position[name], name, weights, grads)
            for name, weights, grads in zip(used, group.param_arrays, group.grad_arrays or ())
            if grads[0] is not None
        ]
        self.names = [name for _, name, _, _ in rows]
        self._weights: list[list[NDArray]] = [weights for _, _, weights, _ in rows]
        self._grads: list[Sequence[Any]] = [grads for _, _, _, grads in rows]
        devices = len(group.contexts)
        self._by_device = [
            (
                [i * devices + k for i, _, _, _ in rows],
                [g[k] for g in self._grads],
                [w[k] for w in self._weights],
            )
            for k in range(devices)
        ]
        self._row_sparse = [i for i, name in enumerate(self.names) if name in group.row_sparse_names]
        self.kept = GradientAccumulator()
        self.scale = 1.0
        self._in_store: set[str] = set()
        self._overflow_before = 0.0

    @classmethod
    def install(
        cls,
        arguments: OptimizerArguments,
        group: ParameterGroup,
        compression_params: CompressionLike,
        may_be_inside: bool = True,
        initial_rows: Mapping[str, InitialRows] | None = None,
    ) -> Updates:
        """Create the optimizer and the store from the arguments of `init_optimizer`.

        Args:
            compression_params: gradient compression of the store; None = no compression.
            may_be_inside: True if the optimizer may run inside the store, on a copy of the parameters.
            initial_rows: tables that have no values yet; None not to spread tables over the processes.
        """
        store, on_store = make_store(arguments.kvstore, group, compression_params)
        if any(isinstance(weights[0], HashedArray) for weights in group.param_arrays):
            store, on_store = _store_of_ids(store, group), True
        on_store = on_store and may_be_inside
        num_samples = _count_samples(store, group)
        optimizer = make_optimizer(
            arguments.optimizer, arguments.optimizer_params, group, on_store, num_samples
        )
        shared: Any = store
        if num_samples is not None:
            shared.ranks.check_same(type(optimizer).__name__, _settings(optimizer))
            shared.scale_partial(optimizer.rescale_grad == 1.0 / num_samples)
        updates = cls(group, optimizer, store, None if on_store else opt.get_updater(optimizer))
        if store is not None:
            if hasattr(store, "sharded"):
                shared.ranks.check_same("Module", {"shard_rows": initial_rows is not None})
            if initial_rows is not None or updates._hashed():
                updates._shard(store, initial_rows or {})
            updates._fill(initial_rows or {})
            updates._start(store, may_be_inside)
            if on_store:
                store.set_optimizer(optimizer)
        return updates

    @classmethod
    def borrow(cls, other: Updates, group: ParameterGroup) -> Updates:
        """Return updates of another group with the optimizer, states and store of installed ones."""
        own: Any = group
        for name, weights in zip(other.names, other._weights):
            if name in other.spread_names() and name in group.param_names:
                own.use_array(name, weights[0])
        updates = cls(group, other.optimizer, other.store, other.updater, other.parameters)
        updates.kept, updates._in_store = other.kept, other._in_store
        return updates

    @property
    def kind(self) -> str:
        """The type of the store, as for `init_optimizer`."""
        return "local" if self.store is None else str(self.store.type)

    @property
    def owner(self) -> Any:
        """The owner of the states: the updater, or the store."""
        return self.store if self.updater is None else self.updater

    def keys(self) -> dict[int, tuple[str, int]]:
        """Return the parameter name and context index for each index of the updater."""
        return {
            index: (name, k)
            for k, (indices, _, _) in enumerate(self._by_device)
            for index, name in zip(indices, self.names, strict=True)
        }

    def _shard(self, store: Any, initial: Mapping[str, InitialRows]) -> None:
        """Spread the parameters with row-sparse gradients over the processes, if that is possible."""
        tables = [i for i, grads in enumerate(self._grads) if grads[0].stype == "row_sparse"]
        hashed = self._hashed()
        if not hasattr(store, "sharded") or store.num_workers == 1:
            tables = hashed
        if not tables:
            return
        names = ", ".join(self.names[i] for i in tables)
        why = self._why_whole(store)
        optimizer: Any = self.optimizer
        if why is None and hashed and not optimizer.is_lazy(self._weights[hashed[0]][0]):
            why = f"the {type(optimizer).__name__} has lazy_update=False, which updates all ids"
        if why is not None and hashed:
            raise ArgumentError(f"{', '.join(self.names[i] for i in hashed)} with hash_rows=True: {why}")
        if why is not None:
            _logger.info("%s: every process keeps all rows, since %s", names, why)
            return
        group: Any = self.group
        for i in tables:
            name, weight = self.names[i], self._weights[i][0]
            if i in hashed:
                store.init_hashed(name, rows_of_ids(weight))
            elif name in initial:
                rows = initial[name]
                store.init_rows(name, weight.shape, dtype_name(weight.dtype), rows.rows, rows.seed)
            else:
                store.init(name, array_of(all_rows(weight.raw), weight.context))
            self._weights[i][0] = store.sharded(name, i not in self._row_sparse)
            self._by_device[0][2][i] = self._weights[i][0]
            group.use_array(name, self._weights[i][0])
            self._in_store.add(name)

    def _hashed(self) -> list[int]:
        """Return the positions of tables with ``hash_rows=True``."""
        return [i for i, weights in enumerate(self._weights) if isinstance(weights[0], HashedArray)]

    def _fill(self, initial: Mapping[str, InitialRows]) -> None:
        """Fill the tables without values whose rows are not spread, before the store copies them."""
        group: Any = self.group
        for name in [name for name in initial if name not in self.spread_names()]:
            group.store.fill(name, initial[name].fill)

    def _why_whole(self, store: Any) -> str | None:
        """Return why tables cannot be spread over processes; None if they can."""
        if not store.adds_up:
            return f"the kvstore is {store.type!r}, expected 'dist_sync'"
        if len(self.group.contexts) > 1:
            return f"the module has {len(self.group.contexts)} contexts, expected one"
        if self.updater is not None:
            return "the optimizer runs outside of the kvstore"
        if not trains_spread_rows(self.optimizer):
            return f"the optimizer is {type(self.optimizer).__name__}, expected SGD, Adam, AdaGrad or Ftrl"
        return None

    def _start(self, store: kv.KVStoreBase, writes: bool) -> None:
        """Put the parameters into the store, and copy those of the first device to all if `writes`."""
        firsts = self._as_declared([weights[0] for weights in self._weights])
        rows = [
            (name, first, weights if writes else [array.copy() for array in weights])
            for name, first, weights in zip(self.names, firsts, self._weights)
            if name not in self._in_store
        ]
        if store.takes_lists and rows:
            names, values, targets = map(list, zip(*rows))
            store.broadcast(names, values, targets)
        else:
            for name, value, target in rows:
                store.broadcast(name, value, target)
        if self.updater is None and isinstance(store, kv.KVStore):
            store.share([name for name, _, _ in rows], [target[0] for _, _, target in rows])
        self._in_store.update(name for name, _, _ in rows)

    def replace_stored(self) -> None:
        """Replace the copies that the store has of the parameters."""
        if self.updater is None and isinstance(self.store, kv.KVStore):
            self.store.replace(self.names, self._as_declared([weights[0] for weights in self._weights]))

    def add_to_store(self) -> None:
        """Add parameters to the store that were not trained when it was created."""
        if self.store is not None:
            self._start(self.store, self.updater is None)

    def _as_declared(self, weights: Sequence[NDArray]) -> Sequence[NDArray]:
        """Return parameters in their declared storage; row-sparse ones store all rows, in the memory of dense ones."""
        declared = list(weights)
        for i in self._row_sparse:
            if weights[i].stype != "default":  # rows that several processes keep
                continue
            declared[i] = array_of(all_rows(weights[i].raw), weights[i].context)
        return declared

    def keep(self) -> None:
        """Keep the gradients of the last backward; the next update adds them to its own."""
        self.kept.keep(self.names, self._grads)

    def clear(self) -> None:
        """Set the gradients of the last backward to 0, so that an update applies only accumulated gradients."""
        for row in self._grads:
            for grad in row:
                clear(grad)

    def squared_norm(self) -> float:
        """Return the sum of the squares of all gradients before clipping by the optimizer."""
        self.kept.give(self.names, self._grads)
        active = self.group.active
        store: Any = self.store
        if _num_summed(store) > 1:
            store.sum_up(self.names, [[row[k] for k in active] for row in self._grads])
        total = squared_norm([[row[k] for k in active] for row in self._grads])
        if _num_summed(store) > 1:
            total += store.squared_norm()
        return total * (float(self.optimizer.rescale_grad) * self.scale) ** 2

    @property
    def is_shared(self) -> bool:
        """True if several processes sum gradients."""
        return _num_summed(self.store) > 1

    @property
    def is_held(self) -> bool:
        """True if other processes requested that the last `apply` be dropped."""
        return bool(getattr(self.store, "held", False))

    def send_overflow(self, has_overflow: bool) -> None:
        """Send an overflow of gradients to other processes with the next `apply`, which all then drop."""
        flags = self.store.ranks.flags  # type: ignore[union-attr]
        self._overflow_before = flags["overflow"]
        flags["overflow"] = max(self._overflow_before, float(has_overflow))

    def receive_overflow(self) -> bool:
        """Return True if gradients of the last `apply` overflowed in a process, after `send_overflow`."""
        ranks = self.store.ranks  # type: ignore[union-attr]
        ranks.flags["overflow"] = self._overflow_before
        return bool(ranks.summed_flags["overflow"])

    def listener(self) -> Listener | None:
        """Return a listener that sends each gradient of the next backward when it is computed; `apply` must follow.

        None if gradients are accumulated first, or the store cannot send early.
        """
        store: Any = self.store
        if self.kept.sums or len(self.group.contexts) > 1 or not hasattr(store, "expect"):
            return None
        listener: Listener | None = store.expect(self.names)
        return listener

    def apply(self) -> None:
        """Update every parameter."""
        if self.kept.sums:
            self.kept.give(self.names, self._grads)
        if self.scale == 1.0:
            self._apply()
            return
        scale, self.scale = self.scale, 1.0
        rescale = self.optimizer.rescale_grad
        self.optimizer.rescale_grad = rescale * scale
        try:
            self._apply()
        finally:
            self.optimizer.rescale_grad = rescale

    def _apply(self) -> None:
        if self.store is not None:
            active = self.group.active
            used = [[row[i] for i in active] for row in self._grads]
            targets = self._weights if self.updater is None else self._grads
            if self.store.takes_lists:
                self.store.pushpull(self.names, used, targets)
            else:
                for i, name in enumerate(self.names):
                    self.store.pushpull(name, used[i], targets[i], priority=-i)
            if getattr(self.store, "held", False):  # other processes want this update dropped
                return
        if self.updater is not None:
            for indices, grads, weights in self._by_device:
                self.updater.update_all(
                    indices, grads, self._as_declared(weights) if self._row_sparse else weights
                )

    def nonfinite_gradient(self) -> str | None:
        """Return the name of a parameter whose gradient is not finite, None if there is none.

        An optimizer that clips gradients accepts infinite ones.
        """
        return self.gradient_check.first(self.optimizer)

    @cached_property
    def gradient_check(self) -> GradientCheck:
        """The check of the gradients for NaN and infinity."""
        return GradientCheck(self.names, self._grads)

    def active_updater(self) -> opt.Updater:
        """Return the updater that holds the optimizer's states, in the store or outside."""
        updater = self.updater or getattr(self.store, "updater", None)
        if not isinstance(updater, opt.Updater):
            raise StateError("optimizer states are kept by a foreign kvstore; save and load them there")
        return updater

    def saved_states(self, with_optimizer: bool = False) -> bytes:
        """Return the optimizer's states in the file format, without those of tables that are spread."""
        return self.active_updater().get_states(with_optimizer, without=self.spread_names())

    def spread_names(self) -> list[str]:
        """Return the names of the parameters whose rows are spread over processes."""
        return list(getattr(self.store, "spread", ()))

    def load_table_states(self, path: str) -> None:
        """Load the states of tables from a manifest, if there is one, and keep the own rows of loaded states."""
        from ..checkpoint import tables

        weights: dict[str, Any] = {name: row[0] for name, row in zip(self.names, self._weights)}
        spread = {name: weights[name].source for name in self.spread_names()}

        def rows(name: str, count: int) -> Any:
            if isinstance(weights[name], HashedArray):
                return rows_of_ids(weights[name])
            own = spread[name].exchange.own_rows(count) if name in spread else range(count)
            return torch.arange(own.start, own.stop, own.step)

        states = tables.load_states(path, rows)
        self.restore_states({name: state for name, state in states.items() if name in self.names})
        updater = self.active_updater()
        for name, table in spread.items():
            if name in updater.states and name not in states and not isinstance(weights[name], HashedArray):
                updater.states[name] = _rows_of(updater.states[name], rows(name, table.shape[0]))

    def states_by_name(self) -> dict[str, Any]:
        """Return the optimizer's states on the first device by parameter name."""
        updater = self.active_updater()
        states: dict[str, Any] = {}
        for index, state in updater.states.items():
            states.setdefault(updater.optimizer.idx2name.get(index, index), state)
        return states

    def restore_states(self, states: Mapping[str, Any]) -> None:
        """Load a result of `states_by_name` into this updater, for every device."""
        updater = self.active_updater()
        if self.updater is None:
            new_states = dict(states)
        else:
            names = updater.optimizer.idx2name
            new_states = {i: deepcopy(states[n]) for i, n in names.items() if n in states}
        updater.states.update(new_states)
        # the updater checks them, and moves them to their devices
        updater.states_synced.update(dict.fromkeys(new_states, False))
