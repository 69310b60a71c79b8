"""`batching` and `map`: operations of plain PyTorch programs are recorded and run together.

Source: on-the-fly batching follows Neubig, Goldberg, Dyer: "On-the-fly Operation Batching in Dynamic Computation
Graphs", 2017; the schedule is that of the other engines.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch

from ... import native
from ..._core import torch_private
from ..errors import StateError, user_line, wrong_type
from .calls import (
    GROUPS,
    HOOKS,
    LARGEST_CONSTANT,
    REPEATED,
    changed_by,
    changes_description,
    changes_memory,
    describe,
    is_like,
    name_of,
    without_change,
)
from .cells import modules_as_cells
from .driver import ProgramLoop, make_tensors_awaitable
from .explain import BatchingReport
from .operands import RANGES, SHARED, batched, joined, range_of
from .rules import CallGroup, Lengths, direct, join, replaced, set_item
from .values import NotACell, RecordedTensor, is_value, prepare, settle, tensor_of

Tensor = torch.Tensor

_current = threading.local()

WORTH_A_CALL = 7.0
"""Operations per call of torch from which recording pays; calls with padding or by `torch.vmap` count more."""

LARGEST_COPY = 1 << 15
"""Number of elements of tensors that are copied for a change of some of them."""

BLOCKS_BETWEEN_TRIALS, MOST_BLOCKS = 20, 1280
"""Least blocks of one place that run without recording before one is recorded again; twice as many after each trial."""


class Profit:
    """Judges whether recording pays, for every place in the program, by earlier blocks that begin there."""

    def __init__(self) -> None:
        self._left: dict[Hashable, int] = {}
        self._wait: dict[Hashable, int] = {}

    def is_expected(self, site: Hashable) -> bool:
        """Return True if a block that begins at a place should be recorded."""
        left = self._left.get(site, 0)
        if left:
            self._left[site] = left - 1
        return left == 0

    def report(self, site: Hashable, recorded: int, cost: float) -> None:
        """Learn how a block went.

        Args:
            cost: of the calls of torch that computed the recorded operations, as `CallGroup.cost`.
        """
        if recorded >= WORTH_A_CALL * cost:
            self._wait.pop(site, None)
            return
        lacking = WORTH_A_CALL * cost / max(recorded, 1)
        wait = self._wait.get(site, int(BLOCKS_BETWEEN_TRIALS * lacking))
        self._left[site], self._wait[site] = wait, min(2 * wait, MOST_BLOCKS)


_profit = Profit()


class _ProcessChanges:
    """What blocks change for all threads, from the start of the first open block to the end of the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._undo = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._blocks += 1
            if self._blocks > 1:
                return
            if gc.isenabled():  # a collection would walk the program's lists of tensors again and again
                gc.disable()
                self._undo.callback(gc.enable)
            if "torch._dynamo" in sys.modules:
                self._undo.enter_context(torch.compiler.set_stance("force_eager"))
            self._undo.enter_context(modules_as_cells())
            core: Any = native.core
            self._undo.enter_context(torch_private.functions_handled_by(core.function_handler))
            self._undo.enter_context(torch_private.functions_prepared_by(_function_arguments))
            self._undo.enter_context(torch_private.transforms_prepared_by(_transform_arguments))

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                self._undo.close()


_changes = _ProcessChanges()


class Run:
    """A block whose operations run together; created by `batching`.

    Args:
        site: where the block begins, as by `_site`; by default the ``with`` statement.

    Attributes:
        recorded: number of recorded operations.
        calls: number of calls of torch that computed them.
    """

    def __init__(self, site: Hashable = None) -> None:
        self.recorded = self.calls = 0
        self.driver: ProgramLoop | None = None
        self._recorder: Any = None
        self._is_used = False
        self._site = site
        self._trained: dict[int, Any] = {}
        self._undo = ExitStack()
        self._groups: dict[int, tuple[int, int]] = {}
        self._reads: dict[str, int] = {}
        self._cost = 0.0

    def __enter__(self) -> Run:
        if getattr(_current, "run", None) is not None:
            raise StateError(f"batching: a block is open already; record in that one (at {user_line()})")
        if self._is_used:
            raise StateError(
                f"batching: this block has ended; call batching() for a new one (at {user_line()})"
            )
        self._is_used = True
        self._site = self._site or _site(1)
        if _can_record() and _profit.is_expected(self._site):
            prepare()
            core: Any = native.core
            self._recorder = core.Recorder(self)
            self._undo.enter_context(_changes)
            torch_private.push_mode(self._recorder)
            self._undo.callback(torch_private.pop_mode)
        _current.run = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if getattr(_current, "run", None) is not self:
            raise StateError(f"batching: end the block in the thread that started it (at {user_line()})")
        if self._recorder is None:
            _current.run = None
            return
        try:
            if kind is None:
                self.compute(None)
                self._settle()
                _profit.report(self._site, self._recorder.recorded, self._cost)
        finally:
            _current.run = None
            self._undo.close()
            self.recorded = self._recorder.recorded
            self._recorder.close()
            self._recorder = None

    def _settle(self) -> None:
        """Make all values ordinary tensors."""
        recorder = self._recorder
        for value in recorder.values():
            if value._place.is_shared:  # with other examples
                self._give_memory(value)
        self._make_views()
        for source, shape, values, rows in recorder.rows():
            for value, tensor in zip(values, self._unbound(source, shape, rows)):
                settle(value, tensor)
        for value in recorder.values():
            if not self._is_trained(value):
                settle(value, self._separated(value))
        for value in recorder.values():
            settle(value, tensor_of(value))

    @staticmethod
    def _unbound(source: Tensor, shape: torch.Size, rows: list[int]) -> Sequence[Tensor]:
        """Return rows of the results of a batch as tensors with memory of their own."""
        with torch._C.DisableTorchFunction(), torch.set_grad_enabled(source.requires_grad):
            examples = source.reshape(-1, *shape)
            if rows != list(range(len(examples))):
                examples = examples.index_select(0, torch.tensor(rows, device=source.device))
            library: Any = torch
            found: Sequence[Tensor] = library.unbind_copy(examples)
            return found

    def _is_trained(self, value: Any) -> bool:
        """Return True for a tensor that was made in the block and has its gradient there."""
        if not value.requires_grad or not value._place.is_own:
            return False
        tensor = value._place.source[0]
        return tensor.is_leaf and self._trained.setdefault(id(tensor), value) is value

    @property
    def is_recording(self) -> bool:
        """True inside the block, if it is recorded."""
        return self._recorder is not None

    def explain(self) -> BatchingReport:
        """Describe what ran together, and why the rest did not.

        Example:
            >>> with batching() as run:
            ...     sums = [torch.ones(3) * number for number in range(4)]
            >>> run.calls <= run.recorded
            True
        """
        groups = [(GROUPS[number], calls, nodes) for number, (calls, nodes) in self._groups.items()]
        return BatchingReport(groups, self._reads, self._why_not())

    def _why_not(self) -> str:
        """Return why nothing was recorded, or ""."""
        if not self._is_used or self.recorded or self._recorder is not None:
            return ""
        if not _can_record():
            return "the C++ extension is missing, or does not fit the installed torch"
        return "earlier blocks of this line had too few equal operations for recording to pay"

    # called by the recorder

    def describe(self, *call: Any) -> Any:
        """Describe a call; see `calls.describe`."""
        with torch._C.DisableTorchFunction():
            return describe(*call)

    def eager(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Any:
        """Run a call immediately."""
        kwargs = kwargs or {}
        if changed_by(function, args, kwargs) is not None:
            return self.in_place(function, args, kwargs)
        if is_like(function) and args:
            args = (replaced(args[0], RecordedTensor, _empty), *args[1:])
        found: list[Any] = []
        replaced((args, kwargs), RecordedTensor, found.append)
        if found:
            if function in HOOKS:
                self._separate(function, args[0])
            missing = [each for each in found if each._place.source is None]
            if missing:
                self._read(missing)
        result = self._call(function, args, kwargs)
        if getattr(function, "__name__", "") == "backward":
            self._restart()
        return result

    def constant(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Any:
        """Make a tensor that does not depend on other ones.

        Returns:
            The tensor, in a tuple if all equal calls may share it.
        """
        found = self.eager(function, args, kwargs)
        is_plain = type(found) is torch.Tensor and not found.requires_grad and not found.is_pinned()
        return (found,) if is_plain and found.numel() <= LARGEST_CONSTANT else found

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch._C.DisableTorchFunction():
            given, named = replaced((args, kwargs), RecordedTensor, tensor_of)
            return function(*given, **named)

    def in_place(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Any:
        """Run a call that changes a tensor."""
        kwargs = kwargs or {}
        target: Any = args[0] if args else None
        changed: Any = changed_by(function, args, kwargs)
        if changed is None:
            changed = target
        if changed is target and self._changed_without_memory(function, args, kwargs):
            return target
        tensors = _tensors_of(changed)
        self._prepare_change(function, tensors)
        numbers = [tensor_of(each) if is_value(each) else each for each in tensors]
        before = [_description(each) for each in numbers]
        result = self._call(function, args, kwargs)
        if before != [_description(each) for each in numbers]:
            self._recorder.refresh()
            for value, tensor in zip(tensors, numbers):
                if is_value(value) and not value._place.is_own:
                    value._place.become(self._recorder.leaf(tensor))
        return next((value for value, tensor in zip(tensors, numbers) if tensor is result), result)

    def _prepare_change(self, function: Callable[..., Any], tensors: Sequence[Any]) -> None:
        """Compute what reads tensors that will change, and give values among them memory of their own."""
        found = [each for each in tensors if is_value(each)]
        if changes_memory(function) and (found or self._recorder.needs_tensor(tensors[0])):
            raise StateError(
                f"batching: {name_of(function)} gives a tensor of the block other memory; do it before the block (at"
                f" {user_line()})"
            )
        is_alone = 0 < len(found) == len(tensors) and not any(
            value._place.has_views or value._place.is_leaf > value._place.is_shared for value in found
        )
        self._read(found if is_alone else None)  # recorded calls read the tensor as it was
        for value in found:
            self._give_memory(value)
        self._make_views()
        if changes_description(function):
            tensor = tensor_of(found[0]) if found else tensors[0]
            for value in self._recorder.values():  # of the tensor as it was
                if value is not tensors[0] and value._place.is_leaf and value._place.source[0] is tensor:
                    value._place.become(self._recorder.leaf(self._separated(value)))
        elif name_of(function) in ("requires_grad", "requires_grad_"):
            for value in found:
                if value._place.has_views:
                    value._place.become(self._recorder.leaf(self._separated(value)))

    def _changed_without_memory(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Record a change of a value whose memory is its own as a call without a change, if possible."""
        target: Any = args[0] if args else None
        if not is_value(target) or target._place.has_views:
            return False
        if function is torch.Tensor.__setitem__ and target.numel() <= LARGEST_COPY:
            plain: Any = (set_item, args, {})
        else:
            plain = without_change(function, args, kwargs)
        if plain is None or (target.requires_grad and not torch.is_grad_enabled()):
            return False
        result = self._recorder.__torch_function__(plain[0], (), *plain[1:])
        if not is_value(result) or (result.shape, result.dtype) != (target.shape, target.dtype):
            return False
        target._place.become(result)
        return True

    def _give_memory(self, value: Any) -> None:
        """Make the tensor of a value, and of all that share its memory, one that may be changed."""
        while value._place.view is not None:
            value = value._place.view[0]
            if not is_value(value):
                return
        if value._place.is_leaf and not value._place.is_shared:
            return
        source, offset, shape = value._place.whole
        with torch._C.DisableTorchFunction(), torch.set_grad_enabled(source.requires_grad):
            clone = range_of(source, offset, shape).clone()
        value._place.move(self._recorder.leaf(clone))

    def _make_views(self) -> None:
        """Make the values that are views of tensors of the program views in torch, too."""
        for value in self._recorder.views():
            base, function, args, kwargs, output = value._place.view
            if is_value(base) and not base._place.is_leaf:
                continue
            with torch.set_grad_enabled(value.requires_grad or not base.requires_grad):
                found = self._call(function, args, kwargs or {})
            value._place.become(
                self._recorder.leaf(found if isinstance(found, torch.Tensor) else found[output])
            )

    def suspended(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Any:
        """Run a call in an `autograd.Function` or a transformation of `torch.func`, or record again after it."""
        if torch_private.is_in_function() or torch_private.is_in_transform():
            return self._call(function, args, kwargs or {})
        self._recorder.suspend(False)
        return self._recorder.__torch_function__(function, (), args, kwargs)

    def enter_function(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Prepare the arguments of an `autograd.Function`."""
        self._recorder.suspend(True)
        return tuple(replaced(each, RecordedTensor, tensor_of) for each in args)

    def enter_transform(self, args: Any) -> Any:
        """Prepare the arguments of a transformation of `torch.func`."""
        self._read(None)  # what is computed inside would belong to the transformation
        self._recorder.suspend(True)
        return replaced(args, RecordedTensor, tensor_of)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Record a call that did not come through torch's stack of modes."""
        return self._recorder.__torch_function__(function, (), args, kwargs)

    def _separate(self, function: Callable[..., Any], value: Any) -> None:
        """Make a value a tensor of its own, through which all gradients pass."""
        if function is torch.Tensor.retain_grad:
            raise StateError(
                f"batching: retain_grad does not work inside a block; use register_hook (at {user_line()})"
            )
        place = value._place
        if place.is_own:
            return
        if place.uses or place.has_views:
            raise StateError(
                f"batching: {name_of(function)} comes after calls that have read the tensor; call it right after the"
                f" tensor is made (at {user_line()})"
            )
        place.become(self._recorder.leaf(self._separated(value)))

    def _separated(self, value: Any) -> Tensor:
        """Return the tensor of a value as a tensor that nothing else refers to."""
        tensor, needs_grad = tensor_of(value), value.requires_grad
        with torch._C.DisableTorchFunction(), torch.set_grad_enabled(needs_grad):
            return tensor.view_as(tensor)

    def _restart(self) -> None:
        """Forget what is computed, after a backward pass."""
        self.compute(None)
        self._make_views()
        for value in self._recorder.values():
            value._place.become(self._recorder.leaf(tensor_of(value)))
        self._recorder.restart()
        gc.collect(1)

    def tensor_of(self, value: Any) -> Tensor:
        """Return the tensor of a value, with all that it needs."""
        source, offset, shape = self._source_of(value)
        needs_grad = value.requires_grad or not source.requires_grad
        with torch._C.DisableTorchFunction(), torch.set_grad_enabled(needs_grad):
            return range_of(source, offset, shape)

    def number_of(self, value: Any) -> Tensor:
        """Return the tensor of a value, to read a number from it."""
        source, offset, shape = self._source_of(value)
        with torch._C.DisableTorchFunction():
            source = source.detach()
            return source.view(-1)[offset] if len(shape) == 0 else range_of(source, offset, shape)

    def _source_of(self, value: Any) -> tuple[Tensor, int, torch.Size]:
        if getattr(_current, "run", None) is not self:
            raise StateError(
                "batching: a tensor of a block is read in another thread; read it in the thread of the block, or after"
                f" its end (at {user_line()})"
            )
        place = value._place
        if place.source is None or self._recorder.is_traced:
            self._read([value])
        found: tuple[Tensor, int, torch.Size] = place.source
        return found

    # computing

    def _read(self, values: Sequence[Any] | None) -> None:
        calls = self.calls
        self.compute(values)
        if self.calls > calls:
            line = user_line(_TORCH)
            self._reads[line] = self._reads.get(line, 0) + 1

    def compute(self, values: Sequence[Any] | None) -> None:
        """Compute values together; by default all that the program still refers to."""
        recorder = self._recorder
        if recorder.is_traced:
            raise NotACell
        with torch._C.DisableTorchFunction():
            for number in range(recorder.plan(values)):
                group_number, count, sizes, operands = recorder.batch(number, REPEATED)
                group = GROUPS[group_number]
                outs, is_shared = _run(group, count, sizes, operands)
                recorder.store(number, outs, is_shared)
                calls, nodes = self._groups.get(group_number, (0, 0))
                self._groups[group_number] = calls + 1, nodes + count
                self.calls += 1
                self._cost += group.cost(count, sizes is not None)


_TORCH = os.path.dirname(torch.__file__) + os.sep


def _site(depth: int) -> Hashable:
    """Return the place in the code of a caller, without the costly search for its line."""
    frame = sys._getframe(1 + depth)
    return frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_lasti


def _run(
    group: CallGroup, count: int, sizes: tuple[list[int], ...] | None, operands: tuple[Any, ...]
) -> tuple[list[Tensor], bool]:
    """Run a batch.

    Returns:
        The results, and True if they are those of every node.
    """
    with ExitStack() as stack:
        if group.needs_grad != torch.is_grad_enabled():
            stack.enter_context(torch.set_grad_enabled(group.needs_grad))
        for device, dtype in group.autocast:
            stack.enter_context(torch.autocast(device, dtype))
        if group.rule is join:
            found = joined(operands[0], (), count)
            shares_memory = operands[0][0] != RANGES
            return [found.clone() if shares_memory else found], False
        shared = [each[0] == SHARED for each in operands]
        if all(shared) and (count == 1 or not group.is_random):
            return _listed(group.call([range_of(*each[1:]) for each in operands])), True
        if sizes is not None:
            return _listed(_run_rows(group, count, sizes, operands, shared)), False
        given = [range_of(*each[1:]) if each[0] == SHARED else batched(each, count) for each in operands]
        if all(shared):
            given[0], shared[0] = given[0].expand(count, *given[0].shape), False
        return _listed(group.rule(group, given, shared, count)), False


def _run_rows(
    group: CallGroup, count: int, sizes: tuple[list[int], ...], operands: tuple[Any, ...], shared: list[bool]
) -> Any:
    """Run a batch of examples that differ in their first dimension."""
    if group.ragged is not None:
        pieces = []
        for operand, is_shared, tail, shape in zip(operands, shared, group.tails, group.shapes):
            if not is_shared:
                pieces.append(joined(operand, tail, count))
            elif tail == shape:  # not rows: the same for all
                pieces.append(range_of(*operand[1:]))
            else:
                pieces.append(_repeated(operand, tail, count))
        return group.ragged(group, pieces, shared, Lengths(sizes, pieces[0].device))
    if group.rule is direct and not all(shared[1:]):
        return _run_each(group, count, sizes, operands, shared)
    given = []
    repeated = group.repeated or ()
    for number, (operand, is_shared, tail) in enumerate(zip(operands, shared, group.tails)):
        if is_shared and (number in repeated or (group.rule is direct and number)):
            given.append(range_of(*operand[1:]))
        elif is_shared:
            given.append(_repeated(operand, tail, count))
        else:
            given.append(joined(operand, tail, count))
    return group.call(given)


def _repeated(operand: tuple[Any, ...], tail: Sequence[int], count: int) -> Tensor:
    """Return rows that all examples share, repeated for each."""
    rows = range_of(*operand[1:])
    return rows.expand(count, *rows.shape).reshape(-1, *tail)


def _run_each(
    group: CallGroup, count: int, sizes: tuple[list[int], ...], operands: tuple[Any, ...], shared: list[bool]
) -> Tensor:
    """Run a batch of examples with weights of their own one by one."""
    columns: list[Sequence[Tensor]] = []
    for operand, is_shared, tail, lengths in zip(operands, shared, group.tails, sizes):
        if is_shared:
            columns.append([range_of(*operand[1:])] * count)
        elif columns:
            columns.append(batched(operand, count).unbind(0))
        else:
            columns.append(torch.split(joined(operand, tail, count), lengths))
    return torch.cat([group.call(example) for example in zip(*columns)])


def _listed(result: Any) -> list[Tensor]:
    outs = [result] if isinstance(result, torch.Tensor) else list(result)
    return [
        each
        if each.is_contiguous() and not (each.is_conj() or each.is_neg())
        else each.contiguous().resolve_conj().resolve_neg()
        for each in outs
    ]


def _description(item: Any) -> Any:
    """Return what a change in place may change except numbers."""
    return item.shape, item.dtype, item.requires_grad


def _tensors_of(given: Any) -> list[Any]:
    """Return the tensors among one or several objects."""
    items = given if isinstance(given, (list, tuple)) else [given]
    return [each for each in items if isinstance(each, torch.Tensor)]


def _empty(item: Any) -> Any:
    with torch._C.DisableTorchFunction():
        return torch.empty(item.shape, dtype=item.dtype, device=item.device)


def _can_record() -> bool:
    return native.core is not None and torch_private.has_modes()


def _function_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    run = current()
    return run.enter_function(args) if run is not None and run.is_recording else args


def _transform_arguments(args: Any) -> Any:
    run = current()
    if run is None or not run.is_recording or not torch._C._is_torch_function_enabled():
        return args
    return run.enter_transform(args)


def current() -> Run | None:
    """Return the block that records in this thread."""
    return getattr(_current, "run", None)


def batching() -> Run:
    """Record a block of PyTorch, and run equal operations of many examples together.

    Inside, operations of torch return immediately, with tensors that are computed when they are read, or at the end of
    the block. Values, gradients and errors are those of the same program without the block. What is read inside
    (``float(t)``, ``if t > 0``, ``t.tolist()``) is computed without the operations that it does not need, so that it
    has no company; see `map` for programs that read values. Without the C++ extension, the operations run one by one.

    Returns:
        A context manager, which also explains what ran.

    Raises:
        StateError: a block is open in this thread, or the program does what a recording cannot reproduce.

    Example:
        >>> import torch
        >>> from dpmodule import autobatch
        >>> weight = torch.ones(3, requires_grad=True)
        >>> with autobatch.batching():
        ...     losses = [(weight * x).sum() for x in torch.eye(3)]
        ...     loss = torch.stack(losses).mean()
        >>> loss.backward()
        >>> weight.grad
        tensor([0.3333, 0.3333, 0.3333])
    """
    return Run()


def map(program: Callable[..., Any], *examples: Iterable[Any]) -> list[Any]:
    """Run a program on every example, with equal operations of all examples together.

    An asynchronous program (``async def``) may wait for a tensor, with ``await``: all programs that wait get their
    values from one computation, so that programs whose control flow depends on values have company, too.

    Args:
        program: a function, a module or a coroutine function; it takes one argument from each of `examples`.
        examples: the examples, as in Python's ``map``.

    Returns:
        The result of each example, with tensors in it.

    Raises:
        ForeignValueError: `program` is not callable.
        StateError: a program waits for something other than tensors and coroutines.

    Example:
        >>> import torch
        >>> from dpmodule import autobatch
        >>> async def halvings(x):
        ...     count = 0
        ...     while float(await x.sum()) > 1:
        ...         x, count = x / 2, count + 1
        ...     return count
        >>> autobatch.map(halvings, [torch.ones(1), torch.ones(4), torch.ones(7)])
        [0, 2, 3]
    """
    if not callable(program):
        raise wrong_type("map: program", program, "is not callable")
    calls = list(zip(*examples))
    run = current()
    if run is not None or len(calls) < 2:  # recording cannot pay for one example
        return _results(run if run is not None and run.is_recording else None, program, calls)
    with Run(_site(1)) as run:
        return _results(run if run.is_recording else None, program, calls)


def _results(run: Run | None, program: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    results = [program(*call) for call in calls]
    if not any(inspect.iscoroutine(each) for each in results):
        return results
    make_tensors_awaitable()
    driver = ProgramLoop((lambda values: None) if run is None else run.compute)
    if run is None:
        return driver.run(results)
    outer, run.driver = run.driver, driver
    try:
        return driver.run(results)
    finally:
        run.driver = outer
