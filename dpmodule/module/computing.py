"""What a module does through its executor group: changing shapes, computing, showing results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..base import ArgumentError, StateError
from ..ndarray.row_sparse import row_numbers
from .executor_group import DataParallelExecutorGroup
from .feed import is_batch_list, redescribe, resized
from .mxnet_names import MXNetNames
from .stage import Stage, needs
from .summary import summarize

if TYPE_CHECKING:
    from ..executor.explanation import Explanation

__all__ = ["GroupModule"]


class GroupModule(MXNetNames):
    """A module that computes on an executor group, which `Module` binds."""

    _label_names: list[str]
    _param_names: list[str]

    @property
    def group(self) -> DataParallelExecutorGroup:
        """The executor group.

        Raises:
            StateError: `bind` has not been called.
        """
        if self._group is None:
            raise StateError("Module: call bind(data_shapes=..., label_shapes=...) first")
        return self._group

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the inputs."""
        return self.group.data_shapes

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels; None without labels."""
        return self.group.label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of the outputs."""
        return self.group.get_output_shapes()

    @needs(Stage.BOUND)
    def reshape(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None) -> None:
        """Change the input shapes; parameters stay.

        Args:
            data_shapes: as in `bind`.
            label_shapes: as in `bind`.
        """
        labels = self._known_labels(label_shapes) if label_shapes else None
        self.group.reshape(list(data_shapes), labels)

    def _known_labels(self, label_shapes: Sequence[Any]) -> list[Any]:
        """Return the label shapes that the symbol has a use for; an iterator may offer more."""
        arguments = self._symbol.list_arguments()
        known = [s for s in label_shapes if s[0] in arguments]
        unknown = [s[0] for s in label_shapes if s[0] not in arguments]
        if unknown and set(unknown) - set(self._label_names):
            raise ArgumentError(
                f"bind: label_shapes names {unknown}, the module's label_names are {self._label_names}"
            )
        return known

    # computing

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Get ready for the batch that comes next.

        The devices keep all rows of row-sparse parameters up to date, so that none have to be fetched; what the
        function returns is checked only.

        Args:
            data_batch: the batch.
            sparse_row_id_fn: ``(batch) -> {parameter: row numbers}``, which rows of row-sparse parameters it needs.

        Raises:
            ArgumentError: the function returns something else, or names what is no parameter.
            BoundsError: there is no such row.
        """
        if sparse_row_id_fn is not None:
            self._check_rows(sparse_row_id_fn(data_batch))

    @needs(Stage.BOUND)
    def _check_rows(self, wanted: Any) -> None:
        """Refuse row numbers that are none of a parameter's."""
        if not isinstance(wanted, Mapping):
            raise ArgumentError(f"sparse_row_id_fn returned {type(wanted).__name__}, expected a dict")
        for name, rows in wanted.items():
            if name not in self._param_names:
                raise ArgumentError(
                    f"sparse_row_id_fn names {name!r}, which is no parameter; there are {', '.join(self._param_names)}"
                )
            row_numbers(rows, self.group.store.array(name, 0).shape[0])

    @needs(Stage.INITIALIZED)
    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run forward on a batch.

        Args:
            data_batch: a `DataBatch`; its arrays may have other shapes than were bound, which binds again.
            is_train: None = as the module was bound.

        Raises:
            ArgumentError: arrays are missing.
            ShapeError: the shapes contradict the symbol.
        """
        self._fit_shapes(data_batch)
        self.group.forward(data_batch, is_train)

    @needs(Stage.INITIALIZED)
    def forward_backward(self, data_batch: Any) -> None:
        """Run forward and backward on a batch; the outputs must be losses. See `forward`."""
        self._fit_shapes(data_batch)
        self.group.forward_backward(data_batch)

    @needs(Stage.INITIALIZED)
    def evaluate(self, data_batch: Any) -> None:
        """Run forward in prediction mode, reading the batch where it lies."""
        self._fit_shapes(data_batch)
        self.group.forward(data_batch, False, borrow=True)

    def _fit_shapes(self, batch: Any) -> None:
        """Bind again if a batch has other shapes than are bound."""
        group = self.group
        if is_batch_list(batch) or group.per_context:
            return
        if not isinstance(getattr(batch, "data", None), (list, tuple)):
            raise ArgumentError(
                f"the batch is of type {type(batch).__name__}, expected a DataBatch([data], [label])"
            )
        labels = (getattr(batch, "label", None) or ()) if group.label_names else ()
        shapes = tuple(a.shape for a in (*batch.data, *labels))
        if shapes == group.feed.input_shapes[: len(shapes)]:
            return
        data = redescribe(group.data_shapes, batch.data, getattr(batch, "provide_data", None))
        label = None
        if labels:
            label = redescribe(group.label_shapes, labels, getattr(batch, "provide_label", None))
        elif group.label_shapes:
            label = resized(group.label_shapes, data[0])
        self.reshape(data, label)

    @needs(Stage.INITIALIZED)
    def backward(self, out_grads: Any = None) -> None:
        """Run backward.

        Args:
            out_grads: gradients of the outputs; needed for outputs that are no losses.
        """
        self.group.backward(out_grads)

    @needs(Stage.INITIALIZED)
    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the outputs of the last forward; per device if `merge_multi_context` is off."""
        return self.group.get_outputs(merge_multi_context)

    def output_probes(self) -> list[list[torch.Tensor]]:
        """Return, for every output of the last forward, tensors that are finite only if all of it is."""
        return [list(parts) for parts in zip(*(executor.probes() for executor in self.group.execs))]

    def take_back(self) -> None:
        """Put auxiliary states back to what they were before the last backward."""
        for executor in self.group.execs:
            executor.take_back()

    @needs(Stage.INITIALIZED)
    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the inputs; needs ``bind(inputs_need_grad=True)``."""
        return self.group.get_input_grads(merge_multi_context)

    @needs(Stage.INITIALIZED)
    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the states, a list over devices for each."""
        return self.group.get_states(merge_multi_context)

    @needs(Stage.INITIALIZED)
    def set_states(self, states: Any = None, value: float | None = None) -> None:
        """Set the states to arrays, as `get_states` gives them, or to a number."""
        self.group.set_states(states, value)

    @needs(Stage.BOUND)
    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False, pad: int = 0) -> None:
        """Show a metric the outputs of the last forward.

        Args:
            eval_metric: the metric.
            labels: the batch's labels.
            pre_sliced: whether labels are given per device.
            pad: how many samples at the end are padding that must not count.
        """
        self.group.update_metric(eval_metric, labels, pre_sliced, pad)

    @needs(Stage.BOUND)
    def install_monitor(self, mon: Any) -> None:
        """Install a monitor on every executor."""
        self.group.install_monitor(mon)

    @needs(Stage.BOUND)
    def summary(self) -> str:
        """Return a table of operators with output shapes and numbers of parameters."""
        return summarize(self.group)

    @needs(Stage.BOUND)
    def explain(
        self, is_train: bool | None = None, times: bool = False, measure_memory: bool = False
    ) -> Explanation:
        """Return what the first device's executor runs, and what it costs; print it to read it.

        Args:
            is_train: whether the steps are those of training; None = if the module is bound for it.
            times: also measure the time of every step, on the last batch; changes nothing.
            measure_memory: measure the memory of a run instead of estimating it.

        Raises:
            StateError: the module is not bound, or memory is to be measured while a profiler runs.
        """
        return self.group.execs[0].explain(is_train, times, measure_memory, self.group.param_names)
