"""Modules: `mx.mod`."""

from typing import TYPE_CHECKING

from .._core import lazy
from .base_module import BaseModule as BaseModule
from .group.executor_group import DataParallelExecutorGroup as DataParallelExecutorGroup
from .module import Module as Module

if TYPE_CHECKING:
    from .autobatch.autobatch_module import AutobatchModule as AutobatchModule
    from .autobatch.example_iter import ExampleIter as ExampleIter
    from .bucketing_module import BucketingModule as BucketingModule
    from .python_module import PythonLossModule as PythonLossModule
    from .python_module import PythonModule as PythonModule
    from .sequential_module import SequentialModule as SequentialModule
    from .torch_module import TorchModule as TorchModule

__all__ = [
    "AutobatchModule",
    "BaseModule",
    "BucketingModule",
    "Module",
    "PythonLossModule",
    "PythonModule",
    "SequentialModule",
    "TorchModule",
    "base_module",
    "bucketing_module",
    "executor_group",
    "module",
    "python_module",
    "sequential_module",
]

__getattr__, __dir__ = lazy.attributes(
    __name__,
    __all__,
    {
        "autobatch.autobatch_module": "AutobatchModule",
        "bucketing_module": "BucketingModule",
        "autobatch.example_iter": "ExampleIter",
        "python_module": "PythonLossModule PythonModule",
        "sequential_module": "SequentialModule",
        "torch_module": "TorchModule",
    },
)
