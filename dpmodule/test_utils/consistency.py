"""The same symbol on several devices or in several element types."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base import ArgumentError
from ..executor import Executor
from ..ndarray import NDArray, array
from ..symbol import Symbol
from .compare import assert_almost_equal
from .tolerance import Tolerance, get_tols

_log = logging.getLogger(__name__)


def _bind(
    sym: Symbol | Sequence[Symbol], ctx_list: Sequence[Mapping[str, Any]], grad_req: Any
) -> list[Executor]:
    symbols = [sym] * len(ctx_list) if isinstance(sym, Symbol) else list(sym)
    if len(ctx_list) < 2 or len(symbols) != len(ctx_list):
        raise ArgumentError(
            f"{len(symbols)} symbols and {len(ctx_list)} entries in ctx_list; expected as many, and two at least"
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
    """Give all executors the same values; random where none were given, added to the two dicts."""
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
    """Return for each executor the first one's outputs, rounded to the coarsest dtype of each output."""
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
    """Compares executors' arrays with the truth, and raises or logs what differs."""

    def __init__(self, rtol: Tolerance, atol: Tolerance, equal_nan: bool, raise_on_err: bool) -> None:
        self.rtol, self.atol = rtol, atol
        self.equal_nan, self.raise_on_err = equal_nan, raise_on_err

    def check(self, what: str, found: Any, right: Any, kinds: tuple[Any, Any] | None = None) -> None:
        """Compare two arrays; `kinds` are the dtypes of the first outputs, which may be the coarser ones."""
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
    """Compare the outputs, and after training the gradients, of all runs but the best."""
    kinds = [executor.outputs[0].dtype for executor in executors]
    for i, executor in enumerate(executors):
        if i == best:
            continue
        found = {**executor.output_dict, **(executor.grad_dict if train else {})}
        for name, value in found.items():
            what = f"{'training' if train else 'predicting'}, run {i} against run {best}, {name}"
            comparison.check(what, value, truth.get(name), (kinds[i], kinds[best]) if train else None)


def _train(executors: Sequence[Executor], grad_req: Any) -> None:
    """Run forward and backward on all, from gradients of zero under "add"."""
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
    """Check that a symbol gives the same outputs and gradients wherever it runs.

    Args:
        sym: one symbol, or one with the same names for each entry of `ctx_list`.
        ctx_list: keyword arguments of `simple_bind` for each run: ``ctx``, shapes, ``type_dict``.
        scale: standard deviation of random arguments, or their range with `use_uniform`.
        grad_req: which gradients to compare, as in `simple_bind`.
        arg_params: the arguments' values by name; missing ones are drawn and added.
        aux_params: the auxiliary states' values by name; missing ones are 0.
        rtol: relative tolerance, see `assert_almost_equal`.
        raise_on_err: raise what differs; otherwise log it.
        ground_truth: right values by the names of outputs and arguments; by default those of the run with
            the most precise first output.
        equal_nan: whether NaN equals NaN at the same place.
        use_uniform: draw uniformly in [-0.92, 0.92) times `scale` instead of normally.
        rand_type: dtype that drawn values are rounded to.

    Returns:
        The right values by name.

    Raises:
        AssertionError: a run differs.
        ArgumentError: fewer than two runs, or symbols that do not match.

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
