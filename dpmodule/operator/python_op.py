"""The older interfaces for operators in Python: `NumpyOp` and `NDArrayOp`."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..base import OpError
from ..ops.attrs import boolean, string
from ..ops.spec import Attr
from ..symbol import Symbol, _internal
from .base import CustomOp, CustomOpProp, PropCall
from .register import declare_prop_op

_numbers = itertools.count(1)


class PythonOp:
    """Base of operators in which one object declares, computes and differentiates. New code derives from `CustomOp`.

    Args:
        need_top_grad: whether `backward` reads the outputs' gradients; a loss does not.
    """

    _ref_holder: ClassVar[dict[str, PythonOp]] = {}
    _node_type = ""

    def __init__(self, need_top_grad: bool = True) -> None:
        self.info_: str | None = None
        self.need_top_grad_ = need_top_grad
        warnings.warn(
            f"{type(self).__name__}: PythonOp, NumpyOp and NDArrayOp are deprecated; use CustomOp",
            DeprecationWarning,
            stacklevel=3,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Symbol:
        """Apply the operator to symbols; see `get_symbol`."""
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args: Any, **kwargs: Any) -> Symbol:
        """Apply the operator to symbols.

        Such a symbol belongs to this process; a file of it can be read again here only.

        Args:
            args: symbols for the inputs in order.
            kwargs: symbols by name, and the node's name.

        Raises:
            NotImplementedError: this is a bare `PythonOp`.
        """
        if not self._node_type:
            raise NotImplementedError("derive from NumpyOp or NDArrayOp")
        if self.info_ is None:
            self.info_ = format(next(_numbers), "x")
            PythonOp._ref_holder[self.info_] = self
        extra = {"need_top_grad": self.need_top_grad()} if self._node_type == "_Native" else {}
        made: Symbol = getattr(_internal, self._node_type)(*args, info=self.info_, **extra, **kwargs)
        return made

    def forward(self, in_data: list[Any], out_data: list[Any]) -> None:
        """Write the outputs into `out_data`.

        Args:
            in_data: the inputs, in the order of `list_arguments`.
            out_data: the outputs, in the order of `list_outputs`, to be written to.
        """
        out_data[0][:] = in_data[0]

    def backward(
        self, out_grad: list[Any], in_data: list[Any], out_data: list[Any], in_grad: list[Any]
    ) -> None:
        """Write the gradients into `in_grad`.

        Args:
            out_grad: gradients of the outputs, of their shapes.
            in_data: the inputs, in the order of `list_arguments`.
            out_data: the outputs as `forward` wrote them.
            in_grad: gradients of the inputs, to be written to.
        """
        in_grad[0][:] = 1.0

    def infer_shape(self, in_shape: list[list[int]]) -> tuple[Any, Any]:
        """Return the shapes of inputs and outputs.

        Args:
            in_shape: shapes of the inputs, as far as they are known.
        """
        return in_shape, [in_shape[0]]

    def list_outputs(self) -> list[str]:
        """Return the names of the outputs."""
        return ["output"]

    def list_arguments(self) -> list[str]:
        """Return the names of the inputs."""
        return ["data"]

    def need_top_grad(self) -> bool:
        """Return True if `backward` reads the outputs' gradients."""
        return self.need_top_grad_


class NumpyOp(PythonOp):
    """An operator over float32 NumPy arrays; on a GPU they are copied to the host and back."""

    _node_type = "_Native"


class NDArrayOp(PythonOp):
    """An operator over NDArrays."""

    _node_type = "_NDArray"

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        """Return the numbers of the arrays that `backward` reads; see `CustomOpProp`.

        Args:
            out_grad: numbers of the arrays with the outputs' gradients.
        """
        return [*(out_grad if self.need_top_grad() else ()), *in_data, *out_data]


class _NDArrayOpRunner(CustomOp):
    """Calls an `NDArrayOp`."""

    def __init__(self, op: PythonOp) -> None:
        self._op = op

    def forward(self, is_train: bool, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self._op.forward(in_data=in_data, out_data=out_data)

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        self._op.backward(out_grad=out_grad, in_data=in_data, out_data=out_data, in_grad=in_grad)


class _NumpyOpRunner(CustomOp):
    """Calls a `NumpyOp` on copies of the arrays, and copies what it wrote back."""

    def __init__(self, op: PythonOp) -> None:
        self._op = op

    def forward(self, is_train: bool, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        results = _numpy(out_data)
        self._op.forward(in_data=_numpy(in_data), out_data=results)
        _copy_back(results, out_data)

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        results = _numpy(in_grad)
        grads = _numpy(out_grad) if self._op.need_top_grad() else []
        self._op.backward(out_grad=grads, in_data=_numpy(in_data), out_data=_numpy(out_data), in_grad=results)
        _copy_back(results, in_grad)


def _numpy(arrays: list[Any]) -> list[Any]:
    return [array.asnumpy().astype(np.float32, copy=False) for array in arrays]


def _copy_back(results: list[Any], arrays: list[Any]) -> None:
    for result, array in zip(results, arrays):
        array[:] = result


class _PythonOpProp(CustomOpProp):
    """Adapter that makes a `PythonOp` the property object of a `Custom` node."""

    def __init__(self, op: PythonOp, runner: type[_NDArrayOpRunner | _NumpyOpRunner]) -> None:
        super().__init__(op.need_top_grad())
        self._op, self._runner = op, runner
        self.infer_shape = op.infer_shape  # type: ignore[method-assign]
        self.list_arguments = op.list_arguments  # type: ignore[method-assign]
        self.list_outputs = op.list_outputs  # type: ignore[method-assign]
        if isinstance(op, NDArrayOp):
            self.declare_backward_dependency = op.declare_backward_dependency  # type: ignore[method-assign]

    def create_operator(self, ctx: Any, in_shapes: list[list[int]], in_dtypes: list[int]) -> CustomOp:
        return self._runner(self._op)


def _reader(kind: str, runner: type[_NDArrayOpRunner | _NumpyOpRunner]) -> Any:
    def read(given: Mapping[str, Any]) -> PropCall:
        """Return the call of the object that a node runs."""
        texts = {key: str(value) for key, value in given.items()}
        holder = PythonOp._ref_holder.get(texts.get("info", ""))
        if holder is None:
            raise OpError(
                f"{kind}: the node runs a Python object of the process that created it, which a file cannot store; "
                "make the symbol again from the program, or turn the operator into a registered CustomOp"
            )
        label = f"{kind} {type(holder).__name__}"
        key = f"{kind} #{texts['info']}"
        return PropCall(label, key, lambda: _PythonOpProp(holder, runner), texts)

    return read


_INFO = Attr(string, "number of the object")
declare_prop_op(
    "_Native",
    {"info": _INFO, "need_top_grad": Attr(boolean, "whether backward reads the outputs' gradients", True)},
    _reader("_Native", _NumpyOpRunner),
    """Run a `mx.operator.NumpyOp`.

    Shape:
        inputs, returns: what the object's `infer_shape` says.

    Source: MXNet 1.9.1 `_Native`.
    """,
)
declare_prop_op(
    "_NDArray",
    {"info": _INFO},
    _reader("_NDArray", _NDArrayOpRunner),
    """Run a `mx.operator.NDArrayOp`.

    Shape:
        inputs, returns: what the object's `infer_shape` says.

    Source: MXNet 1.9.1 `_NDArray`.
    """,
)
