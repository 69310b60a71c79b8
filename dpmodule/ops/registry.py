"""Declaration and lookup of operators."""

from __future__ import annotations

import inspect
import json
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from .._core.lazy import modules_of
from ..base import OpError, did_you_mean
from .numpy_aliases import NUMPY_ALIASES
from .spec import NEVER, REQUIRED, Attr, Env, Input, LossOutput, Onnx, Op, Variadic

_OPS: dict[str, Op] = {}

_NAMESPACES = (
    ("_contrib_", "contrib"),
    ("_linalg_", "linalg"),
    ("_random_", "random"),
    ("_sample_", "random"),
    ("_sparse_", "sparse"),
    ("_image_", "image"),
)


class _LossHead(torch.autograd.Function):
    """Loss operator under autograd, for outputs with other consumers; backward ignores the incoming gradient."""

    @staticmethod
    def forward(ctx: Any, record: Op, a: Any, env: Env, *tensors: torch.Tensor) -> torch.Tensor:
        loss = record.loss
        if loss is None:
            raise OpError(f"{record.name} is not a loss operator")
        out = loss.forward(a, env, *tensors)
        if out.data_ptr() == tensors[0].data_ptr():
            out = out.clone()
        ctx.save_for_backward(out, *tensors)
        ctx.call = loss.grad, a, env
        return out

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor) -> tuple[Any, ...]:
        out, *tensors = ctx.saved_tensors
        grad, a, env = ctx.call
        data_grad = grad(a, env, out, *tensors)
        if env.counted is not None:
            data_grad = data_grad.masked_fill(~env.counted.view(-1, *[1] * (data_grad.dim() - 1)), 0)
        return (None, None, None, data_grad, *[None] * (len(tensors) - 1))


_record_classes: dict[tuple[str, tuple[str, ...]], Callable[..., Any]] = {}


def _make_record(kind: tuple[str, tuple[str, ...]], *values: Any) -> Any:
    """Return an attribute record; its class is created at the first call.

    A process uses few of the operators, and the classes of all of them take 2 MB.
    """
    record_class = _record_classes.get(kind)
    if record_class is None:
        record_class = _record_classes[kind] = namedtuple(*kind)
    return record_class(*values)


_apply: Callable[..., torch.Tensor] = _LossHead.apply


def op(
    name: str,
    inputs: Iterable[Input] | Callable[[Any], tuple[Input, ...]] = (),
    attrs: Mapping[str, Attr] | None = None,
    *,
    aliases: Iterable[str] = (),
    loss_grad: Callable[..., torch.Tensor] | None = None,
    loss_when: Callable[[Any], bool] | None = None,
    loss_probe: Callable[[Any, torch.Tensor], torch.Tensor] | None = None,
    **fields: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an operator; the decorated function is its implementation.

    The function is ``run(a, env, *tensors)``: attributes as a record, an `Env`, and torch tensors; it returns one
    tensor, or a tuple of the visible outputs followed by the new values of `mutates`. It is pure: it does not
    modify its arguments. An operator that is a single torch call also declares ``bind=lambda a: torch_function`` (see
    `declare`), which the executor then calls directly.

    Args:
        name: MXNet's registry name, used in saved graphs.
        inputs: in MXNet's order, or a function of the attributes.
        attrs: in MXNet's order.
        aliases: other names; prefixes such as ``_contrib_`` determine the namespace.
        loss_grad: for a loss: ``(a, env, out, *tensors) -> gradient of the first input``.
        loss_when: function of the attributes, True if the head gradient is ignored (default: always).
        loss_probe: ``(a, output) -> part`` that is finite only if the whole output is (default: the output).
        fields: the other fields of `Op`: variadic, outputs (names, or a function of the attributes), hidden (outputs
            counted in saved graphs only), bind, mutates (inputs whose new values `run` returns after the outputs, with
            None for an unchanged input), commit_in_forward (those that forward writes immediately; backward commits the
            others), infer, infer_type, view (the result may share memory with the first input), random (True if it
            draws from the generator, or ``(a, is_train) -> bool``), needs_shapes (requires ``env.out_shapes``),
            stateful (keeps state in ``env.memo`` between calls of an executor, or writes its `mutates` itself),
            num_subgraphs (number of subgraphs of a node, stored in the last field, ``bodies``, of the attributes),
            read_attrs (custom parser of the attributes, which then may have any name), needs_head (function of the
            attributes, True if backward needs the outputs' gradients),
            differentiable (False: binding a graph with gradients through it is an error, as in MXNet), batch (NEVER;
            the default without inputs, with state or with subgraphs), accepts_any (it has attributes, but accepts and
            stores any other keyword, too), onnx (default: the builder in `dpmodule.onnx.to_onnx` with the operator's
            name, without ``_`` and ``_contrib_``), classic (name of an operator that has the same attributes and, for
            operands of one floating type, the same results), classes (``(a, *shapes of the inputs) -> ClassLabels`` of
            the second input; None if it contains no class numbers).
    """

    def declare_function(run: Callable[..., Any]) -> Callable[..., Any]:
        fields.setdefault("onnx", Onnx(builder=name.lstrip("_").removeprefix("contrib_")))
        if (
            fields.get("stateful")
            or fields.get("num_subgraphs")
            or (inputs == () and "variadic" not in fields)
        ):
            fields.setdefault("batch", NEVER)
        attributes = dict(attrs or {})
        record_fields = (*attributes, "bodies") if fields.get("num_subgraphs") else tuple(attributes)
        loss = None
        if loss_grad is not None:
            loss = LossOutput(run, loss_grad, loss_when, loss_probe)
        record = Op(
            name,
            run,
            partial(_make_record, (name.strip("_"), record_fields)),
            attributes,
            inputs if callable(inputs) else tuple(inputs),
            aliases=(*aliases, *NUMPY_ALIASES.get(name, "").split()),
            loss=loss,
            doc=inspect.getdoc(run) or "",
            **fields,
        )
        if loss is not None:
            object.__setattr__(record, "run", lambda a, env, *t: _apply(record, a, env, *t))
        for key in (name, *record.aliases):
            if key in _OPS:
                raise OpError(f"operator {key!r} is declared twice")
            _OPS[key] = record
        return run

    return declare_function


def declare(
    name: str,
    function: Callable[..., Any],
    inputs: Iterable[Input],
    attrs: Mapping[str, Attr] | None = None,
    *,
    doc: str,
    **fields: Any,
) -> None:
    """Declare an operator that is a torch function of its tensors and does not depend on attributes.

    Args:
        function: ``(*tensors) -> tensor``.
    """

    def run(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
        return function(*tensors)

    run.__doc__ = doc
    op(name, inputs, attrs, bind=lambda a: function, **fields)(run)


def get(name: str) -> Op:
    """Return the operator with a name or alias."""
    op = find(name)
    if op is None:
        raise OpError(f"there is no operator {name!r}{did_you_mean(name, names())}")
    return op


def find(name: str) -> Op | None:
    """Return the operator with a name or alias, or None; imports its module if needed (see `lazy_operators`)."""
    op = _OPS.get(name)
    if op is None and (module := _lazy_modules().get(name)) is not None:
        import_module(module)
        op = _OPS.get(name)
    return op


@cache
def _lazy_modules() -> dict[str, str]:
    """Return the modules of all lazily imported operators by name."""
    return {name: f"{__package__}.{module}" for name, module in modules_of(lazy_operators()).items()}


def lazy_operators() -> dict[str, str]:
    """Return operator names, separated by spaces, by the module of this package that declares them.

    tools/stubs.py generates the file from the declarations.
    """
    text = Path(__file__).with_name("lazy_operators.json").read_text(encoding="utf-8")
    table: dict[str, str] = json.loads(text)
    return table


def add_lazy_operators(module: str, names: str) -> None:
    """Register operators that a module outside this package declares; it is imported on first use."""
    _lazy_modules().update(dict.fromkeys(names.split(), module))


def names() -> tuple[str, ...]:
    """Return all names and aliases, including operators that are not imported yet."""
    return tuple(dict.fromkeys((*_OPS, *_lazy_modules())))


def declared() -> tuple[str, ...]:
    """Return all names and aliases of the imported operators."""
    return tuple(_OPS)


def namespace_of(name: str) -> tuple[str, str]:
    """Split a name into (namespace, public name): ``_contrib_box_nms`` gives ("contrib", "box_nms").

    Names without leading underscore belong to the main namespace "", other names with one to "_internal".
    """
    for prefix, space in _NAMESPACES:
        if name.startswith(prefix):
            return space, name[len(prefix) :]
    return ("_internal", name) if name.startswith("_") else ("", name)


Bind = Callable[[Any], Callable[..., Any]]


def bound(
    name: str,
    inputs: Iterable[Input] | Callable[[Any], tuple[Input, ...]] = (),
    attrs: Mapping[str, Attr] | None = None,
    **fields: Any,
) -> Callable[[Bind], Bind]:
    """Declare an operator; the decorated function turns attributes into a function of tensors.

    The executor calls the returned function; work that depends only on attributes is done once, at bind.

    Args:
        fields: as in `registry.op`, without `bind`.
    """

    def declare_bind(bind: Bind) -> Bind:
        def run(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
            return bind(a)(*tensors)

        run.__doc__ = bind.__doc__
        op(name, inputs, attrs, bind=bind, **fields)(run)
        return bind

    return declare_bind


def pure(
    name: str,
    inputs: Iterable[Input] | Callable[[Any], tuple[Input, ...]] = (),
    attrs: Mapping[str, Attr] | None = None,
    **fields: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an operator; the decorated function ``(a, *tensors)`` only needs attributes and tensors.

    Args:
        fields: as in `registry.op`, without `bind`.
    """

    def declare_function(function: Callable[..., Any]) -> Callable[..., Any]:
        def bind(a: Any) -> Callable[..., Any]:
            return partial(function, a)

        bind.__doc__ = function.__doc__
        bound(name, inputs, attrs, **fields)(bind)
        return function

    return declare_function


def names_in(space: str) -> dict[str, str]:
    """Return the public names of a namespace and their operator names.

    "" is the main namespace. "_internal" contains all names with a leading underscore, including those of other
    namespaces, since code written for MXNet looks some of them up there. "random" has no ``_sample_`` operators: its
    functions choose between ``_sample_`` and ``_random_`` operators by their arguments.
    """
    return _names_in(space, len(names()))


@cache
def _names_in(space: str, count: int) -> dict[str, str]:
    """Implement `names_in`, cached until the number of operators changes."""
    if space == "_internal":
        return {n: n for n in names() if n.startswith("_")}
    pairs = ((n, *namespace_of(n)) for n in names() if not n.startswith("_sample_"))
    return {public: name for name, where, public in pairs if where == space}


def find_operator_name(face: str, space: str, name: str) -> str:
    """Return the operator name of a public name in a namespace of `face`, "nd" or "sym"."""
    known = names_in(space)
    if name not in known:
        where = f"{face}.{space}" if space else face
        hint = "" if name.startswith("__") else did_you_mean(name, known)
        raise AttributeError(f"{where} has no operator {name!r}{hint}")
    return known[name]


def _possible_inputs(op: Op) -> tuple[Input, ...]:
    """Return all possible inputs of an operator; () if they depend on the attributes."""
    return op.inputs if isinstance(op.inputs, tuple) else ()


Split = tuple[list[Any], dict[str, Any], dict[str, Any]]


def _split_variadic(variadic: Variadic, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Split:
    """Sort the arguments of a variadic operator, whose inputs may also be given as one list."""
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    named = {k: v for k, v in kwargs.items() if variadic.is_input(k)}
    names = [i.name for i in variadic.instead]
    named.update({k: v for k, v in kwargs.items() if k in names and not isinstance(v, (list, tuple))})
    for extra in ("data", "args"):
        if isinstance(kwargs.get(extra), (list, tuple)):
            args = (*args, *kwargs[extra])
            kwargs = {k: v for k, v in kwargs.items() if k != extra}
    return list(args), named, {k: v for k, v in kwargs.items() if k not in named}


def _split_by_kind(
    op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], is_input: Callable[[Any], bool]
) -> Split:
    """Sort the arguments of an operator whose inputs depend on its attributes; inputs are recognized by type."""
    leading = next((i for i, x in enumerate(args) if x is not None and not is_input(x)), len(args))
    named = {k: v for k, v in kwargs.items() if is_input(v)}
    attributes = dict(zip(op.attrs, args[leading:], strict=False))
    attributes.update({k: v for k, v in kwargs.items() if k not in named})
    return list(args[:leading]), named, attributes


def split_call(
    op: Op,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_input: Callable[[Any], bool] | None = None,
) -> Split:
    """Sort a call's arguments into positional inputs, inputs by name and attributes.

    Args:
        args: inputs in order, then attributes in order, as in MXNet; only inputs if variadic.
        kwargs: inputs and attributes by name.
        is_input: distinguishes inputs from attributes if the operator's inputs depend on its attributes.

    Returns:
        The positional inputs, the named inputs (without None values), the raw attributes.
    """
    if op.variadic is not None:
        return _split_variadic(op.variadic, args, kwargs)
    if callable(op.inputs) and is_input is not None:
        return _split_by_kind(op, args, kwargs, is_input)
    input_names = [i.name for i in _possible_inputs(op)]
    positional, rest = list(args[: len(input_names)]), args[len(input_names) :]
    if len(rest) > len(op.attrs):
        total = len(input_names) + len(op.attrs)
        raise OpError(f"{op.name} takes at most {total} arguments, got {len(args)}")
    attributes = dict(zip(op.attrs, rest))
    twice = [k for k in kwargs if k in attributes or k in input_names[: len(positional)]]
    if twice:
        raise OpError(f"{op.name}: {', '.join(twice)} is given twice")
    named = {k: v for k, v in kwargs.items() if k in input_names and v is not None}
    attributes.update({k: v for k, v in kwargs.items() if k not in input_names})
    return positional, named, attributes


def signature(op: Op, extra: tuple[str, ...]) -> inspect.Signature:
    """Return the signature of a function of `nd` or `sym`: inputs, attributes, then `extra` keywords such as name."""
    either, only = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    any_number = op.variadic is not None or callable(op.inputs)
    kind = only if any_number else either
    if any_number:
        parameters = [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]
    else:
        parameters = [inspect.Parameter(i.name, either, default=None) for i in _possible_inputs(op)]
    for key, attr in op.attrs.items():
        default = None if attr.default is REQUIRED else attr.default
        parameters.append(inspect.Parameter(key, kind, default=default))
    parameters += [inspect.Parameter(key, only, default=None) for key in extra]
    if op.read_attrs is not None or op.accepts_any_keyword:
        parameters.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def docstring(op: Op) -> str:
    """Return the operator's docstring followed by its attributes with descriptions, types and defaults."""
    lines = [op.doc.rstrip()]
    if op.attrs:
        lines += ["", "Attributes:"]
        for key, attr in op.attrs.items():
            default = "required" if attr.default is REQUIRED else f"default {attr.default!r}"
            lines.append(f"    {key}: {attr.doc or attr.type.expects} ({attr.type.expects}; {default}).")
    return "\n".join(lines) + "\n"
