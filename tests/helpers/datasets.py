"""Datasets that tests read in other processes."""

import time

import torch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info


class _Counted:
    def __init__(self, count):
        self._count = count


class Numbers(_Counted, IterableDataset):
    """Pairs of numbers, each worker its own."""

    def __iter__(self):
        info = get_worker_info()
        start, step = (info.id, info.num_workers) if info else (0, 1)
        for number in range(start, self._count, step):
            yield torch.full((2,), float(number)), number


class Whole(_Counted, IterableDataset):
    """Batches."""

    def __iter__(self):
        for number in range(self._count):
            yield torch.full((2, 3), float(number)), torch.full((2,), float(number))


class AtOnce(Dataset):
    """Dicts of arrays, fetched by the batch."""

    def __len__(self):
        return 4

    def __getitems__(self, indices):
        return [{"y": torch.full((2,), i), "x": i} for i in indices]


class Drawn(_Counted, Dataset):
    """Random numbers."""

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        return torch.rand(()), index


class Bad(Dataset):
    """Fails at one of its examples."""

    def __init__(self, at):
        self._at = at

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index == self._at:
            raise LookupError(f"no example {index}")
        return torch.ones(2), index


class Sleeping(Bad):
    """Takes very long for one of its examples."""

    def __getitem__(self, index):
        if index == self._at:
            time.sleep(60)
        return torch.ones(2), index


class BadSampler:
    """Fails after a few batches."""

    def __iter__(self):
        yield from ([i] for i in range(6))
        raise LookupError("no more")


def doubled(examples):
    data, label = default_collate(examples)
    return data, label * 2 * get_worker_info().num_workers // 2


def note_worker(index):
    assert get_worker_info().id == index


def refuse(index):
    if index:
        raise LookupError(f"worker {index}")
