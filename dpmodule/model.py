"""`FeedForward`, MXNet's first trainer, and the checkpoint functions under their old import path ``mx.model``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import metric as metrics
from ._core import lazy
from .base import ArgumentError, ShapeError
from .callback import BatchEndParam, Callback, LogValidationMetricsCallback
from .callback.base import as_list
from .checkpoint import load_checkpoint, load_params, save_checkpoint
from .context import Context
from .initializer import Uniform
from .io import DataIter, NDArrayIter, ResizeIter
from .module import BaseModule, BucketingModule, Module
from .module.group.contexts import contexts_of
from .module.mxnet_helpers import create_kvstore as _create_kvstore  # noqa: F401  old programs import these from here
from .module.mxnet_helpers import initialize_kvstore as _initialize_kvstore  # noqa: F401
from .module.mxnet_helpers import update_params as _update_params  # noqa: F401
from .module.mxnet_helpers import update_params_on_kvstore as _update_params_on_kvstore  # noqa: F401
from .module.scoring import NaNRowCounter
from .name import NameManager
from .ndarray import NDArray, array
from .symbol import Symbol

__all__ = ["BatchEndParam", "FeedForward", "load_checkpoint", "load_params", "save_checkpoint"]

lazy.publish(__name__, __all__)

Params = Mapping[str, NDArray]


def _as_array(name: str, values: Any) -> NDArray:
    """Return labels or inputs as an array."""
    if isinstance(values, NDArray):
        return values
    converted = np.asarray(values)
    if converted.dtype == object:
        raise ArgumentError(f"{name} is {type(values).__name__}, expected an array or an iterator")
    return array(converted)


class FeedForward:
    """Train and use a network from arrays or iterators, with the interface of early MXNet programs.

    A thin wrapper of `Module`, or of `BucketingModule` if `symbol` is a function; new programs use these instead.

    Args:
        symbol: the network, or a function from a bucket key to the network of that bucket.
        ctx: context, or list of contexts; None for ``cpu()``.
        num_epoch: epoch at which `fit` stops (counted from 0, not from `begin_epoch`).
        epoch_size: batches in an epoch; None for all of the data.
        optimizer: name of an optimizer, or an `Optimizer`.
        initializer: initializer of parameters without a value.
        numpy_batch_size: batch size for arrays.
        arg_params: values of parameters by name.
        aux_params: values of auxiliary states by name.
        allow_extra_params: True to ignore names in `arg_params` and `aux_params` that the network does not have.
        kwargs: arguments of the optimizer, such as ``learning_rate=0.1``.

    Raises:
        ArgumentError: `symbol` is neither, or the network does not have a parameter.

    Example:
        >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2)
        >>> net = mx.sym.SoftmaxOutput(net, name="softmax")
        >>> model = mx.model.FeedForward(net, num_epoch=1, learning_rate=0.1)
        >>> model.fit(np.ones((8, 3)), np.zeros(8))
        >>> model.predict(np.ones((4, 3))).shape
        (4, 2)

    Source: MXNet 1.9.1 `FeedForward`.
    """

    def __init__(
        self,
        symbol: Symbol | Callable[[Any], Any],
        ctx: Context | Sequence[Context] | None = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = None,
        numpy_batch_size: int = 128,
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_extra_params: bool = False,
        begin_epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        self.symbol: Symbol | None = symbol if isinstance(symbol, Symbol) else None
        self.sym_gen = None if isinstance(symbol, Symbol) else symbol
        if self.sym_gen is not None and not callable(self.sym_gen):
            raise ArgumentError(f"symbol is {type(symbol).__name__}, expected a Symbol or a function")
        self.ctx = contexts_of(ctx)
        self.num_epoch = num_epoch
        self.epoch_size = epoch_size
        self.optimizer = optimizer
        self.initializer = Uniform(0.01) if initializer is None else initializer
        self.numpy_batch_size = numpy_batch_size
        self.arg_params = dict(arg_params) if arg_params is not None else None
        self.aux_params = dict(aux_params) if aux_params is not None else None
        self.allow_extra_params = allow_extra_params
        self.begin_epoch = begin_epoch
        self.kwargs = dict(kwargs)
        self._predictor: Module | None = None
        if self.allow_extra_params:
            self._drop_extra_params()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_predictor": None}

    def _drop_extra_params(self) -> None:
        """Drop parameters that the network does not have."""
        if self.symbol is not None:
            arguments, states = self.symbol.list_arguments(), self.symbol.list_auxiliary_states()
            if self.arg_params:
                self.arg_params = {k: v for k, v in self.arg_params.items() if k in arguments}
            if self.aux_params:
                self.aux_params = {k: v for k, v in self.aux_params.items() if k in states}

    def _network(self, data: DataIter) -> Symbol:
        """Return the network, or that of the iterator's default bucket."""
        if self.sym_gen is None:
            net: Any = self.symbol
        else:
            with NameManager():  # names as in the buckets that are trained
                result = self.sym_gen(getattr(data, "default_bucket_key", None))
            net = result[0] if isinstance(result, tuple) else result
        if not isinstance(net, Symbol):
            raise ArgumentError(f"the network is {type(net).__name__}, expected a Symbol")
        return net

    # data

    def _train_iter(self, X: Any, y: Any, shuffle: bool) -> DataIter:
        """Return an iterator over inputs and labels, made from arrays where needed."""
        if isinstance(X, DataIter):
            return X
        if hasattr(X, "provide_data"):
            return X  # type: ignore[no-any-return]  # an iterator that does not derive from DataIter
        inputs = _as_array("X", X)
        count = inputs.shape[0] if inputs.ndim else 0
        if y is None:
            if shuffle:
                raise ArgumentError("y is None; labels must come with X when it is an array")
            labels = array(np.zeros(count, "f"))
        else:
            labels = _as_array("y", y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels.reshape((-1,))
        if labels.ndim != 1 or labels.shape[0] != count:
            raise ShapeError(f"y has shape {labels.shape}, expected ({count},), one label for each row of X")
        handling = "roll_over" if shuffle else "pad"
        size = min(count, self.numpy_batch_size)
        return NDArrayIter(inputs, labels, size, shuffle=shuffle, last_batch_handle=handling)

    def _eval_iter(self, eval_data: Any) -> DataIter | None:
        """Return an iterator over validation data, made from a pair of arrays where needed."""
        if eval_data is None or not isinstance(eval_data, (list, tuple)):
            return eval_data
        if len(eval_data) != 2:
            raise ArgumentError(f"eval_data has {len(eval_data)} members, expected inputs and labels")
        if eval_data[0] is None:
            raise ArgumentError("eval_data[0] is None, expected inputs")
        if isinstance(eval_data[0], DataIter):
            return eval_data[0]
        return self._train_iter(eval_data[0], eval_data[1], shuffle=False)

    # training

    def _module(self, data: DataIter, logger: Any, work_load_list: Any) -> BaseModule:
        names = [d[0] for d in data.provide_data]
        labels = [d[0] for d in data.provide_label or ()]
        options = {"logger": logger, "context": self.ctx, "work_load_list": work_load_list}
        if self.sym_gen is None:
            net = self._network(data)
            known = set(net.list_arguments())
            return Module(net, names, [n for n in labels if n in known], **options)

        def sym_gen(key: Any) -> tuple[Any, Any, Any]:
            result = self.sym_gen(key)  # type: ignore[misc]  # checked above
            return result if isinstance(result, tuple) else (result, names, labels)

        return BucketingModule(sym_gen, getattr(data, "default_bucket_key", None), **options)

    def fit(
        self,
        X: Any,
        y: Any = None,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: Sequence[float] | None = None,
        monitor: Any = None,
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
    ) -> None:
        """Train up to epoch `num_epoch`; `arg_params` and `aux_params` hold the result.

        Args:
            X: iterator, or array (N, ...) of inputs.
            y: labels (N,), when `X` is an array.
            eval_data: iterator, or pair of arrays, scored after every epoch.
            eval_metric: as in `Module.fit`.
            epoch_end_callback: as in `Module.fit`.
            batch_end_callback: as in `Module.fit`, but `nbatch` counts from 1.
            kvstore: as in `Module.fit`.
            logger: logger of the progress; None for the logging module.
            work_load_list: share of each context.
            monitor: an `mx.mon.Monitor` that watches arrays during training; None for none.
            eval_end_callback: called after each evaluation.
            eval_batch_end_callback: called after each batch of an evaluation.

        Raises:
            ArgumentError: `num_epoch` is None, or data have the wrong type.
            ShapeError: inputs and labels do not fit.
        """
        if self.num_epoch is None:
            raise ArgumentError(
                "num_epoch is None; pass the number of epochs to train as FeedForward(num_epoch=...)"
            )
        data = self._train_iter(X, y, shuffle=True)
        module = self._module(data, logger or logging, work_load_list)
        data.reset()
        if self.epoch_size is not None:
            data = ResizeIter(data, self.epoch_size, reset_internal=False)
        module.fit(
            data,
            eval_data=self._eval_iter(eval_data),
            eval_metric=eval_metric,
            epoch_end_callback=epoch_end_callback,
            batch_end_callback=_counting_from_1(batch_end_callback),
            kvstore=kvstore,
            optimizer=self.optimizer,
            optimizer_params=self.kwargs,
            eval_end_callback=_without_log(eval_end_callback),
            eval_batch_end_callback=eval_batch_end_callback,
            initializer=self.initializer,
            arg_params=self.arg_params,
            aux_params=self.aux_params,
            allow_missing=True,
            begin_epoch=self.begin_epoch,
            num_epoch=self.num_epoch,
            monitor=monitor,
            progress=batch_end_callback is None,
        )
        self.arg_params, self.aux_params = module.get_params()
        if self.sym_gen is not None:
            self.symbol = self._network(data)
        self._predictor = None

    # prediction

    def _bound(self, data: DataIter) -> Module:
        """Return a module for prediction with the present parameters, bound to the iterator's shapes."""
        if self.arg_params is None:
            raise ArgumentError("there are no parameters yet; call fit or load, or pass arg_params")
        names = [d[0] for d in data.provide_data]
        if self._predictor is None or self._predictor.data_names != names:
            net = self._network(data)
            known = {*net.list_arguments(), *net.list_auxiliary_states()}
            extra = sorted({*self.arg_params, *(self.aux_params or ())} - known)
            if extra and not self.allow_extra_params:
                raise ArgumentError(
                    f"the parameters have {', '.join(extra)}, which the network does not have; "
                    "allow_extra_params=True ignores them"
                )
            inputs = {*names, *(d[0] for d in data.provide_label or ())}
            labels = [
                n
                for n in net.list_arguments()
                if n not in names and (n in inputs or n not in self.arg_params)
            ]
            # on the first context only, as MXNet does: batches of any size, and the same values as a loaded model
            self._predictor = Module(net, names, labels, context=self.ctx[0])
        module = self._predictor
        shapes = [tuple(d)[:2] for d in data.provide_data]
        if not module.binded:
            module.bind(shapes, for_training=False)
        else:
            module.reshape(shapes)
        module.set_params(self.arg_params, self.aux_params or {}, allow_extra=True)
        return module

    def predict(
        self, X: Any, num_batch: int | None = None, return_data: bool = False, reset: bool = True
    ) -> Any:
        """Run the network on data, and drop the padding of the last batch.

        Args:
            X: iterator, or array (N, ...) of inputs.
            num_batch: number of batches to read; None for all.

        Returns:
            The outputs as NumPy arrays (N, ...), one or a list; with `return_data` a tuple of outputs, inputs and
            labels.

        Raises:
            ArgumentError: there are no parameters yet, or nothing was read.
        """
        data = self._train_iter(X, None, shuffle=False)
        if reset:
            data.reset()
        module = self._bound(data)
        watch = NaNRowCounter(module, "predict", "warn")
        outputs: list[list[Any]] = []
        inputs: list[list[Any]] = []
        labels: list[list[Any]] = []
        for number, batch in enumerate(data):
            if number == num_batch:
                break
            module.forward(batch, is_train=False)
            watch.update(number, batch.pad or 0)
            outputs.append(_cut(module.get_outputs(), batch.pad))
            if return_data:
                inputs.append(_cut(batch.data or (), batch.pad))
                labels.append(_cut(batch.label or (), batch.pad))
        watch.warn()
        if not outputs:
            raise ArgumentError("predict: the data have no batch; is the iterator at its end (reset=False)?")
        joined = _joined(outputs)
        return (joined, _joined(inputs), _joined(labels)) if return_data else joined

    def score(
        self,
        X: Any,
        eval_metric: Any = "acc",
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        reset: bool = True,
    ) -> Any:
        """Compute a metric of the network on data with labels.

        Args:
            eval_metric: metric, or its name.
            num_batch: number of batches to read; None for all.
            batch_end_callback: called with a `BatchEndParam` after each batch.

        Returns:
            The metric's value, or a list of values.
        """
        data = self._train_iter(X, None, shuffle=False)
        measure = eval_metric if isinstance(eval_metric, metrics.EvalMetric) else metrics.create(eval_metric)
        measure.reset()
        if reset:
            data.reset()
        module = self._bound(data)
        watch = NaNRowCounter(module, "score", "warn")
        callbacks = as_list(batch_end_callback)
        for number, batch in enumerate(data):
            if number == num_batch:
                break
            module.forward(batch, is_train=False)
            watch.update(number, batch.pad or 0)
            labels: Any = batch.label
            measure.update(labels, module.get_outputs())
            for call in callbacks:
                call(BatchEndParam(epoch=0, nbatch=number, eval_metric=measure, locals=locals()))
        watch.warn()
        return measure.get()[1]

    # files

    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Write ``prefix-symbol.json`` and ``prefix-<epoch>.params``.

        Args:
            epoch: number of the epoch; None = `num_epoch`.
            remove_amp_cast: remove casts of automatic mixed precision.

        Raises:
            ArgumentError: there is no epoch, or nothing to save yet.
        """
        number = self.num_epoch if epoch is None else epoch
        if number is None:
            raise ArgumentError("epoch is None, and the model has no num_epoch; pass one of them")
        if self.symbol is None or self.arg_params is None:
            raise ArgumentError("there is nothing to save yet; call fit, or pass arg_params")
        save_checkpoint(prefix, number, self.symbol, self.arg_params, self.aux_params or {}, remove_amp_cast)

    @staticmethod
    def load(prefix: str, epoch: int, ctx: Any = None, **kwargs: Any) -> FeedForward:
        """Return the model that `save` wrote.

        Args:
            ctx: context, or list of contexts.
            kwargs: further arguments of `FeedForward`.
        """
        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        return FeedForward(
            symbol, ctx=ctx, arg_params=arg_params, aux_params=aux_params, begin_epoch=epoch, **kwargs
        )

    @staticmethod
    def create(
        symbol: Any,
        X: Any,
        y: Any = None,
        ctx: Any = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = None,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: Sequence[float] | None = None,
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
        **kwargs: Any,
    ) -> FeedForward:
        """Make a model and train it, with the arguments of `FeedForward` and `fit`.

        Args:
            X: (N, ...) inputs, or an iterator over inputs and labels.
            y: (N,) labels; None if `X` is an iterator or the network takes none.
            ctx: a Context or a list of them.
            num_epoch: number of epochs to train.
            epoch_size: batches of an epoch; None for all of the data.
            optimizer: an `Optimizer`, or its name.
            initializer: initializer of the parameters.
            eval_data: an iterator, or (inputs, labels), that is scored after each epoch.
            eval_metric: a metric, its name, or a function of labels and predictions.
            epoch_end_callback: called after each epoch with its number, the symbol, parameters and states;
                may be a list.
            batch_end_callback: called after each batch with a `BatchEndParam`; may be a list.
            kvstore: name of a store, or a store, that sums gradients of several contexts.
            logger: logger of the progress; None for the logging module.
            work_load_list: share of the batch for each context; None for equal ones.
            eval_end_callback: called after `eval_data` has been scored.
            eval_batch_end_callback: called after each batch of `eval_data`.
            **kwargs: further arguments of `FeedForward` and of the optimizer.
        """
        model = FeedForward(
            symbol,
            ctx=ctx,
            num_epoch=num_epoch,
            epoch_size=epoch_size,
            optimizer=optimizer,
            initializer=initializer,
            **kwargs,
        )
        model.fit(
            X,
            y,
            eval_data=eval_data,
            eval_metric=eval_metric,
            epoch_end_callback=epoch_end_callback,
            batch_end_callback=batch_end_callback,
            kvstore=kvstore,
            logger=logger,
            work_load_list=work_load_list,
            eval_end_callback=eval_end_callback,
            eval_batch_end_callback=eval_batch_end_callback,
        )
        return model


def _without_log(callbacks: Any) -> list[Any]:
    """Return callbacks of an evaluation without MXNet's default, which repeats the log of `Module.fit`."""
    return [callback for callback in as_list(callbacks) if type(callback) is not LogValidationMetricsCallback]


def _counting_from_1(callbacks: Any) -> list[Any]:
    """Return batch callbacks that count batches from 1, as in MXNet's `FeedForward`."""

    def counting(callback: Any) -> Any:
        if isinstance(callback, Callback):
            return callback
        return lambda param: callback(param._replace(nbatch=param.nbatch + 1))

    return list(map(counting, as_list(callbacks)))


def _cut(arrays: Sequence[Any], pad: int | None) -> list[Any]:
    """Return arrays as NumPy ones without the last `pad` rows."""
    values = [a.asnumpy() for a in arrays]
    return [a[: len(a) - pad] for a in values] if pad else values


def _joined(batches: list[list[Any]]) -> Any:
    """Return each array's batches concatenated: a list, or the array if there is only one."""
    joined = [np.concatenate(column) for column in zip(*batches)]
    return joined[0] if len(joined) == 1 else joined
