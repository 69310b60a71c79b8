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
