"""Wrong calls of `mx.sym`: operators, binding, inference, attributes, files, loops."""

import copy
import json

import numpy as np
from torch import nn

import dpmodule as mx
from dpmodule.base import (
    ArgumentError,
    BoundsError,
    DeviceError,
    DTypeError,
    FileFormatError,
    MXNetError,
    NodeError,
    NotImplementedForSymbol,
    OpError,
    ShapeError,
    SignatureError,
)
from dpmodule.symbol.control_flow import UnusedInputError
from helpers.control_flow_goldens import CASES

S = mx.sym
x, y, s = S.Variable("x"), S.Variable("y"), S.Variable("s")
A, W, B = mx.nd.ones((2, 5)), mx.nd.ones((3, 5)), mx.nd.ones((3,))
HALF = {"data": "float16"}
group, three = S.Group([x, y, x]), S.split(x, num_outputs=3, name="s")


def fc(name="fc"):
    return S.FullyConnected(S.Variable("data"), num_hidden=3, name=name)


def bind(*args, **options):
    return fc().bind(mx.cpu(), *args, **options)


def simple(ctx=mx.cpu(0), **options):  # noqa: B008
    return fc().simple_bind(ctx, **{"data": (2, 5), **options})


def borrow(name="fc", **options):
    return fc(name).simple_bind(
        mx.cpu(), shared_arg_names=[f"{name}_weight"], shared_exec=simple(), **options
    )


def picked(bind):
    net = S.batch_take(x, S.Variable("i"))
    if bind:
        return net.bind(
            mx.cpu(), [mx.nd.ones((4, 3)), mx.nd.zeros(4, dtype="int32")], {"x": mx.nd.zeros((4, 3))}
        )
    return net.simple_bind(mx.cpu(), x=(4, 3), i=(4,), type_dict={"i": "int32"})


def spoilt(change):
    """Infer shapes of a recorded loop after a change of its node."""
    rows = copy.deepcopy(CASES["foreach_dense"]["symbol"])
    change(next(node for node in rows["nodes"] if node["op"] == "_foreach"))
    S.load_json(json.dumps(rows)).infer_shape(data=(5, 2, 4))


def loop(body=lambda x, s: (x + s, s), data=x, states=s):
    return S.contrib.foreach(body, data, states)[0]


def repeat(body, states, most=3, cond=lambda s: s):
    return S.contrib.while_loop(cond, body, states, most)


def two_conditions():
    S.contrib.cond(s, lambda: x + 1, lambda: x - 1).simple_bind(mx.cpu(), s=(2,), x=(2,)).forward()


def potrf():
    net = loop(lambda x, s: (S.linalg.potrf(x, name="root"), s), states=[]).simple_bind(mx.cpu(), x=(2, 3, 3))
    net.forward(x=-mx.nd.ones((2, 3, 3)))


def wrong_shape_in_file():
    with mx.util.np_shape():
        S.load_json(
            S.exp(S.Variable("x", shape=(0, 4))).tojson().replace("(0, 4)", "(0, wide)")
        ).infer_shape()


def of_torch(module=None, **options):
    return S.torch_module(module or nn.Linear(3, 2), S.Variable("data"), name="x", **options)


ROWS = [
    *[(lambda o=o: x + o, TypeError, "") for o in ("x", None, [1], mx.nd.ones((2,)), np.ones(2), 1j)],
    (lambda: x - "x", TypeError, ""),
    (lambda: S.maximum(x, None), DTypeError, ""),
    (lambda: (x + y).infer_shape(x=(2, 3), y=(1, 3)), ShapeError, "disagree"),
    (lambda: bool(x), NotImplementedForSymbol, "__bool__"),
    (lambda: exec("a += b", {"a": x, "b": y}), NotImplementedForSymbol, "a = a"),
    (lambda: x.asnumpy(), NotImplementedForSymbol, "Symbol.asnumpy is not available"),
    # operators
    (lambda: S.FullyConnected(x), OpError, "num_hidden is required"),
    (lambda: S.FullyConnected(x, num_hidden="few"), OpError, "num_hidden is 'few', expected an integer"),
    (lambda: S.FullyConnected(x, num_hidden=2, wide=1), OpError, "unknown argument 'wide'.*data, weight"),
    (lambda: S.FullyConnected(3, num_hidden=2), OpError, "input data is int 3, expected a Symbol"),
    (lambda: S.FullyConnected(x, bias=x, num_hidden=2, no_bias=True), OpError, "input bias does not exist"),
    (lambda: S.FullyConnected(x, x, x, x, num_hidden=2), OpError, "num_hidden is given twice"),
    (lambda: S.relu(three), OpError, "has 3 outputs; select one"),
    (lambda: S.Concat(x, y, num_args=1), OpError, "num_args is 1, but 2 inputs"),
    (lambda: S.elemwise_add(x, x, x), OpError, "takes at most 2|3 inputs"),
    (lambda: S.relu(x, foreign=y), OpError, "foreign"),  # as in MXNet, an input that does not exist
    (lambda: S.relu(x)._set_attr(data_lr_mult="2"), OpError, "data_lr_mult"),
    (lambda: S.FulyConnected, AttributeError, "'FulyConnected'; did you mean FullyConnected"),
    (lambda: S.contrib.nothing_like_it, AttributeError, "sym.contrib has no operator 'nothing_like_it'"),
    (lambda: S.linspace(0, 1, 0), ArgumentError, "num is 0"),
    (lambda: S.zeros((2,), dtype="float7"), DTypeError, "float7"),
    (lambda: S.random.uniform(x, 1), ArgumentError, "low is Symbol, high is int"),
    (lambda: S.random.exponential(0), ArgumentError, "scale is 0"),
    # binding
    (lambda: bind([A, W]), ArgumentError, "args: got 2 arrays, expected 3: data, fc_weight, fc_bias"),
    (lambda: bind({"data": A}), ArgumentError, "args: missing fc_weight, fc_bias"),
    (lambda: bind(3), ArgumentError, "args is int"),
    (lambda: bind([np.ones((2, 5)), W, B]), ArgumentError, "args: data is ndarray, expected an NDArray"),
    (lambda: bind([A, A, B]), ShapeError, "FullyConnected 'fc' made at .*errors/symbol.py"),
    (lambda: bind([A, W, mx.nd.ones((3,), dtype="int32")]), DTypeError, "FullyConnected 'fc'"),
    (lambda: bind([A, W, B], args_grad=[A]), ArgumentError, "args_grad: got 1"),
    (lambda: bind([A, W, B], args_grad={"fc_weight": B}), ShapeError, "args_grad: fc_weight has shape"),
    (lambda: bind([A, W, B], grad_req="sometimes"), ArgumentError, "grad_req of data is 'sometimes'"),
    (lambda: bind([A, W, B], grad_req=["write"]), ArgumentError, "1 entries for 3 arguments"),
    (lambda: bind([A, W, B], group2ctx="dev"), ArgumentError, "group2ctx"),
    *[(lambda c=c: fc().bind(c, [A, W, B]), ArgumentError, "a Context such as") for c in (None, mx.cpu)],
    (lambda: S.BatchNorm(x, name="bn").bind(mx.cpu(), [A, B, B]), ArgumentError, "aux_states: missing"),
    (lambda: simple("cpu"), ArgumentError, "a Context such as"),
    (lambda: simple(mx.gpu(99)), DeviceError, r"gpu\(99\) does not exist"),
    (lambda: fc().simple_bind(mx.cpu()), ShapeError, "cannot infer the shape of data, fc_weight;"),
    (lambda: (x + S.Variable("x")).simple_bind(mx.cpu(), x=(2,)), ArgumentError, "two variables are named"),
    (lambda: simple(stype_dict={"data": "coo"}), ArgumentError, "stype_dict: data is 'coo'"),
    (lambda: simple(group2ctx="dev1"), ArgumentError, "group2ctx"),
    (lambda: simple(type_dict={"data": "float7"}), DTypeError, "float7"),
    (lambda: simple(data="wide"), DTypeError, "shape of data"),
    (lambda: borrow(data=(2, 6)), ShapeError, r"shared_exec has fc_weight of shape \(3, 5\)"),
    (lambda: borrow(data=(2, 5), type_dict=HALF), DTypeError, "shared_exec has fc_weight of type float32"),
    (lambda: borrow("other", data=(2, 5)), ArgumentError, "shared_exec has no 'other_weight'"),
    (lambda: (x + 1).eval(), ArgumentError, "args: missing x"),
    (lambda: picked(False), NodeError, "batch_take .* is not differentiable.*grad_req='null'"),
    (lambda: picked(True), NodeError, "is not differentiable"),
    # inference
    (lambda: fc().infer_shape((2, 5), fc_weight=(3, 5)), ArgumentError, "not both"),
    (lambda: fc().infer_shape((2, 5), (3, 5), (3,), (4,)), ArgumentError, "4 values for 3 arguments"),
    (lambda: fc().infer_shape(zz=(2,)), ArgumentError, "'zz' is not an argument; arguments: data"),
    (lambda: fc().infer_shape(data=5), DTypeError, "shape of data is 5"),
    (lambda: fc().infer_shape(data=(2, 5), fc_weight=(3, 6)), ShapeError, "'fc' made at .*errors/symbol.py"),
    (lambda: fc().infer_type(zz="float16"), ArgumentError, "'zz' is not an argument"),
    (lambda: fc().infer_type(data="float7"), DTypeError, "float7"),
    (lambda: fc().infer_type(data="int32", fc_weight="float32"), DTypeError, "'fc' made at"),
    (wrong_shape_in_file, ShapeError, r"__shape__ is '\(0, wide\)'"),
    # attributes
    (lambda: group._set_attr(__x__="2"), ArgumentError, "group"),
    (lambda: x.list_attr(recursive=True), ArgumentError, "attr_dict"),
    (lambda: mx.AttrScope(__a__=1), ArgumentError, "expected a string"),
    (lambda: S.Variable(3), SignatureError, "name is 3"),
    (lambda: S.Variable("x", foo="1"), ArgumentError, "'foo' is not of the form __x__"),
    (lambda: S.Variable("x", attr={"a": 1}), ArgumentError, "attribute a is 1"),
    (lambda: S.Variable("x", shape="wide"), ArgumentError, "shape is 'wide', expected a tuple of integers"),
    (lambda: S.Variable("x", lr_mult="fast"), ArgumentError, "lr_mult is 'fast', expected a number"),
    (lambda: S.Variable("x", dtype="float7"), ArgumentError, "dtype is 'float7'"),
    (lambda: S.Variable("x", init=3), ArgumentError, "init is 3, expected an initializer"),
    (lambda: S.Variable("x", stype="odd"), ArgumentError, "stype is 'odd', expected one of default"),
    # outputs and composition
    (lambda: group["zz"], ArgumentError, "'zz' is not an output of this symbol; outputs: x, y, x"),
    (lambda: group["x"], ArgumentError, "names several outputs"),
    (lambda: group[3], BoundsError, "output 3 of a symbol with 3 outputs"),
    (lambda: group[1.0], DTypeError, "1.0"),
    *[(lambda bad=bad: S.Group(bad), SignatureError, "Group") for bad in ([], [x, 3], [None])],
    (lambda: (x * 2)(zz=y), ArgumentError, "'zz' is not an argument"),
    (lambda: (x * 2)(y, x=y), SignatureError, "not both"),
    (lambda: (x * 2)(y, y), ArgumentError, "2 symbols for 1 arguments"),
    (lambda: (x * 2)(x=3), SignatureError, "x is 3"),
    (lambda: (x * 2)(x=three), SignatureError, "one output"),
    (lambda: S.Group([x * 2, y])(x=s, name="top"), ArgumentError, "name='top'"),
    (lambda: S.load_json(3), SignatureError, "load_json: got int"),
    (lambda: S.load(3), SignatureError, "fname is 3, expected a path"),
    (lambda: S.load_json("nonsense"), FileFormatError, ""),
    (lambda: x.get_backend_symbol("nothing"), MXNetError, "there is no backend 'nothing'"),
    (lambda: x.gradient(["x"]), MXNetError, "gradient is not implemented"),
    (lambda: x.as_np_ndarray(), MXNetError, "no mx.np"),
    # loops and branches
    (lambda: loop(data=3), ArgumentError, "data must be one array or symbol"),
    (lambda: loop(data=[]), ArgumentError, "data is empty"),
    (lambda: loop(lambda x, s: (s + 1, s)), UnusedInputError, "'x' has to be used in the loop body"),
    (lambda: loop(lambda x, s: (x, x), states=[s]), UnusedInputError, "states of another structure than"),
    (lambda: loop(lambda x, s: ([], []), states=[]), ArgumentError, "neither outputs nor states"),
    (lambda: repeat(lambda s: (s, s), [s], None), ArgumentError, "max_iterations should be specified"),
    (lambda: repeat(lambda s: (s, s), []), ArgumentError, "at least one symbol"),
    (lambda: repeat(lambda s: (s, s), [s], cond=lambda s: 3), ArgumentError, "cond returned 3"),
    (lambda: repeat(lambda s: (s, [s, s]), [s]), ArgumentError, "returned 2 loop variables"),
    (lambda: repeat(lambda s: (s, s), [s], "many"), ArgumentError, "max_iterations is 'many'"),
    (lambda: S.contrib.cond(s, lambda: x, lambda: [x, x]), ArgumentError, "then_func returned 1 outputs"),
    (lambda: S.contrib.cond(s, lambda: [], lambda: []), ArgumentError, "then returned no outputs"),
    (lambda: loop().infer_shape(x=(4, 3), s=(2,)), ShapeError, r"_foreach\d+.*_plus.*errors/symbol"),
    (
        lambda: loop(lambda xs, s: (xs[0] + xs[1], s), [x, y], []).infer_shape(x=(4, 3), y=(3, 3)),
        ShapeError,
        r"lengths differ: \[3, 4\]",
    ),
    (
        two_conditions,
        NodeError,
        r"the condition of cond returned an array of shape \(2,\), expected one number",
    ),
    (potrf, NodeError, r"_foreach\d+.*_linalg_potrf 'root' made at .*\(3, 3\)"),
    (lambda: spoilt(lambda node: node.pop("subgraphs")), FileFormatError, "has no list of 1 'subgraphs'"),
    (lambda: spoilt(lambda node: node["subgraphs"][0].pop("nodes")), FileFormatError, "subgraph 0 of node"),
    (
        lambda: spoilt(lambda node: node["subgraphs"][0]["nodes"][0].pop("name")),
        FileFormatError,
        "subgraph 0 of node .*: node 0",
    ),
    *[
        (lambda a=a, v=v: spoilt(lambda node: node["attrs"].update({a: v})), error, said)
        for a, v, error, said in (
            ("in_data_locs", "[99]", ShapeError, "do not match"),
            ("num_outputs", "1000000000000", FileFormatError, "its last subgraph 2"),
            ("in_data_locs", "nonsense", OpError, "in_data_locs"),
        )
    ],
    # torch modules as nodes
    (lambda: S.torch_module(3, x), ArgumentError, "expected a torch.nn.Module"),
    (lambda: S.torch_module(nn.ReLU(), 3), OpError, "input data is int 3, expected a Symbol"),
    (lambda: of_torch(size=3), OpError, "unknown argument 'size'"),
    (lambda: of_torch(num_outputs=2).infer_shape(data=(2, 3)), ShapeError, "num_outputs=N"),
    (lambda: of_torch().infer_shape(data=(4, 5)), ShapeError, "'x' made at .*torch module Linear fails on"),
    (lambda: of_torch().infer_shape(data=(4, 3), x_weight=(9, 9)), ShapeError, r"disagree: \(9, 9\) and"),
    (lambda: S.write_back(of_torch(), {}), ArgumentError, r"no value for x_weight, which is 0?\.?weight of"),
    (lambda: of_torch().tojson(), ArgumentError, r"'x' made at .*symbol\.py:\d+ runs a torch module"),
    (lambda folder: of_torch().save(folder / "net.json"), ArgumentError, "runs a torch module"),
]
