"""Metrics: running averages that say how a network is doing."""

from typing import TYPE_CHECKING

from ..compat import lazy
from .base import EvalMetric, alias, check_label_shapes, register, registry
from .classification import Accuracy, CrossEntropy, NegativeLogLikelihood, TopKAccuracy
from .composite import CompositeEvalMetric, create

if TYPE_CHECKING:
    from .binary import AUC, LogLoss
    from .confusion import F1, MCC, PCC
    from .custom import Caffe, CustomMetric, Loss, Torch, np
    from .regression import MAE, MSE, RMSE, PearsonCorrelation
    from .text import Perplexity

__all__ = [
    "AUC",
    "F1",
    "MAE",
    "MCC",
    "MSE",
    "PCC",
    "RMSE",
    "Accuracy",
    "Caffe",
    "CompositeEvalMetric",
    "CrossEntropy",
    "CustomMetric",
    "EvalMetric",
    "LogLoss",
    "Loss",
    "NegativeLogLikelihood",
    "PearsonCorrelation",
    "Perplexity",
    "Torch",
    "TopKAccuracy",
    "alias",
    "check_label_shapes",
    "create",
    "np",
    "register",
]

_LATER = {
    "binary": "AUC LogLoss",
    "confusion": "F1 MCC PCC",
    "custom": "Caffe CustomMetric Loss Torch np",
    "regression": "MAE MSE RMSE PearsonCorrelation",
    "text": "Perplexity",
}
"""Metrics that few programs need, by the module that is imported when one of them is asked for."""

registry.add_later(
    __name__,
    {**_LATER, "custom": "Caffe CustomMetric Loss Torch", "regression": f"{_LATER['regression']} pearsonr"},
)
__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
