"""`BoundBuckets`: which bucket a `BucketingModule` runs, and binding those that are new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import ArgumentError, MXNetError, ShapeError
from ..context import Context
from ..executor import give_back
from .buckets import Buckets
from .current_bucket import CurrentBucket
from .feed import describe
from .module import Module
from .stage import Stage, needs

__all__ = ["BoundBuckets", "shapes_of"]

_WORTH_RETURNING = 2**22
"""How many elements a bucket must have computed for free memory to be returned before another one runs."""


class BoundBuckets(CurrentBucket):
    """Binding, finding and changing of buckets; see `BucketingModule`."""

    _options: dict[str, Any]
    _buckets: Buckets
    _default: Module
    _default_key: Any
    _current: Module
    _key: Any
    _binding: dict[str, Any]
    _monitor: Any
    _is_tidy: bool
    _in_epoch: bool

    def bind(
        self,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: Any = "write",
    ) -> None:
        """Allocate the default bucket; the others follow when their first batch comes.

        Args:
            data_shapes: (name, shape) or `DataDesc` of every input of the default bucket.
            label_shapes: the same for labels.
            for_training: whether gradients are needed.
            inputs_need_grad: whether gradients of the inputs are needed.
            force_rebind: bind again although the module is bound; parameters keep their values.
            shared_module: refused, as in MXNet.
            grad_req: "write", "add" or "null" for all parameters, or a list or dict per argument.

        Raises:
            ArgumentError: `shared_module` is given, or names do not fit.
            ShapeError: shapes contradict the symbol.
        """
        if shared_module is not None:
            raise ArgumentError("bind: BucketingModule shares among its buckets and takes no shared_module")
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        self._binding = {
            "for_training": for_training,
            "inputs_need_grad": inputs_need_grad,
            "grad_req": grad_req,
        }
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._default.bind(data_shapes, label_shapes, force_rebind=force_rebind, **self._binding)
        self._buckets.drop_others(self._default_key)
        self._key, self._current = self._default_key, self._default

    def rebind(
        self,
        contexts: Sequence[Context] | None,
        workload: Sequence[float] | None,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None,
    ) -> None:
        """Bind for training over other devices, keeping parameters and the optimizer's states; see `Module.rebind`."""
        if contexts is not None:
            self._options["context"] = list(contexts)
            self._options["work_load_list"] = None
        if workload is not None:
            self._options["work_load_list"] = list(workload)
        self._binding = {"for_training": True, "inputs_need_grad": self.inputs_need_grad, "grad_req": "write"}
        self.for_training = True
        self._default.rebind(contexts, workload, data_shapes, label_shapes)
        self._buckets.drop_others(self._default_key)
        self._key, self._current = self._default_key, self._default

    def _bucket(self, key: Any, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None) -> Module:
        """Return a bucket's module, bound; make it if it is new.

        Raises:
            ArgumentError: the bucket has a parameter that the default bucket lacks.
            ShapeError: shapes contradict its symbol, or one of its parameters has another shape.
        """
        known = key in self._buckets
        module = self._buckets[key] if known else self._buckets.make(key)
        if not module.binded:
            try:
                self._check_parameters(key, module)
                module.bind(data_shapes, label_shapes, shared_module=self._default, **self._binding)
            except MXNetError as error:
                del self._buckets[key]
                raise type(error)(f"bucket {key!r}: {error}") from error
            if self._monitor is not None:
                module.install_monitor(self._monitor)
        elif self._default.optimizer_initialized and not module.optimizer_initialized:
            module.borrow_optimizer(self._default)
        self._buckets.move_to_end(key)
        return module

    def _check_parameters(self, key: Any, module: Module) -> None:
        extra = [name for name in module.param_names if name not in self._default.param_names]
        if extra:
            raise ArgumentError(
                f"it has the parameter {', '.join(extra)}, which the default bucket {self._default_key!r} lacks; "
                "all buckets must use one set of parameters"
            )

    @needs(Stage.BOUND)
    def switch_bucket(
        self, bucket_key: Any, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None
    ) -> None:
        """Make a bucket the current one.

        Args:
            bucket_key: its key.
            data_shapes: (name, shape) or `DataDesc` of its inputs; used when it is new.
            label_shapes: the same for labels.

        Raises:
            ArgumentError: there is no symbol for the key, or it needs other parameters.
            ShapeError: shapes contradict its symbol.
        """
        module = self._bucket(bucket_key, data_shapes, label_shapes)
        if module is not self._current:
            if self._current.group.release():
                self._give_back()
            module.group.refresh()
            self._key, self._current = bucket_key, module
        self._buckets.evict((self._default_key, self._key))

    def _give_back(self) -> None:
        """Return what the current bucket's run has left free to the system, if there are other buckets.

        They need blocks of other sizes. Freed ones would stay beside each other instead of taking each other's place.
        Taking memory again costs a quarter of a step, so `fit` does it once, after an epoch.
        """
        group = self._current.group
        is_large = group.size >= _WORTH_RETURNING and group.contexts[0].device_type == "cpu"
        if self._is_tidy or self._in_epoch:
            return
        if len(self._buckets) > 1 and is_large:
            give_back()
        self._is_tidy = True

    @needs(Stage.INITIALIZED)
    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Bind the bucket of the batch that comes next, without leaving the current one."""
        if data_batch.bucket_key is not None:
            self._bucket(data_batch.bucket_key, *shapes_of(data_batch))
            self._buckets.move_to_end(self._key)
        self._default.prepare(data_batch, sparse_row_id_fn)


def shapes_of(batch: Any) -> tuple[Any, Any]:
    """Return the descriptions a batch brings, checked against its arrays.

    Raises:
        ShapeError: an array has another shape than its description.
    """
    for provided, arrays in ((batch.provide_data, batch.data), (batch.provide_label, batch.label)):
        for desc, array in zip(describe(provided), arrays or ()):
            if tuple(array.shape) != tuple(desc.shape):
                raise ShapeError(
                    f"bucket {batch.bucket_key!r}: the batch describes {desc.name} as {tuple(desc.shape)}, "
                    f"but its array has shape {tuple(array.shape)}"
                )
    return batch.provide_data, batch.provide_label
