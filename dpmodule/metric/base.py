"""The base of all metrics: local and global sums and counts."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import torch

from .._devices.device_transfer import on_device
from .._object_state import changes, described, packed_changes, restore, snapshot
from ..base import ArgumentError, ShapeError
from ..ndarray import NDArray
from ..ndarray.ragged import numbers_of
from ..registry import Registry
from .pending_results import PendingResults

if TYPE_CHECKING:
    from typing_extensions import Self


Arrays: TypeAlias = "NDArray | np.ndarray[Any, Any] | torch.Tensor | Sequence[Any]"
"""An array of this package, NumPy or torch, or a list of them."""
Names = Sequence[str] | None


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """Compare the number of labels and predictions, or their shapes.

    Args:
        labels: labels, or a list of them.
        preds: predictions, or a list of them.
        wrap: return both as lists.
        shape: compare shapes instead of lengths.

    Returns:
        Labels and predictions.

    Raises:
        ShapeError: they differ.

    Source: MXNet 1.9.1 `metric.check_label_shapes`.
    """
    here, there = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if here != there:
        raise ShapeError(f"Shape of labels {here} does not match shape of predictions {there}")
    if wrap:
        labels, preds = as_list(labels), as_list(preds)
    return labels, preds


def as_list(arrays: Any) -> Any:
    """Return a list unchanged, and wrap one array in a list."""
    return arrays if isinstance(arrays, (list, tuple)) else [arrays]


def plain_number(value: object) -> Any:
    """Convert a NumPy number or an array of one element to a Python number; return other values unchanged."""
    if isinstance(value, (np.generic, np.ndarray, torch.Tensor, NDArray)):
        tensor = tensor_of(value)
        return tensor.item() if tensor.numel() == 1 else value
    return value


def _flushed_property(attribute: str, text: str) -> Any:
    """Return a property for a sum or count, which first adds pending results."""

    def read(metric: EvalMetric) -> Any:
        metric._flush()
        return getattr(metric, attribute)

    def write(metric: EvalMetric, value: Any) -> None:
        metric._flush()
        setattr(metric, attribute, value)

    return property(read, write, doc=text)


class EvalMetric:
    """A running average over batches.

    There are two averages: the local one since the last `reset_local` (for logging) and the global one since `reset`
    (the epoch). A subclass defines `update`, which adds to `sum_metric` and `num_inst`, and to `global_sum_metric` and
    `global_num_inst`. The metrics of this package call `record` instead, which leaves results on their device until
    `get`.

    Args:
        name: name of the value.
        output_names: names of the outputs used by `update_dict`, in order; None for all.
        **kwargs: stored for `get_config`; `has_global_stats=True` means that `update` also adds to the global sums.
    Source: MXNet 1.9.1 `EvalMetric`.
    """

    # class attributes, as defaults for subclasses whose `reset` does not set them
    _sum: Any = 0.0
    _num: Any = 0
    _global_sum: Any = 0.0
    _global_num: Any = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wrap the methods that add a batch to record the initial attributes first, for `state_dict`."""
        super().__init_subclass__(**kwargs)
        for name in ("update", "update_dict"):
            if name in vars(cls):
                setattr(cls, name, _recording_initial(vars(cls)[name]))

    def __init__(
        self,
        name: str,
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self._has_global_stats = bool(kwargs.pop("has_global_stats", False))
        self._kwargs = kwargs
        self._pending = PendingResults()
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def _repr_html_(self) -> str:
        """Return names and values as a table for notebooks."""
        from .._core.markup import table

        return table(("metric", "value"), self.get_name_value())

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that recreate this metric, with its class under "metric"."""
        return {
            **self._kwargs,
            "metric": type(self).__name__,
            "name": self.name,
            "output_names": self.output_names,
            "label_names": self.label_names,
        }

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """Add a batch given by name.

        Args:
            label: labels by name.
            pred: outputs by name.

        Raises:
            KeyError: a name of `label_names` or `output_names` is missing.
        """
        preds = list(pred.values()) if self.output_names is None else [pred[n] for n in self.output_names]
        labels = list(label.values()) if self.label_names is None else [label[n] for n in self.label_names]
        self.update(labels, preds)

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch.

        Args:
            labels: a list of NDArrays, NumPy arrays or torch tensors.
            preds: a list of outputs of the same length.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define update")

    # sums and counts

    def record(self, result: torch.Tensor | int, count: int = 0) -> None:
        """Add a result to both sums without waiting for its device.

        Args:
            result: a number, a tensor of one number, or a tensor for `absorb`.
            count: number of instances.
        """
        if isinstance(result, int):
            self._sum += result
            self._global_sum += result
        else:
            self._pending.add(result)
        self._num += count
        self._global_num += count

    def absorb(self, rows: np.ndarray[Any, Any]) -> None:
        """Add pending results to the sums.

        Args:
            rows: one row per `record`: the result, and optionally a count.
        """
        for value in rows[:, 0].tolist():  # in order, for the same rounding as immediate addition
            self._sum += value
            self._global_sum += value
        if rows.shape[1] > 1:
            self._count(0, int(rows[:, 1].sum()))

    def _count(self, total: Any, count: int) -> None:
        """Add to the local and global sums and counts."""
        self._sum += total
        self._num += count
        self._global_sum += total
        self._global_num += count

    def _flush(self) -> None:
        rows = self._pending.drain()
        if rows is not None:
            self.absorb(rows)

    sum_metric = _flushed_property(
        "_sum", "Sum since the last `reset_local`; reading it waits for the devices."
    )
    num_inst = _flushed_property("_num", "Number of instances since the last `reset_local`.")
    global_sum_metric = _flushed_property(
        "_global_sum", "Sum since the last `reset`; reading it waits for the devices."
    )
    global_num_inst = _flushed_property("_global_num", "Number of instances since the last `reset`.")

    def reset(self) -> None:
        """Reset the local and global values."""
        self._pending.clear()
        self._sum, self._num, self._global_sum, self._global_num = 0.0, 0, 0.0, 0

    def reset_local(self) -> None:
        """Reset the local values, and keep the global ones."""
        self._flush()
        if not self._has_global_stats and (_is_multivalued(self._sum) or _is_multivalued(self._num)):
            self.reset()  # only `reset` knows their structure
        else:
            self._sum, self._num = 0.0, 0

    # state of a run

    def state_dict(self) -> dict[str, Any]:
        """Return the attributes changed by `update`, as plain data and arrays.

        Numbers, strings, arrays, random generators, collections of these, and objects of user classes are supported.
        Unchanged attributes, such as a function or a name, are omitted.

        Raises:
            ArgumentError: a changed attribute cannot be saved.
        """
        self._flush()
        before = vars(self).get(_BEFORE)
        if before is None:  # `update` was assigned to the class or object later
            return packed_changes(self, {}, _NOT_STATE | _CONFIG)[0]
        return changes(self, before, _NOT_STATE)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `state_dict`.

        Args:
            state: state of a metric of the same class and options.

        Raises:
            ArgumentError: the state belongs to another class.
        """
        self._flush()
        self._record_initial()
        restore(self, vars(self)[_BEFORE], state, leave_out=_NOT_STATE)

    def settings(self) -> list[dict[str, Any]]:
        """Return class, name and arguments, which identify the metric, as plain data.

        Example:
            >>> mx.metric.TopKAccuracy(2).settings()[0]["name"]
            'top_k_accuracy_2'
        """
        return [{"class": type(self).__name__, "name": self.name, "arguments": described(self._kwargs)}]

    def _record_initial(self) -> None:
        """Record the attributes before the first batch."""
        if _BEFORE not in vars(self):
            vars(self)[_BEFORE] = snapshot(self, _NOT_STATE)

    # merging

    def merge(self, other: Self) -> None:
        """Add the batches of another metric of the same kind.

        Adds local and global sums and counts. A subclass with further state must define `merge`.

        Args:
            other: a metric of the same class and arguments, which is not changed.

        Raises:
            ArgumentError: the metrics differ, or have further state but no `merge`.

        Example:
            >>> first, second = mx.metric.Accuracy(), mx.metric.Accuracy()
            >>> first.update([mx.nd.array([0, 1])], [mx.nd.array([[0.9, 0.1], [0.8, 0.2]])])
            >>> second.update([mx.nd.array([0, 0])], [mx.nd.array([[0.9, 0.1], [0.8, 0.2]])])
            >>> first.merge(second)
            >>> first.get()
            ('accuracy', 0.75)
        """
        self.check_merge(other)
        sums = ("sum_metric", "num_inst", "global_sum_metric", "global_num_inst")
        try:
            merged = {name: _added(getattr(self, name), getattr(other, name)) for name in sums}
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"metric {self.name!r} cannot be merged: its sums cannot be added ({error}); define "
                f"{type(self).__name__}.merge(other)"
            ) from error
        for name, value in merged.items():
            setattr(self, name, value)

    def check_merge(self, other: Self) -> None:
        """Check that `merge` can add another metric to this one.

        Raises:
            ArgumentError: the metrics cannot be merged.
        """
        kind = type(self)
        if type(other) is not kind or other is self:
            shown = "itself" if other is self else type(other).__name__
            raise ArgumentError(
                f"metric {self.name!r}: cannot merge {shown}, expected another {kind.__name__}"
            )
        mine, others = self._kwargs, other._kwargs
        if kind.merge is EvalMetric.merge:
            mine, others = {**mine, **self._config()}, {**others, **other._config()}
        for key in [*mine, *(others.keys() - mine.keys())]:
            if not _equal(mine.get(key), others.get(key)):
                raise ArgumentError(
                    f"metric {self.name!r}: cannot merge a {kind.__name__} with different arguments: {key} "
                    f"is {mine.get(key)!r} here, but {others.get(key)!r} there"
                )

    def _config(self) -> dict[str, Any]:
        """Return the attributes other than sums and counts."""
        self._flush()
        try:
            fresh = copy.deepcopy(self)
        except Exception as error:
            raise ArgumentError(
                f"metric {self.name!r} cannot be merged: it cannot be copied: {error}"
            ) from error
        fresh.reset()
        config = {key: value for key, value in self.__dict__.items() if key not in _NO_CONFIG}
        for key, value in config.items():
            if not _equal(value, fresh.__dict__.get(key)):
                raise ArgumentError(
                    f"metric {self.name!r} cannot be merged: {type(self).__name__} has the state {key!r} in addition "
                    "to sums and counts; define merge(other) to add it"
                )
        return config

    # reading

    def value_of(self, total: Any, count: Any) -> Any:
        """Return the value for a sum and a non-zero count.

        Args:
            total: sum of the results.
            count: number of instances.
        """
        return total / count

    def get(self) -> tuple[Any, Any]:
        """Return (name, local value); the value is NaN before the first batch."""
        count = self.num_inst
        return self.name, math.nan if count == 0 else plain_number(self.value_of(self.sum_metric, count))

    def get_global(self) -> tuple[Any, Any]:
        """Return (name, global value); the value is NaN before the first batch."""
        if not self._has_global_stats:
            return self.get()
        count = self.global_num_inst
        return self.name, math.nan if count == 0 else plain_number(
            self.value_of(self.global_sum_metric, count)
        )

    def get_name_value(self) -> list[tuple[str, Any]]:
        """Return `get` as a list of (name, value) pairs."""
        return _as_pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, Any]]:
        """Return `get_global`, or `get` if a subclass overrides only that, as a list of (name, value) pairs."""
        classes = type(self).__mro__
        shown = next(cls for cls in classes if "get" in vars(cls) or "get_global" in vars(cls))
        if self._has_global_stats and "get_global" in vars(shown):
            return _as_pairs(*self.get_global())
        return self.get_name_value()


_BEFORE = "_before_update"
_NOT_STATE = frozenset({"_pending", _BEFORE})
_CONFIG = frozenset({"name", "output_names", "label_names", "_has_global_stats", "_kwargs"})
_NO_CONFIG = frozenset({"_sum", "_num", "_global_sum", "_global_num", "_kwargs"}) | _NOT_STATE


def _recording_initial(update: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `update` to record the attributes before the first batch."""

    @functools.wraps(update)
    def method(self: EvalMetric, *args: Any, **kwargs: Any) -> Any:
        if _BEFORE not in self.__dict__:
            self._record_initial()
        return update(self, *args, **kwargs)

    return method


def _added(total: Any, more: Any) -> Any:
    """Add two sums, which may be lists."""
    if isinstance(total, (list, tuple)) and isinstance(more, (list, tuple)):
        return type(total)([_added(*both) for both in zip(total, more, strict=True)])
    return total + more


def _equal(first: object, second: object) -> bool:
    """Return True if two attribute values are equal, including arrays and objects that compare by identity."""
    if first is second:
        return True
    try:
        if (first == second) is True:
            return True
        return pickle.dumps(first) == pickle.dumps(second)
    except Exception:  # user code may raise anything
        return type(first) is type(second)


def _is_multivalued(sums: Any) -> bool:
    return isinstance(sums, (list, tuple, dict)) or np.size(sums) > 1


def _as_pairs(name: str | Sequence[str], value: Any) -> list[tuple[str, Any]]:
    several = isinstance(name, (list, tuple))
    names: list[Any] = list(name) if several else [name]
    values = list(value) if isinstance(value, (list, tuple)) or several and np.ndim(value) else [value]
    return [(each, plain_number(number)) for each, number in zip(names, values)]


def tensor_of(value: Arrays | np.generic) -> torch.Tensor:
    """Convert an NDArray or torch tensor (without a copy), or anything that NumPy accepts, to a tensor."""
    if isinstance(value, NDArray):
        return numbers_of(value)
    if isinstance(value, torch.Tensor):
        return value.detach()
    array = np.asarray(value)
    return torch.from_numpy(np.array(array) if not array.flags.writeable else array)


def pairs(labels: Arrays, preds: Arrays) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the pairs of label and prediction tensors of a batch, on the predictions' devices."""
    labels = labels if isinstance(labels, (list, tuple)) else [labels]
    preds = preds if isinstance(preds, (list, tuple)) else [preds]
    if len(labels) != len(preds):
        hint = "" if labels else "; the batches have no labels; pass labels to the iterator or loader"
        raise ShapeError(f"got {len(labels)} labels for {len(preds)} predictions{hint}")
    found = []
    for label, pred in zip(labels, preds):
        target = label.raw if type(label) is NDArray else tensor_of(label)
        guess = pred.raw if type(pred) is NDArray else tensor_of(pred)
        found.append((target if target.device == guess.device else on_device(target, guess.device), guess))
    return found


def check_sizes(metric: str, label: torch.Tensor, pred: torch.Tensor) -> None:
    """Check that labels and predictions have the same size."""
    if label.numel() != pred.numel():
        raise shape_mismatch(metric, label, pred)


def shape_mismatch(metric: str, label: torch.Tensor, pred: torch.Tensor, expected: str = "") -> ShapeError:
    """Return the error for labels and predictions of different shapes."""
    shapes = f"label of shape {tuple(label.shape)} does not match predictions of shape {tuple(pred.shape)}"
    return ShapeError(f"{metric}: {shapes}{expected}")


MetricT = TypeVar("MetricT", bound=EvalMetric)

registry = Registry(EvalMetric, "metric")


def register(klass: type[MetricT], name: str | None = None) -> type[MetricT]:
    """Register a metric under its lower-case class name; usable as a decorator.

    Raises:
        ArgumentError: `klass` does not derive from `EvalMetric`.
    """
    registry.register(klass, *([] if name is None else [name]))
    return klass


def alias(*names: str) -> Callable[[type[MetricT]], type[MetricT]]:
    """Return a class decorator that registers a metric under its own name and further names.

    Args:
        *names: case-insensitive names for `create`.
    """

    def decorate(klass: type[MetricT]) -> type[MetricT]:
        registry.register(klass, *names)
        return klass

    return decorate
