"""Torch modules as nodes of a symbol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base import ArgumentError, dtype_name
from ..graph import Node
from ..ops.torch_call import TorchCall, TorchSlot
from .compose import apply_op
from .symbol import Symbol

if TYPE_CHECKING:
    import torch


def torch_module(
    module: torch.nn.Module,
    *inputs: Symbol,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    num_outputs: int = 1,
    dtypes: Sequence[Any] | None = None,
    **kwargs: Any,
) -> Symbol:
    """Apply a `torch.nn.Module` to symbols.

    Its parameters become arguments ``<name>_<parameter>`` (dots turned into underscores) and its buffers auxiliary
    states of the bound symbol. `Module.init_params` initializes them with the module's values; the module's own
    parameters are not changed (see `write_back`, and `mod.TorchModule` for shared parameters). Parameters without
    ``requires_grad`` get learning rate and weight decay 0; of the others, weights are decayed, as usual. In training
    the module runs in training mode and draws random numbers from the context's generator.

    Such a symbol can be bound, composed and copied, but not saved to a file.

    Args:
        module: the module; its forward takes one tensor for each input.
        inputs: symbols; without any, a variable ``<name>_data`` is created.
        name: name of the node; by default the class's name and a number.
        num_outputs: number of tensors that the module returns.
        dtypes: type of each input, if it is neither the module's floating-point type nor integer.
        kwargs: further attributes of the form ``__x__``.

    Raises:
        ArgumentError: `module` is not a torch module, or has parameters without shape.
        OpError: an input is not a symbol with one output.

    Example:
        >>> import torch
        >>> net = mx.sym.torch_module(torch.nn.Linear(3, 2), mx.sym.Variable("data"), name="fc")
        >>> net.list_arguments()
        ['data', 'fc_weight', 'fc_bias']
        >>> net.infer_shape(data=(4, 3))[1]
        [(4, 2)]
    """
    types = None if dtypes is None else [dtype_name(d) for d in dtypes]
    call = TorchCall(module, max(len(inputs), 1), num_outputs, types)
    node = apply_op(call.op, call.kind, inputs, kwargs, name, attr)
    for slot, (child, _) in zip(call.parameters, node.inputs[len(call.input_names) :]):
        if not slot.trained:
            child.attrs.update({"__lr_mult__": "0.0", "__wd_mult__": "0.0"})
        elif slot.path.rpartition(".")[2].startswith("weight") and not slot.name.endswith("weight"):
            child.attrs["__wd_mult__"] = (
                "1.0"  # such as weight_ih_l0, which MXNet's rule by names would not decay
            )
    return Symbol((node, i) for i in range(node.num_outputs))


def torch_calls(symbol: Symbol) -> list[tuple[Node, TorchCall]]:
    """Return the nodes of a symbol that run torch modules, with the modules."""
    return [
        (n, n.op.owner) for n in symbol.graph.nodes if n.op is not None and isinstance(n.op.owner, TorchCall)
    ]


def write_back(
    symbol: Symbol, arg_params: Mapping[str, Any], aux_params: Mapping[str, Any] | None = None
) -> None:
    """Copy trained parameters and states into the torch modules of a symbol.

    Args:
        symbol: a symbol with nodes of `torch_module`.
        arg_params: arrays by name, as returned by `Module.get_params`; other names are ignored.
        aux_params: the same for states.

    Raises:
        ArgumentError: a module's parameter is missing.
    """
    values = {**arg_params, **(aux_params or {})}
    for node, call in torch_calls(symbol):
        for name, slot in held_names(node, call):
            if name not in values:
                raise ArgumentError(
                    f"write_back: there is no value for {name}, which is {slot.path} of {call.kind}"
                )
            call.value(slot).copy_(values[name].raw)


def held_names(node: Node, call: TorchCall) -> list[tuple[str, TorchSlot]]:
    """Return the names of the variables of a torch module's parameters and buffers, with these."""
    slots = (*call.parameters, *call.buffers)
    return [(child.name, slot) for (child, _), slot in zip(node.inputs[len(call.input_names) :], slots)]
