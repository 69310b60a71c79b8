"""`Trainable`: what loops over batches want of a module; `Resumable`: what saving a run does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..ndarray import NDArray
from .lifecycle import Stage

if TYPE_CHECKING:
    from ..io import DataIter
    from .class_labels import NetworkInputs
    from .types import (
        BatchLike,
        InitializerLike,
        KVStoreLike,
        MonitorLike,
        OptimizerLike,
        OptimizerParams,
        RowIdFunction,
        ShapesLike,
    )


class Trainable(Protocol):
    """A module as loops over batches see it. `BaseModule` says what arguments mean; others need not derive from it."""

    logger: Any
    for_training: bool

    # what it is

    @property
    def stage(self) -> Stage:
        """How far it has come."""

    @property
    def binded(self) -> bool:
        """Whether `bind` has been called."""

    @property
    def symbol(self) -> Any:
        """The symbol that is run, if it is made of one."""

    @property
    def data_names(self) -> list[str]:
        """Names of the inputs."""

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""

    # getting ready

    def bind(
        self,
        data_shapes: ShapesLike,
        label_shapes: ShapesLike | None,
        for_training: bool,
        *,
        force_rebind: bool,
    ) -> None:
        """Allocate everything for some input shapes."""

    def init_params(
        self,
        initializer: InitializerLike,
        arg_params: Mapping[str, NDArray] | None,
        aux_params: Mapping[str, NDArray] | None,
        allow_missing: bool,
        force_init: bool,
    ) -> None:
        """Give parameters and auxiliary states their first values."""

    def init_optimizer(
        self, kvstore: KVStoreLike, optimizer: OptimizerLike, optimizer_params: OptimizerParams
    ) -> None:
        """Install an optimizer."""

    def install_monitor(self, mon: MonitorLike) -> None:
        """Install a monitor on every executor."""

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return parameters and auxiliary states as CPU arrays."""

    # a batch

    def prepare(self, data_batch: BatchLike, sparse_row_id_fn: RowIdFunction) -> None:
        """Get ready for the batch that comes next."""

    def forward(self, data_batch: BatchLike, is_train: bool | None) -> None:
        """Run forward on a batch."""

    def forward_backward(self, data_batch: BatchLike) -> None:
        """Run forward and backward on a batch."""

    def evaluate(self, data_batch: BatchLike) -> None:
        """Run forward in prediction mode."""

    def update(self) -> None:
        """Apply the optimizer to the gradients of the last backward."""

    @property
    def update_metric(self) -> Any:
        """What shows a metric the outputs of the last forward; those written for MXNet do not know `pad`."""

    def get_outputs(self) -> list[Any]:
        """Return the outputs of the last forward."""

    # numbers that are not finite

    def output_probes(self) -> list[list[torch.Tensor]]:
        """Return, for every output of the last forward, tensors that are finite only if all of it is."""

    def nan_rows(self) -> tuple[list[int], int]:
        """Return the numbers of the rows of the last outputs in which something is NaN, and how many there are."""

    def network_inputs(self, data_batch: BatchLike) -> list[NetworkInputs]:
        """Return the symbols that read a batch, with what it feeds them."""

    def nonfinite_gradient(self) -> str | None:
        """Return the name of a parameter whose gradient of the last backward is not finite, None if all are."""

    def first_nonfinite_node(self) -> str | None:
        """Return the name of the first node whose input or output is not finite, None if it is not known."""

    def has_overflow(self) -> bool:
        """Say whether gradients are too large for float16."""

    def handle_overflow(self) -> bool:
        """Say whether gradients are too large for float16, so that the batch has to be left out."""

    def restore_aux_states(self) -> None:
        """Put auxiliary states back to what they were before the last backward."""

    # an epoch

    def start_epoch(self, epoch: int, train_data: DataIter | None) -> None:
        """Get ready for an epoch."""

    def end_epoch(self) -> None:
        """Hear that an epoch has been run, or was broken off by an error."""

    def sync_contexts(self) -> None:
        """Give every context the mean of all contexts' parameters and states."""

    @property
    def score(self) -> Any:
        """What measures metrics on data; see `BaseModule.score`."""


class Resumable(Protocol):
    """A module as saving sees it: its parameters, stores and optimizers. `BaseModule` says what the methods do."""

    @property
    def symbol(self) -> Any:
        """The symbol that is run, if it is made of one."""

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return parameters and auxiliary states as CPU arrays."""

    def set_params(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
        """Set parameters and auxiliary states."""

    def all_updates(self) -> list[Any]:
        """Return what applies the gradients of the last backward."""

    def stores(self) -> list[Any]:
        """Return what holds the parameters on every context."""

    def loss_scales(self) -> list[Any]:
        """Return the scales of losses that are trained on in float16."""
