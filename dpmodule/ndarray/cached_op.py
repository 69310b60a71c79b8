"""`CachedOp`: a Symbol as a function of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base import ArgumentError, DTypeError
from ..graph import Entry, Graph, Node
from .execution import execute
from .handle import Handle, Out
from .op_dispatch import PreparedOp, plan_for

if TYPE_CHECKING:
    from ..context import Context


class CachedOp:
    """A Symbol that is called with arrays; it runs operator by operator and is recorded like operators.

    Args:
        flags: MXNet's options for its scheduler; accepted and ignored.
        thread_safe: accepted and ignored.

    Raises:
        DTypeError: `sym` is not a Symbol.
        ArgumentError: it contains a loop or branch, which has its own graph; bind such a Symbol.

    Example:
        >>> double = mx.nd.CachedOp(mx.sym.var("x") * 2)
        >>> double(mx.nd.array([1, 2])).asnumpy()
        array([2., 4.], dtype=float32)

    Source: MXNet 1.9.1 `CachedOp`.
    """

    def __init__(self, sym: object, flags: object = (), thread_safe: bool = False) -> None:
        graph = getattr(sym, "graph", None)
        if not isinstance(graph, Graph):
            raise DTypeError(f"CachedOp takes a Symbol, got {type(sym).__name__}")
        loops = [node.name for node in graph.nodes if node.subgraphs]
        if loops:
            raise ArgumentError(f"CachedOp: {', '.join(loops)} have their own graphs; use Symbol.bind")
        self._graph = graph
        self._inputs = [node for node in graph.nodes if node.op is None]
        self._plans: list[tuple[Node, PreparedOp]] = [
            (node, plan_for(node.op, node.params, len(node.inputs)))
            for node in graph.nodes
            if node.op is not None
        ]

    def __call__(self, *args: Handle, out: Out = None, default_ctx: Context | None = None) -> Any:
        """Compute the outputs.

        Args:
            args: an array for each of ``sym.list_inputs()``, in that order.
            out: array, or list of arrays, to write the outputs into.
            default_ctx: context if there are no inputs.

        Returns:
            One array, or a list if there are several outputs; `out` if it is passed.
        """
        if len(args) != len(self._inputs):
            names = ", ".join(node.name for node in self._inputs)
            raise ArgumentError(f"CachedOp: {len(args)} arrays for {len(self._inputs)} inputs: {names}")
        ctx = args[0].context if args else default_ctx
        known: dict[Entry, Any] = {(node, 0): array for node, array in zip(self._inputs, args, strict=True)}
        for node, plan in self._plans:
            found = execute(plan, [known[entry] for entry in node.inputs], ctx)
            several = found if isinstance(found, list) else [found]
            known.update(((node, i), array) for i, array in enumerate(several))
        results = [known[entry] for entry in self._graph.heads]
        if out is not None:
            return _written(results, out)
        return results[0] if len(results) == 1 else results


def _written(results: list[Any], out: Out) -> Any:
    """Copy results into `out`, and return it."""
    targets = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(targets) != len(results):
        raise ArgumentError(f"CachedOp: out has {len(targets)} arrays, expected {len(results)}")
    for result, target in zip(results, targets, strict=True):
        result.copyto(target)
    return out
