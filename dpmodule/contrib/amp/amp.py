"""Conversion of symbols and models to mixed precision, and loss scaling with MXNet's interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..._core import lazy
from ...base import ArgumentError, StateError, dtype_code
from ...graph import Graph, Node
from ...module import BaseModule, BucketingModule
from ...module.mixed_precision import LossScale, set_default_rules
from ...module.nonfinite import are_finite
from ...ndarray import NDArray
from ...ops import find, get
from ...symbol import Symbol
from ...symbol.mixed_precision import (
    CONDITIONAL_FP32,
    FP32,
    LOSSES,
    LP16,
    WIDEST,
    Conditions,
    HalfConverter,
    HalfRules,
)

_TARGETS = ("float16", "bfloat16")


def _check_dtype(target_dtype: str) -> str:
    """Return a 16-bit type; raise for others."""
    if target_dtype not in _TARGETS:
        raise ArgumentError(f"target_dtype is {target_dtype!r}, expected one of {', '.join(_TARGETS)}")
    return target_dtype


def list_lp16_ops(target_dtype: str = "float16") -> list[str]:
    """Return the operators that run in 16 bits.

    Args:
        target_dtype: ``"float16"`` or ``"bfloat16"``; the list is the same for both.
    """
    _check_dtype(target_dtype)
    return list(LP16)


def list_fp32_ops(target_dtype: str = "float16") -> list[str]:
    """Return the operators that always run in float32.

    Args:
        target_dtype: ``"float16"`` or ``"bfloat16"``; the list is the same for both.
    """
    _check_dtype(target_dtype)
    return list(FP32)


def list_conditional_fp32_ops(target_dtype: str = "float16") -> list[tuple[str, str, list[str]]]:
    """Return (operator, attribute, values) of the operators that run in float32 with these attribute values.

    Args:
        target_dtype: ``"float16"`` or ``"bfloat16"``; the list is the same for both.
    """
    _check_dtype(target_dtype)
    return [(op, key, list(values)) for op, key, values in CONDITIONAL_FP32]


def list_widest_type_cast(target_dtype: str = "float16") -> list[str]:
    """Return the operators that run in the widest type among their inputs.

    Args:
        target_dtype: ``"float16"`` or ``"bfloat16"``; the list is the same for both.
    """
    _check_dtype(target_dtype)
    return list(WIDEST)


def list_loss_output_functions(target_dtype: str = "float16") -> list[str]:
    """Return the operators that are losses.

    Args:
        target_dtype: ``"float16"`` or ``"bfloat16"``; the list is the same for both.
    """
    _check_dtype(target_dtype)
    return list(LOSSES)


def convert_symbol(
    sym: Symbol,
    target_dtype: str = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    data_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> Symbol:
    """Return a network whose costly operators run in 16 bits; arguments and outputs keep their types.

    Args:
        sym: the network, in float32.
        target_dtype: "float16" or "bfloat16".
        target_dtype_ops: operators to run in 16 bits; None = `list_lp16_ops`.
        fp32_ops: operators to run in float32; None = `list_fp32_ops`.
        conditional_fp32_ops: (operator, attribute, values) to run in float32; None = `list_conditional_fp32_ops`.
        excluded_sym_names: names of nodes to keep in float32.
        data_names: inputs, whose type is never declared.
        cast_optional_params: declare `__dtype__` as 16 bits for parameters that are only read in 16 bits.

    Raises:
        ArgumentError: the type, an operator or a node name is unknown.

    Source: the placement of casts and the names of MXNet 1.9.1's `convert_symbol`.
    """
    if not isinstance(sym, Symbol):
        raise ArgumentError(f"sym is {type(sym).__name__}, expected a Symbol")
    _check_dtype(target_dtype)
    unknown = sorted(set(excluded_sym_names or ()) - {node.name for node in sym.graph.nodes})
    if unknown:
        raise ArgumentError(f"excluded_sym_names has {', '.join(unknown)}, which the network does not have")
    converter = HalfConverter(
        target_dtype,
        _operator_names("target_dtype_ops", target_dtype_ops, LP16),
        _operator_names("fp32_ops", fp32_ops, FP32),
        CONDITIONAL_FP32 if conditional_fp32_ops is None else conditional_fp32_ops,
        set(excluded_sym_names or ()),
    )
    for node in sym.graph.nodes:
        converter.add(node)
    heads = tuple((converter.made[node], number) for node, number in sym.graph.heads)
    if cast_optional_params:
        _declare_types(Graph(heads), converter, set(data_names or ()))
    return Symbol(heads)


def _operator_names(argument: str, names: Sequence[str] | None, default: Sequence[str]) -> set[str]:
    """Return the registry names of an argument's operators, those of `default` for None."""
    for name in names or ():
        if find(name) is None:
            raise ArgumentError(f"{argument} has {name!r}, which is not an operator")
    return {get(name).name for name in (default if names is None else names)}


def _declare_types(graph: Graph, converter: HalfConverter, data_names: set[str]) -> None:
    """Declare the type of variables that are read in one type only, and remove the casts."""
    readers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for child, _ in node.inputs:
            readers.setdefault(child, []).append(node)
    direct: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op is not None or node.name in data_names:
            continue
        casts = [r for r in readers.get(node, ()) if r.op is not None and r.op.name == "amp_cast"]
        dtype = converter.target if casts and len(casts) == len(readers[node]) else "float32"
        node.attrs["__dtype__"] = str(dtype_code(dtype))
        if dtype != "float32":
            direct.update(dict.fromkeys(casts, node))
    for node in graph.nodes:
        node.inputs = tuple((direct.get(child, child), number) for child, number in node.inputs)


def convert_model(
    sym: Symbol,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
    target_dtype: str = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """Return a network in mixed precision with its parameters; arguments as in `convert_symbol`.

    Args:
        cast_optional_params: store parameters in 16 bits that are only read in 16 bits.
    """
    data_names = set(sym.list_inputs()) - set(arg_params) - set(aux_params)
    converted = convert_symbol(
        sym,
        target_dtype,
        target_dtype_ops,
        fp32_ops,
        conditional_fp32_ops,
        excluded_sym_names,
        sorted(data_names),
        cast_optional_params,
    )
    low = str(dtype_code(target_dtype))
    declared = {name for name, attrs in converted.attr_dict().items() if attrs.get("__dtype__") == low}
    args = {k: v.astype(target_dtype) if k in declared else v for k, v in arg_params.items()}
    return converted, args, dict(aux_params)


def convert_bucketing_module(
    bucketing_mod: BucketingModule, target_dtype: str = "float16", **options: Any
) -> BucketingModule:
    """Return a bucketing module in mixed precision with the same parameters, not yet bound.

    Args:
        bucketing_mod: a bound module with parameters.
        target_dtype: as in `convert_model`.
        options: further arguments of `convert_model`.

    Raises:
        ArgumentError: the module has no parameters yet.
    """
    if not isinstance(bucketing_mod, BucketingModule) or not bucketing_mod.params_initialized:
        raise ArgumentError("bucketing_mod has no parameters yet; bind it and call init_params or fit first")
    arg_params, aux_params = bucketing_mod.get_params()
    data_names = sorted(set(bucketing_mod.symbol.list_inputs()) - set(arg_params) - set(aux_params))
    _, args, aux = convert_model(bucketing_mod.symbol, arg_params, aux_params, target_dtype, **options)
    return bucketing_mod.converted(
        lambda symbol: convert_symbol(symbol, target_dtype, data_names=data_names, **options), args, aux
    )


def init(
    target_dtype: str = "float16",
    target_precision_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    fp32_ops: Sequence[str] | None = None,
) -> None:
    """Train all modules created after this call in mixed precision, unless their argument `amp` is set.

    Args:
        target_dtype: "float16" or "bfloat16".
        target_precision_ops: operators to run in 16 bits; None = `list_lp16_ops`.
        conditional_fp32_ops: (operator, attribute, values) to run in float32; None = `list_conditional_fp32_ops`.
        fp32_ops: operators to run in float32; None = `list_fp32_ops`.

    Raises:
        ArgumentError: the type or an operator is unknown.

    Source: MXNet 1.9.1 `contrib.amp.init`, which patches the operator functions instead.
    """
    rules = HalfRules(
        _check_dtype(target_dtype),
        sorted(_operator_names("target_precision_ops", target_precision_ops, LP16)),
        sorted(_operator_names("fp32_ops", fp32_ops, FP32)),
        CONDITIONAL_FP32 if conditional_fp32_ops is None else conditional_fp32_ops,
    )
    set_default_rules(rules)


def init_trainer(trainer: Any) -> None:
    """Make a trainer scale losses, and skip updates whose gradients are not finite.

    Args:
        trainer: an object like Gluon's ``Trainer``, with ``_scale``, ``_params`` and ``_update``; or a module, which
            scales losses automatically in mixed precision.

    Raises:
        ArgumentError: `trainer` is neither.
    """
    if isinstance(trainer, BaseModule):
        return
    if not all(hasattr(trainer, name) for name in ("_scale", "_params", "_update")):
        raise ArgumentError(
            f"init_trainer: {type(trainer).__name__} is not a trainer; make a Module(amp='fp16') instead, "
            "which scales the loss automatically"
        )
    trainer._amp_loss_scaler = LossScale()
    trainer._amp_original_scale = trainer._scale
    trainer._update = partial(_update_if_finite, trainer, trainer._update)


def _update_if_finite(trainer: Any, update: Any, *arguments: Any, **options: Any) -> None:
    """Update, unless a gradient is not finite."""
    scale = trainer._amp_loss_scaler
    if all(are_finite(grad.raw) for grad in _gradients(trainer)):
        update(*arguments, **options)
        scale.note_update()
    else:
        scale.note_overflow()


def _gradients(trainer: Any) -> list[Any]:
    return [grad for param in trainer._params if param._grad is not None for grad in param._grad]


@contextmanager
def scale_loss(loss: Any, optimizer_or_trainer: Any) -> Iterator[Any]:
    """Yield the scaled loss for backward, and make the trainer divide gradients by the scale.

    Args:
        loss: an array, or a list of them.
        optimizer_or_trainer: argument of `init_trainer`; a module scales internally, so its loss stays as it is.

    Raises:
        StateError: `init_trainer` has not been called.

    Example:
        >>> module = mx.mod.Module(mx.sym.Variable("data") * mx.sym.Variable("w"), label_names=None, amp="fp16")
        >>> with mx.contrib.amp.scale_loss(mx.nd.ones((2,)), module) as loss:
        ...     print(loss.asnumpy())
        [1. 1.]
    """
    trainer = optimizer_or_trainer
    if isinstance(trainer, BaseModule):
        yield loss
        return
    scale = _scale_of(trainer, "scale_loss").value
    trainer._scale = trainer._amp_original_scale / scale
    yield [part * scale for part in loss] if isinstance(loss, (list, tuple)) else loss * scale


def unscale(optimizer_or_trainer: Any) -> None:
    """Divide gradients by the scale now, to inspect or clip them before the update.

    Args:
        optimizer_or_trainer: argument of `init_trainer`; gradients of a module are never scaled.

    Raises:
        StateError: `init_trainer` has not been called.
    """
    trainer = optimizer_or_trainer
    if isinstance(trainer, BaseModule):
        return
    _scale_of(trainer, "unscale")
    for grad in _gradients(trainer):
        grad[:] = grad * (trainer._scale / trainer._amp_original_scale)
    trainer._scale = trainer._amp_original_scale


def _scale_of(trainer: Any, what: str) -> LossScale:
    scale = getattr(trainer, "_amp_loss_scaler", None)
    if not isinstance(scale, LossScale):
        raise StateError(f"{what}: call init_trainer() with this {type(trainer).__name__} first")
    return scale


__all__ = lazy.own_names(vars())
lazy.publish(__name__, __all__)
