"""Tensors, bytes and jobs between processes, C++ threads and asyncio."""

from __future__ import annotations

from .._core import lazy

_LATER = {
    "abc": "Stream Worker WorkerPool",
    "child": "Channel",
    "data_loader": "DataLoader",
    "extendable": "BaseAsyncExtendableStream",
    "functors": "CompressFunctor Crc32cFunctor DecompressFunctor MemcpyFunctor MultiSlotFunctor MultiSlotLines "
    "ReadyFunctor Records RecordsFunctor Slot SlotValues",
    "ordered": "CompletionExtendableStream PriorityExtendableStream SortedExtendableStream",
    "process": "ChildProcess",
    "process_pool": "ProcessWorkerPool",
    "read_ahead": "ReadAhead",
    "pipe.tensor_pipe": "PipeStats TensorPipeReader TensorPipeWriter tensor_pipe",
    "testing": "ConformanceError check_stream check_worker_pool",
    "string_handle": "StringHandle",
    "supervisor": "Supervisor",
    "thread_pool": "ThreadWorker ThreadWorkerPool",
    "worker_pool": "BaseAsyncWorker BaseAsyncWorkerPool",
    "errors": "FunctorError LoopClosedError PipeBroken PipeClosed PipeTimeout PoolClosedError RemoteTraceback "
    "StreamStopped StructureError UnpicklableError WorkerDied WorkerError WorkerStuck",
    "signal_bus": "SignalSocketBus",
    "threaded": "CppWorker CppWorkerPool FunctorLike NoopFunctor ThreadPool cpp_threaded_worker",
}

__all__ = list(lazy.modules_of(_LATER))

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
