import dpmodule as mx

S = mx.sym


def test_operators_of_many_inputs_take_lists_and_symbols_of_many_outputs():
    parts = S.split(S.Variable("x"), num_outputs=3, name="s")
    for net in (S.Concat(*parts), S.Concat(list(parts)), S.Concat(parts), S.add_n(*parts)):
        assert [i for _, i in net.entries[0][0].inputs] == [0, 1, 2]


def test_operators_without_parameters_keep_any_keyword():
    x, y = S.Variable("x"), S.Variable("y")
    net = S.elemwise_add(x, name="sum", shape=(2,), dtype="int8", ctx="cpu(0)", lr_mult=2)
    kept = {"shape": "(2,)", "dtype": "int8", "ctx": "cpu(0)"}
    assert net.list_attr() == {**kept, "__lr_mult__": "2", "lr_mult": "2"}
    assert net.list_arguments() == ["x", "sum_rhs"]
    assert kept.items() <= net.attr_dict()["sum_rhs"].items()
    net._set_attr(later="yes")
    assert mx.sym.load_json(net.tojson()).attr_dict() == net.attr_dict()
    with mx.AttrScope(scope="a"):
        assert S.BlockGrad(x, attr={"own": "b"}).list_attr() == {"scope": "a", "own": "b"}
    assert x.relu(foreign=1).attr("foreign") == "1"
    out, grad = S.LinearRegressionOutput(x, y, foreign=1, grad_scale=2), mx.nd.zeros((2,))
    assert out.list_attr() == {"foreign": "1", "grad_scale": "2"}
    bound = out.bind(mx.cpu(), {"x": mx.nd.ones((2,)), "y": mx.nd.zeros((2,))}, args_grad={"x": grad})
    bound.forward(is_train=True)
    bound.backward()
    assert grad.asnumpy().tolist() == [2, 2]
