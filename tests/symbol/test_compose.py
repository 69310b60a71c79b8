from pathlib import Path

import dpmodule as mx

S = mx.sym


def test_the_users_line_is_kept():
    node = S.relu(S.Variable("x")).entries[0][0]
    file, line = node.source.rsplit(":", 1)
    assert file == __file__
    assert "S.relu" in Path(file).read_text().splitlines()[int(line) - 1]
    assert node.inputs[0][0].source == node.source


def test_inputs_by_position_and_name_may_be_mixed():
    d, w = S.Variable("d"), S.Variable("w")
    assert S.FullyConnected(d, weight=w, num_hidden=2).list_arguments()[:2] == ["d", "w"]
    assert S.FullyConnected(d, None, w, 2, name="fc").list_arguments() == ["d", "fc_weight", "w"]


def test_operators_of_many_inputs_take_lists_and_symbols_of_many_outputs():
    parts = S.split(S.Variable("x"), num_outputs=3, name="s")
    for net in (S.Concat(*parts), S.Concat(list(parts)), S.Concat(parts), S.add_n(*parts)):
        assert [i for _, i in net.entries[0][0].inputs] == [0, 1, 2]


def test_missing_inputs_of_many_become_variables():
    assert S.Concat(S.Variable("a"), num_args=3, name="c").list_arguments() == ["a", "c_arg1", "c_arg2"]


def test_automatic_names_count_per_operator_and_manager():
    with mx.name.NameManager():
        x = S.Variable("x")
        names = [S.relu(x).name, S.relu(x).name, S.tanh(x).name, (x + 1).name, (x + 1).name]
        with mx.name.NameManager():
            names.append(S.relu(x).name)
        names.append(S.relu(x).name)
    assert names == ["relu0", "relu1", "tanh0", "_plusscalar0", "_plusscalar1", "relu0", "relu2"]


def test_prefix_is_put_before_every_name():
    with mx.name.Prefix("net_"):
        assert S.relu(S.Variable("x")).name == "net_relu0"
        assert S.relu(S.Variable("x"), name="mine").list_outputs() == ["net_mine_output"]
    assert S.Variable("x").name == "x"


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
    out = S.LinearRegressionOutput(x, y, foreign=1, grad_scale=2)
    assert out.list_attr() == {"foreign": "1", "grad_scale": "2"}
    grad = mx.nd.zeros((2,))
    bound = out.bind(mx.cpu(), {"x": mx.nd.ones((2,)), "y": mx.nd.zeros((2,))}, args_grad={"x": grad})
    bound.forward(is_train=True)
    bound.backward()
    assert grad.asnumpy().tolist() == [2, 2]
