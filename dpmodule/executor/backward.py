"""`Backward`: computes gradients from the record of a forward, and writes them to their arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import torch

from .._core import torch_private
from .._core.short_backward import ShortBackward
from ..base import ArgumentError, MXNetError, ShapeError, StateError, dtype_name
from ..ndarray import NDArray
from ..ops.nn.dense import MIN_TABLE, lend_memory
from ..ops.nn.relayout import can_relayout, copy_to_usual
from ..ops.sparse import Ragged, densify, leaf_of
from ..ops.spec import Env
from ..ops.user_code import is_user_error
from .arrays import BoundArrays
from .dense_chain import run_backward
from .error_location import backward_error, head_error
from .gradients import needs_head_gradient
from .lowering import LossHead
from .memory import LARGE, allocate, nothing, unshared
from .recorded_run import HeadGradients, RecordedRun, value_gradients
from .sparse_arrays import deliver_sparse, dense_pointers, is_sparse

_RAW, _STORED, _SEED = attrgetter("raw"), attrgetter("stored"), itemgetter(2)
_WANTS_GRADIENT = attrgetter("requires_grad")


Listener = Callable[[str, torch.Tensor | None], None]
"""Called with the name of an argument and its gradient."""

_Write = tuple[torch.Tensor, torch.Tensor | None, bool]
"""Tensor of a gradient array, gradient or None for zeros, and True to add it."""

_LARGE_BYTES = 2**21
"""Gradients of at least this size always replace their arrays."""

_SHORT = 4
"""Most operators of a graph whose backward may do without autograd's engine."""

_LARGE_NETWORK_BYTES = 2**24
"""Total size of a network's results above which smaller gradients are copied instead of replacing their arrays.
Replacing them in every backward would fragment the memory that freed results leave, so that the C library would take
more of it from the system.
"""


class Backward:
    """Computes the wanted gradients of a graph.

    Args:
        arrays: the graph, and an array for each wanted gradient.
        size: number of elements in the results of all operators.
        is_compiled: True if `torch.compile` makes gradient functions, which only autograd's engine may call.

    Attributes:
        adds: True for each gradient that is added to its array.
        dense_only: True if all values and gradients have the storage type "default".
    """

    def __init__(self, arrays: BoundArrays, size: int, is_compiled: bool) -> None:
        graph = arrays.graph
        self._graph = graph
        self._shapes = arrays.shapes
        wanted = [(i, name, grad) for i, (name, grad) in enumerate(arrays.grads.items()) if grad is not None]
        self.slots = [i for i, _, _ in wanted]
        self.targets = [grad for _, _, grad in wanted]
        self.wanted = frozenset(self.slots)
        self.adds = [arrays.grad_req[name] == "add" for _, name, _ in wanted]
        self._wanted_names = [name for _, name, _ in wanted]
        self._names = frozenset(self._wanted_names)
        self._dense = [target for target in self.targets if not is_sparse(target)]
        self.dense_only = arrays.storage is None and len(self._dense) == len(self.targets)
        self.integers = self.dense_only and not all(t.raw.is_floating_point() for t in self.targets)
        self._notified = [
            (i, name)
            for i, (_, name, grad) in enumerate(wanted)
            if not self.adds[i] and not is_sparse(grad) and grad.raw.is_floating_point()
        ]
        self._listeners: list[Listener] = []  # that of the current backward; hooks hold only this list
        self._hooked: dict[int, tuple[Any, Any]] = {}
        self._large = [
            i
            for i, target in enumerate(self.targets)
            if not (self.adds[i] or is_sparse(target)) and target.raw.is_cpu and target.raw.nbytes >= LARGE
        ]
        weights = {n.inputs[1][0].name for n in graph.nodes if n.op is not None and n.op.name == "Embedding"}
        large = [i for i in self._large if self.dense_only and self.targets[i].raw.nbytes >= MIN_TABLE]
        self._tables = frozenset(i for i in large if self._wanted_names[i] in weights)
        self._replaced: list[int] = []
        self._freed: dict[int, torch.Tensor] = {}  # gradients without memory
        is_large = arrays.context.torch_device.type == "cpu" and 4 * size >= _LARGE_NETWORK_BYTES
        self._copied = _LARGE_BYTES if is_large else 0
        ops = [node.op for node in graph.nodes if node.op is not None]
        runs_user_code = any(op.stateful or op.owner is not None for op in ops)  # which may register hooks
        is_short = len(ops) <= _SHORT and not (runs_user_code or is_compiled)
        self._short = ShortBackward() if is_short else None
        self._ignores_gradient = [
            node.op is not None and not node.op.needs_head_gradient(node.a) for node, _ in graph.heads
        ]

    def ignores_head(self, i: int) -> bool:
        """Return True if an output ignores its gradient.

        Args:
            i: index of the output.
        """
        if not self._ignores_gradient[i]:
            self._ignores_gradient[i] = not needs_head_gradient(self._graph.heads[i][0], self._names)
        return self._ignores_gradient[i]

    def head_gradients(
        self, run: RecordedRun, given: Sequence[torch.Tensor | None], outputs: Sequence[NDArray]
    ) -> HeadGradients:
        """Return the roots of backward and their gradients.

        Shape:
            given: each as its output.

        Args:
            given: the user's gradient of each output, or None.
        """
        program, env = run.prepared[:2]
        head_grads = []
        for i, root in enumerate(run.roots):
            if not root.requires_grad:
                continue
            leaf = root if self.dense_only else leaf_of(root)
            cut, seed = program.cut.get(i), given[i]
            if cut is None:
                if seed is None:
                    seed = self._own_gradient(i, leaf)
                elif seed.shape != leaf.shape:
                    raise ShapeError(
                        f"out_grads: {self._graph.output_names[i]} has shape {tuple(seed.shape)}, expected "
                        f"{tuple(leaf.shape)}"
                    )
                elif _is_written(seed, self._dense):
                    seed = seed.clone()  # it may also be the gradient of others
            else:
                loss, rest = program.low.losses[cut], run.rests[cut]
                try:
                    seed = _loss_gradient(loss, env, outputs[i].raw, run, rest, root)
                except Exception as error:
                    if is_user_error(error) or isinstance(error, MXNetError):
                        raise
                    raise head_error(error, self._graph, self._shapes, i) from error
            head_grads.append((i, leaf, seed if seed.dtype == leaf.dtype else seed.to(leaf.dtype)))
        return head_grads

    def _own_gradient(self, i: int, leaf: torch.Tensor) -> torch.Tensor:
        """Return the gradient with which backward starts at an output that is not a cut loss, if none is given."""
        if not self.ignores_head(i):
            raise ArgumentError(
                f"backward: output {self._graph.output_names[i]!r} is not a loss, so its gradient must be given in "
                "out_grads (or wrap it in BlockGrad or MakeLoss)"
            )
        return torch.ones_like(leaf)

    def _listen(
        self, aliases: Sequence[Any], listener: Listener
    ) -> Callable[[torch.Tensor, torch.Tensor], None]:
        """Pass gradients to a listener until it is removed; the hooks stay registered.

        Returns:
            A callback that passes an alias's gradient to the listener where autograd's hooks do not run.
        """
        for i, name in self._notified:
            alias, (known, handle) = aliases[i], self._hooked.get(i, (None, None))
            if known is not alias and isinstance(alias, torch.Tensor) and leaf_of(alias) is alias:
                if handle is not None:
                    handle.remove()
                hook = alias.register_hook(partial(_notify, self._listeners, name))  # type: ignore[no-untyped-call]
                self._hooked[i] = alias, hook
        self._listeners[:] = [listener]
        name_of = {id(aliases[i]): name for i, name in self._notified}

        def notify(alias: torch.Tensor, grad: torch.Tensor) -> None:
            if id(alias) in name_of:
                _notify(self._listeners, name_of[id(alias)], grad)

        return notify

    def gradients(
        self, run: RecordedRun, head_grads: HeadGradients, listener: Listener | None = None
    ) -> Sequence[torch.Tensor | None]:
        """Run autograd and return the gradient for each gradient array; None if no head depends on the argument.

        Shape:
            returns: each as its argument; of row-sparse arguments only some rows.

        Args:
            listener: called with each gradient that replaces its array's values, as soon as autograd has computed it.
        """
        leaves = tuple(filter(_WANTS_GRADIENT, run.aliases))
        if not head_grads or not leaves:
            return [None] * len(run.aliases)
        _, roots, seeds = zip(*head_grads)
        callback = None if listener is None else self._listen(run.aliases, listener)
        try:
            targets = leaves if self.dense_only else tuple(map(leaf_of, leaves))
            grads = run_backward(roots, seeds, targets, callback, self._short if listener is None else None)
        except Exception as error:
            if is_user_error(error):
                raise
            program, env, shaped = run.prepared[:3]
            heads = value_gradients(program, head_grads)
            raise backward_error(
                error, program, self._graph, self._shapes, run.values, (env, shaped), heads
            ) from error
        finally:
            if listener is not None:
                self._listeners.clear()
        if len(leaves) == len(run.aliases):
            return grads
        rest = iter(grads)
        return [next(rest) if alias.requires_grad else None for alias in run.aliases]

    def differentiate(
        self,
        run: RecordedRun,
        head_grads: HeadGradients,
        outputs: Sequence[NDArray],
        listener: Listener | None = None,
    ) -> None:
        """Compute the gradients and write them to their arrays.

        Large gradients of the last backward are freed first; if an operator then fails, their arrays hold zeros.

        Shape:
            gradients: each as its argument.
        """
        if self._replaced:
            self._free_large(run.aliases)
        try:
            grads = self.gradients(run, head_grads, listener)
        except BaseException:
            for i in self._replaced:
                _writable(self.targets[i])
            raise
        finally:
            for i in self._tables:
                lend_memory(run.aliases[i], None)
        seeds = map(_SEED, head_grads)
        if self.dense_only:
            dense = chain(seeds, run.values, map(_RAW, outputs))
            deliver(grads, self.targets, self.adds, dense, self._copied)
            if self._large:
                self._replaced = [i for i in self._large if self.targets[i].raw is grads[i]]
            return
        all_grads: list[Any] = [*grads]
        for i, slot in enumerate(self.slots):
            value = run.values[slot]
            if isinstance(value, Ragged):  # the gradient has the same rows
                grad = torch.zeros_like(value.values) if all_grads[i] is None else all_grads[i]
                all_grads[i] = value.detach().replaced(grad)
        taken = dense_pointers([*seeds, *run.values, *map(_STORED, outputs)])
        rest = deliver_sparse(all_grads, self.targets, self.adds, taken)
        deliver(
            [all_grads[i] for i in rest], [self.targets[i] for i in rest], [self.adds[i] for i in rest], taken
        )

    @property
    def freed_names(self) -> frozenset[str]:
        """The arguments whose gradients the next backward frees before it computes them again."""
        freed = (i for i in self._replaced if not self.targets[i].pinned)
        return frozenset(map(self._wanted_names.__getitem__, freed))

    def _free_large(self, aliases: Sequence[torch.Tensor]) -> None:
        """Free large gradients that `deliver` moved into their arrays, since it will replace them again."""
        for i in self._replaced:
            target = self.targets[i]
            if not target.pinned:
                if i in self._tables:
                    lend_memory(aliases[i], unshared(target))
                if i not in self._freed:
                    self._freed[i] = nothing(target.raw)
                target.raw = self._freed[i]


def _notify(listeners: Iterable[Listener], name: str, grad: torch.Tensor | None) -> None:
    """Call the listeners."""
    for listener in listeners:
        listener(name, grad)


def _is_written(seed: torch.Tensor, targets: Sequence[NDArray]) -> bool:
    """Return True if a head gradient shares memory with an array that backward writes."""
    if seed.layout is not torch.strided:
        return False
    for target in targets:  # `any` with a generator would take several times as long
        raw = target.raw
        is_shared = target.pinned and seed.untyped_storage().data_ptr() == raw.untyped_storage().data_ptr()
        if seed is raw or is_shared:
            return True
    return False


def _loss_gradient(
    loss: LossHead,
    env: Env,
    out: torch.Tensor,
    run: RecordedRun,
    made: Sequence[torch.Tensor | None],
    root: torch.Tensor,
) -> torch.Tensor:
    """Return the gradient with which backward starts below a cut loss."""
    rule, data = loss.op.loss, root.detach()
    if rule is None:
        raise StateError(f"{loss.op.name} is not a loss")
    rest = []
    for slot, tensor in zip(loss.rest, made):
        value = run.values[slot] if tensor is None else tensor.detach()
        rest.append(value if isinstance(value, torch.Tensor) else densify(value))
    return rule.grad(loss.a, env, out, data, *rest)


def _writable(target: NDArray) -> torch.Tensor:
    """Return the tensor of a gradient array, with memory again if it was freed."""
    if not (target.pinned or target.raw.is_contiguous()):
        target.raw = allocate(target.shape, target.context, dtype_name(target.dtype)).raw
    return target.raw


def _can_restride(target: torch.Tensor, grad: torch.Tensor) -> bool:
    """Return True if a gradient is in channels_last, and the extension can copy it to its array."""
    return (
        grad.dim() == 4
        and grad.is_contiguous(memory_format=torch.channels_last)
        and grad.dtype is target.dtype
        and grad.is_cpu
        and grad.shape == target.shape
        and can_relayout(target)
    )


def deliver(
    grads: Sequence[torch.Tensor | None],
    targets: Sequence[NDArray],
    adds: Sequence[bool],
    taken: Iterable[torch.Tensor],
    copied: int = 0,
) -> None:
    """Write gradients to their arrays, or add them.

    A gradient that autograd returns may be anything: a view of another, the head gradient itself, a stride-0
    expansion. It replaces the array's tensor only if no other tensor shares its memory; otherwise it is copied.

    Shape:
        grads: each as its target.

    Args:
        grads: the gradients from autograd; None for an argument on which no head depends.
        taken: tensors whose memory must not end up in an array: head gradients, arguments, outputs.
        copied: gradients below this size in bytes are always copied.
    """
    seen = set(map(torch.Tensor.data_ptr, taken))
    written: list[_Write] = []
    for grad, target, add in zip(grads, targets, adds):
        if grad is None:
            if not add:
                written.append((_writable(target), None, False))
            continue
        tensor, pointer = target.raw, grad.data_ptr()
        if (
            not (add or target.pinned)
            and pointer not in seen
            and grad.dtype is tensor.dtype
            and grad.shape == tensor.shape
            and grad.is_contiguous()
            and (size := grad.nbytes) >= copied
            and grad.untyped_storage().nbytes() == size  # owns all of its storage
        ):
            target.raw = grad
        else:
            written.append((tensor if add else _writable(target), grad, add))
        seen.add(pointer)
    if written:
        _write(written)


def _write(written: Sequence[_Write]) -> None:
    """Copy gradients to the tensors of their arrays, or add them."""
    sums: list[torch.Tensor] = []
    terms: list[torch.Tensor] = []
    restrided: list[tuple[torch.Tensor, torch.Tensor]] = []
    for tensor, grad, add in written:
        if grad is None:
            tensor.zero_()
        elif add:
            sums.append(tensor)
            terms.append(grad)
        elif _can_restride(tensor, grad):
            restrided.append((tensor, grad))
        else:
            tensor.copy_(grad)
    if restrided:
        copy_to_usual(restrided)
    if sums:
        torch_private.foreach_add(sums, terms)
