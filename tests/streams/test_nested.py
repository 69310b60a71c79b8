"""Nested structures: taking apart, putting together, and refusing with the place of the fault."""

import collections
import dataclasses
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.streams import StructureError, nested
from helpers.pipes import Frozen, Named, Pair, same

LEAVES = st.sampled_from([None, torch.ones(2), torch.zeros(()), torch.empty(0, 3)])


def deeper(children):
    keys = st.one_of(st.text(max_size=3), st.integers(-3, 3))
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.dictionaries(keys, children, max_size=3),
        st.dictionaries(keys, children, max_size=3).map(collections.OrderedDict),
        st.builds(Pair, children, children),
        st.builds(Frozen, children),
        st.builds(Named, children, children),
    )


STRUCTURES = st.recursive(LEAVES, deeper, max_leaves=8)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(STRUCTURES)
def test_a_structure_is_put_together_again(value):
    outline, leaves = nested.flatten(value)
    assert same(value, nested.unflatten(outline, leaves))
    assert pickle.loads(pickle.dumps(outline)) == outline
    assert nested.same_outline(value, nested.unflatten(outline, [torch.zeros(9) for _ in leaves]))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(STRUCTURES, STRUCTURES)
def test_outlines_are_equal_exactly_if_everything_but_the_tensors_is(a, b):
    blank = [
        nested.unflatten(outline, [None] * len(leaves)) for outline, leaves in map(nested.flatten, (a, b))
    ]
    if nested.same_outline(a, b):
        assert same(*blank)
        assert len(nested.flatten(a)[1]) == len(nested.flatten(b)[1])


def test_the_order_of_keys_counts():
    assert not nested.same_outline({"a": None, "b": None}, {"b": None, "a": None})


def test_one_tensor_may_stand_in_several_places():
    x = torch.ones(1)
    assert len(nested.flatten([x, {"x": x}])[1]) == 2
    shared = [x]
    assert len(nested.flatten([shared, shared])[1]) == 2


class Failing:
    pass


@dataclasses.dataclass
class WithProperty:
    x: object = None

    def __getattribute__(self, name):
        if name == "x":
            raise KeyError("no x today")
        return object.__getattribute__(self, name)


class NoRepr:
    def __repr__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "structure is int 3"),
        ([None, {"a": (torch.ones(1), "x")}], r"structure\[1\]\['a'\]\[1\] is str 'x'"),
        (Pair(None, Pair(1.5, None)), r"structure.right.left is float 1.5"),
        ({"a": {2.5: None}}, r"structure\['a'\] has the key float 2.5; expected str or int"),
        ({True: None}, "has the key bool True"),
        ([set()], r"structure\[0\] is set set\(\)"),
        (collections.defaultdict(list), "structure is defaultdict"),
        ([NoRepr()], "its repr fails"),
        (Pair, "structure is type"),
        ([WithProperty()], r"structure\[0\].x cannot be read: KeyError: 'no x today'"),
        ([torch.ones(2).to_sparse()], r"structure\[0\] is a sparse_coo tensor.*to_dense"),
        ({"m": torch.ones(1, device="meta")}, r"structure\['m'\] is a tensor on meta"),
    ],
)
def test_what_is_no_structure_is_refused_with_its_place(value, text):
    with pytest.raises(StructureError, match=text) as caught:
        nested.flatten(value)
    assert isinstance(caught.value, TypeError)


@pytest.mark.filterwarnings("ignore")
def test_quantised_and_nested_tensors_are_refused():
    quantised = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with pytest.raises(StructureError, match="quantised"):
        nested.flatten(quantised)
    with pytest.raises(StructureError, match="nested tensor"):
        nested.flatten([torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])])


@pytest.mark.parametrize("kind", ["list", "dict", "dataclass"])
def test_a_structure_that_contains_itself_is_refused(kind):
    value = {"list": [], "dict": {}, "dataclass": Pair(None, None)}[kind]
    if kind == "list":
        value.append([value])
    elif kind == "dict":
        value["a"] = [value]
    else:
        value.left = (value,)
    with pytest.raises(StructureError, match="contains itself"):
        nested.flatten(value)


def test_depth_is_limited():
    value = None
    for _ in range(nested.MAX_DEPTH):
        value = [value]
    nested.flatten(value)
    with pytest.raises(StructureError, match="deeper than"):
        nested.flatten([value])


def test_results_of_torch_with_names_keep_their_type():
    found = torch.max(torch.tensor([[1.0, 5.0]]), dim=1)
    outline, leaves = nested.flatten(found)
    again = nested.unflatten(outline, leaves)
    assert type(again) is type(found)
    assert again.indices.tolist() == [1]


@dataclasses.dataclass
class Example:
    name: str
    values: object


ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.arange(6).reshape(2, 3).T,
    np.arange(6, dtype=np.float16)[::-1],
    np.arange(12, dtype=np.int16)[::2],
    np.zeros((0, 3), np.bool_),
    np.float32([[1, 2], [3, 4]])[:, ::-1],
    np.frombuffer(b"abcd", np.uint8),
    np.array(5.0),
    np.array([1 + 2j]),
    np.arange(3, dtype=">i4"),
    np.array(["text"]),
    np.arange(3, dtype=np.uint64),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.strides}")
def test_an_object_with_arrays(array):
    data, tensors = nested.split_object({"a": array})
    found = nested.join_object(data, tensors)["a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_tensors_are_taken_out_once_and_lie_in_the_given_memory():
    shared = torch.ones(1000, requires_grad=True)
    value = [shared, Example("x", (shared, torch.zeros(2, dtype=torch.bfloat16))), None, "text"]
    data, tensors = nested.split_object(value)
    assert len(tensors) == 2
    assert len(data) < 500
    assert tensors[0].data_ptr() == shared.data_ptr()
    found = nested.join_object(data, tensors)
    assert found[0] is found[1].values[0]
    assert found[0].data_ptr() == shared.data_ptr()
    assert found[1].values[1].dtype == torch.bfloat16


def test_ndarrays_lie_in_the_given_memory():
    value = mx.io.DataBatch([mx.nd.ones((3, 4))], [mx.nd.array([1, 2, 3], dtype="int32")], pad=1)
    data, tensors = nested.split_object(value)
    found = nested.join_object(data, tensors)
    assert found.data[0].tensor.data_ptr() == tensors[0].data_ptr()
    assert found.label[0].dtype == np.int32
    assert found.pad == 1


class Made:
    """Makes arrays for its pickle only."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return made, (torch.full((3,), float(self.number)), np.full(3, float(self.number))[::-1])


def made(tensor, array):
    assert tensor.tolist() == array.tolist()
    return tensor.tolist()


def test_arrays_that_are_made_for_the_pickle():
    data, tensors = nested.split_object([Made(number) for number in range(20)])
    assert nested.join_object(data, tensors) == [[number] * 3 for number in range(20)]


def test_sparse_tensors_go_as_their_parts():
    data, tensors = nested.split_object(torch.eye(3).to_sparse())
    assert len(tensors) == 2
    assert torch.equal(nested.join_object(data, tensors).to_dense(), torch.eye(3))
