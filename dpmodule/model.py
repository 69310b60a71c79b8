"""MXNet's import path of checkpoints."""

from .callback import BatchEndParam as BatchEndParam
from .checkpoint import load_checkpoint as load_checkpoint
from .checkpoint import load_params as load_params
from .checkpoint import save_checkpoint as save_checkpoint

__all__ = ["BatchEndParam", "load_checkpoint", "load_params", "save_checkpoint"]
