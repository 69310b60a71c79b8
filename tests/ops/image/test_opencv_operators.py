import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import DTypeError, FileError, OpError, ShapeError
from helpers.op_case import shapes
from helpers.pictures import FOLDER, file_of

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
