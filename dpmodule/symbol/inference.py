"""Shapes and types of a symbol's arguments, outputs and states, inferred from some of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from operator import index
from typing import Any

from .. import mode
from ..base import ArgumentError, DTypeError, Shape, dtype_name, np_dtype
from ..graph import infer_shapes, infer_types
from ..graph.empty import read_shape, shown_shape
from ..ops.shapes import known
from .listing import Listing

__all__ = ["Inference", "as_shape"]

Found = tuple[Any, Any, Any]


def as_shape(name: str, shape: Any) -> Shape:
    """Read a shape that a user gave.

    Raises:
        DTypeError: it is no tuple of whole numbers.
    """
    try:
        return read_shape(tuple(index(d) for d in shape))
    except TypeError:
        raise DTypeError(
            f"the shape given for {name} is {shape!r}, expected a tuple of integers, such as (32, 0) where 0 is "
            "an unknown dimension"
        ) from None


def _complete(shape: Shape) -> bool:
    """Say whether a shape, as users read it, is fully known."""
    if mode.is_np_shape():
        return shape is not None and -1 not in shape
    return bool(shape) and known(shape)


class Inference(Listing):
    """Shape and type inference in both directions."""

    def _named(self, what: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was given for each variable; things left out are not in it.

        Raises:
            ArgumentError: given by position and by name, too many, or a name that is no argument.
        """
        if args and kwargs:
            raise ArgumentError(f"{what}: give arguments by position or by name, not both")
        names = self.graph.argument_names
        if len(args) > len(names):
            raise ArgumentError(
                f"{what}: got {len(args)} values for {len(names)} arguments: {', '.join(names)}"
            )
        given = dict(zip(names, args)) if args else dict(kwargs)
        for key in given:
            if key not in names and key not in self.graph.auxiliary_names:
                raise ArgumentError(f"{what}: {key!r} is no argument; arguments: {', '.join(names)}")
        return {k: v for k, v in given.items() if v is not None}

    def infer_shape(self, *args: Any, **kwargs: Any) -> Found:
        """Infer all shapes from those of some arguments; works in both directions.

        Args:
            args: shapes in the order of `list_arguments`, None or () for unknown ones.
            kwargs: shapes by argument name; 0 = unknown dimension (inside `util.np_shape`: -1).

        Returns:
            Lists of shapes of arguments, outputs and auxiliary states; three times None, with a warning, when
            something stays unknown.

        Raises:
            ShapeError: the shapes contradict each other; names the node and the line that made it.

        Example:
            >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc")
            >>> net.infer_shape(data=(32, 64))
            ([(32, 64), (10, 64), (10,)], [(32, 10)], [])
        """
        found = self.infer_shape_partial(*args, **kwargs)
        if all(_complete(shape) for part in found for shape in part):
            return found
        names = (*self.graph.argument_names, *self.graph.output_names, *self.graph.auxiliary_names)
        every = zip(names, (shape for part in found for shape in part))
        unknown = [f"{name}: {shape or 'unknown'}" for name, shape in every if not _complete(shape)]
        more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
        warnings.warn(
            "cannot infer every shape; give more of them: " + ", ".join(unknown[:10]) + more, stacklevel=2
        )
        return None, None, None

    def infer_shape_partial(self, *args: Any, **kwargs: Any) -> Found:
        """Infer what follows from the given shapes; like `infer_shape`, with () for unknown ones.

        Inside `util.np_shape` unknown shapes are None, and () is the shape of a scalar.
        """
        given = self._named("infer_shape", args, kwargs)
        shapes = infer_shapes(self.graph, {k: as_shape(k, v) for k, v in given.items()})
        return (
            [shown_shape(shapes[n][0]) for n in self.graph.arguments],
            [shown_shape(shapes[node][i]) for node, i in self.entries],
            [shown_shape(shapes[n][0]) for n in self.graph.auxiliary],
        )

    def infer_type(self, *args: Any, **kwargs: Any) -> Found:
        """Infer all element types from those of some arguments.

        Args:
            args: types in the order of `list_arguments`, None for unknown ones.
            kwargs: types by argument name.

        Returns:
            Lists of NumPy types of arguments, outputs and auxiliary states; three times None, with a warning,
            when something stays unknown.

        Raises:
            DTypeError: the types contradict each other, or one does not exist.
        """
        found = self.infer_type_partial(*args, **kwargs)
        if any(t is None for part in found for t in part):
            unknown = [name for name, t in zip(self.graph.argument_names, found[0]) if t is None]
            warnings.warn(
                "cannot infer every type; give those of more arguments: " + ", ".join(unknown[:10]),
                stacklevel=2,
            )
            return None, None, None
        return found

    def infer_type_partial(self, *args: Any, **kwargs: Any) -> Found:
        """Infer what follows from the given types; like `infer_type`, with None for unknown ones."""
        given = self._named("infer_type", args, kwargs)
        types = infer_types(self.graph, {k: dtype_name(v) for k, v in given.items()})

        def shown(name: str | None) -> Any:
            return None if name is None else np_dtype(name)

        return (
            [shown(types[n][0]) for n in self.graph.arguments],
            [shown(types[node][i]) for node, i in self.entries],
            [shown(types[n][0]) for n in self.graph.auxiliary],
        )
