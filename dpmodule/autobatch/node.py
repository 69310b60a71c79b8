"""Nodes seen from outside: their shapes, values and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray

from .. import native
from .base_graph import as_array
from .errors import ForeignValueError, NotScalarError, StaleExpressionError, user_line
from .given import flag
from .ops.spec import shown
from .state import state
from .tensor import Tensor

__all__ = ["Node"]

Array = NDArray[Any]


class _PlainNode:
    """The numbers of a node, where there is no native extension.

    Whoever makes one sets them: without `__init__` that takes half the time.
    """

    __slots__ = ("node", "serial", "table", "version")

    node: int
    version: int


if TYPE_CHECKING or native.core is None:  # noqa: SIM108 (mypy follows this form only)
    _Base = _PlainNode
else:
    _Base = native.core.AutobatchNode


class Node(_Base):
    """The handle of a node: what an expression can tell without arithmetic.

    Attributes:
        node: its number.
        version: the version of the graph it belongs to.
    """

    __slots__ = ()

    def become(self, node: int, version: int) -> None:
        """Stand for a node.

        Args:
            node: its number, -1 for none yet.
            version: the version of its graph.
        """
        self.node, self.version = node, version

    def enter(self) -> int:
        """Return the number of the node in the graph under construction.

        Raises:
            StaleExpressionError: the expression belongs to an earlier graph, or was taken back.
            StateError: the graph belongs to another thread.
        """
        graph = state.graph
        graph.check_thread()
        node = self.node
        if self.version != graph.version or node < 0:
            raise StaleExpressionError(
                "Stale Expression (created before renewing the Computation Graph): this expression is node"
                f" {self.node} of graph {self.version}, the graph under construction is {graph.version}; build"
                f" expressions again after renew_cg() (at {user_line()})"
            )
        if node >= graph.size:
            graph.check_nodes((node,))
        return node

    def dim(self) -> tuple[tuple[int, ...], int]:
        """Return the dimensions and the size of the minibatch.

        Example:
            >>> import numpy, dpmodule.autobatch as dy
            >>> dy.inputTensor(numpy.zeros((3, 4))).dim()
            ((3, 4), 1)
        """
        found = state.graph.dim(self.enter())
        return found.d, found.batch

    def value_tensor(self, recalculate: bool = False) -> torch.Tensor:
        """Return the value as a tensor, (batch, *d); it is the graph's own memory and must not be written to.

        Args:
            recalculate: throw cached values away and compute from the inputs again.
        """
        return state.graph.value(self._asked(recalculate))

    def _asked(self, recalculate: bool) -> int:
        node = self.enter()
        if recalculate is not False and flag(recalculate, "recalculate"):
            state.graph.recalculate()
        return node

    def npvalue(self, recalculate: bool = False) -> Array:
        """Return the value as a float64 array; the minibatch is the last axis, if there is more than one element."""
        return state.graph.array(self._asked(recalculate))

    def tensor_value(self, recalculate: bool = False) -> Tensor:
        """Return the value, left on its device."""
        return Tensor(self.value_tensor(recalculate))

    def scalar_value(self, recalculate: bool = False) -> float:
        """Return the value of an expression of one number.

        Raises:
            NotScalarError: it has several.
        """
        found = self._numbers(recalculate)
        if len(found) != 1:
            raise NotScalarError(
                f"scalar_value() of an expression of dimension {shown(state.graph.dim(self.enter()))}: Input tensor has"
                " more than one element, cannot convert to scalar; use npvalue()"
            )
        return found[0]

    def vec_value(self, recalculate: bool = False) -> list[float]:
        """Return the value as a list, the first dimension running fastest."""
        return self._numbers(recalculate)

    def value(self, recalculate: bool = False) -> Any:
        """Return a float, a list or an array: for one number, one dimension, more dimensions."""
        found = self._numbers(recalculate)
        if len(found) == 1:
            return found[0]
        return found if len(state.graph.dim(self.node).d) == 1 else self.npvalue()

    def _numbers(self, recalculate: bool) -> list[float]:
        node, graph = self._asked(recalculate), state.graph
        found: list[float] | None = graph.as_list(node)
        return graph.array(node).reshape(-1, order="F").tolist() if found is None else found

    def forward(self, recalculate: bool = False) -> None:
        """Compute everything up to this expression."""
        self.value_tensor(recalculate)

    def backward(self, full: bool = False) -> None:
        """Compute gradients of this expression, which is one number.

        Args:
            full: also of expressions that no parameter feeds, such as inputs.

        Raises:
            NotScalarError: it has several numbers.
            StateError: this is the second call for this expression.
        """
        state.graph.backward(self.enter(), flag(full, "full"))

    def gradient(self) -> Array:
        """Return the gradient of what `backward` was called for with respect to this expression, in float64.

        Raises:
            NoGradientError: `backward` has not been called for a later expression.
        """
        return as_array(state.graph.gradient(self.enter()))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied or pickled.

        Raises:
            ForeignValueError: always.
        """
        raise ForeignValueError(
            f"{type(self).__name__} belongs to the graph or to its collection and cannot be copied or pickled; save"
            f" npvalue(), or the parameters with ParameterCollection.save (at {user_line()})"
        )

    def __repr__(self) -> str:
        return f"expression {self.node}/{self.version}"
