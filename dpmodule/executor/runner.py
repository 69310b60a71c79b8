"""`Runner`: bound arrays and the programs that run forward on them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from ..context import Context
from ..generators import generator
from ..graph import Node
from ..ndarray import NDArray
from ..ops.exposure import expose, written
from ..ops.user_code import is_users
from .arrays import Binding, BoundArrays
from .backward import Backward
from .body import CompiledBody
from .gradients import resting_states
from .interpreter import StepFailed, interpret
from .locate import forward_error
from .memory import reusable
from .options import PLAIN, RunOptions
from .packed import drop_changed
from .program import Program, program_of
from .resize import show_in
from .runs import Prepared, Run, Starts, prepare, repeating
from .sparse_arrays import array_of, is_sparse, show, value_of

if TYPE_CHECKING:
    from .compiled import CompiledForward

__all__ = ["Runner"]


class Runner(BoundArrays):
    """Bound arrays and the programs that run forward on them; keeps what backward needs.

    Args:
        binding: what is bound.
        options: how programs are run.
    """

    def __init__(self, binding: Binding, options: RunOptions = PLAIN) -> None:
        super().__init__(binding)
        graph = self.graph
        self._options = options
        self._backward = Backward(graph, self._shapes, self._grads, self.grad_req, self._storage is None)
        self._wanted_slots = frozenset(self._backward.slots)
        resting = resting_states(graph, (n for n, grad in self._grads.items() if grad is not None))
        self._resting = {
            slot for slot, node in enumerate((*graph.arguments, *graph.auxiliary)) if node.name in resting
        }
        self._programs: dict[tuple[bool, bool, bool], Prepared] = {}
        self._compiled: dict[Program, CompiledForward] = {}
        self._memos: dict[Node, dict[Any, Any]] = {}
        self._alias_cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._run: Run | None = None
        self._last_mode: bool | None = None
        self._contexts = list(dict.fromkeys((self.context, *self._places.values())))
        self._random_states: list[torch.Tensor] = []
        self._monitor: tuple[Callable[[str, NDArray], None], bool] | None = None
        self._elder: weakref.ref[Runner] | None = None

    @property
    def has_run(self) -> bool:
        """Whether there has been a forward whose results are still there."""
        return self._last_mode is not None

    def run(self, is_train: bool, inputs: Mapping[str, Any] | None = None) -> None:
        """Run the graph, reading some inputs where they lie instead of copying them in.

        The tensors must stay unchanged until backward is done; whoever looks at `arg_dict` later finds a copy.

        Args:
            is_train: training mode.
            inputs: tensors, or records of CSR matrices, by argument name, of the bound shapes, types and device.
        """
        self._borrowed = {self._slots[name]: tensor for name, tensor in inputs.items()} if inputs else {}
        self._run = None
        self._last_mode = is_train
        prepared = self._prepare(is_train, is_train)
        program = prepared.program
        if program.random:
            self._random_states = [generator(ctx).get_state() for ctx in self._contexts]
        values, aliases = self._inputs(recorded=is_train)
        for output, position in program.reused:
            shaped = prepared.shaped[position]
            shaped.memory = None  # of a run that failed
            shaped.memory = None if self._compiled else reusable(self._outputs[output])
        result = self._execute(prepared, values, bool(aliases), self._monitor)
        for handle, out in zip(self._outputs, result[0]):
            if self._storage is not None and is_sparse(handle):
                show(handle, out)
                continue
            # a version counter of its own: an output may be written before backward, as in MXNet
            own = out.data if is_train else out
            handle.raw = own if own.is_contiguous() else own.contiguous()
            handle.pinned = False
        self._given_up = False
        if self._elder is not None:
            self._show_elder()
        if program.low.mutated:
            self._commit(program, result[3], at_once=True)
        if program.written:  # by operators, through aliases whose writes torch counts apart
            written([self._variables[slot].raw for slot in program.written])
        if is_train:
            drop_changed()
            self._run = Run(prepared, values, aliases, result)

    def _prepare(self, recorded: bool, is_train: bool) -> Prepared:
        """Return the program for a forward that backward may follow, or not, in training mode, or not."""
        watched = self._monitor is not None
        found = self._programs.get((recorded, is_train, watched))
        if found is None:
            program = program_of(
                self.graph,
                recorded,
                self._place_key(),
                self._storage,
                CompiledBody,
                watched=watched,
                compiled=self._options.compile is not None,
                mirror=self._options.mirror,
            )
            found = prepare(self, program, is_train, self._memos)
            self._programs[recorded, is_train, watched] = found
            if self._options.compile is not None and not watched and program not in self._compiled:
                from .compiled import CompiledForward

                self._compiled[program] = CompiledForward(program, self._options.compile)
        return found

    def _place_key(self) -> tuple[Context, ...]:
        if not self._places:
            return ()
        return (self.context, *(self.context_of(node) for node in self.graph.nodes))

    def _inputs(self, recorded: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the tensors of all variables, and which of them want a gradient; aliases where it is recorded."""
        if self._storage is None:
            values = [array.raw for array in self._variables]
        else:
            values = [value_of(array, i in self._stored) for i, array in enumerate(self._variables)]
        for slot, tensor in self._borrowed.items():
            values[slot] = tensor
        if not recorded:
            return values, []
        cache = self._alias_cache
        for slot, tensor in enumerate(values):
            cached = cache.get(slot)
            values[slot] = (
                cached[1] if cached is not None and cached[0] is tensor else self._alias(slot, tensor)
            )
        return values, [values[slot] for slot in self._backward.slots]

    def _alias(self, slot: int, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the same memory, which records gradients if one is wanted; `tensor` never does.

        An alias has a version counter of its own, so that a variable written between forward and backward is
        used as it then is, as in MXNet.
        """
        alias = tensor.data
        if slot in self._wanted_slots and alias.is_floating_point():
            alias.requires_grad_(True)
        if slot not in self._borrowed:
            self._alias_cache[slot] = tensor, alias
        return alias

    def _own_inputs(self) -> list[int]:
        """Copy borrowed inputs; what backward reads from now on are the copies, which the caller may change."""
        copied = super()._own_inputs()
        if self._run is not None:
            for slot in copied:
                own, read = value_of(self._variables[slot]), self._run.values[slot]
                if isinstance(own, torch.Tensor) and isinstance(read, torch.Tensor):
                    read.data = own  # for operators that have kept it
                self._run.values[slot] = own
        return copied

    def _execute(
        self, prepared: Prepared, values: list[torch.Tensor], recorded: bool, monitor: Any = None
    ) -> tuple[Any, ...]:
        """Run a program, step by step if somebody watches."""
        program, env, shaped = prepared
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(recorded)
        try:
            with program.mirroring():
                if monitor is not None:
                    for shown in values if monitor[1] else ():
                        expose(shown)  # a callback may write variables, and keep them
                    return interpret(program, values, env, shaped, self._watch, monitor[1])
                forward = self._compiled.get(program, program.forward) if self._compiled else program.forward
                result: tuple[Any, ...] = forward(values, env, shaped)
                return result
        except Exception as error:
            if monitor is not None and not isinstance(error, StepFailed):
                raise  # by the monitor's callback
            if is_users(error):
                raise
            if isinstance(error, StepFailed) and error.__cause__ is not None and is_users(error.__cause__):
                raise error.__cause__ from error.__cause__.__cause__
            raise forward_error(error, program, self.graph, self._shapes) from (error.__cause__ or error)
        finally:
            torch.set_grad_enabled(before)

    def _commit(
        self, program: Program, mutated: Sequence[torch.Tensor | None], at_once: bool
    ) -> list[tuple[int, torch.Tensor]]:
        """Write new values of states into their arrays.

        Returns:
            Number and old value of each, unless it is at once.
        """
        before = []
        with torch.no_grad():
            for (slot, _, now), new in zip(program.low.mutated, mutated):
                if now is at_once and new is not None and (at_once or slot not in self._resting):
                    if not at_once:
                        before.append((slot, self._variables[slot].raw.clone()))
                    self._variables[slot].overwrite(new)
        return before

    def _repeating(self, program: Program) -> AbstractContextManager[None]:
        """Let the last forward be repeated inside the block without changing random numbers and states."""
        return repeating(program, self._contexts, self._random_states, self._variables)

    def _run_again(self, is_train: bool) -> Run:
        """Repeat the last forward with the random numbers it drew, for backward alone: no output changes."""
        prepared = self._prepare(True, is_train)
        with self._repeating(prepared.program):
            values, aliases = self._inputs(recorded=True)
            return Run(prepared, values, aliases, self._execute(prepared, values, True))

    def _starts(self, run: Run, given: Sequence[torch.Tensor | None]) -> Starts:
        """Return where backward of the last forward, or a repetition of it, starts."""
        return self._backward.starts(run, given, self._outputs, not self._compiled)

    def _watch(self, name: str, tensor: torch.Tensor) -> None:
        """Show a value to the monitor."""
        if self._monitor is not None and tensor is not None:
            self._monitor[0](name, array_of(tensor, self.context))

    def _show_elder(self) -> None:
        """Write the outputs to the head of those of the executor this one was reshaped from, if that has not run.

        In MXNet both have the same memory. Here an executor that has run keeps what it computed.
        """
        elder = self._elder() if self._elder is not None else None
        if elder is None or elder.has_run or elder._storage is not None:
            self._elder = None
            return
        for own, old in zip(self._outputs, elder.outputs):
            show_in(own, old)
