"""`batching`: operations of a block of plain PyTorch are recorded and run together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch

from ...native import core
from ..errors import StateError, user_line
from . import values as value_methods
from .calls import GROUPS, REPEATED, changes_argument, describe, is_like, name_of
from .operands import SHARED, batched, joined, range_of
from .rules import Group

Tensor = torch.Tensor

_current = threading.local()


class Run:
    """A block whose operations run together; made by `batching`.

    Attributes:
        calls: number of calls of torch that ran.
        recorded: number of operations of the program.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.recorded = 0
        self._recorder: Any = None
        self._groups: dict[int, tuple[int, int]] = {}
        self._reads: dict[str, int] = {}

    def __enter__(self) -> Run:
        if getattr(_current, "run", None) is not None:
            raise StateError(f"batching: a batching block is open already; use the outer one (at {user_line()})")
        if self._recorder is not None or self.recorded:
            raise StateError(f"batching: this block has run; call batching() again (at {user_line()})")
        if core is not None:
            value_methods.prepare()
            self._recorder = core.Recorder(self)
            torch.overrides._push_mode(self._recorder)  # type: ignore[attr-defined]
        _current.run = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _current.run = None
        if self._recorder is None:
            return
        torch.overrides._pop_mode()  # type: ignore[attr-defined]
        try:
            if kind is None:
                self._compute(None)
                for value in self._recorder.values():
                    value._settle(value.tensor)
        finally:
            self.recorded = self._recorder.recorded
            self._recorder.close()
            self._recorder = None

    # called by the recorder

    def describe(self, *call: Any) -> Any:
        """Describe a call; see `calls.describe`."""
        with torch._C.DisableTorchFunction():
            return describe(*call)

    def eager(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Run a call at once."""
        kwargs = kwargs or {}
        if changes_argument(function, args, kwargs):
            return self.in_place(function, args, kwargs)
        if is_like(function):
            with torch._C.DisableTorchFunction():
                given = [_replaced(each, _empty) for each in args]
                return function(*given, **{name: _replaced(each, _empty) for name, each in kwargs.items()})
        found: list[Any] = []
        _replaced((args, kwargs), found.append)
        if found:
            self._read(found)
        with torch._C.DisableTorchFunction():
            given = [_replaced(each, _tensor) for each in args]
            return function(*given, **{name: _replaced(each, _tensor) for name, each in kwargs.items()})

    def in_place(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Run a call that changes a tensor."""
        kwargs = kwargs or {}
        target = args[0] if args else None
        is_value = type(target) is core.RecordedValue and target._owner() is self  # type: ignore[union-attr]
        if not is_value or kwargs.get("out") is not None:
            self._compute(None)  # recorded calls read the tensor as it was
            with torch._C.DisableTorchFunction():
                given = [_replaced(each, _tensor) for each in args]
                return function(*given, **{name: _replaced(each, _tensor) for name, each in kwargs.items()})
        if target._has_views():
            raise StateError(
                f"batching: {name_of(function)} changes a tensor that shares memory with another one; write the result"
                f" to a new tensor, or clone() it before (at {user_line()})"
            )
        with torch._C.DisableTorchFunction():
            clone = target.tensor.clone()
            given = [clone, *[_replaced(each, _tensor) for each in args[1:]]]
            result = function(*given, **{name: _replaced(each, _tensor) for name, each in kwargs.items()})
        target._become(_recorded_clone(self, clone))
        return target if result is clone else result

    def tensor_of(self, value: Any) -> Tensor:
        """Return the tensor of a value, with all that it needs."""
        if value._source() is None:
            self._read([value])
        source, offset, shape = value._source()
        with torch._C.DisableTorchFunction(), torch.set_grad_enabled(value.requires_grad):
            return range_of(source, offset, shape)

    # computing

    def _read(self, values: Sequence[Any]) -> None:
        line = user_line()
        self._reads[line] = self._reads.get(line, 0) + 1
        self._compute(values)

    def _compute(self, values: Sequence[Any] | None) -> None:
        recorder = self._recorder
        with torch._C.DisableTorchFunction():
            for number in range(recorder.plan(values)):
                group_number, count, sizes, operands = recorder.batch(number, REPEATED)
                group = GROUPS[group_number]
                outs, is_shared = _run(group, count, sizes, operands)
                recorder.store(number, outs, is_shared)
                calls, nodes = self._groups.get(group_number, (0, 0))
                self._groups[group_number] = calls + 1, nodes + count
                self.calls += 1


def _run(group: Group, count: int, sizes: list[int] | None, operands: tuple[Any, ...]) -> tuple[list[Tensor], bool]:
    """Run a batch.

    Returns:
        The results, and True if they are those of every node.
    """
    with ExitStack() as stack:
        if group.needs_grad != torch.is_grad_enabled():
            stack.enter_context(torch.set_grad_enabled(group.needs_grad))
        for device, dtype in group.autocast:
            stack.enter_context(torch.autocast(device, dtype))
        shared = [each[0] == SHARED for each in operands]
        if count == 1 or (all(shared) and not group.is_random):
            outs = group.call([range_of(*each[1:]) if each[0] == SHARED else batched(each, 1)[0] for each in operands])
            return _listed(outs), True
        if sizes is not None:
            return _listed(_run_rows(group, count, sizes, operands, shared)), False
        given = [range_of(*each[1:]) if each[0] == SHARED else batched(each, count) for each in operands]
        if all(shared):
            given[0], shared[0] = given[0].expand(count, *given[0].shape), False
        return _listed(group.rule(group, given, shared, count)), False


def _run_rows(
    group: Group, count: int, sizes: list[int], operands: tuple[Any, ...], shared: list[bool]
) -> Any:
    """Run a batch of results that differ in their first dimension, as rows."""
    given = []
    repeated = group.repeated or ()
    for number, (operand, is_shared, tail) in enumerate(zip(operands, shared, group.tails)):
        if is_shared and (number in repeated or group.rule.__name__ == "direct" and number):
            given.append(range_of(*operand[1:]))
        elif is_shared:
            row = range_of(*operand[1:])
            given.append(row.expand(count, *row.shape).reshape(-1, *tail))
        else:
            given.append(joined(operand, tail, count))
    return group.call(given)


def _listed(result: Any) -> list[Tensor]:
    outs = [result] if isinstance(result, torch.Tensor) else list(result)
    return [each if each.is_contiguous() else each.contiguous() for each in outs]


def _tensor(item: Any) -> Any:
    return item.tensor


def _empty(item: Any) -> Any:
    return torch.empty(item.shape, dtype=item.dtype, device=item.device)


def _replaced(item: Any, change: Callable[[Any], Any]) -> Any:
    """Return arguments with values replaced."""
    if type(item) is core.RecordedValue:  # type: ignore[union-attr]
        return change(item)
    if isinstance(item, (tuple, list)) and not isinstance(item, torch.Size):
        found = [_replaced(each, change) for each in item]
        return type(item)(*found) if hasattr(item, "_fields") else type(item)(found)
    if isinstance(item, dict):
        return {name: _replaced(each, change) for name, each in item.items()}
    return item


def _recorded_clone(run: Run, tensor: Tensor) -> Any:
    """Return a value for a tensor."""
    return run._recorder.__torch_function__(torch.Tensor.clone, (), (tensor,), None)


def batching() -> Run:
    """Record the operations of a block of PyTorch, and run equal ones of many examples together."""
    return Run()
