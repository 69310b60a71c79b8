"""Operators that update weights: the steps of optimizers, one weight or several at a time."""

from . import adam as adam
from . import adaptive as adaptive
from . import multi as multi
