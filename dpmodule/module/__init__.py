"""Modules: `mx.mod`."""

from typing import TYPE_CHECKING

from .. import later
from .base_module import BaseModule as BaseModule
from .executor_group import DataParallelExecutorGroup as DataParallelExecutorGroup
from .module import Module as Module

if TYPE_CHECKING:
    from .bucketing_module import BucketingModule as BucketingModule
    from .python_module import PythonLossModule as PythonLossModule
    from .python_module import PythonModule as PythonModule
    from .sequential_module import SequentialModule as SequentialModule
    from .torch_module import TorchModule as TorchModule

__getattr__, __dir__ = later.attributes(
    __name__,
    {
        "bucketing_module": "BucketingModule",
        "python_module": "PythonLossModule PythonModule",
        "sequential_module": "SequentialModule",
        "torch_module": "TorchModule",
    },
)
