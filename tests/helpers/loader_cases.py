"""Datasets, structures and options of data loaders; a module that spawned workers can import."""

import collections
import dataclasses
import random
import time

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Target:
    boxes: torch.Tensor
    name: str


class Plain:
    def __init__(self, **items):
        self.__dict__.update(items)


class Marked(torch.Tensor):
    """A subclass without a constructor of its own."""


class CustomError(Exception):
    """An error with two arguments, which `ExceptionWrapper` of torch cannot make again."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class Numbers(Dataset):
    """Example i holds i; every use of random numbers is an item, too."""

    def __init__(self, count=17, width=3):
        self.count, self.width = count, width

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        info = get_worker_info()
        return {
            "x": torch.full((self.width,), float(index)),
            "index": index,
            "random": (random.random(), np.random.rand(), torch.rand(()).item()),
            "worker": (-1, 0, 0) if info is None else (info.id, info.num_workers, info.seed),
        }


class Failing(Numbers):
    """Raises in some examples."""

    def __init__(self, error, at=5):
        super().__init__()
        self.error, self.at = error, at

    def __getitem__(self, index):
        if index == self.at:
            raise self.error
        return index


class Stream(IterableDataset):
    """Every worker reads its part."""

    def __init__(self, count=20, length=None, fails_at=None):
        self.count, self.length, self.fails_at = count, length, fails_at

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, self.count, step):
            if number == self.fails_at:
                raise ValueError("bad line")
            yield torch.tensor([number, random.randrange(100)])


class Counting(Stream):
    """Has a state: how many numbers were read. `reads` counts them in one process."""

    def __init__(self, **options):
        super().__init__(**options)
        self.done = self.reads = 0

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first + self.done * step, self.count // (1 + first), step):
            self.done += 1
            self.reads += 1
            yield torch.tensor([number, self.reads])
        self.done = 0

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]


class CountingCursor:
    """An iterator with a state."""

    def __init__(self, count, first, step):
        self.count, self.at, self.step, self.reads = count, first, step, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= self.count:
            raise StopIteration
        self.at, self.reads = self.at + self.step, self.reads + 1
        return torch.tensor([self.at - self.step, self.reads])

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Cursors(Stream):
    """The iterators have a state."""

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return CountingCursor(self.count // (1 + first), first, step)


class Growing(Numbers):
    """A map-style dataset with a state: the number of examples it has given."""

    given = 0

    def __getitem__(self, index):
        self.given += 1
        return torch.tensor([index, self.given])

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.given = state["given"]


class SizedStream(Stream):
    def __len__(self):
        return self.length


class Structures(Dataset):
    """Example i is structure i."""

    def __len__(self):
        return len(STRUCTURES)

    def __getitem__(self, index):
        return list(STRUCTURES.values())[index]()


class Sleepy(Dataset):
    """The first examples come at once, the others after a long time."""

    def __init__(self, quick=4, seconds=60.0, size=1):
        self.quick, self.seconds, self.size = quick, seconds, size

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if index >= self.quick:
            time.sleep(self.seconds)
        return torch.full((self.size,), index)


class Cached(Dataset):
    """Returns the same memory every time, and what the worker sees in it."""

    def __init__(self):
        self.kept = torch.zeros(30_000)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.kept[0] += 1
        return index, self.kept, self.kept[:5].tolist()


def same(batch):
    return batch


def first_of(batch):
    return batch[0]


def failing_collate(batch):
    raise RuntimeError("cannot collate")


def seeded(worker):
    """A function for new workers that draws random numbers."""
    np.random.seed(worker + int(torch.rand(()) * 100))
    random.seed(worker)


def failing_init(worker):
    if worker == 1:
        raise OSError("no disk")


def _views():
    base = torch.arange(24.0).reshape(4, 6)
    return {"base": base, "row": base[1], "column": base[:, 2], "same": base, "flat": base.view(24)}


def _large():
    big = torch.arange(40_000)
    return [big, big[10:20], big.view(200, 200).t(), torch.ones(20_000)]


STRUCTURES = {
    "number": lambda: 3,
    "texts": lambda: ["a", "ä", "", b"bytes", bytearray(b"x")],
    "none": lambda: None,
    "nested": lambda: {"a": [1, (2.5, None)], ("b", 2): {"c": {3, 4}}},
    "big text": lambda: "word " * 50_000,
    "empty": lambda: [[], {}, (), torch.empty(0), torch.empty(0, 3), torch.empty(3, 0), np.empty((0, 2))],
    "scalar": lambda: (torch.tensor(3), torch.tensor(2.5, dtype=torch.float64), np.float32(2), np.int64(3)),
    "named tuple": lambda: Pair(torch.ones(3), Pair("x", torch.zeros(2))),
    "dataclass": lambda: Target(torch.arange(16.0).view(4, 4), "cat"),
    "ordered": lambda: collections.OrderedDict(b=torch.ones(1), a=torch.zeros(1)),
    "default dict": lambda: collections.defaultdict(list, a=[torch.ones(2)]),
    "object": lambda: Plain(x=torch.ones(2), y=[np.ones(3)], z="z"),
    "slice": lambda: (slice(1, 2), range(3), 1 + 2j, True, torch.Size([1, 2]), torch.float16),
    "dtypes": lambda: [
        torch.ones(5).to(dtype)
        for dtype in (
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float64,
            torch.complex64,
            torch.complex128,
            torch.uint16,
            torch.float8_e4m3fn,
        )
    ],
    "arrays": lambda: [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.ones((3, 4))),
        np.ones((4, 6))[:, ::2],
    ],
    "big arrays": lambda: {
        "a": np.arange(30_000.0),
        "b": np.ones((100, 100), "i2"),
        "c": np.zeros(3, "M8[s]"),
    },
    "other arrays": lambda: [np.array(["a", "bc"]), np.array([None, 1], object), np.zeros(2, [("a", "f4")])],
    "read-only": lambda: np.broadcast_to(np.arange(3), (2, 3)),
    "views": _views,
    "large": _large,
    "strides": lambda: [torch.ones(4, 6)[:, ::2], torch.ones(3, 4).t(), torch.ones(1).expand(50, 50)],
    "channels last": lambda: (
        torch.arange(120.0).view(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    ),
    "many": lambda: [torch.full((k % 7, 2), k) for k in range(200)],
    "parameter": lambda: [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2), False)],
    "gradient": lambda: torch.ones(3, requires_grad=True),
    "subclass": lambda: torch.ones(3).as_subclass(Marked),
    "sparse": lambda: [torch.eye(3).to_sparse(), torch.ones(2, 2).to_sparse(1)],
    "conjugate": lambda: [torch.ones(2, dtype=torch.complex64).conj(), (torch.ones(2) * 1j).conj().imag],
    "module": lambda: torch.nn.BatchNorm1d(3).state_dict(),
    "layers": lambda: torch.nn.Sequential(torch.nn.LayerNorm(20_000), torch.nn.ReLU()),
    "storage": lambda: torch.arange(5).untyped_storage(),
    "generator": lambda: torch.Generator().manual_seed(3).get_state(),
}
"""Functions that make what a worker may send, by name."""


def plain(item):
    """Return an object as tuples that compare with ``==``: types, values, dtypes, strides and flags included."""
    if isinstance(item, torch.nn.Module):
        return type(item), plain(item.state_dict())
    if isinstance(item, torch.Tensor):
        if item.layout is not torch.strided:
            return item.layout, plain(item.to_dense())
        values = (
            item.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).tolist()
        )
        return type(item), item.dtype, tuple(item.shape), item.stride(), item.requires_grad, values
    if isinstance(item, np.ndarray):
        shown = item.tolist()
        return item.dtype, item.shape, item.strides, item.flags.writeable, shown
    if isinstance(item, torch.UntypedStorage):
        return item.tolist()
    if isinstance(item, dict):
        return type(item), [(key, plain(value)) for key, value in item.items()]
    if isinstance(item, (list, tuple)):
        return type(item), [plain(each) for each in item]
    if isinstance(item, (Target, Plain)):
        return type(item), plain(vars(item))
    return type(item), item


def run(kind, dataset, epochs=1, **options):
    """Return the batches of a loader and its error, in a form that compares."""
    generator = torch.Generator().manual_seed(3)
    random.seed(11)
    np.random.seed(11)
    torch.manual_seed(11)
    seen, error, iterator = [], None, None
    options = {
        name: each(dataset, generator) if callable(each) and name in MADE else each
        for name, each in options.items()
    }
    loader = kind(dataset, generator=generator, **options)
    for _ in range(epochs):
        try:
            iterator = iter(loader)
            seen.append([plain(batch) for batch in iterator])
        except Exception as raised:
            error = type(raised), without_paths(str(raised))
    if hasattr(
        iterator, "_shutdown_workers"
    ):  # torch's waits for 5 s a worker if the garbage collector ends it
        iterator._shutdown_workers()
    return seen, error, len(seen[0]) if seen else None, torch.rand(()).item()


MADE = ("sampler", "batch_sampler")


def without_paths(text):
    """Return the text of an error without the frames of a worker's own code, which differ."""
    return [line for line in text.splitlines() if not line.strip().startswith(("File", "^"))]
