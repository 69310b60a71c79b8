"""Saving and loading a network: symbol, parameters and optimizer states under one prefix (`mx.checkpoint`)."""

from .._core import lazy
from .network import FORMATS as FORMATS
from .network import LAST as LAST
from .network import SYMBOL as SYMBOL
from .network import epochs as epochs
from .network import files as files
from .network import load_checkpoint as load_checkpoint
from .network import load_params as load_params
from .network import load_states as load_states
from .network import params_file as params_file
from .network import params_files as params_files
from .network import run_file as run_file
from .network import save_checkpoint as save_checkpoint
from .network import saved_symbol as saved_symbol
from .network import states_file as states_file
from .network import symbol_file as symbol_file
from .network import tables_file as tables_file

__all__ = lazy.public_names(vars())
lazy.publish(__name__, __all__)
