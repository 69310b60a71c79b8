"""`TorchModule`: a `torch.nn.Module` with the interface of the other modules."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

from ..base import ArgumentError, StateError
from ..ndarray import NDArray
from ..symbol import Group, Variable, torch_module
from ..symbol.torch_node import held_names, torch_calls
from .arguments import BindArguments
from .lifecycle import Stage, needs
from .module import Module

if TYPE_CHECKING:
    from .types import BatchLike, ContextsLike, LoggerLike


class TorchModule(Module):
    """Trains and runs a torch module, alone or in a `SequentialModule`.

    Parameters and buffers are the module's own memory, on the first context; further contexts have copies, whose
    gradients are summed as for any other module. So the torch module is trained in place by the optimizers of this
    package, and with one context, values written into it (``load_state_dict``) take effect immediately. In
    `get_params` a parameter is called ``<name>_<torch's name>``, with underscores for dots; buffers are auxiliary
    states. Parameters without ``requires_grad`` are not trained.

    Its outputs are not losses: follow it with a module that ends in one, or pass gradients to `backward`.

    Args:
        module: a network in torch, whose parameters are used in place.
        data_names: names of its inputs, in the order of its forward.
        logger: where progress is logged.
        context: a device or a list of them; the first must be the module's own.
        work_load_list: share of the batch for each device; None = equal.
        fixed_param_names: further parameters that are not trained, by their names in `get_params`.
        name: prefix of the names of parameters and outputs; None derives it from the class name.
        num_outputs: number of tensors that the module returns.
        dtypes: type of each input, for modules with inputs other than their own floating type or integers.

    Raises:
        ArgumentError: an argument is invalid, or the module is on another device than the first context.

    Example:
        >>> import torch
        >>> linear = torch.nn.Linear(3, 2)
        >>> mod = mx.mod.TorchModule(linear, name="fc")
        >>> mod.bind([("data", (4, 3))])
        >>> mod.init_params()
        >>> sorted(mod.get_params()[0])
        ['fc_bias', 'fc_weight']
        >>> mod.group.store.array("fc_weight", 0).raw.data_ptr() == linear.weight.data_ptr()
        True
    """

    def __init__(
        self,
        module: torch.nn.Module,
        data_names: Sequence[str] = ("data",),
        logger: LoggerLike = logging,
        context: ContextsLike = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        *,
        name: str | None = None,
        num_outputs: int = 1,
        dtypes: Sequence[Any] | None = None,
    ) -> None:
        inputs = [Variable(one) for one in data_names]
        if not inputs:
            raise ArgumentError("TorchModule: data_names is empty; a module needs an input")
        symbol = Group(torch_module(module, *inputs, name=name, num_outputs=num_outputs, dtypes=dtypes))
        ((node, self._call),) = torch_calls(symbol)
        self._held = held_names(node, self._call)
        frozen = [held for held, slot in self._held if not (slot.trained or slot.is_buffer)]
        fixed = [*frozen, *(one for one in fixed_param_names or () if one not in frozen)]
        super().__init__(symbol, data_names, None, logger, context, work_load_list, fixed)
        self._bound_values: list[tuple[str, NDArray, torch.nn.Module, str]] = []
        self._check_device()

    @property
    def torch_module(self) -> torch.nn.Module:
        """The torch module."""
        return self._call.module

    def _check_device(self) -> None:
        """Raise ArgumentError if the memory of the module is not on the first context."""
        device = self._context[0].torch_device
        for held, slot in self._held:
            actual = self._call.value(slot).device
            if actual != device:
                raise ArgumentError(
                    f"TorchModule: {held} is on {actual}, the first context is {self._context[0]}; "
                    f"move the module with module.to({str(device)!r}), or give another context"
                )

    @override
    def _bind(self, arguments: BindArguments) -> None:
        """Use the parameters of the torch module, made contiguous, instead of allocating them."""
        arguments.refuse_store(self)
        was = self._stage
        self._check_device()
        super()._bind(arguments)
        if arguments.shared_module is not None or (was >= Stage.BOUND and not arguments.force_rebind):
            return
        store, keep = self.group.store, self._stage >= Stage.INITIALIZED
        self._bound_values = []
        for held, slot in self._held:
            owner = self._call.module_tensor(slot)
            if not owner.is_contiguous():
                owner.data = owner.data.contiguous()
            store.place(held, self._call.value(slot), keep)
            array = store.aux(held, 0) if slot.is_buffer else store.array(held, 0)
            part, _, attribute = slot.path.rpartition(".")
            self._bound_values.append((held, array, self.torch_module.get_submodule(part), attribute))

    @needs(Stage.INITIALIZED)
    def forward(self, data_batch: BatchLike, is_train: bool | None = None) -> None:
        self._check_memory()
        super().forward(data_batch, is_train)

    @needs(Stage.INITIALIZED)
    def forward_backward(self, data_batch: BatchLike) -> None:
        raise StateError(
            "TorchModule.forward_backward: the outputs are not losses; call forward() and backward(out_grads), or put "
            "the module into a SequentialModule that ends in a loss"
        )

    def _check_memory(self) -> None:
        """Raise StateError if parameters of the torch module have moved, as by ``module.to(...)``."""
        for held, array, part, attribute in self._bound_values:
            if array.raw.data_ptr() != getattr(part, attribute).data_ptr():
                raise StateError(
                    f"TorchModule: {held} is no longer where it was at bind (module.to(...) moves parameters); "
                    "bind again with force_rebind=True"
                )
