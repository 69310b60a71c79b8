"""Exporting torch modules: what varies, and what is refused."""

import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError


class Fixed(nn.Module):
    def forward(self, x):
        return x.reshape(2, 3) * 1


class Branch(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


class Length(nn.Module):
    def forward(self, x):
        return x[: int(x[0, 0].item())]


class Several(nn.Module):
    def forward(self, x, parts, *more, scale=1, extra=None):
        return x * scale, parts["left"] + parts["right"][0], more[0] + extra


class Ids(nn.Module):
    def forward(self, input_ids, attention_mask=None):
        return input_ids.float() if attention_mask is None else input_ids * attention_mask


@pytest.mark.parametrize("net", [Branch(), Length()])
def test_a_branch_from_values_is_refused_in_words(net, capfd):
    with pytest.raises(ArgumentError, match="known only at run time") as caught:
        mx.sym.from_torch(net, torch.ones(2, 3))
    text = str(caught.value)
    assert type(net).__name__ in text
    assert "test_torch_export.py:" in text
    assert "sym.torch_module" in text
    assert capfd.readouterr().err == ""


def test_what_a_dynamic_axis_may_be():
    net = nn.Linear(3, 2)
    with pytest.raises(
        ArgumentError, match="'x' is not an input; there are input; 'input' has no axis 5, but 2 axes"
    ):
        mx.sym.from_torch(net, torch.ones(2, 3), dynamic={"x": {0: "n"}, "input": {5: "m"}})
    with pytest.raises(ArgumentError, match="expected a dict such as"):
        mx.sym.from_torch(net, torch.ones(2, 3), dynamic={"input": ["n"]})
    with pytest.raises(ArgumentError, match=r"Fixed fixes axis 0 \(batch\) of x at 2"):
        mx.sym.from_torch(Fixed(), torch.ones(2, 3), dynamic={"x": {0: "batch"}})


def test_a_module_that_fixes_everything_gets_a_warning():
    with pytest.warns(UserWarning, match="Fixed fixes the size of every axis") as caught:
        symbol, _, _ = mx.sym.from_torch(Fixed(), torch.ones(2, 3))
    assert caught[0].filename == __file__
    assert symbol.infer_shape(x=(2, 3))[1] == [(2, 3)]
    assert mx.sym.from_torch(Fixed(), torch.ones(2, 3), dynamic={})[0].list_arguments() == ["x"]


def test_examples_of_one_row_leave_the_batch_open():
    class Net(nn.Module):
        def forward(self, x):
            return x.view(x.shape[0], 2, -1).sum(1) + torch.ones(x.shape[0], 1)

    symbol, _, _ = mx.sym.from_torch(Net(), torch.ones(1, 6))
    assert symbol.infer_shape(x=(7, 6))[1] == [(7, 3)]


def test_a_first_axis_of_one_that_is_no_batch_stays():
    class Net(nn.Module):
        def forward(self, table, x):
            return table[0] + x

    symbol, _, _ = mx.sym.from_torch(Net(), torch.ones(1, 3), torch.ones(4, 3))
    assert symbol.infer_shape(table=(1, 3), x=(6, 3))[1] == [(6, 3)]


def test_arguments_that_do_not_fit():
    net = nn.Linear(3, 2)
    with pytest.raises(ArgumentError, match="module is of type function"):
        mx.sym.from_torch(lambda x: x, torch.ones(2))
    with pytest.raises(ArgumentError, match="forward of Linear does not accept these examples: missing"):
        mx.sym.from_torch(net)
    with pytest.raises(ArgumentError, match="torch.export cannot read Linear: .*reduction dim"):
        mx.sym.from_torch(net, torch.ones(2, 4))


def test_names_of_inputs():
    parts = {"left": torch.ones(2, 1), "right": [torch.ones(2, 1)]}
    more, extra = torch.ones(2), torch.ones(2)
    symbol, _, _ = mx.sym.from_torch(Several(), torch.ones(2, 3), parts, more, extra=extra, scale=3)
    assert symbol.list_arguments() == ["x", "parts_left", "parts_right_0", "more_0", "extra"]
    ids, mask = torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3)
    assert mx.sym.from_torch(Ids(), input_ids=ids)[0].list_arguments() == ["input_ids"]
    both = mx.sym.from_torch(Ids(), attention_mask=mask, input_ids=ids)[0]
    assert sorted(both.list_arguments()) == ["attention_mask", "input_ids"]


def test_torch_keeps_its_settings():
    before = torch.backends.mha.get_fastpath_enabled()
    net = nn.MultiheadAttention(4, 2).train()
    with torch.no_grad():
        mx.sym.from_torch(net, *[torch.zeros(3, 2, 4)] * 3)
    assert torch.backends.mha.get_fastpath_enabled() == before
    assert net.training
    assert net.in_proj_weight.grad is None


def test_one_example_for_several_inputs_stays_several_inputs():
    class Net(torch.nn.Module):
        def forward(self, left, right):
            return left - 2 * right

    example = torch.zeros(2, 3)
    net, _, _ = mx.sym.from_torch(Net(), example, right=example)
    assert net.list_arguments() == ["left", "right"]
    left, right = mx.nd.ones((2, 3)), mx.nd.ones((2, 3)) * 2
    assert net.eval(left=left, right=right)[0].asnumpy().tolist() == [[-3.0] * 3] * 2


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_scripted_modules_are_refused():
    net, x = nn.Linear(3, 2), torch.ones(2, 3)
    for scripted in (torch.jit.trace(net, x), torch.jit.script(net)):
        with pytest.raises(ArgumentError, match="a torch.jit.ScriptModule, expected the module that it was"):
            mx.sym.from_torch(scripted, x)
        with pytest.raises(ArgumentError, match="0 is a torch.jit.ScriptModule, whose parameters cannot be"):
            mx.sym.torch_module(nn.Sequential(scripted))
