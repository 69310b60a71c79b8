"""Iterators that go on where others stood: exactly the batches that were still to come."""

import logging

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule._devices import generators
from dpmodule.base import ArgumentError, StateError
from dpmodule.checkpoint import run_format
from helpers import datasets, iterators
from helpers.pictures import FOLDER, FORMATS, NAMES, file_of, write_records
from helpers.processes import resources

# Python 3.12 warns of what forked workers do on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def told(batch):
    """Return all that a batch says, as plain data."""
    return [plain(each) for each in batch.data + batch.label], batch.pad, batch.num_padding


def plain(array):
    if getattr(array, "stype", None) == "ragged":
        array = array.padded()
    return array.asnumpy().tolist() if hasattr(array, "asnumpy") else array


def rest(it, epochs=2):
    """Return what is still to come in this epoch and those after it."""
    found = []
    for _ in range(epochs):
        found.append([told(batch) for batch in it])
        it.reset()
    return found


def walk(it, takes):
    """Read some batches, then, in an epoch each, some more."""
    for number, count in enumerate(takes):
        if number:
            it.reset()
        for _ in range(count):
            next(it, None)


def through_a_file(tmp_path_factory, state):
    path = tmp_path_factory.getbasetemp() / "state.run"
    with path.open("wb") as file:
        run_format.write(file, state)
    return run_format.read(str(path))


def check_goes_on(make, takes, others, folder):
    """Check that an iterator that has read something else goes on where the first one stood."""
    mx.random.seed_all(5)
    it = make()
    walk(it, takes)
    state = {"iterator": it.state_dict(), "generators": generators.state_dict()}
    state = through_a_file(folder, state)
    wanted = rest(it)
    mx.random.seed_all(77)
    other = make()
    walk(other, others)
    other.load_state_dict(state["iterator"])
    generators.load_state_dict(state["generators"])
    assert rest(other) == wanted
    for each in (it, other):
        getattr(each, "close", lambda: None)()


TAKES = st.lists(st.integers(0, 9), min_size=1, max_size=4)
HANDLES = st.sampled_from(["pad", "discard", "roll_over"])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(1, 20),
    st.integers(1, 7),
    st.booleans(),
    HANDLES,
    st.sampled_from(["dense", "csr", "ragged", "TN"]),
    TAKES,
    TAKES,
)
def test_arrays(tmp_path_factory, count, batch_size, shuffle, handle, kind, takes, others):
    batch_size = min(batch_size, count)
    dense = np.arange(2.0 * count, dtype="f").reshape(count, 2)
    data = {
        "dense": dense,
        "csr": mx.nd.sparse.csr_matrix(dense),
        "ragged": {"data": [[float(i)] * (i % 3 + 1) for i in range(count)]},
        "TN": dense.T.copy(),
    }[kind]

    def make():
        return mx.io.NDArrayIter(
            data,
            None if kind == "TN" else np.arange(count),
            batch_size,
            shuffle,
            handle,
            layout="TN" if kind == "TN" else "NCHW",
        )

    check_goes_on(make, takes, others, tmp_path_factory)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "a"
    with mx.recordio.MXIndexedRecordIO(f"{path}.idx", f"{path}.rec", "w") as record:
        for i in range(11):
            record.write_idx(i, mx.recordio.pack((0, float(i), i, 0), file_of(NAMES[i % 3])))
    return path


RECORD_CASES = given(
    st.fixed_dictionaries(
        {
            "shuffle": st.booleans(),
            "round_batch": st.booleans(),
            "batch_size": st.integers(2, 5),
            "prefetch_buffer": st.integers(0, 4),
            "rand_mirror": st.booleans(),
            "seed_aug": st.sampled_from([None, 3]),
        }
    ),
    st.booleans(),
    TAKES,
    TAKES,
)
IMAGE_CASES = given(st.booleans(), HANDLES, st.sampled_from(["indexed", "in order", "list"]), TAKES, TAKES)
SOME = settings(max_examples=25, deadline=None, derandomize=True)
MANY = settings(SOME, max_examples=200)


@SOME
@RECORD_CASES
def test_records(records, tmp_path_factory, options, indexed, takes, others):
    check_records(records, tmp_path_factory, options, indexed, takes, others)


@pytest.mark.slow
@MANY
@RECORD_CASES
def test_records_many_times(records, tmp_path_factory, options, indexed, takes, others):
    check_records(records, tmp_path_factory, options, indexed, takes, others)


def check_records(records, folder, options, indexed, takes, others):
    def make():
        return mx.io.ImageRecordIter(
            path_imgrec=f"{records}.rec",
            path_imgidx=f"{records}.idx" if indexed else "",
            data_shape=(3, 2, 2),
            rand_crop=True,
            verbose=False,
            **options,
        )

    check_goes_on(make, takes, others, folder)


@SOME
@IMAGE_CASES
def test_images(records, tmp_path_factory, shuffle, handle, source, takes, others):
    check_images(records, tmp_path_factory, shuffle, handle, source, takes, others)


@pytest.mark.slow
@MANY
@IMAGE_CASES
def test_images_many_times(records, tmp_path_factory, shuffle, handle, source, takes, others):
    check_images(records, tmp_path_factory, shuffle, handle, source, takes, others)


def check_images(records, folder, shuffle, handle, source, takes, others):
    source_of = {
        "indexed": {"path_imgrec": f"{records}.rec", "path_imgidx": f"{records}.idx"},
        "in order": {"path_imgrec": f"{records}.rec"},
        "list": {"imglist": [[i, f"{NAMES[i % 3]}.png"] for i in range(11)], "path_root": FOLDER},
    }[source]

    def make():
        return mx.image.ImageIter(
            4,
            (3, 2, 2),
            shuffle=shuffle and source != "in order",
            last_batch_handle=handle,
            rand_crop=True,
            **source_of,
        )

    check_goes_on(make, takes, others, folder)


def objects():
    rows = [[2, 5, i, 0.1, 0.1, 0.5, 0.6, f"{NAMES[i % 3]}.png"] for i in range(5)]
    return mx.image.ImageDetIter(2, (3, 4, 4), imglist=rows, path_root=FOLDER, shuffle=True, rand_mirror=True)


def numbers():
    return mx.mod.ExampleIter(list(range(11)), list(range(11)), 3, shuffle=True)


def workers():
    return mx.io.ProcessPrefetchingIter(iterators.Drawing, 2, start_method="fork")


def rolling():
    def rows(part_index, num_parts):
        return iterators.rows(part_index, num_parts, 13, 2, shuffle=True, last_batch_handle="roll_over")

    return mx.io.ProcessPrefetchingIter(rows, 2, start_method="fork")


def loader(dataset, **options):
    return lambda: mx.io.DataLoaderIter(dataset, batch_size=3, start_method="fork", **options)


KINDS = {
    "objects": objects,
    "examples": numbers,
    "sentences": lambda: mx.rnn.BucketSentenceIter([[1, 2], [3], [4, 5], [6], [7]], 2, [1, 2]),
    "workers that draw": workers,
    "workers that roll over": rolling,
    "loader": loader(datasets.Drawn(11), shuffle=True),
    "loading workers": loader(datasets.Drawn(11), shuffle=True, num_workers=2),
    "iterable": loader(datasets.Numbers(11)),
    "iterable in workers": loader(datasets.Numbers(11), num_workers=2),
    "torch": lambda: mx.io.as_data_iter(torch.utils.data.DataLoader(datasets.Drawn(11), 3, shuffle=True)),
    "resized": lambda: mx.io.ResizeIter(numbers(), 2),
    "in a thread": lambda: mx.io.PrefetchingIter(numbers()),
}


OF_PROCESSES = ("workers that draw", "workers that roll over", "loading workers", "iterable in workers")
READ = [
    pytest.param(kind, takes, marks=pytest.mark.slow if kind in OF_PROCESSES and len(takes) == 1 else ())
    for kind in KINDS
    for takes in ([0], [3], [9, 9], [9, 2])
]


@pytest.mark.parametrize(("kind", "takes"), READ, ids=str)
def test_other_kinds(kind, takes, tmp_path_factory):
    before = resources()
    check_goes_on(KINDS[kind], takes, [2, 1], tmp_path_factory)
    assert resources() == before


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with rows, sparse rows, and pictures with their objects."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "rows.csv").write_text("".join(f"{i},{i * i}\n" for i in range(11)))
    (folder / "rows.libsvm").write_text("".join(f"{i} {i % 3}:1 3:{i}\n" for i in range(11)))
    pictures = [file_of(NAMES[i % 3]) for i in range(11)]
    objects = [[4, 5, 30, 40, i % 3, 0.1, 0.1, 0.5, 0.6] for i in range(11)]
    write_records(folder / "objects.rec", pictures, [np.array(each, "f4") for each in objects])
    return folder


DIGITS = str(FORMATS / "t20-{}-ubyte")
OBJECTS = {"data_shape": (3, 8, 8), "verbose": False, "rand_mirror_prob": 0.5, "rand_crop_prob": 0.5}
OF_FILES = {
    "csv": lambda at: mx.io.CSVIter(data_csv=f"{at}/rows.csv", data_shape=(2,), batch_size=3),
    "csv in part": lambda at: mx.io.CSVIter(
        data_csv=f"{at}/rows.csv", data_shape=(2,), batch_size=3, round_batch=False
    ),
    "libsvm": lambda at: mx.io.LibSVMIter(
        data_libsvm=f"{at}/rows.libsvm", data_shape=(4,), label_shape=(1,), batch_size=3
    ),
    "mnist": lambda at: mx.io.MNISTIter(
        image=DIGITS.format("images-idx3"),
        label=DIGITS.format("labels-idx1"),
        batch_size=2,
        shuffle=True,
        silent=True,
    ),
    "objects": lambda at: mx.io.ImageDetRecordIter(
        path_imgrec=f"{at}/objects.rec", batch_size=3, shuffle=True, **OBJECTS
    ),
    "bytes": lambda at: mx.io.ImageRecordUInt8Iter(
        path_imgrec=f"{at}/objects.rec", batch_size=3, label_width=9, data_shape=(3, 8, 8), verbose=False
    ),
    "several in a thread": lambda at: mx.io.PrefetchingIter(
        [mx.io.NDArrayIter(np.arange(11), batch_size=3, shuffle=True), OF_FILES["csv in part"](at)]
    ),
    "resized in a thread": lambda at: mx.io.PrefetchingIter(mx.io.ResizeIter(OF_FILES["csv"](at), 3)),
    "workers in a thread": lambda at: mx.io.PrefetchingIter(workers()),
}


@pytest.mark.parametrize("takes", [[1], [9, 2]], ids=str)
@pytest.mark.parametrize("kind", OF_FILES)
def test_files(kind, takes, files, tmp_path_factory):
    check_goes_on(lambda: OF_FILES[kind](files), takes, [2, 1], tmp_path_factory)


def test_every_iterator_says_where_it_stands():
    def kinds(kind):
        return {each for sub in kind.__subclasses__() for each in (sub, *kinds(sub))}

    for module in (mx.io, mx.image, mx.rnn, mx.mod):
        for name in dir(module):
            getattr(module, name)  # some come late
    ours = {each for each in kinds(mx.io.DataIter) if each.__module__.startswith("dpmodule.")}
    ours = {
        each for each in ours if each.__name__ in {*dir(mx.io), *dir(mx.image), *dir(mx.rnn), *dir(mx.mod)}
    }
    assert len(ours) >= 18
    for each in ours:
        assert each.state_dict is not mx.io.DataIter.state_dict, each
        assert each.load_state_dict is not mx.io.DataIter.load_state_dict, each


def test_counting_is_told_in_one_line(caplog):
    batches = [(np.full((2, 1), i), np.zeros(2)) for i in range(4)]
    it = mx.io.as_data_iter(torch.utils.data.DataLoader(batches, None))
    walk(it, [3])
    other = mx.io.as_data_iter(torch.utils.data.DataLoader(batches, None))
    with caplog.at_level(logging.INFO):
        other.load_state_dict(it.state_dict())
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["DataLoader: reading 3 batches again, to continue after them"]
    assert [batch.data[0].asnumpy()[0, 0] for batch in other] == [3]


def test_a_reader_that_gives_less_is_refused():
    it = mx.io.as_data_iter([np.ones((2, 1))] * 4)
    walk(it, [4])
    with pytest.raises(StateError, match="list yielded only 2 batches, but the state was saved after 4"):
        mx.io.as_data_iter([np.ones((2, 1))] * 2).load_state_dict(it.state_dict())

    def make(batches):
        def factory(part_index, num_parts):
            return iterators.Slow(part_index, num_parts, batches, 0.0)

        return mx.io.ProcessPrefetchingIter(factory, 2, start_method="fork")

    with make(3) as whole, make(1) as less:
        walk(whole, [5])
        with pytest.raises(StateError, match="yielded only 2 batches, but the state was saved after 5"):
            less.load_state_dict(whole.state_dict())


def test_states_of_others_are_refused(records):
    def images(path=f"{records}.rec", **options):
        return mx.io.ImageRecordIter(
            path_imgrec=path, data_shape=(3, 2, 2), batch_size=2, verbose=False, **options
        )

    with pytest.raises(ArgumentError, match="saved for other records: records is .*'shuffle': True"):
        images().load_state_dict(images(shuffle=True).state_dict())
    with pytest.raises(ArgumentError, match=r"wraps is True, here False"):
        images(round_batch=False).load_state_dict(images().state_dict())

    def listed(*labels):
        return mx.image.ImageIter(
            1, (3, 2, 2), imglist=[[i, f"{NAMES[0]}.png"] for i in labels], path_root=FOLDER
        )

    with pytest.raises(ArgumentError, match="examples is 3, here 2"):
        listed(1, 2).load_state_dict(listed(1, 2, 3).state_dict())
    state = listed(1, 2).state_dict()
    with pytest.raises(
        ArgumentError, match="ImageIter: the state was saved by an iterator over other images"
    ):
        listed(1, 2).load_state_dict({**state, "seq": ["1", "7"]})
    with pytest.raises(ArgumentError, match="kind is 'ExampleIter', here 'NDArrayIter'"):
        mx.io.NDArrayIter(np.ones(3)).load_state_dict(numbers().state_dict())
    with loader(datasets.Drawn(6), num_workers=1)() as one, loader(datasets.Drawn(6), num_workers=2)() as two:
        with pytest.raises(ArgumentError, match="saved with 1 workers, but here are 2; give num_workers=1"):
            two.load_state_dict(one.state_dict())
        with pytest.raises(ArgumentError, match="saved with 2 workers, but here are 0; give num_workers=2"):
            loader(datasets.Drawn(6))().load_state_dict(two.state_dict())
