import pickle

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, FileError, FileFormatError, MXNetError, ShapeError
from helpers.pictures import FORMATS

EXPECTED = np.load(FORMATS / "files_expected.npz")


def batches(it):
    return [(b.data[0].asnumpy(), b.label[0].asnumpy(), b.pad, b.index.tolist()) for b in it]


def csv(**options):
    given = {
        "data_csv": FORMATS / "data.csv",
        "label_csv": FORMATS / "label.csv",
        "data_shape": (2, 3),
        "batch_size": 3,
    }
    return mx.io.CSVIter(**{**given, **options})


@pytest.mark.parametrize("wrap", [True, False])
def test_csv_batches_are_mxnets(wrap):
    found = batches(csv(round_batch=wrap))
    for i, name in enumerate(("data", "label", "pad")):
        np.testing.assert_allclose(
            np.stack([b[i] for b in found]), EXPECTED[f"csv|{name}_round{wrap:d}"], rtol=1e-6
        )


def test_the_next_epoch_goes_on_behind_the_rows_that_filled_up():
    it = csv()
    order = []
    for _ in range(3):
        order.append([b[3] for b in batches(it)])
        it.reset()
    # as MXNet does
    assert order[0] == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    assert order[1] == [[2, 3, 4], [5, 6, 0]]
    assert order[2] == [[1, 2, 3], [4, 5, 6]]


def test_an_epoch_left_early_begins_anew():
    it = csv()
    it.next()
    it.reset()
    assert it.next().index.tolist() == [0, 1, 2]


def test_it_is_an_mxdataiter_whose_getters_return_arrays():
    it = csv()
    assert isinstance(it, mx.io.MXDataIter)
    assert isinstance(it, mx.io.DataIter)
    assert it.provide_data[0] == ("data", (3, 2, 3))
    assert it.provide_label[0] == ("softmax_label", (3,))
    assert it.batch_size == 3
    with pytest.raises(mx.MXNetError, match="no current batch"):
        it.getdata()
    assert it.iter_next()
    assert it.getdata().shape == (3, 2, 3)
    assert it.getlabel().asnumpy().tolist() == [0, 1, 2]
    assert (it.getpad(), it.getindex().tolist()) == (0, [0, 1, 2])
    assert [b.index.tolist()[0] for b in it] == [3, 6]
    assert not it.iter_next()


def test_options_may_be_text_and_names_given():
    it = csv(
        data_shape="(6,)", batch_size="2", round_batch="False", data_name="x", label_name="y", dtype="float32"
    )
    assert it.provide_data[0] == ("x", (2, 6))
    assert it.provide_label[0] == ("y", (2,))


def test_debug_skip_load_repeats_the_first_batch():
    it = csv()
    it.debug_skip_load()
    first = it.next()
    assert it.next() is first


def test_unknown_options_are_named():
    with pytest.warns(UserWarning, match="no option 'data_shapes'.*did you mean data_shape"):
        csv(data_shapes=(2,))


def test_labels_default_to_zero_and_types_are_kept(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n\n3,16777217\n")
    it = mx.io.CSVIter(data_csv=tmp_path / "a.csv", data_shape=(2,), batch_size=2, dtype="int32")
    batch = it.next()
    assert batch.data[0].dtype is np.int32
    assert batch.data[0].asnumpy().tolist() == [[1, 2], [3, 16777217]]
    assert batch.label[0].asnumpy().tolist() == [0, 0]


def test_a_folder_is_read_as_one(tmp_path):
    (tmp_path / "1.csv").write_text("1\n2\n")
    (tmp_path / "2.csv").write_text("3\n")
    it = mx.io.CSVIter(data_csv=tmp_path, data_shape=(1,), batch_size=3)
    assert it.next().data[0].asnumpy().ravel().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,x\n", r"a\.csv: line 2: 'x' is not a number of type float32"),
        ("1,2\n\n3\n", r"a\.csv: line 3: 1 numbers, expected 2"),
        ("a,b\n1,2\n", r"a\.csv: line 1: 'a' is no"),
        ("1,\n", r"a\.csv: line 1: '' is no"),
        ("<!DOCTYPE html>\n", "HTML page"),
        ("", r"CSVIter: .*a\.csv is empty"),
        ("\n \n", r"CSVIter: .*a\.csv is empty"),
    ],
)
def test_bad_csv_is_told_with_file_and_line(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(FileFormatError, match=message):
        mx.io.CSVIter(data_csv=tmp_path / "a.csv", data_shape=(2,), batch_size=1)


def test_integers_take_no_decimals(tmp_path):
    (tmp_path / "a.csv").write_text("1,2.5\n")
    with pytest.raises(FileFormatError, match=r"a\.csv: line 1: '2.5' is not a number of type int32"):
        mx.io.CSVIter(data_csv=tmp_path / "a.csv", data_shape=(2,), batch_size=1, dtype="int32")


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(FileError, match="missing"):
        csv(data_csv="missing.csv")
    with pytest.raises(ArgumentError, match="data_csv is required"):
        mx.io.CSVIter(data_shape=(2,), batch_size=1)
    with pytest.raises(ArgumentError, match="batch_size is 0"):
        csv(batch_size=0)
    (tmp_path / "one.csv").write_text("1\n")
    with pytest.raises(ShapeError, match="has 1 rows, but"):
        csv(label_csv=tmp_path / "one.csv")
    with pytest.raises(MXNetError, match="has 7 examples, too few to pad a batch of 20"):
        csv(batch_size=20).next()


def test_libsvm_batches_are_mxnets():
    it = mx.io.LibSVMIter(data_libsvm=FORMATS / "data.libsvm", data_shape=(8,), batch_size=3)
    found = []
    for batch in it:
        assert batch.data[0].stype == "csr"
        batch.data[0].check_format(True)
        found.append((batch.data[0].asnumpy(), batch.label[0].asnumpy(), batch.pad))
    for i, name in enumerate(("data", "label", "pad")):
        np.testing.assert_allclose(np.stack([b[i] for b in found]), EXPECTED[f"libsvm|{name}"], rtol=1e-6)


def test_libsvm_labels_come_from_a_file_of_their_own(tmp_path):
    (tmp_path / "a").write_text("1.0 0:0.5 2:1.2\n-2.0\n-3.0 0:0.6 1:2.4 2:1.2 # note\n4 2:-1.2")
    (tmp_path / "b").write_text("1.0\n0:7 0:0.125\n-3.0 2:1.2\n4 1:1.0 2:-1.2\n")
    it = mx.io.LibSVMIter(
        data_libsvm=tmp_path / "a",
        label_libsvm=tmp_path / "b",
        data_shape=(3,),
        label_shape=(3,),
        batch_size=3,
    )
    found = [(b.data[0].asnumpy(), b.label[0].asnumpy()) for b in it]
    np.testing.assert_allclose(found[0][0], [[0.5, 0, 1.2], [0, 0, 0], [0.6, 2.4, 1.2]], rtol=1e-6)
    np.testing.assert_allclose(found[1][0], [[0, 0, -1.2], [0.5, 0, 1.2], [0, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(found[0][1], [[0, 0, 0], [0.125, 0, 0], [0, 0, 1.2]], rtol=1e-6)
    assert it.provide_label[0] == ("softmax_label", (3, 3))


def test_libsvm_query_numbers_are_left_out(tmp_path):
    (tmp_path / "a").write_text("1 qid:3 0:1.5 3:2\n0 qid:4 1:4\n")
    batch = mx.io.LibSVMIter(data_libsvm=tmp_path / "a", data_shape=(5,), batch_size=2).next()
    assert batch.data[0].asnumpy().tolist() == [[1.5, 0, 0, 2, 0], [0, 4, 0, 0, 0]]  # as MXNet 1.9.1
    assert batch.label[0].asnumpy().tolist() == [1, 0]


def test_libsvm_parts_cover_all_rows():
    parts = [
        mx.io.LibSVMIter(
            data_libsvm=FORMATS / "data.libsvm", data_shape=(8,), batch_size=1, num_parts=2, part_index=i
        )
        for i in range(2)
    ]
    labels = [[b.label[0].asnumpy()[0] for b in part] for part in parts]
    assert labels == [[0, 1, 0, 1], [0, 1, 0]]
    with pytest.raises(ArgumentError, match="part_index is 2"):
        mx.io.LibSVMIter(data_libsvm="x", data_shape=(8,), batch_size=1, num_parts=2, part_index=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0:1\n2 8:1\n", r"line 2: '8:1': columns are whole numbers from 0 to 7"),
        ("1 0:1\n2 a:1\n", r"line 2: 'a:1'"),
        ("1 0:1 3\n", r"line 1: '3'"),
        ("1 0:1:2\n", r"line 1: '0:1:2'"),
        ("1 -1:2\n", r"line 1: '-1:2'"),
        ("1 1.5:2\n", r"line 1: '1.5:2'"),
        ("x\n", r"line 1: 'x'"),
        ("1 0:\n", r"line 1: '0:'"),
    ],
)
def test_bad_libsvm_is_told_with_file_and_line(tmp_path, text, message):
    (tmp_path / "a.svm").write_text(text)
    with pytest.raises(FileFormatError, match=rf"a\.svm: {message}"):
        mx.io.LibSVMIter(data_libsvm=tmp_path / "a.svm", data_shape=(8,), batch_size=1)
    (tmp_path / "a.svm").write_text("")
    with pytest.raises(FileFormatError, match=r"LibSVMIter: .*a\.svm is empty"):
        mx.io.LibSVMIter(data_libsvm=tmp_path / "a.svm", data_shape=(8,), batch_size=1)


@pytest.mark.parametrize(
    "options",
    [{"data_shape": (2, 4)}, {"round_batch": False}, {"label_shape": (3,)}, {"label_libsvm": "x"}],
)
def test_libsvm_options_that_do_not_fit_are_refused(options):
    given = {"data_libsvm": FORMATS / "data.libsvm", "data_shape": (8,), "batch_size": 1}
    with pytest.raises(ArgumentError, match="LibSVMIter: "):
        mx.io.LibSVMIter(**{**given, **options})


def test_iterators_are_pickled_where_they_stand(tmp_path):
    (tmp_path / "rows.csv").write_text("1,2\n3,4\n5,6\n7,8\n")
    (tmp_path / "rows.svm").write_text("1 0:1 1:3\n0 1:2\n" * 2)
    for batches in (
        mx.io.CSVIter(data_csv=str(tmp_path / "rows.csv"), data_shape=(2,), batch_size=2),
        mx.io.LibSVMIter(data_libsvm=str(tmp_path / "rows.svm"), data_shape=(2,), batch_size=2),
    ):
        batches.next()
        other = pickle.loads(pickle.dumps(batches))
        found = [batch.data[0].asnumpy().tolist() for batch in other]
        assert found == [batch.data[0].asnumpy().tolist() for batch in batches]
        assert len(found) == 1
