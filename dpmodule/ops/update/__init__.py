"""Operators that update weights: the steps of optimizers, one weight or several at a time."""

from . import adam as adam
from . import adaptive as adaptive
from . import lamb as lamb
from . import multi_adaptive as multi_adaptive
from . import multi_sgd as multi_sgd
from . import norms as norms
from . import sgd as sgd
