"""Protocols of modules: `Trainable` for loops over batches, `Resumable` for saving runs."""

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
    """Interface of a module in loops over batches; `BaseModule`, an optional base, documents the arguments."""

    logger: Any
    for_training: bool

    # properties

    @property
    def stage(self) -> Stage:
        """The stage reached."""

    @property
    def binded(self) -> bool:
        """True after `bind`."""

    @property
    def symbol(self) -> Any:
        """The symbol of the network, if it has one."""

    @property
    def data_names(self) -> list[str]:
        """Names of the inputs."""

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""

    # preparation

    def bind(
        self,
        data_shapes: ShapesLike,
        label_shapes: ShapesLike | None,
        for_training: bool,
        *,
        force_rebind: bool,
    ) -> None:
        """Allocate arrays for input shapes."""

    def init_params(
        self,
        initializer: InitializerLike,
        arg_params: Mapping[str, NDArray] | None,
        aux_params: Mapping[str, NDArray] | None,
        allow_missing: bool,
        force_init: bool,
    ) -> None:
        """Initialize parameters and auxiliary states."""

    def init_optimizer(
        self, kvstore: KVStoreLike, optimizer: OptimizerLike, optimizer_params: OptimizerParams
    ) -> None:
        """Install an optimizer."""

    def install_monitor(self, mon: MonitorLike) -> None:
        """Install a monitor on every executor."""

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return parameters and auxiliary states as CPU arrays."""

    def set_params(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
        """Set parameters and auxiliary states."""

    # a batch

    def prepare(self, data_batch: BatchLike, sparse_row_id_fn: RowIdFunction) -> None:
        """Prepare for the next batch."""

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
        """The method that updates a metric from the last outputs; methods written for MXNet do not accept `pad`."""

    def get_outputs(self) -> list[Any]:
        """Return the outputs of the last forward."""

    # numbers that are not finite

    def output_probes(self) -> list[list[torch.Tensor]]:
        """Return tensors for every output of the last forward that are finite only if the output is."""

    def nan_rows(self) -> tuple[list[int], int]:
        """Return the indices of the rows of the last outputs that contain NaN, and the number of rows."""

    def network_inputs(self, data_batch: BatchLike) -> list[NetworkInputs]:
        """Return the symbols that read a batch, with their inputs."""

    def nonfinite_gradient(self) -> str | None:
        """Return the name of a parameter whose gradient of the last backward is not finite, None if all are."""

    def first_nonfinite_node(self) -> str | None:
        """Return the name of the first node whose input or output is not finite, None if it is not known."""

    def has_overflow(self) -> bool:
        """Return True if gradients overflow float16."""

    def handle_overflow(self) -> bool:
        """Return True if gradients overflow float16, so that the batch must be skipped."""

    def restore_aux_states(self) -> None:
        """Restore the auxiliary states from before the last backward."""

    # an epoch

    def start_epoch(self, epoch: int, train_data: DataIter | None) -> None:
        """Prepare for an epoch."""

    def end_epoch(self) -> None:
        """Called after an epoch, including one that failed."""

    def sync_contexts(self) -> None:
        """Set parameters and states of every context to the mean over contexts."""

    @property
    def score(self) -> Any:
        """The method that measures metrics on data; see `BaseModule.score`."""


class Resumable(Protocol):
    """The interface of a module for saving runs; `BaseModule` documents the methods."""

    @property
    def symbol(self) -> Any:
        """The symbol of the network, if it has one."""

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return parameters and auxiliary states as CPU arrays."""

    def set_params(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
        """Set parameters and auxiliary states."""

    def all_updates(self) -> list[Any]:
        """Return the updates, which apply gradients to parameters."""

    def stores(self) -> list[Any]:
        """Return the stores of the parameters."""

    def loss_scales(self) -> list[Any]:
        """Return the loss scales of float16 training."""
