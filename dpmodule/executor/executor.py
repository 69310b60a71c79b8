"""`Executor`: a graph with arrays, run forward and backward."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ..base import SignatureError, StateError
from ..graph.merge import merge_equal
from ..ndarray import NDArray
from .arrays import Binding, assign
from .heads import given_gradients
from .inspection import InspectedRunner
from .interpreter import backward_by_node
from .options import PLAIN, RunOptions
from .resize import resize
from .runs import Run, Starts, heads_of, seeds_of, with_carriers

__all__ = ["Executor"]

_SHOWN = 6
"""How many arrays of a kind `repr` names."""


class Executor(InspectedRunner):
    """A graph bound to arrays on one context. Made by `Symbol.bind` and `Symbol.simple_bind`.

    Args:
        binding: what is bound.
        symbol: the user's face of the graph.
        options: how programs are run.

    Source: MXNet 1.9.1 `Executor`; what is kept between forward and backward, and what a second backward does,
    was checked against it.
    """

    def __init__(self, binding: Binding, symbol: Any = None, options: RunOptions = PLAIN) -> None:
        super().__init__(binding, options)
        self._symbol = symbol
        self._before: list[tuple[int, torch.Tensor]] = []
        self._merges = os.environ.get("MXNET_ELIMINATE_COMMON_EXPR", "1") != "0"

    def __repr__(self) -> str:
        flow = f"{_few(self._args.items())} -> {_few(zip(self.graph.output_names, self._outputs))}"
        wanted = sum(grad is not None for grad in self._grads.values())
        return f"<Executor on {self.context}: {flow}; gradients for {wanted} of {len(self._grads)}>"

    # forward

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        """Run the graph.

        Args:
            is_train: training mode; only then may `backward` follow without running the graph again.
            kwargs: new values of arguments by name, copied in.

        Returns:
            The outputs.

        Raises:
            SignatureError: a keyword is no argument; a TypeError.
            ShapeError: a value has another shape than its argument.
            NodeError: an operator failed; names the node.
        """
        arguments = self.arg_dict
        for name, value in kwargs.items():
            if name not in arguments:
                raise SignatureError(f"forward: {name!r} is no argument; arguments: {', '.join(arguments)}")
            assign(name, arguments[name], value)
        self.run(bool(is_train))
        return self._outputs

    def probes(self) -> list[torch.Tensor]:
        """Return, for each output of the last forward, a part that is finite only if all of it is.

        Of an output behind `BlockGrad`, which is there to be looked at and trains nothing, the part is empty.
        """
        found = []
        for (node, _), out in zip(self.graph.heads, self._outputs):
            if node.op is not None and node.op.name == "BlockGrad":
                found.append(out.raw.new_empty(0))
                continue
            probe = None if node.op is None or node.op.loss is None else node.op.loss.probe
            found.append(out.raw if probe is None else probe(node.a, out.raw))
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
        given = given_gradients(out_grads, self.graph.output_names, self._outputs, self._backward.targets)
        if not self._backward.slots:
            return
        run = self._run
        first = run is not None
        if run is None:
            run = self._run_again(is_train)
        if (
            self._backward.integers
            or out_grads is not None
            and self._backward.dense_only
            and _any_integers(given)
        ):
            with self._repeating(run.prepared.program):
                run = with_carriers(run, self._backward.slots)
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        try:
            starts = self._starts(run, given)
            self._run = None
            if self._monitor is not None:
                self._show_backward(run, starts)
            self._backward.differentiate(run, starts, self._outputs)
        finally:
            torch.set_grad_enabled(before)
        self._before = []
        if first and run.mutated:
            self._before = self._commit(run.prepared.program, run.mutated, at_once=False)

    def take_back(self) -> None:
        """Put auxiliary states that the last backward has written back to what they were; once.

        States that operators write in forward stay as they are.
        """
        for slot, values in self._before:
            self._variables[slot].overwrite(values)
        self._before = []

    def _show_backward(self, run: Run, starts: Starts) -> None:
        """Show the monitor every operator's gradients; costs a further forward and backward."""
        program, env, shaped = run.prepared
        with self._repeating(program):
            heads, seeds = heads_of(program, starts), seeds_of(program, starts)
            backward_by_node(program, run.values, env, shaped, heads, self._watch, seeds)

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
        binding = Binding(
            self.graph,
            self.context,
            args,
            grads,
            self.grad_req,
            aux,
            places=self._places,
            stypes=self._stypes,
        )
        younger = Executor(binding, self._symbol, self._options)
        younger._elder = weakref.ref(self)
        younger.watch_as(self)
        return younger

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


def _any_integers(given: Sequence[torch.Tensor | None]) -> bool:
    return any(grad is not None and not grad.is_floating_point() for grad in given)


def _few(arrays: Iterable[tuple[str, NDArray]]) -> str:
    """Return names and shapes of some arrays as text, not more than fit a line."""
    found = [f"{name} {array.shape}" for name, array in arrays]
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
