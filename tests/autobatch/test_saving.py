"""Files of parameters: DyNet's are read, ours are byte for byte what DyNet writes."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule.base import FileError, FileFormatError
from helpers.autobatch_programs import fill

DATA = os.path.join(os.path.dirname(__file__), "..", "data", "autobatch")


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


def text(name):
    with open(name, encoding="utf-8") as source:
        return source.read()


def test_collection_is_written_as_dynet_writes_it(tmp_path):
    m = collection()[0]
    name = str(tmp_path / "ours.model")
    m.save(name)
    assert text(name) == text(os.path.join(DATA, "dynet.model"))


def test_collection_of_dynet_is_read():
    m = collection()[0]
    wanted = {name: tensor.clone() for name, tensor in m.tensors().items()}
    for tensor in m.tensors().values():
        tensor.zero_()
    m.populate(os.path.join(DATA, "dynet.model"))
    for name, tensor in m.tensors().items():
        np.testing.assert_allclose(tensor.numpy(), wanted[name].numpy(), rtol=1e-6, err_msg=name)


def test_objects_of_dynet_are_loaded():
    m = dy.ParameterCollection()
    lstm, w, e, both = dy.load(os.path.join(DATA, "objects"), m)
    assert isinstance(lstm, dy.VanillaLSTMBuilder)
    assert isinstance(both, dy.BiRNNBuilder)
    _, w2, e2, lstm2, both2 = collection()
    np.testing.assert_allclose(w.as_array(), w2.as_array(), rtol=1e-6)
    np.testing.assert_allclose(e.as_array(), e2.as_array(), rtol=1e-6)
    for one, other in ((lstm, lstm2), (both, both2)):
        left, right = (x.param_collection().parameters_list() for x in (one, other))
        for a, b in zip(left, right, strict=True):
            np.testing.assert_allclose(a.as_array(), b.as_array(), rtol=1e-6)


def test_objects_there_and_back(tmp_path):
    _, w, e, lstm, both = collection()
    name = str(tmp_path / "objects")
    dy.save(name, (x for x in [lstm, w, e, both]))
    assert text(name + ".data") == text(os.path.join(DATA, "objects.data"))
    loaded = list(dy.load_generator(name, dy.ParameterCollection()))
    assert [type(x) for x in loaded] == [
        dy.VanillaLSTMBuilder,
        dy.Parameters,
        dy.LookupParameters,
        dy.BiRNNBuilder,
    ]
    left, right = (x.param_collection().parameters_list() for x in (both, loaded[3]))
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a.as_array(), b.as_array(), rtol=1e-6)


def test_names_and_single_parameters(tmp_path):
    m = dy.ParameterCollection()
    names = [
        m.add_parameters(3).name(),
        m.add_parameters(3, name="a").name(),
        m.add_parameters(3, name="a").name(),
    ]
    assert names == ["/_0", "/a", "/a_1"]
    assert [
        m.add_subcollection("z").name(),
        m.add_subcollection("z").name(),
        m.add_subcollection().name(),
    ] == [
        "/z/",
        "/z_1/",
        "/_0/",
    ]
    p = m.add_parameters((2, 2), init=2.0)
    table = m.add_lookup_parameters((3, 2, 2), init=1.5)
    name = str(tmp_path / "one.model")
    p.save(name)
    p.save(name, "/X", append=True)
    table.save(name, append=True)
    other = dy.ParameterCollection()
    q = other.add_parameters((2, 2), init=0)
    q.populate(name, "/X")
    np.testing.assert_array_equal(q.as_array(), p.as_array())
    np.testing.assert_array_equal(other.load_param(name, p.name()).as_array(), p.as_array())
    np.testing.assert_array_equal(other.load_lookup_param(name, table.name()).as_array(), table.as_array())
    m.save(name, "/pre")
    q.populate(name, "/pre/_1")


def test_damage_is_told(tmp_path):
    m = dy.ParameterCollection()
    p = m.add_parameters((2, 2))
    name = str(tmp_path / "bad.model")
    with pytest.raises(FileError, match="Could not read"):
        p.populate(name, "/X")
    p.save(name)
    with pytest.raises(FileFormatError, match="Could not find key /nope"):
        p.populate(name, "/nope")
    small = dy.ParameterCollection()
    small.add_parameters(3)
    with pytest.raises(FileFormatError, match="do not match"):
        small.populate(name)
    with pytest.raises(FileFormatError, match="Too many parameters"):
        dy.ParameterCollection().populate(name)
    m.add_parameters(2)
    with pytest.raises(FileFormatError, match="no values for /_1"):
        m.populate(name)
    with open(name, "w", encoding="utf-8") as target:
        target.write("#Parameter# /_0 {2,2} 20 ZERO_GRAD\n+1.0 +2.0\n")
    with pytest.raises(FileFormatError, match="2 values, expected 4"):
        p.populate(name, "/_0")
    with open(name, "w", encoding="utf-8") as target:
        target.write("something else\n")
    with pytest.raises(FileFormatError, match="expected the header of a parameter"):
        p.populate(name, "/_0")
    with pytest.raises(TypeError):
        dy.save(name, [3])


DAMAGES = {
    "bytes that are no text": (b"#Parameter", b"#Par\xff\xfe"),
    "no dimensions": (b"#LookupParameter# /emb {2,4}", b"#LookupParameter# /emb {}"),
    "no rows": (b"#LookupParameter# /emb {2,4}", b"#LookupParameter# /emb {2,0}"),
    "too many rows": (b"#LookupParameter# /emb {2,4}", b"#LookupParameter# /emb {4294967296,4294967296}"),
    "a letter": (b"+7.14285731e-01", b"+7.14285731e-O1"),
    "a line too long": (b"#LookupParameter# /emb", b"#LookupParameter# /" + b"e" * (1 << 21)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_changes_nothing(tmp_path, damage):
    saved, other = collection()[0], collection()[0]
    name = tmp_path / "model"
    saved.save(name)
    before, after = DAMAGES[damage]
    whole = name.read_bytes()
    assert before in whole
    name.write_bytes(whole.replace(before, after, 1))
    for each in (*other.parameters_list(), *other.lookup_parameters_list()):
        each.zero()
    with pytest.raises(FileFormatError, match="model"):
        other.populate(name)
    assert not any(each.any() for each in other.tensors().values())


def test_damage_is_told_with_its_byte(tmp_path):
    m = dy.ParameterCollection()
    m.add_parameters(2), m.add_parameters(2, name="W")
    name = tmp_path / "model"
    m.save(name)
    whole = name.read_bytes()
    at = whole.index(b"#Parameter# /W")
    name.write_bytes(whole[:at] + b"?" + whole[at:])
    with pytest.raises(FileFormatError, match=f"byte {at}: expected the header of a parameter"):
        m.populate(name)


@pytest.mark.parametrize(
    "name", ["a b", " a", "a\t", "\u00e4\u2028", "a\r", "{2} 3 ZERO_GRAD", "#", "\U0001f600"]
)
def test_names_with_odd_characters_are_found_again(tmp_path, name):
    file = tmp_path / "model"
    m = dy.ParameterCollection()
    p, table = (
        m.add_parameters((2, 2), name=name),
        m.add_subcollection(name).add_lookup_parameters((3, 2), name=name),
    )
    dy.save(file, [p, table])
    for found, wanted in zip(dy.load(file, dy.ParameterCollection()), [p, table]):
        np.testing.assert_allclose(found.as_array(), wanted.as_array(), rtol=1e-6)
    q = dy.ParameterCollection().add_parameters((2, 2))
    m.save(file, name)
    q.populate(file, f"{name}/{name}")
    np.testing.assert_allclose(q.as_array(), p.as_array(), rtol=1e-6)


@pytest.mark.parametrize("name", ["a\nb", "\ud800"])
def test_names_that_no_line_can_hold_are_refused(tmp_path, name):
    m = dy.ParameterCollection()
    p = m.add_parameters(2)
    file = tmp_path / "model"
    m.save(file)
    before = file.read_bytes()
    for call in (m.add_subcollection, lambda n: m.add_parameters(2, name=n), lambda n: m.save(file, n)):
        with pytest.raises(dy.ArgumentError, match="one line"):
            call(name)
    with pytest.raises(dy.ArgumentError, match="one line"):
        p.save(file, name, append=True)
    assert file.read_bytes() == before
    for call in (m.save, m.populate, p.save, p.populate):
        with pytest.raises(dy.ArgumentError, match="is not a possible file name"):
            call("a\0b")


class Network:
    """What `save` takes, with a collection that cannot be written."""

    spec = (lambda: 3,)

    def param_collection(self):
        return dy.ParameterCollection()


def test_a_save_that_fails_leaves_the_files_of_before(tmp_path):
    m, w, e, lstm, _ = collection()
    name = str(tmp_path / "parts")
    dy.save(name, [w, e])
    before = text(f"{name}.data")

    class Inner(dy.GRUBuilder):
        """A class that nobody finds by its name."""

    for bad in (Network(), Inner(1, 2, 2, m), 3):
        with pytest.raises(dy.ForeignValueError, match="save"):
            dy.save(name, [w, bad])
    assert text(f"{name}.data") == before
    assert len(dy.load(name, dy.ParameterCollection())) == 2
    with pytest.raises(FileError, match="cannot save"):
        m.save(tmp_path)
    with pytest.raises(FileError, match="cannot save"):
        m.save(tmp_path / "none" / "model")
    assert sorted(os.listdir(tmp_path)) == ["parts.data", "parts.meta"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("append", [False, True])
def test_a_full_disk_is_told(append):
    with pytest.raises(FileError, match="No space left"):
        collection()[0].save("/dev/full", append=append)


ENTRIES = [
    None,
    3,
    (),
    ("Parameters",),
    ("Parameters", 3),
    ("Other", "/W"),
    ("Other", (1,), "/W"),
    {},
    (int, 1, "/W"),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_entries_that_name_nothing(tmp_path, entry):
    name = str(tmp_path / "parts")
    dy.save(name, [collection()[1]])
    with open(f"{name}.meta", "wb") as target:
        pickle.dump(entry, target, 2)
    with pytest.raises(FileFormatError, match="network"):
        dy.load(name, dy.ParameterCollection())


def test_lists_of_objects_that_are_cut_off(tmp_path):
    m, w, e, lstm, both = collection()
    name = str(tmp_path / "parts")
    dy.save(name, [lstm])
    with open(f"{name}.meta", "rb") as source:
        whole = source.read()
    for length in range(1, len(whole)):
        with open(f"{name}.meta", "wb") as target:
            target.write(whole[:length])
        with pytest.raises(FileFormatError, match="meta"):
            dy.load(name, dy.ParameterCollection())


def test_memory_is_shared_with_arrays_of_the_rest():
    import torch

    memory = torch.ones(2, 2)
    m = dy.ParameterCollection()
    p = m.parameter_from_tensor(memory, name="w")
    memory.mul_(3)
    dy.renew_cg()
    assert dy.sum_elems(p).scalar_value() == 12.0
    loss = dy.squared_norm(p)
    loss.backward()
    trainer = dy.SimpleSGDTrainer(m, 0.1)
    trainer.set_clip_threshold(0)
    trainer.update()
    np.testing.assert_allclose(memory.numpy(), np.full((2, 2), 2.4), rtol=1e-6)
    assert m.tensors()["/w"].data_ptr() == memory.data_ptr()
