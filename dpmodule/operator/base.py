"""Base classes of user-defined operators, `CustomOp` and `CustomOpProp`, and `PropCall`.

It asks a property object of the user's with care, and checks every answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import ArgumentError, DTypeError, OpError, Shape, dtype_code, dtype_name, np_dtype
from ..context import Context
from ..ops.shapes import known, unify
from ..ops.spec import AUX, DATA, Input
from ..ops.user_code import user_code


class CustomOp:
    """An operator written in Python. Subclasses implement `forward` and, if it has a gradient, `backward`.

    Each executor (call of ``nd.Custom``, step of a loop) has its own instance, so `backward` can read attributes that
    `forward` has set.
    """

    def forward(
        self, is_train: bool, req: list[str], in_data: list[Any], out_data: list[Any], aux: list[Any]
    ) -> None:
        """Compute the outputs.

        Args:
            req: what to do with each output, for `assign`.
            in_data: the inputs; they are not to be written.
            out_data: arrays to write the outputs into.
            aux: auxiliary states, which may be written.
        """

    def backward(
        self,
        req: list[str],
        out_grad: list[Any],
        in_data: list[Any],
        out_data: list[Any],
        in_grad: list[Any],
        aux: list[Any],
    ) -> None:
        """Compute the gradients of the inputs.

        Args:
            req: what to do with each gradient, for `assign`.
            in_grad: arrays to write the gradients into.
            aux: auxiliary states, which may be written.
        """

    def assign(self, dst: Any, req: str, src: Any) -> None:
        """Write or add values to an array as requested.

        Args:
            dst: the array; not looked at under "null".
            req: "null", "write", "inplace" or "add".
            src: array or number.

        Raises:
            ArgumentError: `req` is none of these.
        """
        if req in ("write", "inplace"):
            dst[:] = src
        elif req == "add":
            dst[:] += src
        elif req != "null":
            raise ArgumentError(f'assign: req is {req!r}, expected "null", "write", "inplace" or "add"')


def _refuse_sparse(stypes: Sequence[str], what: str) -> None:
    for i, stype in enumerate(stypes):
        if stype not in ("default", "undefined"):
            raise ArgumentError(
                f"{what}[{i}] is stored as {stype!r}; implement infer_storage_type and infer_storage_type_backward "
                "to take sparse arrays"
            )


class CustomOpProp:
    """Description of an operator for the graph: its inputs, outputs and shapes. Register subclasses.

    Keyword arguments of ``Custom`` come to the constructor as strings.

    Args:
        need_top_grad: whether `backward` reads the outputs' gradients; a loss does not.
    """

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def list_arguments(self) -> list[str]:
        """Return the names of the inputs; one left out becomes the variable ``<node>_<name>``."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Return the names of the outputs."""
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Return the names of the auxiliary states."""
        return []

    def infer_shape(self, in_shape: list[list[int]]) -> Sequence[Any]:
        """Return shapes of inputs, outputs and, if there are any, auxiliary states.

        Args:
            in_shape: shapes of the inputs as lists; [] where nothing is known, 0 for an unknown dimension.
        """
        return in_shape, (in_shape[0],) * len(self.list_outputs()), ()

    def infer_type(self, in_type: list[Any]) -> Sequence[Any]:
        """Return NumPy types of inputs, outputs and auxiliary states."""
        outputs, states = len(self.list_outputs()), len(self.list_auxiliary_states())
        return in_type, [in_type[0]] * outputs, [in_type[0]] * states

    def infer_storage_type(self, in_stype: list[str]) -> Sequence[Any]:
        """Return storage types of inputs, outputs and auxiliary states; without an override, all are dense.

        `forward` gets arrays of these types, and what it writes into the outputs is returned so.

        Args:
            in_stype: "default", "row_sparse" or "csr" for each input.

        Raises:
            ArgumentError: an input is sparse.
        """
        _refuse_sparse(in_stype, "in_stype")
        return (
            in_stype,
            ["default"] * len(self.list_outputs()),
            ["default"] * len(self.list_auxiliary_states()),
        )

    def infer_storage_type_backward(
        self,
        ograd_stype: list[str],
        in_stype: list[str],
        out_stype: list[str],
        igrad_stype: list[str],
        aux_stype: list[str],
    ) -> Sequence[Any]:
        """Return storage types of five kinds of arrays in the backward pass, in the order of the arguments.

        `backward` gets gradients of outputs and inputs of these types; the other three are stored as in `forward`.

        Args:
            ograd_stype: gradients of the outputs, all "default".
            igrad_stype: gradients of the inputs, all "undefined".

        Raises:
            ArgumentError: a gradient is sparse.
        """
        _refuse_sparse(ograd_stype, "ograd_stype")
        _refuse_sparse(igrad_stype, "igrad_stype")
        found = [["default"] * len(s) for s in (ograd_stype, in_stype, out_stype, igrad_stype, aux_stype)]
        return tuple(found)

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        """Return the numbers of the arrays that `backward` reads.

        Args:
            out_grad: numbers of the outputs' gradients.
        """
        return [*(out_grad if self.need_top_grad_ else ()), *in_data, *out_data]

    def create_operator(self, ctx: Any, in_shapes: list[list[int]], in_dtypes: list[int]) -> CustomOp:
        """Return the operator that computes the outputs.

        Args:
            ctx: the Context it runs on.
            in_shapes: shapes of the inputs and states.
            in_dtypes: MXNet's numbers of their types (0 = float32).
        """
        return CustomOp()


Stypes = tuple[str, ...]
_DENSE = "default"


@dataclass(frozen=True, slots=True)
class CreatedOperator:
    """An operator created for certain input shapes and types.

    Attributes:
        shapes: shapes of the outputs.
        dtypes: dtype names of the outputs.
    """

    op: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


class PropCall:
    """Parsed attributes of a node: a property object, and a function that creates an equal one.

    Args:
        key: equal keys mean the same class and the same attributes.
    """

    def __init__(self, label: str, key: str, make: Callable[[], Any], attributes: dict[str, str]) -> None:
        self.label = label
        self._key = key
        self._make = make
        self.attributes = attributes
        self._is_used = False
        with user_code():
            self.prop = make()
        self.arguments = self._names("list_arguments")
        self.outputs = self._names("list_outputs")
        self.states = self._names("list_auxiliary_states")
        if not self.outputs:
            raise OpError(f"{label}: list_outputs returned no names; an operator has at least one output")

    def __repr__(self) -> str:
        return self._key

    def __getattr__(self, name: str) -> str:
        attributes: dict[str, str] = self.__dict__.get("attributes", {})
        if name not in attributes:
            raise AttributeError(name)
        return attributes[name]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The node's inputs: arguments, then auxiliary states."""
        return (*(Input(n, DATA) for n in self.arguments), *(Input(n, AUX) for n in self.states))

    @property
    def reads_out_grad(self) -> bool:
        """True if backward reads the gradient of an output."""
        counts = len(self.outputs), len(self.arguments), len(self.outputs)
        starts = (0, counts[0], counts[0] + counts[1])
        numbers = [list(range(s, s + n)) for s, n in zip(starts, counts)]
        with user_code():
            found = self.prop.declare_backward_dependency(*numbers)
        return any(number < counts[0] for number in found)

    def _names(self, method: str) -> tuple[str, ...]:
        with user_code():
            found = getattr(self.prop, method)()
        names = list(found) if isinstance(found, (list, tuple)) else None
        if names is None or not all(isinstance(n, str) for n in names) or len(set(names)) < len(names):
            raise OpError(f"{self.label}: {method} returned {found!r}, expected a list of different names")
        return tuple(names)

    def _parts(self, method: str, found: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Check the two or three lists that a method returned."""
        if not isinstance(found, (list, tuple)) or len(found) not in (2, 3):
            raise OpError(f"{self.label}: {method} returned {found!r}, expected two or three lists")
        lists = [*found, ()][:3]
        wanted = (("input", self.arguments), ("output", self.outputs), ("auxiliary state", self.states))
        for one, (what, names) in zip(lists, wanted):
            if not isinstance(one, (list, tuple)) or len(one) != len(names):
                raise OpError(
                    f"{self.label}: {method} returned {one!r} for the {what}s, expected {len(names)} entries"
                    + (f" ({', '.join(names)})" if names else "")
                )
        return list(lists[0]), list(lists[1]), list(lists[2])

    def _shape(self, method: str, value: Any) -> Shape:
        try:
            dims = tuple(int(d) for d in value)
        except (TypeError, ValueError):
            dims = (-1,)
        if any(d < 0 for d in dims):
            raise OpError(f"{self.label}: {method} returned the shape {value!r}, expected integers from 0")
        return dims or None

    # inference

    def infer_shape(self, ins: list[Shape], outs: list[Shape]) -> tuple[list[Shape], list[Shape]]:
        """Infer shapes of all inputs (states too) and outputs."""
        count = len(self.arguments)
        if count and not known(ins[0]):
            return ins, outs
        return self._shapes(self.prop, ins, outs)

    def _shapes(
        self, prop: Any, ins: Sequence[Shape], outs: Sequence[Shape]
    ) -> tuple[list[Shape], list[Shape]]:
        given = [list(s or ()) for s in ins[: len(self.arguments)]]
        with user_code():
            found = prop.infer_shape(given)
        arguments, outputs, states = self._parts("infer_shape", found)
        inner = [self._shape("infer_shape", s) for s in (*arguments, *states)]
        names = (*self.arguments, *self.states)
        merged = [
            unify(i, s, f"{n}: known shape and the one that infer_shape returned")
            for n, i, s in zip(names, ins, inner)
        ]
        shapes = [
            unify(
                o, self._shape("infer_shape", s), f"{n}: required shape and the one that infer_shape returned"
            )
            for n, o, s in zip(self.outputs, outs, outputs)
        ]
        return merged, shapes

    def infer_type(
        self, ins: list[str | None], outs: list[str | None]
    ) -> tuple[list[str | None], list[str | None]]:
        """Infer dtype names of all inputs and outputs; the class gets None for unknown ones, as in MXNet."""
        given = ins[: len(self.arguments)]
        if None not in given:
            return self._types(self.prop, ins)
        if not any(given):
            return ins, outs
        try:
            return self._types(self.prop, ins)
        except Exception:  # it may need the other types
            return ins, outs

    def _types(self, prop: Any, ins: Sequence[str | None]) -> tuple[list[str | None], list[str | None]]:
        with user_code():
            found = prop.infer_type([t and np_dtype(t) for t in ins[: len(self.arguments)]])
        arguments, outputs, states = self._parts("infer_type", found)
        try:
            names = [
                [None if t is None else dtype_name(t) for t in part] for part in (arguments, states, outputs)
            ]
            return names[0] + names[1], names[2]
        except DTypeError as error:
            raise OpError(f"{self.label}: infer_type returned {found!r}: {error}") from None

    # storage types

    @property
    def infers_storage(self) -> bool:
        """True if the class infers storage types, so that arrays may be sparse."""
        return self._overrides("infer_storage_type") or self._overrides("infer_storage_type_backward")

    def _overrides(self, method: str) -> bool:
        own = getattr(type(self.prop), method, None)
        return own is not None and own is not getattr(CustomOpProp, method)

    def required_storage(self, stypes: Sequence[str]) -> tuple[Stypes, Stypes]:
        """Return the required storage types of the inputs, and those of the outputs."""
        count = len(self.arguments)
        with user_code():
            ask = getattr(self.prop, "infer_storage_type", CustomOpProp().infer_storage_type)
            found = ask(list(stypes[:count]))
        arguments, outputs, states = self._parts("infer_storage_type", found)
        return tuple(map(self._stype, (*arguments, *states))), tuple(map(self._stype, outputs))

    def infer_storage(self, stypes: Sequence[str]) -> Stypes:
        """Return the storage types of the outputs."""
        inputs, outputs = self.required_storage(stypes)
        for name, said, given in zip((*self.arguments, *self.states), inputs, stypes, strict=True):
            if said != given:
                raise OpError(
                    f"{self.label}: infer_storage_type declares {name} as {said!r}, but it is "
                    f"{given!r}; convert it before with tostype or cast_storage, or declare its variable with stype"
                )
        return outputs

    def infer_storage_backward(self, stypes: Sequence[str], outputs: Sequence[str]) -> tuple[Stypes, Stypes]:
        """Return the storage types of the outputs' gradients and of the arguments' gradients."""
        count = len(self.arguments)
        if not self._overrides("infer_storage_type_backward"):
            return (_DENSE,) * len(outputs), (_DENSE,) * count
        storage_types = (
            [_DENSE] * len(outputs),
            list(stypes[:count]),
            list(outputs),
            ["undefined"] * count,  # as in MXNet's executors
            list(stypes[count:]),
        )
        lengths = [len(part) for part in storage_types]
        with user_code():
            answer = self.prop.infer_storage_type_backward(*storage_types)
        if not isinstance(answer, (list, tuple)) or [len(part) for part in answer] != lengths:
            raise OpError(
                f"{self.label}: infer_storage_type_backward returned {answer!r}, expected five lists, for the outputs' "
                f"gradients, inputs, outputs, inputs' gradients and states, of the lengths {lengths}"
            )
        return tuple(map(self._stype, answer[0])), tuple(map(self._stype, answer[3]))

    def _stype(self, value: Any) -> str:
        if value not in ("default", "row_sparse", "csr", "undefined"):
            raise OpError(
                f"{self.label}: infer_storage_type returned {value!r}, expected 'default', 'row_sparse' or 'csr'"
            )
        return _DENSE if value == "undefined" else str(value)

    # creation

    def create(
        self, ctx: Context, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]
    ) -> CreatedOperator:
        """Create an operator for inputs and states of certain shapes and types.

        Each operator has a property object of its own, so that what that remembers of its shapes stays true.
        """
        with user_code():
            prop = self._make() if self._is_used else self.prop
        self._is_used = True
        _, outs = self._shapes(prop, list(shapes), [None] * len(self.outputs))
        if not all(map(known, outs)):
            raise OpError(
                f"{self.label}: infer_shape returned {outs} for the outputs of inputs {list(shapes)}"
            )
        _, types = self._types(prop, list(dtypes))
        with user_code():
            made = prop.create_operator(ctx, [list(s) for s in shapes], [dtype_code(t) for t in dtypes])
        if not (isinstance(made, CustomOp) or hasattr(made, "forward") and hasattr(made, "backward")):
            raise OpError(f"{self.label}: create_operator returned {made!r}, expected a CustomOp")
        return CreatedOperator(made, tuple(s or () for s in outs), tuple(t or "float32" for t in types))
