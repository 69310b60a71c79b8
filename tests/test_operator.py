"""Operators written in Python: `mx.operator`, `Custom`, and the old `NumpyOp` and `NDArrayOp`."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dpmodule as mx

LOG = []


class Scale(mx.operator.CustomOp):
    """Multiply by a number; count calls in the state and note what comes in."""

    def __init__(self, factor):
        super().__init__()
        self.factor, self.seen = factor, None

    def forward(self, is_train, req, in_data, out_data, aux):
        modes = mx.autograd.is_recording(), mx.autograd.is_training()
        LOG.append(("forward", is_train, tuple(req), *modes, str(mx.current_context())))
        self.seen = in_data[0].asnumpy()
        self.assign(out_data[0], req[0], in_data[0] * self.factor)
        aux[0][:] += 1

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        LOG.append(("backward", tuple(req)))
        assert (self.seen == in_data[0].asnumpy()).all()
        assert (out_data[0].asnumpy() == self.seen * np.float32(self.factor)).all()
        self.assign(in_grad[0], req[0], out_grad[0] * self.factor)
        self.assign(in_grad[1], req[1], mx.nd.zeros(in_data[1].shape))
        aux[0][:] += 10


@mx.operator.register("test_scale")
class ScaleProp(mx.operator.CustomOpProp):
    """Takes a state and an input that tells nothing."""

    def __init__(self, factor="2", **rest):
        super().__init__(need_top_grad=True)
        self.factor, self.rest = factor, rest

    def list_arguments(self):
        return ["data", "other"]

    def list_auxiliary_states(self):
        return ["calls"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (1,)], [in_shape[0]], [[1]]

    def create_operator(self, ctx, in_shapes, in_dtypes):
        LOG.append(("create", str(ctx), in_shapes, in_dtypes))
        return Scale(float(self.factor))


def prop(name, **methods):
    """Register a property class with other methods under a name."""
    made = type(name, (mx.operator.CustomOpProp,), methods)
    mx.operator.register(name)(made)
    return name


def custom(forward=None, backward=None):
    """Return a `create_operator` for given functions."""

    def default(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])

    methods = {"forward": forward or default} | ({"backward": backward} if backward else {})
    made = type("Op", (mx.operator.CustomOp,), methods)
    return lambda self, ctx, shapes, dtypes: made()


@pytest.fixture(autouse=True)
def empty_log():
    LOG.clear()


# in graphs


def test_node_is_written_as_mxnet_writes_it():
    with mx.AttrScope(ctx_group="dev1"):
        options = {"factor": 0.5, "shape": (1, 2), "none": None}
        symbol = mx.sym.Custom(mx.sym.Variable("data"), op_type="test_scale", name="cu", **options)
    assert symbol.list_arguments() == ["data", "cu_other"]
    assert symbol.list_auxiliary_states() == ["cu_calls"]
    assert symbol.list_outputs() == ["cu_output"]
    node = json.loads(symbol.tojson())["nodes"][-1]
    own = {"op_type": "test_scale", "factor": "0.5", "shape": "(1, 2)", "none": "None"}
    attrs, inputs = {"__ctx_group__": "dev1", **own}, [[0, 0, 0], [1, 0, 0], [2, 0, 1]]
    assert node == {"op": "Custom", "name": "cu", "attrs": attrs, "inputs": inputs}
    again = mx.sym.load_json(symbol.tojson())
    assert again.tojson() == symbol.tojson()
    assert again.entries[0][0].a.prop.rest == {"shape": "(1, 2)", "none": "None"}


def test_executor_calls_as_mxnet_does():
    symbol = mx.sym.Custom(mx.sym.Variable("data"), op_type="test_scale", name="cu", factor=3)
    executor = symbol.simple_bind(mx.cpu(1), data=(2, 3), grad_req={"data": "add", "cu_other": "null"})
    executor.forward(is_train=True, data=mx.nd.ones((2, 3), ctx=mx.cpu(1)))
    assert (executor.outputs[0].asnumpy() == 3).all()
    assert executor.aux_dict["cu_calls"].asscalar() == 1  # at once, unlike BatchNorm's
    executor.backward(mx.nd.ones((2, 3)))
    assert executor.aux_dict["cu_calls"].asscalar() == 11
    assert LOG == [
        ("create", "cpu(1)", [[2, 3], [1], [1]], [0, 0, 0]),
        ("forward", True, ("write",), False, True, "cpu(1)"),
        ("backward", ("write", "null")),
    ]
    executor.backward(mx.nd.ones((2, 3)))  # runs forward again, whose count is taken back
    assert executor.aux_dict["cu_calls"].asscalar() == 21
    assert (executor.grad_dict["data"].asnumpy() == 6).all()
    executor.forward(is_train=False)
    assert executor.aux_dict["cu_calls"].asscalar() == 22
    assert sum(entry[0] == "create" for entry in LOG) == 1  # one operator, in all modes
    assert LOG[-1][:2] == ("forward", False)


def test_several_outputs_of_several_types():
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0].sum(axis=1))
        self.assign(out_data[1], req[1], in_data[0].argmax(axis=1))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        assert out_grad[1].dtype == np.int32
        assert not out_grad[1].asnumpy().any()
        self.assign(in_grad[0], req[0], mx.nd.broadcast_axis(out_grad[0].expand_dims(1), axis=1, size=3))

    prop(
        "test_two",
        list_outputs=lambda self: ["total", "best"],
        infer_shape=lambda self, s: (s, [s[0][:1], s[0][:1]], []),
        infer_type=lambda self, t: (t, [t[0], np.int32], []),
        create_operator=custom(forward, backward),
    )
    both = mx.sym.Custom(mx.sym.Variable("x"), op_type="test_two", name="two")
    assert both.list_outputs() == ["two_total", "two_best"]
    assert both.infer_type(x="float16")[1] == [np.float16, np.int32]
    prop(
        "test_alike",
        list_arguments=lambda self: ["x", "w"],
        infer_shape=lambda self, s: (s[:1] * 2, s[:1], []),
        infer_type=lambda self, t: (t[:1] * 2, t[:1], []),
    )
    alike = mx.sym.Custom(mx.sym.Variable("x"), mx.sym.Variable("w"), op_type="test_alike")
    assert alike.infer_type(x="float64") == ([np.float64] * 2, [np.float64], [])
    with pytest.warns(UserWarning, match="cannot infer every type"):
        assert alike.infer_type(w="float64") == (None, None, None)
    executor = both[0].simple_bind(mx.cpu(), x=(2, 3))
    executor.forward(is_train=True, x=mx.nd.array([[1, 5, 2], [7, 1, 1]]))
    executor.backward(mx.nd.array([1, 2]))
    assert executor.grad_dict["x"].asnumpy().tolist() == [[1, 1, 1], [2, 2, 2]]


# under autograd


def test_recorded_calls_and_the_state_given_as_an_array():
    x, calls, other = mx.nd.array([[1.0, 2.0]]), mx.nd.zeros((1,)), mx.nd.ones((1,))
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Custom(x, other, calls, op_type="test_scale", factor=3) ** 2
    node = mx.autograd.get_symbol(y).get_children().entries[0][0]
    assert node.params == {"op_type": "test_scale", "factor": "3"}
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 2 * 9 * x.asnumpy())
    assert calls.asscalar() == 11
    assert [entry[0] for entry in LOG] == ["create", "forward", "backward"]
    found = mx.nd.Custom(calls=calls, other=other, data=x, op_type="test_scale", factor=3)
    assert found.asnumpy().tolist() == [[3, 6]]
    assert LOG[-1] == ("forward", False, ("write",), False, False, "cpu(0)")


def test_backward_under_a_monitor_calls_both_once_more():
    symbol = mx.sym.Custom(mx.sym.Variable("data"), op_type="test_scale", name="cu")
    executor = symbol.simple_bind(mx.cpu(), data=(2, 3))
    executor.set_monitor_callback(lambda name, array: None)
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2, 3)))
    assert [entry[0] for entry in LOG] == ["create", *["forward"] * 2, *["backward"] * 2]


def test_operator_inside_a_loop_keeps_one_object_per_step():
    data = mx.sym.Variable("data")
    options = {"op_type": "test_scale", "name": "cu", "factor": 3}
    out, _ = mx.sym.contrib.foreach(lambda x, s: (mx.sym.Custom(x, **options), s), data, [])
    executor = out.simple_bind(mx.cpu(), data=(4, 2))
    draw = mx.nd.array(np.arange(8).reshape(4, 2))
    for _ in range(2):
        executor.forward(is_train=True, data=draw)
        executor.backward(mx.nd.ones((4, 2)))  # the operator checks that it sees what its forward saw
    assert (executor.outputs[0].asnumpy() == draw.asnumpy() * 3).all()
    assert (executor.grad_dict["data"].asnumpy() == 3).all()
    assert sum(entry[0] == "create" for entry in LOG) == 4
    assert executor.arg_dict["cu_calls"].asscalar() == 2 * 4 * 11


# errors


def fail(self, *args, **kwargs):
    raise LookupError("a user's own mistake")


@pytest.mark.parametrize(
    "where", ["forward", "backward", "infer_shape", "infer_type", "create_operator", "__init__"]
)
def test_exceptions_of_users_code_keep_their_type_and_are_ours_too(where):
    name = f"test_fail_{where}"
    if where in ("forward", "backward"):
        prop(name, create_operator=custom(**{where: fail}))
    else:
        prop(name, **{where: fail})

    def graph(watched=False):
        executor = mx.sym.Custom(mx.sym.Variable("x"), op_type=name).simple_bind(mx.cpu(), x=(2,))
        executor.set_monitor_callback((lambda name, array: None) if watched else None)
        executor.forward(is_train=True)
        executor.set_monitor_callback(None)
        executor.backward(mx.nd.ones((2,)))

    def arrays():
        x = mx.nd.ones((2,))
        x.attach_grad()
        with mx.autograd.record():
            y = mx.nd.Custom(x, op_type=name)
        y.backward()

    for run in (graph, lambda: graph(watched=True), arrays):
        with pytest.raises(LookupError, match="a user's own mistake") as caught:
            run()
        assert caught.traceback[-1].name == "fail"
        assert isinstance(caught.value, mx.MXNetError)
        assert type(caught.value.__cause__) is LookupError


def test_assign_knows_every_request():
    op, target = mx.operator.CustomOp(), mx.nd.ones((2,))
    op.assign(None, "null", 3)
    for req, expected in (("write", 3), ("inplace", 3), ("add", 6)):
        op.assign(target, req, 3)
        assert target.asnumpy().tolist() == [expected] * 2


def test_exception_in_one_of_several_contexts_arrives_as_it_is():
    prop("test_fail_there", create_operator=custom(fail))
    net = mx.sym.Custom(mx.sym.Variable("data"), op_type="test_fail_there")
    module = mx.mod.Module(net, label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    module.bind([("data", (4, 2))], for_training=False)
    module.init_params()
    with pytest.raises(LookupError, match="a user's own mistake"):
        module.forward(mx.io.DataBatch([mx.nd.ones((4, 2))]))


# threads


def test_threads_do_not_wait_for_each_other():
    meeting = threading.Barrier(2, timeout=10)

    def forward(self, is_train, req, in_data, out_data, aux):
        meeting.wait()  # both threads are inside at the same time
        self.assign(out_data[0], req[0], in_data[0] + 1)

    prop("test_meet", create_operator=custom(forward))

    def run(_):
        return mx.nd.Custom(mx.nd.ones((2,)), op_type="test_meet").asnumpy().tolist()

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(run, range(2))] == [[2, 2]] * 2


@pytest.mark.parametrize("in_thread", [False, True])
def test_operator_that_runs_a_module_of_its_own(in_thread):
    contexts = [mx.cpu(0), mx.cpu(1)]

    def forward(self, is_train, req, in_data, out_data, aux):
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, no_bias=True)
        module = mx.mod.Module(net, label_names=None, context=contexts)
        module.bind([("data", (2, 2))], for_training=False)
        module.init_params(mx.init.One())
        batch = mx.io.DataBatch([in_data[0]])
        if in_thread:
            thread = threading.Thread(target=module.forward, args=(batch,), daemon=True)
            thread.start()
            thread.join(15)
        else:
            module.forward(batch)
        self.assign(out_data[0], req[0], module.get_outputs()[0])

    prop("test_with_module", create_operator=custom(forward))
    net = mx.sym.Custom(mx.sym.Variable("data"), op_type="test_with_module")
    module = mx.mod.Module(net, label_names=None, context=contexts)
    module.bind([("data", (4, 2))], for_training=False)
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.ones((4, 2))]))
    assert (module.get_outputs()[0].asnumpy() == 2).all()


# before CustomOp


class OldLoss(mx.operator.NumpyOp):
    """The difference from a label as the gradient, over NumPy arrays."""

    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def list_outputs(self):
        return ["same"]

    def infer_shape(self, in_shape):
        return [in_shape[0], in_shape[0]], [in_shape[0]]

    def forward(self, in_data, out_data):
        out_data[0][:] = in_data[0]

    def backward(self, out_grad, in_data, out_data, in_grad):
        assert out_grad == []
        in_grad[0][:] = out_data[0] - in_data[1]


class OldSquare(mx.operator.NDArrayOp):
    """Square over arrays."""

    def forward(self, in_data, out_data):
        out_data[0][:] = in_data[0] * in_data[0]

    def backward(self, out_grad, in_data, out_data, in_grad):
        in_grad[0][:] = 2 * in_data[0] * out_grad[0]


def test_numpy_op():
    with pytest.warns(DeprecationWarning, match="use CustomOp"):
        made = OldLoss()
    net = made(data=mx.sym.Variable("x"), name="loss")
    assert net.list_arguments() == ["x", "loss_label"]
    assert net.list_outputs() == ["loss_same"]
    executor = net.simple_bind(mx.cpu(), x=(2,))
    executor.forward(is_train=True, x=mx.nd.array([5, 7]), loss_label=mx.nd.array([1, 3]))
    executor.backward()
    assert executor.grad_dict["x"].asnumpy().tolist() == [4, 4]
    node = json.loads(net.tojson())["nodes"][-1]
    assert node["op"] == "_Native"
    assert node["attrs"]["need_top_grad"] == "False"


def test_ndarray_op_and_its_file():
    with pytest.warns(DeprecationWarning, match="use CustomOp"):
        made = OldSquare()
    net = made.get_symbol(mx.sym.Variable("x"), name="square")
    text = net.tojson()
    executor = mx.sym.load_json(text).simple_bind(mx.cpu(), x=(2,))
    executor.forward(is_train=True, x=mx.nd.array([3, 4]))
    executor.backward(mx.nd.array([1, 10]))
    assert executor.outputs[0].asnumpy().tolist() == [9, 16]
    assert executor.grad_dict["x"].asnumpy().tolist() == [6, 80]


# what there is


DENSE = ["int, required", "boolean, optional, default=0", "boolean, optional, default=1"]
ARGUMENTS = [
    ("Activation", "data act_type", ["{'relu', 'sigmoid', 'softrelu', 'softsign', 'tanh'}, required"]),
    ("FullyConnected", "data weight bias num_hidden no_bias flatten", DENSE),
    ("Concat", "data num_args dim", ["int, optional, default=0", "int, optional, default=1"]),
]


@pytest.mark.parametrize(("name", "names", "types"), ARGUMENTS)
def test_arguments_of_operators(name, names, types):
    assert {name, "Custom", "_foreach"} <= set(mx.operator.get_all_registered_operators())
    found = mx.operator.get_operator_arguments(name)
    assert isinstance(found, mx.operator.OperatorArguments)
    names = names.split()
    arrays = ["NDArray-or-Symbol[]" if name == "Concat" else "NDArray-or-Symbol"] * (len(names) - len(types))
    assert found == (len(names), names, arrays + types)


def test_a_star_import_brings_what_monitors_of_mxnet_programs_use():
    names: dict[str, object] = {}
    exec("from dpmodule.operator import *", names)
    assert names["NDArray"] is mx.nd.NDArray
    assert names["py_str"](b"x") == "x"
    array = mx.nd.ones((2,))
    number = names["ctypes"].cast(array, names["NDArrayHandle"])
    np.testing.assert_array_equal(names["NDArray"](number, writable=False).asnumpy(), array.asnumpy())
