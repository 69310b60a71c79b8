"""Hogwild training straight from files: descriptions of feeds, batches from files, and executors."""

from __future__ import annotations

import typing

from .._core import lazy

if typing.TYPE_CHECKING:
    from .async_executor import AsyncExecutor as AsyncExecutor
    from .data_feed import FeedBatch as FeedBatch
    from .data_feed import FileBatches as FileBatches
    from .data_feed_desc import DataFeedDesc as DataFeedDesc
    from .data_files import FileRange as FileRange
    from .data_files import check_files as check_files
    from .data_files import split_parts as split_parts
    from .dataset import Dataset as Dataset
    from .dataset import InMemoryDataset as InMemoryDataset
    from .dataset import QueueDataset as QueueDataset
    from .dataset import ReadPlan as ReadPlan

_LATER = {
    "async_executor": "AsyncExecutor",
    "data_feed": "FeedBatch FileBatches",
    "data_files": "FileRange check_files split_parts",
    "dataset": "Dataset InMemoryDataset QueueDataset ReadPlan",
    "data_feed_desc": "DataFeedDesc",
}

__all__ = list(lazy.modules_of(_LATER))

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
