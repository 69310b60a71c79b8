"""Running a program's steps one by one: for monitors, and to find the node whose gradient failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..graph import Node
from ..ops.sparse import leaf_of
from ..ops.spec import Env
from ..ops.user_code import is_user_error
from .lowering import Step
from .program import Program

Monitor = Callable[[str, torch.Tensor], None]
RecordedStep = tuple[Step, dict[int, torch.Tensor], dict[int, torch.Tensor]]

_NUMBERED = """
    Activation BlockGrad Cast Flatten Reshape SoftmaxActivation _contrib_AdaptiveAvgPooling2D
    _contrib_arange_like _contrib_bipartite_matching _contrib_box_nms _contrib_div_sqrt_dim
    _contrib_gradientmultiplier _contrib_round_ste _contrib_sign_ste _copy _div_scalar _equal_scalar
    _greater_equal_scalar _greater_scalar _hypot_scalar _lesser_equal_scalar _lesser_scalar
    _logical_and_scalar _logical_or_scalar _logical_xor_scalar _maximum_scalar _minimum_scalar _minus_scalar
    _mod_scalar _mul_scalar _not_equal_scalar _plus_scalar _power_scalar _rdiv_scalar _rminus_scalar
    _rmod_scalar _rpower_scalar abs amp_cast arccos arccosh arcsin arcsinh arctan arctanh argmax
    argmax_channel argmin argsort broadcast_axis broadcast_to cbrt ceil clip cos cosh degrees erf erfinv exp
    expand_dims expm1 fix floor gamma gammaln hard_sigmoid log log10 log1p log2 logical_not make_loss
    max mean min nanprod nansum negative norm ones_like prod radians rcbrt reciprocal relu rint round rsqrt
    shape_array sigmoid sign sin sinh size_array slice slice_axis smooth_l1 softmin softsign sort sqrt square
    sum tan tanh topk transpose trunc zeros_like
"""
_UNNAMED = frozenset(_NUMBERED.split())
"""Operators whose only input MXNet's monitor numbers instead of naming."""


class StepFailed(Exception):
    """Raised when a step of `interpret` fails; `node` is the index of the graph's node, -1 for none."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.node = node


def call_step(
    program: Program, step: Step, values: dict[int, torch.Tensor], env: Env, shaped: Sequence[Env]
) -> tuple[Any, ...]:
    """Run one step and return its outputs.

    Shape:
        returns: each as the operator's rule infers.
    """
    inputs = [values[n] for n in step.inputs]
    if step.detach_first:
        inputs[0] = inputs[0].detach()
    if step.takes_env:
        position = program.shaped_position(step)
        result = step.function(step.fixed, env if position is None else shaped[position], *inputs)
    else:
        result = step.function(*inputs)
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def interpret(
    program: Program,
    values: Sequence[torch.Tensor],
    env: Env,
    shaped: Sequence[Env],
    watch: Monitor,
    inputs_too: bool = False,
) -> tuple[Any, ...]:
    """Run a program step by step; the results equal those of `Program.forward`.

    Shape:
        values: each as its variable.

    Args:
        shaped: environments of the operators that need their output shapes.
        watch: called with the name and value of every operator's output.
        inputs_too: also call `watch` for every operator's inputs, before its outputs, with the variable's name and as
            ``<node>_<input>``.

    Returns:
        The same four tuples as `Program.forward`.
    """
    low = program.low
    known: dict[int, torch.Tensor] = dict(enumerate(values))
    for step in low.steps:
        node = low.graph.nodes[step.node] if step.node >= 0 else None
        if inputs_too and node is not None:
            _show_inputs(node, step, known, watch)
        try:
            results = call_step(program, step, known, env, shaped)
        except Exception as error:
            raise StepFailed(step.node) from error
        known.update(zip(step.outputs, results))
        if node is not None:
            for name, result in zip(node.output_names, results):
                watch(name, result)
    cut = {loss.output: loss.root for loss in low.losses}
    return (
        tuple(known[n] for n in low.heads),
        tuple(known[cut.get(i, n)] for i, n in enumerate(low.heads)) if low.recorded else (),
        tuple(tuple(known[n] if n >= low.num_variables else None for n in loss.rest) for loss in low.losses),
        tuple(known[new] for _, new, _ in low.mutated),
    )


def _show_inputs(node: Node, step: Step, known: Mapping[int, torch.Tensor], watch: Monitor) -> None:
    """Show the monitor an operator's inputs under MXNet's names.

    Source: MXNet 1.9.1's monitor.
    """
    if node.op is None:
        return
    declared = node.op.active_inputs(node.a, len(node.inputs))
    unnamed = node.op.name in _UNNAMED
    for (child, _), one, number in zip(node.inputs, declared, step.inputs):
        if child.op is None:
            watch(child.name, known[number])
        watch(f"{node.name}_input0" if unnamed else f"{node.name}_{one.name}", known[number])


def record_by_step(
    program: Program, values: Sequence[torch.Tensor], env: Env, shaped: Sequence[Env]
) -> tuple[list[RecordedStep], dict[int, torch.Tensor]]:
    """Run forward, recording every step separately for backward.

    Shape:
        values: each as its variable.

    Args:
        values: tensors of the variables; those with requires_grad get a gradient.
        shaped: environments of the operators that need their output shapes.

    Returns:
        Each step with its inputs, which are the leaves of its recording, and its outputs; and all values, detached.
    """
    known = {n: value.detach() for n, value in enumerate(values)}
    live = {n for n, value in enumerate(values) if value.requires_grad}
    tape: list[RecordedStep] = []
    with torch.enable_grad():
        for step in program.low.steps:
            own = {n: known[n].detach() for n in step.inputs}
            for n, tensor in own.items():
                tensor.requires_grad_(n in live)
            results = dict(zip(step.outputs, _call_recorded(program, step, known, own, env, shaped)))
            live.update(n for n, r in results.items() if r is not None and r.requires_grad)
            known.update({n: r.detach() for n, r in results.items() if r is not None})
            tape.append((step, own, results))
    return tape, known


def _call_recorded(
    program: Program,
    step: Step,
    known: Mapping[int, torch.Tensor],
    own: Mapping[int, torch.Tensor],
    env: Env,
    shaped: Sequence[Env],
) -> tuple[Any, ...]:
    """Run one step on leaf inputs, which autograd does not allow a step to overwrite."""
    try:
        return call_step(program, step, {**known, **own}, env, shaped)
    except RuntimeError as error:  # any other error is raised again
        if is_user_error(error):
            raise
        free: dict[int, torch.Tensor] = {
            n: _Alias.apply(t)  # type: ignore[no-untyped-call]
            for n, t in own.items()
            if isinstance(t, torch.Tensor) and t.requires_grad
        }
        return call_step(program, step, {**known, **own, **free}, env, shaped)


class _Alias(torch.autograd.Function):
    """Returns the same memory as a separate tensor, and passes the gradient on unchanged."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.data

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


def backward_by_node(
    program: Program,
    values: Sequence[torch.Tensor],
    env: Env,
    shaped: Sequence[Env],
    heads: Mapping[int, torch.Tensor],
    watch: Monitor | None = None,
    seeds: Mapping[int, torch.Tensor] | None = None,
) -> int:
    """Run forward, then backward node by node.

    Shape:
        values: each as its variable.
        heads, seeds: each as the value that it is the gradient of.

    Args:
        values: tensors of the variables; those with requires_grad get a gradient.
        shaped: environments of the operators that need their output shapes.
        watch: called with the gradient of every operator's inputs as ``<node>_backward_output``, followed by a number
            if there are several; zeros for an input that no gradient reaches.
        seeds: gradients of losses with respect to their first inputs, by node index, to be shown; those in `heads` are
            sums if several losses read one value.

    Returns:
        The index of the node whose gradient cannot be computed; -1 if there is none.
    """
    tape, known = record_by_step(program, values, env, shaped)
    grads = dict(heads)
    for step, own, results in reversed(tape):
        try:
            if step.detach_first:  # a loss: its rule has already given the gradient
                in_grads = {step.inputs[0]: seeds[step.node]} if seeds and step.node in seeds else {}
            else:
                in_grads = step_gradients(own, results, grads)
        except Exception:
            return step.node
        if watch is not None and step.node >= 0:
            _show_gradients(program.low.graph.nodes[step.node], step, known, in_grads, watch)
        if not step.detach_first:
            for number, grad in in_grads.items():
                grads[number] = grads[number] + grad if number in grads else grad
    return -1


def step_gradients(
    own: Mapping[int, torch.Tensor], results: Mapping[int, torch.Tensor], grads: Mapping[int, torch.Tensor]
) -> dict[int, torch.Tensor]:
    """Return the gradients of a step's inputs from those of its outputs.

    Shape:
        grads: each as its output.
        returns: each as its input.
    """
    outs = [
        (leaf_of(r), grads[n]) for n, r in results.items() if n in grads and r is not None and r.requires_grad
    ]
    ins = [(n, leaf_of(t)) for n, t in own.items() if t.requires_grad]
    if not outs or not ins:
        return {}
    in_grads = torch.autograd.grad(
        [o for o, _ in outs], [t for _, t in ins], [g for _, g in outs], allow_unused=True
    )
    return {number: grad for (number, _), grad in zip(ins, in_grads) if grad is not None}


def _show_gradients(
    node: Node,
    step: Step,
    known: Mapping[int, torch.Tensor],
    found: Mapping[int, torch.Tensor],
    watch: Monitor,
) -> None:
    """Show the monitor the gradients of an operator's inputs under MXNet's names."""
    for position, number in enumerate(step.inputs):
        suffix = "" if len(step.inputs) == 1 else str(position)
        grad = found.get(number)
        watch(
            f"{node.name}_backward_output{suffix}",
            torch.zeros_like(leaf_of(known[number])) if grad is None else grad,
        )
