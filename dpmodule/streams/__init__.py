"""Tensors, bytes and jobs between processes, C++ threads and asyncio."""

from __future__ import annotations

from ..later import attributes

__getattr__, __dir__ = attributes(
    __name__,
    {
        "errors": "FunctorError LoopClosedError PipeBroken PipeClosed PoolClosedError StreamStopped StructureError "
        "WorkerDied",
    },
)
