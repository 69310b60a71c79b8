"""The arrays of an executor group as users see them: by parameter, input and state, on every context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base import ArgumentError, ShapeError
from ..context import Context
from ..executor import Executor
from ..ndarray import NDArray
from ..params import ParamStore
from .feed import Feed

__all__ = ["GroupArrays"]


class GroupArrays:
    """What a group is bound to. `DataParallelExecutorGroup` makes these attributes and runs its executors.

    Attributes:
        contexts: where it runs.
        store: parameters, gradients and auxiliary states.
        feed: present input shapes and the cut of a batch.
        execs: one executor for each context that has samples.
        arg_names: the symbol's arguments; `param_names`, `data_names` and `state_names` are among them.
        aux_names: the symbol's auxiliary states.
        for_training: whether there are gradients.
        inputs_need_grad: whether inputs have some too.
    """

    contexts: list[Context]
    store: ParamStore
    feed: Feed
    execs: list[Executor]
    arg_names: list[str]
    param_names: list[str]
    aux_names: list[str]
    data_names: list[str]
    state_names: list[str]
    for_training: bool
    inputs_need_grad: bool

    @property
    def per_context(self) -> bool:
        """Whether batches come cut already, one list of arrays per context."""
        return self.feed.per_context

    @property
    def batch_size(self) -> int | None:
        """Samples in a whole batch; number of contexts if batches come cut."""
        return self.feed.batch_size

    @property
    def num_samples(self) -> int:
        """Samples in a whole batch, however it is fed; 1 if no input has a batch axis."""
        if not self.per_context:
            return self.batch_size or 1
        axis = max(self.data_layouts[0], 0)
        return sum(int(data[0].shape[axis]) for data in self.data_shapes)

    @property
    def slices(self) -> list[slice]:
        """Each context's part of a batch."""
        return self.feed.slices

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the inputs."""
        return self.feed.data_shapes

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels; None without labels."""
        return self.feed.label_shapes

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self.feed.label_names

    @property
    def data_layouts(self) -> list[int]:
        """Batch axis of each input."""
        return self.feed.data_layouts

    @property
    def label_layouts(self) -> list[int]:
        """Batch axis of each label."""
        return self.feed.label_layouts

    @property
    def active_contexts(self) -> list[Context]:
        """Contexts that have samples under the present shapes."""
        return [self.contexts[i] for i in self.feed.active]

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """For each parameter its array on every context."""
        used = [name for name in self.arg_names if name in self.param_names]
        return [[self.store.array(name, i) for i in range(len(self.contexts))] for name in used]

    @property
    def grad_arrays(self) -> list[list[NDArray | None]] | None:
        """For each parameter its gradient on every context; None when not training."""
        if not self.for_training:
            return None
        used = [name for name in self.arg_names if name in self.param_names]
        return [[self.store.grad(name, i) for i in range(len(self.contexts))] for name in used]

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """For each auxiliary state its array on every context."""
        return [[self.store.aux(name, i) for i in range(len(self.contexts))] for name in self.aux_names]

    def _input_arrays(self, names: Sequence[str]) -> list[Any]:
        if self.per_context:
            return [[e.arg_dict[name] for name in names] for e in self.execs]
        return [
            [(self.slices[i], e.arg_dict[name]) for i, e in zip(self.feed.active, self.execs)]
            for name in names
        ]

    @property
    def data_arrays(self) -> list[Any]:
        """For each input its (slice, array) on every active context; per context a list of arrays if fed so."""
        return self._input_arrays(self.data_names)

    @property
    def label_arrays(self) -> list[Any] | None:
        """Like `data_arrays`, for labels; None without labels."""
        return self._input_arrays(self.label_names) if self.label_shapes else None

    @property
    def state_arrays(self) -> list[list[NDArray]]:
        """For each state its array on every active context."""
        return [[e.arg_dict[name] for e in self.execs] for name in self.state_names]

    @property
    def input_grad_arrays(self) -> list[list[NDArray | None]] | None:
        """For each input its gradient on every active context; None unless `inputs_need_grad`."""
        if not self.inputs_need_grad:
            return None
        return [[e.grad_dict[name] for e in self.execs] for name in self.data_names]

    # parameters

    def set_params(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray] | None,
        allow_extra: bool = False,
    ) -> None:
        """Copy parameters and states to every context; see `ParamStore.load`."""
        self.store.load(arg_params, aux_params or {}, allow_extra)

    def get_params(self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray]) -> None:
        """Write parameters and states, averaged over contexts, into given arrays.

        Args:
            arg_params: arrays by parameter name; those that exist are written in place, others are added.
            aux_params: the same for states.
        """
        for averages, target in zip(self.store.average(), (arg_params, aux_params)):
            for name, value in averages.items():
                if name in target:
                    target[name].raw.copy_(value.raw)
                else:
                    target[name] = value

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the states, a list over contexts for each; merged ones are refused, as in MXNet."""
        if merge_multi_context:
            raise ArgumentError("get_states: merge_multi_context=True is not supported; pass False")
        return self.state_arrays

    def set_states(self, states: Any = None, value: float | None = None) -> None:
        """Set the states.

        Args:
            states: a list over contexts of arrays for each state, as `get_states` gives.
            value: one number for all.

        Raises:
            ArgumentError: both or neither are given, or the lists have other lengths.
            ShapeError: an array has another shape than its state; no state is changed then.
        """
        if (states is None) == (value is None):
            raise ArgumentError("set_states: give either states or value")
        if value is not None:
            for targets in self.state_arrays:
                for target in targets:
                    target.raw.fill_(value)
            return
        pairs = self._matched_states(states)
        for source, target in pairs:
            if source is not target:
                target.raw.copy_(source.raw)

    def _matched_states(self, states: Any) -> list[tuple[NDArray, NDArray]]:
        """Return each given state with the array it goes to.

        Raises:
            ArgumentError: another number of states, or of contexts.
            ShapeError: a state has another shape.
        """
        if len(states) != len(self.state_names):
            names = ", ".join(self.state_names) or "none"
            count = len(self.state_names)
            raise ArgumentError(f"set_states: got {len(states)} states, the module has {count}: {names}")
        pairs = []
        for name, sources, targets in zip(self.state_names, states, self.state_arrays):
            if not isinstance(sources, (list, tuple)) or len(sources) != len(targets):
                raise ArgumentError(
                    f"set_states: {name} is {sources!r}, expected a list of {len(targets)} arrays, one per context, as "
                    "get_states and get_outputs give them with merge_multi_context=False"
                )
            for source, target in zip(sources, targets):
                if source.shape != target.shape:
                    raise ShapeError(f"set_states: {name} has shape {source.shape}, expected {target.shape}")
                pairs.append((source, target))
        return pairs
