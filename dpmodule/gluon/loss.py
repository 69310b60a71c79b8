"""Losses as functions of arrays or symbols, which return one number per example.

Source: MXNet 1.9.1 `gluon.loss`.
"""

from __future__ import annotations

from typing import Any

from .. import ndarray as nd
from .. import symbol as sym
from .._core import lazy
from ..base import ArgumentError
from ..symbol import Symbol
from .names_left_out import left_out_getattr, names_of, register_as

__all__ = [
    "CTCLoss",
    "HingeLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "L2Loss",
    "LogisticLoss",
    "Loss",
    "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss",
    "SoftmaxCELoss",
    "SoftmaxCrossEntropyLoss",
    "SquaredHingeLoss",
    "TripletLoss",
    *names_of("loss"),
]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, otherwise=left_out_getattr("gluon.loss"))

_TINY = 1e-12


class Loss:
    """Base of losses: a subclass defines ``hybrid_forward(F, ...)`` with the operators of `F`, `mx.nd` or `mx.sym`.

    Args:
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
        prefix: accepted as in MXNet; a loss has no parameters.
        params: accepted likewise.

    Example:
        >>> class Cubic(mx.gluon.loss.Loss):
        ...     def hybrid_forward(self, F, pred, label):
        ...         return F.mean(F.abs(pred - label) ** 3, axis=self._batch_axis, exclude=True)
        >>> Cubic(None, 0)(mx.nd.array([[2, 0]]), mx.nd.zeros((1, 2))).asnumpy()
        array([4.], dtype=float32)
    """

    def __init__(
        self, weight: float | None, batch_axis: int, prefix: str | None = None, params: Any = None
    ) -> None:
        self._weight = weight
        self._batch_axis = batch_axis

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def __call__(self, *args: Any) -> Any:
        """Return the loss of each example; see `forward`."""
        return self.forward(*args)

    def forward(self, x: Any, *args: Any) -> Any:
        """Return the loss of each example.

        Args:
            x: predictions, an array or a symbol.
            args: labels, and often weights of the examples.
        """
        return self.hybrid_forward(sym if isinstance(x, Symbol) else nd, x, *args)

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the loss of each example, computed with the operators of `F`; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not define hybrid_forward")

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Do nothing.

        Args:
            active: accepted as in MXNet.
            **kwargs: accepted likewise.
        """

    def _weighted(self, F: Any, loss: Any, sample_weight: Any = None) -> Any:
        """Return a loss multiplied by its weights."""
        if sample_weight is not None:
            loss = F.broadcast_mul(loss, sample_weight)
        return loss if self._weight is None else loss * self._weight


class _ElementwiseLoss(Loss):
    """Base of losses that compare each element of predictions with one of the labels, and take the mean."""

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """Return the mean of the elements' losses of each example, computed with the operators of `F`."""
        loss = self._elements(F, pred, F.reshape_like(label, pred))
        return F.mean(self._weighted(F, loss, sample_weight), axis=self._batch_axis, exclude=True)

    def _elements(self, F: Any, pred: Any, label: Any) -> Any:
        """Return the loss of each element."""
        raise NotImplementedError


class L2Loss(_ElementwiseLoss):
    """Half of the squared difference.

    Shape:
        pred: (N, ...).
        label: as `pred`, or of the same size.
        sample_weight: one that broadcasts to `pred`.
        loss: (N,), the mean over the other axes.

    Args:
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
    """

    def __init__(self, weight: float | None = 1.0, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def _elements(self, F: Any, pred: Any, label: Any) -> Any:
        return F.square(label - pred) / 2


class L1Loss(_ElementwiseLoss):
    """Absolute difference.

    Shape:
        pred: (N, ...).
        label: as `pred`, or of the same size.
        sample_weight: one that broadcasts to `pred`.
        loss: (N,), the mean over the other axes.

    Args:
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
    """

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def _elements(self, F: Any, pred: Any, label: Any) -> Any:
        return F.abs(label - pred)


class HuberLoss(_ElementwiseLoss):
    """Absolute difference, which is squared near 0.

    Shape:
        pred: (N, ...).
        label: as `pred`, or of the same size.
        sample_weight: one that broadcasts to `pred`.
        loss: (N,), the mean over the other axes.

    Args:
        rho: difference up to which the loss is quadratic.
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
    """

    def __init__(
        self, rho: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._rho = rho

    def _elements(self, F: Any, pred: Any, label: Any) -> Any:
        loss = F.abs(label - pred)
        return F.where(loss > self._rho, loss - 0.5 * self._rho, (0.5 / self._rho) * F.square(loss))


class HingeLoss(_ElementwiseLoss):
    """Distance to a margin, for labels -1 and 1.

    Shape:
        pred: (N, ...).
        label: as `pred`, or of the same size.
        sample_weight: one that broadcasts to `pred`.
        loss: (N,), the mean over the other axes.

    Args:
        margin: product of prediction and label from which the loss is 0.
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
    """

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def _elements(self, F: Any, pred: Any, label: Any) -> Any:
        return F.relu(self._margin - pred * label)


class SquaredHingeLoss(HingeLoss):
    """Square of `HingeLoss`, with the same arguments."""

    def _elements(self, F: Any, pred: Any, label: Any) -> Any:
        return F.square(super()._elements(F, pred, label))


def _softplus(F: Any, x: Any) -> Any:
    return F.Activation(x, act_type="softrelu")


class LogisticLoss(_ElementwiseLoss):
    """Logistic loss of scores.

    Shape:
        pred: (N, ...).
        label: as `pred`, or of the same size.
        sample_weight: one that broadcasts to `pred`.
        loss: (N,), the mean over the other axes.

    Args:
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
        label_format: "signed" for labels -1 and 1, "binary" for 0 and 1.

    Raises:
        ArgumentError: `label_format` is neither.
    """

    def __init__(
        self,
        weight: float | None = None,
        batch_axis: int = 0,
        label_format: str = "signed",
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        if label_format not in ("signed", "binary"):
            raise ArgumentError(f"label_format can only be signed or binary, received {label_format}.")
        self._label_format = label_format

    def _elements(self, F: Any, pred: Any, label: Any) -> Any:
        if self._label_format == "signed":
            label = (label + 1.0) / 2.0
        return F.relu(pred) - pred * label + _softplus(F, -F.abs(pred))


class SigmoidBinaryCrossEntropyLoss(Loss):
    """Cross entropy of a sigmoid, for labels from 0 to 1.

    Shape:
        pred: (N, ...), scores, or probabilities under `from_sigmoid`.
        label: as `pred`, or of the same size.
        sample_weight: one that broadcasts to `pred`.
        pos_weight: weight of positive labels; one that broadcasts to `pred`.
        loss: (N,), the mean over the other axes.

    Args:
        from_sigmoid: True if the predictions are probabilities.
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
    """

    def __init__(
        self, from_sigmoid: bool = False, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_sigmoid = from_sigmoid

    def hybrid_forward(
        self, F: Any, pred: Any, label: Any, sample_weight: Any = None, pos_weight: Any = None
    ) -> Any:
        """Return the loss of each example, computed with the operators of `F`."""
        label = F.reshape_like(label, pred)
        if self._from_sigmoid:
            positive = F.log(pred + _TINY) * label
            if pos_weight is not None:
                positive = F.broadcast_mul(positive, pos_weight)
            loss = -(positive + F.log(1.0 - pred + _TINY) * (1.0 - label))
        elif pos_weight is None:
            loss = F.relu(pred) - pred * label + _softplus(F, -F.abs(pred))
        else:
            factor = 1 + F.broadcast_mul(label, pos_weight - 1)
            loss = pred - pred * label + factor * (_softplus(F, -F.abs(pred)) + F.relu(-pred))
        return F.mean(self._weighted(F, loss, sample_weight), axis=self._batch_axis, exclude=True)


SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss


class SoftmaxCrossEntropyLoss(Loss):
    """The cross entropy of a softmax, one number per example, of symbols or arrays.

    Shape:
        pred: (N, ..., C), scores, or log probabilities under `from_logits`.
        label: (N, ...), class numbers; like `pred` unless `sparse_label`.
        sample_weight: one that broadcasts to the losses with a last axis of 1.
        loss: (N,), the mean over the other axes.

    Args:
        axis: axis of the classes.
        sparse_label: True if labels are class numbers, False if they are probabilities.
        from_logits: True if the predictions are log probabilities.
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
    """

    def __init__(
        self,
        axis: int = -1,
        sparse_label: bool = True,
        from_logits: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._axis = axis
        self._sparse_label = sparse_label
        self._from_logits = from_logits

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """Return the loss of each example, computed with the operators of `F`."""
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            loss = -F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            loss = -F.sum(pred * F.reshape_like(label, pred), axis=self._axis, keepdims=True)
        return F.mean(self._weighted(F, loss, sample_weight), axis=self._batch_axis, exclude=True)


SoftmaxCELoss = SoftmaxCrossEntropyLoss


class KLDivLoss(Loss):
    """Kullback-Leibler divergence of the predicted distributions from the labels.

    Shape:
        pred: (N, ..., C), log probabilities, or scores unless `from_logits`.
        label: as `pred`, probabilities.
        sample_weight: one that broadcasts to `pred`.
        loss: (N,), the sum over the other axes.

    Args:
        from_logits: True if the predictions are log probabilities.
        axis: axis of the classes, used unless `from_logits`.
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
    """

    def __init__(
        self,
        from_logits: bool = True,
        axis: int = -1,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._axis = axis

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """Return the loss of each example, computed with the operators of `F`."""
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        loss = label * (F.log(label + _TINY) - pred)
        return F.sum(self._weighted(F, loss, sample_weight), axis=self._batch_axis, exclude=True)


class CTCLoss(Loss):
    """Connectionist temporal classification; the last class is the blank.

    Shape:
        pred: (N, T, C) or (T, N, C), scores.
        label: (N, L) or (L, N), class numbers, padded with -1.
        pred_lengths, label_lengths: (N,).
        sample_weight: one that broadcasts to the losses.
        loss: (N,).

    Args:
        layout: axes of `pred`, "NTC" or "TNC".
        label_layout: axes of `label`, "NT" or "TN".
        weight: factor of the loss; None for 1.

    Raises:
        ArgumentError: a layout is unknown.
    """

    def __init__(
        self, layout: str = "NTC", label_layout: str = "NT", weight: float | None = None, **kwargs: Any
    ) -> None:
        if layout not in ("NTC", "TNC"):
            raise ArgumentError(f"CTCLoss: layout is {layout!r}, expected 'NTC' or 'TNC'")
        if label_layout not in ("NT", "TN"):
            raise ArgumentError(f"CTCLoss: label_layout is {label_layout!r}, expected 'NT' or 'TN'")
        super().__init__(weight, label_layout.find("N"), **kwargs)
        self._layout = layout

    def hybrid_forward(
        self,
        F: Any,
        pred: Any,
        label: Any,
        pred_lengths: Any = None,
        label_lengths: Any = None,
        sample_weight: Any = None,
    ) -> Any:
        """Return the loss of each example, computed with the operators of `F`."""
        if self._layout == "NTC":
            pred = F.swapaxes(pred, dim1=0, dim2=1)
        if self._batch_axis == 1:
            label = F.swapaxes(label, dim1=0, dim2=1)
        given = {"data_lengths": pred_lengths, "label_lengths": label_lengths}
        used = {f"use_{name}": True for name, value in given.items() if value is not None}
        lengths = {name: value for name, value in given.items() if value is not None}
        loss = F.CTCLoss(pred, label, **lengths, **used, blank_label="last")
        return self._weighted(F, loss, sample_weight)


class TripletLoss(Loss):
    """Distance to an example of the same class, less that to one of another class, plus a margin.

    Shape:
        pred, positive, negative: (N, ...).
        loss: (N,).

    Args:
        margin: difference of the distances from which the loss is 0.
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
    """

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, positive: Any, negative: Any) -> Any:
        """Return the loss of each example, computed with the operators of `F`."""
        near = F.square(F.reshape_like(positive, pred) - pred)
        far = F.square(F.reshape_like(negative, pred) - pred)
        loss = F.relu(F.sum(near - far, axis=self._batch_axis, exclude=True) + self._margin)
        return self._weighted(F, loss)


register_as(Loss, "Block", "HybridBlock")
