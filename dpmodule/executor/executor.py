"""`Executor`: a graph with arrays, run forward and backward."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .. import mode
from ..base import ArgumentError, StateError, dtype_name
from ..context import Context
from ..generators import generator
from ..graph import Graph, Node
from ..graph.merge import merge_equal
from ..ndarray import NDArray
from ..ops.exposure import written
from ..ops.sparse import densify, leaf_of
from ..ops.spec import Env
from ..ops.user_code import is_users
from ..private import run_backward
from .arrays import BoundArrays, assign
from .body import CompiledBody
from .compiled import CompiledForward
from .direct import DirectRoot
from .gradients import deliver, resting_states
from .heads import asks_gradient, given_gradients, required, seed_at
from .interpreter import StepFailed, backward_by_node, interpret
from .locate import backward_error, forward_error
from .memory import reusable
from .mirroring import mirroring
from .options import PLAIN, RunOptions
from .packed import drop_changed
from .placement import Placement
from .program import Program, program_of
from .resize import resize
from .sparse_arrays import array_of, deliver_sparse, dense_pointers, is_sparse, show, value_of

if TYPE_CHECKING:
    from .explanation import Explanation, Memory
    from .rehearsal import Rehearsal

__all__ = ["Executor"]


class UnknownArgumentError(ArgumentError, TypeError):
    """A keyword of `forward` that is no argument of the graph."""


class _Prepared(NamedTuple):
    """A program with what it needs beside tensors."""

    program: Program
    env: Env
    shaped: list[Env]


class _Run:
    """What a recorded forward leaves for backward."""

    __slots__ = ("aliases", "mutated", "prepared", "rests", "roots", "values")

    def __init__(
        self,
        prepared: _Prepared,
        values: list[torch.Tensor],
        aliases: list[torch.Tensor],
        result: tuple[Any, ...],
    ) -> None:
        self.prepared = prepared
        self.values = values
        self.aliases = aliases
        _, self.roots, self.rests, self.mutated = result


def _heads(program: Program, starts: list[tuple[int, torch.Tensor, torch.Tensor]]) -> dict[int, torch.Tensor]:
    """Return the gradient of each value at which backward starts."""
    roots = {loss.output: loss.root for loss in program.low.losses}
    return {roots.get(i, program.low.heads[i]): seed for i, _, seed in starts}


class Executor(BoundArrays):
    """A graph bound to arrays on one context. Made by `Symbol.bind` and `Symbol.simple_bind`.

    Args:
        graph: what to run.
        ctx: where.
        args: an array for every argument.
        grads: arrays for gradients.
        grad_req: "write", "add" or "null" for every argument.
        aux: an array for every auxiliary state.
        shapes: result of `infer_shapes`, if it is at hand.
        types: result of `infer_types`, if it is at hand.
        places: context of each node, if not all of them run on `ctx`.
        stypes: storage types by which the graph knows dense arguments.
        symbol: the user's face of `graph`.
        options: how programs are run.

    Source: MXNet 1.9.1 `Executor`; what is kept between forward and backward, and what a second backward does,
    was checked against it.
    """

    def __init__(
        self,
        graph: Graph,
        ctx: Context,
        args: Mapping[str, NDArray],
        grads: Mapping[str, NDArray],
        grad_req: Mapping[str, str],
        aux: Mapping[str, NDArray],
        shapes: Mapping[Node, Any] | None = None,
        types: Mapping[Node, Any] | None = None,
        places: Placement | None = None,
        stypes: Mapping[str, str] | None = None,
        symbol: Any = None,
        options: RunOptions = PLAIN,
    ) -> None:
        super().__init__(graph, ctx, args, grads, grad_req, aux, shapes, types, places, stypes)
        self._symbol = symbol
        self._options = options
        self._compiled: dict[Program, CompiledForward] = {}
        self._merges = os.environ.get("MXNET_ELIMINATE_COMMON_EXPR", "1") != "0"
        self._elder: Callable[[], Executor | None] | None = None
        self._wanted = [
            (i, grad, self.grad_req[name] == "add")
            for i, (name, grad) in enumerate(self._grads.items())
            if grad is not None
        ]
        self._targets = [grad for _, grad, _ in self._wanted]
        self._adds = [add for _, _, add in self._wanted]
        self._dense_only = self._storage is None and not any(map(is_sparse, self._targets))
        self._wanted_slots = {slot for slot, _, _ in self._wanted}
        resting = resting_states(graph, (n for n, grad in self._grads.items() if grad is not None))
        self._resting = {
            slot for slot, node in enumerate((*graph.arguments, *graph.auxiliary)) if node.name in resting
        }
        self._ignores_gradient = [
            node.op is not None and not node.op.wants_head(node.a) for node, _ in graph.heads
        ]
        self._integers_wanted = self._dense_only and not all(
            t.tensor.is_floating_point() for t in self._targets
        )
        self._memos: dict[Node, dict[Any, Any]] = {}
        self._programs: dict[tuple[bool, bool, bool], _Prepared] = {}
        self._alias_cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._run: _Run | None = None
        self._last_mode: bool | None = None
        self._contexts = list(dict.fromkeys((ctx, *self._places.values())))
        self._random_states: list[torch.Tensor] = []
        self._monitor: tuple[Callable[[str, NDArray], None], bool] | None = None

    def _own_inputs(self) -> list[int]:
        """Copy borrowed inputs; what backward reads from now on are the copies, which the caller may change."""
        copied = super()._own_inputs()
        if self._run is not None:
            for slot in copied:
                self._run.values[slot] = value_of(self._variables[slot])
        return copied

    # forward

    @property
    def has_run(self) -> bool:
        """Whether there has been a forward whose results are still there."""
        return self._last_mode is not None

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        """Run the graph.

        Args:
            is_train: training mode; only then may `backward` follow without running the graph again.
            kwargs: new values of arguments by name, copied in.

        Returns:
            The outputs.

        Raises:
            UnknownArgumentError: a keyword is no argument; a TypeError.
            ShapeError: a value has another shape than its argument.
            NodeError: an operator failed; names the node.
        """
        arguments = self.arg_dict
        for name, value in kwargs.items():
            if name not in arguments:
                raise UnknownArgumentError(
                    f"forward: {name!r} is no argument; arguments: {', '.join(arguments)}"
                )
            assign(name, arguments[name], value)
        self.run(bool(is_train))
        return self._outputs

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
            handle.tensor = own if own.is_contiguous() else own.contiguous()
            handle.pinned = False
        self._given_up = False
        if self._elder is not None:
            self._show_elder()
        if program.low.mutated:
            self._commit(program, result[3], at_once=True)
        if program.written:  # by operators, through aliases whose writes torch counts apart
            written([self._variables[slot].tensor for slot in program.written])
        if is_train:
            drop_changed()
            self._run = _Run(prepared, values, aliases, result)

    def _prepare(self, recorded: bool, is_train: bool) -> _Prepared:
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
            shaped = []
            for step in program.shaped:
                node = self.graph.nodes[step.node]
                ctx, shapes = self.context_of(node), tuple(tuple(s or ()) for s in self._shapes[node])
                memo = self._memos.setdefault(node, {}) if step.keeps else None
                shaped.append(Env(ctx.torch_device, generator(ctx), is_train, shapes, ctx, memo))
            common = Env(self.context.torch_device, generator(self.context), is_train, (), self.context)
            found = _Prepared(program, common, shaped)
            self._programs[recorded, is_train, watched] = found
            if self._options.compile is not None and not watched and program not in self._compiled:
                self._compiled[program] = CompiledForward(program, self._options.compile)
        return found

    def _place_key(self) -> tuple[Context, ...]:
        if not self._places:
            return ()
        return (self.context, *(self.context_of(node) for node in self.graph.nodes))

    def _inputs(self, recorded: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the tensors of all variables, and which of them want a gradient; aliases where it is recorded."""
        if self._storage is None:
            values = [array.tensor for array in self._variables]
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
        return values, [values[slot] for slot, _, _ in self._wanted]

    def _execute(
        self, prepared: _Prepared, values: list[torch.Tensor], recorded: bool, monitor: Any = None
    ) -> tuple[Any, ...]:
        """Run a program, step by step if somebody watches."""
        program, env, shaped = prepared
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(recorded)
        try:
            with mirroring() if "mirror" in program.low.fired else nullcontext():
                if monitor is not None:
                    return interpret(program, values, env, shaped, self._watch, monitor[1])
                if program.direct is not None and self._dense_only and not self._compiled:
                    with torch.no_grad():
                        found = program.direct(values, env, shaped)
                    if found is not None:
                        return found  # type: ignore[no-any-return]
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

    def _commit(self, program: Program, mutated: Sequence[torch.Tensor | None], at_once: bool) -> None:
        """Write new values of states into their arrays."""
        with torch.no_grad():
            for (slot, _, now), new in zip(program.low.mutated, mutated):
                if now is at_once and new is not None and (at_once or slot not in self._resting):
                    self._variables[slot].overwrite(new)

    def probes(self) -> list[torch.Tensor]:
        """Return, for each output of the last forward, a part that is finite only if all of it is.

        Of an output behind `BlockGrad`, which is there to be looked at and trains nothing, the part is empty.
        """
        found = []
        for (node, _), out in zip(self.graph.heads, self._outputs):
            if node.op is not None and node.op.name == "BlockGrad":
                found.append(out.tensor.new_empty(0))
                continue
            probe = None if node.op is None or node.op.loss is None else node.op.loss.probe
            found.append(out.tensor if probe is None else probe(node.a, out.tensor))
        return found

    # backward

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Compute gradients of the arguments.

        A second call without a new forward gives the same gradients once more (under "add" they add up). Where
        nothing has been run yet, the graph is first run in training mode.

        Args:
            out_grads: gradient of each output, as NDArray, list or dict by output name; may be left out for
                losses, which ignore it.
            is_train: accepted as in MXNet; the gradients are those of the last forward, in its mode.

        Raises:
            StateError: what the last forward left has been released.
            ArgumentError: an output that is no loss has no gradient.
            ShapeError: a head gradient has another shape than its output.
            NodeError: an operator's gradient failed; names the node.
        """
        if self._last_mode is None:
            if self._given_up:
                raise StateError("backward: call forward(is_train=True) first")
            self.run(True)
        is_train = bool(self._last_mode)
        given = given_gradients(out_grads, self.graph.output_names, self._outputs, self._targets)
        if not self._wanted:
            return
        run = self._run
        first = run is not None
        if run is None:
            run = self._run_again(is_train)
        if self._integers_wanted or out_grads is not None and self._dense_only and self._integer_heads(given):
            run = self._run_with_carriers(run)
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        try:
            starts = self._starts(run, given)
            self._run = None
            if self._monitor is not None:
                self._show_backward(run, starts)
            self._differentiate(run, starts)
        finally:
            torch.set_grad_enabled(before)
        if first and run.mutated:
            self._commit(run.prepared.program, run.mutated, at_once=False)

    @contextmanager
    def _same_random_numbers(self, program: Program) -> Iterator[None]:
        """Draw what the last forward drew inside the block, and go on behind it as if nothing had been drawn."""
        saved: list[torch.Tensor] = []
        if program.random:
            saved = [generator(ctx).get_state() for ctx in self._contexts]
            for ctx, state in zip(self._contexts, self._random_states):
                generator(ctx).set_state(state)
        try:
            yield
        finally:
            for ctx, state in zip(self._contexts, saved):
                generator(ctx).set_state(state)

    @contextmanager
    def _same_states(self, program: Program) -> Iterator[None]:
        """Take back what operators that write their states by themselves have written inside the block."""
        states = [self._variables[slot].tensor for slot in program.written]
        saved = [state.clone() for state in states]
        try:
            yield
        finally:
            with torch.no_grad():
                for state, before in zip(states, saved):
                    state.copy_(before)

    def _run_again(self, is_train: bool) -> _Run:
        """Repeat the last forward with the random numbers it drew, for backward alone: no output changes."""
        prepared = self._prepare(True, is_train)
        with self._same_random_numbers(prepared.program), self._same_states(prepared.program):
            values, aliases = self._inputs(recorded=True)
            return _Run(prepared, values, aliases, self._execute(prepared, values, True))

    def _integer_heads(self, given: list[torch.Tensor | None]) -> bool:
        return any(grad is not None and not grad.is_floating_point() for grad in given)

    def _run_with_carriers(self, run: _Run) -> _Run:
        """Repeat a run with integers held as float64 numbers, as MXNet passes gradients through `Cast` to them.

        Returns:
            The new run, or the one given where an operator takes no such numbers.
        """
        prepared = run.prepared
        program, env, shaped = prepared
        values = list(run.values)
        for slot in self._wanted_slots:
            values[slot] = values[slot].detach()
            if not values[slot].is_floating_point():
                values[slot] = values[slot].double()
            values[slot].requires_grad_()
        again = self._same_random_numbers(program), self._same_states(program)
        try:
            with again[0], again[1], mode.carries_integers(), torch.enable_grad():
                result = interpret(program, values, env, shaped, lambda name, value: None)
        except StepFailed:
            return run
        return _Run(
            prepared, values, [values[slot] for slot, _, _ in self._wanted], (*result[:3], run.mutated)
        )

    def _starts(
        self, run: _Run, given: list[torch.Tensor | None]
    ) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
        """Return where backward starts: number of the head, tensor, and its gradient."""
        low, env = run.prepared.program.low, run.prepared.env
        cut = {loss.output: (loss, rest) for loss, rest in zip(low.losses, run.rests)}
        starts = []
        for i, root in enumerate(run.roots):
            if not root.requires_grad:
                continue
            if i in cut:
                loss, made = cut[i]
                rest = [densify(run.values[n] if m is None else m.detach()) for n, m in zip(loss.rest, made)]
                seed = seed_at(loss, env, self._outputs[i].tensor, root, rest, not self._compiled)
            else:
                seed = required(self.graph.output_names[i], self._ignores_head(i, given[i]), given[i], root)
            leaf = root if self._dense_only else leaf_of(root)
            starts.append((i, leaf, seed if seed.dtype == leaf.dtype else seed.to(leaf.dtype)))
        return starts

    def _ignores_head(self, i: int, given: torch.Tensor | None) -> bool:
        """Say whether an output ignores its gradient; looks far down only if none is given."""
        if given is None and not self._ignores_gradient[i]:
            wanted = {name for name, grad in self._grads.items() if grad is not None}
            self._ignores_gradient[i] = not asks_gradient(self.graph.heads[i][0], wanted)
        return self._ignores_gradient[i]

    def _gradients(
        self, run: _Run, starts: list[tuple[int, torch.Tensor, torch.Tensor]]
    ) -> list[torch.Tensor | None]:
        """Run the engine; return what it finds for each gradient array, None for what no head depends on."""
        roots: list[Any] = [root for _, root, _ in starts]
        seeds = [seed for _, _, seed in starts]
        real = [i for i, alias in enumerate(run.aliases) if alias.requires_grad]
        grads: list[torch.Tensor | None] = [None] * len(run.aliases)
        if roots and real:
            try:
                leaves = [run.aliases[i] for i in real]
                if isinstance(roots[0], DirectRoot):
                    found: Sequence[torch.Tensor | None] = roots[0].gradients(seeds[0], leaves)
                else:
                    found = run_backward(
                        roots, seeds, leaves if self._dense_only else list(map(leaf_of, leaves))
                    )
            except Exception as error:
                if is_users(error):
                    raise
                program, env, shaped = run.prepared
                heads = _heads(program, starts)
                raise backward_error(
                    error, program, self.graph, self._shapes, run.values, (env, shaped), heads
                ) from error
            for i, grad in zip(real, found):
                grads[i] = grad
        return grads

    def _gradients_of(
        self,
        prepared: _Prepared,
        values: list[torch.Tensor],
        aliases: list[torch.Tensor],
        result: tuple[Any, ...],
    ) -> list[torch.Tensor | None]:
        """Return the gradients of what has just been run, without delivering them; all outputs must be losses."""
        run = _Run(prepared, values, aliases, result)
        return self._gradients(run, self._starts(run, [None] * len(self._outputs)))

    def _differentiate(self, run: _Run, starts: list[tuple[int, torch.Tensor, torch.Tensor]]) -> None:
        """Run the engine and deliver what it finds."""
        seeds = [seed for _, _, seed in starts]
        grads = self._gradients(run, starts)
        if self._dense_only:
            taken = [*seeds, *run.values, *(o.tensor for o in self._outputs)]
            deliver(grads, self._targets, self._adds, taken)
            return
        taken = dense_pointers([*seeds, *run.values, *map(value_of, self._outputs)])
        rest = deliver_sparse(grads, self._targets, self._adds, taken)
        deliver(
            [grads[i] for i in rest], [self._targets[i] for i in rest], [self._adds[i] for i in rest], taken
        )

    def _show_backward(self, run: _Run, starts: list[tuple[int, torch.Tensor, torch.Tensor]]) -> None:
        """Show the monitor every operator's gradients; costs a further forward and backward."""
        program, env, shaped = run.prepared
        with self._same_random_numbers(program), self._same_states(program):
            backward_by_node(program, run.values, env, shaped, _heads(program, starts), self._watch)

    def step(self, inputs: Mapping[str, Any] | None = None) -> None:
        """Run forward in training mode, then backward; the outputs must be losses.

        Args:
            inputs: see `run`.
        """
        self.run(True, inputs)
        self.backward()

    def set_aside(self) -> None:
        """Hear that an executor for other shapes runs from now on; this one may come back."""

    def release(self) -> bool:
        """Give up outputs and what backward would need; handles of outputs taken before keep their values.

        Returns:
            Whether there was something to give up.
        """
        if self._last_mode is None:
            return False
        self._own_inputs()
        self._give_up_outputs()
        self._run = None
        self._random_states = []
        self._last_mode = None
        return True

    # looking at the plan

    def program(self, is_train: bool) -> Program:
        """Return the program that runs in training mode, or for prediction."""
        return self._prepare(is_train, is_train).program

    def way_to_run(self, is_train: bool) -> str:
        """Return how the program is run, where options ask for more than calling it; "" where they do not.

        Args:
            is_train: training mode.
        """
        compiled = self._compiled.get(self.program(is_train))
        return "" if compiled is None else compiled.state

    @contextmanager
    def rehearsal(self, is_train: bool) -> Iterator[Rehearsal]:
        """Let the program run inside the block as often as wanted, on the arrays as they are.

        Nothing of it stays: outputs, gradients, states, what backward needs and random numbers are as before.

        Args:
            is_train: training mode.
        """
        from .rehearsal import Rehearsal  # only few programs ask

        prepared = self._prepare(is_train, is_train)
        program, env, shaped = prepared

        def starts(result: tuple[Any, ...]) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
            ones = [
                None if self._ignores_head(i, None) else torch.ones_like(leaf_of(root))
                for i, root in enumerate(result[1])
            ]
            return self._starts(_Run(prepared, values, aliases, result), ones)

        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        try:
            with self._same_random_numbers(program), self._same_states(program):
                values, aliases = self._inputs(recorded=is_train)
                call = self._compiled.get(program, program.forward)
                gpus = tuple({c.torch_device: c for c in self._contexts if c.torch_device.type == "cuda"})
                yield Rehearsal(program, env, shaped, values, aliases, call, starts, gpus)
        finally:
            torch.set_grad_enabled(before)

    def explain(
        self,
        is_train: bool | None = None,
        times: bool = False,
        measure_memory: bool = False,
        parameters: Collection[str] | None = None,
        repeats: int = 5,
    ) -> Explanation:
        """Return what this executor runs: generated source, passes, and a table of steps; print it to read it.

        Times and memory are measured by running on the arrays as they are; values, outputs and random numbers stay
        the same. Operators written by users run, too. For what happens inside of steps there is `mx.profiler`.

        Args:
            is_train: whether the table is about training; None = if gradients are kept.
            times: also measure the time of every step, forward and backward.
            measure_memory: measure the memory of a run instead of estimating it.
            parameters: names of the arguments that are parameters; None = those that operators declare to be.
            repeats: how often steps are run for their times, of which the medians are shown.

        Raises:
            StateError: memory is to be measured while a profiler runs.

        Example:
            >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
            >>> found = net.simple_bind(mx.cpu(), data=(2, 4)).explain()
            >>> [step.name for step in found.steps], found.parameters, found.flops
            (['fc'], 15, 48)
        """
        from .explain import explain  # only few programs ask

        is_train = bool(self._targets) if is_train is None else is_train
        return explain(self, is_train, times, measure_memory, parameters, repeats)

    def memory(self, is_train: bool | None = None, measure: bool = False) -> Memory:
        """Return how much memory tensors take in a run.

        Args:
            is_train: whether the run is one in training, with backward if gradients are kept; None = if they are.
            measure: run once and see, instead of estimating by the shapes. The first time takes a second.

        Raises:
            StateError: it is to be measured while a profiler runs.
        """
        from .explain import memory_of

        return memory_of(self, bool(self._targets) if is_train is None else is_train, measure)

    @property
    def peak_bytes(self) -> int:
        """The most memory that tensors take at a time in a run, in bytes, estimated by their shapes.

        This is ``memory().peak``; ``memory(measure=True).peak`` measures it.
        """
        return self.memory().peak

    # monitoring and reshaping

    def set_monitor_callback(
        self, callback: Callable[[str, NDArray], None] | None, monitor_all: bool = False
    ) -> None:
        """Call a function with the name and value of every operator's output during forward and backward.

        In backward these are the gradients of its inputs, as ``<node>_backward_output<i>``.

        Args:
            callback: ``(name, array)``; None takes the callback away.
            monitor_all: also show every operator's inputs.
        """
        self._monitor = None if callback is None else (callback, monitor_all)

    def watch_as(self, other: Executor) -> None:
        """Take over another executor's monitor callback."""
        self._monitor = other._monitor

    def _watch(self, name: str, tensor: torch.Tensor) -> None:
        if self._monitor is not None and tensor is not None:
            self._monitor[0](name, array_of(tensor, self.context))

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Iterable[int]
    ) -> Executor:
        """Return an executor for other input shapes; arrays whose shape stays are the same objects.

        Args:
            partial_shaping: allow shapes of arguments not named here to change.
            allow_up_sizing: allow arrays to grow, which allocates new ones.
            kwargs: new shapes by argument name.

        Raises:
            ArgumentError: a keyword is no argument, or a change was not allowed.
            ShapeError: the shapes contradict each other.
        """
        self._own_inputs()
        arrays = self._args, {k: g for k, g in self._grads.items() if g is not None}, self._aux
        args, grads, aux = resize(self.graph, arrays, kwargs, partial_shaping, allow_up_sizing)
        younger = Executor(
            self.graph,
            self.context,
            args,
            grads,
            self.grad_req,
            aux,
            places=self._places,
            stypes=self._stypes,
            symbol=self._symbol,
            options=self._options,
        )
        younger._elder = weakref.ref(self)
        younger.watch_as(self)
        return younger

    def _show_elder(self) -> None:
        """Write the outputs to the head of those of the executor this one was reshaped from, if that has not run.

        In MXNet both have the same memory. Here an executor that has run keeps what it computed.
        """
        elder = self._elder() if self._elder is not None else None
        if elder is None or elder._last_mode is not None or elder._storage is not None:
            self._elder = None
            return
        with torch.no_grad():
            for own, old in zip(self._outputs, elder.outputs):
                count = own.tensor.numel()
                if count <= old.tensor.numel():
                    old.tensor.view(-1)[:count].copy_(own.tensor.view(-1))

    def get_optimized_symbol(self) -> Any:
        """Return the symbol with equal operators on equal inputs merged, as MXNet runs it.

        The symbol that the executor was made from stays as it is; its generated function does the same by itself. The
        environment variable MXNET_ELIMINATE_COMMON_EXPR=0, set before binding, switches both off.

        Raises:
            StateError: the executor was not made from a symbol.
        """
        if self._symbol is None:
            raise StateError("get_optimized_symbol: this executor was not made by Symbol.bind or simple_bind")
        return type(self._symbol)(merge_equal(self.graph)) if self._merges else self._symbol

    def debug_str(self) -> str:
        """Return the source of the generated functions, predict and training, and the memory they work in.

        The last two lines have MXNet's form, as programs cut the number out of the first of them; it is what the
        operators' results take by their shapes, all of them where there are gradients, else at the worst moment.
        """
        from .cost import intermediate_bytes  # only few programs ask

        sources = [f"# is_train={mode}\n{self._prepare(mode, mode).program.source}" for mode in (False, True)]
        bound = {**self.arg_dict, **self.aux_dict}
        size = intermediate_bytes(
            self.graph,
            {name: array.shape for name, array in bound.items()},
            {name: dtype_name(array.dtype) for name, array in bound.items()},
            training=bool(self._targets),
        )
        total = f"Total {size // 2**20} MB allocated\nTotal 0 TempSpace resource requested\n"
        return "\n".join([*sources, total])
