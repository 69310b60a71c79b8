"""Wrong calls of `mx.io`."""

import gzip
import pickle
from functools import partial

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import dpmodule as mx
from dpmodule.base import (
    ArgumentError,
    DTypeError,
    FileError,
    FileFormatError,
    MXNetError,
    NotSupportedForSparseNDArray,
    ShapeError,
    StateError,
)
from dpmodule.streams.errors import UnpicklableError
from helpers import datasets, iterators
from helpers.pictures import FOLDER, FORMATS, NAMES, OPTIONS, file_of, write_records

DataDesc, ResizeIter, refuse = mx.io.DataDesc, mx.io.ResizeIter, datasets.refuse
PrefetchingIter, ProcessPrefetchingIter = mx.io.PrefetchingIter, mx.io.ProcessPrefetchingIter

X, Y = np.zeros((4, 2)), np.zeros(4)
IMAGES, LABELS = FORMATS / "t20-images-idx3-ubyte", FORMATS / "t20-labels-idx1-ubyte"
FEW_LABELS = LABELS.read_bytes()[:7] + b"\x13" + LABELS.read_bytes()[8:-1]
TABLE = TensorDataset(torch.zeros(11, 2), torch.arange(11))
SPARSE = mx.nd.sparse.csr_matrix(np.eye(3))


def arrays(*data, **options):
    return mx.io.NDArrayIter(*(data or (X,)), **options)


def loader(source, **options):
    return mx.io.DataLoaderIter(source, start_method="fork", **options)


def unpicklable():
    return mx.io.DataLoaderIter(TABLE, batch_size=3, num_workers=1, collate_fn=lambda rows: rows)


def workers(*factory, **options):
    return mx.io.ProcessPrefetchingIter(*factory, start_method="fork", **options)


def file(folder, content, name="a"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def csv(folder, text="1,2\n", **options):
    options = {"data_csv": file(folder, text, "a.csv"), "data_shape": (2,), "batch_size": 1, **options}
    return mx.io.CSVIter(**options)


def libsvm(folder, text="1 0:1\n", **options):
    options = {"data_libsvm": file(folder, text, "a.svm"), "data_shape": (8,), "batch_size": 1, **options}
    return mx.io.LibSVMIter(**options)


def digits(**options):
    return mx.io.MNISTIter(**{"image": IMAGES, "label": LABELS, "batch_size": 8, "silent": True, **options})


def images(name="images_l1", **options):
    path = FORMATS / f"{name}.rec"
    options = {"path_imgrec": path, "data_shape": (3, 20, 20), "batch_size": 2, "verbose": False, **options}
    return mx.io.ImageRecordIter(**options)


def objects(folder, labels=None, **given):
    labels = labels or OPTIONS["objects"]
    files = [file_of(name) for name in NAMES[: len(labels)]]
    path = write_records(folder / "a.rec", files, labels)
    given = {"data_shape": (3, 12, 14), "batch_size": 1, "verbose": False, **given}
    return mx.io.ImageDetRecordIter(path_imgrec=path, **given)


def listed(*labels):
    rows = [[i, f"{NAMES[0]}.png"] for i in labels]
    return mx.image.ImageIter(1, (3, 2, 2), imglist=rows, path_root=FOLDER)


def each(call, error, *rows):
    """Return a row for each pattern and the arguments after it."""
    return [(lambda given=given: call(*given), error, pattern) for pattern, *given in rows]


def in_folder(call, error, *rows):
    return [(lambda folder, given=given: call(folder, *given), error, pattern) for pattern, *given in rows]


def load(saved, loaded, batches=0, **changes):
    """Load the state of an iterator, after some batches, into another one."""
    for _ in range(batches):
        next(saved)
    try:
        loaded.load_state_dict({**saved.state_dict(), **changes})
    finally:
        for each in (saved, loaded):
            getattr(each, "close", lambda: None)()


def first(it):
    """Read a batch of an iterator with threads or processes."""
    with it:
        return next(it)


def read_all(it):
    list(it)
    return it


def differing(part_index, num_parts):
    return mx.io.NDArrayIter(np.zeros((8, 3)), batch_size=2 + part_index)


def three(part_index, num_parts):
    return 3


def parted(it, times=1):
    with it:
        for _ in range(times):
            it.take_part(2, 0)


def as_iter(batches):
    return mx.io.as_data_iter([X] * batches)


def counted(batches):
    return workers(partial(iterators.Slow, batches=batches, seconds=0.0), 2)


class Nothing(mx.io.DataIter):
    provide_data = provide_label = ()


class Empty(Nothing):
    def next(self):
        raise StopIteration


PARTED = (
    arrays,
    lambda **part: loader([(X[:2], Y[:2])] * 3, **part),
    lambda **part: mx.rnn.BucketSentenceIter([[1]] * 3, 1, **part),
)


def others(make):
    return load(make(num_parts=2, part_index=1), make(num_parts=2, part_index=0))


def with_workers(saved, here):
    return load(*(loader(TABLE, batch_size=3, num_workers=count or None) for count in (saved, here)))


ROWS = [
    # NDArrayIter
    *each(
        arrays,
        ArgumentError,
        ("data is None", None),
        ("data '_0_data' is int", [1, 2]),
        (r"label '_0_softmax_label' is int.*pass numpy.array\(list\)", X, [0, 1]),
    ),
    *each(
        arrays,
        ShapeError,
        ("single number", np.float32(3)),
        ("no examples", np.zeros((0, 3))),
        (r"'data' \(4, 2\), 'softmax_label' \(5,\)", X, np.zeros(5)),
    ),
    (lambda: arrays(np.array(["a"])), DTypeError, "expected numbers"),
    (lambda: arrays(batch_size=0), ArgumentError, "batch_size is 0"),
    (lambda: arrays(last_batch_handle="keep"), ArgumentError, "'keep', expected one of pad, discard"),
    (lambda: arrays(layout="TC"), ArgumentError, "axis 'N'"),
    (lambda: arrays(num_parts=5, part_index=4), ArgumentError, "part 4 of 5 has no examples.*only 4"),
    (lambda: read_all(arrays(last_batch_handle="roll_over")).getdata(), StateError, "no current batch"),
    (lambda: setattr(arrays(), "data", [("a", X), ("b", X[:3])]), ShapeError, "differ in their number"),
    # descriptions and batches
    (lambda: DataDesc("x", (1,), "float99"), DTypeError, "float99"),
    (lambda: DataDesc.get_list([("a", (1,))], [("b", "float16")]), ArgumentError, r"no entry for \['a'\]"),
    (lambda: mx.io.DataBatch(mx.nd.zeros((2, 3))), ArgumentError, r"data is NDArray of .*\(2, 3\).*\[data\]"),
    (lambda: mx.io.DataBatch([], mx.nd.zeros((2,))), ArgumentError, r"label is NDArray of .*\[label\]"),
    (lambda: mx.io.DataBatch([], mx.nd.zeros((2,))), ArgumentError, r"label is NDArray of .*\[label\]"),
    (lambda: mx.io.DataBatch([], mx.nd.zeros((2,))), ArgumentError, r"label is NDArray of .*\[label\]"),
    # DataIter, ResizeIter, to_torch
    (lambda: Nothing().next(), NotImplementedError, "Nothing defines neither next nor iter_next"),
    (lambda: Nothing().state_dict(), NotImplementedError, "Nothing does not define state_dict"),
    (lambda: Nothing().load_state_dict({}), NotImplementedError, "Nothing does not define load_state_dict"),
    (lambda: Nothing().load_state_dict({}), NotImplementedError, "Nothing does not define load_state_dict"),
    (lambda: Nothing().load_state_dict({}), NotImplementedError, "Nothing does not define load_state_dict"),
    (lambda: ResizeIter(Nothing(), 2).take_part(2, 0), NotImplementedError, "Nothing does not.*take_part"),
    (lambda: ResizeIter(Empty(), 2).next(), StateError, "Empty has no batches"),
    (lambda: ResizeIter(arrays(), 0), ArgumentError, "size is 0"),
    (lambda: ResizeIter(arrays(), 2).getpad(), StateError, "no current batch"),
    (lambda: [*DataLoader(arrays().to_torch(), None, num_workers=1)], StateError, "num_workers=0"),
    (lambda: [*arrays(SPARSE).to_torch()], NotSupportedForSparseNDArray, "tostype"),
    # parts
    *[
        row
        for make in PARTED
        for row in (
            (partial(make, num_parts=2, part_index=2), ArgumentError, "is 2, expected 0 to 1"),
            (lambda make=make: make().take_part(0, 0), ArgumentError, "num_parts is 0, expected at least 1"),
            (lambda make=make: make(num_parts=2).take_part(2, 0), StateError, "already reads part 0 of 2"),
            (partial(others, make), ArgumentError, r"part is \[1, 2\], here \[0, 2\]"),
        )
    ],
    (lambda: loader(iter([X] * 3), label_name=[]).take_part(2, 0), StateError, "list_iterator .* only once"),
    (lambda: parted(workers([partial(iterators.rows, 0, 1)])), NotImplementedError, "list of factories"),
    (lambda: parted(workers(iterators.rows), 2), StateError, "already reads one of 2 parts"),
    # as_data_iter
    *each(
        mx.io.as_data_iter,
        ArgumentError,
        ("one ndarray, expected an iterable of batches; wrap arrays in NDArrayIter", X),
        ("a tuple of 2 arrays", (Y, Y)),
        ("data is dict", {"data": Y}),
        ("list yields no batches", []),
        ("a tuple of 3 parts", [(1, 2, 3)]),
        (r"a dict with \['softmax_label'\]", [{"softmax_label": Y}]),
        ("a batch's data is str", [("text", Y)]),
        ("without data", [mx.io.DataBatch([])]),
        ("holds 2 arrays, expected 1", [((Y, Y), Y)], ["data"]),
        (r"expected the data \['b'\]", [{"a": Y}], ["a", "b"]),
    ),
    (lambda: mx.io.as_data_iter([np.array(["a", "b"])]), DTypeError, "expected numbers"),
    # DataLoaderIter
    (lambda: loader(TABLE), ArgumentError, "needs a batch_size"),
    (lambda: loader(5, batch_size=2), ArgumentError, "loader is 5, expected a DataLoader, a dataset or"),
    (lambda: loader(TABLE, batch_size=0), ArgumentError, "batch_size is 0"),
    (lambda: loader(TABLE, batch_size=2, batch_sampler=[[1]]), ArgumentError, "replaces"),
    (lambda: loader(TABLE, batch_size=2, sampler=[1], shuffle=True), ArgumentError, "contradict"),
    (lambda: loader(TABLE, batch_size=2, num_workers=-1), ArgumentError, "num_workers is -1"),
    (lambda: loader(datasets.Numbers(3), batch_size=2, shuffle=True), ArgumentError, "its own order"),
    (lambda: loader(DataLoader(TABLE), batch_size=2), ArgumentError, "batch_size given.*is a DataLoader"),
    (lambda: loader([X], shuffle=True, drop_last=True), ArgumentError, "shuffle, drop_last given"),
    (lambda: loader([]), ArgumentError, "yields no batches"),
    (lambda: pickle.dumps(loader(TABLE, batch_size=2)), StateError, "cannot be copied or pickled"),
    (lambda: loader(datasets.Bad(at=0), batch_size=2, num_workers=1), LookupError, "no example 0"),
    (lambda: loader(TABLE, num_workers=2, batch_size=2, worker_init_fn=refuse), LookupError, "worker 1"),
    (lambda: unpicklable(), UnpicklableError, "lambda"),
    # PrefetchingIter
    (lambda: PrefetchingIter([]), ArgumentError, "iters is empty"),
    (lambda: PrefetchingIter(arrays(), depth=0), ArgumentError, "depth is 0"),
    (lambda: PrefetchingIter(arrays(), rename_label={"a": "b"}), ArgumentError, "a list of 1 dicts"),
    (lambda: first(PrefetchingIter([arrays(X[:n], batch_size=4) for n in (3, 2)])), StateError, r": \[1, 2"),
    (lambda: first(PrefetchingIter([arrays(), Empty()])), StateError, r"iterators \[1\] ended"),
    # ProcessPrefetchingIter
    *each(
        workers,
        ArgumentError,
        ("num_workers is 0", iterators.rows, 0),
        ("factory is", [iterators.rows, 5]),
        ("factory is 3, expected a function", 3),
        ("num_workers is 2, but there are 1 factories", [iterators.rows], 2),
        (r"differ; worker 0 provides .*\(2, 3\).*worker 1 .*\(3, 3\)", differing, 2),
        ("factory returned 3, expected an iterator", three),
    ),
    (lambda: workers(iterators.rows, slots=65), ArgumentError, "slots is 65"),
    (lambda: workers(iterators.rows, num_threads=0), ArgumentError, "num_threads is 0"),
    (lambda: workers(iterators.rows, timeout_s=0), ArgumentError, "timeout_s is 0"),
    (lambda: ProcessPrefetchingIter(iterators.rows, start_method="x"), ArgumentError, "start_method is 'x'"),
    (lambda: ProcessPrefetchingIter(lambda **part: None), UnpicklableError, "lambda"),
    # states of other iterators
    (lambda: load(images(shuffle=True), images()), ArgumentError, "other records: .*'shuffle': True"),
    (lambda: load(images(), images(round_batch=False)), ArgumentError, "wraps is True, here False"),
    (lambda: load(listed(1, 2, 3), listed(1, 2)), ArgumentError, "examples is 3, here 2"),
    (lambda: load(listed(1, 2), listed(1, 2), seq=["1", "7"]), ArgumentError, "over other images"),
    (lambda: arrays().load_state_dict(3), ArgumentError, "is int, expected the result of state_dict"),
    (lambda: load(PrefetchingIter([arrays()] * 2), PrefetchingIter(arrays())), ArgumentError, "2 iterators"),
    (lambda: with_workers(2, 0), ArgumentError, "with 2 workers, but here are 0; give num_workers=2"),
    (lambda: with_workers(1, 2), ArgumentError, "with 1 workers, but here are 2; give num_workers=1"),
    (lambda: load(counted(3), counted(1), 5), StateError, "yielded only 2 batches, but .* saved after 5"),
    (lambda: load(as_iter(4), as_iter(2), 4), StateError, "yielded only 2 batches, but .* saved after 4"),
    # CSVIter
    *in_folder(
        csv,
        FileFormatError,
        (r"a\.csv: line 2: 'x' is not a number of type float32", "1,2\n3,x\n"),
        (r"a\.csv: line 3: 1 numbers, expected 2", "1,2\n\n3\n"),
        (r"CSVIter: .*a\.csv is empty", ""),
    ),
    (lambda folder: csv(folder, "1,2.5\n", dtype="int32"), FileFormatError, "'2.5' is not .* of type int32"),
    (lambda folder: csv(folder, data_csv="missing.csv"), FileError, "missing"),
    (lambda: mx.io.CSVIter(data_shape=(2,), batch_size=1), ArgumentError, "data_csv is required"),
    (lambda folder: csv(folder, label_csv=file(folder, "1\n"), text="1,2\n3,4\n"), ShapeError, "1 rows"),
    (lambda folder: csv(folder, batch_size=9).next(), MXNetError, "1 examples, too few to pad a batch of 9"),
    (lambda folder: csv(folder).getdata(), StateError, "no current batch"),
    # LibSVMIter
    *in_folder(
        libsvm,
        FileFormatError,
        (r"a\.svm: line 2: '8:1': columns are whole numbers from 0 to 7", "1 0:1\n2 8:1\n"),
        (r"a\.svm: line 1: '-1:2'", "1 -1:2\n"),
        (r"a\.svm: line 1: 'x'", "x\n"),
        (r"LibSVMIter: .*a\.svm is empty", ""),
    ),
    (lambda folder: libsvm(folder, data_shape=(2, 4)), ArgumentError, "LibSVMIter: "),
    (lambda folder: libsvm(folder, round_batch=False), ArgumentError, "LibSVMIter: "),
    (lambda folder: libsvm(folder, label_libsvm="x"), ArgumentError, "LibSVMIter: "),
    (lambda folder: libsvm(folder, num_parts=2, part_index=2), ArgumentError, "part_index is 2"),
    # MNISTIter
    *in_folder(
        lambda folder, content: digits(image=file(folder, content)),
        FileFormatError,
        ("byte 15695: the file is cut short", IMAGES.read_bytes()[:-1]),
        ("byte 9: the file ends within its head", IMAGES.read_bytes()[:9]),
        ("byte 0: .*expected an idx file of bytes with 3 axes", LABELS.read_bytes()),
        ("byte 0: the file is empty", b""),
        ("gzip stream is damaged", gzip.compress(IMAGES.read_bytes())[:-20]),
    ),
    (lambda: digits(image="nothing"), FileError, "nothing"),
    (lambda folder: digits(label=file(folder, FEW_LABELS)), ShapeError, "19 labels for 20 images"),
    # ImageRecordIter
    *[
        (partial(images, **given), ArgumentError, "ImageRecordIter: |interpolation method")
        for given in (
            {"path_imgrec": ""},
            {"data_shape": (2, 20, 20)},
            {"part_index": 1},
            {"inter_method": 7},
            {"random_resized_crop": True, "rand_crop": True},
            {"min_random_scale": 2.0},
            {"max_crop_size": 5},
            {"max_aspect_ratio": 1.5},
        )
    ],
    (lambda: images("images_l3").next(), ShapeError, r"l3\.rec: byte 0: image \d+ has 3 labels, but .* is 1"),
    (lambda: images(data_shape=(4, 20, 20)).next(), FileFormatError, "has 3 channels, expected 4"),
    *in_folder(
        lambda folder, content: [*images(path_imgrec=file(folder, content), prefetch_buffer=1)],
        FileFormatError,
        ("ImageRecordIter: .*a: the file is empty", ""),
        ("byte 1132: .*cut short", (FORMATS / "images_l1.rec").read_bytes()[:2000]),
    ),
    (lambda folder: images(path_imglist=file(folder, "0\t1\n"), label_width=2), FileFormatError, "number, 2"),
    # ImageDetRecordIter
    (lambda folder: csv(folder, batch_size="many"), ArgumentError, "batch_size is 'many', expected"),
    (
        lambda folder: objects(folder, [[2, 5, 0, 0, 0, 1, 1, 9]]).next(),
        FileFormatError,
        "objects of 5; expected",
    ),
    (lambda folder: objects(folder, label_pad_width=5), ArgumentError, "is 5, but an image has 12 labels"),
    (lambda folder: objects(folder, min_crop_scales=(0.1, 0.2, 0.3)), ArgumentError, "expected 1 or 1"),
    (lambda folder: objects(folder, min_crop_overlaps=0.9, max_crop_overlaps=0.5), ArgumentError, "is above"),
    (lambda folder: objects(folder, [[2, 5, 0]]).next(), FileFormatError, r"a\.rec: byte 0: "),
    (lambda folder: objects(folder, [1.0]).next(), FileFormatError, r"a\.rec: byte 0: "),
]
