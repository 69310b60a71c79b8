"""Files of parameters: DyNet's are read, ours are byte for byte what DyNet writes."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule.base import FileError, FileFormatError
from helpers.autobatch_programs import fill

DATA = Path(__file__).parents[1] / "data" / "autobatch"


def collection():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.arange(6.0).reshape(2, 3) / 7)
    e = m.lookup_parameters_from_numpy(np.arange(8.0).reshape(4, 2), name="emb")
    m.add_subcollection("inner").parameters_from_numpy(np.array([0.5]), name="a")
    lstm = dy.VanillaLSTMBuilder(1, 2, 2, m)
    fill(lstm.param_collection(), 5)
    both = dy.BiRNNBuilder(1, 2, 4, m, dy.GRUBuilder)
    fill(both.param_collection(), 6)
    return m, w, e, lstm, both


def alike(one, other):
    """Compare parameters, tables or networks."""
    pairs = [(one, other)]
    if hasattr(one, "param_collection"):
        pairs = zip(*[x.param_collection().parameters_list() for x in (one, other)], strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a.as_array(), b.as_array(), rtol=1e-6)


def test_a_collection_is_written_and_read_as_by_dynet(tmp_path):
    m = collection()[0]
    m.save(tmp_path / "ours")
    assert (tmp_path / "ours").read_bytes() == (DATA / "dynet.model").read_bytes()
    wanted = {name: tensor.clone() for name, tensor in m.tensors().items()}
    for tensor in m.tensors().values():
        tensor.zero_()
    m.populate(DATA / "dynet.model")
    for name, tensor in m.tensors().items():
        np.testing.assert_allclose(tensor, wanted[name], rtol=1e-6, err_msg=name)


def test_objects_are_written_and_read_as_by_dynet(tmp_path):
    _, w, e, lstm, both = collection()
    dy.save(str(tmp_path / "objects"), (x for x in [lstm, w, e, both]))
    assert (tmp_path / "objects.data").read_bytes() == (DATA / "objects.data").read_bytes()
    for source in (tmp_path / "objects", DATA / "objects"):
        for load in (dy.load, dy.load_generator):
            loaded = list(load(str(source), dy.ParameterCollection()))
            if source.parent == tmp_path:
                assert [type(x) for x in loaded] == [type(x) for x in (lstm, w, e, both)]
            for one, other in zip(loaded, (lstm, w, e, both), strict=True):
                alike(one, other)


def test_tables_with_gradients_are_written_as_by_dynet_and_no_part_of_them_is_read(tmp_path):
    numbers = "+1.00000000e+00 +2.00000000e+00 +3.00000000e+00 +4.50000000e+00 \n"
    gradients = "+0.00000000e+00 +0.00000000e+00 +1.00000000e+00 +1.00000000e+00 \n"
    text = f"#LookupParameter# /_0 {{2,2}} 130 FULL_GRAD\n{numbers}{gradients}"  # of DyNet 2.1
    m, file = dy.ParameterCollection(), tmp_path / "model"
    m.add_lookup_parameters((2, 2)), file.write_text(text)
    m.populate(file)
    m.save(tmp_path / "again")
    assert (tmp_path / "again").read_text() == text
    for size in range(text.index("\n") + 1, len(text)):
        file.write_text(text[:size])
        with pytest.raises(FileFormatError):
            m.populate(file)
    file.write_text(text.replace("130", "65"))  # as older versions wrote it
    m.populate(file)
    assert m.lookup_parameters_list()[0].as_array().tolist() == [[1, 2], [3, 4.5]]


@pytest.mark.parametrize("name", [" a", "a\t", "\u00e4\u2028", "a\r", "{2} 3 ZERO_GRAD", "#"])
def test_names_with_odd_characters_are_found_again(tmp_path, name):
    m = dy.ParameterCollection()
    p = m.add_subcollection(name).add_parameters((2, 2), name=name)
    m.save(tmp_path / "model", name)
    q = dy.ParameterCollection().add_parameters((2, 2))
    q.populate(tmp_path / "model", f"{name}/{name}/{name}")
    alike(q, p)


def test_names_and_single_parameters(tmp_path):
    m = dy.ParameterCollection()
    assert [m.add_parameters(3, name=n).name() for n in ("", "a", "a")] == ["/_0", "/a", "/a_1"]
    assert [m.add_subcollection(*n).name() for n in (["z"], ["z"], [])] == ["/z/", "/z_1/", "/_0/"]
    p, table = m.add_parameters((2, 2), init=2.0), m.add_lookup_parameters((3, 2, 2), init=1.5)
    name, other = str(tmp_path / "one"), dy.ParameterCollection()
    p.save(name)
    p.save(name, "/X", append=True)
    table.save(name, append=True)
    q = other.add_parameters((2, 2), init=0)
    q.populate(name, "/X")
    alike(q, p)
    alike(other.load_param(name, p.name()), p)
    alike(other.load_lookup_param(name, table.name()), table)
    m.save(name, "/pre")
    q.zero()
    q.populate(name, "/pre/_1")
    alike(q, p)


DAMAGES = [
    (b"#Parameter", b"#Par\xff\xfe"),
    *[(b"/emb {2,4}", b"/emb " + dim) for dim in (b"{}", b"{2,0}", b"{4294967296,4294967296}")],
    (b"+7.14285731e-01", b"+7.14285731e-O1"),
    (b"#LookupParameter# /emb", b"#LookupParameter# /" + b"e" * (1 << 21)),
    (b"#LookupParameter# /emb", b"?#LookupParameter# /emb"),
]


@pytest.mark.parametrize(("before", "after"), DAMAGES)
def test_a_damaged_file_changes_nothing(tmp_path, before, after):
    other, whole = collection()[0], (DATA / "dynet.model").read_bytes()
    (tmp_path / "model").write_bytes(whole.replace(before, after, 1))
    for tensor in other.tensors().values():
        tensor.zero_()
    where = f"byte {whole.index(before)}: expected the header" if after[:1] == b"?" else "model"
    with pytest.raises(FileFormatError, match=where):
        other.populate(tmp_path / "model")
    assert not any(each.any() for each in other.tensors().values())


class Network:
    """An object with a collection that cannot be written."""

    spec = (lambda: 3,)

    def param_collection(self):
        return dy.ParameterCollection()


def test_a_save_that_fails_leaves_the_files_of_before(tmp_path):
    class Inner(dy.GRUBuilder):
        """A class that nobody finds by its name."""

    m, w, e, _, _ = collection()
    name = str(tmp_path / "parts")
    dy.save(name, [w, e])
    before = (tmp_path / "parts.data").read_bytes()
    for bad in (Network(), Inner(1, 2, 2, m), 3):
        with pytest.raises(dy.ForeignValueError, match="save"):
            dy.save(name, [w, bad])
    with pytest.raises(dy.ArgumentError, match="one line"):
        w.save(f"{name}.data", "a\nb", append=True)
    assert (tmp_path / "parts.data").read_bytes() == before
    assert len(dy.load(name, dy.ParameterCollection())) == 2
    assert sorted(os.listdir(tmp_path)) == ["parts.data", "parts.meta"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("append", [False, True])
def test_a_full_disk_is_told(append):
    with pytest.raises(FileError, match="No space left"):
        collection()[0].save("/dev/full", append=append)


ENTRIES = [None, (), ("Parameters",), ("Parameters", 3), ("X", "/W"), ("X", (1,), "/W"), (int, 1, "/W")]


def test_lists_of_objects_that_are_damaged_or_cut_off(tmp_path):
    _, w, _, lstm, _ = collection()
    name, meta = str(tmp_path / "parts"), tmp_path / "parts.meta"
    dy.save(name, [w])
    for entry in ENTRIES:
        meta.write_bytes(pickle.dumps(entry, 2))
        with pytest.raises(FileFormatError, match="network"):
            dy.load(name, dy.ParameterCollection())
    dy.save(name, [lstm])
    whole = meta.read_bytes()
    for length in range(1, len(whole)):
        meta.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match="meta"):
            dy.load(name, dy.ParameterCollection())


def model():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), name="w")
    return m, w, m.lookup_parameters_from_numpy(np.arange(12.0).reshape(4, 3) / 8, name="e")


def test_files_hold_gradients(tmp_path, engine):
    (m, *saved), (other, *read), name = model(), model(), str(tmp_path / "model")
    dy.pick(saved[0] * saved[1][2], 1).backward()
    m.save(name)
    dy.renew_cg()
    dy.sum_elems(read[1][0]).backward()  # the file's gradients replace these
    other.populate(name)
    new = dy.ParameterCollection()
    dy.save(f"{name}s", saved)
    singles = [new.load_param(name, "/w"), new.load_lookup_param(name, "/e")]
    for found in (read, singles, dy.load(f"{name}s", new)):
        for one, two in zip(found, saved):
            np.testing.assert_allclose(one.grad_as_array(), two.grad_as_array(), rtol=1e-6)
    for each in (m, other):
        dy.SimpleSGDTrainer(each, 1.0).update()
    for one, two in zip(read, saved):
        alike(one, two)
    assert not read[1].grad_as_array().any()
