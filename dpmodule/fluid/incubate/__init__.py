"""Generators of lines for datasets, under the module path of Paddle."""

from ..._core import lazy
from . import data_generator as data_generator

__all__ = ["data_generator"]
lazy.publish(__name__, __all__)
