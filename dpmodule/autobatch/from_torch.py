"""`wrap`: torch modules and functions as functions of single examples, batched like every other operation."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from ..base import ArgumentError, ShapeError
from ..ops.dtypes import name_of, torch_dtype
from ..ops.torch_call import drawing_from, in_mode
from ..ops.user_code import with_message
from .arguments import flag
from .collection import ExistingParameters
from .errors import NotBatchableError, StateError, user_line
from .expression import as_list
from .parameters import Parameters
from .session import state
from .storage import TorchStorage
from .user_function import UserFunction, as_expression

Tensor = torch.Tensor
Shape = tuple[int, ...]


class Wrapped(UserFunction):
    """A torch module or function as a function of expressions, created by `wrap`.

    Args:
        rows: how examples are batched. None: by `torch.vmap`. True: the function takes examples along the first axis of
            every input, as most modules do, and treats rows alike (or uses statistics of the batch, as BatchNorm does).
            False: not at all, with one call per example.
        params: leaf tensors outside the function that need gradients.
        dtypes: dtype of each input, such as "int64" for an embedding.

    Shape:
        inputs, outputs: without an axis for examples.

    Attributes:
        function: the module or function.
        collection: the parameters, for this package's trainers; torch's optimizers use the module's parameters
            directly.
        is_train: True for training mode; None follows `training`, or else the module's own mode.

    Raises:
        ArgumentError: a parameter is lazy, or `dtypes` contains an unknown name.
        ForeignValueError: `dtypes` is not a list.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        rows: bool | None,
        params: Mapping[str, Tensor] | None,
        random: bool,
        dtypes: Sequence[Any] | None,
    ) -> None:
        self._module = function if isinstance(function, torch.nn.Module) else None
        name = getattr(function, "__name__", None) or type(function).__name__
        super().__init__(name, random or self._module is not None)
        self.function, self._rows = function, rows
        self._dtypes = None if dtypes is None else [_dtype(each) for each in as_list("wrap: dtypes", dtypes)]
        self.collection = ExistingParameters()
        self._mutates = False  # True if it modifies its inputs; set by `shapes`
        self._params = params
        self._leaves: list[Tensor] = []
        self._by_name: dict[str, Parameters] = {}
        self.renewed()

    def __repr__(self) -> str:
        return f"Wrapped {self.name}"

    def __call__(self, *args: Any) -> Any:
        """Add a call on one example to the graph.

        Shape:
            args, returns: without an axis for examples.

        Args:
            args: the inputs: expressions, numbers or arrays of one example each.

        Returns:
            The output as an expression, or a tuple of outputs.

        Raises:
            ArgumentError: the number of inputs is wrong, or an input of an integer dtype is not a whole number that the
                graph's dtype holds.
        """
        if not args or (self._dtypes is not None and len(args) != len(self._dtypes)):
            wanted = "at least one" if self._dtypes is None else str(len(self._dtypes))
            raise ArgumentError(f"{self.name}: {len(args)} inputs, expected {wanted} (at {user_line()})")
        expressions = [as_expression(each) for each in args]
        for number, dtype in enumerate(self._dtypes or ()):
            if expressions[number] is not args[number]:
                self._check_exact(number, args[number], dtype)
        return self.append(expressions, self._mode())

    def _check_exact(self, number: int, value: Any, dtype: torch.dtype) -> None:
        """Raise an error if the graph, which keeps inputs in its own dtype, changes integers."""
        if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
            return
        kept = state.options.dtype
        given = value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))
        if not torch.equal(given.to(kept).to(dtype).to(given.dtype), given):
            raise ArgumentError(
                f"{self.name}: input {number} has numbers that a graph of {name_of(kept)} cannot pass on as"
                f" {name_of(dtype)}, expected whole numbers up to 2^24, or 2^53 after configure(dtype='float64')"
                f" (at {user_line()})"
            )

    def _own_mode(self) -> bool:
        return self._module is not None and self._module.training

    # parameters

    def renewed(self) -> None:
        named = self._params
        if named is None:
            named = {} if self._module is None else _trained_of(self._module)
        leaves = list(named.values())
        if len(leaves) == len(self._leaves) and all(map(operator.is_, leaves, self._leaves)):
            return
        self._leaves, before = leaves, self._by_name
        self._by_name = {name: _parameter_of(leaf, name, before.get(name)) for name, leaf in named.items()}
        self.parameters = list(self._by_name.values())
        self.collection.replace_parameters(self.parameters)

    # computing

    def leaves_of(self, parameters: Sequence[Tensor], is_recorded: bool) -> list[Tensor]:
        return self._leaves

    def compute(
        self,
        is_train: bool,
        rows: Sequence[Tensor],
        parameters: Sequence[Tensor],
        generator: torch.Generator | None,
        again: bool,
        counted: Tensor | None = None,
    ) -> list[Tensor]:
        buffers = self._buffers() if again else {}
        try:
            with self._in_mode(is_train), drawing_from(generator if self.random else None, rows[0].device):
                return self._batch(self.function, self._converted(rows))
        finally:
            for buffer, before in buffers.items():  # recomputation must not update averages
                buffer.data.copy_(before)

    def _buffers(self) -> dict[Tensor, Tensor]:
        return {} if self._module is None else {each: each.clone() for each in self._module.buffers()}

    def _in_mode(self, is_train: bool) -> AbstractContextManager[None]:
        return nullcontext() if self._module is None else in_mode(self._module, is_train)

    def _converted(self, rows: Sequence[Tensor]) -> list[Tensor]:
        if self._mutates:
            rows = [x.clone() for x in rows]
        if self._dtypes is None:
            return list(rows)
        return [x.to(dtype) for x, dtype in zip(rows, self._dtypes)]

    def _batch(self, function: Callable[..., Any], rows: Sequence[Tensor]) -> list[Tensor]:
        if self._rows is True:
            return self._listed(function(*rows))
        if self._rows is None:
            return self._listed(torch.vmap(function, randomness="different")(*rows))
        # copies, since the function may modify its inputs
        found = [self._listed(function(*[x.clone() for x in example])) for example in zip(*rows)]
        return [torch.stack(column) for column in zip(*found)]

    def _listed(self, result: Any) -> list[Tensor]:
        """Return the result as a list of tensors."""
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        if not found or not all(isinstance(each, torch.Tensor) for each in found):
            kinds = ", ".join(type(each).__name__ for each in found) or "nothing"
            raise ArgumentError(f"{self.name} returned {kinds}, expected a tensor or a tuple of tensors")
        return found

    # shapes

    def shapes(self, is_train: bool, shapes: Sequence[Shape]) -> list[Shape]:
        options = state.options
        count = 2
        with torch.inference_mode(False):  # tensors of that mode have no version
            rows = self._converted(
                [torch.zeros(count, *s, device=options.device, dtype=options.dtype) for s in shapes]
            )
        generator = torch.Generator(options.device)
        before, versions = self._buffers(), [x._version for x in rows]
        try:
            with torch.no_grad(), self._in_mode(is_train), drawing_from(generator, options.device):
                found = self._tried(rows, shapes)
            self._mutates |= versions != [x._version for x in rows]
        finally:
            for buffer, value in before.items():
                buffer.data.copy_(value)
        for each in found:
            if each.dim() == 0 or each.shape[0] != count:
                raise NotBatchableError(
                    f"wrap: {self.name} was declared rows=True, but returns {tuple(each.shape)} for {count} rows; omit"
                    f" rows if it works on one example (at {user_line()})"
                )
        return [tuple(each.shape[1:]) for each in found]

    def _tried(self, rows: Sequence[Tensor], shapes: Sequence[Shape]) -> list[Tensor]:
        try:
            return self._batch(self.function, rows)
        except (ArgumentError, StateError):
            raise
        except Exception as error:  # a user's code may raise anything
            if self._rows is None and self._works_alone(rows):
                raise NotBatchableError(
                    f"wrap: torch.vmap does not support {self.name}: {' '.join(str(error).split())[:300]}; declare"
                    " rows=True if it takes many examples along the first axis of every input and treats rows alike,"
                    f" or rows=False to call it once for every example (at {user_line()})"
                ) from error
            given = ", ".join(map(str, shapes))
            text = f"{self.name} fails on inputs of shapes {given}: {error} (at {user_line()})"
            raise with_message(error, ShapeError, text) from error

    def _works_alone(self, rows: Sequence[Tensor]) -> bool:
        try:
            result = self.function(*[x[0] for x in rows])
        except Exception:
            return False
        self._listed(result)  # raises an error for results that are not tensors
        return True

    def execution(self, is_train: bool, shapes: Sequence[Shape]) -> str:
        return {True: "", None: "by torch.vmap", False: "one by one: rows=False"}[self._rows]


def _parameter_of(tensor: Tensor, name: str, before: Parameters | None) -> Parameters:
    """Return the parameter for a tensor, reusing the previous one for the same tensor."""
    storage = None if before is None else before.storage
    if before is not None and isinstance(storage, TorchStorage) and storage.parameter is tensor:
        return before
    return Parameters(TorchStorage(f"/{name}", tensor))


def _dtype(given: Any) -> torch.dtype:
    """Return the dtype for an input."""
    try:
        return torch_dtype(str(given))
    except KeyError:
        raise ArgumentError(
            f'wrap: dtypes contains {given!r}, expected names such as "float32", "int64" (at {user_line()})'
        ) from None


def _trained_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """Return the parameters of a module that require gradients."""
    trained: dict[str, Tensor] = {n: each for n, each in module.named_parameters() if each.requires_grad}
    for name, each in trained.items():
        if torch.nn.parameter.is_lazy(each):
            raise ArgumentError(
                f"wrap: parameter {name} of {type(module).__name__} has no shape yet; call the module once on a batch,"
                " or create it with the sizes of its inputs"
            )
    return trained


def _parameters_of(params: Any) -> dict[str, Tensor] | None:
    """Return the given leaf tensors by name, or None."""
    if params is None:
        return None
    if isinstance(params, Mapping):
        named = dict(params)
    else:
        named = {f"param{i}": each for i, each in enumerate(as_list("wrap: params", params))}
    for name, each in named.items():
        if not (isinstance(each, torch.Tensor) and each.requires_grad and each.is_leaf):
            raise ArgumentError(
                f"wrap: params contains {name!r}, which is not a leaf tensor with requires_grad"
            )
    return named


def wrap(
    module: Callable[..., Any],
    rows: bool | None = None,
    *,
    params: Mapping[str, Tensor] | Iterable[Tensor] | None = None,
    random: bool = False,
    dtypes: Sequence[Any] | None = None,
) -> Wrapped:
    """Turn a torch module or function into a function of single examples.

    Calls with equal shapes are computed together. Gradients are added to the ``.grad`` of the module's parameters, as
    usual in torch: train with a torch optimizer (``zero_grad``, ``backward``, ``step``) or with a trainer on
    ``wrapped.collection``. Random layers draw from the graph's generator, separately for every example.

    Shape:
        inputs, outputs of the function: without an axis for examples.

    Args:
        module: a function of tensors, without a batch axis unless `rows` is True.
        rows: how examples are batched. None: by `torch.vmap`. True: the function takes examples along the first axis of
            every input, as most modules do, and treats rows alike (or uses statistics of the batch, as BatchNorm does).
            False: not at all, with one call per example.
        params: leaf tensors outside the function that need gradients.
        random: True if a function draws random numbers with torch's global functions; modules are assumed to.
        dtypes: dtype of each input, such as "int64" for an embedding.

    Raises:
        ArgumentError: `module` is not callable, or a parameter is not a leaf.
        ForeignValueError: `rows` or `random` is not a bool.

    Example:
        >>> import torch, dpmodule.autobatch as dy
        >>> linear = torch.nn.Linear(3, 2)
        >>> f = dy.wrap(linear, rows=True)
        >>> dy.sum_elems(f([1.0, 2.0, 3.0])).backward()
        >>> linear.bias.grad
        tensor([1., 1.])
    """
    if not callable(module) or inspect.isclass(module):
        raise ArgumentError(f"wrap: {module!r} is not a torch module or a function")
    by_rows = None if rows is None else flag(rows, "wrap: rows")
    return Wrapped(module, by_rows, _parameters_of(params), flag(random, "wrap: random"), dtypes)
