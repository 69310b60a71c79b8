"""Iterators resume where others stood, after any order of reading, resetting, saving, loading and copying."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import dpmodule as mx
from dpmodule._devices import generators
from dpmodule.base import StateError
from dpmodule.checkpoint import run_format
from helpers import datasets, iterator_cases, iterators
from helpers.machines import play
from helpers.pictures import FOLDER, FORMATS, NAMES, file_of, write_records
from helpers.processes import resources

# Python 3.12 warns of forked workers
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def plain(array):
    array = array.padded() if getattr(array, "stype", None) == "ragged" else array
    return array.asnumpy().tolist() if hasattr(array, "asnumpy") else array


def take(it):
    """Return what the next batch holds; None at the end of the epoch."""
    batch = next(it, None)
    return batch and ([plain(each) for each in batch.data + batch.label], batch.pad, batch.num_padding)


def reset(it):
    it.reset()


def close(it):
    """Close an iterator, or the file of one that has no `close`, as in MXNet."""
    if hasattr(it, "close"):
        it.close()
    elif getattr(it, "imgrec", None) is not None:
        it.imgrec.close()


class Reader:
    """An iterator, and the random numbers that it has drawn so far."""

    def __init__(self, make):
        mx.random.seed_all(5)
        self.it = make()
        self.random = generators.state_dict()

    def do(self, call):
        generators.load_state_dict(self.random)
        found = call(self.it)
        self.random = generators.state_dict()
        return found

    def close(self):
        close(self.it)
        for call in (next, reset) if hasattr(self.it, "close") else ():
            with pytest.raises(StateError, match="closed"):
                call(self.it)


class Positions(RuleBasedStateMachine):
    """An iterator that is saved, loaded and copied, and a twin that repeats its plain calls.

    Attributes:
        makes: strategy of functions that make an iterator.
        path: a file for states.
        is_copied: whether the iterator can be copied and pickled.
    """

    @initialize(data=st.data())
    def begin(self, data):
        self.make, self.calls, self.saved = data.draw(self.makes), [], []
        self.reader, self.twin = Reader(self.make), Reader(self.make)

    def both(self, call):
        self.calls.append(call)
        found = self.reader.do(call)
        assert found == self.twin.do(call)
        return found

    @rule(count=st.integers(1, 9))
    def read(self, count):
        found = [self.both(take) for _ in range(count)]
        end = found.index(None) if None in found else count
        assert not any(found[end:]) or isinstance(self.reader.it, mx.image.ImageIter)  # see "roll_over"

    @rule()
    def reset(self):
        self.both(reset)

    @rule()
    def save(self):
        with self.path.open("wb") as file:
            run_format.write(file, {"iterator": self.reader.it.state_dict(), "random": self.reader.random})
        self.saved.append((self.path.read_bytes(), list(self.calls)))

    @precondition(lambda self: self.saved)
    @rule(number=st.integers(0, 3), is_new=st.booleans())
    def load(self, number, is_new):
        content, calls = self.saved[number % len(self.saved)]
        self.path.write_bytes(content)
        state = run_format.read(self.path)
        if is_new:
            self.reader.close()
            self.reader = Reader(self.make)
        self.reader.do(lambda it: it.load_state_dict(state["iterator"]))
        self.reader.random = state["random"]
        self.twin.close()
        self.twin, self.calls = Reader(self.make), list(calls)
        for call in calls:
            self.twin.do(call)

    @precondition(lambda self: self.is_copied)
    @rule(way=st.sampled_from([copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]))
    def copy(self, way):
        old, self.reader.it = self.reader.it, self.reader.do(way)
        close(old)

    def teardown(self):
        if hasattr(self, "reader"):
            self.reader.close()
            self.twin.close()


def arrays(kind, count, **options):
    options["batch_size"] = min(options["batch_size"], count)
    data, label, layout = iterator_cases.of_kind(mx, kind, count)
    return mx.io.NDArrayIter(data, label, layout=layout, **options)


def records(folder, indexed, **options):
    path = f"{folder}/pictures"
    options |= {"path_imgidx": f"{path}.idx" if indexed else "", "data_shape": (3, 2, 2), "verbose": False}
    return mx.io.ImageRecordIter(path_imgrec=f"{path}.rec", rand_crop=True, **options)


def images(folder, source, shuffle, **options):
    options |= {
        "indexed": {"path_imgrec": f"{folder}/pictures.rec", "path_imgidx": f"{folder}/pictures.idx"},
        "in order": {"path_imgrec": f"{folder}/pictures.rec"},
        "list": {"imglist": [[i, f"{NAMES[i % 3]}.png"] for i in range(11)], "path_root": FOLDER},
    }[source]
    shuffle = shuffle and source != "in order"
    return mx.image.ImageIter(4, (3, 2, 2), rand_crop=True, shuffle=shuffle, **options)


def examples():
    return mx.mod.ExampleIter(list(range(11)), list(range(11)), 3, shuffle=True)


def workers(factory=iterators.Drawing, **options):
    return mx.io.ProcessPrefetchingIter(partial(factory, **options), 2, start_method="fork")


def loader(dataset, **options):
    return mx.io.DataLoaderIter(dataset, batch_size=3, start_method="fork", **options)


def drawn(make, *given, **options):
    """Return a strategy of functions that make an iterator, with options from these lists."""
    options = {name: st.sampled_from(values) for name, values in options.items()}
    return st.builds(partial, st.just(make), *map(st.just, given), **options)


TWO, HANDLES = [False, True], ["pad", "discard", "roll_over"]
SHUFFLED = {"shuffle": TWO, "last_batch_handle": HANDLES}
RECORDS = dict.fromkeys(("indexed", "shuffle", "round_batch", "rand_mirror"), TWO)
RECORDS |= {"batch_size": range(2, 6), "prefetch_buffer": range(5), "seed_aug": [None, 3]}
ARRAYS = {"kind": ["dense", "csr", "ragged", "TN"], "count": range(1, 21), "batch_size": range(1, 8)}
DRAWN = {
    "arrays": lambda at: drawn(arrays, **ARRAYS, **SHUFFLED),
    "records": lambda at: drawn(records, at, **RECORDS),
    "images": lambda at: drawn(images, at, source=["indexed", "list"], **SHUFFLED),
    "images in order": lambda at: drawn(images, at, source=["in order"], **SHUFFLED),
}
"""Iterators with drawn options."""

THREE, PIXELS = {"batch_size": 3}, {"data_shape": (3, 8, 8), "verbose": False, "batch_size": 3}
ROLLED = {"shuffle": True, "last_batch_handle": "roll_over"}
CHANGED = {"rand_mirror_prob": 0.5, "rand_crop_prob": 0.5, "shuffle": True}
OBJECTS = [[2, 5, i, 0.1, 0.1, 0.5, 0.6, f"{NAMES[i % 3]}.png"] for i in range(5)]
LISTED = {"imglist": OBJECTS, "path_root": FOLDER, "shuffle": True, "rand_mirror": True}
DIGITS = {"image": FORMATS / "t20-images-idx3-ubyte", "label": FORMATS / "t20-labels-idx1-ubyte"}
KINDS = {
    "objects": lambda at: mx.image.ImageDetIter(2, (3, 4, 4), **LISTED),
    "object records": lambda at: mx.io.ImageDetRecordIter(
        path_imgrec=at / "objects.rec", **PIXELS, **CHANGED
    ),
    "bytes": lambda at: mx.io.ImageRecordUInt8Iter(path_imgrec=at / "objects.rec", label_width=9, **PIXELS),
    "csv": lambda at, **more: mx.io.CSVIter(data_csv=f"{at}/rows.csv", data_shape=(2,), **THREE, **more),
    "csv in part": lambda at: KINDS["csv"](at, round_batch=False),
    "libsvm": lambda at: mx.io.LibSVMIter(data_libsvm=f"{at}/rows.libsvm", data_shape=(4,), **THREE),
    "mnist": lambda at: mx.io.MNISTIter(**DIGITS, batch_size=2, shuffle=True, silent=True),
    "examples": lambda at: examples(),
    "sentences": lambda at: mx.rnn.BucketSentenceIter([[1, 2], [3], [4, 5], [6], [7]], 2, [1, 2]),
    "loader": lambda at: loader(datasets.Drawn(11), shuffle=True),
    "iterable": lambda at: loader(datasets.Numbers(11)),
    "torch": lambda at: mx.io.as_data_iter(torch.utils.data.DataLoader(datasets.Drawn(11), 3, shuffle=True)),
    "resized": lambda at: mx.io.ResizeIter(examples(), 2),
    "in a thread": lambda at: mx.io.PrefetchingIter(examples()),
    "several in threads": lambda at: mx.io.PrefetchingIter(
        [arrays("dense", 11, **THREE, shuffle=True), KINDS["csv in part"](at)], [{"data": "a"}, {}], depth=2
    ),
    "resized in a thread": lambda at: mx.io.PrefetchingIter(mx.io.ResizeIter(KINDS["csv"](at), 3)),
    "workers in a thread": lambda at: mx.io.PrefetchingIter(workers()),
    "workers that draw": lambda at: workers(),
    "workers that roll over": lambda at: workers(iterators.rows, count=13, **ROLLED),
    "loading workers": lambda at: loader(datasets.Drawn(11), shuffle=True, num_workers=2),
    "iterable in workers": lambda at: loader(datasets.Numbers(11), num_workers=2),
}
COPIED = ("arrays", "csv", "csv in part", "libsvm", "several in threads", "resized in a thread")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with rows, sparse rows, pictures, and pictures with their objects."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "rows.csv").write_text("".join(f"{i},{i * i}\n" for i in range(11)))
    (folder / "rows.libsvm").write_text("".join(f"{i} {i % 3}:1 3:{i}\n" for i in range(11)))
    pictures = [file_of(NAMES[i % 3]) for i in range(11)]
    objects = [[4, 5, 30, 40, i % 3, 0.1, 0.1, 0.5, 0.6] for i in range(11)]
    write_records(folder / "objects.rec", pictures, [np.array(each, "f4") for each in objects])
    with mx.recordio.MXIndexedRecordIO(f"{folder}/pictures.idx", f"{folder}/pictures.rec", "w") as record:
        for i, picture in enumerate(pictures):
            record.write_idx(i, mx.recordio.pack((0, float(i), i, 0), picture))
    return folder


def held():
    """Return what is in use, but for threads: those of records end later."""
    return {what: each for what, each in resources().items() if what != "threads"}


SLOW = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("times", [1, pytest.param(15, marks=SLOW)])
@pytest.mark.parametrize("kind", [*DRAWN, *KINDS])
def test_any_order_of_calls(kind, times, files):
    before = held()
    makes = DRAWN[kind](files) if kind in DRAWN else st.just(partial(KINDS[kind], files))
    facts = {"makes": makes, "path": files / "state.run", "is_copied": kind in COPIED}
    count = times * (30 if kind == "arrays" else 2 if "workers" in kind else 20 if "images" in kind else 8)
    play(type("Positions", (Positions,), facts), count, steps=10)
    assert held() == before
