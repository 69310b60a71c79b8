"""Exporting torch modules: what varies, and what is refused."""

import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.torch_import import expressions


class Several(nn.Module):
    def forward(self, x, parts, *more, scale=1, extra=None):
        return x * scale, parts["left"] + parts["right"][0], more[0] + extra


class Ids(nn.Module):
    def forward(self, input_ids, attention_mask=None):
        return input_ids.float() if attention_mask is None else input_ids * attention_mask


def test_a_module_that_fixes_everything_gets_a_warning():
    net = expressions("x.reshape(2, 3) * 1")
    with pytest.warns(UserWarning, match="Functions fixes the size of every axis") as caught:
        symbol, _, _ = mx.sym.from_torch(net, torch.ones(2, 3))
    assert (caught[0].filename, symbol.infer_shape(x=(2, 3))[1]) == (__file__, [(2, 3)])
    assert mx.sym.from_torch(net, torch.ones(2, 3), dynamic={})[0].list_arguments() == ["x"]


def test_examples_of_one_row_leave_the_batch_open():
    net = expressions("x.view(x.shape[0], 2, -1).sum(1) + torch.ones(x.shape[0], 1)")
    assert mx.sym.from_torch(net, torch.ones(1, 6))[0].infer_shape(x=(7, 6))[1] == [(7, 3)]


def test_a_first_axis_of_one_that_is_no_batch_stays():
    symbol, _, _ = mx.sym.from_torch(expressions("x[0] + y", "x, y"), torch.ones(1, 3), torch.ones(4, 3))
    assert symbol.infer_shape(x=(1, 3), y=(6, 3))[1] == [(6, 3)]


def test_names_of_inputs():
    parts = {"left": torch.ones(2, 1), "right": [torch.ones(2, 1)]}
    more, extra = torch.ones(2), torch.ones(2)
    symbol, _, _ = mx.sym.from_torch(Several(), torch.ones(2, 3), parts, more, extra=extra, scale=3)
    assert symbol.list_arguments() == ["x", "parts_left", "parts_right_0", "more_0", "extra"]
    ids, mask = torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3)
    assert mx.sym.from_torch(Ids(), input_ids=ids)[0].list_arguments() == ["input_ids"]
    both = mx.sym.from_torch(Ids(), attention_mask=mask, input_ids=ids)[0]
    assert sorted(both.list_arguments()) == ["attention_mask", "input_ids"]


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_scripted_modules_are_refused():
    net, x = nn.Linear(3, 2), torch.ones(2, 3)
    for scripted in (torch.jit.trace(net, x), torch.jit.script(net)):
        with pytest.raises(ArgumentError, match="a torch.jit.ScriptModule, expected the module that it was"):
            mx.sym.from_torch(scripted, x)
        with pytest.raises(ArgumentError, match="0 is a torch.jit.ScriptModule, whose parameters cannot be"):
            mx.sym.torch_module(nn.Sequential(scripted))
