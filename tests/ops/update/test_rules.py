"""Operators over groups of inputs: names, counts, symbols, and what they refuse."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import DTypeError, OpError, ShapeError
from dpmodule.ops.spec import Variadic, arg, aux

RATES = {"lrs": (0.5, 0.25), "wds": (0.0, 0.5)}


def test_a_group_counts_and_names_its_inputs():
    group = Variadic(count="n", group=(arg("weight"), aux("mom")), tail=(arg("lrs"),))
    assert [i.name for i in group.inputs(2)] == ["weight_0", "mom_0", "weight_1", "mom_1", "lrs"]
    assert [group.units(n) for n in (0, 1, 2, 3, 4, 5)] == [0, 0, 1, 1, 2, 2]
    assert group.total(2) == 5
    assert group.is_input("mom_12")
    assert group.is_input("lrs")
    assert not group.is_input("lrs_0")
    assert not group.is_input("mom")


def test_symbols_make_variables_and_states():
    symbol = mx.sym.preloaded_multi_mp_sgd_mom_update(num_weights=2, name="u")
    assert symbol.list_arguments() == ["u_weight_0", "u_grad_0", "u_weight_1", "u_grad_1", "u_lrs", "u_wds"]
    assert symbol.list_auxiliary_states() == ["u_mom_0", "u_weight32_0", "u_mom_1", "u_weight32_1"]
    assert symbol.list_outputs() == ["u_output0", "u_output1"]
    options = {"learning_rates": (0.1, 0.1), "wds": (0, 0), "step_count": (1, 1)}
    lamb = mx.sym._internal._multi_lamb_update(num_tensors=2, name="u", **options)
    assert lamb.list_arguments() == ["u_weight_0", "u_grad_0", "u_weight_1", "u_grad_1"]
    assert lamb.list_auxiliary_states() == ["u_mean_0", "u_var_0", "u_mean_1", "u_var_1"]
    again = mx.sym.load_json(symbol.tojson())
    assert again.list_auxiliary_states() == symbol.list_auxiliary_states()
    arguments, outputs, states = symbol.infer_shape(u_weight_0=(2, 3), u_grad_1=(4,))
    assert arguments == [(2, 3), (2, 3), (4,), (4,), (2,), (2,)]
    assert outputs == [(2, 3), (4,)]
    assert states == [(2, 3), (2, 3), (4,), (4,)]
    arguments, outputs, states = symbol.infer_type(u_weight_0="float16", u_weight_1="float16")
    assert set(arguments[:4]) == set(outputs) == {np.float16}
    assert set(arguments[4:]) == set(states) == {np.float32}


def test_executors_write_states_in_forward():
    symbol = mx.sym.multi_sgd_mom_update(name="u", num_weights=2, momentum=0.5, **RATES)
    bound = symbol.simple_bind(mx.cpu(), u_weight_0=(2,), u_weight_1=(3,), grad_req="null")
    for name in ("u_weight_0", "u_weight_1", "u_grad_0", "u_grad_1"):
        bound.arg_dict[name][:] = 1
    first, second = bound.forward(is_train=False)
    np.testing.assert_allclose(first.asnumpy(), [0.5, 0.5])
    np.testing.assert_allclose(second.asnumpy(), [0.625] * 3)
    np.testing.assert_allclose(bound.aux_dict["u_mom_1"].asnumpy(), [-0.375] * 3)
    np.testing.assert_allclose(bound.arg_dict["u_weight_0"].asnumpy(), [1, 1])


def test_inputs_may_come_by_name_and_uncounted():
    weights, grads = [mx.nd.ones((2,)), mx.nd.ones((3,))], [mx.nd.ones((2,)), mx.nd.ones((3,))]
    found = mx.nd.multi_sgd_update(
        weight_1=weights[1], grad_1=grads[1], grad_0=grads[0], weight_0=weights[0], **RATES
    )
    np.testing.assert_allclose(found[0].asnumpy(), [0.5, 0.5])
    np.testing.assert_allclose(found[1].asnumpy(), [0.625] * 3)


def test_a_wrong_number_of_inputs_is_refused():
    one = mx.nd.ones((2,))
    with pytest.raises(OpError, match="num_weights is 2, but 3 inputs"):
        mx.nd.multi_sgd_update(one, one, one, num_weights=2, **RATES)
    with pytest.raises(OpError, match="rates for 2 weights"):
        mx.nd.multi_sgd_update(one, one, num_weights=1, **RATES)
    with pytest.raises(OpError, match="lrs has 2 numbers and wds 1"):
        mx.nd.multi_sgd_update(one, one, one, one, num_weights=2, lrs=(1, 1), wds=(1,))


def test_wrong_types_and_shapes_are_refused():
    half, full = mx.nd.ones((2,), dtype="float16"), mx.nd.ones((2,))
    with pytest.raises(DTypeError, match="float32"):
        mx.nd.mp_sgd_update(half, half, half, lr=0.1)
    with pytest.raises(DTypeError, match="grad is float32"):
        mx.nd.mp_sgd_update(half, full, full, lr=0.1)
    with pytest.raises(ShapeError, match="shape"):
        mx.nd.mp_sgd_update(half, half, mx.nd.ones((1, 2)), lr=0.1)
    with pytest.raises(ShapeError, match="sgd_mom_update"):
        mx.nd.sgd_mom_update(full, full, mx.nd.ones((3,)), lr=0.1)
    with pytest.raises(OpError, match="lr is required"):
        mx.nd.sgd_update(full, full)


def test_arrays_are_reset_in_place():
    first, second = mx.nd.ones((2,)), mx.nd.ones((3,), dtype="float16")
    assert mx.nd.reset_arrays(first, second, num_arrays=2) == []
    assert not first.asnumpy().any()
    assert not second.asnumpy().any()


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 0.0])
def test_adamw_skips_a_step_without_a_finite_factor(factor):
    weight, grad, mean, var = (mx.nd.array([x, 2 * x]) for x in (1.0, 2.0, 3.0, 4.0))
    before = [x.asnumpy() for x in (weight, mean, var)]
    mx.nd.contrib.adamw_update(weight, grad, mean, var, factor, lr=0.1, eta=1, wd=0.1, out=weight)
    mx.nd.contrib.multi_adamw_update(
        [weight], [grad], [mean], [var], factor, lrs=[0.1], wds=[0.1], etas=[1], out=weight
    )
    for now, old in zip((weight, mean, var), before, strict=True):
        np.testing.assert_array_equal(now.asnumpy(), old)


def test_contrib_faces_take_lists():
    def arrays():
        return [mx.nd.array([1.0, 2.0]), mx.nd.array([3.0])]

    grads = [mx.nd.array([0.5, -1.0]), mx.nd.array([2.0])]
    rates = {"lrs": [0.5, 0.25], "wds": [0.0, 0.5]}
    weights, means, variances = arrays(), arrays(), arrays()
    found = mx.nd.contrib.multi_lamb_update(weights, grads, means, variances, [1, 2], **rates)
    states = [x for group in zip(arrays(), grads, arrays(), arrays(), strict=True) for x in group]
    direct = mx.nd._internal._multi_lamb_update(
        *states, learning_rates=[0.5, 0.25], wds=[0.0, 0.5], step_count=[1, 2], num_tensors=2
    )
    for one, two in zip(found, direct, strict=True):
        np.testing.assert_array_equal(one.asnumpy(), two.asnumpy())
    assert means[0].asnumpy()[0] == pytest.approx(0.95)
    symbol = mx.sym.contrib.adamw_update(*map(mx.sym.var, "wgmv"), 2.0, lr=0.1, eta=1)
    assert symbol.list_auxiliary_states() == ["m", "v"]
