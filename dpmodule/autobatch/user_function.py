"""Operations of user code, the common base of `Cell` (symbols) and `Wrapped` (torch code).

A `UserFunction` is one operation of the graph. All its calls with operands of equal shapes form one batch: `run` passes
the rows of all calls to `compute`, and `grad` backpropagates through torch's autograd. Its parameters are operands,
too, so both engines accumulate their gradients like those of any other operation.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from .._core import mode as flags
from .._core import torch_private
from ..base import ArgumentError, DTypeError, ShapeError
from ..ndarray import NDArray
from .arguments import flag
from .errors import user_line, wrong_type
from .expression import Expression
from .functions.inputs import inputTensor, scalarInput
from .graph import calling
from .ops.spec import BatchCall, Dim, Operation, common_batch
from .parameters import Parameters
from .session import state

Tensor = torch.Tensor

_forced: list[bool] = []


def training(is_train: bool = True) -> AbstractContextManager[None]:
    """Run cells and wrapped modules in training or prediction mode inside a ``with`` block.

    In training mode, dropout is active, batch normalization uses the statistics of the batch, and values for the
    backward pass are kept. Without the block, cells follow ``autograd.record()`` and ``autograd.train_mode()``, and
    wrapped modules their own ``module.training``.

    Args:
        is_train: False for prediction mode.

    Raises:
        ForeignValueError: `is_train` is neither True nor False.
    """
    return _training(flag(is_train, "is_train"))


@contextmanager
def _training(is_train: bool) -> Iterator[None]:
    _forced.append(is_train)
    before = flags.set_training(is_train)
    try:
        yield
    finally:
        flags.set_training(before)
        _forced.pop()


class OutputExpression(Expression):
    """An output of a cell.

    Attributes:
        is_loss: True for a loss head, such as SoftmaxOutput, which ignores its incoming gradient.
    """

    __slots__ = ("is_loss",)

    is_loss: bool


def as_expression(value: Any) -> Expression:
    """Convert an argument of a cell to an expression; numbers and arrays become inputs.

    Shape:
        value: (*d), or a number.
        returns: (*d), (1,) of a number.
    """
    if isinstance(value, Expression):
        return value
    if isinstance(value, (int, float, np.number)):
        return scalarInput(float(value))
    if isinstance(value, NDArray):
        return inputTensor(value.asnumpy())
    if isinstance(value, torch.Tensor):
        return inputTensor(value.detach().cpu().numpy())
    if isinstance(value, (np.ndarray, list, tuple)):
        return inputTensor(value)
    raise wrong_type("", value, "is not an Expression, number or array")


class _History(NamedTuple):
    """Leaves and outputs of a forward pass recorded by torch's autograd."""

    leaves: list[Tensor]
    outputs: list[Tensor]


class UserFunction:
    """An operation of user code.

    Subclasses define `shapes`, `compute` and `_own_mode`.

    Shape:
        inputs, outputs of a call: without an axis for examples.

    Args:
        random: True if the code draws random numbers, so that every call needs its own.
    """

    def __init__(self, name: str, random: bool, has_losses: bool = False) -> None:
        self.name, self.random, self.has_losses = name, random, has_losses
        self.parameters: list[Parameters] = []
        self._is_train: bool | None = None
        # set by the first backward pass: further ones are likely
        self.keeps_history = False
        self._op = Operation(
            f"cell {name}", _shape, _run, _grad, aux="object", random=random, whole_batch=True
        )
        self._reference = weakref.ref(self)
        self._known: dict[Any, tuple[Dim, ...]] = {}
        self._version, self._count = -1, 0

    # defined by subclasses

    def shapes(self, is_train: bool, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the shapes of the outputs for one example."""
        raise NotImplementedError(f"{type(self).__name__} does not define shapes")

    def compute(
        self,
        is_train: bool,
        rows: Sequence[Tensor],
        parameters: Sequence[Tensor],
        generator: torch.Generator | None,
        again: bool,
        counted: Tensor | None = None,
    ) -> list[Tensor]:
        """Compute all outputs of all rows; torch records the computation if gradients are needed.

        Shape:
            rows, returns: each (rows, *shape of one example).
            parameters: as they are.
            counted: (rows,), bool.

        Args:
            parameters: the values, in the order of `parameters`.
            again: True if the batch is recomputed, so that states must not be updated.
            counted: rows that need gradients, for losses that ignore a missing gradient; None for all rows.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define compute")

    def _own_mode(self) -> bool:
        """Return the default mode: True for training."""
        raise NotImplementedError(f"{type(self).__name__} does not define _own_mode")

    def execution(self, is_train: bool, shapes: Sequence[tuple[int, ...]]) -> str:
        """Return how a batch is computed and why, for `explain`; "" for a single call."""
        return ""

    def leaves_of(self, parameters: Sequence[Tensor], is_recorded: bool) -> list[Tensor]:
        """Return the parameters as leaves of torch's autograd.

        Shape:
            parameters, returns: equal.
        """
        return [x.data.requires_grad_() if is_recorded else x for x in parameters]

    # public interface

    @property
    def is_train(self) -> bool | None:
        """True for training mode; None follows `training`, or else the code's own mode."""
        return self._is_train

    @is_train.setter
    def is_train(self, value: bool | None) -> None:
        self._is_train = value

    def _mode(self) -> bool:
        """Return True if the next call is in training mode."""
        if self._is_train is not None:
            return flag(self._is_train, f"{self.name}: is_train")
        return _forced[-1] if _forced else self._own_mode()

    def outs(self, is_train: bool, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the `Dim` of every output."""
        key = (is_train, *dims)
        output_dims = self._known.get(key)
        if output_dims is None:
            batch = common_batch(self.name, dims)
            with calling(self.name):
                shapes = self.shapes(is_train, [dim.d for dim in dims])
            if self._count and len(shapes) != self._count:
                raise ArgumentError(
                    f"{self.name} returns {len(shapes)} tensors here but returned {self._count} before; the number"
                    f" must be the same for all inputs (at {user_line()})"
                )
            for shape in shapes:
                if 0 in shape:
                    raise ShapeError(
                        f"{self.name} returns a tensor of shape {tuple(shape)}, which has no elements"
                        f" (at {user_line()})"
                    )
            output_dims = self._known[key] = tuple(Dim(shape or (1,), batch) for shape in shapes)
        return output_dims

    def append(self, data: Sequence[Expression], is_train: bool, losses: Sequence[bool] = ()) -> Any:
        """Add a call to the graph; return its output or a tuple of outputs.

        Shape:
            data: without an axis for examples; elements of a minibatch count as examples.
        """
        graph = state.graph
        if self._version != graph.version:
            self.renewed()
            self._check_types()
            self._version = graph.version
        nodes = [x.enter() for x in data]
        held = [x.enter() if x.storage.updated else x.expr(update=False).enter() for x in self.parameters]
        if not self._count:  # the number of outputs is always the same
            self._count = len(self.outs(is_train, [graph.dim(node) for node in nodes]))
        node = graph.append(self._op, (self._reference, is_train, len(nodes)), (*nodes, *held), self)
        expressions = []
        for place in range(self._count):
            output = OutputExpression()
            output.become(node + place, graph.version)
            output.is_loss = bool(losses and losses[place])
            expressions.append(output)
        return expressions[0] if self._count == 1 else tuple(expressions)

    def renewed(self) -> None:
        """Called when a new graph is started."""

    def _check_types(self) -> None:
        """Raise an error for parameters whose dtype differs from the graph's."""
        wanted = state.options.dtype
        for each in self.parameters:
            if each.storage.tensor.dtype is not wanted:
                raise DTypeError(
                    f"{self.name}: parameter {each.name()} is {each.storage.tensor.dtype}, the graph computes in"
                    f" {wanted}; see configure(dtype=...) (at {user_line()})"
                )


def _shape(attrs: tuple[Any, ...], dims: Sequence[Dim]) -> tuple[Dim, ...]:
    reference, is_train, inputs = attrs
    found: tuple[Dim, ...] = reference().outs(is_train, dims[:inputs])
    return found


def _evaluate(
    owner: UserFunction,
    call: BatchCall,
    inputs: Sequence[Tensor],
    is_recorded: bool,
    again: bool = False,
    counted: Tensor | None = None,
) -> _History:
    """Compute a batch, recording it for autograd if `is_recorded`."""
    _, is_train, count = call.attrs
    data, parameters = inputs[:count], inputs[count:]
    batch = call.out.batch
    rows = max(x.shape[0] for x in data)
    if owner.random or owner.has_losses:
        rows = max(rows, call.count)  # every node draws its own numbers and is a separate loss
    leaves = [x.data for x in data]
    if is_recorded:
        # without `into`, the memory may be scratch space that other batches overwrite before backward
        leaves = [(x if call.into else x.clone()).requires_grad_() for x in leaves]
    held = owner.leaves_of([x[0, 0] for x in parameters], is_recorded)
    with torch.set_grad_enabled(is_recorded), calling(owner.name):
        flat = [x.expand(rows, batch, *x.shape[2:]).reshape(rows * batch, *x.shape[2:]) for x in leaves]
        outputs = owner.compute(is_train, flat, held, call.generator, again, counted)
    return _History([*leaves, *held], outputs)


def _run(call: BatchCall, *inputs: Tensor) -> tuple[Tensor, ...]:
    owner: UserFunction = call.aux[0]
    before = call.generator.get_state() if owner.random and call.generator is not None else None
    is_recorded = owner.keeps_history
    history = _evaluate(owner, call, inputs, is_recorded)
    call.saved = before, history if is_recorded else None
    dims = owner.outs(call.attrs[1], call.dims[: call.attrs[2]])
    for out, dim in zip(history.outputs, dims):
        _check_shape(owner, out, dim)
    return tuple(
        out.detach().reshape(-1, dim.batch, *dim.d).to(call.dtype) for out, dim in zip(history.outputs, dims)
    )


def _check_shape(owner: UserFunction, out: Tensor, dim: Dim) -> None:
    """Raise an error if a result does not have the shape inferred when the call was added."""
    found = tuple(out.shape[1:])
    if found != dim.d and [size for size in found if size != 1] != [size for size in dim.d if size != 1]:
        raise ShapeError(
            f"{owner.name} returned {found} for an example, but {dim.d} for others of the same shapes; the shape of a"
            " result must not depend on values"
        )


def _grad(call: BatchCall, g: Any, *inputs: Tensor) -> list[Tensor | None]:
    owner: UserFunction = call.aux[0]
    owner.keeps_history = True
    gradients = list(g) if isinstance(g, tuple) else [g]
    if owner.has_losses:
        reached = torch.stack([each.flatten(2).any(2) for each in gradients]).any(0).view(-1)
        if not bool(reached.any()):
            return [None] * len(inputs)
        if not bool(reached.all()):  # a loss head ignores a missing gradient
            history = _recompute(owner, call, inputs, call.saved[0], reached)
            return _differentiate(owner, call, gradients, inputs, history)
    before, history = call.saved
    call.saved = before, None
    if history is None:
        history = _recompute(owner, call, inputs, before)
    return _differentiate(owner, call, gradients, inputs, history)


def _recompute(
    owner: UserFunction,
    call: BatchCall,
    inputs: Sequence[Tensor],
    before: Tensor | None,
    counted: Tensor | None = None,
) -> _History:
    """Recompute a batch with the random numbers of the first run."""
    if before is None or call.generator is None:
        return _evaluate(owner, call, inputs, True, True, counted)
    after = call.generator.get_state()
    call.generator.set_state(before)
    try:
        return _evaluate(owner, call, inputs, True, True, counted)
    finally:
        call.generator.set_state(after)


def _differentiate(
    owner: UserFunction,
    call: BatchCall,
    gradients: Sequence[Tensor],
    inputs: Sequence[Tensor],
    history: _History,
) -> list[Tensor | None]:
    roots, seeds = [], []
    for out, gradient in zip(history.outputs, gradients):
        if out.requires_grad:
            rows = out.shape[0] // call.out.batch
            whole = gradient if gradient.shape[0] == rows else gradient.sum(0, keepdim=True)
            roots.append(out)
            seeds.append(whole.reshape(out.shape).to(out.dtype))
    input_grads: list[Tensor | None] = [None] * len(inputs)
    wants = call.wants or (True,) * len(inputs)
    wanted = [i for i, leaf in enumerate(history.leaves) if wants[i] and leaf.requires_grad]
    if roots and wanted:
        with calling(owner.name):
            leaves = tuple(history.leaves[i] for i in wanted)
            grads = torch_private.run_backward(tuple(roots), tuple(seeds), inputs=leaves)
        for i, grad in zip(wanted, grads):
            if grad is not None:  # an embedding's may be sparse
                input_grads[i] = (grad.to_dense() if grad.is_sparse else grad).reshape(inputs[i].shape)
    return input_grads
