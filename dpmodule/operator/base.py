"""The classes that users derive their operators from: `CustomOp` and `CustomOpProp`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import ArgumentError


class CustomOp:
    """An operator written in Python. Subclasses give `forward` and, if it has a gradient, `backward`.

    One instance belongs to one executor (one call of ``nd.Custom``, one step of a loop): what `forward` keeps in
    attributes is there in `backward`.
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
    """What the graph has to know about an operator: its inputs, outputs and shapes. Subclasses are registered.

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
        """Return storage types of inputs, outputs and auxiliary states; where it is not overridden, all are dense.

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
        """Return the operator that does the work.

        Args:
            ctx: the Context it runs on.
            in_shapes: shapes of the inputs and states.
            in_dtypes: MXNet's numbers of their types (0 = float32).
        """
        return CustomOp()
