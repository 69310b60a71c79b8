"""What an executor keeps between forward and backward, compared with MXNet 1.9.1 where that is not a bug."""

import copy
import pickle

import numpy as np
import pytest

import dpmodule as mx
from dpmodule._devices import generators
from dpmodule.base import ArgumentError, DTypeError, MXNetError, ShapeError, StateError

S = mx.sym


def ones(*shape):
    return mx.nd.ones(shape)


def bound(symbol, req="write", **arrays):
    given = {k: mx.nd.array(v) for k, v in arrays.items()}
    grads = {k: mx.nd.zeros(v.shape, dtype=v.dtype) for k, v in given.items()}
    names = symbol.list_arguments()
    return symbol.bind(
        mx.cpu(),
        {k: v for k, v in given.items() if k in names},
        {k: v for k, v in grads.items() if k in names},
        req,
        {k: v for k, v in given.items() if k not in names},
    )


def grad(executor, name):
    return executor.grad_dict[name].asnumpy().tolist()


def test_a_second_backward_gives_the_same_again():
    executor = bound(S.square(S.Variable("x")), x=[1, 2])
    executor.forward(is_train=True)
    for _ in range(3):
        executor.backward(ones(2))
        assert grad(executor, "x") == [2, 4]


def test_under_add_two_rounds_of_nine_give_eighteen():
    executor = bound(S.Variable("x") * 9, req="add", x=[1.0])
    executor.forward(is_train=True)
    executor.backward(ones(1))
    executor.backward(ones(1))
    assert grad(executor, "x") == [18]


def test_a_second_backward_changes_neither_states_nor_outputs_nor_the_generator():
    net = S.Dropout(S.BatchNorm(S.Variable("x"), fix_gamma=False, name="bn"), p=0.5)
    given = {"x": np.arange(12).reshape(6, 2), "bn_gamma": [1, 2], "bn_beta": [0, 1]}
    executor = bound(net, **given, bn_moving_mean=[0, 0], bn_moving_var=[1, 1])
    out = executor.forward(is_train=True)[0].asnumpy()
    executor.backward(ones(6, 2))
    first, states = grad(executor, "x"), [a.asnumpy().tolist() for a in executor.aux_arrays]
    before = generators.get_state()["contexts"][mx.cpu()].clone()
    executor.backward(ones(6, 2))
    assert grad(executor, "x") == first
    assert [a.asnumpy().tolist() for a in executor.aux_arrays] == states
    assert np.array_equal(executor.outputs[0].asnumpy(), out)
    assert np.array_equal(before, generators.get_state()["contexts"][mx.cpu()])


def test_backward_without_a_forward_runs_one():
    executor = bound(S.Variable("x") ** 2, x=[3.0])
    executor.backward(ones(1))
    assert grad(executor, "x") == [6]
    assert executor.outputs[0].asnumpy().tolist() == [9]


def test_head_gradients_that_nothing_reads():
    executor = bound(S.shape_array(S.Variable("x")), x=[1.0, 2.0])
    executor.forward(is_train=True)
    executor.backward([ones(5)])  # as in MXNet, whose shape is not looked at where no gradient flows
    assert grad(executor, "x") == [0, 0]
    executor = bound(S.Variable("x") * 2, x=[1.0])
    executor.forward(is_train=True)
    executor.backward([ones(1), ones(7)])  # more than there are outputs
    assert grad(executor, "x") == [2]
    with pytest.raises(ShapeError, match=r"expected \(1,\)"):
        executor.backward([ones(3)])


def test_backward_after_predict_differentiates_what_was_computed():
    executor = bound(S.Dropout(S.Variable("x") * 3, p=0.5), x=np.ones(20))
    executor.forward(is_train=True)
    executor.forward(is_train=False)
    executor.backward(ones(20))
    assert set(grad(executor, "x")) == {3}
    assert set(executor.outputs[0].asnumpy()) == {3}


def test_backward_after_predict_uses_moving_statistics_and_leaves_them():
    net = S.BatchNorm(S.Variable("x"), fix_gamma=False, eps=0, name="bn")
    executor = bound(net, x=[[1.0], [3.0]], bn_gamma=[2], bn_beta=[0], bn_moving_mean=[5], bn_moving_var=[4])
    executor.forward(is_train=False)
    executor.backward(ones(2, 1))
    assert grad(executor, "x") == [[1], [1]]
    assert [a.asscalar() for a in executor.aux_arrays] == [5, 4]


def test_a_label_written_after_forward_is_used():
    net = S.LinearRegressionOutput(S.Variable("x"), S.Variable("y"))
    executor = bound(net, x=[[1.0], [2.0]], y=[[0.0], [0.0]])
    executor.forward(is_train=True)
    executor.arg_dict["y"][:] = 5
    executor.backward()
    assert grad(executor, "x") == [[-4], [-3]]


def test_a_label_made_inside_the_graph_is_used():
    net = S.LinearRegressionOutput(S.Variable("x"), S.Variable("y") * 2)
    executor = bound(net, x=[[1.0]], y=[[3.0]])
    executor.forward(is_train=True)
    executor.backward()
    assert grad(executor, "x") == [[-5]]
    assert grad(executor, "y") == [[0]]


@pytest.mark.parametrize("req", [{"x": "write"}, {"w": "write"}, {"x": "write", "w": "add"}])
def test_an_argument_written_between_forward_and_backward_is_used_as_it_is_then(req):
    executor = bound(S.Variable("x") * S.Variable("w"), req=req, x=[2.0], w=[3.0])
    executor.forward(is_train=True)
    executor.arg_dict["x"][:] = 20
    executor.arg_dict["w"][:] = 30
    executor.backward(ones(1))
    for name, other in (("x", 30), ("w", 20)):
        if name in req:
            assert grad(executor, name) == [other]


def test_a_state_written_between_forward_and_backward_is_no_error():
    net = S.BatchNorm(S.Variable("x"), use_global_stats=True, fix_gamma=False, eps=0, name="bn")
    executor = bound(net, x=[[1.0]], bn_gamma=[1], bn_beta=[0], bn_moving_mean=[0], bn_moving_var=[1])
    executor.forward(is_train=True)
    executor.aux_dict["bn_moving_var"][:] = 4
    executor.backward(ones(1, 1))
    assert grad(executor, "x") == [[0.5]]


def test_an_output_written_before_backward_is_no_error():
    executor = bound(S.sigmoid(S.Variable("x")), x=[0.0])
    executor.forward(is_train=True)[0][:] = 0.25
    executor.backward(ones(1))
    assert grad(executor, "x") == [0.25 * 0.75]


def test_old_output_handles_show_the_newest_values():
    executor = bound(S.Variable("x") + 1, x=[1.0])
    outputs = executor.outputs
    first = executor.forward()[0]
    assert first is outputs[0]
    executor.arg_dict["x"][:] = 5
    second = executor.forward(is_train=True)[0]
    assert second is first
    assert list(executor.output_dict.values()) == [first]
    assert first.asnumpy().tolist() == [6]


def test_values_taken_from_an_output_stay():
    executor = bound(S.Variable("x") + 1, x=[1.0])
    tensor = executor.forward()[0].torch()
    view = executor.outputs[0][0:1]
    executor.forward(x=mx.nd.array([9]))
    assert tensor.tolist() == [2]
    assert view.asnumpy().tolist() == [2]


def test_forward_copies_keywords_in():
    executor = bound(S.Variable("x") * 2, x=[1.0, 2.0])
    mine = mx.nd.array([3, 4])
    assert executor.forward(x=mine)[0].asnumpy().tolist() == [6, 8]
    mine[:] = 0
    assert executor.arg_dict["x"].asnumpy().tolist() == [3, 4]
    for same in (np.array([5.0, 6.0]), np.array([6.0, 5.0])[::-1], [5, 6], np.array([5, 6])):
        assert executor.forward(x=same)[0].asnumpy().tolist() == [10, 12]


def test_forward_refuses():
    executor = bound(S.Variable("x") * 2, x=[1.0, 2.0])
    with pytest.raises(TypeError, match="forward: 'zz' is not an argument; arguments: x"):
        executor.forward(zz=ones(2))
    with pytest.raises(ShapeError, match=r"x has shape \(3,\), expected \(2,\)"):
        executor.forward(x=ones(3))
    with pytest.raises(DTypeError, match="expected numbers"):
        executor.forward(x=["a", "b"])


def heads_of(*symbols, **arrays):
    executor = bound(S.Group(symbols), **arrays)
    executor.forward(is_train=True)
    return executor


def test_a_missing_head_gradient_is_an_error_beside_a_loss_too():
    x = S.Variable("x")
    executor = heads_of(S.MakeLoss(x), x * 2, x=[1.0])
    with pytest.raises(MXNetError, match="is not a loss, so its gradient must be given"):
        executor.backward()
    with pytest.raises(MXNetError, match="is not a loss"):
        executor.backward([ones(1), None])
    executor.backward([None, ones(1)])  # nothing has been used up
    assert grad(executor, "x") == [3]


def test_heads_through_which_no_gradient_passes_need_none():
    x = S.Variable("x")
    others = (S.BlockGrad(x * 2), S.argmax(x, axis=0), S.zeros_like(x), x > 0)
    executor = heads_of(S.MakeLoss(x), *others, x=[1.0, 2.0])
    executor.backward()
    assert grad(executor, "x") == [1, 1]


def test_a_loss_ignores_its_head_gradient():
    executor = heads_of(S.MakeLoss(S.Variable("x") * 2), x=[1.0])
    executor.backward(mx.nd.array([100]))
    assert grad(executor, "x") == [2]


def test_forms_of_head_gradients():
    x = S.Variable("x")
    executor = heads_of(S.identity(x * 2, name="a"), S.identity(x * 3, name="b"), x=[1.0])
    for given in ([ones(1), ones(1)], (ones(1), ones(1)), {"a_output": ones(1), "b_output": ones(1)}):
        executor.backward(given)
        assert grad(executor, "x") == [5]
    executor.backward([mx.nd.ones((1,), dtype="float64"), ones(1)])
    assert grad(executor, "x") == [5]


def test_losses_at_the_end_need_no_place_in_the_list():
    """As MXNet: actor-critic programs give gradients of the first outputs and leave the losses behind them out."""
    x = S.Variable("x")
    net = S.Group([S.identity(x * 2, name="a"), S.MakeLoss(x * 3), S.BlockGrad(x)])
    for given in ([ones(1)], ones(1)):
        executor = heads_of(net, x=[1.0])
        executor.backward(given)
        assert grad(executor, "x") == [5]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (3, ArgumentError, "out_grads is int"),
        ([ones(1)], ArgumentError, "'b_output' is not a loss"),
        (ones(1), ArgumentError, "'b_output' is not a loss"),
        ([ones(1), np.ones(1)], ArgumentError, "b_output is ndarray"),
        ([ones(1), ones(2)], ShapeError, r"b_output has shape \(2,\), expected \(1,\)"),
        ({"c_output": ones(1)}, ArgumentError, "c_output is not an output"),
    ],
)
def test_wrong_head_gradients_use_nothing_up(given, error, said):
    net = S.BatchNorm(S.Variable("x"), fix_gamma=False, momentum=0, name="bn")
    y = S.sum(net, axis=1)
    executor = bound(
        S.Group([S.identity(y, name="a"), S.identity(y, name="b")]),
        x=[[3.0]],
        bn_gamma=[1],
        bn_beta=[0],
        bn_moving_mean=[0],
        bn_moving_var=[1],
    )
    executor.forward(is_train=True)
    with pytest.raises(error, match=said):
        executor.backward(given)
    executor.backward([ones(1), ones(1)])
    assert executor.aux_dict["bn_moving_mean"].asscalar() == 3  # committed by the backward that succeeded


def test_an_unreachable_argument_under_write_becomes_zero():
    x, y = S.Variable("x"), S.Variable("y")
    net = S.Group([x * 2, S.BlockGrad(y)])
    for req, want in (("write", [0]), ("add", [7])):
        executor = bound(net, req=req, x=[1.0], y=[1.0])
        executor.grad_dict["y"][:] = 7  # stale
        executor.forward(is_train=True)
        executor.backward([ones(1), ones(1)])
        assert grad(executor, "y") == want


def test_with_nothing_to_differentiate_every_gradient_is_zero():
    executor = heads_of(S.BlockGrad(S.Variable("x")), x=[1.0])
    executor.grad_dict["x"][:] = 7
    executor.backward()
    assert grad(executor, "x") == [0]


def test_an_integer_arguments_gradient_is_zeros_of_its_type():
    net = S.Embedding(S.Variable("i"), S.Variable("w"), input_dim=3, output_dim=2)
    args = {"i": mx.nd.array([0, 2], dtype="int32"), "w": ones(3, 2)}
    grads = {"i": mx.nd.array([7, 7], dtype="int32"), "w": mx.nd.zeros((3, 2))}
    executor = net.bind(mx.cpu(), args, grads)
    executor.forward(is_train=True)
    executor.backward(ones(2, 2))
    assert (grad(executor, "i"), executor.grad_dict["i"].dtype) == ([0, 0], np.int32)
    assert grad(executor, "w") == [[1, 1], [0, 0], [1, 1]]


def test_a_variable_may_be_a_head_and_a_loss():
    executor = heads_of(S.Variable("x"), x=[1.0])
    executor.backward(mx.nd.array([4]))
    assert grad(executor, "x") == [4]
    executor = heads_of(S.MakeLoss(S.Variable("x"), grad_scale=3), x=[1.0])
    executor.backward()
    assert grad(executor, "x") == [3]


def test_heads_that_share_a_node():
    x = S.Variable("x")
    twice, loss = x * 2, S.MakeLoss(x)
    executor = heads_of(twice, twice, x=[1.0])
    executor.backward([ones(1), ones(1)])
    assert grad(executor, "x") == [4]
    executor = heads_of(loss, loss, x=[1.0])
    executor.backward()
    assert grad(executor, "x") == [1]
    executor = heads_of(S.MakeLoss(twice), S.MakeLoss(twice, grad_scale=3), x=[1.0])
    executor.backward()
    assert grad(executor, "x") == [8]


def test_a_loss_that_others_read_is_not_cut():
    x = S.Variable("x")
    loss = S.MakeLoss(x * 5)
    executor = heads_of(S.MakeLoss(loss * 3), x=[1.0])
    executor.backward()
    assert grad(executor, "x") == [5]
    executor = heads_of(loss, S.BlockGrad(loss) * x, x=[2.0])
    executor.backward([None, ones(1)])
    assert grad(executor, "x") == [5 + 10]


def test_softmax_output_with_out_grad_is_multiplied_by_its_output():
    executor = bound(
        S.SoftmaxOutput(S.Variable("x"), S.Variable("y"), out_grad=True), x=[[0.0, 0.0]], y=[0.0]
    )
    executor.forward(is_train=True)
    executor.backward(mx.nd.array([[10, 10]]))
    assert grad(executor, "x") == [[-0.25, 0.25]]


def test_two_steps_of_batchnorm_commit_once_each_in_backward():
    net = S.BatchNorm(S.Variable("x"), fix_gamma=False, momentum=0.9, name="bn")
    executor = bound(net, x=[[1.0], [3.0]], bn_gamma=[1], bn_beta=[0], bn_moving_mean=[0], bn_moving_var=[1])
    mean, var = executor.aux_arrays
    for _ in range(3):
        executor.forward(is_train=True)
        assert (mean.asscalar(), var.asscalar()) == (0, 1)
    executor.backward(ones(2, 1))
    assert mean.asscalar() == pytest.approx(0.2)
    assert var.asscalar() == pytest.approx(0.9 + 0.1 * 1)  # of the batch: 1, not 2
    assert executor.aux_arrays[0] is mean
    silent = bound(
        net, req="null", x=[[1.0], [3.0]], bn_gamma=[1], bn_beta=[0], bn_moving_mean=[0], bn_moving_var=[1]
    )
    silent.forward(is_train=True)
    silent.backward(ones(2, 1))
    assert silent.aux_arrays[0].asscalar() == 0


@pytest.mark.parametrize("is_train", [False, True])
def test_fixed_gamma_is_written_in_every_forward(is_train):
    net = S.BatchNorm(S.Variable("x"), name="bn")
    given = {
        "x": [[1.0], [3.0]],
        "bn_gamma": [7],
        "bn_beta": [0],
        "bn_moving_mean": [0],
        "bn_moving_var": [1],
    }
    executor = bound(net, **given)
    gamma = executor.arg_dict["bn_gamma"]
    executor.forward(is_train=is_train)
    assert gamma.asscalar() == 1
    executor.backward(ones(2, 1))
    assert grad(executor, "bn_gamma") == [0]


def test_dropout_repeats_with_the_seed_and_differs_between_forwards():
    executor = bound(S.Dropout(S.Variable("x"), p=0.5), x=np.ones(50))
    mx.random.seed(5)
    one, two = (executor.forward(is_train=True)[0].asnumpy() for _ in range(2))
    mx.random.seed(5)
    assert np.array_equal(executor.forward(is_train=True)[0].asnumpy(), one)
    assert not np.array_equal(one, two)
    executor.backward(ones(50))
    assert np.array_equal(executor.grad_dict["x"].asnumpy(), one)
    executor.backward(ones(50))
    assert np.array_equal(executor.grad_dict["x"].asnumpy(), one)


def test_inputs_may_be_read_where_they_lie():
    executor = bound(
        S.LinearRegressionOutput(S.Variable("x") * S.Variable("w"), S.Variable("y")),
        x=[[1]],
        w=[[1]],
        y=[[1]],
    )
    lent = {"x": mx.nd.array([[4]]).torch(), "y": mx.nd.array([[1]]).torch()}
    executor.run(True, lent)
    assert executor.input_array("x").asscalar() == 1
    assert executor.outputs[0].asscalar() == 4
    assert executor.arg_dict["x"].asscalar() == 4  # looking brings them up to date
    executor.arg_dict["y"][:] = 2
    executor.backward()
    assert grad(executor, "w") == [[8]]
    assert lent["y"].tolist() == [[1]]


def test_lent_inputs_serve_a_second_backward():
    executor = bound(S.square(S.Variable("x") * S.Variable("w")), x=[1], w=[1])
    executor.run(True, {"x": mx.nd.array([3]).torch()})
    for _ in range(2):
        executor.backward(ones(1))
        assert grad(executor, "w") == [18]


def test_release_gives_up_what_was_kept():
    executor = bound(S.Variable("x") * 2, x=[1.0])
    out = executor.forward(is_train=True)[0]
    executor.release()
    assert out.asnumpy().tolist() == [2]
    with pytest.raises(StateError):
        executor.backward(ones(1))
    executor.forward(is_train=True)
    executor.backward(ones(1))
    assert grad(executor, "x") == [2]


def test_dicts_and_lists_agree():
    net = S.BatchNorm(S.FullyConnected(S.Variable("x"), num_hidden=2, name="fc"), name="bn")
    executor = net.simple_bind(mx.cpu(), x=(2, 3), grad_req={"fc_weight": "write"})
    assert list(executor.arg_dict) == net.list_arguments()
    assert list(executor.aux_dict) == net.list_auxiliary_states()
    assert list(executor.output_dict) == net.list_outputs()
    assert executor.arg_arrays == list(executor.arg_dict.values())
    assert [g is not None for g in executor.grad_arrays] == [n == "fc_weight" for n in net.list_arguments()]
    assert executor.outputs[0].shape == (2, 2)
    x = S.Variable("x")
    twice = S.Group([x, x]).simple_bind(mx.cpu(), x=(1,))
    with pytest.raises(ArgumentError, match="two outputs have the same name"):
        _ = twice.output_dict


def test_copy_params_from():
    net = S.BatchNorm(S.FullyConnected(S.Variable("x"), num_hidden=2, name="fc"), name="bn")
    executor = net.simple_bind(mx.cpu(), x=(2, 3))
    bias = executor.arg_dict["fc_bias"]
    executor.copy_params_from(
        {"fc_bias": mx.nd.array([1, 2], dtype="float64")}, {"bn_moving_var": ones(2) * 3}
    )
    assert bias.asnumpy().tolist() == [1, 2]
    assert executor.aux_dict["bn_moving_var"].asnumpy().tolist() == [3, 3]
    with pytest.raises(ArgumentError, match="'zz' is not an argument of this graph: x, fc_weight"):
        executor.copy_params_from({"zz": ones(1)})
    with pytest.raises(ValueError, match="'zz' is not an auxiliary state"):
        executor.copy_params_from({}, {"zz": ones(1)})
    executor.copy_params_from({"zz": ones(1), "fc_bias": ones(2)}, {"zz": ones(1)}, allow_extra_params=True)
    assert bias.asnumpy().tolist() == [1, 1]
    with pytest.raises(ShapeError, match=r"fc_bias has shape \(3,\), expected \(2,\)"):
        executor.copy_params_from({"fc_bias": ones(3)})


def test_debug_str_shows_both_programs():
    text = bound(S.Variable("x") * 2, x=[1.0]).debug_str()
    assert text.count("def forward(values, env, shaped):") == 2


@pytest.mark.parametrize("source", ["int32", "float32", "float16"])
@pytest.mark.parametrize("target", ["int32", "float32", "float16"])
def test_gradients_pass_casts_to_and_from_integers(source, target):
    executor = S.Cast(S.Variable("x", dtype=source), dtype=target).simple_bind(mx.cpu(), x=(4,))
    values = np.array([-3.7, -0.2, 1.5, 8.9])
    executor.arg_arrays[0][:] = values
    out = executor.forward(is_train=True)[0]
    executor.backward(mx.nd.array(values, dtype=target))
    np.testing.assert_array_equal(out.asnumpy(), values.astype(source).astype(target))
    np.testing.assert_array_equal(executor.grad_arrays[0].asnumpy(), values.astype(target).astype(source))


def test_gradients_of_integers_that_an_operator_does_not_take_as_reals():
    x = S.Variable("x", dtype="int32")
    executor = S.dot(S.Cast(S.sqrt(x), "int32"), S.ones((2,), dtype="int32")).simple_bind(mx.cpu(), x=(2,))
    executor.arg_arrays[0][:] = [4, 9]
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [5]
    executor.backward(mx.nd.array([1], dtype="int32"))
    assert executor.grad_arrays[0].asnumpy().tolist() == [0, 0]


def test_the_context_has_mxnets_name_too():
    assert bound(S.Variable("x") * 2, x=[1.0])._ctx == mx.cpu()


def test_an_executor_is_not_copied():
    executor = (S.Variable("x") * 2).simple_bind(mx.cpu(), x=(2,))
    for way in (copy.deepcopy, pickle.dumps):
        with pytest.raises(
            StateError, match="cannot be copied or pickled; copy or pickle the symbol and the arrays"
        ):
            way(executor)
    assert copy.copy(executor).arg_dict is executor.arg_dict
