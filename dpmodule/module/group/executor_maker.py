"""`ExecutorMaker`: creates the executors of a group on shared arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...base import ArgumentError, ShapeError, dtype_name
from ...context import Context
from ...executor import PLAIN, Binding, Executor, RunOptions, from_pool, place_nodes
from ...executor.gradients import check_differentiable
from ...executor.sparse_arrays import allocate_as
from ...executor.storage_types import declared_storage_types, gradient_storage_types, infer_storage_types
from ...graph import infer_shapes, infer_types
from ...io import DataDesc
from ...ndarray import NDArray
from ...params import ParamStore

if TYPE_CHECKING:
    from ...graph import Node
    from ...symbol import Symbol


class ExecutorMaker:
    """Creates executors of one symbol, with parameters from a store and other arrays from data pools.

    Args:
        group2ctxs: for each context, the contexts of the groups of ``AttrScope(ctx_group=...)``.
        store: parameters, gradients and auxiliary states; missing ones are declared with the first executor.

    Attributes:
        stypes: storage types that the symbol declares, by name.
    """

    def __init__(
        self,
        symbol: Symbol,
        contexts: Sequence[Context],
        param_names: Sequence[str],
        grad_req: Mapping[str, str],
        group2ctxs: Sequence[Mapping[str, Context]],
        store: ParamStore,
        pools: Sequence[dict[str, NDArray]],
        options: RunOptions = PLAIN,
    ) -> None:
        self._symbol, self._contexts, self._options = symbol, contexts, options
        self._param_names, self._grad_req = param_names, grad_req
        self._placements = [place_nodes(symbol.graph, ctx, g) for ctx, g in zip(contexts, group2ctxs)]
        self._store, self._pools = store, pools
        self._declared = False
        self.stypes = declared_storage_types(symbol.graph)

    def make(self, i: int, inputs: Sequence[DataDesc], logger: Any) -> Executor:
        """Create the executor of one context.

        Args:
            logger: receives a warning when pool memory is too small and is replaced.

        Shape:
            inputs[i]: (n, ...), the samples of this context.
        """
        graph = self._symbol.graph
        shapes, types = self._inferred(inputs)
        self.stypes.update((desc.name, desc.stype) for desc in inputs if desc.stype != "default")
        check_differentiable(graph, (name for name, req in self._grad_req.items() if req != "null"))
        if not self._declared:
            self._declare(shapes, types)
        args, grads = {}, {}
        for node in graph.arguments:
            if node.name in self._param_names:
                array, grad = self._parameter(i, node, shapes)
            else:
                array, grad = self._input(i, node, shapes, types, logger)
            args[node.name] = array
            if grad is not None:
                grads[node.name] = grad
        aux = {name: self._store.aux(name, i) for name in graph.auxiliary_names}
        known = {name: stype for name, stype in self.stypes.items() if name in self._param_names}
        binding = Binding(
            graph,
            self._contexts[i],
            args,
            grads,
            self._grad_req,
            aux,
            shapes,
            types,
            self._placements[i],
            known,
        )
        return Executor(binding, self._symbol, self._options)

    def _inferred(self, inputs: Sequence[DataDesc]) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        """Return shapes and types of all nodes for input shapes."""
        graph = self._symbol.graph
        graph.check_names()
        unknown = [d.name for d in inputs if d.name not in graph.argument_names]
        if unknown:
            has = ", ".join(graph.argument_names)
            raise ArgumentError(f"{', '.join(unknown)} is not an argument of the symbol; it has {has}")
        types = infer_types(graph, {d.name: dtype_name(d.dtype) for d in inputs}, default="float32")
        shapes = infer_shapes(graph, {d.name: d.shape for d in inputs})
        unknown = [n.name for n in graph.nodes if n.op is None and not _is_known(shapes[n][0])]
        if unknown:
            known = ", ".join(f"{d.name} {d.shape}" for d in inputs)
            raise ShapeError(
                f"cannot infer the shape of {', '.join(unknown)} from {known}; "
                "pass more input shapes, or declare them with Variable(shape=...)"
            )
        return shapes, types

    def _parameter(self, i: int, node: Node, shapes: Mapping[Any, Any]) -> tuple[NDArray, NDArray | None]:
        """Return the array of a parameter on one context, and of its gradient if it has one."""
        array = self._store.array(node.name, i)
        if array.shape != shapes[node][0]:
            raise ShapeError(
                f"parameter {node.name} has shape {array.shape}, these inputs need {shapes[node][0]}"
            )
        return array, self._store.grad(node.name, i)

    def _input(
        self, i: int, node: Node, shapes: Mapping[Any, Any], types: Mapping[Any, Any], logger: Any
    ) -> tuple[NDArray, NDArray | None]:
        """Return the array of an input, label or state on one context, and of its gradient if it has one."""
        name, pool, where = node.name, self._pools[i], self._placements[i].get(node, self._contexts[i])
        shape, dtype = tuple(shapes[node][0] or ()), types[node][0] or "float32"
        stype = self.stypes.get(name, "default")
        if stype == "default":
            array = from_pool(pool, name, shape, where, dtype, logger)
        else:
            array = pool[name] = allocate_as(stype, shape, where, dtype)
        if self._grad_req[name] == "null":
            return array, None
        if stype == "ragged":
            return array, allocate_as(stype, shape, where, dtype)
        return array, from_pool(pool, f"grad of {name}", shape, where, dtype, logger)

    def _declare(self, shapes: Mapping[Any, Any], types: Mapping[Any, Any]) -> None:
        """Allocate parameters and states, or check shared ones."""
        graph = self._symbol.graph
        storage = infer_storage_types(graph, self.stypes)
        grad_stypes = {} if storage is None else gradient_storage_types(graph, storage)
        for node in graph.arguments:
            if node.name in self._param_names:
                needs_grad = self._grad_req[node.name] != "null"
                self._store.declare(
                    node.name,
                    tuple(shapes[node][0]),
                    types[node][0],
                    needs_grad,
                    self._contexts_of(node),
                    grad_stypes.get(node.name, "default"),
                )
        for node in graph.auxiliary:
            self._store.declare_aux(
                node.name, tuple(shapes[node][0]), types[node][0], self._contexts_of(node)
            )
        self._declared = True

    def _contexts_of(self, node: Node) -> list[Context]:
        """Return the context of a variable for each context of the group."""
        return [placement.get(node, ctx) for placement, ctx in zip(self._placements, self._contexts)]


def _is_known(shape: Sequence[int] | None) -> bool:
    return shape is not None and 0 not in shape
