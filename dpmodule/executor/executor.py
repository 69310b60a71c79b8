"""`Executor`: a graph bound to arrays, with forward and backward."""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from .._core import torch_private
from .._devices.device_transfer import send
from .._devices.generators import generator
from .._devices.malloc import keep_freed
from .._devices.single_thread import single_thread
from ..base import ArgumentError, SignatureError, StateError, dtype_name
from ..context import Context, is_gpu
from ..graph import Node
from ..graph.node import merge_equal
from ..ndarray import NDArray
from ..ndarray.ragged import RaggedNDArray, numbers_of
from ..ops.nn.relayout import can_relayout, to_channels_last
from ..ops.sparse import leaf_of, stored_as
from ..ops.user_code import is_user_error
from ..ops.write_tracking import count_write
from . import packed_weights
from .arrays import Binding, BoundArrays, assign, resize, write_into
from .backward import Backward, Listener, deliver
from .dense_chain import DenseChainMode
from .error_location import forward_error
from .execution_mode import ExecutionMode, InterpretedMode
from .gradients import convert_head_gradients, frozen_states
from .interpreter import StepFailed, backward_by_node
from .memory import LARGE, count_holders, is_dense, kept_tensors, nothing, reusable
from .options import PLAIN, RunOptions
from .program import Program, program_of
from .recorded_run import (
    HeadGradients,
    PreparedProgram,
    RecordedRun,
    loss_gradients,
    prepare,
    repeating,
    value_gradients,
    with_float_integers,
)
from .sparse_arrays import allocate_as, is_sparse, load_stored, stored_bytes
from .subgraph_function import SubgraphFunction
from .weight_layouts import restrided_weights

if TYPE_CHECKING:
    from .cuda_graphs import RecordedOutputs
    from .explanation import ExecutorExplanation, MemoryUse
    from .inspection import Inspection
    from .measurement import TrialRun

_RAW, _SHAPE = attrgetter("raw"), attrgetter("shape")

_MAX_SHOWN = 6
"""Number of arrays of a kind that `repr` shows."""

_SMALL_OUTPUT = 2**13
"""Outputs of up to this size are checked whole, which is faster than selecting a part."""


def _probe_of(node: Node, output: NDArray) -> Callable[[NDArray], torch.Tensor]:
    """Return a function that selects a part of an output which is finite only if the whole output is."""
    take: Callable[[NDArray], torch.Tensor] = numbers_of if isinstance(output, RaggedNDArray) else _RAW
    if node.op is not None and node.op.name == "BlockGrad":
        return lambda out: take(out).new_empty(0)
    probe = (
        None
        if node.op is None or node.op.loss is None or output.size <= _SMALL_OUTPUT
        else node.op.loss.probe
    )
    return take if probe is None else lambda out, a=node.a: probe(a, take(out))  # type: ignore[misc]


class Executor:
    """A graph bound to arrays on one context. Made by `Symbol.bind` and `Symbol.simple_bind`.

    Shape:
        arguments, states, outputs: as given to `bind`, or inferred by `simple_bind`; a gradient as its argument.

    Args:
        binding: the graph and its arrays.
        symbol: the `Symbol` of the graph.
        options: options of running programs.

    Attributes:
        graph: the bound graph.
        context: context of all nodes without a context group.
        grad_req: "write", "add" or "null" for every argument.
        size: number of elements in the results of all operators, outputs included.

    Source: MXNet 1.9.1 `Executor`; the state kept between forward and backward, and the effect of a second backward,
    were checked against it.
    """

    def __init__(self, binding: Binding, symbol: Any = None, options: RunOptions = PLAIN) -> None:
        arrays = BoundArrays.of(binding)
        self._arrays = arrays
        self.graph, self.context, self.grad_req = arrays.graph, arrays.context, arrays.grad_req
        self.size = arrays.size
        self._symbol, self._options = symbol, options
        self._merges = os.environ.get("MXNET_ELIMINATE_COMMON_EXPR", "1") != "0"
        self._contexts = arrays.contexts
        self._outputs = arrays.outputs()
        if self.context.torch_device.type == "cpu":
            keep_freed(4 * self.size + arrays.held_bytes()["gradients"])
        self._large = [i for i, out in enumerate(self._outputs) if stored_bytes(out) >= LARGE]
        self._backward = Backward(arrays, self.size, options.compile is not None)
        self._has_integer_heads = self._backward.dense_only and _any_integers([o.raw for o in self._outputs])
        self._probes = [_probe_of(node, out) for (node, _), out in zip(self.graph.heads, self._outputs)]
        self._frozen = {
            arrays.slots[name]
            for name in frozen_states(self.graph, (n for n, g in arrays.grads.items() if g is not None))
        }
        # how it runs
        self._default_mode = self._make_default_mode()
        self._mode = self._default_mode
        self._prepared: dict[tuple[bool, bool, bool], PreparedProgram] = {}
        self._memos: dict[Node, dict[Any, Any]] = {}
        self._aliased: Sequence[Any] = ()  # the tensors of `_aliases`
        self._aliases: list[Any] = []
        self._reshaped_from: weakref.ref[Executor] | None = None
        # results of the last run
        self._last_mode: bool | None = None
        self._run: RecordedRun | None = None
        self._borrowed: dict[int, torch.Tensor] = {}
        self._versions: dict[str, int] = {}  # of the borrowed tensors that may change before backward
        self._random_states: Sequence[torch.Tensor] = []
        self._before: list[tuple[int, torch.Tensor]] = []  # states before the last backward wrote them
        self._saved: list[torch.Tensor] = []  # the memory of these
        self._freed: dict[int, torch.Tensor] = {}  # outputs without memory
        self._unread: frozenset[str] | None = None  # arguments that backward does not read; None if unknown
        self._released = False

    def __repr__(self) -> str:
        arrays = self._arrays
        flow = f"{_few(arrays.args.items())} -> {_few(zip(self.graph.output_names, self._outputs))}"
        wanted = sum(grad is not None for grad in arrays.grads.values())
        return f"<Executor on {self.context}: {flow}; gradients for {wanted} of {len(arrays.grads)}>"

    def __copy__(self) -> Executor:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __reduce__(self) -> NoReturn:
        """Reject deep copies and pickling."""
        raise StateError(
            "an Executor cannot be copied or pickled; copy or pickle the symbol and the arrays (arg_dict, aux_dict), "
            "and bind them again"
        )

    # arrays

    @property
    def arg_dict(self) -> dict[str, NDArray]:
        """Arguments by name.

        Shape:
            returns: each as bound.
        """
        self._own_inputs()
        return self._arrays.args

    @property
    def grad_dict(self) -> dict[str, NDArray | None]:
        """Gradients by argument name; None if no gradient is kept.

        An array passed to `Symbol.bind` for an argument whose grad_req is "null" is never written.

        Shape:
            returns: each as its argument.
        """
        arrays = self._arrays
        if not arrays.unwritten:
            return arrays.grads
        return {name: arrays.unwritten.get(name, grad) for name, grad in arrays.grads.items()}

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        """Auxiliary states by name.

        Shape:
            returns: each as bound.
        """
        return self._arrays.aux

    @property
    def output_dict(self) -> dict[str, NDArray]:
        """Outputs of the last forward by name.

        Shape:
            returns: each as `infer_shape` returns it.

        Raises:
            ArgumentError: two outputs have the same name.
        """
        outputs = dict(zip(self.graph.output_names, self.outputs))
        if len(outputs) < len(self._outputs):
            raise ArgumentError(
                f"output_dict: two outputs have the same name: {', '.join(self.graph.output_names)}"
            )
        return outputs

    @property
    def _ctx(self) -> Context:
        """The context, under MXNet's name."""
        return self.context

    @property
    def arg_arrays(self) -> list[NDArray]:
        """Arguments in the order of `list_arguments`.

        Shape:
            returns: each as bound.
        """
        return list(self.arg_dict.values())

    @property
    def grad_arrays(self) -> list[NDArray | None]:
        """Gradients in the order of `list_arguments`; None if no gradient is kept.

        Shape:
            returns: each as its argument.
        """
        return list(self.grad_dict.values())

    @property
    def aux_arrays(self) -> list[NDArray]:
        """Auxiliary states in the order of `list_auxiliary_states`.

        Shape:
            returns: each as bound.
        """
        return list(self._arrays.aux.values())

    @property
    def outputs(self) -> list[NDArray]:
        """Outputs of the last forward. The objects stay the same and show the newest values.

        Shape:
            returns: each as `infer_shape` returns it.
        """
        if self._released:
            self._outputs = [
                allocate_as(o.stype, o.shape, o.context, dtype_name(o.dtype)) for o in self._outputs
            ]
            self._released = False
        return self._outputs

    def input_array(self, name: str) -> NDArray:
        """Return an argument's own array without updating it; for loading the next batch.

        Shape:
            returns: as bound.
        """
        return self._arrays.args[name]

    def load(self, inputs: Mapping[str, Any], borrow: bool, is_train: bool) -> dict[str, Any] | None:
        """Copy inputs into their arrays.

        Args:
            inputs: tensors, or records of sparse matrices and ragged arrays, by argument name.
            borrow: do not copy tensors of the type and device of their arrays. Otherwise only those are not copied that
                the backward of training does not read.
            is_train: the mode of the next run.

        Returns:
            The inputs that were not copied, for `run`; None if a shape differs from the bound one.

        Shape:
            inputs: each as bound.
        """
        arrays, in_place, versions = self._arrays.args, {}, {}
        unread = (is_train and not borrow and not self._mode.watched and self._unread) or ()
        for name, value in inputs.items():
            array = arrays[name]
            if type(array) is not NDArray or not isinstance(value, torch.Tensor):
                stored = load_stored(name, array, value, borrow)
                if stored is not None:
                    in_place[name] = stored
                continue
            own = array.raw
            if value.shape != own.shape:
                return None
            is_unread = name in unread and not value.is_inference()
            if (borrow or is_unread) and value.dtype is own.dtype and value.device == own.device:
                in_place[name] = value
                if is_unread:
                    versions[name] = value._version
            elif value is not own:
                if own.is_cpu:
                    own.copy_(value)
                else:
                    send(own, value)
        self._versions = versions
        return in_place

    def held_bytes(self) -> dict[str, int]:
        """Return the memory of the arrays in bytes: "arguments", "gradients", "states" and "outputs"."""
        return {**self._arrays.held_bytes(), "outputs": sum(map(stored_bytes, self._outputs))}

    def copy_params_from(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Copy parameters and states into this executor's arrays.

        Shape:
            arg_params, aux_params: each as the array of its name.

        Args:
            arg_params: arrays by argument name, of the argument's shape.
            aux_params: arrays by state name.
            allow_extra_params: ignore names that are not in the graph.

        Raises:
            ArgumentError: a name is not in the graph.
            ShapeError: a shape does not fit.
        """
        parts = ("argument", arg_params, self.arg_dict), ("auxiliary state", aux_params, self.aux_dict)
        with single_thread():
            for kind, given, own in parts:
                for name, value in (given or {}).items():
                    if name in own:
                        assign(name, own[name], value)
                    elif not allow_extra_params:
                        raise ArgumentError(
                            f"copy_params_from: {name!r} is not an {kind} of this graph: {', '.join(own)}"
                        )

    def _own_inputs(self) -> None:
        """Copy borrowed inputs, and let backward read the copies, since the caller may then change the inputs."""
        for slot, tensor in self._borrowed.items():
            self._arrays.copy_in(slot, tensor)
            if self._run is not None:
                own, read = self._arrays.variables[slot].stored, self._run.values[slot]
                if isinstance(own, torch.Tensor) and isinstance(read, torch.Tensor):
                    read.data = own  # for operators that saved it
                self._run.values[slot] = own
        self._borrowed = {}

    # how it runs

    def _make_default_mode(self) -> ExecutionMode:
        """Return the execution mode used without a monitor."""
        if self._options.compile is not None:
            from .compiled import CompiledMode  # imported only on demand

            return CompiledMode(self._options.compile)
        if self._options.cuda_graphs:
            from .cuda_graph_mode import CudaGraphMode

            proxy = weakref.proxy(self)
            return CudaGraphMode(
                self._arrays,
                self._backward,
                lambda is_train: proxy.program(is_train),
                lambda t: proxy._work(t),
            )
        return DenseChainMode(self._arrays)

    def _prepare(self, recorded: bool, is_train: bool) -> PreparedProgram:
        """Return the prepared program for training or prediction; `recorded` is True if backward may follow."""
        mode, options = self._mode, self._options
        prepared = self._prepared.get((recorded, is_train, mode.watched))
        if prepared is None:
            program = program_of(
                self.graph,
                recorded,
                self._arrays.device_key,
                self._arrays.storage,
                SubgraphFunction,
                watched=mode.watched,
                compiled=options.compile is not None,
                mirror=options.mirror,
            )
            plain = recorded and not (mode.watched or options.compile is not None)
            restrided = restrided_weights(self._arrays, program) if plain else ()
            prepared = prepare(self._arrays, program, mode.forward(program), is_train, self._memos)
            prepared = prepared._replace(restrided=restrided)
            self._prepared[recorded, is_train, mode.watched] = prepared
        return prepared

    def program(self, is_train: bool) -> Program:
        """Return the program that runs in training mode, or for prediction.

        Args:
            is_train: True for the one of training.
        """
        return self._prepare(is_train, is_train).program

    def execution_mode(self, is_train: bool) -> str:
        """Describe how the program runs under `compile` or `cuda_graphs`; "" without these options."""
        return self._default_mode.describe(self.program(is_train), is_train)

    def set_monitor_callback(
        self, callback: Callable[[str, NDArray], None] | None, monitor_all: bool = False
    ) -> None:
        """Call a function with the name and value of every operator's output during forward and backward.

        In backward it receives the gradients of the operator's inputs, as ``<node>_backward_output<i>``.

        Shape:
            array: as the output, or as the input whose gradient it is.

        Args:
            callback: ``(name, array)``; None removes the callback.
            monitor_all: also show every operator's inputs.
        """
        if callback is None:
            self._mode = self._default_mode
            return
        self._mode = InterpretedMode(callback, monitor_all, self.context)
        for key, found in self._prepared.items():
            if key[2]:  # prepared for the previous monitor
                self._prepared[key] = found._replace(forward=self._mode.forward(found.program))

    def copy_monitor(self, other: Executor) -> None:
        """Install another executor's monitor callback.

        Args:
            other: the executor whose callback is installed; without one, none is installed.
        """
        self.set_monitor_callback(*other.monitor)

    @property
    def monitor(self) -> tuple[Callable[[str, NDArray], None] | None, bool]:
        """The callback and `monitor_all` of the last `set_monitor_callback`.

        Shape:
            arrays passed to the callback: as the output or input.
        """
        return self._mode.monitor if isinstance(self._mode, InterpretedMode) else (None, False)

    # forward

    def forward(self, /, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        """Run the graph.

        Shape:
            kwargs: each as the argument of its name.
            returns: each as `infer_shape` returns it.

        Args:
            is_train: training mode; only then may `backward` follow without running the graph again.
            kwargs: new values of arguments by name, copied in.

        Returns:
            The outputs.

        Raises:
            SignatureError: a keyword is not an argument; a TypeError.
            ShapeError: a value has another shape than its argument.
            NodeError: an operator failed; the message names the node.
        """
        arguments = self.arg_dict
        for name, value in kwargs.items():
            if name not in arguments:
                raise SignatureError(
                    f"forward: {name!r} is not an argument; arguments: {', '.join(arguments)}"
                )
            assign(name, arguments[name], value)
        self.run(bool(is_train))
        return self._outputs

    def run(self, is_train: bool, inputs: Mapping[str, Any] | None = None) -> None:
        """Run the graph, reading some inputs in place instead of copying them.

        The tensors must stay unchanged until backward is done; `arg_dict` returns copies of them.

        Shape:
            inputs: each as the argument of its name.

        Args:
            inputs: tensors, or records of CSR matrices, by argument name, of the bound shapes, types and device.
        """
        if self._mode.replays and not is_train and self._replayed(False, inputs):
            return
        arrays = self._arrays
        slots, borrowed = arrays.slots, {}
        for name, tensor in (inputs or {}).items():
            borrowed[slots[name]] = tensor
        self._borrowed = borrowed
        self._run = None
        self._last_mode = is_train
        prepared = self._prepared.get((is_train, is_train, self._mode.watched)) or self._prepare(
            is_train, is_train
        )
        program = prepared.program
        if program.random:
            self._random_states = [generator(ctx).get_state() for ctx in self._contexts]
        values, aliases = self._inputs(is_train, prepared.restrided)
        if program.reused:
            self._reuse(prepared)
        execute = self._execute_first if aliases and self._unread is None else self._execute
        result = execute(prepared, values, bool(aliases), frees=arrays.storage is None)
        self._take_outputs(result[0], is_train)
        if self._reshaped_from is not None:
            self._write_to_origin()
        if program.low.mutated:
            self._commit(program, result[3], in_forward=True)
        if program.written:  # through aliases, whose writes torch counts separately
            count_write([arrays.variables[slot].raw for slot in program.written])
        if is_train:
            if packed_weights.entries:
                packed_weights.drop_changed()
            self._run = RecordedRun(prepared, values, aliases, *result[1:])

    def _take_outputs(self, outputs: Sequence[Any], is_train: bool) -> None:
        """Put the results of a run into the arrays of the outputs."""
        dense_only = self._arrays.storage is None
        for handle, out in zip(self._outputs, outputs):
            if not dense_only and is_sparse(handle):
                handle.take_over(stored_as(out.detach(), handle.stype))  # type: ignore[attr-defined]
                continue
            # a separate version counter: an output may be written before backward, as in MXNet
            own = out.data if is_train else out
            handle.raw = own if own.is_contiguous() or is_dense(own) else own.contiguous()
            handle.pinned = False
        self._released = False

    def _inputs(self, recorded: bool, restrided: Sequence[int] = ()) -> tuple[list[Any], list[Any]]:
        """Return the tensors of all variables, and those that need a gradient; aliases if the run is recorded.

        An alias shares the memory but has its own version counter, so that backward uses the current values of a
        variable written after forward, as in MXNet. Only aliases have requires_grad set; arrays never do.

        Args:
            restrided: slots of the weights to copy to channels_last; the copies take the place of their aliases.
        """
        arrays, borrowed = self._arrays, self._borrowed
        values = list(map(_RAW, arrays.variables)) if arrays.storage is None else arrays.values()
        if not recorded:
            for slot, tensor in borrowed.items():
                values[slot] = tensor
            return values, []
        wanted = self._backward.wanted
        if not (self._aliased and all(map(operator.is_, values, self._aliased))):
            known, aliases = zip(self._aliased, self._aliases) if self._aliased else repeat((None, None)), []
            for slot, (tensor, (old, alias)) in enumerate(zip(values, known)):
                if tensor is not old:
                    alias = tensor.data
                    if slot in wanted and alias.is_floating_point():
                        alias.requires_grad_(True)
                aliases.append(alias)
            self._aliased, self._aliases = values, aliases
        values = self._aliases.copy()
        for slot, tensor in borrowed.items():
            alias = values[slot] = tensor.data
            if slot in wanted and alias.is_floating_point():
                alias.requires_grad_(True)
        if restrided:
            self._restride([slot for slot in restrided if slot not in borrowed], values)
        return values, list(map(values.__getitem__, self._backward.slots))

    def _restride(self, weights: Sequence[int], values: list[Any]) -> None:
        """Replace the values of some slots by copies in channels_last."""
        slots = [slot for slot in weights if can_relayout(values[slot])]
        for slot, weight in zip(slots, to_channels_last([values[slot] for slot in slots])):
            values[slot] = weight.requires_grad_(slot in self._backward.wanted)

    def _execute_first(
        self, prepared: PreparedProgram, values: list[Any], recorded: bool, frees: bool
    ) -> tuple[Any, ...]:
        """Run a program for backward, and find the arguments that are neither written nor read after forward."""
        if self._mode.watched or self._arrays.storage is not None:
            return self._execute(prepared, values, recorded, frees)
        before = count_holders(values)
        result = self._execute(prepared, values, recorded, frees)
        kept, program = kept_tensors(values, before), prepared.program
        read = {slot for loss in program.low.losses for slot in loss.rest}.union(program.written)
        slots = self._arrays.slots.items()
        self._unread = frozenset(name for name, slot in slots if not (kept[slot] or slot in read))
        return result

    def _reuse(self, prepared: PreparedProgram) -> None:
        """Pass the memory of the last run's outputs to steps if nothing else refers to it."""
        for output, position in prepared.program.reused:
            shaped = prepared.shaped[position]
            shaped.memory = None  # left by a run that failed
            shaped.memory = reusable(self._outputs[output]) if self._options.compile is None else None

    def _execute(
        self, prepared: PreparedProgram, values: list[Any], recorded: bool, frees: bool = False
    ) -> tuple[Any, ...]:
        """Run a program.

        Args:
            frees: free large outputs first, so that new ones are computed in memory that is in the cache; if the run
                fails, `outputs` are new arrays.
        """
        if frees:
            for i in self._large:
                output = self._outputs[i]
                if i not in self._freed:
                    self._freed[i] = nothing(output.raw)
                output.raw = self._freed[i]
                self._released = True
        before = torch.is_grad_enabled()
        if before is not recorded:
            torch_private.set_grad_enabled(recorded)
        try:
            return prepared.forward(values, prepared.env, prepared.shaped)
        except Exception as error:
            # do not bind the cause to a name: its traceback would keep it, and all tensors here, alive
            if not isinstance(error, StepFailed):
                shown = self._mode.watched and prepared.forward is not prepared.program.forward
                if shown or is_user_error(error):  # raised by the monitor or a user's operator
                    raise
            elif error.__cause__ is not None and is_user_error(error.__cause__):
                raise error.__cause__ from error.__cause__.__cause__
            shapes = self._arrays.shapes
            raise forward_error(error, prepared.program, self.graph, shapes) from (error.__cause__ or error)
        finally:
            torch_private.set_grad_enabled(before)

    def _commit(
        self, program: Program, mutated: Sequence[torch.Tensor | None], in_forward: bool
    ) -> list[tuple[int, torch.Tensor]]:
        """Write new values of states to their arrays.

        Returns:
            Slot and old value of each state; empty if `in_forward`.
        """
        if all(map(operator.is_, mutated, repeat(None))):  # as in predictions, which have many states
            return []
        slots, new_values = [], []
        for (slot, _, now), new in zip(program.low.mutated, mutated):
            if now is in_forward and new is not None and (in_forward or slot not in self._frozen):
                slots.append(slot)
                new_values.append(new.detach() if in_forward else new)
        if not slots:
            return []
        arrays = list(map(self._arrays.variables.__getitem__, slots))
        old_values = list(map(_RAW, arrays))
        copies = [] if in_forward else self._save(old_values)
        if self._arrays.storage is None:
            torch_private.foreach_copy(old_values, new_values)
        else:
            for array, new in zip(arrays, new_values):
                array.overwrite(new)
        return list(zip(slots, copies))

    def _save(self, states: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return copies of states, in the memory of the last ones if that fits."""
        saved = self._saved
        if list(map(_SHAPE, saved)) == list(map(_SHAPE, states)):
            torch_private.foreach_copy(saved, states)
        else:
            self._saved = list(torch_private.foreach_clone(states))
        return self._saved

    def _mark_reshaped_from(self, origin: Executor) -> None:
        """Mark this executor as reshaped from another, and take its monitor."""
        self._reshaped_from = weakref.ref(origin)
        self.copy_monitor(origin)

    def _write_to_origin(self) -> None:
        """Write the outputs to the outputs of the executor this one was reshaped from, if that has not run.

        In MXNet both share memory. Here an executor that has run keeps its results.
        """
        origin = self._reshaped_from() if self._reshaped_from is not None else None
        if origin is None or origin.has_run or self._arrays.storage is not None:
            self._reshaped_from = None
            return
        for own, old in zip(self._outputs, origin.outputs):
            write_into(own, old)

    def _replayed(self, is_train: bool, inputs: Mapping[str, Any] | None) -> bool:
        """Replay a whole run and store its results; return True if it was replayed."""
        if self._reshaped_from is not None:
            return False
        self._borrowed = {}
        results = self._mode.replay(is_train, inputs)
        if results is None:
            return False
        self._random_states = results.random_states
        self._run, self._last_mode = None, is_train
        for handle, out in zip(self._outputs, results.outputs):
            handle.raw = out.clone()  # the next replay overwrites it
            handle.pinned = False
        self._released = False
        if results.grads:
            with torch.no_grad():
                deliver(results.grads, self._backward.targets, self._backward.adds, ())
        return True

    def _work(self, is_train: bool) -> RecordedOutputs:
        """Run on the executor's own arrays for a recording; return gradients instead of writing them to arrays."""
        from .cuda_graphs import RecordedOutputs, without_aliases

        with torch.no_grad():
            prepared = self._prepare(is_train, is_train)
            values, aliases = self._inputs(is_train)
            result = self._execute(prepared, values, is_train)
            outputs = [out.detach().contiguous() for out in result[0]]
            self._commit(prepared.program, result[3], in_forward=True)
            if not is_train:
                return RecordedOutputs(outputs, [])
            for handle, out in zip(self._outputs, outputs):  # losses read them
                handle.raw = out
            run = RecordedRun(prepared, values, aliases, *result[1:])
            grads = self._backward.gradients(run, self._head_gradients(run, [None] * len(outputs)))
            self._commit(prepared.program, result[3], in_forward=False)
            return RecordedOutputs(outputs, without_aliases(grads, [*values, *outputs]))

    def probes(self) -> list[torch.Tensor]:
        """Return, for each output of the last forward, a part that is finite only if the whole output is.

        For an output of `BlockGrad`, which is not trained, the part is empty.

        Shape:
            returns: (k,) each, k from 0 to the number of elements.
        """
        parts = []
        for probe, out in zip(self._probes, self._outputs):
            parts.append(probe(out))
        return parts

    # backward

    def backward(
        self, out_grads: Any = None, is_train: bool = True, listener: Listener | None = None
    ) -> None:
        """Compute gradients of the arguments.

        A second call without a new forward computes the same gradients again (with "add" they accumulate). If nothing
        has run yet, the graph first runs in training mode.

        Shape:
            out_grads: each as its output.

        Args:
            out_grads: gradient of each output, as NDArray, list or dict by output name; optional for losses, which
                ignore it.
            is_train: accepted as in MXNet; the gradients are those of the last forward, in its mode.
            listener: called with the name and the tensor of each gradient that replaces its array's values, as soon as
                it is computed, while others are still being computed. Some gradients, or all, may be skipped.

        Raises:
            StateError: the results of the last forward were released.
            ArgumentError: an output that is not a loss has no gradient.
            ShapeError: a head gradient has another shape than its output.
            NodeError: an operator's gradient failed; the message names the node.
        """
        if self._last_mode is None:
            if self._released:
                raise StateError("backward: call forward(is_train=True) first")
            self.run(True)
        outputs, backward = self._outputs, self._backward
        if out_grads is None:
            out_grad_tensors: list[torch.Tensor | None] = [None] * len(outputs)
        else:
            out_grad_tensors = convert_head_gradients(out_grads, self.graph.output_names, outputs)
        if not backward.slots:
            return
        first = self._run is not None
        run = self._run or self._run_again(bool(self._last_mode))
        if listener is not None and len(self._contexts) > 1:
            listener = None  # autograd uses one thread per device
        if (
            backward.integers
            or out_grads is not None
            and self._has_integer_heads
            and _any_integers(out_grad_tensors)
        ):
            with self._repeating(run.prepared.program):
                run = with_float_integers(run, backward.slots)
        before = torch.is_grad_enabled()
        torch_private.set_grad_enabled(False)
        try:
            head_grads = backward.head_gradients(run, out_grad_tensors, outputs)
            self._run = None
            if isinstance(self._mode, InterpretedMode):
                self._show_backward(run, head_grads, self._mode)
            backward.differentiate(run, head_grads, outputs, listener)
            self._before = []
            if first and run.mutated:
                self._before = self._commit(run.prepared.program, run.mutated, in_forward=False)
        finally:
            torch_private.set_grad_enabled(before)

    def restore_aux_states(self) -> None:
        """Restore the auxiliary states that the last backward wrote; once.

        States that operators write in forward stay unchanged.
        """
        for slot, values in self._before:
            self._arrays.variables[slot].overwrite(values)
        self._before = []

    def _head_gradients(self, run: RecordedRun, given: Sequence[torch.Tensor | None]) -> HeadGradients:
        """Return the roots of backward for the last forward or a repetition of it."""
        return self._backward.head_gradients(run, given, self._outputs)

    def _repeating(self, program: Program) -> AbstractContextManager[None]:
        """Allow repeating the last forward inside the block without changing random numbers and states."""
        return repeating(program, self._contexts, self._random_states, self._arrays.variables)

    def _run_again(self, is_train: bool) -> RecordedRun:
        """Repeat the last forward, with the same random numbers, for backward only; outputs do not change."""
        for name, version in self._versions.items():
            tensor = self._borrowed.get(self._arrays.slots[name])
            if tensor is not None and tensor._version != version:
                raise StateError(
                    f"backward: {name} of the batch was changed since forward, and a repeated backward reads it again; "
                    "call forward first"
                )
        prepared = self._prepare(True, is_train)
        if self._mode.watched:
            prepared = prepared._replace(forward=prepared.program.forward)
        with self._repeating(prepared.program):
            values, aliases = self._inputs(True, prepared.restrided)
            return RecordedRun(prepared, values, aliases, *self._execute(prepared, values, True)[1:])

    def _show_backward(self, run: RecordedRun, head_grads: HeadGradients, mode: InterpretedMode) -> None:
        """Show the monitor every operator's gradients; costs an additional forward and backward."""
        program, env, shaped = run.prepared[:3]
        with self._repeating(program):
            heads, seeds = value_gradients(program, head_grads), loss_gradients(program, head_grads)
            backward_by_node(program, run.values, env, shaped, heads, mode.show, seeds)

    def step(self, inputs: Mapping[str, Any] | None = None, listener: Listener | None = None) -> None:
        """Run forward in training mode, then backward; the outputs must be losses.

        Shape:
            inputs: each as the argument of its name.

        Args:
            inputs: see `run`.
            listener: see `backward`.
        """
        if not (self._mode.replays and self._replayed(True, inputs)):
            self.run(True, inputs)
            self.backward(None, True, listener)

    @property
    def has_run(self) -> bool:
        """True if there was a forward whose results are still available."""
        return self._last_mode is not None

    def drop_cached_runs(self) -> None:
        """Drop cached runs, since an executor for other shapes takes over; this one may be used again."""
        self._default_mode.forget()

    def release(self) -> bool:
        """Free outputs and the state for backward; output arrays obtained earlier keep their values.

        Returns:
            True if there was anything to free.
        """
        self._default_mode.forget()
        if self._last_mode is None:
            return False
        self._own_inputs()
        self._outputs = [  # new arrays, which take no memory until they are read
            allocate_as(o.stype, o.shape, o.context, dtype_name(o.dtype))
            if is_sparse(o)
            else NDArray(nothing(o.raw), o.context)
            for o in self._outputs
        ]
        self._released = True
        self._run = None
        self._random_states = []
        self._last_mode = None
        return True

    # reshaping

    def reshape(
        self, /, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Iterable[int]
    ) -> Executor:
        """Return an executor for other input shapes; arrays whose shape stays are the same objects.

        Shape:
            kwargs: the new shapes; other shapes are inferred.

        Args:
            partial_shaping: allow shapes of arguments not named here to change.
            allow_up_sizing: allow arrays to grow, which allocates new ones.
            kwargs: new shapes by argument name.

        Raises:
            ArgumentError: a keyword is not an argument, or a change was not allowed.
            ShapeError: the shapes contradict each other.
        """
        self._own_inputs()
        arrays = self._arrays
        own = arrays.args, {k: g for k, g in arrays.grads.items() if g is not None}, arrays.aux
        args, grads, aux = resize(self.graph, own, kwargs, partial_shaping, allow_up_sizing)
        req, placement, stypes = self.grad_req, arrays.placement, arrays.stypes
        binding = Binding(self.graph, self.context, args, grads, req, aux, placement=placement, stypes=stypes)
        reshaped = Executor(binding, self._symbol, self._options)
        reshaped._mark_reshaped_from(self)
        return reshaped

    # inspection

    @contextmanager
    def trial_run(self, is_train: bool) -> Iterator[TrialRun]:
        """Allow running the program inside the block any number of times, on the current arrays.

        Outputs, gradients, states, the record for backward and random numbers stay unchanged.
        """
        from .measurement import TrialRun  # imported only on demand

        prepared = self._prepare(is_train, is_train)
        program, env, shaped, forward, _ = prepared
        forward = program.forward if self._mode.watched else forward

        def head_gradients(result: tuple[Any, ...]) -> HeadGradients:
            ones = [
                None if self._backward.ignores_head(i) else torch.ones_like(leaf_of(root).detach())
                for i, root in enumerate(result[1])
            ]
            return self._head_gradients(RecordedRun(prepared, values, aliases, *result[1:]), ones)

        before = torch.is_grad_enabled()
        torch_private.set_grad_enabled(False)
        try:
            with self._repeating(program):
                values, aliases = self._inputs(is_train, prepared.restrided)
                gpus = tuple({c.torch_device: c for c in self._contexts if is_gpu(c.torch_device)})
                yield TrialRun(program, env, shaped, values, aliases, forward, head_gradients, gpus)
        finally:
            torch_private.set_grad_enabled(before)

    def _inspection(self) -> Inspection:
        from .inspection import Inspection  # imported only on demand

        return Inspection(self, self._arrays, self._backward.freed_names)

    def explain(
        self,
        is_train: bool | None = None,
        times: bool = False,
        measure_memory: bool = False,
        parameters: Collection[str] | None = None,
        repeats: int = 5,
    ) -> ExecutorExplanation:
        """Return an explanation of what this executor runs: generated source, passes, and a table of steps.

        Print the result to read it. Measuring times and memory runs the program on the current arrays; values, outputs
        and random numbers stay unchanged. Custom operators run, too. Use `mx.profiler` to look inside steps.

        Args:
            is_train: True for a table of training; None means True if gradients are kept.
            times: also measure the time of every step, forward and backward.
            measure_memory: measure the memory of a run instead of estimating it.
            parameters: names of the arguments that are parameters; None means those that operators declare.
            repeats: number of timed runs, of which the medians are shown.

        Raises:
            StateError: a profiler runs while memory is measured.

        Example:
            >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
            >>> found = net.simple_bind(mx.cpu(), data=(2, 4)).explain()
            >>> [step.name for step in found.steps], found.parameters, found.flops
            (['fc'], 15, 48)
        """
        return self._inspection().explain(is_train, times, measure_memory, parameters, repeats)

    def memory(self, is_train: bool | None = None, measure: bool = False) -> MemoryUse:
        """Return the memory that tensors take in a run.

        Args:
            is_train: True for a training run, with backward if gradients are kept; None means True if they are.
            measure: measure a run instead of estimating from the shapes. The first call takes a second.

        Raises:
            StateError: a profiler runs while memory is measured.
        """
        return self._inspection().memory(is_train, measure)

    @property
    def peak_bytes(self) -> int:
        """Peak memory of tensors in a run, in bytes, estimated from the shapes.

        This is ``memory().peak``; ``memory(measure=True).peak`` measures it.
        """
        return self.memory().peak

    def debug_str(self) -> str:
        """Return the source of the generated functions, for prediction and training, and their memory.

        The last two lines have MXNet's format, since programs parse the number in the first of them: the memory of all
        operators' results if there are gradients, else its peak.
        """
        return self._inspection().debug_str()

    def get_optimized_symbol(self) -> Any:
        """Return the symbol with equal operators on equal inputs merged, as MXNet runs it.

        The original symbol is not changed; the generated function merges the same operators. Setting the environment
        variable MXNET_ELIMINATE_COMMON_EXPR=0 before binding disables both.

        Raises:
            StateError: the executor was not made from a symbol.
        """
        if self._symbol is None:
            raise StateError("get_optimized_symbol: this executor was not made by Symbol.bind or simple_bind")
        return type(self._symbol)(merge_equal(self.graph)) if self._merges else self._symbol


def _any_integers(given: Sequence[torch.Tensor | None]) -> bool:
    return any(grad is not None and not grad.is_floating_point() for grad in given)


def _few(arrays: Iterable[tuple[str, NDArray]]) -> str:
    """Return the names and shapes of the first arrays as text of one line."""
    texts = [f"{name} {array.shape}" for name, array in arrays]
    return ", ".join(texts[:_MAX_SHOWN]) + (
        f" and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
    )
