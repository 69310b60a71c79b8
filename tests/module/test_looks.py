"""Looks at what must be finite: which tensor is named, and when others hear of it."""

import pytest
import torch

from dpmodule.devices.host_copy import HostCopy
from dpmodule.module.looks import Findings, LateFindings, Look

NAN, INF = float("nan"), float("inf")


def look(what, *numbers, dtype=torch.float32, **rest):
    return Look(what, torch.tensor(numbers, dtype=dtype), **rest)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_first_that_is_not_finite_is_named(dtype):
    fine, bad = look("fine", 1.0, -2.0, dtype=dtype), look("bad", 1.0, NAN, dtype=dtype)
    assert Findings([fine]).first() is None
    assert Findings([fine, bad, look("worse", -INF, dtype=dtype)]).first() == "bad"
    assert Findings([look("low", -INF, dtype=dtype)]).first() == "low"


def test_nan_beside_infinity_is_nan():
    assert Findings([look("cut", INF, may_be_infinite=True)]).first() is None
    assert Findings([look("cut", INF, NAN, may_be_infinite=True)]).first() == "cut"


def test_large_numbers_are_finite():
    assert Findings([look("large", 1e300, dtype=torch.float64), look("float32", 3e38, 3e38)]).first() is None


def test_whole_numbers_and_empty_tensors_are_finite():
    assert Findings([look("none"), look("whole", 1, dtype=torch.int64), look("bad", NAN)]).first() == "bad"
    assert Findings([]).first() is None


def test_findings_are_those_of_the_tensors_as_they_were():
    tensor = torch.ones(3)
    found = Findings([Look("later", tensor)])
    tensor.fill_(NAN)
    assert found.first() is None


def test_batches_are_told_in_their_order():
    late, heard = LateFindings(), []
    for what in ("one", "two", "three"):
        late.add([look(what, NAN if what != "two" else 0.0)], heard.append)
    assert heard == []
    late.hear()
    assert heard == ["one", "three"]
    late.hear(wait=True)
    assert heard == ["one", "three"]


def test_a_copy_of_what_is_on_the_host_is_there():
    copy = HostCopy(torch.tensor([1.0, 2.0]))
    assert copy.is_there()
    assert copy.numbers() == [1.0, 2.0]
