"""Automatic mixed precision for symbols: casts that let costly operators run in 16 bits."""

from ..._core import lazy
from . import amp as amp
from .amp import convert_bucketing_module as convert_bucketing_module
from .amp import convert_model as convert_model
from .amp import convert_symbol as convert_symbol
from .amp import init as init
from .amp import init_trainer as init_trainer
from .amp import list_conditional_fp32_ops as list_conditional_fp32_ops
from .amp import list_fp32_ops as list_fp32_ops
from .amp import list_loss_output_functions as list_loss_output_functions
from .amp import list_lp16_ops as list_lp16_ops
from .amp import list_widest_type_cast as list_widest_type_cast
from .amp import scale_loss as scale_loss
from .amp import unscale as unscale

__all__ = [*lazy.public_names(vars()), "amp", "lists"]

__getattr__, __dir__ = lazy.attributes(__name__, __all__)
