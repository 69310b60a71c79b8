import io
import json

import numpy as np
import pytest
from PIL import Image

import dpmodule as mx
from dpmodule.base import MXNetError
from dpmodule.ops.image import codec, decode, encode
from helpers.op_case import rules_test
from helpers.pictures import FORMATS, file_of

PICTURES = json.loads((FORMATS / "files_index.json").read_text())["pictures"]


@pytest.mark.parametrize("name", PICTURES)
def test_files_decode_as_in_mxnet(name):
    with np.load(FORMATS / "files_expected.npz") as expected:
        for flag, kind in ((1, "color"), (0, "grey")):
            found = decode((FORMATS / name).read_bytes(), flag).numpy().astype(int)
            want = expected[f"{name}|imdecode_{kind}"]
            assert found.shape == want.shape
            assert np.abs(found - want).max() <= (0 if name.endswith("png") else 4)


@pytest.mark.parametrize("kind", ["TIFF", "GIF", "BMP", "WEBP"])
def test_whatever_pillow_reads_is_read(kind):
    file = io.BytesIO()
    Image.new("RGB", (3, 2), (0, 0, 255)).save(file, kind)
    found = mx.nd.imdecode(file.getvalue()).asnumpy()
    assert found.shape == (3, 2, 3)
    assert found[2].min() > 250


def saved(pixels):
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "PNG")
    return target.getvalue()


def test_channels_of_files():
    noise, pixels = file_of("noise"), np.random.RandomState(0).randint(0, 256, (3, 4, 4), np.uint8)
    assert (decode(noise, to_rgb=False).numpy() == decode(noise).numpy()[:, :, ::-1]).all()
    np.testing.assert_array_equal(decode(saved(pixels)).numpy(), pixels[:, :, :3])
    np.testing.assert_array_equal(decode(saved(pixels), -1).numpy(), pixels)
    assert decode(saved(pixels), 0).shape == (3, 4, 1)
    wide = (np.arange(12).reshape(3, 4) * 5000).astype(np.uint16)  # sixteen bits keep the upper byte
    np.testing.assert_array_equal(decode(saved(wide), 0)[:, :, 0].numpy(), wide >> 8)


def test_encoding_png_loses_nothing():
    pixels = np.random.RandomState(0).randint(0, 256, (5, 4, 3), np.uint8)
    np.testing.assert_array_equal(decode(encode(pixels, ".png", 3), to_rgb=False).numpy(), pixels)
    grey = pixels[:, :, 0]
    np.testing.assert_array_equal(decode(encode(grey, ".PNG"), -1)[:, :, 0].numpy(), grey)


def test_without_pillow_the_message_names_the_extra(monkeypatch):
    def refuse(name):
        raise ImportError(name)

    monkeypatch.setattr(codec.importlib, "import_module", refuse)
    with pytest.raises(MXNetError, match=r"dpmodule\[image\]"):
        decode(file_of("noise"))


BORDER = {"top": 1, "bot": 2, "left": 3, "right": 4}
test_shapes = rules_test(
    ("_cvimresize", [(7, 8, 3)], {"w": 4, "h": 5}, [(7, 8, 3)], [(5, 4, 3)]),
    ("_cvcopyMakeBorder", [(0, 8, 3)], BORDER, None, [(0, 15, 3)]),
    ("_cvimdecode", [(70,)], {}, None, [None]),
)
