import numpy as np
import pytest

import dpmodule as mx
from helpers.pictures import FORMATS

EXPECTED = np.load(FORMATS / "files_expected.npz")
LIBSVM = FORMATS / "data.libsvm"


def batches(it):
    return [(b.data[0].asnumpy(), b.label[0].asnumpy(), b.pad) for b in it]


def rows(it):
    return [batch.index.tolist() for batch in it]


def csv(**options):
    given = {"label_csv": FORMATS / "label.csv", "data_shape": (2, 3), "batch_size": 3}
    return mx.io.CSVIter(**{"data_csv": FORMATS / "data.csv", **given, **options})


def libsvm(**options):
    return mx.io.LibSVMIter(**{"data_libsvm": LIBSVM, "data_shape": (8,), "batch_size": 3, **options})


@pytest.mark.parametrize(
    ("make", "name"),
    [(csv, "csv|{}_round1"), (lambda: csv(round_batch=False), "csv|{}_round0"), (libsvm, "libsvm|{}")],
)
def test_batches_are_mxnets(make, name):
    for found, part in zip(zip(*batches(make())), ("data", "label", "pad"), strict=True):
        np.testing.assert_allclose(np.stack(found), EXPECTED[name.format(part)], rtol=1e-6)


def test_the_next_epoch_goes_on_behind_the_rows_that_filled_up_as_in_mxnet():
    it = csv()
    epochs = [[[0, 1, 2], [3, 4, 5], [6, 0, 1]], [[2, 3, 4], [5, 6, 0]], [[1, 2, 3], [4, 5, 6]]]
    for epoch in epochs:
        assert rows(it) == epoch
        it.reset()
    it.next()
    it.reset()  # left early
    assert rows(it) == epochs[0]


def test_getters_return_arrays():
    it = csv()
    assert isinstance(it, mx.io.MXDataIter)
    assert it.provide_data + it.provide_label == [("data", (3, 2, 3)), ("softmax_label", (3,))]
    assert it.iter_next()
    assert it.getdata().shape == (3, 2, 3)
    assert it.getlabel().asnumpy().tolist() == [0, 1, 2]
    assert (it.getpad(), it.getindex().tolist()) == (0, [0, 1, 2])
    assert len(rows(it)) == 2
    assert not it.iter_next()
    it = csv()
    it.debug_skip_load()
    assert it.next() is it.next()


def test_options_may_be_text_and_unknown_ones_are_named():
    text = {"data_shape": "(6,)", "batch_size": "2", "round_batch": "False", "dtype": "float32"}
    it = csv(data_name="x", label_name="y", **text)
    assert it.provide_data[0] == ("x", (2, 6))
    assert it.provide_label[0] == ("y", (2,))
    with pytest.warns(UserWarning, match="no option 'data_shapes'.*did you mean data_shape"):
        csv(data_shapes=(2,))


def test_a_folder_is_read_as_one_and_types_are_kept(tmp_path):
    (tmp_path / "1.csv").write_text("1,2\n\n")
    (tmp_path / "2.csv").write_text("3,16777217\n")
    batch = mx.io.CSVIter(data_csv=tmp_path, data_shape=(2,), batch_size=2, dtype="int32").next()
    assert batch.data[0].dtype is np.int32
    assert batch.data[0].asnumpy().tolist() == [[1, 2], [3, 16777217]]
    assert batch.label[0].asnumpy().tolist() == [0, 0]


def test_sparse_rows_and_labels_come_from_several_files(tmp_path):
    (tmp_path / "a").write_text("1.0 qid:3 0:0.5 2:1.2\n-2.0\n-3.0 0:0.6 1:2.4 2:1.2 # note\n4 2:-1.2")
    (tmp_path / "b").write_text("1.0\n0:7 0:0.125\n-3.0 2:1.2\n4 1:1.0 2:-1.2\n")
    it = libsvm(data_libsvm=tmp_path / "a", label_libsvm=tmp_path / "b", data_shape=(3,), label_shape=(3,))
    batch = it.next()
    assert batch.data[0].stype == "csr"
    batch.data[0].check_format(True)
    wanted = [[[0.5, 0, 1.2], [0, 0, 0], [0.6, 2.4, 1.2]], [[0, 0, 0], [0.125, 0, 0], [0, 0, 1.2]]]
    for found, each in zip((batch.data[0], batch.label[0]), wanted):
        np.testing.assert_allclose(found.asnumpy(), each, rtol=1e-6)
    np.testing.assert_allclose(it.next().data[0].asnumpy()[0], [0, 0, -1.2], rtol=1e-6)
    assert it.provide_label[0] == ("softmax_label", (3, 3))
    it = libsvm(data_libsvm=tmp_path / "a", data_shape=(3,))
    assert it.next().label[0].asnumpy().tolist() == [1, -2, -3]


def test_libsvm_parts_cover_all_rows():
    parts = [libsvm(batch_size=1, num_parts=2, part_index=i) for i in range(2)]
    labels = [[label.item() for _, label, _ in batches(part)] for part in parts]
    assert labels == [[0, 1, 0, 1], [0, 1, 0]]
