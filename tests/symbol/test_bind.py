import pytest

import dpmodule as mx

S = mx.sym


def fc():
    return S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc")


def test_arrays_for_gradients_that_are_not_asked_for_stay_as_they_are():
    for grad_req, written in (
        *(("null", ([7, 7], [8, 8])), ({"y": "write"}, ([7, 7], [1, 2]))),
        *((["write", "null"], ([3, 4], [8, 8])), (["null", "add"], ([7, 7], [9, 10]))),
        ({}, ([7, 7], [8, 8])),
    ):
        args = {"x": mx.nd.array([1, 2]), "y": mx.nd.array([3, 4])}
        grads = {"x": mx.nd.array([7, 7]), "y": mx.nd.array([8, 8])}
        executor = (S.Variable("x") * S.Variable("y")).bind(
            mx.cpu(), args, args_grad=grads, grad_req=grad_req
        )
        executor.forward(is_train=True)
        executor.backward(mx.nd.ones((2,)))
        assert all(executor.grad_dict[name] is grads[name] for name in "xy")
        assert [grad.asnumpy().tolist() for grad in executor.grad_arrays] == list(written)
        smaller = executor.reshape(x=(1,), y=(1,))
        wanted = [request != "null" for request in executor.grad_req.values()]
        assert [grad is not None for grad in smaller.grad_arrays] == wanted
        alone = (S.Variable("x") * 2).bind(mx.cpu(), {"x": args["x"]}, [mx.nd.zeros((3,))], "null")
        assert alone.grad_arrays[0].shape == (3,)  # nothing reads it


def test_simple_bind_ignores_names_that_are_not_there_with_a_warning():
    with pytest.warns(UserWarning, match="the shape of softmax_label ignored") as caught:
        executor = fc().simple_bind(mx.cpu(), data=(2, 5), softmax_label=(2,))
    assert (caught[0].filename, list(executor.arg_dict)) == (__file__, ["data", "fc_weight", "fc_bias"])
    with pytest.warns(UserWarning, match="the type of zz ignored"):
        fc().simple_bind(mx.cpu(), data=(2, 5), type_dict={"zz": "float16"})


def test_parameters_gradients_and_states_are_borrowed():
    net = S.BatchNorm(fc(), name="bn")
    first, names = net.simple_bind(mx.cpu(), data=(4, 5)), ["fc_weight", "fc_bias", "bn_gamma", "bn_beta"]
    second = net.simple_bind(mx.cpu(), shared_arg_names=names, shared_exec=first, data=(2, 5))
    assert second.arg_dict["fc_weight"] is first.arg_dict["fc_weight"]
    assert second.grad_dict["fc_weight"] is first.grad_dict["fc_weight"]
    assert second.aux_dict["bn_moving_mean"] is first.aux_dict["bn_moving_mean"]
    assert second.arg_dict["data"].shape == (2, 5)
    assert second.grad_dict["data"] is not first.grad_dict["data"]


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


def test_arrays_of_one_cpu_context_may_be_bound_on_another():
    executor = (S.Variable("x") * 2).bind(mx.cpu(1), {"x": mx.nd.ones((2,))})
    assert executor.forward()[0].asnumpy().tolist() == [2, 2]


def test_eval_ignores_arrays_of_other_names():
    one = mx.nd.ones((2,))
    assert (mx.sym.Variable("a") + 1).eval(a=one, b=one)[0].asnumpy().tolist() == [2, 2]
