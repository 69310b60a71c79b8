"""Nested structures: taking apart, putting together, and refusing with the place of the fault."""

import collections
import functools
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule.streams import StructureError, nested
from helpers.pipes import Pair, same, structures

STRUCTURES = structures(st.sampled_from([None, torch.ones(2), torch.zeros(()), torch.empty(0, 3)]), 8)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(STRUCTURES, STRUCTURES)
def test_a_structure_is_put_together_again(value, other):
    outline, leaves = nested.flatten(value)
    assert same(value, nested.unflatten(outline, leaves))
    assert pickle.loads(pickle.dumps(outline)) == outline
    assert nested.outline(nested.unflatten(outline, [torch.zeros(9) for _ in leaves])) == outline
    if nested.outline(value) == nested.outline(other):
        blank = [nested.unflatten(o, [None] * len(found)) for o, found in map(nested.flatten, (value, other))]
        assert same(*blank)
        assert len(leaves) == len(nested.flatten(other)[1])


def test_the_order_of_keys_counts_and_a_tensor_may_stand_in_several_places():
    assert nested.outline({"a": None, "b": None}) != nested.outline({"b": None, "a": None})
    x = torch.ones(1)
    shared = [x]
    assert len(nested.flatten([x, {"x": x}, shared, shared])[1]) == 4
    assert same((x, (None,)), nested.unflatten(*nested.flatten((x, (None,)))))
    found = torch.max(torch.tensor([[1.0, 5.0]]), dim=1)
    again = nested.unflatten(*nested.flatten(found))
    assert type(again) is type(found)
    assert again.indices.tolist() == [1]


UNREADABLE = type("Unreadable", (Pair,), {"left": property(lambda self: {}["not today"])})


def deep(levels):
    return functools.reduce(lambda value, _: [value], range(levels), None)


IN_DICT, IN_DATACLASS = {}, Pair(None, None)
IN_DICT["a"], IN_DATACLASS.left = [IN_DICT], (IN_DATACLASS,)


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_structure_is_refused_with_its_place():
    for make, text in (
        (lambda: [None, {"a": (torch.ones(1), "x")}], r"structure\[1\]\['a'\]\[1\] is str 'x'"),
        (lambda: Pair(None, Pair(1.5, None)), r"structure.right.left is float 1.5"),
        (lambda: {"a": {2.5: None}}, r"structure\['a'\] has the key float 2.5; expected str or int"),
        (lambda: {True: None}, "has the key bool True"),
        (lambda: collections.defaultdict(list), "structure is defaultdict"),
        (lambda: [type("NoRepr", (), {"__repr__": lambda self: 1 / 0})()], "its repr fails"),
        (lambda: Pair, "structure is type"),
        (
            lambda: [UNREADABLE.__new__(UNREADABLE)],
            r"structure\[0\].left cannot be read: KeyError: 'not today'",
        ),
        (lambda: [torch.ones(2).to_sparse()], r"structure\[0\] is a sparse_coo tensor.*to_dense"),
        (lambda: {"m": torch.ones(1, device="meta")}, r"structure\['m'\] is a tensor on meta"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantised"),
        (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "nested tensor"),
        (lambda: IN_DICT, "contains itself"),
        (lambda: IN_DATACLASS, "contains itself"),
        (lambda: deep(nested.MAX_DEPTH + 1), "deeper than"),
    ):
        with pytest.raises(StructureError, match=text) as caught:
            nested.flatten(make())
        assert isinstance(caught.value, TypeError)
        nested.flatten(deep(nested.MAX_DEPTH))
