"""`wrap`: torch modules and functions as functions on single examples, batched like every other operation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ..base import ArgumentError, ShapeError
from ..ops.dtypes import torch_dtype
from ..ops.torch_instances import drawing_from, in_mode
from .batched import Batched, as_expression, forced_mode
from .errors import NotBatchableError, user_line
from .held import HeldCollection, TorchStorage
from .parameters import Parameters
from .state import state

__all__ = ["Wrapped", "wrap"]

Tensor = torch.Tensor
Shape = tuple[int, ...]


class Wrapped(Batched):
    """A torch module or function as a function of expressions; made by `wrap`.

    Attributes:
        function: the module or function.
        collection: its parameters, for this package's trainers; torch's optimizers take the parameters themselves.
        is_train: whether calls are in training mode; None follows `training`, else the module's own mode.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        rows: bool | None,
        params: Mapping[str, Tensor],
        random: bool,
        dtypes: Sequence[Any] | None,
    ) -> None:
        self._module = function if isinstance(function, torch.nn.Module) else None
        name = getattr(function, "__name__", None) or type(function).__name__
        super().__init__(name, random or self._module is not None)
        self.function, self._rows = function, rows
        self.is_train: bool | None = None
        self._dtypes = None if dtypes is None else [torch_dtype(str(each)) for each in dtypes]
        self.collection = HeldCollection()
        self._leaves = list(params.values())
        for key, tensor in params.items():
            held = Parameters(TorchStorage(f"/{key}", tensor))
            self.parameters.append(held)
            self.collection.hold(held)

    def __repr__(self) -> str:
        return f"Wrapped {self.name}"

    def __call__(self, *args: Any) -> Any:
        """Add a call on one example to the graph.

        Args:
            args: the inputs: expressions of one example each; numbers and arrays become inputs of the graph.

        Returns:
            The expression of the output, a tuple if the function returns several tensors.

        Raises:
            ArgumentError: there are no inputs, or not as many as `dtypes`.
            ShapeError: the function fails on inputs of these shapes.
            NotBatchableError: `torch.vmap` refuses the function; says what to declare.
            StaleExpressionError: an input belongs to an earlier graph.
        """
        if not args or (self._dtypes is not None and len(args) != len(self._dtypes)):
            wanted = "at least one" if self._dtypes is None else str(len(self._dtypes))
            raise ArgumentError(f"{self.name}: {len(args)} inputs, expected {wanted} (at {user_line()})")
        return self.append([as_expression(each) for each in args], self._mode())

    def _mode(self) -> bool:
        if self.is_train is not None:
            return bool(self.is_train)
        forced = forced_mode()
        if forced is not None:
            return forced
        return self._module is not None and self._module.training

    # computing

    def leaves_of(self, parameters: Sequence[Tensor], is_recorded: bool) -> list[Tensor]:
        """Return torch's parameters themselves, which the function reads; see `Batched.leaves_of`."""
        return self._leaves

    def compute(
        self,
        is_train: bool,
        rows: Sequence[Tensor],
        parameters: Sequence[Tensor],
        generator: torch.Generator | None,
        again: bool,
    ) -> list[Tensor]:
        """Call the function; see `Batched.compute`."""
        buffers = self._buffers() if again else {}
        try:
            with self._in_mode(is_train), drawing_from(generator if self.random else None, rows[0].device):
                return self._batch(self.function, self._converted(rows))
        finally:
            for buffer, before in buffers.items():  # the second time moves no averages
                buffer.data.copy_(before)

    def _buffers(self) -> dict[Tensor, Tensor]:
        return {} if self._module is None else {each: each.clone() for each in self._module.buffers()}

    def _in_mode(self, is_train: bool) -> AbstractContextManager[None]:
        return nullcontext() if self._module is None else in_mode(self._module, is_train)

    def _converted(self, rows: Sequence[Tensor]) -> list[Tensor]:
        if self._dtypes is None:
            return list(rows)
        return [x.to(dtype) for x, dtype in zip(rows, self._dtypes)]

    def _batch(self, function: Callable[..., Any], rows: Sequence[Tensor]) -> list[Tensor]:
        if self._rows is True:
            return self._listed(function(*rows))
        if self._rows is None:
            return self._listed(torch.vmap(function, randomness="different")(*rows))
        found = [self._listed(function(*example)) for example in zip(*rows)]
        return [torch.stack(column) for column in zip(*found)]

    def _listed(self, result: Any) -> list[Tensor]:
        """Return the result as a list of tensors.

        Raises:
            ArgumentError: it is something else.
        """
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        if not found or not all(isinstance(each, torch.Tensor) for each in found):
            kinds = ", ".join(type(each).__name__ for each in found) or "nothing"
            raise ArgumentError(f"{self.name} returned {kinds}, expected a tensor or a tuple of tensors")
        return found

    # shapes

    def shapes(self, is_train: bool, shapes: Sequence[Shape]) -> list[Shape]:
        """Call the function on zeros, once for every set of shapes; see `Batched.shapes`."""
        options = state.options
        count = 2
        rows = self._converted(
            [torch.zeros(count, *s, device=options.device, dtype=options.dtype) for s in shapes]
        )
        generator = torch.Generator(options.device)
        before = self._buffers()
        try:
            with torch.no_grad(), self._in_mode(is_train), drawing_from(generator, options.device):
                found = self._tried(rows, shapes)
        finally:
            for buffer, value in before.items():
                buffer.data.copy_(value)
        for each in found:
            if each.dim() == 0 or each.shape[0] != count:
                raise NotBatchableError(
                    f"wrap: {self.name} was declared rows=True, but gives {tuple(each.shape)} for {count} rows; leave"
                    f" rows out if it works on one example (at {user_line()})"
                )
        return [tuple(each.shape[1:]) for each in found]

    def _tried(self, rows: Sequence[Tensor], shapes: Sequence[Shape]) -> list[Tensor]:
        try:
            return self._batch(self.function, rows)
        except ArgumentError:
            raise
        except Exception as error:  # a user's code may raise anything
            if self._rows is None and self._works_alone(rows):
                raise NotBatchableError(
                    f"wrap: torch.vmap refuses {self.name}: {' '.join(str(error).split())[:300]}; declare rows=True if"
                    " it takes many examples along the first axis of every input and treats each row alike, or"
                    f" rows=False to call it once for every example (at {user_line()})"
                ) from error
            given = ", ".join(map(str, shapes))
            raise ShapeError(
                f"{self.name} fails on inputs of shapes {given}: {error} (at {user_line()})"
            ) from error

    def _works_alone(self, rows: Sequence[Tensor]) -> bool:
        try:
            self.function(*[x[0] for x in rows])
        except Exception:
            return False
        return True

    def way(self, is_train: bool, shapes: Sequence[Shape]) -> str:
        """Return how a batch is computed; see `Batched.way`."""
        return {True: "", None: "by torch.vmap", False: "one by one: rows=False"}[self._rows]


def _parameters_of(function: Any, params: Any) -> dict[str, Tensor]:
    """Return the tensors that gradients reach, by name.

    Raises:
        ArgumentError: one is no leaf of torch's autograd.
    """
    if params is None:
        found = dict(function.named_parameters()) if isinstance(function, torch.nn.Module) else {}
        return {name: each for name, each in found.items() if each.requires_grad}
    named = (
        dict(params) if isinstance(params, Mapping) else {f"param{i}": each for i, each in enumerate(params)}
    )
    for name, each in named.items():
        if not (isinstance(each, torch.Tensor) and each.requires_grad and each.is_leaf):
            raise ArgumentError(f"wrap: params holds {name!r}, which is no leaf tensor with requires_grad")
    return named


def wrap(
    module: Callable[..., Any],
    rows: bool | None = None,
    *,
    params: Mapping[str, Tensor] | Iterable[Tensor] | None = None,
    random: bool = False,
    dtypes: Sequence[Any] | None = None,
) -> Wrapped:
    """Make a function on single examples of a torch module or function.

    Calls with equal shapes are computed together. Gradients are added to the ``.grad`` of the module's own parameters,
    as torch's users expect: train them with a torch optimizer (``zero_grad``, ``backward``, ``step``), or a trainer
    over ``wrapped.collection``. Random layers draw from the graph's generator, for every example anew.

    Args:
        module: what takes and returns tensors, without an axis for the batch unless `rows` is True.
        rows: how many examples become one call. None: by `torch.vmap`. True: the function takes the examples along the
            first axis of every input, as most modules do, and treats each row alike (or wants statistics of a batch, as
            BatchNorm does). False: not at all, it is called once for every example.
        params: the leaf tensors that a function reads from around it and that gradients are to reach.
        random: whether a function draws random numbers (torch's global functions do it); modules are taken to.
        dtypes: type of each input, such as "int64" for an embedding.

    Raises:
        ArgumentError: `module` cannot be called, or a parameter is no leaf.

    Example:
        >>> import torch, dpmodule.autobatch as dy
        >>> linear = torch.nn.Linear(3, 2)
        >>> f = dy.wrap(linear, rows=True)
        >>> dy.sum_elems(f([1.0, 2.0, 3.0])).backward()
        >>> linear.bias.grad
        tensor([1., 1.])
    """
    if not callable(module) or inspect.isclass(module):
        raise ArgumentError(f"wrap: {module!r} is no torch module and no function")
    if rows not in (None, True, False):
        raise ArgumentError(f"wrap: rows is {rows!r}, expected True, False or None")
    return Wrapped(module, rows, _parameters_of(module, params), random, dtypes)
