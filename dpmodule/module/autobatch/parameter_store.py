"""Parameters of an autobatch collection in a `ParamStore`, on several contexts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..._devices.generators import generator
from ...autobatch.collection import ParameterCollection
from ...autobatch.session import state
from ...autobatch.storage import ParameterStorage, StateStorage, parameter_attributes
from ...base import ArgumentError
from ...context import Context
from ...ndarray import NDArray
from ...ops.dtypes import name_of
from ...params import ParamStore

if TYPE_CHECKING:
    from ...symbol import Symbol


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
    row_sparse_names: frozenset[str] = frozenset()

    @property
    def arg_names(self) -> list[str]:
        """Names of the parameters, the only arguments."""
        return self.param_names

    @property
    def active(self) -> list[int]:
        """Indices of all contexts."""
        return list(range(len(self.contexts)))


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
        tensor = storage.tensor
        shape, dtype = tuple(tensor.shape), name_of(tensor.dtype)
        is_state = isinstance(storage, StateStorage)
        if is_state:
            self.store.declare_aux(name, shape, dtype)
        else:
            self.store.declare(name, shape, dtype, True)
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
        return CollectionGroup(symbol, self.contexts, names, arrays, grads, num_samples)

    def clear(self) -> None:
        """Set the gradients of the collection to zero."""
        for storage in self.parameters.values():
            storage.clear_gradient()

    def take_gradients(self, i: int, adds: bool) -> None:
        """Move the collection's gradients into the arrays of a context."""
        for name in self.trained:
            target = self.store.grad(name, i)
            if target is None:
                continue
            gradient = self.parameters[name].gradient
            if not adds:
                target.raw.zero_()
            if gradient is not None:
                target.raw.add_(gradient)
        self.clear()

    def no_gradients(self, i: int) -> None:
        """Set the gradients of a context without examples to zero."""
        for name in self.trained:
            target = self.store.grad(name, i)
            if target is not None:
                target.raw.zero_()

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
