"""Archives of models: what is inside is tried, what is dangerous or damaged is refused, and nothing stays behind."""

import io
import os
import signal
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.cli import archives

NAMES = ("net-symbol.json", "net-0003.params")


@pytest.fixture
def check(run, tmp_path, monkeypatch):
    """Return a function that checks a path, next to the files of a network, and that looks for leftovers."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    mx.model.save_checkpoint("net", 3, net, {"fc_weight": mx.nd.ones((2, 4)), "fc_bias": mx.nd.zeros(2)}, {})

    def files():
        own = [path for path in tmp_path.rglob("*") if "torchinductor" not in str(path)]  # torch's own cache
        return sorted(own), sorted(os.listdir(tmp_path.parent))

    def call(path, code):
        before = files()
        done = run("check", path)
        assert files() == before
        assert done.code == code, done
        return done.out

    return call


def pack_tar(path, mode="w:gz", more=(), names=NAMES):
    with tarfile.open(path, mode) as archive:
        for name in names:
            archive.add(name)
        for member, content in more:
            archive.addfile(member, io.BytesIO(content))


def member(name, content=b"x", **more):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in more.items():
        setattr(info, key, value)
    return info, content


def pack_zip(path, more=(), names=NAMES):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.write(name)
        for name, content in more:
            archive.writestr(name, content)


KINDS = {
    "model.tar.gz": pack_tar,
    "model.tgz": pack_tar,
    "model.tar": lambda path: pack_tar(path, "w"),
    "model.tar.bz2": lambda path: pack_tar(path, "w:bz2"),
    "model.tar.xz": lambda path: pack_tar(path, "w:xz"),
    "model.zip": pack_zip,
    "model.mar": lambda path: pack_zip(path, [("MAR-INF/MANIFEST.json", "{}"), ("service.py", "1 / 0")]),
    "model_algo-1": pack_zip,
}


@pytest.mark.parametrize("name", KINDS)
def test_models_of_archives(name, check):
    KINDS[name](name)
    out = check(name, 0)
    assert out.startswith(f"ok    {name}/net-symbol.json: mxnet epoch 3, 4 nodes, 10 parameters; data (1, 4)")
    assert "converts to ONNX and torch" in out
    assert ("in an archive of mxnet-model-server" in out) == (name == "model.mar")
    for each in NAMES:
        os.unlink(each)
    assert f"\n{out}" in f"\n{check('.', 0)}".replace("./", "")


def test_archives_in_archives_and_folders_in_them(check):
    os.makedirs("deep/er")
    for each in NAMES:
        os.rename(each, f"deep/er/{each}")
    pack_zip("model_algo-1", names=[f"deep/er/{each}" for each in NAMES])
    pack_tar("outer.tar.gz", names=["model_algo-1"])
    assert "ok    outer.tar.gz/model_algo-1/deep/er/net-symbol.json: " in check("outer.tar.gz", 0)
    for i in range(3):
        pack_tar(f"more{i}.tar", "w", names=[f"more{i - 1}.tar" if i else "outer.tar.gz"])
    assert "an archive in 3 archives, which is not unpacked" in check("more2.tar", 1)


def patched_zip(path, old, new):
    """Change the bytes of a zip file."""
    data = Path(path).read_bytes()
    assert old in data
    Path(path).write_bytes(data.replace(old, new))


def encrypted_zip(path):
    pack_zip(path, names=NAMES[:1])
    data = bytearray(Path(path).read_bytes())
    data[data.index(b"PK\1\2") + 8] |= 1
    Path(path).write_bytes(data)


def link_in_zip(path):
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    pack_zip(path, [(info, "/etc/passwd")])


def truncated(path, size):
    KINDS[path](path)
    with open(path, "r+b") as file:
        file.truncate(size if size > 0 else os.path.getsize(path) + size)


def twice_in_zip(path):
    pack_zip(path, [("aet-symbol.json", "{}")])
    patched_zip(path, b"aet-symbol.json", b"net-symbol.json")


def header_bomb(path):
    pack_tar(path, "w:gz", [member("a", pax_headers={"comment": "x" * 2_000_000})])


LINK, HARD, FIFO, DEVICE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE
REFUSED = {
    "path above": ("a.tar", lambda p: pack_tar(p, "w", [member("../a")]), r"the path '../a' leaves"),
    "path inside, then above": ("a.tar", lambda p: pack_tar(p, "w", [member("b/../../a")]), "leaves the folder"),
    "absolute path": ("a.tar.gz", lambda p: pack_tar(p, "w:gz", [member("/tmp/a")]), "'/tmp/a' leaves"),
    "path of Windows": ("a.zip", lambda p: pack_zip(p, [("C:\\a", "x")]), "leaves the folder"),
    "path above in a zip file": ("a.zip", lambda p: pack_zip(p, [("../../a", "x")]), "leaves the folder"),
    "no name": ("a.tar", lambda p: pack_tar(p, "w", [member("./.")]), "an entry has the name"),
    "symbolic link": ("a.tar", lambda p: pack_tar(p, "w", [member("a", b"", type=LINK, linkname="/etc")]), "a link"),
    "hard link": ("a.tar", lambda p: pack_tar(p, "w", [member("a", b"", type=HARD, linkname="b")]), "'a' is a link"),
    "pipe": ("a.tar", lambda p: pack_tar(p, "w", [member("a", b"", type=FIFO)]), "'a' is a link, a device"),
    "device": ("a.tar", lambda p: pack_tar(p, "w", [member("a", b"", type=DEVICE)]), "'a' is a link, a device"),
    "link in a zip file": ("a.zip", link_in_zip, "'link' is a link or a device"),
    "encrypted": ("a.zip", encrypted_zip, "'net-symbol.json' is encrypted"),
    "same name twice": ("a.zip", twice_in_zip, "two entries 'net-symbol.json'"),
    "truncated tar.gz": ("model.tar.gz", lambda p: truncated(p, 300), "damaged or truncated archive"),
    "truncated tar.xz": ("model.tar.xz", lambda p: truncated(p, 300), "damaged or truncated archive"),
    "truncated tar": ("model.tar", lambda p: truncated(p, 700), "damaged or truncated archive"),
    "truncated tar between two files": ("model.tar", lambda p: truncated(p, 2048), "truncated"),
    "truncated zip": ("model.zip", lambda p: truncated(p, -30), "damaged or truncated archive"),
    "damaged zip": ("a.zip", lambda p: (pack_zip(p), patched_zip(p, b"PK\3\4", b"PK\3\5")), "damaged or truncated"),
    "no archive": ("a.zip", lambda p: Path(p).write_bytes(b"PK" + b"\0" * 50), "damaged or truncated archive"),
    "nothing": ("a.zip", lambda p: pack_zip(p, names=()), "an empty archive"),
    "no model": ("a.zip", lambda p: pack_zip(p, [("xgb", "x")], ()), "no model of MXNet in this archive of xgb"),
    "too large": ("a.tar.gz", lambda p: pack_tar(p, "w:gz", [member("a", b"\0" * 2_000_000)]), "50 times its size"),
    "too large zip": ("a.zip", lambda p: pack_zip(p, [("a", b"\0" * 2_000_000)]), "50 times its size"),
    "large header": ("a.tar.gz", header_bomb, "it unpacks to more than 50 times"),
    "too many": ("a.zip", lambda p: pack_zip(p, [(f"f{i}", "") for i in range(120)]), "more than 100 entries"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why, check, monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 100_000)
    monkeypatch.setattr(archives, "MAX_ENTRIES", 100)
    path, make, said = REFUSED[why]
    make(path)
    assert said in check(path, 1)


def test_full_disk_and_interruption(check, run, monkeypatch, tmp_path):
    pack_tar("model.tar.gz")

    def fail(error):
        def copy(*_):
            raise error

        monkeypatch.setattr(archives, "_copy", copy)

    fail(OSError(28, "No space left on device"))
    assert "cannot unpack it: No space left on device" in check("model.tar.gz", 1)
    fail(KeyboardInterrupt())
    assert run("check", "model.tar.gz").code == 130
    monkeypatch.setattr(archives, "_copy", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit, match="143"):
        run("check", "model.tar.gz")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert [name for name in os.listdir(tmp_path / "temporary") if "torch" not in name] == []


def test_files_of_numpy_and_torch_are_not_archives(check):
    np.savez("arrays.npz", a=np.ones(2))
    os.rename("arrays.npz", "a.zip")
    assert "1 of 1 models can be used" in check(".", 0)


def test_programs_of_torch_in_archives_are_not_read(check, run):
    assert run("convert", "net", "a.pt2").code == 0
    pack_zip("a.zip", names=["a.pt2"])
    assert "a .pt2 file in an archive is not read, since torch turns it into code" in check("a.zip", 1)
