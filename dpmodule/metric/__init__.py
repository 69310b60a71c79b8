"""Metrics: running averages that say how a network is doing."""

from .base import EvalMetric, alias, check_label_shapes, register
from .classification import Accuracy, CrossEntropy, NegativeLogLikelihood, TopKAccuracy
from .composite import CompositeEvalMetric, create
from .confusion import F1, MCC, PCC
from .custom import Caffe, CustomMetric, Loss, Torch, np
from .regression import MAE, MSE, RMSE, PearsonCorrelation
from .text import Perplexity

__all__ = [
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
