"""Declaring operators and finding them."""

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

from ..base import OpError, did_you_mean
from ..compat.lazy import modules_of
from .spec import REQUIRED, Attr, Env, Input, LossOutput, Onnx, Op, Variadic

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
    """Runs a loss operator under autograd where its output is read by others: the incoming gradient is dropped."""

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
        found = grad(a, env, out, *tensors)
        if env.counted is not None:
            found = found.masked_fill(~env.counted.view(-1, *[1] * (found.dim() - 1)), 0)
        return (None, None, None, found, *[None] * (len(tensors) - 1))


_record_classes: dict[tuple[str, tuple[str, ...]], Callable[..., Any]] = {}


def _make_record(kind: tuple[str, tuple[str, ...]], *values: Any) -> Any:
    """Return an attribute record; its class is made at the first call.

    Most operators are never used in one process, and all their classes take 2 MB.
    """
    found = _record_classes.get(kind)
    if found is None:
        found = _record_classes[kind] = namedtuple(*kind)
    return found(*values)


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
    tensor, or a tuple of the visible outputs followed by the new values of `mutates`. It is pure: it changes no
    argument. An operator that is one torch call declares ``bind=lambda a: torch_function`` as well or instead
    (see `declare`): the executor then calls that function directly.

    Args:
        name: MXNet's registry name, written to saved graphs.
        inputs: in MXNet's order; or a function of the attributes.
        attrs: in MXNet's order.
        aliases: further names; prefixes such as ``_contrib_`` put an alias into a namespace.
        loss_grad: makes it a loss: ``(a, env, out, *tensors) -> gradient of the first input``.
        loss_when: from the attributes, whether the head gradient is ignored (default: always).
        loss_probe: ``(a, output) -> part`` that is finite only if the whole output is (default: none smaller).
        fields: the other fields of `Op`: variadic, outputs (names, or a function of the attributes), hidden
            (outputs counted in saved graphs only), bind, mutates (inputs whose new values `run` returns after the
            outputs; None in such a place leaves the input as it is), commit_in_forward (those of them that forward writes
            at once; backward commits the others), infer, infer_type, view (the result may share memory with the
            first input), random (draws from the generator), needs_shapes (wants
            ``env.out_shapes``), stateful (keeps things in ``env.memo`` from one call of an executor to the next),
            num_subgraphs (how many graphs a node carries; they are the last field, ``bodies``, of the attributes),
            read_attrs (reads the attributes by itself, which then may have any name), needs_head (from the
            attributes, whether backward needs the outputs' gradients), differentiable (False: binding a graph for
            gradients that would flow through it is an error, as in MXNet), batch (NEVER), accepts_any (it has
            attributes, but takes and keeps any other keyword too), onnx (default: the builder in
            `dpmodule.onnx.to_onnx` that has the operator's name, without ``_`` and ``_contrib_``), classes
            (``(a, *shapes of the inputs) -> ClassLabels`` of the second input; None where it holds no class
            numbers).
    """

    def declare_function(run: Callable[..., Any]) -> Callable[..., Any]:
        fields.setdefault("onnx", Onnx(builder=name.lstrip("_").removeprefix("contrib_")))
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
            aliases=tuple(aliases),
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
    """Declare an operator that is one torch function of its tensors and has no use for attributes.

    Args:
        function: ``(*tensors) -> tensor``.
    """

    def run(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
        return function(*tensors)

    run.__doc__ = doc
    op(name, inputs, attrs, bind=lambda a: function, **fields)(run)


def get(name: str) -> Op:
    """Return the operator of a name or alias."""
    found = find(name)
    if found is None:
        raise OpError(f"there is no operator {name!r}{did_you_mean(name, names())}")
    return found


def find(name: str) -> Op | None:
    """Return the operator of a name or alias, or None; it may be declared only now (see `lazy_operators`)."""
    found = _OPS.get(name)
    if found is None and (module := _lazy_modules().get(name)) is not None:
        import_module(module)
        found = _OPS.get(name)
    return found


@cache
def _lazy_modules() -> dict[str, str]:
    """Return the module of every operator that is declared when it is first asked for."""
    return {name: f"{__package__}.{module}" for name, module in modules_of(lazy_operators()).items()}


def lazy_operators() -> dict[str, str]:
    """Return the names of operators, with blanks between, by the module of this package that declares them.

    The file is written by .ci/stubs.py from the declarations.
    """
    text = Path(__file__).with_name("lazy_operators.json").read_text(encoding="utf-8")
    found: dict[str, str] = json.loads(text)
    return found


def add_lazy_operators(module: str, names: str) -> None:
    """Name operators that a module outside this package declares: when one of them is first asked for."""
    _lazy_modules().update(dict.fromkeys(names.split(), module))


def names() -> tuple[str, ...]:
    """Return every name and alias, also of operators that are not declared yet."""
    return tuple(dict.fromkeys((*_OPS, *_lazy_modules())))


def declared() -> tuple[str, ...]:
    """Return every name and alias of the operators that are declared so far."""
    return tuple(_OPS)


def namespace_of(name: str) -> tuple[str, str]:
    """Split a name into (namespace, public name): ``_contrib_box_nms`` gives ("contrib", "box_nms").

    Names without underscore live in the main namespace "", others that start with one in "_internal".
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

    The executor calls what it returns directly; work that depends on attributes alone is done once, at bind.

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
    """Declare an operator; the decorated function ``(a, *tensors)`` needs its attributes and tensors alone.

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
    """Return the public names of a namespace and the operator names they stand for.

    "" is the main one. "_internal" holds every name with a leading underscore, those of other namespaces too,
    as code written for MXNet looks some of them up there. "random" has no ``_sample_`` operators: its
    functions choose between those and the ``_random_`` ones by their arguments.
    """
    return _names_in(space, len(names()))


@cache
def _names_in(space: str, count: int) -> dict[str, str]:
    """Do the work of `names_in` once, and again when the number of operators has grown."""
    if space == "_internal":
        return {n: n for n in names() if n.startswith("_")}
    pairs = ((n, *namespace_of(n)) for n in names() if not n.startswith("_sample_"))
    return {public: name for name, where, public in pairs if where == space}


def find_operator_name(face: str, space: str, name: str) -> str:
    """Return the operator of a public name in a namespace of `face`, which is "nd" or "sym"."""
    known = names_in(space)
    if name not in known:
        where = f"{face}.{space}" if space else face
        hint = "" if name.startswith("__") else did_you_mean(name, known)
        raise AttributeError(f"{where} has no operator {name!r}{hint}")
    return known[name]


def _declared(op: Op) -> tuple[Input, ...]:
    """Return every input an operator may have, for operators whose inputs depend on attributes too."""
    return op.inputs if isinstance(op.inputs, tuple) else ()


Split = tuple[list[Any], dict[str, Any], dict[str, Any]]


def _split_variadic(variadic: Variadic, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Split:
    """Sort the arguments of an operator that takes any number of inputs; they may come as one list too."""
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
    """Sort the arguments of an operator whose inputs depend on its attributes: inputs are known by what they are."""
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
        args: inputs in order, then attributes in order, as MXNet accepts; all of them inputs if variadic.
        kwargs: inputs and attributes by name.
        is_input: tells inputs from attributes where the operator's inputs depend on its attributes.

    Returns:
        The positional inputs, the named inputs (values of None left out), the raw attributes.
    """
    if op.variadic is not None:
        return _split_variadic(op.variadic, args, kwargs)
    if callable(op.inputs) and is_input is not None:
        return _split_by_kind(op, args, kwargs, is_input)
    input_names = [i.name for i in _declared(op)]
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
    """Return the true signature of a face: inputs, attributes, then `extra` keywords such as name and out."""
    either, only = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    any_number = op.variadic is not None or callable(op.inputs)
    kind = only if any_number else either
    if any_number:
        parameters = [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]
    else:
        parameters = [inspect.Parameter(i.name, either, default=None) for i in _declared(op)]
    for key, attr in op.attrs.items():
        default = None if attr.default is REQUIRED else attr.default
        parameters.append(inspect.Parameter(key, kind, default=default))
    parameters += [inspect.Parameter(key, only, default=None) for key in extra]
    if op.read_attrs is not None or op.accepts_any_keyword:
        parameters.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def docstring(op: Op) -> str:
    """Return the operator's docstring followed by its attributes with types, defaults and meaning."""
    lines = [op.doc.rstrip()]
    if op.attrs:
        lines += ["", "Attributes:"]
        for key, attr in op.attrs.items():
            default = "required" if attr.default is REQUIRED else f"default {attr.default!r}"
            lines.append(f"    {key}: {attr.doc or attr.type.expects} ({attr.type.expects}; {default}).")
    return "\n".join(lines) + "\n"
