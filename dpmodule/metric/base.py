"""The base of all metrics: a name, a sum and a count, for a stretch of batches and for all of them."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import torch

from ..base import ArgumentError, ShapeError
from ..devices.device_transfer import on_device
from ..ndarray import NDArray
from ..ndarray.ragged import numbers_of
from ..object_state import changes, described, packed_changes, restore, snapshot
from ..registry import Registry
from .tally import Tally

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
        wrap: return both in lists if they are not.
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
        labels, preds = in_list(labels), in_list(preds)
    return labels, preds


def in_list(arrays: Any) -> Any:
    """Return a list of arrays as it is, and one array in a list."""
    return arrays if isinstance(arrays, (list, tuple)) else [arrays]


def plain_number(value: object) -> Any:
    """Return a Python number for a NumPy number or an array of one element; leave anything else."""
    if isinstance(value, (np.generic, np.ndarray, torch.Tensor, NDArray)):
        tensor = tensor_of(value)
        return tensor.item() if tensor.numel() == 1 else value
    return value


def _settled(attribute: str, text: str) -> Any:
    """Return the property that reads and sets a sum or count, after what is still on its device has been added."""

    def read(metric: EvalMetric) -> Any:
        metric._settle()
        return getattr(metric, attribute)

    def write(metric: EvalMetric, value: Any) -> None:
        metric._settle()
        setattr(metric, attribute, value)

    return property(read, write, doc=text)


class EvalMetric:
    """A running average over batches.

    Two averages are kept: one since the last `reset_local` (what is logged now and then), one since `reset` (the
    epoch). A subclass gives `update`, which adds to `sum_metric` and `num_inst`, and to `global_sum_metric` and
    `global_num_inst`; the metrics of this package call `record` instead, which leaves results on their device until
    `get` asks for them.

    Args:
        name: what the value is called.
        output_names: names of the outputs that `update_dict` picks, in this order; None takes all.
        **kwargs: kept for `get_config`; `has_global_stats=True` says that `update` feeds the global sums too.
    Source: MXNet 1.9.1 `EvalMetric`.
    """

    # on the class, so that a subclass whose `reset` sets only what it knows reads as empty
    _sum: Any = 0.0
    _num: Any = 0
    _global_sum: Any = 0.0
    _global_num: Any = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let the methods that add a batch note first what the metric was like, for `state_dict`."""
        super().__init_subclass__(**kwargs)
        for name in ("update", "update_dict"):
            if name in vars(cls):
                setattr(cls, name, _noting(vars(cls)[name]))

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
        self._tally = Tally()
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def _repr_html_(self) -> str:
        """Return what notebooks show: names and values."""
        from ..markup import table

        return table(("metric", "value"), self.get_name_value())

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make this metric again, with its class under "metric"."""
        return {
            **self._kwargs,
            "metric": type(self).__name__,
            "name": self.name,
            "output_names": self.output_names,
            "label_names": self.label_names,
        }

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """Add a batch given by names.

        Args:
            label: labels by name.
            pred: outputs by name.

        Raises:
            KeyError: a name of `label_names` or `output_names` is not there.
        """
        preds = list(pred.values()) if self.output_names is None else [pred[n] for n in self.output_names]
        labels = list(label.values()) if self.label_names is None else [label[n] for n in self.label_names]
        self.update(labels, preds)

    def update(self, labels: Arrays, preds: Arrays) -> None:
        """Add a batch.

        Args:
            labels: a list of arrays, each NDArray, NumPy array or torch tensor.
            preds: a list of as many outputs.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how a batch counts")

    # sums and counts

    def record(self, result: torch.Tensor | int, count: int = 0) -> None:
        """Add a result to both sums without waiting for the device it is on.

        Args:
            result: a tensor of one number, or of the numbers that `absorb` understands; or a number.
            count: how many instances it stands for.
        """
        if isinstance(result, int):
            self._sum += result
            self._global_sum += result
        else:
            self._tally.add(result)
        self._num += count
        self._global_num += count

    def absorb(self, rows: np.ndarray[Any, Any]) -> None:
        """Add recorded results to the sums, now that somebody wants to know.

        Args:
            rows: one row per `record`; here one number each, or a second one that adds to the count.
        """
        for value in rows[:, 0].tolist():  # one by one, as if each had been added when it came
            self._sum += value
            self._global_sum += value
        if rows.shape[1] > 1:
            self._count(0, int(rows[:, 1].sum()))

    def _count(self, total: Any, count: int) -> None:
        """Add to all sums and counts."""
        self._sum += total
        self._num += count
        self._global_sum += total
        self._global_num += count

    def _settle(self) -> None:
        rows = self._tally.drain()
        if rows is not None:
            self.absorb(rows)

    sum_metric = _settled("_sum", "Sum since the last `reset_local`; reading it waits for the devices.")
    num_inst = _settled("_num", "Number of instances since the last `reset_local`.")
    global_sum_metric = _settled(
        "_global_sum", "Sum since the last `reset`; reading it waits for the devices."
    )
    global_num_inst = _settled("_global_num", "Number of instances since the last `reset`.")

    def reset(self) -> None:
        """Forget everything."""
        self._tally.clear()
        self._sum, self._num, self._global_sum, self._global_num = 0.0, 0, 0.0, 0

    def reset_local(self) -> None:
        """Forget what `get` shows, and keep what `get_global` shows."""
        self._settle()
        if not self._has_global_stats and (_are_several(self._sum) or _are_several(self._num)):
            self.reset()  # which alone knows their form
        else:
            self._sum, self._num = 0.0, 0

    # what is saved with a run

    def state_dict(self) -> dict[str, Any]:
        """Return the attributes that `update` has changed, as plain data and arrays.

        Numbers, strings, arrays, random generators, collections of these, and objects of a program's own classes can be
        kept. What is as it was before the first batch, such as a function or a name, is left out.

        Raises:
            ArgumentError: an attribute has changed and cannot be kept; names it.
        """
        self._settle()
        before = vars(self).get(_BEFORE)
        if before is None:  # `update` was put into the class, or the object, later
            return packed_changes(self, {}, _NOT_STATE | _CONFIG)[0]
        return changes(self, before, _NOT_STATE)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: from a metric of the same class and options.

        Raises:
            ArgumentError: it is the state of another class.
        """
        self._settle()
        self._note()
        restore(self, vars(self)[_BEFORE], state, leave_out=_NOT_STATE)

    def settings(self) -> list[dict[str, Any]]:
        """Return what tells this metric from another one: class, name and arguments, as plain data.

        Example:
            >>> mx.metric.TopKAccuracy(2).settings()[0]["name"]
            'top_k_accuracy_2'
        """
        return [{"class": type(self).__name__, "name": self.name, "arguments": described(self._kwargs)}]

    def _note(self) -> None:
        """Note what the metric is like before its first batch."""
        if _BEFORE not in vars(self):
            vars(self)[_BEFORE] = snapshot(self, _NOT_STATE)

    # merging

    def merge(self, other: Self) -> None:
        """Add what another metric like this one has seen, as if this one had seen its batches as well.

        Sums and counts are added, both those since `reset_local` and those since `reset`. A subclass that keeps more
        than sums and counts gives a `merge` of its own.

        Args:
            other: a metric of the same class, made with the same arguments; it stays as it is.

        Raises:
            ArgumentError: it is no such metric, or one that keeps more than sums and counts and has no `merge`.

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
                f"metric {self.name!r} cannot be merged: its sums cannot be added ({error}); give "
                f"{type(self).__name__} a method merge(other) that does"
            ) from error
        for name, value in merged.items():
            setattr(self, name, value)

    def check_merge(self, other: Self) -> None:
        """Check that `merge` can add another metric to this one.

        Raises:
            ArgumentError: it cannot; the text names both.
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
            if not _alike(mine.get(key), others.get(key)):
                raise ArgumentError(
                    f"metric {self.name!r}: cannot merge a {kind.__name__} that was made with other arguments: {key} "
                    f"is {mine.get(key)!r} here and {others.get(key)!r} there"
                )

    def _config(self) -> dict[str, Any]:
        """Return the attributes beside sums and counts."""
        self._settle()
        try:
            fresh = copy.deepcopy(self)
        except Exception as error:
            raise ArgumentError(
                f"metric {self.name!r} cannot be merged: it cannot be copied: {error}"
            ) from error
        fresh.reset()
        found = {key: value for key, value in self.__dict__.items() if key not in _NO_CONFIG}
        for key, value in found.items():
            if not _alike(value, fresh.__dict__.get(key)):
                raise ArgumentError(
                    f"metric {self.name!r} cannot be merged: a {type(self).__name__} keeps {key!r} beside sums and "
                    "counts; give the class a method merge(other) that adds those of another"
                )
        return found

    # reading

    def value_of(self, total: Any, count: Any) -> Any:
        """Return the metric of a sum and a count that is not 0.

        Args:
            total: the sum over what was counted.
            count: how much was counted.
        """
        return total / count

    def get(self) -> tuple[Any, Any]:
        """Return (name, value) since the last `reset_local`; NaN before any batch."""
        count = self.num_inst
        return self.name, math.nan if count == 0 else plain_number(self.value_of(self.sum_metric, count))

    def get_global(self) -> tuple[Any, Any]:
        """Return (name, value) since the last `reset`; NaN before any batch."""
        if not self._has_global_stats:
            return self.get()
        count = self.global_num_inst
        return self.name, math.nan if count == 0 else plain_number(
            self.value_of(self.global_sum_metric, count)
        )

    def get_name_value(self) -> list[tuple[str, Any]]:
        """Return `get` as a list of (name, value) pairs, one for each name that it returns."""
        return _as_pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, Any]]:
        """Return `get_global` as a list of (name, value) pairs; `get`, where that alone is the subclass's own."""
        classes = type(self).__mro__
        shown = next(cls for cls in classes if "get" in vars(cls) or "get_global" in vars(cls))
        if self._has_global_stats and "get_global" in vars(shown):
            return _as_pairs(*self.get_global())
        return self.get_name_value()


_BEFORE = "_before_update"
_NOT_STATE = frozenset({"_tally", _BEFORE})
_CONFIG = frozenset({"name", "output_names", "label_names", "_has_global_stats", "_kwargs"})
_NO_CONFIG = frozenset({"_sum", "_num", "_global_sum", "_global_num", "_kwargs"}) | _NOT_STATE


def _noting(update: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a metric that adds a batch, and notes what the metric was like before its first one."""

    @functools.wraps(update)
    def method(self: EvalMetric, *args: Any, **kwargs: Any) -> Any:
        if _BEFORE not in self.__dict__:
            self._note()
        return update(self, *args, **kwargs)

    return method


def _added(total: Any, more: Any) -> Any:
    """Return the sum of two sums, which may be lists of sums."""
    if isinstance(total, (list, tuple)) and isinstance(more, (list, tuple)):
        return type(total)([_added(*both) for both in zip(total, more, strict=True)])
    return total + more


def _alike(first: object, second: object) -> bool:
    """Whether two values of attributes are equal, also arrays and objects that compare by identity."""
    if first is second:
        return True
    try:
        if (first == second) is True:
            return True
        return pickle.dumps(first) == pickle.dumps(second)
    except Exception:  # whatever an object's own code raises; state of metrics goes between processes
        return type(first) is type(second)


def _are_several(sums: Any) -> bool:
    return isinstance(sums, (list, tuple, dict)) or np.size(sums) > 1


def _as_pairs(name: str | Sequence[str], value: Any) -> list[tuple[str, Any]]:
    several = isinstance(name, (list, tuple))
    names: list[Any] = list(name) if several else [name]
    values = list(value) if isinstance(value, (list, tuple)) or several and np.ndim(value) else [value]
    return [(each, plain_number(number)) for each, number in zip(names, values)]


def tensor_of(value: Arrays | np.generic) -> torch.Tensor:
    """Return the tensor of an NDArray, a torch tensor, or anything that NumPy takes; without copying the first two."""
    if isinstance(value, NDArray):
        return numbers_of(value)
    if isinstance(value, torch.Tensor):
        return value.detach()
    array = np.asarray(value)
    return torch.from_numpy(np.array(array) if not array.flags.writeable else array)


def pairs(labels: Arrays, preds: Arrays) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return (label, prediction) tensors of one batch, on the predictions' devices."""
    labels = labels if isinstance(labels, (list, tuple)) else [labels]
    preds = preds if isinstance(preds, (list, tuple)) else [preds]
    if len(labels) != len(preds):
        hint = "" if labels else "; the batches have no labels: give the iterator or loader some"
        raise ShapeError(f"got {len(labels)} labels for {len(preds)} predictions{hint}")
    found = []
    for label, pred in zip(labels, preds):
        target = label.raw if type(label) is NDArray else tensor_of(label)
        guess = pred.raw if type(pred) is NDArray else tensor_of(pred)
        found.append((target if target.device == guess.device else on_device(target, guess.device), guess))
    return found


def aligned(metric: str, label: torch.Tensor, pred: torch.Tensor) -> None:
    """Check that there are as many labels as predictions."""
    if label.numel() != pred.numel():
        raise mismatch(metric, label, pred)


def mismatch(metric: str, label: torch.Tensor, pred: torch.Tensor, expected: str = "") -> ShapeError:
    """Return the error of a label and predictions whose shapes do not fit."""
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
    """Return a class decorator that registers a metric under its own and further names.

    Args:
        *names: under which `create` finds the class, in any case of letters.
    """

    def decorate(klass: type[MetricT]) -> type[MetricT]:
        registry.register(klass, *names)
        return klass

    return decorate
