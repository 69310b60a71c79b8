"""One batch of an `AutobatchModule`: builds a graph from rows, and arrays from its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..._devices.generators import generator
from ...autobatch.collection import ParameterCollection
from ...autobatch.expression import Expression, forward
from ...autobatch.functions.arithmetic import esum
from ...autobatch.functions.shapes import sum_batches, sum_elems
from ...autobatch.pytorch.batching import Run
from ...autobatch.pytorch.batching import map as run_map
from ...autobatch.session import state
from ...autobatch.storage import (
    FetchedStorage,
    LookupStorage,
    ParameterStorage,
    StateStorage,
    parameter_attributes,
)
from ...autobatch.user_function import OutputExpression, training
from ...base import ArgumentError, ShapeError
from ...context import Context, cpu
from ...io import DataDesc
from ...ndarray import NDArray
from ...ndarray.row_source import FetchedArray
from ...ndarray.sparse_base import clear
from ...ops.dtypes import name_of
from ...ops.sparse import RowSparse, add_rows
from ...params import ParamStore

if TYPE_CHECKING:
    from ...symbol import Symbol
    from ...types import ArrayLike


def public_name(name: str) -> str:
    """Return the name of a parameter for files and optimizers: "/encoder/W" is "encoder_W"."""
    return name.strip("/").replace("/", "_")


@dataclass(frozen=True)
class CollectionGroup:
    """The parameters of a collection with the interface of an executor group for optimizers and stores."""

    symbol: Any
    contexts: list[Context]
    param_names: list[str]
    param_arrays: list[list[NDArray]]
    grad_arrays: list[list[NDArray | None]]
    num_samples: int
    store: CollectionStore
    row_sparse_names: frozenset[str] = frozenset()

    @property
    def arg_names(self) -> list[str]:
        """Names of the parameters, the only arguments."""
        return self.param_names

    @property
    def active(self) -> list[int]:
        """Indices of all contexts."""
        return list(range(len(self.contexts)))

    def use_array(self, name: str, array: Any) -> None:
        """Use rows that are elsewhere for a table."""
        self.store.use_array(name, array)


class CollectionStore:
    """The parameters of a collection on contexts; on the first context they use the collection's memory.

    Attributes:
        attributes: attributes of the symbol nodes that cells made parameters from, by name.
    """

    def __init__(
        self, collection: ParameterCollection, contexts: Sequence[Context], fixed: Sequence[str]
    ) -> None:
        self.contexts = list(contexts)
        self.store = ParamStore(contexts)
        self.parameters: dict[str, ParameterStorage] = {}
        self.states: dict[str, ParameterStorage] = {}
        self.tables: dict[str, LookupStorage] = {}
        self._collection = collection
        for each in (*collection.parameters_list(), *collection.lookup_parameters_list()):
            self._add(public_name(each.name()), each.storage)
        unknown = [name for name in fixed if name not in self.parameters]
        if unknown:
            known = ", ".join(self.parameters) or "none"
            raise ArgumentError(f"fixed_param_names holds {', '.join(unknown)}; the parameters are {known}")
        every = {**self.parameters, **self.states}
        self.attributes = {
            name: parameter_attributes[each] for name, each in every.items() if each in parameter_attributes
        }
        self.trained = [name for name, each in self.parameters.items() if each.updated and name not in fixed]

    def _add(self, name: str, storage: ParameterStorage) -> None:
        if name in self.parameters or name in self.states:
            if storage in (self.parameters.get(name), self.states.get(name)):
                return
            raise ArgumentError(f"two parameters are called {name!r} in files; give one another name")
        if isinstance(storage, LookupStorage):
            if len(self.contexts) > 1:
                storage.begin(storage.initial)
            self.tables[name], stype = storage, "row_sparse"
            tensor = storage.tensor if storage.initial is None else storage.memory
        else:
            tensor, stype = storage.tensor, "default"
        shape, dtype = tuple(tensor.shape), name_of(tensor.dtype)
        is_state = isinstance(storage, StateStorage)
        if is_state:
            self.store.declare_aux(name, shape, dtype)
        else:
            self.store.declare(name, shape, dtype, True, grad_stype=stype)
        if isinstance(storage, FetchedStorage):
            self.store.replace_array(name, FetchedArray(storage.source, True))
        else:
            self.store.place(name, tensor, keep=False)
        (self.states if is_state else self.parameters)[name] = storage

    def arrays(self, name: str) -> list[NDArray]:
        """Return a parameter or state on every context."""
        pick = self.store.aux if name in self.states else self.store.array
        return [pick(name, i) for i in range(len(self.contexts))]

    def group(self, symbol: Symbol | None, num_samples: int) -> CollectionGroup:
        """Return the interface of an executor group for `updates`."""
        names = list(self.parameters)
        grads = [
            [self.store.grad(name, i) if name in self.trained else None for i in range(len(self.contexts))]
            for name in names
        ]
        arrays = [self.arrays(name) for name in names]
        return CollectionGroup(symbol, self.contexts, names, arrays, grads, num_samples, self)

    def initial_rows(self) -> dict[str, Any]:
        """Return the initial rows of the tables without values."""
        rows = {name: storage.initial for name, storage in self.tables.items()}
        return {name: initial for name, initial in rows.items() if initial is not None}

    def fill(self, name: str, fill: Callable[[torch.Tensor], None]) -> None:
        """Give a table its first values; see `ParamStore.fill`."""
        self.store.fill(name, fill)
        self.tables[name].begin(None)

    def fill_tables(self) -> None:
        """Fill the tables that do not have values yet."""
        for storage in self.tables.values():
            storage.begin(storage.initial)

    def use_array(self, name: str, array: Any) -> None:
        """Use rows that are elsewhere for a table."""
        before = self.parameters[name]
        if isinstance(before, FetchedStorage) and before.source is array.source:
            return
        storage = FetchedStorage(before.name, array.source)
        storage.updated = before.updated
        for table in self._collection.lookup_parameters_list():
            if table.storage is before:
                table.replace_storage(storage)
        self.parameters[name] = self.tables[name] = storage
        self.store.replace_array(name, array)

    def clear(self) -> None:
        """Set the gradients of the collection to zero."""
        for storage in self.parameters.values():
            storage.clear_gradient()

    def take_gradients(self, i: int, adds: bool) -> None:
        """Move the collection's gradients into the arrays of a context."""
        for name in self.trained:
            target: Any = self.store.grad(name, i)
            if target is None:
                continue
            storage = self.parameters[name]
            if isinstance(storage, LookupStorage):
                record = RowSparse(*storage.sparse_gradient(), target.shape)
                target.take_over(add_rows([target.stored, record]) if adds else record)
                continue
            if not adds:
                target.raw.zero_()
            if storage.gradient is not None:
                target.raw.add_(storage.gradient)
        self.clear()

    def no_gradients(self, i: int) -> None:
        """Set the gradients of a context without examples to zero."""
        for name in self.trained:
            target = self.store.grad(name, i)
            if target is not None:
                clear(target)

    @contextmanager
    def placed(self, i: int) -> Iterator[None]:
        """Use the parameters of a context for the collection within the block."""
        if i == 0:
            yield
            return
        both = {**self.parameters, **self.states}
        own = {name: storage.tensor for name, storage in both.items()}
        try:
            for name, storage in both.items():
                storage.tensor = self.arrays(name)[i].raw
            yield
        finally:
            for name, storage in both.items():
                storage.tensor = own[name]


@contextmanager
def on_context(context: Context) -> Iterator[None]:
    """Compute graphs on a context within the block."""
    options = state.options
    before = options.device, options.generator
    options.device, options.generator = context.torch_device, generator(context)
    try:
        state.renew()
        yield
    finally:
        options.device, options.generator = before


@dataclass(slots=True)
class BatchResult:
    """Results of the examples of one context.

    Attributes:
        loss: sum of the losses, None without losses.
    """

    outputs: list[list[torch.Tensor]]
    loss: float | None


def columns_of(batch: Any, num_data: int, num_labels: int, axes: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return the arguments of the function for every example.

    Args:
        num_labels: number of label columns; missing ones are None.
        axes: axis of the examples for every column.
    """
    data, labels = list(batch.data or ()), list(batch.label or ())
    if len(data) != num_data:
        raise ArgumentError(f"forward: the batch has {len(data)} columns of data, expected {num_data}")
    columns = [_examples_of(column, axis) for column, axis in zip((*data, *labels[:num_labels]), axes)]
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise ArgumentError(f"forward: columns of {[len(c) for c in columns]} examples, expected equal ones")
    if not lengths.pop():
        raise ShapeError("forward: the batch is empty, expected at least one example")
    columns += [[None] * len(columns[0])] * (num_labels - len(labels[:num_labels]))
    return list(zip(*columns))


def batch_axis(desc: object) -> int:
    """Return the axis of the examples in an array, from its (name, shape) or `DataDesc`; 0 if it has no layout."""
    return max(DataDesc.get_batch_axis(getattr(desc, "layout", None)), 0)


def axes_of(described: Iterable[object] | None, count: int) -> list[int]:
    """Return the axis of the examples for each of `count` columns, 0 for those without description."""
    return [*[batch_axis(desc) for desc in described or ()], *[0] * count][:count]


def _examples_of(column: ArrayLike, axis: int = 0) -> Sequence[Any]:
    if isinstance(column, (list, tuple)):
        return column
    if isinstance(column, NDArray):
        column = column.asnumpy()
    elif isinstance(column, torch.Tensor):
        column = column.detach().cpu().numpy()
    if isinstance(column, np.ndarray):
        return np.moveaxis(column, axis, 0) if 0 < axis < column.ndim else column  # type: ignore[return-value]
    raise ArgumentError(
        f"forward: a column is {type(column).__name__}, expected an array or a list of examples"
    )


def run_examples(
    function: Callable[..., Any], rows: Sequence[tuple[Any, ...]], is_train: bool, autobatch: bool
) -> BatchResult:
    """Build and compute one graph of all examples, with gradients in training."""
    graph = state.graph
    graph.renew(autobatch=autobatch)
    with training(is_train):
        results = [_loss_and_outputs(function(*row), Expression) for row in rows]
    _check_counts(results)
    total = _total_loss(results, is_train)
    expressions = [output for _, outputs in results for output in outputs]
    forward(expressions if total is None else [*expressions, total])
    if is_train and total is not None:
        total.backward()
    values = [
        [_value_of(output) for output in column] for column in zip(*(outputs for _, outputs in results))
    ]
    return BatchResult(values, None if total is None else total.scalar_value())


def run_torch_examples(
    function: Callable[..., Any],
    module: torch.nn.Module,
    rows: Sequence[tuple[Any, ...]],
    is_train: bool,
    autobatch: bool,
    context: Context,
) -> tuple[BatchResult, Run]:
    """Run a program of torch on all examples in one block of `batching`, with gradients in training."""
    columns = [[_as_tensor(each, context) for each in column] for column in zip(*rows)]
    modes = [(each, each.training) for each in module.modules()]
    if module.training != is_train:
        module.train(is_train)
    code = getattr(function, "__code__", None)  # whether recording pays is learned for each program
    block = Run((code.co_filename, code.co_firstlineno, is_train) if code else (type(function), is_train))
    try:
        with torch.set_grad_enabled(is_train), block if autobatch else nullcontext():
            found = run_map(function, *columns) if autobatch else _one_by_one(function, columns)
            results = [_loss_and_outputs(each, torch.Tensor) for each in found]
            _check_counts(results)
            losses = [loss.sum() for loss, _ in results if loss is not None]
            total = torch.stack(losses).sum() if losses else None
        if is_train:
            if total is None:
                raise ArgumentError("the function returned no loss in training; return (loss, output, ...)")
            torch.autograd.backward(total)
    finally:
        for each, mode in modes:
            each.training = mode
    values = [[_plain(output) for output in column] for column in zip(*(outputs for _, outputs in results))]
    return BatchResult(values, None if total is None else float(total.detach())), block


def _one_by_one(function: Callable[..., Any], columns: Sequence[Sequence[Any]]) -> list[Any]:
    return [run_map(function, *([each] for each in row))[0] for row in zip(*columns)]


def _as_tensor(item: Any, context: Context) -> Any:
    """Return an array as a tensor on a context; other objects unchanged."""
    if isinstance(item, (np.ndarray, np.generic)) and item.dtype != object:
        return torch.as_tensor(
            np.ascontiguousarray(item).reshape(np.shape(item)), device=context.torch_device
        )
    return item


def _plain(output: torch.Tensor) -> torch.Tensor:
    found = output.detach()
    return found if found.dim() else found.view(1)


def _check_counts(results: Sequence[tuple[Any, list[Any]]]) -> None:
    counts = {len(outputs) for _, outputs in results}
    if len(counts) != 1:
        raise ArgumentError(f"the function returned {sorted(counts)} outputs for different examples")


def _loss_and_outputs(result: object, kind: type[Any]) -> tuple[Any, list[Any]]:
    """Split the result of the function into loss and outputs."""
    if isinstance(result, kind):
        return result, [result]
    if isinstance(result, (tuple, list)) and result:
        loss, outputs = result[0], list(result[1:])
        fits = all(isinstance(each, kind) for each in outputs)
        if fits and (isinstance(loss, kind) or (loss is None and outputs)):
            return loss, outputs or [loss]
    raise ArgumentError(
        f"the function returned {type(result).__name__} {result!r}, expected a loss, or a tuple (loss, output, ...)"
    )


def _total_loss(
    results: Sequence[tuple[Expression | None, list[Expression]]], is_train: bool
) -> Expression | None:
    losses: list[Expression] = []
    for loss, outputs in results:
        if loss is not None:
            losses.append(loss)
            continue
        heads = [each for each in outputs if isinstance(each, OutputExpression) and each.is_loss]
        if is_train and not heads:
            raise ArgumentError(
                "the function returned no loss in training, and no output is a loss head such as SoftmaxOutput; return"
                " (loss, output, ...)"
            )
        losses.extend(heads if is_train else ())
    return esum([_sum_of_loss(each) for each in losses]) if losses else None


def _sum_of_loss(loss: Expression) -> Expression:
    """Return the sum of all elements of a loss."""
    d, batch = loss.dim()
    if d != (1,):
        loss = sum_elems(loss)
    return sum_batches(loss) if batch != 1 else loss


def _value_of(output: Expression) -> torch.Tensor:
    value: torch.Tensor = state.graph.value(output.enter())
    return value[0].clone() if value.shape[0] == 1 else value.clone()


def merged(examples: Sequence[torch.Tensor], stack: bool | None = None) -> NDArray:
    """Return the values of all examples as one array, a vector if they are numbers.

    Args:
        stack: True to stack them along a new first axis, False to concatenate along their own; None stacks if all
            shapes are equal.

    Shape:
        examples[i]: any; a number is (1,).
        returns: (N, ...) if stacked, or for numbers; else the first length is the sum of their lengths.
    """
    home = cpu()
    tensors = [each.to(home.torch_device) for each in examples]
    shapes = {tuple(each.shape) for each in tensors}
    if shapes == {(1,)}:
        return NDArray(torch.cat(tensors), home)
    if stack and len(shapes) > 1:
        raise ShapeError(
            f"stack=True, but examples have outputs of shapes {', '.join(map(str, sorted(shapes)))}"
        )
    stack = len(shapes) == 1 if stack is None else stack
    return NDArray(torch.stack(tensors) if stack else torch.cat(tensors), home)


def array_of_labels(column: ArrayLike, count: int, stack: bool | None = None, axis: int = 0) -> NDArray:
    """Return the labels of the first examples as one array.

    Args:
        axis: axis of the examples, for an array.

    Shape:
        column: N examples on `axis`, or a list of them.
        returns: see `merged`, for the first `count` examples.
    """
    if isinstance(column, NDArray) and stack is not False and not axis:
        return NDArray(column.raw[:count], column.context)
    return merged([_label_tensor(each) for each in _examples_of(column, axis)[:count]], stack)


def _label_tensor(label: Any) -> torch.Tensor:
    array = np.asarray(label, np.float32)
    return torch.from_numpy(array.reshape(-1) if array.ndim < 2 else np.ascontiguousarray(array))


def are_sequences(outputs: Sequence[torch.Tensor], column: ArrayLike, axis: int) -> bool:
    """Return True if every example has a label for each vector of its output, as in tagging.

    Shape:
        outputs[i]: (T, ..., K), vectors of K numbers.
        column[i]: (T, ...), a label for each vector.
    """
    labels = _examples_of(column, axis)
    return all(
        0 < np.ndim(label) == output.dim() - 1 and np.shape(label) == output.shape[:-1]
        for label, output in zip(labels, outputs)
    )
