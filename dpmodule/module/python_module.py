"""`PythonModule` and `PythonLossModule`: modules without parameters, written in Python."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

from .._core import lazy
from ..base import ArgumentError, ShapeError, StateError
from ..ndarray import NDArray, array
from .arguments import BindArguments, OptimizerArguments, ParamArguments
from .base_module import BaseModule
from .mxnet_helpers import names_of

if TYPE_CHECKING:
    from ..metric import EvalMetric
    from ..types import ArrayLike
    from .types import BatchLike, Labels, LoggerLike, MonitorLike, OutGrads

__all__ = ["PythonLossModule", "PythonModule"]

lazy.publish(__name__, __all__)


class PythonModule(BaseModule):
    """Base class of user-defined modules; implements the interface of a module without parameters.

    A subclass defines ``_compute_output_shapes()``, `forward`, `backward`, `get_outputs` and `get_input_grads`. One
    with parameters also overrides `get_params`, `init_params`, `init_optimizer` and `update`.

    Args:
        label_names: names of the labels; None without labels.
        logger: where progress is logged.

    Example:
        >>> class Double(mx.mod.PythonModule):
        ...     def __init__(self):
        ...         super().__init__(["data"], None, ["double_output"])
        ...     def _compute_output_shapes(self):
        ...         return [("double_output", self.data_shapes[0][1])]
        ...     def forward(self, data_batch, is_train=None):
        ...         self.out = data_batch.data[0] * 2
        ...     def backward(self, out_grads=None):
        ...         self.grad = out_grads[0] * 2
        ...     def get_outputs(self, merge_multi_context=True):
        ...         return [self.out]
        ...     def get_input_grads(self, merge_multi_context=True):
        ...         return [self.grad]
        >>> mod = Double()
        >>> mod.bind([("data", (1, 2))])
        >>> mod.forward(mx.io.DataBatch([mx.nd.ones((1, 2))]))
        >>> mod.get_outputs()[0].asnumpy()
        array([[2., 2.]], dtype=float32)

    Source: MXNet 1.9.1 `PythonModule`.
    """

    def __init__(
        self,
        data_names: Sequence[str],
        label_names: Sequence[str] | None,
        output_names: Sequence[str],
        logger: LoggerLike = logging,
    ) -> None:
        super().__init__(logger)
        self._data_names = names_of(data_names, "data_names")
        self._label_names = None if label_names is None else names_of(label_names, "label_names")
        self._output_names = names_of(output_names, "output_names")
        self._data_shapes: Any = None
        self._label_shapes: Any = None
        self._output_shapes: list[tuple[str, tuple[int, ...]]] = []

    @property
    @override
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self._label_names or []

    @property
    @override
    def output_names(self) -> list[str]:
        return self._output_names

    @property
    @override
    def data_shapes(self) -> Any:
        return self._data_shapes

    @property
    @override
    def label_shapes(self) -> Any:
        return self._label_shapes

    @property
    @override
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._output_shapes

    @override
    def _bind(self, arguments: BindArguments) -> None:
        """Store the shapes, with inputs in the order of `data_names`, and compute the output shapes."""
        if self._stays_bound(arguments):
            return
        arguments.refuse_store(self)
        if arguments.grad_req != "write":
            raise ArgumentError(
                f"bind: grad_req is {arguments.grad_req!r}, a {type(self).__name__} supports only 'write'"
            )
        self._check_names("data", arguments.data_shapes, self._data_names)
        if arguments.label_shapes is not None:
            self._check_names("label", arguments.label_shapes, self._label_names or [])
        self.for_training, self.inputs_need_grad = arguments.for_training, arguments.inputs_need_grad
        self._data_shapes, self._label_shapes = arguments.data_shapes, arguments.label_shapes
        self._output_shapes = self._compute_output_shapes()
        self.binded = True

    @staticmethod
    def _check_names(kind: str, shapes: Sequence[Any], names: Sequence[str]) -> None:
        described = [desc[0] for desc in shapes]
        if described != list(names):
            raise ArgumentError(
                f"bind: {kind}_shapes names {described}, the module's {kind}_names are {list(names)}"
            )

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return (name, shape) of the outputs; `data_shapes` and `label_shapes` are set."""
        raise NotImplementedError(f"{type(self).__name__} does not define _compute_output_shapes")

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        return {}, {}

    @override
    def _init_params(self, arguments: ParamArguments) -> None:
        """Do nothing: there are no parameters."""
        self.params_initialized = True

    @override
    def _init_optimizer(self, arguments: OptimizerArguments) -> None:
        """Do nothing: there are no parameters."""
        self.optimizer_initialized = True

    def update(self) -> None:
        """Do nothing: there are no parameters."""

    def all_updates(self) -> list[Any]:
        return []

    def stores(self) -> list[Any]:
        return []

    def update_metric(
        self, eval_metric: EvalMetric, labels: Labels, pre_sliced: bool = False, pad: int = 0
    ) -> None:
        if self._label_shapes is None:
            return
        if pre_sliced:
            raise ArgumentError(f"update_metric: a {type(self).__name__} takes labels of whole batches only")
        outputs = self.get_outputs()
        if pad:
            rows = labels[0].shape[0]
            labels, outputs = _without_padding(labels, rows, pad), _without_padding(outputs, rows, pad)
        eval_metric.update(labels, outputs)

    def install_monitor(self, mon: MonitorLike) -> None:
        """Do nothing: there is no executor."""


def _without_padding(arrays: Sequence[NDArray], rows: int, pad: int) -> list[NDArray]:
    """Remove padding from arrays with one row per sample."""
    return [a[: rows - pad] if a.ndim and a.shape[0] == rows else a for a in arrays]


class PythonLossModule(PythonModule):
    """A loss that is a Python function, at the end of a chain; its output is the scores.

    Args:
        name: the output is called ``<name>_output``.
        data_names: name of the scores, a list of one.
        label_names: name of the labels, a list of one.
        logger: where progress is logged.
        grad_func: ``(scores, labels) -> gradient of the scores``, both NDArrays, the result an NDArray, a tensor or a
            NumPy array of the scores' shape. A subclass may define ``_backward_impl()`` instead.

    Shape:
        scores, labels: as bound for the input and the label.
        gradient: the shape of the scores.

    Raises:
        ArgumentError: there is more than one name, or `grad_func` is not a function.

    Example:
        >>> loss = mx.mod.PythonLossModule(grad_func=lambda scores, labels: scores - labels)
        >>> loss.bind([("data", (2,))], [("softmax_label", (2,))])
        >>> loss.forward(mx.io.DataBatch([mx.nd.array([3, 4])], [mx.nd.array([1, 1])]))
        >>> loss.backward()
        >>> loss.get_input_grads()[0].asnumpy()
        array([2., 3.], dtype=float32)

    Source: MXNet 1.9.1 `PythonLossModule`.
    """

    def __init__(
        self,
        name: str = "pyloss",
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] = ("softmax_label",),
        logger: LoggerLike = logging,
        grad_func: Callable[[NDArray, NDArray], Any] | None = None,
    ) -> None:
        super().__init__(data_names, label_names, [f"{name}_output"], logger)
        if len(self._data_names) != 1 or len(self.label_names) != 1:
            raise ArgumentError(
                f"PythonLossModule: data_names is {list(data_names)} and label_names {list(label_names)}, "
                "expected one name each"
            )
        if grad_func is not None and not callable(grad_func):
            raise ArgumentError(f"PythonLossModule: grad_func is {grad_func!r}, expected a function")
        self._name = name
        self._scores: Any = None
        self._labels: Any = None
        self._scores_grad: Any = None
        self._grad_func = grad_func

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(self._output_names[0], tuple(self._data_shapes[0][1]))]

    def forward(self, data_batch: BatchLike, is_train: bool | None = None) -> None:
        batch: Any = data_batch  # not a list of one for each context
        self._scores = batch.data[0]
        if self.for_training if is_train is None else is_train:
            label = getattr(data_batch, "label", None)
            if not label:
                raise ArgumentError(
                    f"{self._name}: the batch has no label, which is needed in training; give DataBatch(label=[...]), "
                    "or in a chain add(module, take_labels=True)"
                )
            self._labels = label[0]

    def backward(self, out_grads: OutGrads = None) -> None:
        if out_grads is not None:
            raise ArgumentError(
                f"{self._name}: a loss takes no out_grads; it has to be the last module of a chain"
            )
        if not self.for_training:
            raise StateError("backward: bound with for_training=False; bind again with for_training=True")
        if self._scores is None or self._labels is None:
            raise StateError("backward: call forward(is_train=True) first")
        self._backward_impl()

    def _backward_impl(self) -> None:
        """Set `_scores_grad` from `_scores` and `_labels`."""
        if self._grad_func is None:
            raise NotImplementedError(f"{self._name}: give grad_func, or define _backward_impl in a subclass")
        grad = _as_array(self._grad_func(self._scores, self._labels), self._scores)
        if grad.shape != self._scores.shape:
            raise ShapeError(
                f"{self._name}: grad_func returned shape {grad.shape}, expected the scores' {self._scores.shape}"
            )
        self._scores_grad = grad

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        if self._scores is None:
            raise StateError("get_outputs: call forward() first")
        return [self._scores] if merge_multi_context else [[self._scores]]

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        if self._scores_grad is None:
            raise StateError("get_input_grads: call backward() first")
        return [self._scores_grad] if merge_multi_context else [[self._scores_grad]]


def _as_array(value: ArrayLike, like: NDArray) -> NDArray:
    """Return a gradient as an NDArray of the type and on the context of `like`."""
    if isinstance(value, NDArray):
        return value
    if isinstance(value, torch.Tensor):
        return NDArray(value.detach().to(like.raw), like.context)
    return array(value, ctx=like.context, dtype=like.dtype)
