"""`Executor`: a graph with arrays, run forward and backward."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ..base import ArgumentError, MXNetError, NodeError, ShapeError, StateError, dtype_name
from ..context import Context
from ..generators import generator
from ..graph import Graph, Node, infer_shapes, infer_types
from ..ndarray import NDArray
from ..ops.dtypes import torch_dtype
from ..ops.shapes import prod
from ..ops.spec import Env
from ..private import run_backward
from .gradients import deliver
from .interpreter import failing_node, interpret
from .memory import allocate
from .program import Program, program_of

__all__ = ["Executor", "requirements"]

_REQS = ("write", "add", "null")


def requirements(names: Sequence[str], grad_req: Any) -> dict[str, str]:
    """Return "write", "add" or "null" for every argument.

    Args:
        names: the arguments.
        grad_req: one of the words for all, a list in the order of `names`, or a dict (missing ones: "null").

    Raises:
        ArgumentError: another word, another type, or a wrong number of entries.
    """
    if isinstance(grad_req, str):
        found = dict.fromkeys(names, grad_req)
    elif isinstance(grad_req, (list, tuple)):
        if len(grad_req) != len(names):
            raise ArgumentError(f"grad_req has {len(grad_req)} entries for {len(names)} arguments: {', '.join(names)}")
        found = dict(zip(names, grad_req))
    elif isinstance(grad_req, Mapping):
        found = {name: grad_req.get(name, "null") for name in names}
    else:
        raise ArgumentError(f"grad_req is {grad_req!r}, expected a word, a list or a dict of {', '.join(_REQS)}")
    for name, req in found.items():
        if req not in _REQS:
            raise ArgumentError(f"grad_req of {name} is {req!r}, expected one of {', '.join(_REQS)}")
    return found


class _Run:
    """What a training forward leaves for backward."""

    __slots__ = ("aliases", "mutated", "rests", "roots", "values")

    def __init__(self, values: list[torch.Tensor], aliases: list[torch.Tensor], result: tuple[Any, ...]) -> None:
        self.values = values
        self.aliases = aliases
        _, self.roots, self.rests, self.mutated = result


class Executor:
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
    ) -> None:
        self.graph = graph
        self.context = ctx
        self.grad_req = dict(grad_req)
        names = graph.argument_names
        self._args = {name: args[name] for name in names}
        self._aux = {name: aux[name] for name in graph.auxiliary_names}
        self._grads = {name: grads.get(name) if grad_req.get(name) != "null" else None for name in names}
        self._variables = [*self._args.values(), *self._aux.values()]
        self._slots = {name: i for i, name in enumerate((*self._args, *self._aux))}
        self._wanted = [
            (i, grad, self.grad_req[name] == "add")
            for i, (name, grad) in enumerate(self._grads.items())
            if grad is not None
        ]
        every = {**self._args, **self._aux}
        self._shapes = shapes or infer_shapes(graph, {k: v.shape for k, v in every.items()})
        types = types or infer_types(graph, {k: dtype_name(v.dtype) for k, v in every.items()}, default="float32")
        self._outputs = [
            allocate(tuple(self._shapes[node][i] or ()), ctx, types[node][i] or "float32") for node, i in graph.heads
        ]
        self._is_loss_head = [node.op is not None and node.op.is_loss(node.a) for node, _ in graph.heads]
        self._programs: dict[bool, tuple[Program, Env, list[Env]]] = {}
        self._alias_cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._borrowed: dict[int, torch.Tensor] = {}
        self._run: _Run | None = None
        self._has_run = False
        self._random_state: torch.Tensor | None = None
        self._monitor: tuple[Callable[[str, NDArray], None], bool] | None = None

    # arrays

    @property
    def arg_dict(self) -> dict[str, NDArray]:
        """Arguments by name."""
        self._own_inputs()
        return self._args

    @property
    def grad_dict(self) -> dict[str, NDArray | None]:
        """Gradients by argument name; None where no gradient is kept."""
        return self._grads

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        """Auxiliary states by name."""
        return self._aux

    @property
    def output_dict(self) -> dict[str, NDArray]:
        """Outputs of the last forward by name."""
        return dict(zip(self.graph.output_names, self._outputs))

    @property
    def arg_arrays(self) -> list[NDArray]:
        """Arguments in the order of `list_arguments`."""
        return list(self.arg_dict.values())

    @property
    def grad_arrays(self) -> list[NDArray | None]:
        """Gradients in the order of `list_arguments`; None where no gradient is kept."""
        return list(self._grads.values())

    @property
    def aux_arrays(self) -> list[NDArray]:
        """Auxiliary states in the order of `list_auxiliary_states`."""
        return list(self._aux.values())

    @property
    def outputs(self) -> list[NDArray]:
        """Outputs of the last forward. The same objects every time: they show the newest values."""
        return self._outputs

    def input_array(self, name: str) -> NDArray:
        """Return an argument's own array without bringing it up to date; for loading the next batch."""
        return self._args[name]

    def _own_inputs(self) -> None:
        """Copy inputs that the last forward read in place into this executor's own arrays."""
        if self._borrowed:
            for slot, tensor in self._borrowed.items():
                self._variables[slot].tensor.copy_(tensor)
                if self._run is not None and slot not in self._alias_cache:
                    self._run.values[slot] = self._variables[slot].tensor
            self._borrowed = {}

    def copy_params_from(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Copy parameters and states into this executor's arrays.

        Args:
            arg_params: arrays by argument name, of the argument's shape.
            aux_params: arrays by state name.
            allow_extra_params: pass over names that are not in the graph.

        Raises:
            ArgumentError: a name is not in the graph.
            ShapeError: a shape does not fit.
        """
        for kind, given, own in (("argument", arg_params, self.arg_dict), ("auxiliary state", aux_params, self._aux)):
            for name, value in (given or {}).items():
                if name in own:
                    self._assign(name, own[name], value)
                elif not allow_extra_params:
                    raise ArgumentError(f"copy_params_from: {name!r} is no {kind} of this graph: {', '.join(own)}")

    @staticmethod
    def _assign(name: str, target: NDArray, value: Any) -> None:
        tensor = value.tensor if isinstance(value, NDArray) else torch.as_tensor(value)
        if tuple(tensor.shape) != target.shape:
            raise ShapeError(f"{name} has shape {tuple(tensor.shape)}, expected {target.shape}")
        if tensor is not target.tensor:
            target.tensor.copy_(tensor)

    # forward

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        """Run the graph.

        Args:
            is_train: training mode; only then may `backward` follow without running the graph again.
            kwargs: new values of arguments by name, copied in.

        Returns:
            The outputs.

        Raises:
            ArgumentError: a keyword is no argument.
            ShapeError: a value has another shape than its argument.
            NodeError: an operator failed; names the node.
        """
        arguments = self.arg_dict
        for name, value in kwargs.items():
            if name not in arguments:
                raise ArgumentError(f"forward: {name!r} is no argument; arguments: {', '.join(arguments)}")
            self._assign(name, arguments[name], value)
        self.run(bool(is_train))
        return self._outputs

    def run(self, is_train: bool, inputs: Mapping[str, torch.Tensor] | None = None) -> None:
        """Run the graph, reading some inputs where they lie instead of copying them in.

        The tensors must stay unchanged until backward is done; whoever looks at `arg_dict` later finds a copy.

        Args:
            is_train: training mode.
            inputs: tensors by argument name, of the bound shapes, types and device.
        """
        self._borrowed = {self._slots[name]: tensor for name, tensor in inputs.items()} if inputs else {}
        self._run = None
        self._has_run = True
        program, env, _ = self._program(is_train)
        if is_train and program.random and env.generator is not None:
            self._random_state = env.generator.get_state()
        self._execute(is_train)

    def _program(self, is_train: bool) -> tuple[Program, Env, list[Env]]:
        found = self._programs.get(is_train)
        if found is None:
            program = program_of(self.graph, is_train)
            device, random = self.context.torch_device, generator(self.context)
            shaped = []
            for step in program.shaped:
                shapes = tuple(tuple(s or ()) for s in self._shapes[self.graph.nodes[step.node]])
                shaped.append(Env(device, random, is_train, shapes))
            found = self._programs[is_train] = program, Env(device, random, is_train), shaped
        return found

    def _execute(self, is_train: bool) -> None:
        program, env, shaped = self._program(is_train)
        values = [array.tensor for array in self._variables]
        for slot, tensor in self._borrowed.items():
            values[slot] = tensor
        aliases: list[torch.Tensor] = []
        if is_train:
            for slot, _, _ in self._wanted:
                values[slot] = alias = self._alias(slot, values[slot])
                aliases.append(alias)
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(is_train and bool(aliases))
        try:
            if self._monitor is None:
                result = program.forward(values, env, shaped)
            else:
                result = interpret(program, values, env, shaped, self._watch, self._monitor[1])
        except Exception as error:
            raise self._located(error, program) from error
        finally:
            torch.set_grad_enabled(before)
        for handle, out in zip(self._outputs, result[0]):
            handle.tensor = out.detach() if out.requires_grad else out
            handle.pinned = False
        if program.low.mutated:
            self._commit(program, result[3], at_once=True)
        if is_train:
            self._run = _Run(values, aliases, result)

    def _alias(self, slot: int, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the same memory that records gradients; `tensor` itself never does.

        An alias has a version counter of its own, so that an argument written between forward and backward is
        used as it then is, as in MXNet.
        """
        cached = self._alias_cache.get(slot)
        if cached is not None and cached[0] is tensor:
            return cached[1]
        alias = tensor.data
        if alias.is_floating_point():
            alias.requires_grad_(True)
        if slot not in self._borrowed:
            self._alias_cache[slot] = tensor, alias
        return alias

    def _commit(self, program: Program, mutated: Sequence[torch.Tensor | None], at_once: bool) -> None:
        """Write new values of states into their arrays."""
        with torch.no_grad():
            for (slot, _, now), new in zip(program.low.mutated, mutated):
                if now is at_once and new is not None:
                    self._variables[slot].tensor.copy_(new)

    # backward

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Compute gradients of the arguments.

        A second call without a new forward gives the same gradients once more (under "add" they add up).

        Args:
            out_grads: gradient of each output, as NDArray, list or dict by output name; may be left out for
                losses, which ignore it.
            is_train: mode in which the graph is run again, if it has to be.

        Raises:
            StateError: nothing has been run yet.
            ArgumentError: an output that is no loss has no gradient.
            ShapeError: a head gradient has another shape than its output.
            NodeError: an operator's gradient failed; names the node.
        """
        if not self._has_run:
            raise StateError("backward: call forward(is_train=True) first")
        commit = self._run is not None
        if self._run is None:
            self._run_again(is_train)
        program, env, shaped = self._program(True)
        run, self._run = self._run, None
        if run is None:
            return
        heads = self._head_gradients(out_grads)
        if self._wanted:
            self._differentiate(program, env, shaped, run, heads)
        if commit and program.low.mutated and self._wanted:
            self._commit(program, run.mutated, at_once=False)

    def _run_again(self, is_train: bool) -> None:
        """Repeat the last forward with the random numbers it drew."""
        program, env, _ = self._program(True)
        saved = None
        if program.random and env.generator is not None and self._random_state is not None:
            saved = env.generator.get_state()
            env.generator.set_state(self._random_state)
        self._execute(True)
        if saved is not None and env.generator is not None:
            env.generator.set_state(saved)

    def _head_gradients(self, out_grads: Any) -> list[torch.Tensor | None]:
        """Return the given gradient of each output as tensors."""
        count = len(self._outputs)
        if out_grads is None:
            return [None] * count
        if isinstance(out_grads, NDArray):
            given: list[Any] = [out_grads]
        elif isinstance(out_grads, Mapping):
            given = [out_grads.get(name) for name in self.graph.output_names]
        elif isinstance(out_grads, (list, tuple)):
            given = list(out_grads) or [None] * count
        else:
            raise ArgumentError(f"out_grads is {type(out_grads).__name__}, expected an NDArray, a list or a dict")
        if len(given) != count:
            raise ArgumentError(f"out_grads has {len(given)} arrays for {count} outputs")
        heads: list[torch.Tensor | None] = []
        for name, grad, out in zip(self.graph.output_names, given, self._outputs):
            if grad is not None and not isinstance(grad, NDArray):
                raise ArgumentError(f"out_grads: {name} is {type(grad).__name__}, expected an NDArray")
            if grad is not None and grad.shape != out.shape:
                raise ShapeError(f"out_grads: {name} has shape {grad.shape}, expected {out.shape}")
            heads.append(None if grad is None else grad.tensor.to(out.tensor.dtype))
        return heads

    def _seeds(
        self, program: Program, env: Env, run: _Run, heads: list[torch.Tensor | None]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return where backward starts, and with which gradients."""
        cut = {loss.output: (loss, rest) for loss, rest in zip(program.low.losses, run.rests)}
        roots, seeds = [], []
        for i, root in enumerate(run.roots):
            if not root.requires_grad:
                continue
            found = cut.get(i)
            seed = heads[i]
            if found is not None:
                loss, made = found
                rest = [run.values[n] if m is None else m.detach() for n, m in zip(loss.rest, made)]
                seed = loss.op.loss.grad(loss.a, env, self._outputs[i].tensor, root.detach(), *rest)  # type: ignore[union-attr]
            elif seed is None:
                if not self._is_loss_head[i]:
                    raise ArgumentError(
                        f"backward: output {self.graph.output_names[i]!r} is no loss, so its gradient must be "
                        "given in out_grads (or wrap it in BlockGrad or MakeLoss)"
                    )
                seed = torch.ones_like(root)
            roots.append(root)
            seeds.append(seed)
        return roots, seeds

    def _differentiate(
        self, program: Program, env: Env, shaped: list[Env], run: _Run, heads: list[torch.Tensor | None]
    ) -> None:
        with torch.no_grad():
            roots, seeds = self._seeds(program, env, run, heads)
            real = [i for i, alias in enumerate(run.aliases) if alias.requires_grad]
            grads: list[torch.Tensor | None] = [None] * len(run.aliases)
            if roots and real:
                try:
                    found = run_backward(roots, seeds, [run.aliases[i] for i in real])
                except Exception as error:
                    raise self._located_backward(error, program, env, shaped, run, roots, seeds) from error
                for i, grad in zip(real, found):
                    grads[i] = grad
            taken = [*seeds, *run.values, *(o.tensor for o in self._outputs)]
            deliver(grads, [g for _, g, _ in self._wanted], [add for _, _, add in self._wanted], taken)

    # errors

    def _located(self, error: Exception, program: Program) -> MXNetError:
        """Say which node failed in the generated function, what went in, and where the user made it."""
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == program.filename]
        index = program.node_at(lines[-1]) if lines and lines[-1] is not None else -1
        if index < 0:
            return NodeError(f"{type(error).__name__}: {error}")
        return self._node_error(self.graph.nodes[index], error, "")

    def _located_backward(
        self,
        error: Exception,
        program: Program,
        env: Env,
        shaped: list[Env],
        run: _Run,
        roots: list[torch.Tensor],
        seeds: list[torch.Tensor],
    ) -> MXNetError:
        """Say which node's gradient failed, by running backward again node by node."""
        low = program.low
        cut = {loss.output: loss.root for loss in low.losses}
        numbers = [cut.get(i, n) for i, n in enumerate(low.heads)]
        heads = {n: seed for n, root, seed in zip(numbers, run.roots, seeds) if root.requires_grad}
        try:
            node = failing_node(program, [v.detach() for v in run.values], env, shaped, heads)
        except Exception:
            node = None
        return NodeError(f"in backward: {error}") if node is None else self._node_error(node, error, " (its gradient)")

    def _node_error(self, node: Node, error: Exception, what: str) -> NodeError:
        inputs = ", ".join(f"{child.output_names[i]} {self._shapes[child][i]}" for child, i in node.inputs)
        return NodeError(f"{node.describe()}{what} failed on inputs {inputs or 'none'}: {error}")

    # monitoring and reshaping

    def set_monitor_callback(self, callback: Callable[[str, NDArray], None] | None, monitor_all: bool = False) -> None:
        """Call a function with the name and value of every operator's output during forward.

        Args:
            callback: ``(name, array)``; None takes the callback away.
            monitor_all: also show every variable.
        """
        self._monitor = None if callback is None else (callback, monitor_all)

    def _watch(self, name: str, tensor: torch.Tensor) -> None:
        if self._monitor is not None and tensor is not None:
            self._monitor[0](name, NDArray(tensor.detach(), self.context))

    def reshape(self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Iterable[int]) -> Executor:
        """Return an executor for other input shapes; arrays whose shape stays are the same objects.

        Args:
            partial_shaping: allow shapes of arguments not named here to change.
            allow_up_sizing: allow arrays to grow, which allocates new ones.
            kwargs: new shapes by argument name.

        Raises:
            ArgumentError: a keyword is no argument, or a change was not allowed.
            ShapeError: the shapes contradict each other.
        """
        unknown = [k for k in kwargs if k not in self._args]
        if unknown:
            raise ArgumentError(f"reshape: {', '.join(unknown)} is no argument; arguments: {', '.join(self._args)}")
        given = {k: tuple(int(d) for d in v) for k, v in kwargs.items()}
        shapes = infer_shapes(self.graph, given)
        self._own_inputs()
        args, grads, aux = dict(self._args), dict(self._grads), dict(self._aux)
        for node in (*self.graph.arguments, *self.graph.auxiliary):
            name, shape = node.name, shapes[node][0]
            own = args if name in args else aux
            if shape is None or 0 in shape or shape == own[name].shape:
                continue
            if name not in kwargs and not partial_shaping:
                raise ArgumentError(
                    f"reshape: the shape of {name} changes from {own[name].shape} to {shape} although it was not "
                    "given; set partial_shaping=True if that is meant"
                )
            own[name] = self._resized(name, own[name], shape, allow_up_sizing)
            grad = grads.get(name)
            if own is args and grad is not None:
                grads[name] = self._resized(f"gradient of {name}", grad, shape, allow_up_sizing)
        kept = {k: g for k, g in grads.items() if g is not None}
        return Executor(self.graph, self.context, args, kept, self.grad_req, aux)

    def _resized(self, name: str, array: NDArray, shape: tuple[int, ...], grow: bool) -> NDArray:
        if array.size >= prod(shape):
            return array.head_view(shape)
        if not grow:
            raise ArgumentError(
                f"reshape: {name} would grow from {array.shape} to {shape}; set allow_up_sizing=True to allow that"
            )
        return allocate(shape, self.context, dtype_name(array.dtype))

    def debug_str(self) -> str:
        """Return the source of the generated functions, predict and training."""
        return "\n".join(f"# is_train={mode}\n{program_of(self.graph, mode).source}" for mode in (False, True))
