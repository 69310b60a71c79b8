"""Modules: `mx.mod`."""

from typing import TYPE_CHECKING

from .. import later
from .base_module import BaseModule as BaseModule
from .executor_group import DataParallelExecutorGroup as DataParallelExecutorGroup
from .module import Module as Module

if TYPE_CHECKING:
    from .autobatch_module import AutobatchModule as AutobatchModule
    from .bucketing_module import BucketingModule as BucketingModule
    from .examples import ExampleIter as ExampleIter
    from .python_module import PythonLossModule as PythonLossModule
    from .python_module import PythonModule as PythonModule
    from .sequential_module import SequentialModule as SequentialModule
    from .torch_module import TorchModule as TorchModule

__getattr__, __dir__ = later.attributes(
    __name__,
    {
        "autobatch_module": "AutobatchModule",
        "bucketing_module": "BucketingModule",
        "examples": "ExampleIter",
        "python_module": "PythonLossModule PythonModule",
        "sequential_module": "SequentialModule",
        "torch_module": "TorchModule",
    },
)
