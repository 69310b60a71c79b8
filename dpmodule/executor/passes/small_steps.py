"""Run consecutive small operators in one call of the extension, without torch's overhead for each.

For prediction only: lookups, sums and means, arithmetic, activations, dense layers, concatenations, slices, changes of
shape, and products of pairs of matrices. Results differ by rounding.

Memory: weights are packed as in `dense_layers`.

Needs:
    storage: dense
    rank: at most four axes that differ in their strides; arrays not empty, of at most 32,768 numbers
    type: float32 on the CPU, indices of any type; others run one by one
    layout: contiguous
    gradients: none recorded; else operators run one by one
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from struct import Struct
from typing import Any, NamedTuple

import torch

from ..._core import torch_private
from ...base import MXNetError
from ...ops import write_tracking
from ...ops.dtypes import torch_dtype
from ...ops.nn.activation import activation_name
from ...ops.nn.linear import ACTIVATIONS, FEW_ROWS, is_float32_cpu, kernels, pack, packed_kernel
from ...ops.shapes import infer_shape, normal_axes, normal_axis, prod
from ...ops.spec import Env, Op
from ..lowering import Lowered, Step
from ..packed_weights import TensorVersions, packed
from .dense_layers import DenseLayers, KeptWeights

Tensor = torch.Tensor
Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
_Chains = tuple[tuple[int, ...], ...]

_MAX_NUMBERS = 2**15
"""Numbers of an array from which torch's overhead hardly matters."""
_MIN_STEPS = 6
"""Steps that compute something below which torch's overhead for each is smaller than that of a call."""
_MIN_RUN, _MAX_SCATTERED = 4, 2**10
"""Numbers in a row, and most numbers of an array with shorter rows or with gaps, which are read one by one."""
_MAX_SUMMED = 2**10
"""Numbers that may be added up one after the other without losing precision."""
_MAX_PLANS = 64
_MAX_KNOWN = 8
_AXES = 4
_ROW = Struct("=18q3d8q")
_KINDS = ("add", "sub", "mul", "div", "first", "sum", "lookup", "product", "dense")
_LIMITS = 0.0, torch.inf  # of relu
_BINARY = {
    f"{family}_{kind}": kind for family in ("elemwise", "broadcast") for kind in ("add", "sub", "mul", "div")
}
_BINARY["square"] = "mul"
_SCALAR = {"_plus_scalar": "add", "_minus_scalar": "sub", "_mul_scalar": "mul", "_div_scalar": "div"}
_INDICES = (torch.int64, torch.int32, torch.float32, torch.float64)
_NULL, _ARENA, _GIVEN = 0, 1, 2


class _UnsupportedError(Exception):
    """Raised for shapes and types that the extension lacks."""


class _Value(NamedTuple):
    """A value.

    Attributes:
        memory: index of an address.
        begin: numbers from the address to the value.
        strides: in numbers.
    """

    memory: int
    begin: int
    shape: Shape
    strides: Shape
    dtype: torch.dtype = torch.float32

    @property
    def is_contiguous(self) -> bool:
        """True if its numbers follow each other."""
        return all(n == 1 or s == want for n, s, want in zip(self.shape, self.strides, _strides(self.shape)))


def _strides(shape: Shape) -> Shape:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


class _StepPlan(NamedTuple):
    """The call for given shapes and types.

    Attributes:
        size: numbers in the memory for intermediate results.
        chains: dense layers with packed weights: their weights' positions among the parameters.
        results: shapes of the outputs, or the indices of the inputs that they are.
    """

    rows: bytes
    size: int
    chains: _Chains
    results: list[Shape | int]


class _StepPlanner:
    """Makes the plan of a run.

    Args:
        given: shapes and types of the values that the run reads, by number.
        outputs: numbers of its results that are read later.

    Attributes:
        values: all values so far, by number.
    """

    def __init__(
        self, low: Lowered, given: dict[int, tuple[Shape, torch.dtype]], outputs: Sequence[int]
    ) -> None:
        self._low = low
        self.values = {
            n: _Value(_GIVEN + i, 0, shape, _strides(shape), dtype)
            for i, (n, (shape, dtype)) in enumerate(given.items())
        }
        first = _GIVEN + len(given)
        self._results = {n: first + i for i, n in enumerate(outputs)}
        self._first_pack = first + len(outputs)
        self._rows: list[bytes] = []
        self._size = 0
        self._chains: list[tuple[int, ...]] = []
        self._packs = 0

    def plan(self, steps: Sequence[Step]) -> _StepPlan:
        """Return the plan for some steps."""
        for step in steps:
            op, a = self._low.operator(step)
            if op is not None:
                _RULES.get(op.name, _view)(self, step, op, a)
        results = [self._result(n, memory) for n, memory in self._results.items()]
        return _StepPlan(b"".join(self._rows), self._size, tuple(self._chains), results)

    def read(self, number: int) -> _Value:
        """Return a float32 value."""
        value = self.values[number]
        if value.dtype is not torch.float32:
            raise _UnsupportedError
        return value

    def contiguous(self, value: _Value) -> _Value:
        """Return a value, copied unless its numbers follow each other."""
        return value if value.is_contiguous else self.copy(value, self.new(-1, value.shape))

    def _result(self, number: int, memory: int) -> Shape | int:
        value = self.values[number]
        if value.dtype is not torch.float32:  # indices, which no step computes
            if number in self._low.kept():
                raise _UnsupportedError
            return value.memory - _GIVEN
        if value.memory != memory or not value.is_contiguous:
            self.copy(value, self.new(number, value.shape))
        return value.shape

    def inferred(self, step: Step, op: Op, a: Any) -> list[Shape]:
        """Return the shapes of a step's results."""
        given: list[Any] = [self.values[n].shape for n in step.inputs]
        found: Any = infer_shape(op, a, given, [None] * len(step.outputs))[1]
        return [tuple(shape) for shape in found]

    def new(self, number: int, shape: Shape) -> _Value:
        """Return memory for a result, or with number -1 for an intermediate one."""
        if not 0 < prod(shape) <= _MAX_NUMBERS:
            raise _UnsupportedError
        memory, begin = self._results.get(number, _ARENA), 0
        if memory == _ARENA:
            begin = self._size
            self._size += -(-prod(shape) // 16) * 16
        value = _Value(memory, begin, shape, _strides(shape))
        if number >= 0:
            self.values[number] = value
        return value

    def copy(self, value: _Value, to: _Value) -> _Value:
        """Copy a value."""
        return self.elementwise("first", value, None, to)

    def elementwise(
        self,
        kind: str,
        left: _Value,
        right: _Value | None,
        to: _Value,
        number: float = 0.0,
        activation: str = "",
    ) -> _Value:
        """Compute `to`, to whose shape the others are broadcast, from two values or a value and a number."""
        axes: list[tuple[int, int, int, int]] = []
        for size, *gaps in zip(to.shape, *(_gaps(v, len(to.shape)) for v in (left, right, to))):
            if size == 1:
                continue
            if axes and all(before == gap * size for before, gap in zip(axes[-1][1:], gaps)):
                size *= axes.pop()[0]
            axes.append((size, *gaps))
        if not axes or axes[-1][3] != 1:
            axes.append((1, 0, 0, 1))
        if len(axes) > _AXES:
            raise _UnsupportedError
        sizes, *strides = zip(*[(1, 0, 0, 0)] * (_AXES - len(axes)), *axes)
        is_scattered = sizes[-1] < _MIN_RUN or max(strides[0][-1], strides[1][-1]) > 1
        if is_scattered and prod(sizes) > _MAX_SCATTERED:
            raise _UnsupportedError
        self.row(kind, sizes, strides, [left, right, None, to], number, activation)
        return to

    def row(
        self,
        kind: str,
        sizes: Sequence[int],
        gaps: Sequence[Sequence[int]],
        operands: Sequence[_Value | None],
        number: float = 0.0,
        activation: str = "",
    ) -> None:
        """Append a step; the operands are `a`, `b`, `c` and the result."""
        places = [(_NULL, 0) if v is None else (v.memory, v.begin) for v in operands]
        strides = [gap for each in (*gaps, *[(0,) * _AXES] * (3 - len(gaps))) for gap in each]
        numbers = _KINDS.index(kind), ACTIVATIONS[activation], *sizes, *strides
        self._rows.append(_ROW.pack(*numbers, *_LIMITS, number, *(n for place in places for n in place)))

    def packed(self, weights: list[int]) -> list[_Value]:
        """Return the packed weights of dense layers."""
        self._chains.append(tuple(weights))
        first, self._packs = self._first_pack + self._packs, self._packs + len(weights)
        return [_Value(first + i, 0, (), ()) for i in range(len(weights))]


def _gaps(value: _Value | None, axes: int) -> Sequence[int]:
    """Return the strides of a value that is broadcast to some axes."""
    if value is None:
        return [0] * axes
    strides = [0 if size == 1 else stride for size, stride in zip(value.shape, value.strides)]
    return [0] * (axes - len(strides)) + strides


# Rules: each appends the rows of a step


def _binary(plan: _StepPlanner, step: Step, op: Op, a: Any) -> None:
    left, right = (plan.read(n) for n in (step.inputs * 2)[:2])
    plan.elementwise(_BINARY[op.name], left, right, plan.new(step.outputs[0], plan.inferred(step, op, a)[0]))


def _scalar(plan: _StepPlanner, step: Step, op: Op, a: Any) -> None:
    value = plan.read(step.inputs[0])
    result = plan.new(step.outputs[0], value.shape)
    plan.elementwise(_SCALAR[op.name], value, None, result, float(a.scalar))


def _activation(plan: _StepPlanner, step: Step, op: Op, a: Any) -> None:
    value, name = plan.read(step.inputs[0]), activation_name(op.name, a)
    plan.elementwise("first", value, None, plan.new(step.outputs[0], value.shape), activation=name)


def _sum(plan: _StepPlanner, step: Step, op: Op, a: Any) -> None:
    value = plan.contiguous(plan.read(step.inputs[0]))
    rank = len(value.shape)
    axes = normal_axes(a.axis or range(rank), rank)
    first, last = axes[0], axes[-1] + 1
    outer, summed, inner = prod(value.shape[:first]), prod(value.shape[first:last]), prod(value.shape[last:])
    if a.exclude or last - first != len(axes) or summed > _MAX_SUMMED:
        raise _UnsupportedError
    result = plan.new(step.outputs[0], plan.inferred(step, op, a)[0])
    factor = 1.0 if op.name == "sum" else 1 / summed
    plan.row("sum", (outer, summed, inner, 0), (), (value, None, None, result), factor)


def _lookup(plan: _StepPlanner, step: Step, op: Op, a: Any) -> None:
    indices, table = plan.contiguous(plan.values[step.inputs[0]]), plan.read(step.inputs[1])
    if indices.dtype not in _INDICES:
        raise _UnsupportedError
    result = plan.new(step.outputs[0], (*indices.shape, table.shape[1]))
    sizes = prod(indices.shape), *table.shape[::-1], _INDICES.index(indices.dtype)
    plan.row("lookup", sizes, (), (indices, table, None, result))


def _cast(plan: _StepPlanner, step: Step, op: Op, a: Any) -> None:
    value = plan.values[step.inputs[0]]
    if torch_dtype(a.dtype) is not value.dtype:
        raise _UnsupportedError
    plan.values[step.outputs[0]] = value


def _concat(plan: _StepPlanner, step: Step, op: Op, a: Any) -> None:
    result = plan.new(step.outputs[0], plan.inferred(step, op, a)[0])
    axis, begin = normal_axis(a.dim, len(result.shape)), result.begin
    for value in map(plan.read, step.inputs):
        plan.copy(value, result._replace(begin=begin, shape=value.shape))
        begin += value.shape[axis] * result.strides[axis]


def _product(plan: _StepPlanner, step: Step, op: Op, a: Any) -> None:
    left, right = map(plan.read, step.inputs)
    if len(left.shape) != 3 or len(right.shape) != 3:
        raise _UnsupportedError
    result = plan.new(step.outputs[0], plan.inferred(step, op, a)[0])
    order = (0, 2, 1, 3), (0, 1, 2, 3)
    gaps = [
        [(*v.strides, 0)[i] for i in order[not turned]]
        for v, turned in ((left, a.transpose_a), (right, a.transpose_b))
    ]
    sizes = *result.shape, left.shape[1 if a.transpose_a else 2]
    plan.row("product", sizes, gaps, (left, right, None, result))


def _dense(plan: _StepPlanner, step: Step, op: Op, a: Any) -> None:
    call: Any = step.function
    value = plan.contiguous(plan.read(step.inputs[0]))
    lead = value.shape[:1] if call.flattens else value.shape[:-1]
    rows, layers = prod(lead), call.split(step.inputs[1:])
    weights = [plan.read(layer[0]) for layer in layers]
    features = [prod(value.shape) // max(rows, 1), *(weight.shape[0] for weight in weights)]
    for (_, *bias), weight, expected in zip(layers, weights, features):
        fits = weight.shape[1:] == (expected,) and all(plan.read(b).shape == weight.shape[:1] for b in bias)
        if not fits or packed_kernel(rows, weight.shape[0], weight.shape[1], True) != "native":
            raise _UnsupportedError
    packs = weights if rows <= FEW_ROWS else plan.packed([layer[0] for layer in layers])
    for (_, *bias), weight, read, activation in zip(layers, weights, packs, call.activations):
        number = step.outputs[0] if read is packs[-1] else -1
        result = plan.new(number, (*lead, weight.shape[0]))
        operands = value, read, plan.read(bias[0]) if bias else None, result
        plan.row("dense", (rows, *weight.shape, 0), (), operands, activation=activation)
        value = result


def _view(plan: _StepPlanner, step: Step, op: Op, a: Any) -> None:
    value = plan.contiguous(plan.read(step.inputs[0]))
    whole = torch.empty(value.shape, dtype=torch.float32)
    try:
        found = step.function(whole)
    except RuntimeError:  # which the step itself raises again
        raise _UnsupportedError from None
    for n, part in zip(step.outputs, found if isinstance(found, (tuple, list)) else (found,)):
        if part.untyped_storage().data_ptr() != whole.data_ptr():
            raise _UnsupportedError
        begin = value.begin + int(part.storage_offset())
        plan.values[n] = _Value(value.memory, begin, tuple(part.shape), tuple(part.stride()))


_RULES: dict[str, Callable[[_StepPlanner, Step, Op, Any], None]] = {
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_SCALAR, _scalar),
    **dict.fromkeys(("Activation", "LeakyReLU", "relu", "sigmoid", "tanh"), _activation),
    **dict.fromkeys(("mean", "sum"), _sum),
    "Cast": _cast,
    "Concat": _concat,
    "Embedding": _lookup,
    "FullyConnected": _dense,
    "batch_dot": _product,
}


class _KnownParameters(NamedTuple):
    """Checked parameters.

    Attributes:
        versions: None if not all writes to them are counted; then they are checked in every call.
        shapes: empty if the extension does not support them.
        plans: by shapes and types of the data.
        packs: packed weights while they are kept, and their addresses, by the chains.
    """

    versions: TensorVersions | None
    shapes: Shapes
    addresses: list[int]
    plans: dict[Any, _StepPlan | None]
    packs: dict[_Chains, tuple[list[weakref.ref[KeptWeights]], list[int]]]


class SmallRun:
    """Some consecutive steps.

    Attributes:
        inputs: numbers of the values that they read and do not compute.
        outputs: numbers of the results that are read later.
    """

    def __init__(self, low: Lowered, steps: Sequence[Step], outputs: list[int]) -> None:
        self._low, self._steps, self.outputs = low, steps, outputs
        made = {n for step in steps for n in step.outputs}
        held = [n for step in steps if _takes_parameters(low, step) for n in step.inputs[1:]]
        self._parameters = [n for n in dict.fromkeys(held) if n < low.num_variables]
        read = dict.fromkeys(n for step in steps for n in step.inputs)
        self._data = [n for n in read if n not in made and n not in self._parameters]
        self.inputs = [*self._data, *self._parameters]
        self._plans: dict[Shapes, dict[Any, _StepPlan | None]] = {}
        self._known: dict[int, _KnownParameters] = {}

    def __call__(self, env: Env, *inputs: Tensor) -> list[Tensor] | None:
        """Return the outputs; None if the steps must run one by one."""
        if torch.is_grad_enabled():
            return None
        count = len(self._data)
        data, parameters = inputs[:count], inputs[count:]
        if any(x.numel() > _MAX_NUMBERS for x in data):
            return None
        known = self._known.get(id(parameters[0]) if parameters else 0)
        if known is None or known.versions is None or not known.versions.match(parameters):
            known = self._look_at(parameters)
        key = tuple([(x.shape, x.dtype) for x in data])
        plan = known.plans[key] if key in known.plans else self._plan(known, key)
        if plan is None or (plan.chains and known.versions is None) or torch_private.is_transformed(*data):
            return None
        addresses = []
        for x in data:
            if not (x.is_cpu and x.layout is torch.strided and x.is_contiguous()):
                return None
            addresses.append(x.data_ptr())
        results = [
            inputs[of] if isinstance(of, int) else torch.empty(of, dtype=torch.float32) for of in plan.results
        ]
        packs, more = self._packs(known, plan, parameters) if plan.chains else ([], [])
        addresses += known.addresses
        addresses += [result.data_ptr() for result in results]
        kernels().run_steps(plan.rows, torch.get_num_threads(), plan.size, *addresses, *more)
        del packs  # kept alive during the call
        return results

    def _look_at(self, parameters: Sequence[Tensor]) -> _KnownParameters:
        for known in (self._known, self._plans):
            if len(known) >= _MAX_KNOWN:
                known.clear()
        counted = all(map(write_tracking.writes_are_counted, parameters))
        versions = TensorVersions(parameters) if counted else None
        fit = all(map(is_float32_cpu, parameters)) and all(each.is_contiguous() for each in parameters)
        fit = fit and not torch_private.is_transformed(*parameters)
        shapes = tuple([tuple(each.shape) for each in parameters]) if fit else ()
        addresses = [each.data_ptr() for each in parameters] if fit else []
        found = _KnownParameters(versions, shapes, addresses, self._plans.setdefault(shapes, {}), {})
        self._known[id(parameters[0]) if parameters else 0] = found
        return found

    def _plan(self, known: _KnownParameters, key: Any) -> _StepPlan | None:
        if len(known.plans) >= _MAX_PLANS:  # bounds the memory when every batch has a new size
            known.plans.clear()
        plan: _StepPlan | None = None
        if len(known.shapes) == len(self._parameters):
            values = {n: (tuple(shape), dtype) for n, (shape, dtype) in zip(self._data, key)}
            values.update({n: (shape, torch.float32) for n, shape in zip(self._parameters, known.shapes)})
            with suppress(_UnsupportedError, MXNetError):
                plan = _StepPlanner(self._low, values, self.outputs).plan(self._steps)
        return known.plans.setdefault(key, plan)

    def _packs(
        self, known: _KnownParameters, plan: _StepPlan, parameters: Sequence[Tensor]
    ) -> tuple[list[KeptWeights], list[int]]:
        """Return the packed weights of a plan, and their addresses."""
        kept = known.packs.get(plan.chains)
        if kept is not None:
            found = [chain for ref in kept[0] if (chain := ref()) is not None]
            if len(found) == len(kept[0]):
                return found, kept[1]
        found, is_kept = [], True
        for numbers in plan.chains:
            weights = [parameters[self._parameters.index(n)] for n in numbers]
            make = partial(_pack_all, weights)
            cached: KeptWeights | None = packed("dense", weights, make, ("native",) * len(weights))
            is_kept = is_kept and cached is not None
            found.append(make() if cached is None else cached)
        addresses = [each.data_ptr() for chain in found for each in chain if each is not None]
        if is_kept:
            known.packs[plan.chains] = list(map(weakref.ref, found)), addresses
        return found, addresses


def _pack_all(weights: Sequence[Tensor]) -> KeptWeights:
    return KeptWeights(map(pack, weights))


def _takes_parameters(low: Lowered, step: Step) -> bool:
    op, _ = low.operator(step)
    return op is not None and op.name in ("Embedding", "FullyConnected")


def _is_supported(low: Lowered, step: Step) -> bool:
    """Return True if a step may be part of a run."""
    op, a = low.operator(step)
    if op is None or step.needs_shapes or step.own_env or step.keeps or step.detach_first:
        return False
    if op.name == "Embedding":
        return step.inputs[1] < low.num_variables
    if step.takes_env or (step.covers and op.name != "FullyConnected"):
        return False
    if op.name == "FullyConnected":
        return isinstance(step.function, DenseLayers)
    if op.name in ("Activation", "LeakyReLU"):
        return a.act_type in ACTIVATIONS
    return op.name in _RULES or (op.view and len(step.inputs) == 1)


def _is_view(low: Lowered, step: Step) -> bool:
    """Return True if torch computes nothing in a step."""
    op, _ = low.operator(step)
    return op is not None and (op.view or op.name == "Cast")


def runs(low: Lowered, kept: set[int]) -> Iterator[tuple[list[Step], SmallRun | None]]:
    """Yield the steps in lists, in order: runs, and the steps between them.

    Args:
        kept: numbers of the values that are read outside the steps.
    """
    last = {number: at for at, step in enumerate(low.steps) for number in step.inputs}
    end = 0
    has_kernel = hasattr(kernels(), "run_steps")
    for joined, group in groupby(low.steps, lambda step: has_kernel and _is_supported(low, step)):
        members = list(group)
        end += len(members)
        outputs = [n for step in members for n in step.outputs if n in kept or last.get(n, -1) >= end]
        computing = sum(not _is_view(low, step) for step in members)
        runs_at_once = joined and computing >= _MIN_STEPS
        yield members, SmallRun(low, members, outputs) if runs_at_once else None


def small_steps(low: Lowered) -> int:
    """Return the number of runs, which the program makes itself, so that each step can also run alone."""
    return sum(run is not None for _, run in runs(low, low.kept()))
