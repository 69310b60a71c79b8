"""Hogwild training straight from files: descriptions of feeds, batches from files, and executors."""

from __future__ import annotations

from .._core import lazy

_LATER = {
    "async_executor": "AsyncExecutor",
    "data_feed": "FeedBatch FileBatches",
    "data_files": "FileRange check_files split_parts",
    "dataset": "Dataset InMemoryDataset QueueDataset ReadPlan",
    "data_feed_desc": "DataFeedDesc UnknownSlotError",
}

__all__ = list(lazy.modules_of(_LATER))

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
