"""Tensors, bytes and jobs between processes, C++ threads and asyncio."""

from __future__ import annotations

import typing

from .._core import lazy

if typing.TYPE_CHECKING:
    from .abc import Stream as Stream
    from .abc import Worker as Worker
    from .abc import WorkerPool as WorkerPool
    from .child import Channel as Channel
    from .data_loader import DataLoader as DataLoader
    from .errors import FunctorError as FunctorError
    from .errors import LoopClosedError as LoopClosedError
    from .errors import PipeBroken as PipeBroken
    from .errors import PipeClosed as PipeClosed
    from .errors import PipeTimeout as PipeTimeout
    from .errors import PoolClosedError as PoolClosedError
    from .errors import RemoteTraceback as RemoteTraceback
    from .errors import StreamStopped as StreamStopped
    from .errors import StructureError as StructureError
    from .errors import UnpicklableError as UnpicklableError
    from .errors import WorkerDied as WorkerDied
    from .errors import WorkerError as WorkerError
    from .errors import WorkerStuck as WorkerStuck
    from .extendable import BaseAsyncExtendableStream as BaseAsyncExtendableStream
    from .functors import CompressFunctor as CompressFunctor
    from .functors import Crc32cFunctor as Crc32cFunctor
    from .functors import DecompressFunctor as DecompressFunctor
    from .functors import MemcpyFunctor as MemcpyFunctor
    from .functors import MultiSlotFunctor as MultiSlotFunctor
    from .functors import MultiSlotLines as MultiSlotLines
    from .functors import ReadyFunctor as ReadyFunctor
    from .functors import Records as Records
    from .functors import RecordsFunctor as RecordsFunctor
    from .functors import Slot as Slot
    from .functors import SlotValues as SlotValues
    from .ordered import CompletionExtendableStream as CompletionExtendableStream
    from .ordered import PriorityExtendableStream as PriorityExtendableStream
    from .ordered import SortedExtendableStream as SortedExtendableStream
    from .pipe.tensor_pipe import PipeStats as PipeStats
    from .pipe.tensor_pipe import TensorPipeReader as TensorPipeReader
    from .pipe.tensor_pipe import TensorPipeWriter as TensorPipeWriter
    from .pipe.tensor_pipe import tensor_pipe as tensor_pipe
    from .process import ChildProcess as ChildProcess
    from .process_pool import ProcessWorkerPool as ProcessWorkerPool
    from .read_ahead import ReadAhead as ReadAhead
    from .signal_bus import SignalSocketBus as SignalSocketBus
    from .string_handle import StringHandle as StringHandle
    from .supervisor import Supervisor as Supervisor
    from .testing import ConformanceError as ConformanceError
    from .testing import check_stream as check_stream
    from .testing import check_worker_pool as check_worker_pool
    from .thread_pool import ThreadWorker as ThreadWorker
    from .thread_pool import ThreadWorkerPool as ThreadWorkerPool
    from .threaded import CppWorker as CppWorker
    from .threaded import CppWorkerPool as CppWorkerPool
    from .threaded import FunctorLike as FunctorLike
    from .threaded import NoopFunctor as NoopFunctor
    from .threaded import ThreadPool as ThreadPool
    from .threaded import cpp_threaded_worker as cpp_threaded_worker
    from .worker_pool import BaseAsyncWorker as BaseAsyncWorker
    from .worker_pool import BaseAsyncWorkerPool as BaseAsyncWorkerPool

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
