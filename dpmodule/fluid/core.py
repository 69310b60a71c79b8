"""Names of Paddle's extension module that programs use."""

from .._core import lazy
from .executor import CPUPlace as CPUPlace
from .executor import EOFException as EOFException
from .lod_tensor import LoDTensor as LoDTensor
from .lod_tensor import LoDTensorArray as LoDTensorArray
from .scope import Scope as Scope


def is_compiled_with_cuda() -> bool:
    """Return False: programs run on the CPU."""
    return False


def get_cuda_device_count() -> int:
    """Return 0: programs run on the CPU."""
    return 0


__all__ = lazy.public_names(vars())
lazy.publish(__name__, __all__)
