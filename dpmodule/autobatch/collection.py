"""Collections of parameters, which may be nested."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from ..base import OutOfMemoryError
from ..kvstore.base import has_other_processes
from . import text_format
from .arguments import number_from, single_line_text, sizes_of, text
from .errors import ArgumentError, ShapeError, user_line, wrong_type
from .initializers import InitialTable, NumpyInitializer, initializer_of
from .parameters import LookupParameters, Parameters
from .session import state
from .storage import LookupStorage, ParameterStorage, shape_of


class ParameterCollection:
    """A group of parameters that a trainer updates and a file stores.

    Unnamed parameters are called "/_0", "/_1", ...; a duplicate name gets the suffix "_1", "_2", ....

    Example:
        >>> import dpmodule.autobatch as dy
        >>> m = dy.ParameterCollection()
        >>> m.add_parameters((3, 2)).name(), m.add_subcollection("top").add_parameters(4, name="b").name()
        ('/_0', '/top/b')

    Source: DyNet's `ParameterCollection`, its names and its files.
    """

    def __init__(self) -> None:
        self._name = "/"
        self._parents: tuple[ParameterCollection, ...] = ()
        self._parameters: list[Parameters] = []
        self._lookups: list[LookupParameters] = []
        self._taken: dict[str, int] = {}
        self._unnamed = self._unnamed_children = 0
        self._weight_decay = state.weight_decay

    def name(self) -> str:
        """Return the name, which ends in "/"."""
        return self._name

    def __repr__(self) -> str:
        return f"ParameterCollection {self._name} ({len(self._parameters)} parameters, {len(self._lookups)} lookups)"

    def _free_name(self, name: str | None, of_parameter: bool) -> str:
        if name is not None and ("/" in single_line_text(name, "name") or name.startswith("_")):
            raise ArgumentError(
                f"name {name!r}: Parameter name could not include '/' and '_' at its beginning (at {user_line()})"
            )
        if not name:
            if of_parameter:
                self._unnamed += 1
                return f"{self._name}_{self._unnamed - 1}"
            self._unnamed_children += 1
            return f"{self._name}_{self._unnamed_children - 1}"
        count = self._taken.get(name, 0)
        self._taken[name] = count + 1
        return f"{self._name}{name}_{count}" if count else f"{self._name}{name}"

    def add_subcollection(self, name: str | None = None) -> ParameterCollection:
        """Return a new collection whose parameters also belong to this one.

        Args:
            name: name within this collection; "_0", "_1", ... by default.

        Raises:
            ArgumentError: the name contains "/" or begins with "_".
        """
        child = ParameterCollection()  # a subclass may require arguments
        child._name = self._free_name(name, of_parameter=False) + "/"
        child._parents = (*self._parents, self)
        child._weight_decay = self._weight_decay
        return child

    def add_parameters(
        self,
        dim: int | Sequence[int],
        init: Any = None,
        name: str = "",
        device: str = "",
        scale: float = 1.0,
        mean: float = 0.0,
        std: float = 1.0,
    ) -> Parameters:
        """Add a parameter.

        Shape:
            returns: `dim`.

        Args:
            dim: the shape, or the size of a vector.
            init: initial values: an initializer, a number, an array or a name, see `initializers.initializer_of`;
                Glorot by default.
            device: ignored; `configure` chooses the device.
            scale: for "uniform", "glorot" and "saxe".
            mean: for "normal".
            std: for "normal".

        Raises:
            ShapeError: `init` is an array with the wrong shape.
            ArgumentError: `init` or `name` is invalid.
            FileError: the file named by `init` cannot be read.
        """
        shape = _shape_of(dim)
        tensor = _empty(shape)
        with torch.no_grad():
            initializer_of(init, shape, scale, mean, std).fill(tensor, state.options.generator)
        return self._adopt(tensor, name)

    def add_lookup_parameters(
        self,
        dim: Sequence[int],
        init: Any = None,
        name: str = "",
        device: str = "",
        scale: float = 1.0,
        mean: float = 0.0,
        std: float = 1.0,
    ) -> LookupParameters:
        """Add a lookup table.

        Shape:
            returns: `dim`, (rows, *d).

        Args:
            dim: number of rows, then the shape of a row.
            init: see `add_parameters`; an array may have more or fewer rows, as in DyNet.
            name: see `add_parameters`.
            device: see `add_parameters`.
            scale: see `add_parameters`.
            mean: see `add_parameters`.
            std: see `add_parameters`.

        Raises:
            ArgumentError: `init` or `name` is invalid.
            ShapeError: the rows of the array `init` have the wrong shape.
            FileError: the file named by `init` cannot be read.
        """
        shape = _shape_of(dim)
        if isinstance(init, np.ndarray) and init.ndim == len(shape) and init.shape[1:] == shape[1:]:
            shape = _shape_of(init.shape)
        tensor = _empty(shape)
        initial = InitialTable(initializer_of(init, shape, scale, mean, std), tensor, state.options.generator)
        if initial.has_parts and has_other_processes():  # which may keep most of the rows
            return self._adopt_lookup(tensor, name, initial)
        with torch.no_grad():
            initial.fill(tensor)
        return self._adopt_lookup(tensor, name)

    def parameters_from_numpy(self, array: ArrayLike, name: str = "", device: str = "") -> Parameters:
        """Add a parameter with the shape and values of an array.

        Shape:
            array, returns: (*d).

        Args:
            array: numbers of any type; copied and converted to the graph's dtype.
            device: see `add_parameters`.

        Raises:
            ForeignValueError: `array` contains anything but numbers.
            ArgumentError: the name is invalid.
        """
        init = NumpyInitializer(array)
        return self.add_parameters(init.array.shape, init, name, device)

    def lookup_parameters_from_numpy(
        self, array: ArrayLike, name: str = "", device: str = ""
    ) -> LookupParameters:
        """Add a lookup table with the shape and values of an array; see `parameters_from_numpy`.

        Args:
            array: numbers of any type; copied and converted to the graph's dtype.
            device: see `add_parameters`.

        Shape:
            array, returns: (rows, *d).

        Raises:
            ForeignValueError: `array` contains anything but numbers.
        """
        init = NumpyInitializer(array)
        return self.add_lookup_parameters(init.array.shape, init, name, device)

    def parameter_from_tensor(self, tensor: torch.Tensor, name: str = "") -> Parameters:
        """Add a parameter that shares the memory of a tensor, which sees all updates.

        Shape:
            tensor, returns: (*d).

        Args:
            tensor: contiguous, with the graph's dtype; a 0-d tensor becomes a vector of one element.

        Raises:
            ArgumentError: `tensor` is not contiguous.
            DTypeError: its dtype is not floating point.
            ForeignValueError: it is not a tensor.
            ShapeError: it has no elements.
        """
        return self._adopt(_dense(tensor, self._name, name), name)

    def lookup_parameter_from_tensor(self, tensor: torch.Tensor, name: str = "") -> LookupParameters:
        """Add a lookup table that shares the memory of a tensor; see `parameter_from_tensor`.

        Args:
            tensor: contiguous, with the graph's dtype; a 0-d tensor becomes a vector of one element.

        Shape:
            tensor, returns: (rows, *d).

        Raises:
            ArgumentError: `tensor` is not contiguous.
        """
        return self._adopt_lookup(_dense(tensor, self._name, name), name)

    def _adopt(self, tensor: torch.Tensor, name: str) -> Parameters:
        found = Parameters(ParameterStorage(self._free_name(name, of_parameter=True), tensor))
        for each in (*self._parents, self):
            each._parameters.append(found)
        return found

    def _adopt_lookup(
        self, tensor: torch.Tensor, name: str, initial: InitialTable | None = None
    ) -> LookupParameters:
        found = LookupParameters(LookupStorage(self._free_name(name, of_parameter=True), tensor, initial))
        for each in (*self._parents, self):
            each._lookups.append(found)
        return found

    def parameters_list(self) -> list[Parameters]:
        """Return all parameters, including those of subcollections, in order of creation.

        Shape:
            returns: each (*d).
        """
        return list(self._parameters)

    def lookup_parameters_list(self) -> list[LookupParameters]:
        """Return all lookup tables, including those of subcollections, in order of creation.

        Shape:
            returns: each (rows, *d).
        """
        return list(self._lookups)

    def parameter_count(self) -> int:
        """Return the number of elements of all parameters and tables."""
        return sum(math.prod(each.shape()) for each in (*self._parameters, *self._lookups))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the memory of all parameters by name.

        Shape:
            returns: (*d) for a parameter, (rows, *d) for a table.
        """
        return {each.name(): each.tensor for each in (*self._parameters, *self._lookups)}

    def set_weight_decay(self, lam: float) -> None:
        """Multiply all updated parameters by 1 - `lam` with every update.

        Args:
            lam: weight decay; 0 for none.

        Raises:
            ArgumentError: it is negative or NaN.
            ForeignValueError: it is not a number.
        """
        for each in (*self._parents[:1], self):
            each._weight_decay = number_from(lam, 0.0, "set_weight_decay: lam")

    set_weight_decay_lambda = set_weight_decay

    def get_weight_decay(self) -> float:
        """Return the weight decay coefficient."""
        return (self._parents[0] if self._parents else self)._weight_decay

    def save(self, fname: str, name: str = "", append: bool = False) -> None:
        """Write all values to a text file that DyNet can read.

        Args:
            name: prefix of all names, such as "/encoder".
            append: append to the file; by default it is replaced atomically.

        Raises:
            FileError: the file cannot be written.
            ArgumentError: `name` does not fit in one line.
            ForeignValueError: an argument has the wrong type.

        Source: DyNet's text format; see `text_format`.
        """
        text_format.save_collection(self, fname, name, append)

    def populate(self, fname: str, key: str = "") -> None:
        """Read all values, in order, from a file written by `save`, here or in DyNet.

        Args:
            key: read only entries below this name.

        Raises:
            FileError: the file cannot be read.
            FileFormatError: its parameters differ from those of the collection.

        Source: DyNet's text format; see `text_format`.
        """
        state.graph.settle()
        text_format.populate_collection(self, fname, key)

    def write_to_textfile(self, fname: str, key: str = "", append: bool = False) -> None:
        """Same as `save`.

        Args:
            key: prefix of all names, such as "/encoder".
            append: append to the file; by default it is replaced atomically.
        """
        self.save(fname, key, append)

    def populate_from_textfile(self, fname: str, key: str = "") -> None:
        """Same as `populate`.

        Args:
            key: read only entries below this name.
        """
        self.populate(fname, key)

    def load_param(self, fname: str, key: str) -> Parameters:
        """Add a parameter read from a file.

        Shape:
            returns: the shape in the file.

        Args:
            key: full name in the file, such as "/encoder/W".

        Raises:
            FileError: the file cannot be read.
            FileFormatError: the name is missing, or the file is damaged.

        Source: DyNet's text format; see `text_format`.
        """
        entry = text_format.find(fname, text(key, "key"), is_lookup=False)
        found = self.parameters_from_numpy(entry.array)
        text_format.fill(found.storage, entry, fname)
        return found

    def load_lookup_param(self, fname: str, key: str) -> LookupParameters:
        """Add a lookup table read from a file; see `load_param`.

        Args:
            key: full name in the file, such as "/encoder/W".

        Shape:
            returns: (rows, *d), the shape in the file.

        Raises:
            FileError: the file cannot be read.
            FileFormatError: the name is missing, or the file is damaged.
        """
        entry = text_format.find(fname, text(key, "key"), is_lookup=True)
        found = self.lookup_parameters_from_numpy(entry.array)
        text_format.fill(found.storage, entry, fname)
        return found

    def load_tensors(self, values: Mapping[str, torch.Tensor]) -> None:
        """Copy tensors by name into the parameters.

        Shape:
            values: as `tensors` returns them.

        Args:
            values: as returned by `tensors`; other names are ignored.

        Raises:
            ArgumentError: a name is missing.
            ForeignValueError: `values` is not a dict.
            ShapeError: a shape differs.
        """
        state.graph.settle()
        if not isinstance(values, Mapping):
            raise wrong_type("load_tensors", values, "is not a dict from names to tensors")
        for name, tensor in self.tensors().items():
            if name not in values:
                raise ArgumentError(f"no value for {name}; the values are {', '.join(sorted(values))}")
            if values[name].shape != tensor.shape:
                raise ShapeError(f"{name}: {tuple(values[name].shape)} given, expected {tuple(tensor.shape)}")
            tensor.copy_(values[name])

    def reset_gradient(self) -> None:
        """Set all gradients to zero."""
        for each in (*self._parameters, *self._lookups):
            each.storage.clear_gradient()


Model = ParameterCollection
"""DyNet's old name of `ParameterCollection`."""


class ExistingParameters(ParameterCollection):
    """A collection of existing parameters, for trainers."""

    def add_existing(self, parameter: Parameters) -> None:
        """Add a parameter or a state under its own name."""
        self._parameters.append(parameter)

    def replace_parameters(self, parameters: Sequence[Parameters]) -> None:
        """Replace all parameters."""
        self._parameters[:] = parameters


def find(collection: ParameterCollection, name: str) -> Parameters | None:
    """Return the parameter with a name within a collection, or None.

    A lookup table is returned as a parameter that shares its memory.

    Shape:
        returns: (*d), or (rows, *d) for a table.
    """
    full_name = f"{collection.name()}{name}"
    found = next((each for each in collection.parameters_list() if each.name() == full_name), None)
    if found is None:
        tables = (each.storage for each in collection.lookup_parameters_list() if each.name() == full_name)
        found = next(map(Parameters, tables), None)
    return found


def as_collection(value: Any, what: str) -> ParameterCollection:
    """Return the argument `what` if it is a collection."""
    if isinstance(value, ParameterCollection):
        return value
    raise wrong_type(what, value, "is not a ParameterCollection; create one with ParameterCollection()")


def _shape_of(dim: int | Sequence[int]) -> tuple[int, ...]:
    shape = sizes_of(dim)
    if not shape:
        raise ShapeError(f"dim is {dim!r}, expected a positive size or a tuple of them (at {user_line()})")
    return shape


def _empty(shape: tuple[int, ...]) -> torch.Tensor:
    try:
        return torch.empty(shape, dtype=state.options.dtype, device=state.options.device)
    except RuntimeError as error:
        raise OutOfMemoryError.of(f"a parameter of shape {shape} (at {user_line()})", error) from error


def _dense(tensor: torch.Tensor, folder: str, name: str) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise wrong_type("", tensor, "is not a torch tensor; use parameters_from_numpy for arrays")
    if not tensor.is_contiguous():
        raise ArgumentError(
            f"tensor: it is not contiguous (shape {tuple(tensor.shape)}, strides {tensor.stride()});"
            " pass tensor.contiguous()"
        )
    shape = shape_of(f"{folder}{name or '(unnamed)'}", tensor)  # an invalid tensor must not use up a name
    return tensor.detach().view(shape or (1,))
