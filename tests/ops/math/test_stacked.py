"""Operators called on many examples at once through torch.vmap give what a loop gives."""

import numpy as np
import pytest
import torch

from dpmodule import ops

CASES = [
    ("cbrt", {}, [(2, 3)]),
    ("rcbrt", {}, [(2, 3)]),
    ("hard_sigmoid", {}, [(2, 3)]),
    ("max", {"axis": 1}, [(2, 3)]),
    ("min", {}, [(2, 3)]),
    ("norm", {"axis": 0}, [(2, 3)]),
    ("sum", {"axis": 1, "exclude": True}, [(2, 3)]),
    ("broadcast_maximum", {}, [(2, 3), (1, 3)]),
    ("_mod", {}, [(2, 3), (2, 3)]),
    ("dot", {"transpose_b": True}, [(2, 3), (4, 3)]),
    ("transpose", {}, [(2, 3)]),
    ("Reshape", {"shape": (-3,)}, [(2, 3)]),
    ("slice", {"begin": (None,), "end": (None,), "step": (-1,)}, [(2, 3)]),
    ("SliceChannel", {"num_outputs": 3, "axis": 1, "squeeze_axis": True}, [(2, 3)]),
    ("take", {"axis": 1}, [(2, 3), (2,)]),
    ("pick", {}, [(2, 3), (2,)]),
    ("one_hot", {"depth": 4}, [(2,)]),
    ("topk", {"k": 2, "ret_typ": "value"}, [(2, 3)]),
    ("repeat", {"repeats": 2, "axis": 0}, [(2, 3)]),
]


@pytest.mark.parametrize(("name", "attrs", "shapes"), CASES, ids=[c[0] for c in CASES])
def test_vmap_equals_a_loop(name, attrs, shapes):
    op = ops.get(name)
    function = op.bind(op.parse(attrs))
    random = np.random.RandomState(0)
    stacked = [torch.from_numpy(random.uniform(0.1, 2.9, (5, *s))).requires_grad_() for s in shapes]

    def first(found):
        return found if isinstance(found, torch.Tensor) else found[0]

    together = first(torch.vmap(function)(*stacked))
    loop = torch.stack([first(function(*row)) for row in zip(*stacked, strict=True)])
    torch.testing.assert_close(together, loop)
    if loop.requires_grad:
        found = torch.autograd.grad(together.sum(), stacked, allow_unused=True)
        wanted = torch.autograd.grad(loop.sum(), stacked, allow_unused=True)
        torch.testing.assert_close(found[0], wanted[0])
