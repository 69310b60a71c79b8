"""Checks of gradients against finite differences, and of a symbol in several contexts and types."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import symbol
from ..base import ArgumentError
from ..context import Context, current_context
from ..executor import Executor
from ..ndarray import NDArray, array, cast_storage, zeros
from ..symbol import Symbol
from .compare import Tolerance, assert_almost_equal, default_numeric_eps, get_tolerance, get_tols
from .symbols import Values, check_dtype, check_requested, named_arguments, named_states

Array = np.ndarray[Any, Any]
_PROJECTION = "__random_proj"


def _write(target: NDArray, values: Array, dtype: Any) -> None:
    dense = array(values, ctx=target.context, dtype=dtype)
    target[:] = dense if target.stype == "default" else cast_storage(dense, target.stype)


def _total(executor: Executor, states: Mapping[str, Any], is_train: bool, dtype: Any) -> float:
    """Return the sum of the first output, starting from the given states."""
    for name, value in states.items():
        _write(executor.aux_dict[name], np.asarray(value), dtype)
    executor.forward(is_train=is_train)
    return float(executor.outputs[0].asnumpy().sum(dtype=np.float64))


def numeric_grad(
    executor: Executor,
    location: Mapping[str, Any],
    aux_states: Mapping[str, Any] | None = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: Any = np.float32,
) -> dict[str, Array]:
    """Return the gradients of the sum of an executor's first output by central differences.

    Args:
        executor: computes the output; its arguments are set to `location`.
        location: the arguments' values by name, as NumPy arrays.
        aux_states: initial auxiliary states of each run, by name.
        eps: distance between the two points of a difference.

    Returns:
        Arrays of `dtype` by name; zeros for arguments that are not of a floating-point type.
    """
    check_dtype(dtype, keep=False)
    values = {name: np.array(value, order="C") for name, value in location.items()}
    states = aux_states or {}
    for name, value in values.items():
        _write(executor.arg_dict[name], value, dtype)
    grads = {name: np.zeros(value.shape, dtype=dtype) for name, value in values.items()}
    for name, value in values.items():
        if value.dtype.kind != "f":
            continue
        flat, grad = value.reshape(-1), grads[name].reshape(-1)
        for i in range(flat.size):
            kept = flat[i]
            totals = []
            for step in (eps / 2, -eps / 2):
                flat[i] = kept + step
                _write(executor.arg_dict[name], value, dtype)
                totals.append(_total(executor, states, use_forward_train, dtype))
            flat[i] = kept
            grad[i] = (totals[0] - totals[1]) / eps
        _write(executor.arg_dict[name], value, dtype)
    return grads


def _requests(sym: Symbol, grad_nodes: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    if isinstance(grad_nodes, Mapping):
        return dict(grad_nodes)
    if grad_nodes is None or isinstance(grad_nodes, (list, tuple)):
        return dict.fromkeys(sym.list_arguments() if grad_nodes is None else grad_nodes, "write")
    raise ArgumentError(
        f"grad_nodes is {type(grad_nodes).__name__}, expected a list or dict of argument names"
    )


def _gradients(
    starts: Mapping[str, Array], stypes: Mapping[str, str] | None, ctx: Context, dtype: Any
) -> dict[str, NDArray]:
    """Return arrays for the gradients; sparse ones start empty, dense ones with random values."""
    grads = {name: array(start, ctx=ctx, dtype=dtype) for name, start in starts.items()}
    for name, stype in (stypes or {}).items():
        if name in grads and stype in ("row_sparse", "csr"):
            grads[name] = zeros(grads[name].shape, ctx=ctx, dtype=grads[name].dtype, stype=stype)
    return grads


def check_numeric_gradient(
    sym: Symbol,
    location: Values,
    aux_states: Values | None = None,
    numeric_eps: Tolerance = None,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    grad_nodes: Sequence[str] | Mapping[str, str] | None = None,
    use_forward_train: bool = True,
    ctx: Context | None = None,
    grad_stype_dict: Mapping[str, str] | None = None,
    dtype: Any = np.float32,
) -> None:
    """Check a symbol's gradients against finite differences.

    The output is multiplied by random weights in [0.1, 1.1) and summed, so that every element matters.

    Args:
        sym: a symbol with one output.
        location: the arguments' values, in order or by name.
        aux_states: the auxiliary states' values, in order or by name.
        numeric_eps: distance between the two points of a difference, see `default_numeric_eps`.
        rtol: relative tolerance, see `assert_almost_equal`.
        grad_nodes: names of the arguments to check, or "write", "add" or "null" by name; all by default.
        use_forward_train: True to run in training mode.
        ctx: context of the run.
        grad_stype_dict: storage types of gradients by name.

    Raises:
        AssertionError: a gradient differs.
        ArgumentError: the step is too small for `dtype`, or an argument is invalid.

    Example:
        >>> check_numeric_gradient(mx.sym.sin(mx.sym.Variable("x")), [np.array([0.5, 1.5])])
    """
    check_dtype(dtype, keep=False)
    where = ctx or current_context()
    values = named_arguments(sym, location, where, dtype)
    states = named_states(sym, aux_states, where, dtype)
    points = {name: value.asnumpy() for name, value in values.items()}
    state_points = None if states is None else {name: value.asnumpy() for name, value in states.items()}
    requests = _requests(sym, grad_nodes)

    _, shapes, _ = sym.infer_shape(**{name: value.shape for name, value in values.items()})
    weights = np.random.rand(*shapes[0]) + 0.1  # small weights would lose digits of the output
    loss = symbol.make_loss(sym * symbol.Variable(_PROJECTION))
    values[_PROJECTION] = array(weights, ctx=where, dtype=dtype)
    starts = {name: np.random.normal(0, 0.01, size=values[name].shape) for name in [*requests, _PROJECTION]}
    grads = _gradients(starts, grad_stype_dict, where, dtype)
    executor = loss.bind(where, args=values, args_grad=grads, grad_req=requests, aux_states=states)
    executor.forward(is_train=True)
    eps = get_tolerance(executor.outputs[0], numeric_eps, default_numeric_eps())
    if eps < 1e-5 and dtype != np.float64:
        raise ArgumentError(f"numeric_eps is {eps}, too small for {np.dtype(dtype).name}; use at least 1e-5")
    executor.backward()
    kept = {name: grads[name].copy() for name in requests}
    numeric = numeric_grad(executor, points, state_points, eps, use_forward_train, dtype)
    for name, request in requests.items():
        check_requested(name, request, numeric[name], kept[name], starts[name], rtol, atol, label="NUMERICAL")


_log = logging.getLogger(__name__)


def _bind(
    sym: Symbol | Sequence[Symbol], ctx_list: Sequence[Mapping[str, Any]], grad_req: Any
) -> list[Executor]:
    symbols = [sym] * len(ctx_list) if isinstance(sym, Symbol) else list(sym)
    if len(ctx_list) < 2 or len(symbols) != len(ctx_list):
        raise ArgumentError(
            f"{len(symbols)} symbols and {len(ctx_list)} entries in ctx_list; expected equal numbers, at least two"
        )
    first = symbols[0]
    for other in symbols[1:]:
        if (other.list_arguments(), other.list_outputs()) != (first.list_arguments(), first.list_outputs()):
            raise ArgumentError("the symbols have different arguments or outputs; expected the same names")
    return [each.simple_bind(grad_req=grad_req, **place) for each, place in zip(symbols, ctx_list)]


def _fill(
    executors: Sequence[Executor],
    args: dict[str, Any],
    auxs: dict[str, Any],
    scale: float,
    uniform: bool,
    kind: Any,
) -> None:
    """Set all executors to the same values; missing ones are random and added to the two dicts."""
    for name, like in sorted(executors[0].arg_dict.items()):
        if name not in args:
            if uniform:
                drawn = np.random.uniform(-0.92 * scale, 0.92 * scale, size=like.shape)
            else:
                drawn = np.random.normal(scale=scale, size=like.shape)
            args[name] = drawn.astype(kind)
    for name in executors[0].aux_dict:
        auxs.setdefault(name, 0)
    for executor in executors:
        for name, target in executor.arg_dict.items():
            target[:] = args[name]
        for name, target in executor.aux_dict.items():
            target[:] = auxs[name]


def _coarser(one: Any, other: Any) -> Any:
    return one if np.dtype(one).itemsize < np.dtype(other).itemsize else other


def _head_gradients(executors: Sequence[Executor]) -> list[list[NDArray]]:
    """Return the first executor's outputs for each executor, rounded to the coarsest dtype of each output."""
    heads: list[list[NDArray]] = [[] for _ in executors]
    for column in zip(*(executor.outputs for executor in executors)):
        dtype = column[0].dtype
        for output in column[1:]:
            dtype = _coarser(output.dtype, dtype)
        rounded = column[0].asnumpy().astype(dtype)
        for head, output in zip(heads, column):
            head.append(array(rounded, ctx=output.context, dtype=output.dtype))
    return heads


class _Comparison:
    """Comparison of executors' arrays with the expected ones, which raises or logs differences."""

    def __init__(self, rtol: Tolerance, atol: Tolerance, equal_nan: bool, raise_on_err: bool) -> None:
        self.rtol, self.atol = rtol, atol
        self.equal_nan, self.raise_on_err = equal_nan, raise_on_err

    def check(self, what: str, found: Any, right: Any, kinds: tuple[Any, Any] | None = None) -> None:
        """Compare two arrays; `kinds` are the dtypes of the first outputs, which may be coarser."""
        if found is None or right is None:
            if found is not right:
                raise AssertionError(f"{what}: one side has no gradient")
            return
        rtol, atol = self.rtol, self.atol
        if kinds is not None:
            coarse = [np.empty(0, _coarser(each.dtype, kind)) for each, kind in zip((found, right), kinds)]
            rtol, atol = get_tols(coarse[0], coarse[1], rtol, atol)
        try:
            assert_almost_equal(found, right, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        except AssertionError as error:
            if self.raise_on_err:
                raise AssertionError(f"{what}: {error}") from None
            _log.warning("%s: %s", what, error)


def _compare(
    comparison: _Comparison,
    executors: Sequence[Executor],
    best: int,
    truth: Mapping[str, Any],
    *,
    train: bool,
) -> None:
    """Compare the outputs, and after training the gradients, of all runs except the best."""
    dtypes = [executor.outputs[0].dtype for executor in executors]
    for i, executor in enumerate(executors):
        if i == best:
            continue
        found = {**executor.output_dict, **(executor.grad_dict if train else {})}
        for name, value in found.items():
            what = f"{'training' if train else 'predicting'}, run {i} against run {best}, {name}"
            comparison.check(what, value, truth.get(name), (dtypes[i], dtypes[best]) if train else None)


def _train(executors: Sequence[Executor], grad_req: Any) -> None:
    """Run forward and backward on all; gradients with "add" start at zero."""
    for executor in executors:
        for grad in executor.grad_arrays if grad_req == "add" else ():
            if grad is not None:
                grad[:] = 0
        executor.forward(is_train=True)
    for executor, heads in zip(executors, _head_gradients(executors)):
        executor.backward(heads)


def check_consistency(
    sym: Symbol | Sequence[Symbol],
    ctx_list: Sequence[Mapping[str, Any]],
    scale: float = 1.0,
    grad_req: Any = "write",
    arg_params: dict[str, Any] | None = None,
    aux_params: dict[str, Any] | None = None,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    raise_on_err: bool = True,
    ground_truth: Mapping[str, Any] | None = None,
    equal_nan: bool = False,
    use_uniform: bool = False,
    rand_type: Any = np.float64,
) -> Any:
    """Check that a symbol has the same outputs and gradients in all contexts and types.

    Args:
        sym: one symbol, or one with the same names for each entry of `ctx_list`.
        ctx_list: keyword arguments of `simple_bind` for each run: ``ctx``, shapes, ``type_dict``.
        scale: standard deviation of random arguments, or their range with `use_uniform`.
        grad_req: gradients to compare, as in `simple_bind`.
        arg_params: the arguments' values by name; missing ones are random and added.
        aux_params: the auxiliary states' values by name; missing ones are 0.
        rtol: relative tolerance, see `assert_almost_equal`.
        raise_on_err: True to raise for differences, False to log them.
        ground_truth: expected values by the names of outputs and arguments; by default those of the run with
            the most precise first output.
        equal_nan: True to treat NaN as equal to NaN.
        use_uniform: True to draw uniformly in [-0.92, 0.92) times `scale` instead of normally.
        rand_type: dtype to which random values are rounded.

    Returns:
        The expected values by name.

    Raises:
        AssertionError: a run differs.
        ArgumentError: there are fewer than two runs, or the symbols do not match.

    Example:
        >>> net = mx.sym.FullyConnected(num_hidden=3, name="fc")
        >>> runs = [{"ctx": mx.cpu(i), "fc_data": (2, 4), "type_dict": {"fc_data": np.float32}} for i in (0, 1)]
        >>> sorted(check_consistency(net, runs))
        ['fc_bias', 'fc_data', 'fc_output', 'fc_weight']
    """
    executors = _bind(sym, ctx_list, grad_req)
    args = {} if arg_params is None else arg_params
    auxs = {} if aux_params is None else aux_params
    _fill(executors, args, auxs, scale, use_uniform, rand_type)
    comparison = _Comparison(rtol, atol, equal_nan, raise_on_err)
    for executor in executors:
        executor.forward(is_train=False)
    sizes = [np.dtype(executor.outputs[0].dtype).itemsize for executor in executors]
    best = sizes.index(max(sizes))
    truth = dict(executors[best].output_dict) if ground_truth is None else ground_truth
    _compare(comparison, executors, best, truth, train=False)
    if grad_req == "null":
        return truth
    _train(executors, grad_req)
    if ground_truth is None:
        truth = {**executors[best].output_dict, **executors[best].grad_dict}
    _compare(comparison, executors, best, truth, train=True)
    return truth
