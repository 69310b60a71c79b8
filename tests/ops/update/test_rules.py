"""Operators over groups of inputs: names, counts and symbols; values: cases/update.py."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.ops.spec import Variadic, arg, aux

RATES = {"lrs": (0.5, 0.25), "wds": (0.0, 0.5)}


def test_a_group_counts_and_names_its_inputs():
    group = Variadic(count="n", group=(arg("weight"), aux("mom")), tail=(arg("lrs"),))
    assert [i.name for i in group.inputs(2)] == ["weight_0", "mom_0", "weight_1", "mom_1", "lrs"]
    assert [group.units(n) for n in (0, 1, 2, 3, 4, 5)] == [0, 0, 1, 1, 2, 2]
    assert group.total(2) == 5
    assert [group.is_input(name) for name in ("mom_12", "lrs", "lrs_0", "mom")] == [True, True, False, False]


def test_symbols_make_variables_and_states():
    symbol = mx.sym.preloaded_multi_mp_sgd_mom_update(num_weights=2, name="u")
    assert symbol.list_arguments() == ["u_weight_0", "u_grad_0", "u_weight_1", "u_grad_1", "u_lrs", "u_wds"]
    assert symbol.list_auxiliary_states() == ["u_mom_0", "u_weight32_0", "u_mom_1", "u_weight32_1"]
    assert symbol.list_outputs() == ["u_output0", "u_output1"]
    options = {"learning_rates": (0.1, 0.1), "wds": (0, 0), "step_count": (1, 1)}
    lamb = mx.sym._internal._multi_lamb_update(num_tensors=2, name="u", **options)
    assert lamb.list_arguments() == ["u_weight_0", "u_grad_0", "u_weight_1", "u_grad_1"]
    assert lamb.list_auxiliary_states() == ["u_mean_0", "u_var_0", "u_mean_1", "u_var_1"]
    two, four = (2, 3), (4,)
    wanted = [two, two, four, four, (2,), (2,)], [two, four], [two, two, four, four]
    assert symbol.infer_shape(u_weight_0=two, u_grad_1=four) == wanted
    arguments, outputs, states = symbol.infer_type(u_weight_0="float16", u_weight_1="float16")
    assert set(arguments[:4]) == set(outputs) == {np.float16}
    assert set(arguments[4:]) == set(states) == {np.float32}


def test_executors_write_states_in_forward():
    symbol = mx.sym.multi_sgd_mom_update(name="u", num_weights=2, momentum=0.5, **RATES)
    bound = symbol.simple_bind(mx.cpu(), u_weight_0=(2,), u_weight_1=(3,), grad_req="null")
    for array in bound.arg_arrays:
        array[:] = 1
    first, second = bound.forward(is_train=False)
    assert [first.asnumpy().tolist(), second.asnumpy().tolist()] == [[0.5] * 2, [0.625] * 3]
    assert bound.aux_dict["u_mom_1"].asnumpy().tolist() == [-0.375] * 3
    assert bound.arg_dict["u_weight_0"].asnumpy().tolist() == [1, 1]


def test_inputs_may_come_by_name_and_uncounted():
    two, three = mx.nd.ones((2,)), mx.nd.ones((3,))
    found = mx.nd.multi_sgd_update(weight_1=three, grad_1=three, grad_0=two, weight_0=two, **RATES)
    assert [each.asnumpy().tolist() for each in found] == [[0.5] * 2, [0.625] * 3]


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 0.0])
def test_adamw_skips_a_step_without_a_finite_factor(factor):
    arrays = weight, grad, mean, var = [mx.nd.array([x, 2 * x]) for x in (1.0, 2.0, 3.0, 4.0)]
    before = [x.asnumpy() for x in arrays]
    mx.nd.contrib.adamw_update(*arrays, factor, lr=0.1, eta=1, wd=0.1, out=weight)
    lists = [[each] for each in arrays]
    mx.nd.contrib.multi_adamw_update(*lists, factor, lrs=[0.1], wds=[0.1], etas=[1], out=weight)
    for now, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(now.asnumpy(), old)


def test_contrib_faces_take_lists():
    arrays = lambda: [mx.nd.array([1.0, 2.0]), mx.nd.array([3.0])]  # noqa: E731
    grads = [mx.nd.array([0.5, -1.0]), mx.nd.array([2.0])]
    weights, means, variances = arrays(), arrays(), arrays()
    given = weights, grads, means, variances, [1, 2]
    found = mx.nd.contrib.multi_lamb_update(*given, lrs=[0.5, 0.25], wds=[0.0, 0.5])
    states = [x for group in zip(arrays(), grads, arrays(), arrays(), strict=True) for x in group]
    options = {"learning_rates": [0.5, 0.25], "wds": [0.0, 0.5], "step_count": [1, 2], "num_tensors": 2}
    for one, two in zip(found, mx.nd._internal._multi_lamb_update(*states, **options), strict=True):
        np.testing.assert_array_equal(one.asnumpy(), two.asnumpy())
    assert means[0].asnumpy()[0] == pytest.approx(0.95)
    symbol = mx.sym.contrib.adamw_update(*map(mx.sym.var, "wgmv"), 2.0, lr=0.1, eta=1)
    assert symbol.list_auxiliary_states() == ["m", "v"]
