import io
import json

import numpy as np
import pytest
from PIL import Image

import dpmodule as mx
from dpmodule.base import (
    ArgumentError,
    DTypeError,
    FileError,
    FileFormatError,
    MXNetError,
    OpError,
    ShapeError,
)
from dpmodule.ops.image import codec, decode, encode
from helpers.op_case import shapes
from helpers.pictures import FOLDER, FORMATS, file_of

PICTURES = json.loads((FORMATS / "files_index.json").read_text())["pictures"]


@pytest.mark.parametrize("name", PICTURES)
def test_files_decode_as_in_mxnet(name):
    with np.load(FORMATS / "files_expected.npz") as expected:
        for flag, kind in ((1, "color"), (0, "grey")):
            found = decode((FORMATS / name).read_bytes(), flag).numpy().astype(int)
            want = expected[f"{name}|imdecode_{kind}"]
            assert found.shape == want.shape
            assert np.abs(found - want).max() <= (0 if name.endswith("png") else 4)


def test_blue_comes_first_without_to_rgb():
    data = file_of("noise")
    assert (decode(data, to_rgb=False).numpy() == decode(data).numpy()[:, :, ::-1]).all()


@pytest.mark.parametrize("kind", ["TIFF", "GIF", "BMP", "WEBP"])
def test_whatever_pillow_reads_is_read(kind):
    file = io.BytesIO()
    Image.new("RGB", (3, 2), (0, 0, 255)).save(file, kind)
    found = mx.nd.imdecode(file.getvalue()).asnumpy()
    assert found.shape == (3, 2, 3)
    assert found[2].min() > 250


def saved(pixels, kind="PNG", **how):
    target = io.BytesIO()
    Image.fromarray(pixels, **how).save(target, kind)
    return target.getvalue()


def test_transparency_is_dropped_or_kept():
    pixels = np.random.RandomState(0).randint(0, 256, (3, 4, 4), np.uint8)
    data = saved(pixels)
    np.testing.assert_array_equal(decode(data).numpy(), pixels[:, :, :3])
    np.testing.assert_array_equal(decode(data, -1).numpy(), pixels)
    assert decode(data, 0).shape == (3, 4, 1)


def test_sixteen_bits_keep_the_upper_byte():
    wide = (np.arange(12).reshape(3, 4) * 5000).astype(np.uint16)
    np.testing.assert_array_equal(decode(saved(wide), 0)[:, :, 0].numpy(), wide >> 8)


def test_encoding_png_loses_nothing():
    pixels = np.random.RandomState(0).randint(0, 256, (5, 4, 3), np.uint8)
    np.testing.assert_array_equal(decode(encode(pixels, ".png", 3), to_rgb=False).numpy(), pixels)
    np.testing.assert_array_equal(
        decode(encode(pixels[:, :, 0], ".PNG"), -1)[:, :, 0].numpy(), pixels[:, :, 0]
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"nonsense", "no known image format"),
        (file_of("wide")[:400], "of 400 bytes cannot be decoded"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "no known image format"),
    ],
)
def test_what_is_no_image_is_refused(data, text):
    with pytest.raises(FileFormatError, match=text):
        decode(data)


@pytest.mark.parametrize(
    ("pixels", "extension", "quality"),
    [
        (np.zeros((2, 2, 3)), ".png", 3),
        (np.zeros(4, np.uint8), ".png", 3),
        (np.zeros((2, 2, 2), np.uint8), ".png", 3),
        (np.zeros((2, 2), np.uint8), ".xyz", 3),
        (np.zeros((2, 2), np.uint8), ".jpg", 0),
    ],
)
def test_what_cannot_be_encoded_is_refused(pixels, extension, quality):
    with pytest.raises(ArgumentError, match="encode"):
        encode(pixels, extension, quality)


def test_without_pillow_the_message_names_the_extra(monkeypatch):
    def refuse(name):
        raise ImportError(name)

    monkeypatch.setattr(codec.importlib, "import_module", refuse)
    with pytest.raises(MXNetError, match=r"dpmodule\[image\]"):
        decode(file_of("noise"))


I = mx.nd._internal  # noqa: E741


def test_operators_are_what_mx_image_calls():
    image = mx.nd.array(np.frombuffer(file_of("noise"), np.uint8), dtype="uint8")
    decoded = I._cvimdecode(image)
    assert decoded.shape == (13, 17, 3)
    assert (I._cvimread(str(FOLDER / "noise.png")).asnumpy() == decoded.asnumpy()).all()
    assert I._cvimresize(decoded, w=5, h=4).shape == (4, 5, 3)
    bordered = I._cvcopyMakeBorder(decoded, 1, 1, 2, 2, value=9)
    assert bordered.shape == (15, 21, 3)
    assert bordered.asnumpy()[0, 0].tolist() == [9, 9, 9]


def test_shapes_are_inferred():
    assert shapes("_cvimresize", [(7, 8, 3)], w=4, h=5) == ([(7, 8, 3)], [(5, 4, 3)])
    assert shapes("_cvcopyMakeBorder", [(0, 8, 3)], top=1, bot=2, left=3, right=4)[1] == [(0, 15, 3)]
    assert shapes("_cvimdecode", [(70,)])[1] == [None]
    with pytest.raises(ShapeError, match="expected .height, width, channels."):
        shapes("_cvimresize", [(7, 8)], w=4, h=5)


def test_a_symbol_resizes():
    out = mx.sym._internal._cvimresize(mx.sym.Variable("x"), w=4, h=2)
    found = out.eval(x=mx.nd.array(np.arange(24).reshape(4, 2, 3)))[0]
    assert found.shape == (2, 4, 3)


def test_bad_inputs_are_refused():
    with pytest.raises(DTypeError, match="expected uint8"):
        I._cvimdecode(mx.nd.zeros(5))
    with pytest.raises(FileError, match="nothing.png"):
        I._cvimread("nothing.png")
    with pytest.raises(DTypeError, match="float16"):
        I._cvimresize(mx.nd.zeros((2, 2, 1), dtype="float16"), w=2, h=2)
    with pytest.raises(OpError, match="5 numbers"):
        I._cvcopyMakeBorder(mx.nd.zeros((2, 2, 1)), 1, 1, 1, 1, values=(1, 2, 3, 4, 5))
