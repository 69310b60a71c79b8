"""`SequentialModule`: a chain of modules, each fed with the outputs of the one before."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

from .._core import lazy
from .._core.overrides import overrides
from ..base import ArgumentError, DTypeError, MXNetError, ShapeError, StateError
from ..io import DataBatch, DataDesc
from ..ndarray import NDArray
from ..ndarray.sparse_base import clear
from .arguments import BindArguments, OptimizerArguments, ParamArguments
from .base_module import BaseModule
from .class_labels import network_inputs
from .fit import show_metric
from .group.batch_splitter import is_per_context
from .group.input_order import names_bound, order_of
from .lifecycle import Stage, needs
from .updates import Updates

if TYPE_CHECKING:
    from ..metric import EvalMetric
    from .class_labels import NetworkInputs
    from .types import BatchLike, DynamicAxes, Labels, LoggerLike, MonitorLike, OutGrads, PathLike


def description_of(module: BaseModule) -> str:
    """Return a module's class and outputs."""
    return f"{type(module).__name__} {', '.join(module.output_names)}".rstrip()


def label_of(number: int, module: BaseModule) -> str:
    """Return the name of a module for messages: its position, class and outputs."""
    return f"module {number} ({description_of(module)})"


def shapes_text(shapes: Sequence[Any]) -> str:
    """Return names and shapes as text."""
    return ", ".join(f"{d[0]} {tuple(d[1])}" for d in shapes)


def with_message(error: MXNetError, text: str) -> MXNetError:
    """Return an error with more text and the type of another one."""
    kinds = (ShapeError, DTypeError, ArgumentError, StateError)
    return next((kind for kind in kinds if isinstance(error, kind)), MXNetError)(text)


def with_data(batch: Any, data: list[NDArray], bound: Sequence[Any]) -> Any:
    """Return a copy of a batch with other data, described by the names of the module that reads it.

    Shape:
        data[i]: the shape of `bound[i]`, with any number of samples.
    """
    if isinstance(batch, tuple):
        batch = DataBatch(None, getattr(batch, "label", None), getattr(batch, "pad", None))
    copied = copy.copy(batch)
    copied.data = data
    copied.provide_data = [
        DataDesc(
            d[0],
            array.shape,
            getattr(d, "dtype", array.dtype),
            getattr(d, "layout", "NCHW"),
            "ragged" if array.stype == "ragged" else "default",
        )
        for d, array in zip(bound, data)
    ]
    return copied


def clear_input_grads(module: BaseModule) -> None:
    """Set the gradients of a module's inputs to zero, so that they hold one backward's only."""
    for parts in module.get_input_grads(merge_multi_context=False):
        for part in parts:
            if part is not None:
                clear(part)


def mismatch(modules: Sequence[BaseModule], number: int, shapes: Sequence[Any]) -> str:
    """Describe the place where a module does not fit what comes before it."""
    before = f"{label_of(number - 1, modules[number - 1])} gives" if number else "bind was given"
    return f"SequentialModule: {label_of(number, modules[number])} does not take what {before}, {shapes_text(shapes)}"


def renamed_by_position(modules: Sequence[BaseModule], number: int, shapes: Sequence[Any]) -> list[Any]:
    """Give shapes the names of a module's inputs, by position."""
    names = modules[number].data_names
    if len(names) != len(shapes):
        raise ArgumentError(
            f"{mismatch(modules, number, shapes)}: it has {len(names)} inputs, {', '.join(names)}"
        )
    return [
        d._replace(name=name) if isinstance(d, DataDesc) else (name, d[1]) for name, d in zip(names, shapes)
    ]


def check_bound(
    modules: Sequence[BaseModule],
    number: int,
    shapes: Sequence[Any],
    labels: Sequence[Any] | None,
    needs_grad: bool,
) -> None:
    """Refuse a module that ignored `bind`, because it had been bound before the chain was.

    Args:
        needs_grad: True if it was bound before and the chain needs gradients of its inputs.
    """
    module = modules[number]
    bound = [(d[0], tuple(d[1])) for d in module.data_shapes]
    if bound != [(d[0], tuple(d[1])) for d in shapes]:
        raise StateError(
            f"{mismatch(modules, number, shapes)}: it was bound before, to {shapes_text(bound)}; "
            "bind the chain with force_rebind=True"
        )
    if labels and order_of(labels, names_bound(module, "label"), "label") is not None:
        raise StateError(
            f"SequentialModule: {label_of(number, module)} was bound before, to labels in another order than "
            f"{shapes_text(labels)}; bind the chain with force_rebind=True"
        )
    if needs_grad and not module.inputs_need_grad:
        raise StateError(
            f"SequentialModule: {label_of(number, module)} was bound before, without inputs_need_grad=True, "
            "which a chain needs; bind the chain with force_rebind=True"
        )


__all__ = ["SequentialModule"]

lazy.publish(__name__, __all__)


class SequentialModule(BaseModule):
    """Chains modules of any kind: symbolic, PyTorch's, written in Python, bucketing, or chains again.

    Args:
        logger: where progress is logged.

    Example:
        >>> body = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="body")
        >>> head = mx.sym.SoftmaxOutput(mx.sym.Variable("scores"), name="softmax")
        >>> chain = mx.mod.SequentialModule()
        >>> chain = chain.add(mx.mod.Module(body, label_names=None))
        >>> chain = chain.add(mx.mod.Module(head, data_names=["scores"]), take_labels=True, auto_wiring=True)
        >>> chain.bind([("data", (4, 3))], [("softmax_label", (4,))])
        >>> chain.output_shapes
        [('softmax_output', (4, 8))]

    Source: MXNet 1.9.1 `SequentialModule`. Under ``grad_req="add"`` gradients between modules do not add up here.
    """

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: LoggerLike = logging) -> None:
        super().__init__(logger)
        self._modules: list[BaseModule] = []
        self._metas: list[Mapping[str, Any]] = []
        self._label_shapes: Any = None
        self._grad_req: Any = "write"

    def add(self, module: BaseModule, **kwargs: Any) -> SequentialModule:
        """Put a module at the end of the chain, which has to be bound and initialized again.

        Args:
            module: what gets the outputs of the last one.
            kwargs: ``take_labels=True`` if it gets the batch's labels and is measured by metrics (several modules
                may); ``auto_wiring=True`` to feed it by position, whatever the names of the outputs before it.

        Returns:
            the chain, so that calls can be strung together.

        Raises:
            ArgumentError: `module` is not a module or already in the chain, or an option is unknown.
        """
        if not isinstance(module, BaseModule):
            raise ArgumentError(f"add: module is {module!r}, expected a module")
        if any(module is other for other in self._modules):
            raise ArgumentError(
                f"add: {description_of(module)} is in the chain already; make another module of its symbol"
            )
        known = (self.META_TAKE_LABELS, self.META_AUTO_WIRING)
        for key in kwargs:
            if key not in known:
                raise ArgumentError(f"add: unknown option {key!r}, expected {' or '.join(known)}")
        self._modules.append(module)
        self._metas.append(kwargs)
        for step in (Stage.BOUND, Stage.INITIALIZED, Stage.READY):
            self._mark(step, False)
        return self

    # properties

    @property
    def modules(self) -> tuple[BaseModule, ...]:
        """The modules, in order."""
        return tuple(self._modules)

    @property
    @override
    def data_names(self) -> list[str]:
        return self._modules[0].data_names if self._modules else []

    @property
    def label_names(self) -> list[str]:
        """Names of the labels that the first module which takes labels knows them by."""
        return next((list(getattr(module, "label_names", None) or ()) for module in self._labelled()), [])

    @property
    @override
    def matches_by_name(self) -> bool:
        return all(module.matches_by_name for module in (*self._modules[:1], *self._labelled()))

    @property
    @override
    def output_names(self) -> list[str]:
        return self._modules[-1].output_names if self._modules else []

    @property
    @needs(Stage.BOUND)
    def data_shapes(self) -> Any:
        return self._modules[0].data_shapes

    @property
    @needs(Stage.BOUND)
    def label_shapes(self) -> Any:
        return self._label_shapes

    @property
    @needs(Stage.BOUND)
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._modules[-1].output_shapes

    def _labelled(self) -> list[BaseModule]:
        """Return the modules that take labels."""
        return [m for m, meta in zip(self._modules, self._metas) if meta.get(self.META_TAKE_LABELS)]

    # binding

    @override
    def _bind(self, arguments: BindArguments) -> None:
        """Bind every module to what the one before it gives."""
        if self._stays_bound(arguments):
            return
        arguments.refuse_store(self)
        label_shapes, for_training = arguments.label_shapes, arguments.for_training
        if arguments.shared_module is not None:
            raise ArgumentError(
                "bind: a SequentialModule cannot share memory with another module (shared_module)"
            )
        if not self._modules:
            raise StateError("SequentialModule.bind: the chain is empty; call add(module) first")
        if is_per_context(arguments.data_shapes):
            raise ArgumentError(
                "bind: a SequentialModule takes shapes of whole batches, not one list per context"
            )
        if arguments.inputs_need_grad and not for_training:
            raise ArgumentError("bind: inputs_need_grad=True makes no sense with for_training=False")
        self.for_training, self.inputs_need_grad = for_training, arguments.inputs_need_grad
        self._grad_req = arguments.grad_req
        self._label_shapes = label_shapes if self._labelled() else None
        shapes = list(arguments.data_shapes)
        for number, (module, meta) in enumerate(zip(self._modules, self._metas)):
            if meta.get(self.META_AUTO_WIRING):
                shapes = renamed_by_position(self._modules, number, shapes)
            needs_grad = for_training and (arguments.inputs_need_grad or number > 0)
            was_bound = module.binded
            labels = label_shapes if meta.get(self.META_TAKE_LABELS) else None
            try:
                module.bind(
                    data_shapes=shapes,
                    label_shapes=labels,
                    for_training=for_training,
                    inputs_need_grad=needs_grad,
                    force_rebind=arguments.force_rebind,
                    grad_req=arguments.grad_req,
                )
            except MXNetError as error:
                raise with_message(error, f"{mismatch(self._modules, number, shapes)}: {error}") from error
            check_bound(self._modules, number, shapes, labels, needs_grad and was_bound)
            shapes = list(module.output_shapes)
        self._mark(Stage.BOUND, True)

    # parameters

    @override
    @needs(Stage.INITIALIZED)
    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        arg_params: dict[str, NDArray] = {}
        aux_params: dict[str, NDArray] = {}
        for module in self._modules:
            args, states = module.get_params()
            arg_params.update(args)
            aux_params.update(states)
        return arg_params, aux_params

    @override
    @needs(Stage.BOUND)
    def _init_params(self, arguments: ParamArguments) -> None:
        """Initialize every module."""
        if self._stage >= Stage.INITIALIZED and not arguments.force_init:
            return
        passing = replace(arguments, allow_extra=True)
        owners: tuple[dict[str, int], dict[str, int]] = ({}, {})
        for number, module in enumerate(self._modules):
            passing.init_params(module)
            for known, own in zip(owners, module.get_params()):
                self._claim(known, own, number)
        self._mark(Stage.INITIALIZED, True)

    def _claim(self, known: dict[str, int], names: Mapping[str, Any], number: int) -> None:
        """Note whose parameters these are."""
        for name in names:
            if name in known:
                other = known[name]
                raise ArgumentError(
                    f"SequentialModule: {name} is a parameter of {label_of(other, self._modules[other])} and of "
                    f"{label_of(number, self._modules[number])}; give their layers different names"
                )
            known[name] = number

    @override
    @needs(Stage.INITIALIZED)
    def _init_optimizer(self, arguments: OptimizerArguments) -> None:
        """Install an optimizer in every module.

        Of a name every module makes its own. An `Optimizer` is shared by all of them, so that its counts of updates go
        on once per module, as in MXNet.
        """
        if self._keeps_optimizer(arguments):
            return
        for module in self._modules:
            arguments.init_optimizer(module)
        self._mark(Stage.READY, True)

    @override
    @needs(Stage.READY)
    def update(self) -> None:
        for module in self._modules:
            module.update()

    @override
    def all_updates(self) -> list[Updates]:
        return [each for module in self._modules for each in module.all_updates()]

    @override
    def stores(self) -> list[Any]:
        return [each for module in self._modules for each in module.stores()]

    @override
    def sync_contexts(self) -> None:
        for module in self._modules:
            module.sync_contexts()

    # computing

    @needs(Stage.INITIALIZED)
    def forward(self, data_batch: BatchLike, is_train: bool | None = None) -> None:
        self._pass_on(data_batch, lambda module, batch: module.forward(batch, is_train=is_train))

    @override
    @needs(Stage.INITIALIZED)
    def evaluate(self, data_batch: BatchLike) -> None:
        if overrides(self, SequentialModule, "forward"):
            super().evaluate(data_batch)
            return
        self._pass_on(data_batch, lambda module, batch: module.evaluate(batch))

    def _pass_on(self, batch: Any, run: Callable[[BaseModule, Any], None]) -> None:
        """Run modules in order, each on the batch with its data replaced by the outputs of the one before."""
        if isinstance(batch, list):
            raise ArgumentError("SequentialModule takes whole batches, not a list of one per context")
        for number, module in enumerate(self._modules):
            try:
                run(module, batch)
            except (ShapeError, ArgumentError) as error:
                if number == 0:
                    raise
                given = [(d[0], array.shape) for d, array in zip(module.data_shapes, batch.data)]
                raise with_message(error, f"{mismatch(self._modules, number, given)}: {error}") from error
            if number + 1 < len(self._modules):
                batch = with_data(batch, module.get_outputs(), self._modules[number + 1].data_shapes)

    @needs(Stage.INITIALIZED)
    def backward(self, out_grads: OutGrads = None) -> None:
        for number in reversed(range(len(self._modules))):
            module = self._modules[number]
            if number and self._grad_req != "write":
                clear_input_grads(module)
            module.backward(out_grads=out_grads)
            if number:
                out_grads = module.get_input_grads()

    @override
    @needs(Stage.INITIALIZED)
    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        return self._modules[-1].get_outputs(merge_multi_context=merge_multi_context)

    @override
    def output_probes(self) -> list[list[torch.Tensor]]:
        return self._modules[-1].output_probes()

    @override
    def network_inputs(self, data_batch: BatchLike) -> list[NetworkInputs]:
        first, *others = self._modules
        found = first.network_inputs(data_batch) if first in self._labelled() else []
        wanted = [module for module in others if module in self._labelled() and module.symbol is not None]
        return [*found, *(network_inputs(module, data_batch, is_first=False) for module in wanted)]

    @override
    def nonfinite_gradient(self) -> str | None:
        return next(filter(None, (module.nonfinite_gradient() for module in self._modules)), None)

    @override
    def first_nonfinite_node(self) -> str | None:
        return next(filter(None, (module.first_nonfinite_node() for module in self._modules)), None)

    @override
    def has_overflow(self) -> bool:
        return any(module.has_overflow() for module in self._modules)

    @override
    def handle_overflow(self) -> bool:
        found = [
            module.handle_overflow() for module in self._modules
        ]  # no short cut: every module has to notice
        return any(found)

    @override
    def loss_scales(self) -> list[Any]:
        return [each for module in self._modules for each in module.loss_scales()]

    @override
    def restore_aux_states(self) -> None:
        for module in self._modules:
            module.restore_aux_states()

    @needs(Stage.INITIALIZED)
    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        if not self.inputs_need_grad:
            raise StateError("get_input_grads: bind with inputs_need_grad=True")
        return self._modules[0].get_input_grads(merge_multi_context=merge_multi_context)

    @needs(Stage.INITIALIZED)
    def update_metric(
        self, eval_metric: EvalMetric, labels: Labels, pre_sliced: bool = False, pad: int = 0
    ) -> None:
        takers = self._labelled()
        if not takers:
            warnings.warn(
                "update_metric: no module of the chain takes labels, so the metric sees nothing; "
                "add the one to be measured with take_labels=True",
                stacklevel=2,
            )
        for module in takers:
            if pre_sliced:
                module.update_metric(eval_metric, labels, pre_sliced)
            else:
                show_metric(module, eval_metric, labels, pad)

    @override
    def to_onnx(
        self, path: PathLike, opset: int = 17, dynamic: DynamicAxes = None, *, fold_batchnorm: bool = False
    ) -> Any:
        raise ArgumentError(
            "SequentialModule.to_onnx: a chain has a graph for each of its modules, not one; write each of "
            "`modules` by its own to_onnx, and feed the outputs of one to the next"
        )

    @override
    @needs(Stage.BOUND)
    def install_monitor(self, mon: MonitorLike) -> None:
        for module in self._modules:
            module.install_monitor(mon)
