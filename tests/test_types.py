"""Names for what arguments may be: each means something, and none costs an import when a program runs."""

import re
import types as python_types
import typing

import numpy as np
import pytest
import torch

from dpmodule import types
from dpmodule.context import Context

KNOWN = {
    **vars(types),
    "np": np,
    "torch": torch,
    "Context": Context,
    "EllipsisType": python_types.EllipsisType,
}
ALIASES = {name: meant for name in types.__all__ if isinstance(meant := getattr(types, name), str)}


def meaning(name):
    """Return what an alias stands for."""
    text = name
    while any(re.search(rf"\b{other}\b", text) for other in ALIASES):
        for other, written in ALIASES.items():
            text = re.sub(rf"\b{other}\b", written, text)
    return eval(text, KNOWN)


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_every_alias_is_a_choice_of_types(name):
    assert len(typing.get_args(meaning(name))) > 1


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("ArrayLike", (1, 2.5, [1], np.ones(2), torch.ones(2))),
        ("ContextLike", (Context("cpu"), torch.device("cpu"))),
        ("DTypeLike", ("float32", np.float32, np.dtype("int8"), torch.float16, None)),
        ("IndexLike", (1, slice(2), ..., None, [0, 1], (0, ...))),
        ("Ints", (1, (1, 2))),
        ("ShapeLike", (np.int64(1), (1, 2), [3], torch.Size([4]))),
    ],
)
def test_what_an_alias_names_is_taken(name, taken):
    kinds = tuple(
        typing.get_origin(each) or each
        for each in typing.get_args(meaning(name))
        if not getattr(each, "_is_protocol", False) or getattr(each, "_is_runtime_protocol", False)
    )
    assert all(isinstance(each, kinds) for each in taken)
