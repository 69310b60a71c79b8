import pytest

from dpmodule.base import DTypeError
from dpmodule.ops.numpy.rules import common
from helpers.op_case import types


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("float16", "int64"), "float16"),
        (("float32", "float64"), "float64"),
        (("bool", "uint8"), "uint8"),
        (("int8", "int32"), "int32"),
        (("int32", "int64", "bool"), "int64"),
    ],
)
def test_common_types(given, found):
    assert common(*given) == found


def test_no_common_type():
    with pytest.raises(
        DTypeError, match="uint32 and int8 have no common type; convert one of them with Cast"
    ):
        common("uint32", "int8")


def test_types_of_operators():
    assert types("_npi_add", ["float32", None]) == (["float32", "float32"], ["float32"])
    assert types("_npi_true_divide", ["int32", "int64"])[1] == ["float32"]
    assert types("_npi_less", ["float32", "float32"])[1] == ["bool"]
    assert types("_npi_mean", ["int32"])[1] == ["float32"]
    assert types("_np_sum", ["bool"])[1] == ["int64"]
    assert types("_np_sum", ["float32"], dtype="float64")[1] == ["float64"]
    assert types("_npi_argmax", ["float16"])[1] == ["int64"]
    assert types("_npi_where", [None, "int32", None]) == ([None, "int32", "int32"], ["int32"])
    assert types("_npi_add", [None, None]) == ([None, None], [None])
