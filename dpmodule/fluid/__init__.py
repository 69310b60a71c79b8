"""An interface similar to Paddle's `fluid`: ``import dpmodule.fluid as fluid``.

Layers add symbols to a `Program`, which has the heads of a symbol, an optimizer and a `ParamStore`; `Executor` runs it
with Modules and `mx.AsyncExecutor`. docs/fluid.md describes the interface and its differences.
"""

from __future__ import annotations

from .._core import lazy
from ..hogwild import DataFeedDesc
from . import (
    clip,
    core,
    framework,
    incubate,
    initializer,
    io,
    layers,
    metrics,
    nets,
    optimizer,
    unique_name,
)
from .compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from .dataset import DatasetFactory
from .executor import AsyncExecutor, CPUPlace, Executor
from .feeding import DataFeeder, create_lod_tensor, create_random_int_lodtensor
from .framework import cpu_places, name_scope, require_version
from .input import data, embedding
from .io import load, save
from .lod_tensor import LoDTensor, LoDTensorArray
from .parallel_executor import ParallelExecutor
from .program import Program, default_main_program, default_startup_program, program_guard
from .scope import Scope, global_scope, scope_guard
from .variable import ParamAttr, Parameter, Variable

Tensor = LoDTensor

__all__ = [
    "AsyncExecutor",
    "BuildStrategy",
    "CPUPlace",
    "CompiledProgram",
    "DataFeedDesc",
    "DataFeeder",
    "DatasetFactory",
    "ExecutionStrategy",
    "LoDTensor",
    "LoDTensorArray",
    "Executor",
    "ParallelExecutor",
    "ParamAttr",
    "Parameter",
    "Program",
    "Scope",
    "Tensor",
    "Variable",
    "backward",
    "clip",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "data",
    "default_main_program",
    "default_startup_program",
    "embedding",
    "framework",
    "global_scope",
    "incubate",
    "initializer",
    "io",
    "layers",
    "load",
    "metrics",
    "name_scope",
    "nets",
    "optimizer",
    "param_attr",
    "program_guard",
    "regularizer",
    "require_version",
    "save",
    "scope_guard",
    "unique_name",
]

__getattr__, __dir__ = lazy.attributes(__name__, __all__)
