"""`Backward`: from what a forward left to gradients in their arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import torch

from ..base import MXNetError, StateError, dtype_name
from ..compat import torch_private
from ..ndarray import NDArray
from ..ops.sparse import Ragged, densify, leaf_of
from ..ops.spec import Env
from ..ops.user_code import is_users
from .arrays import BoundArrays
from .dense_chain import run_backward
from .error_location import backward_error, head_error
from .gradients import needs_head_gradient, required
from .lowering import LossHead
from .memory import allocate
from .recorded_run import HeadGradients, RecordedRun, value_gradients
from .sparse_arrays import deliver_sparse, dense_pointers, is_sparse

_RAW, _STORED, _SEED = attrgetter("raw"), attrgetter("stored"), itemgetter(2)
_WANTS_GRADIENT = attrgetter("requires_grad")


Listener = Callable[[str, torch.Tensor | None], None]
"""Called with the name of an argument and its gradient."""

_MUCH = 2**21
"""Bytes of a gradient from which on its memory is given up before the next one is computed."""

_HEAVY = 2**24
"""Bytes of all results of a network from which on smaller gradients stay where they are.

Were they to move with every backward, they would part the memory that results have left, and the C library would take
more of it from the system.
"""


class _GradientNotifier:
    """Lets a listener hear of gradients, in one backward; made apart so that hooks hold nothing but this."""

    def __init__(self) -> None:
        self.open_to(None)

    def open_to(self, listener: Listener | None) -> None:
        """Let a listener hear what is told from now on; None: nobody."""
        self._listener = listener

    def tell(self, name: str, grad: torch.Tensor | None) -> None:
        """GradientCallback the listener."""
        listener = self._listener
        if listener is not None:
            listener(name, grad)


class Backward:
    """Which gradients of a graph are wanted, and how they are computed.

    Args:
        arrays: the graph, and an array for each gradient that is wanted.
        size: number of elements of what all operators make.

    Attributes:
        adds: whether a gradient is added to what its array holds.
        dense_only: whether nothing in the graph nor among the gradients has another storage type than "default".
    """

    def __init__(self, arrays: BoundArrays, size: int) -> None:
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
        self.dense_only = arrays.storage is None and not any(map(is_sparse, self.targets))
        self.integers = self.dense_only and not all(t.raw.is_floating_point() for t in self.targets)
        self._heard = [
            (i, name)
            for i, (_, name, grad) in enumerate(wanted)
            if not self.adds[i] and not is_sparse(grad) and grad.raw.is_floating_point()
        ]
        self._gate = _GradientNotifier()
        self._hooked: dict[int, tuple[Any, Any]] = {}
        self._large = [
            i
            for i, target in enumerate(self.targets)
            if not (self.adds[i] or is_sparse(target)) and target.raw.is_cpu and target.raw.nbytes >= _MUCH
        ]
        self._replaced: list[int] = []
        heavy = arrays.context.torch_device.type == "cpu" and 4 * size >= _HEAVY
        self._copied = _MUCH if heavy else 0
        self._ignores_gradient = [
            node.op is not None and not node.op.wants_head(node.a) for node, _ in graph.heads
        ]

    def ignores_head(self, i: int, given: torch.Tensor | None) -> bool:
        """Say whether an output ignores its gradient; looks far down only if none is given.

        Shape:
            given: as the output.

        Args:
            i: number of the output.
        """
        if given is None and not self._ignores_gradient[i]:
            self._ignores_gradient[i] = not needs_head_gradient(self._graph.heads[i][0], self._names)
        return self._ignores_gradient[i]

    def starts(self, run: RecordedRun, given: Sequence[torch.Tensor | None], outputs: Sequence[NDArray]) -> HeadGradients:
        """Return where backward starts.

        Shape:
            given: each as its output.

        Args:
            given: the gradient that the user gave for each output, or None.
        """
        program, env, _, _ = run.prepared
        starts = []
        for i, root in enumerate(run.roots):
            if not root.requires_grad:
                continue
            cut = program.cut.get(i)
            if cut is None:
                seed = required(self._graph.output_names[i], self.ignores_head(i, given[i]), given[i], root)
            else:
                loss, rest = program.low.losses[cut], run.rests[cut]
                try:
                    seed = _loss_gradient(loss, env, outputs[i].raw, run, rest, root)
                except Exception as error:
                    if is_users(error) or isinstance(error, MXNetError):
                        raise
                    raise head_error(error, self._graph, self._shapes, i) from error
            leaf = root if self.dense_only else leaf_of(root)
            starts.append((i, leaf, seed if seed.dtype == leaf.dtype else seed.to(leaf.dtype)))
        return starts

    def _hook(self, aliases: Sequence[Any], listener: Listener) -> None:
        """Let a listener hear of gradients until the gate is closed; hooks stay where they are."""
        for i, name in self._heard:
            alias, (known, handle) = aliases[i], self._hooked.get(i, (None, None))
            if known is not alias and isinstance(alias, torch.Tensor) and leaf_of(alias) is alias:
                if handle is not None:
                    handle.remove()
                hook = alias.register_hook(partial(self._gate.tell, name))  # type: ignore[no-untyped-call]
                self._hooked[i] = alias, hook
        self._gate.open_to(listener)

    def _notifier(self, aliases: Sequence[Any]) -> Callable[[torch.Tensor, torch.Tensor], None]:
        """Return what lets the listener hear of the gradient of an alias where no engine runs, which has hooks."""
        names = {id(aliases[i]): name for i, name in self._heard}

        def tell(alias: torch.Tensor, grad: torch.Tensor) -> None:
            if id(alias) in names:
                self._gate.tell(names[id(alias)], grad)

        return tell

    def gradients(
        self, run: RecordedRun, starts: HeadGradients, listener: Listener | None = None
    ) -> Sequence[torch.Tensor | None]:
        """Run the engine; return what it finds for each gradient array, None for what no head depends on.

        Shape:
            returns: each as its argument; of row-sparse arguments only some rows.

        Args:
            listener: hears of each gradient that replaces what its array holds as soon as the engine has it.
        """
        leaves = list(filter(_WANTS_GRADIENT, run.aliases))
        if not starts or not leaves:
            return [None] * len(run.aliases)
        _, roots, seeds = zip(*starts)
        tell = None
        if listener is not None:
            self._hook(run.aliases, listener)
            tell = self._notifier(run.aliases)
        try:
            found = run_backward(
                roots, seeds, leaves if self.dense_only else list(map(leaf_of, leaves)), tell
            )
        except Exception as error:
            if is_users(error):
                raise
            program, env, shaped, _ = run.prepared
            heads = value_gradients(program, starts)
            raise backward_error(
                error, program, self._graph, self._shapes, run.values, (env, shaped), heads
            ) from error
        finally:
            if listener is not None:
                self._gate.open_to(None)
        if len(leaves) == len(run.aliases):
            return found
        rest = iter(found)
        return [next(rest) if alias.requires_grad else None for alias in run.aliases]

    def differentiate(
        self, run: RecordedRun, starts: HeadGradients, outputs: Sequence[NDArray], listener: Listener | None = None
    ) -> None:
        """Compute the gradients and deliver them into their arrays.

        Large gradients of the last backward are given up first; should an operator fail, their arrays hold zeros.

        Shape:
            gradients: each as its argument.
        """
        if self._replaced:
            self._give_up()
        grads = self.gradients(run, starts, listener)
        seeds = map(_SEED, starts)
        if self.dense_only:
            dense = chain(seeds, run.values, map(_RAW, outputs))
            deliver(grads, self.targets, self.adds, dense, self._copied)
            if self._large:
                self._replaced = [i for i in self._large if self.targets[i].raw is grads[i]]
            return
        found: list[Any] = [*grads]
        for i, slot in enumerate(self.slots):
            value = run.values[slot]
            if isinstance(value, Ragged):  # its gradient has its rows
                grad = torch.zeros_like(value.values) if found[i] is None else found[i]
                found[i] = value.detach().replaced(grad)
        taken = dense_pointers([*seeds, *run.values, *map(_STORED, outputs)])
        rest = deliver_sparse(found, self.targets, self.adds, taken)
        deliver(
            [found[i] for i in rest], [self.targets[i] for i in rest], [self.adds[i] for i in rest], taken
        )

    @property
    def given_up(self) -> frozenset[str]:
        """The arguments whose gradients the next backward gives up before it computes them anew."""
        found = (i for i in self._replaced if not self.targets[i].pinned)
        return frozenset(map(self._wanted_names.__getitem__, found))

    def _give_up(self) -> None:
        """Free large gradients that `deliver` put in last time, as it is going to do again.

        Their arrays get memory that nobody has touched yet, which takes none.
        """
        for target in map(self.targets.__getitem__, self._replaced):
            if not target.pinned:
                target.raw = allocate(target.shape, target.context, dtype_name(target.dtype)).raw


def _loss_gradient(
    loss: LossHead,
    env: Env,
    out: torch.Tensor,
    run: RecordedRun,
    made: Sequence[torch.Tensor | None],
    root: torch.Tensor,
) -> torch.Tensor:
    """Return the gradient with which backward starts below a loss that was cut."""
    rule, data = loss.op.loss, root.detach()
    if rule is None:
        raise StateError(f"{loss.op.name} is no loss")
    rest = []
    for slot, tensor in zip(loss.rest, made):
        value = run.values[slot] if tensor is None else tensor.detach()
        rest.append(value if isinstance(value, torch.Tensor) else densify(value))
    return rule.grad(loss.a, env, out, data, *rest)


def deliver(
    grads: Sequence[torch.Tensor | None],
    targets: Sequence[NDArray],
    adds: Sequence[bool],
    taken: Iterable[torch.Tensor],
    copied: int = 0,
) -> None:
    """Write, or add, gradients to their arrays.

    A gradient that autograd returns may be anything: a view of another, the head gradient itself, a stride-0
    expansion. It replaces the array's tensor only where that can be seen by nobody; else it is copied.

    Shape:
        grads: each as its target.

    Args:
        grads: what the engine returned; None for an argument that no head depends on.
        taken: tensors whose memory must not end up in an array: head gradients, arguments, outputs.
        copied: bytes below which a gradient is copied anyway.
    """
    seen = set(map(torch.Tensor.data_ptr, taken))
    sums: list[torch.Tensor] = []
    terms: list[torch.Tensor] = []
    for grad, target, add in zip(grads, targets, adds):
        tensor = target.raw
        if add:
            if grad is not None:
                sums.append(tensor)
                terms.append(grad)
        elif grad is None:
            tensor.zero_()
        else:
            pointer = grad.data_ptr()
            if (
                not target.pinned
                and pointer not in seen
                and grad.dtype == tensor.dtype
                and grad.shape == tensor.shape
                and grad.is_contiguous()
                and (size := grad.nbytes) >= copied
                and grad.untyped_storage().nbytes() == size  # fills its memory exactly
            ):
                target.raw = grad
            else:
                tensor.copy_(grad)
            seen.add(pointer)
    if sums:
        torch_private.foreach_add(sums, terms)
