"""Files of other systems: folders that other libraries can load, and torch's state dictionaries (`mx.interop`)."""

from .._core import lazy
from .folder import Pretrained, load_pretrained, save_pretrained
from .weights import load_torch_state

__all__ = ["Pretrained", "load_pretrained", "load_torch_state", "save_pretrained"]

lazy.publish(__name__, __all__)
