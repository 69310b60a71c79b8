"""The operators about storage on dense values, as graphs run them."""

import numpy as np
import pytest

from dpmodule.base import OpError
from helpers.op_case import OpCase, check_gradient, check_value, run, shapes

RNG = np.random.RandomState(3)
TABLE = RNG.uniform(-1, 1, (5, 2, 3)).astype("f4")


@pytest.mark.parametrize("stype", ["default", "row_sparse", "csr"])
def test_casting_storage_changes_nothing(stype):
    case = OpCase("cast_storage", (TABLE,), {"stype": stype}, lambda x: x)
    check_value(case)
    check_gradient(OpCase("cast_storage", (TABLE.astype("f8"),), {"stype": stype}))


@pytest.mark.parametrize("rows", [[0], [4, 1, 4], [], [[0, 1], [2, 3]]])
@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_retaining_rows(rows, dtype):
    rows = np.array(rows, dtype)
    mask = np.isin(np.arange(5), rows.astype(int)).reshape(5, 1, 1)
    case = OpCase("_sparse_retain", (TABLE, rows), {}, lambda x, i: (x * mask).astype("f4"))
    check_value(case)
    check_gradient(OpCase("_sparse_retain", (TABLE.astype("f8"), rows)), inputs=(0,))


def test_rules_and_refusals():
    assert shapes("_sparse_retain", [None, (3,)], [(5, 2)]) == ([(5, 2), (3,)], [(5, 2)])
    with pytest.raises(OpError, match="stype"):
        run("cast_storage", TABLE, stype="coo")
