import numpy as np
import pytest

import dpmodule as mx

S = mx.sym


def fc():
    return S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc")


def arrays():
    return [mx.nd.ones((2, 5)), mx.nd.ones((3, 5)), mx.nd.ones((3,))]


def test_bind_takes_lists_and_dicts_and_uses_the_users_arrays():
    args, grads = arrays(), [mx.nd.zeros(x.shape) for x in arrays()]
    executor = fc().bind(mx.cpu(), args, args_grad=grads)
    assert all(a is b for a, b in zip(executor.arg_arrays, args, strict=True))
    assert all(a is b for a, b in zip(executor.grad_arrays, grads, strict=True))
    named = dict(zip(fc().list_arguments(), arrays(), strict=True))
    other = fc().bind(mx.cpu(), {**named, "of no use": mx.nd.ones((1,))})
    assert other.forward()[0].asnumpy().tolist() == [[6, 6, 6], [6, 6, 6]]
    assert other.grad_arrays == [None, None, None]


def test_bind_gives_gradients_only_where_an_array_is():
    args, weight = arrays(), mx.nd.zeros((3, 5))
    assert fc().bind(mx.cpu(), args, args_grad={"fc_weight": weight}).grad_arrays == [None, weight, None]
    assert fc().bind(mx.cpu(), args, args_grad=[None, weight, None]).grad_arrays == [None, weight, None]
    reqs = {"data": "write", "fc_weight": "null"}
    assert fc().bind(mx.cpu(), args, args_grad=args, grad_req=reqs).grad_dict["fc_weight"] is args[1]


@pytest.mark.parametrize(
    ("grad_req", "written"),  # as MXNet 1.9.1 leaves x and y after backward of x * y
    [
        ("null", ([7, 7], [8, 8])),
        ({"y": "write"}, ([7, 7], [1, 2])),
        (["write", "null"], ([3, 4], [8, 8])),
        (["null", "add"], ([7, 7], [9, 10])),
        ({}, ([7, 7], [8, 8])),
    ],
)
def test_arrays_for_gradients_that_are_not_asked_for_stay_as_they_are(grad_req, written):
    args = {"x": mx.nd.array([1, 2]), "y": mx.nd.array([3, 4])}
    grads = {"x": mx.nd.array([7, 7]), "y": mx.nd.array([8, 8])}
    executor = (S.Variable("x") * S.Variable("y")).bind(mx.cpu(), args, args_grad=grads, grad_req=grad_req)
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2,)))
    assert all(executor.grad_dict[name] is grads[name] for name in "xy")
    assert [grad.asnumpy().tolist() for grad in executor.grad_arrays] == list(written)
    smaller = executor.reshape(x=(1,), y=(1,))
    wanted = [request != "null" for request in executor.grad_req.values()]
    assert [grad is not None for grad in smaller.grad_arrays] == wanted
    alone = (S.Variable("x") * 2).bind(mx.cpu(), {"x": args["x"]}, [mx.nd.zeros((3,))], "null")
    assert alone.grad_arrays[0].shape == (3,)  # nothing reads it


def test_arrays_of_one_cpu_context_may_be_bound_on_another():
    executor = (S.Variable("x") * 2).bind(mx.cpu(1), {"x": mx.nd.ones((2,))})
    assert executor.forward()[0].asnumpy().tolist() == [2, 2]


def test_bind_with_states():
    args, states = (
        [mx.nd.ones((2, 3)), mx.nd.ones((3,)), mx.nd.ones((3,))],
        [mx.nd.zeros((3,)), mx.nd.ones((3,))],
    )
    executor = S.BatchNorm(S.Variable("x"), name="bn").bind(mx.cpu(), args, aux_states=states)
    assert all(a is b for a, b in zip(executor.aux_arrays, states, strict=True))


def test_simple_bind_allocates_zeros_of_inferred_shape_and_type():
    executor = fc().simple_bind(mx.cpu(1), data=(2, 5), type_dict={"data": "float16"})
    shapes = {"data": (2, 5), "fc_weight": (3, 5), "fc_bias": (3,)}
    for made in (executor.arg_dict, executor.grad_dict):
        assert {k: (v.shape, v.dtype) for k, v in made.items()} == {
            k: (v, np.float16) for k, v in shapes.items()
        }
        assert not any(v.asnumpy().any() for v in made.values())
    assert all(a.context == mx.cpu(1) for a in executor.arg_arrays + executor.outputs)


@pytest.mark.parametrize(
    ("grad_req", "kept"),
    [
        ("null", []),
        ({"fc_weight": "write", "not there": "add"}, ["fc_weight"]),
        (["null", "add", "write"], ["fc_weight", "fc_bias"]),
    ],
)
def test_simple_bind_keeps_the_gradients_asked_for(grad_req, kept):
    executor = fc().simple_bind(mx.cpu(), grad_req=grad_req, data=(2, 5))
    assert [k for k, v in executor.grad_dict.items() if v is not None] == kept


def test_simple_bind_ignores_names_that_are_not_there_with_a_warning():
    with pytest.warns(UserWarning, match="the shape of softmax_label ignored") as caught:
        executor = fc().simple_bind(mx.cpu(), data=(2, 5), softmax_label=(2,))
    assert caught[0].filename == __file__
    assert list(executor.arg_dict) == ["data", "fc_weight", "fc_bias"]
    with pytest.warns(UserWarning, match="the type of zz ignored"):
        fc().simple_bind(mx.cpu(), data=(2, 5), type_dict={"zz": "float16"})


def test_parameters_gradients_and_states_are_borrowed():
    net = S.BatchNorm(fc(), name="bn")
    first = net.simple_bind(mx.cpu(), data=(4, 5))
    names = ["fc_weight", "fc_bias", "bn_gamma", "bn_beta"]
    second = net.simple_bind(mx.cpu(), shared_arg_names=names, shared_exec=first, data=(2, 5))
    assert second.arg_dict["fc_weight"] is first.arg_dict["fc_weight"]
    assert second.grad_dict["fc_weight"] is first.grad_dict["fc_weight"]
    assert second.aux_dict["bn_moving_mean"] is first.aux_dict["bn_moving_mean"]
    assert second.arg_dict["data"].shape == (2, 5)
    assert second.grad_dict["data"] is not first.grad_dict["data"]


def test_a_pool_lends_memory_to_executors_of_other_sizes():
    pool = {}
    large = fc().simple_bind(mx.cpu(), data=(4, 5), shared_buffer=pool)
    small = fc().simple_bind(mx.cpu(), data=(2, 5), shared_buffer=pool)
    assert set(pool) == {n for k in fc().list_arguments() for n in (k, f"grad of {k}")}
    assert small.arg_dict["fc_weight"] is large.arg_dict["fc_weight"]
    small.arg_dict["data"][:] = 7
    assert large.arg_dict["data"].asnumpy()[:, 0].tolist() == [7, 7, 0, 0]


def test_eval():
    x, net = mx.nd.ones((2, 5)), S.BatchNorm(S.Variable("x"), name="bn")
    assert ((S.Variable("a") + 1).eval(a=x)[0].asnumpy() == 2).all()
    ones = {k: mx.nd.ones((5,)) for k in net.list_inputs() if k != "x"}
    assert net.eval(ctx=mx.cpu(1), x=x, **ones)[0].context == mx.cpu(1)


def test_operators_without_gradient_are_bound_where_none_is_needed():
    picked = S.batch_take(S.Variable("x"), S.Variable("i"))
    given = {"x": (4, 3), "i": (4,), "type_dict": {"i": "int32"}}
    picked.simple_bind(mx.cpu(), grad_req="null", **given).forward()
    blocked = S.BlockGrad(picked).simple_bind(mx.cpu(), **given)
    blocked.forward(is_train=True)
    blocked.backward()
    assert (blocked.grad_dict["x"].asnumpy() == 0).all()
    beside = S.Group([S.BlockGrad(picked), S.Variable("y") * 2])
    beside.simple_bind(mx.cpu(), grad_req={"y": "write"}, y=(1,), **given)


def test_an_input_may_be_called_self():
    net = S.FullyConnected(S.Variable("self"), num_hidden=3, name="fc")
    assert net.infer_shape(self=(2, 4))[1] == [(2, 3)]
    assert net.infer_type(self="float32")[1] == [np.float32]
    bound = net.simple_bind(mx.cpu(), self=(2, 4))
    assert bound.forward(self=mx.nd.ones((2, 4)))[0].shape == (2, 3)
    assert bound.reshape(self=(1, 4)).forward()[0].shape == (1, 3)
    assert net(self=S.Variable("other")).list_arguments()[0] == "other"
