"""`SVRGModule`: a Module trained with stochastic variance reduced gradients."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from typing_extensions import override

from ... import optimizer as opt
from ..._core import lazy
from ...base import ArgumentError, DTypeError, StateError
from ...context import Context
from ...module import Module
from ...module.arguments import BindArguments, OptimizerArguments
from ...module.lifecycle import Stage, needs
from ...module.training_data import named_batches
from ...ndarray import NDArray

__all__ = ["SVRGModule"]

lazy.publish(__name__, __all__)


_BASE_ARGUMENTS = inspect.signature(opt.Optimizer).parameters


@opt.register
class _AssignmentOptimizer(opt.Optimizer):
    """Optimizer that sets each parameter to its gradient, so that a kvstore passes gradients through."""

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        weight.raw.copy_(grad.raw)


@opt.register
class _SVRGOptimizer(opt.Optimizer):
    """Optimizer that assigns keys with "full" in their name, and updates all others with another optimizer."""

    def __init__(self, default_optimizer: Any, **kwargs: Any) -> None:
        super().__init__(**{key: kwargs[key] for key in _BASE_ARGUMENTS if key in kwargs})
        is_instance = isinstance(default_optimizer, opt.Optimizer)
        self.default_opt: opt.Optimizer = (
            default_optimizer if is_instance else opt.create(default_optimizer, **kwargs)
        )
        self.aux_opt: opt.Optimizer = opt.create(_AssignmentOptimizer.__name__)

    def unshared(self) -> str:
        return "it holds two optimizers with separate update counts"

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._optimizer_of(index).update(index, weight, grad, state)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return self._optimizer_of(index).create_state(index, weight)

    def _optimizer_of(self, index: Any) -> opt.Optimizer:
        return self.aux_opt if "full" in self._check_index(index) else self.default_opt

    def _check_index(self, index: Any) -> str:
        """Return the name of a parameter from its name or number."""
        if isinstance(index, str):
            return index
        if index not in self.idx2name:
            numbers = ", ".join(map(str, self.idx2name)) or "none"
            raise ArgumentError(
                f"_SVRGOptimizer: no parameter has the number {index!r}; param_idx2name has {numbers}"
            )
        return self.idx2name[index]


class SVRGModule(Module):
    """A Module whose gradients are corrected by the gradient over all data.

    A second module keeps a snapshot of the parameters. For every batch, its gradient is subtracted from the module's
    own, and the mean gradient over all data at the snapshot is added: the expectation stays and the variance falls.
    `fit` renews the snapshot and the mean every `update_freq` epochs; your own loop calls `update_full_grads`.

    Args:
        symbol: see `Module`, as for all others but the last.
        label_names: inputs that are labels; None for none.
        logger: logger of the progress.
        context: a device or a list of them.
        work_load_list: share of the batch for each device; None = equal.
        fixed_param_names: parameters that are not trained.
        state_names: arguments that carry state from batch to batch.
        group2ctxs: contexts of attribute groups.
        update_freq: number of epochs between updates of the snapshot.

    Raises:
        DTypeError: `update_freq` is not an integer.
        ArgumentError: it is not positive, or another argument does not fit.

    Example:
        >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
        >>> net = mx.sym.LinearRegressionOutput(net, mx.sym.Variable("label"), name="out")
        >>> SVRGModule = mx.contrib.svrg_optimization.svrg_module.SVRGModule
        >>> mod = SVRGModule(net, label_names=["label"], update_freq=2)
        >>> x = np.arange(8, dtype="float32").reshape(4, 2)
        >>> data = mx.io.NDArrayIter(x, x.sum(1), batch_size=2, label_name="label")
        >>> history = mod.fit(data, eval_metric="mse", optimizer_params={"learning_rate": 0.01}, num_epoch=2)
        >>> mod.optimizer_initialized
        True

    Source: Johnson and Zhang 2013, "Accelerating Stochastic Gradient Descent using Predictive Variance Reduction";
    MXNet 1.9.1 `SVRGModule`, whose means start from the previous mean instead of from zero. With a kvstore MXNet also
    sets the devices' parameters to zero until the first update; here they keep their values.
    """

    def __init__(
        self,
        symbol: Any,
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = logging,
        context: Any = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
        update_freq: int | None = None,
    ) -> None:
        if not isinstance(update_freq, int) or isinstance(update_freq, bool):
            raise DTypeError(
                f"SVRGModule: update_freq is {update_freq!r}, expected a number of epochs from 1"
            )
        if update_freq < 1:
            raise ArgumentError(
                f"SVRGModule: update_freq is {update_freq}, expected a number of epochs from 1"
            )
        options = data_names, label_names, logger, context, work_load_list, fixed_param_names, state_names
        super().__init__(symbol, *options, group2ctxs, compression_params)
        self.update_freq = update_freq
        self._mod_aux = Module(symbol, *options, group2ctxs, compression_params)
        self._param_dict: list[dict[str, NDArray]] | None = None
        self._ctx_len = len(self._context)

    # binding

    @override
    def _bind(self, arguments: BindArguments) -> None:
        """Bind both modules, the second one only for training."""
        arguments.refuse_store(self)
        super()._bind(arguments)
        if arguments.for_training:
            shared = arguments.shared_module
            if isinstance(shared, SVRGModule):
                shared = shared._mod_aux
            replace(arguments, shared_module=shared).bind(self._mod_aux)

    def rebind(
        self,
        contexts: Sequence[Context] | None,
        workload: Sequence[float] | None,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None,
    ) -> None:
        before = self._param_dict
        self._mod_aux.rebind(contexts, workload, data_shapes, label_shapes)
        self._ctx_len = len(self._mod_aux.group.contexts)
        super().rebind(contexts, workload, data_shapes, label_shapes)
        if before is not None and self._param_dict is not before:
            for name, targets in self._by_name(self._full_grads()).items():
                total = sum(grads[name].asnumpy() for grads in before)
                for target in targets:
                    target[:] = total / self._ctx_len

    @staticmethod
    def _by_name(grads: list[dict[str, NDArray]]) -> dict[str, list[NDArray]]:
        return {name: [own[name] for own in grads] for name in grads[0]}

    @needs(Stage.BOUND)
    def reshape(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None) -> None:
        super().reshape(data_shapes, label_shapes)
        if self._mod_aux.binded:
            self._mod_aux.reshape(data_shapes, label_shapes)

    # optimizer

    @override
    @needs(Stage.INITIALIZED)
    def _init_optimizer(self, arguments: OptimizerArguments) -> None:
        """Install an optimizer, and with a kvstore a key ``<name>_full`` for the full gradient of each parameter."""
        if self._keeps_optimizer(arguments):
            return
        contexts = range(self._ctx_len)
        self._param_dict = [
            {name: _zeros_like(self.group.store.array(name, i)) for name in self._param_names}
            for i in contexts
        ]
        made = self._wrapped(arguments.optimizer, arguments.optimizer_params)
        super()._init_optimizer(replace(arguments, optimizer=made))
        first = max(made.idx2name, default=-1) + 1
        made.idx2name.update({first + i: f"{name}_full" for i, name in enumerate(self._param_names)})
        made.default_opt.idx2name = dict(made.idx2name)
        if self.updates.store is not None:
            for name in self._trained_names():
                rows = [_zeros_like(grads[name]) for grads in self._param_dict]
                self.updates.store.broadcast(f"{name}_full", _zeros_like(rows[0]), rows)

    def _wrapped(self, optimizer: Any, optimizer_params: Any) -> _SVRGOptimizer:
        """Return an optimizer wrapped so that it leaves full gradients alone."""
        rescale = 1.0 / self.group.num_samples
        inner = optimizer.default_opt if isinstance(optimizer, _SVRGOptimizer) else optimizer
        names = dict(enumerate(self._param_names))
        wrapper = _SVRGOptimizer(
            inner, param_idx2name=names, **{"rescale_grad": rescale, **dict(optimizer_params)}
        )
        wrapper.rescale_grad = (
            rescale  # only the inner optimizer rescales; Module would warn of another value
        )
        return wrapper

    def _trained_names(self) -> list[str]:
        store = self.group.store
        return [name for name in self._param_names if store.grad(name, 0) is not None]

    # computing

    @needs(Stage.INITIALIZED)
    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        super().forward(data_batch, is_train)
        if is_train or (is_train is None and self.for_training and self._mod_aux.params_initialized):
            self._second("forward").forward(data_batch, True)

    @needs(Stage.INITIALIZED)
    def backward(self, out_grads: Any = None) -> None:
        super().backward(out_grads)
        if self._mod_aux.binded:
            self._second("backward").backward(out_grads)

    def _second(self, what: str) -> Module:
        if not self._mod_aux.params_initialized:
            raise StateError(f"SVRGModule.{what}: call update_full_grads(train_data) first")
        return self._mod_aux

    @needs(Stage.READY)
    def update(self) -> None:
        self._update_svrg_gradients()
        super().update()

    @needs(Stage.READY)
    def update_full_grads(self, train_data: Any) -> None:
        """Copy the present parameters to the second module, and compute their mean gradient over all data.

        The mean is taken over batches, and starts from the previous mean, as in MXNet. `train_data` ends exhausted.
        """
        self._mod_aux.set_params(*self.get_params())
        train_data.reset()
        num_batches, padding, rows = 0, 0, 1
        for batch in named_batches(self, train_data):
            self._mod_aux.forward_backward(batch)
            self._add_full_grads()
            num_batches, padding = num_batches + 1, getattr(batch, "pad", None) or 0
            rows = self._mod_aux.group.num_samples
        if not num_batches:
            raise ArgumentError("update_full_grads: train_data has no batch")
        for name in self._trained_names():
            means = [grads[name] for grads in self._full_grads()]
            for mean in means:
                mean.raw.div_(num_batches - padding / rows)
            if self.updates.store is not None:
                self._accumulate_kvstore(name, means)

    def _full_grads(self) -> list[dict[str, NDArray]]:
        """Return the mean gradients over all data, by context and name."""
        if self._param_dict is None:
            raise StateError("SVRGModule: call init_optimizer() first")
        return self._param_dict

    def _add_full_grads(self) -> None:
        store = self._mod_aux.group.store
        for i, sums in enumerate(self._full_grads()):
            for name in self._trained_names():
                sums[name].raw.add_(_gradient(store, name, i))

    def _accumulate_kvstore(self, key: str, value: list[NDArray]) -> None:
        """Sum a full gradient over contexts (and workers), and assign each context its share."""
        if (store := self.updates.store) is not None:
            store.pushpull(f"{key}_full", value, value)
        for grads, total in zip(self._full_grads(), value):
            grads[key] = NDArray(total.raw / self._ctx_len, total.context)

    def _update_svrg_gradients(self) -> None:
        """Subtract the second module's gradients from the module's own, and add the full gradients."""
        own, second = self.group.store, self._mod_aux.group.store
        for i, full in enumerate(self._full_grads()):
            for name in self._trained_names():
                _gradient(own, name, i).sub_(_gradient(second, name, i)).add_(full[name].raw)

    def start_epoch(self, epoch: int, train_data: Any) -> None:
        if epoch % self.update_freq == 0:
            self.update_full_grads(train_data)
            train_data.reset()

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        super().prepare(data_batch, sparse_row_id_fn)
        self._mod_aux.prepare(data_batch, sparse_row_id_fn)


def _zeros_like(array: NDArray) -> NDArray:
    return NDArray(torch.zeros_like(array.raw), array.context)


def _gradient(store: Any, name: str, i: int) -> torch.Tensor:
    """Return a trained parameter's gradient on a context."""
    gradient: torch.Tensor = store.grad(name, i).raw
    return gradient
