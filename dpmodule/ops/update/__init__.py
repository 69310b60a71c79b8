"""Optimizer steps as operators, for one or several weights."""

from . import adam as adam
from . import adaptive as adaptive
from . import multi as multi
