"""Files that are something else: every reader says what, with the file's name."""

import pytest

import dpmodule as mx
from dpmodule.base import FileFormatError
from dpmodule.files.file_kind import likely_kind

PAGE = b"<!DOCTYPE html><html><body>404 Not Found</body></html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n"


def read_records(path):
    record = mx.recordio.MXRecordIO(path, "r")
    try:
        record.read()
    finally:
        record.close()


def read_states(path):
    module = mx.mod.Module(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), label_names=None)
    module.bind([("data", (1, 2))])
    module.init_params()
    module.init_optimizer()
    module.load_optimizer_states(path)


READERS = {
    "net-symbol.json": mx.sym.load,
    "net.params": mx.nd.load,
    "net.states": read_states,
    "data.rec": read_records,
    "data.csv": lambda path: mx.io.CSVIter(data_csv=path, data_shape=(2,), batch_size=1),
    "data.libsvm": lambda path: mx.io.LibSVMIter(data_libsvm=path, data_shape=(2,), batch_size=1),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(("content", "said"), [(PAGE, "an HTML page"), (POINTER, "a Git LFS pointer")])
def test_readers_say_what_a_file_is(name, content, said, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=said) as caught:
        READERS[name](str(path))
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["net-symbol.json", "net.params"])
def test_a_file_cut_short(name, tmp_path):
    path = tmp_path / name
    if name.endswith("json"):
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2).save(str(path))
    else:
        mx.nd.save(str(path), {"a": mx.nd.ones((3, 4))})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FileFormatError, match="cut short|truncated") as caught:
        READERS[name](str(path))
    assert name in str(caught.value)


def test_kinds():
    assert likely_kind(b"") == "the file is empty"
    assert "NumPy" in likely_kind(b"\x93NUMPY\x01\x00")
    assert "gzip" in likely_kind(b"\x1f\x8b\x08")
    assert likely_kind(b"\x12\x01\0\0\0\0\0\0") == ""
    assert likely_kind(b"v") == ""
