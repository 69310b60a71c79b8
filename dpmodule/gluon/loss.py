"""The cross entropy, which symbolic programs take from Gluon through its `hybrid_forward`."""

from __future__ import annotations

from typing import Any

from .. import ndarray as nd
from .. import symbol as sym
from .._core import lazy
from ..symbol import Symbol
from .names_left_out import left_out_getattr, names_of

__all__ = ["SoftmaxCELoss", "SoftmaxCrossEntropyLoss", *names_of("loss")]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, otherwise=left_out_getattr("gluon.loss"))


class SoftmaxCrossEntropyLoss:
    """The cross entropy of a softmax, one number per example, of symbols or arrays.

    Shape:
        pred: (N, ..., C), scores, or log probabilities under `from_logits`.
        label: (N, ...), class numbers; like `pred` unless `sparse_label`.
        sample_weight: one that broadcasts to the losses with a last axis of 1.
        loss: (N,), the mean over the other axes.

    Args:
        axis: axis of the classes.
        weight: factor of the loss; None for 1.
        batch_axis: axis of the examples.
        prefix: accepted as in MXNet; a loss has no parameters.
        params: accepted likewise.
    Source: MXNet 1.9.1 `gluon.loss.SoftmaxCrossEntropyLoss`.
    """

    def __init__(
        self,
        axis: int = -1,
        sparse_label: bool = True,
        from_logits: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        self._axis = axis
        self._sparse_label = sparse_label
        self._from_logits = from_logits
        self._weight = weight
        self._batch_axis = batch_axis

    def __call__(self, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """Return the loss of each example; see the class."""
        return self.hybrid_forward(sym if isinstance(pred, Symbol) else nd, pred, label, sample_weight)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """Return the loss of each example, computed with the operators of `F`, `mx.sym` or `mx.nd`."""
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            loss = -F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            loss = -F.sum(pred * F.reshape_like(label, pred), axis=self._axis, keepdims=True)
        if sample_weight is not None:
            loss = F.broadcast_mul(loss, sample_weight)
        if self._weight is not None:
            loss = loss * self._weight
        return F.mean(loss, axis=self._batch_axis, exclude=True)


SoftmaxCELoss = SoftmaxCrossEntropyLoss
