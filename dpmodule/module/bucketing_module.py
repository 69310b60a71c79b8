"""`BucketingModule`: one set of parameters, one graph and executor group per bucket."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import later
from ..base import ArgumentError, ShapeError, StateError
from ..context import Context
from ..initializer import Uniform
from ..ndarray import NDArray
from ..symbol import Symbol
from . import bucket_files
from .base_module import BaseModule as BaseModule
from .bucket_binding import BoundBuckets, shapes_of
from .buckets import Buckets, SymGen, with_symbols
from .stage import Stage, needs

__all__ = ["BucketingModule"]

later.publish(__name__, __all__)


class BucketingModule(BoundBuckets):
    """Trains inputs of several sizes, such as sentences sorted into buckets by length.

    Every bucket has its own graph, made by `sym_gen` on first use. All of them use the same parameters, gradients,
    auxiliary and optimizer states, and the data memory of the largest bucket; what a bucket computed is given up
    when another one runs, so that many buckets need hardly more memory than the largest.

    Args:
        sym_gen: ``(bucket_key) -> (symbol, data_names, label_names)``.
        default_bucket_key: the bucket that is bound first and initializes parameters; best the largest.
        logger: where progress is logged.
        context: a device or a list of them.
        work_load_list: share of the batch for each device; None = equal.
        fixed_param_names: parameters that are not trained.
        state_names: arguments that carry state from batch to batch.
        group2ctxs: contexts of attribute groups; see `Module`.
        compression_params: gradient compression; see `Module`.
        max_buckets: how many buckets, the default one included, keep their executors; the one used longest ago
            goes first, and is made again when it comes back. None = all.
        compile: whether `torch.compile` compiles the network of every bucket; see `Module`.
        cuda_graphs: whether runs are recorded on GPUs; see `Module`. Changing the bucket drops a recording.
        mirror: what backward computes again instead of keeping it; see `Module`.

    Raises:
        ArgumentError: an argument does not fit.

    Source: MXNet 1.9.1 `BucketingModule`.
    """

    def __init__(
        self,
        sym_gen: SymGen,
        default_bucket_key: Any = None,
        logger: Any = logging,
        context: Context | Sequence[Context] | None = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
        *,
        max_buckets: int | None = None,
        compile: Any = None,
        cuda_graphs: bool | None = None,
        mirror: bool | int | None = None,
    ) -> None:
        super().__init__(logger)
        if not callable(sym_gen):
            raise ArgumentError(f"sym_gen is {sym_gen!r}, expected a function of the bucket key")
        if default_bucket_key is None:
            raise ArgumentError("default_bucket_key is missing; give the key of the largest bucket")
        self._sym_gen = sym_gen
        self._default_key = default_bucket_key
        self._options = {
            "logger": logger,
            "context": context,
            "work_load_list": work_load_list,
            "fixed_param_names": fixed_param_names,
            "state_names": state_names,
            "group2ctxs": group2ctxs,
            "compression_params": compression_params,
            "compile": compile,
            "cuda_graphs": cuda_graphs,
            "mirror": mirror,
        }
        self._buckets = Buckets(sym_gen, self._options, max_buckets)
        self._default = self._buckets.make(default_bucket_key)
        self._key, self._current = default_bucket_key, self._default
        self._binding: dict[str, Any] = {}
        self._monitor: Any = None
        self._is_tidy, self._in_epoch = True, False

    # properties

    @property
    def stage(self) -> Stage:
        """How far the module has come."""
        return self._default.stage

    @property
    def bucket_keys(self) -> list[Any]:
        """Keys of the buckets that have executors, the one used longest ago first."""
        return list(self._buckets)

    @property
    def bucket_key(self) -> Any:
        """Key of the current bucket."""
        return self._key

    # parameters and optimizer

    @needs(Stage.INITIALIZED)
    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return copies of parameters and auxiliary states as CPU arrays."""
        return self._default.get_params()

    @needs(Stage.BOUND)
    def init_params(
        self,
        initializer: Any = Uniform(0.01),
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Give parameters and auxiliary states their first values; see `Module.init_params`."""
        self._default.init_params(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra)

    @needs(Stage.INITIALIZED)
    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Install one optimizer for all buckets; see `Module.init_optimizer`."""
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        self._default.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        for module in self._buckets.values():
            if module is not self._default and module.params_initialized:
                module.borrow_optimizer(self._default)

    @needs(Stage.READY)
    def update(self) -> None:
        """Apply the optimizer to the gradients of the current bucket's last backward."""
        self._current.update()
        self._give_back()

    # computing

    @needs(Stage.INITIALIZED)
    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Switch to the batch's bucket and run forward.

        Raises:
            ArgumentError: the batch has no bucket key, or there is no symbol for it.
            ShapeError: its arrays do not fit its bucket.
        """
        self._follow(data_batch, lambda: self._current.forward(data_batch, is_train))

    @needs(Stage.INITIALIZED)
    def forward_backward(self, data_batch: Any) -> None:
        """Switch to the batch's bucket and run forward and backward."""
        self._follow(data_batch, lambda: self._current.forward_backward(data_batch))

    @needs(Stage.INITIALIZED)
    def evaluate(self, data_batch: Any) -> None:
        """Switch to the batch's bucket and run forward in prediction mode."""
        self._follow(data_batch, lambda: self._current.evaluate(data_batch))

    def _follow(self, batch: Any, compute: Callable[[], None]) -> None:
        """Switch to a batch's bucket and compute; shape errors name the bucket."""
        key = getattr(batch, "bucket_key", None)
        if key is None:
            raise ArgumentError(
                "the batch has no bucket_key; give DataBatch(bucket_key=...), one that sym_gen knows"
            )
        self.switch_bucket(key, *shapes_of(batch))
        self._is_tidy = False
        try:
            compute()
        except ShapeError as error:
            raise ShapeError(
                f"bucket {key!r} does not take a batch with shapes {[tuple(a.shape) for a in batch.data]}: {error}"
            ) from error

    def start_epoch(self, epoch: int, train_data: Any) -> None:
        """Get ready for an epoch of `fit`, within which freed memory is kept."""
        self._default.start_epoch(epoch, train_data)
        self._in_epoch = True

    def end_epoch(self) -> None:
        """Return free memory after an epoch of `fit`, also after one that was broken off by an error."""
        self._default.end_epoch()
        self._in_epoch = False
        self._give_back()

    def sync_contexts(self) -> None:
        """Give every context the mean of all contexts' parameters and states; `fit` does so after each epoch."""
        self._default.sync_contexts()

    @needs(Stage.BOUND)
    def install_monitor(self, mon: Any) -> None:
        """Install a monitor on every bucket, those to come too."""
        self._monitor = mon
        for module in self._buckets.values():
            module.install_monitor(mon)

    # checkpoints

    @needs(Stage.INITIALIZED)
    def save_checkpoint(
        self, prefix: str, epoch: int, remove_amp_cast: bool = False, save_optimizer_states: bool = False
    ) -> None:
        """Write parameters and the symbols of all buckets made so far, as one set.

        The files are MXNet's (``prefix-NNNN.params``, ``prefix-KEY-symbol.json``, and ``prefix.buckets`` for keys
        that are integers) and ``prefix-buckets.json``, which lets `load` do without `sym_gen`.

        Args:
            prefix: path and first part of the file names.
            epoch: number of the epoch.
            remove_amp_cast: leave `amp_cast` operators out of the graphs.
            save_optimizer_states: also write ``prefix-NNNN.states``.

        Raises:
            StateError: states are asked for, but there is no optimizer.
        """
        states = None
        if save_optimizer_states:
            if not self.optimizer_initialized:
                raise StateError(
                    "BucketingModule.save_checkpoint: call init_optimizer() before saving its states"
                )
            states = self._default.updates.active_updater().get_states(dump_optimizer=False)
        bucket_files.save(
            prefix,
            epoch,
            self._buckets.contents(),
            self._default_key,
            self.get_params(),
            states,
            remove_amp_cast,
        )

    @staticmethod
    def load(
        prefix: str,
        epoch: int,
        sym_gen: SymGen | None = None,
        default_bucket_key: Any = None,
        load_optimizer_states: bool = False,
        **kwargs: Any,
    ) -> BucketingModule:
        """Make a module from a checkpoint.

        Args:
            prefix: path and first part of the file names.
            epoch: number of the epoch.
            sym_gen: makes the symbols of buckets that were not saved; None = only saved ones can be used.
            default_bucket_key: the bucket to bind first; None = the one of the saved module.
            load_optimizer_states: also read ``prefix-NNNN.states`` once the optimizer is installed.
            kwargs: further arguments of the constructor.

        Raises:
            ArgumentError: the files do not say which bucket is the default one.
            FileFormatError: a file is damaged or foreign.
        """
        saved, default = bucket_files.load(prefix)
        if default_bucket_key is None:
            default_bucket_key = default
        if default_bucket_key is None or (sym_gen is None and not saved):
            raise ArgumentError(
                f"{prefix}: MXNet's own bucket files name neither the default bucket nor the inputs; "
                "give sym_gen and default_bucket_key"
            )
        module = BucketingModule(bucket_files.as_sym_gen(saved, sym_gen), default_bucket_key, **kwargs)
        states = f"{prefix}-{epoch:04d}.states" if load_optimizer_states else None
        module._default.preload(*bucket_files.load_params(prefix, epoch), states)
        return module

    @staticmethod
    def load_dict(
        sym_dict: Mapping[Any, Symbol] | None = None,
        sym_gen: SymGen | None = None,
        default_bucket_key: Any = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """Make a module from symbols by bucket key and parameters; `sym_gen` names their inputs.

        Raises:
            ArgumentError: an argument is missing.
        """
        if sym_gen is None or default_bucket_key is None or arg_params is None:
            raise ArgumentError("load_dict: sym_gen, default_bucket_key and arg_params are all needed")
        symbols = dict(sym_dict or {})
        own = with_symbols(sym_gen, lambda key, symbol: symbols.get(key, symbol))
        module = BucketingModule(own, default_bucket_key, **kwargs)
        module._default.preload(arg_params, aux_params or {})
        return module

    def converted(
        self,
        convert: Callable[[Symbol], Symbol],
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray],
    ) -> BucketingModule:
        """Return an unbound module of the same buckets whose symbols have gone through a function.

        Args:
            convert: from the symbol of a bucket to the one to use.
            arg_params: parameters of the new module.
            aux_params: auxiliary states of the new module.
        """
        return BucketingModule.load_dict(
            {},
            with_symbols(self._sym_gen, lambda _, symbol: convert(symbol)),
            self._default_key,
            arg_params,
            aux_params,
            max_buckets=self._buckets.max_buckets,
            **self._options,
        )
