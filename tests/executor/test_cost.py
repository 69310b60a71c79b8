"""Counts of arithmetic: against torch's own counter where it has one, by formula and by other networks elsewhere."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

import dpmodule as mx
from dpmodule.executor.cost import backward_flops, forward_flops
from dpmodule.graph import infer_shapes

S = mx.sym
X = S.Variable("data")


def counted(net, **shapes):
    """Operations forward, of the whole network and by operator's name."""
    found = forward_flops(net.graph, infer_shapes(net.graph, shapes))
    by_name = {}
    for node, flops in found.items():
        by_name[node.op.name] = by_name.get(node.op.name, 0) + flops
    return sum(found.values()), by_name


def weight(*shape):
    return S.Variable("w", shape=shape)


DENSE = S.FullyConnected(S.FullyConnected(X, num_hidden=7), num_hidden=3)
TURNED = {"transpose_a": True, "transpose_b": True}
NETS = [
    (S.Convolution(X, kernel=(3, 3), num_filter=8, num_group=4, stride=(1, 2)), (2, 4, 9, 8)),
    (S.Convolution(X, kernel=(2, 3, 2), num_filter=5), (2, 4, 5, 6, 7)),
    (S.Deconvolution(X, kernel=(4, 4), stride=(2, 2), num_filter=6, num_group=2), (2, 4, 5, 6)),
    (DENSE, (4, 2, 5)),
    (S.dot(X, weight(6, 4), **TURNED), (4, 5)),
    (S.batch_dot(X, weight(3, 6, 5), transpose_b=True), (3, 4, 5)),
    (S.linalg.gemm2(X, weight(3, 4, 6), transpose_a=True), (3, 4, 5)),
]


@pytest.mark.parametrize(("net", "shape"), NETS)
@pytest.mark.parametrize("data_wanted", [True, False])
def test_products_equal_what_torch_counts(net, shape, data_wanted):
    requirements = dict.fromkeys(net.list_arguments(), "write")
    requirements["data"] = "write" if data_wanted else "null"
    executor = net.simple_bind(mx.cpu(), grad_req=requirements, data=shape)
    counters = [FlopCounterMode(display=False) for _ in range(2)]
    with executor.trial_run(True) as run:
        with counters[0]:
            result = run.forward()
        with counters[1]:
            run.backward(run.head_gradients(result))
    found, counts = executor.explain(), [each.get_total_flops() for each in counters]
    assert found.flops == counts[0] > 0
    if "num_group" in net.tojson():  # torch's counter forgets the groups in backward
        assert found.backward_flops <= 2 * found.flops
    else:
        assert found.backward_flops == counts[1] > 0


def test_attention_takes_two_products():
    length, batch, heads, width = 5, 2, 3, 4
    products, more = 2 * batch * heads * length * width, S.Variable("more")
    data = {"data": (7, batch, heads * width)}
    for kind, given, count, shapes in (
        ("selfatt", (X,), length, {"data": (length, batch, heads * width * 3)}),
        ("encdec", (X, more), 7, data | {"more": (length, batch, heads * width * 2)}),
    ):
        operators = [getattr(S.contrib, f"interleaved_matmul_{kind}_{part}") for part in ("qk", "valatt")]
        values = operators[1](given[-1], S.softmax(operators[0](*given, heads=heads)), heads=heads)
        _, by_name = counted(values, **shapes)
        found = {by_name[f"_contrib_interleaved_matmul_{kind}_{part}"] for part in ("qk", "valatt")}
        assert found == {products * count}


STATE = S.Variable("state", shape=(4, 6))
STEP = 2 * 4 * 6 * 6  # of a product with `SQUARE`
SQUARE = weight(6, 6)
COUNT = S.Variable("i", shape=(1,))
LOOP = S.contrib.while_loop(lambda i, x: i < 3, lambda i, x: ([], [i + 1, S.dot(x, SQUARE)]), [COUNT, X], 5)
ONCE, TWICE = (lambda: S.dot(X, SQUARE)), (lambda: S.dot(S.dot(X, SQUARE), SQUARE))


FLOPS = [
    (S.relu(X), (1, 2, 3, 4), 24),
    (S.sum(X), (1, 2, 3, 4), 24),
    (S.transpose(X), (1, 2, 3, 4), 0),
    (S.Embedding(X, input_dim=10, output_dim=7), (1, 2, 3, 4), 0),
    (S.Pooling(X, kernel=(2, 2), stride=(1, 1), pool_type="max"), (1, 2, 3, 4), 12 * 4),
    (S.Pooling(X, kernel=(2, 2), global_pool=True, pool_type="avg"), (1, 2, 3, 4), 24),
    (S.linalg.syrk(X), (1, 2, 3, 4), 2 * 2 * 3 * 3 * 4),
    (S.broadcast_add(X, S.Variable("y", shape=(5, 1, 2, 3, 4))), (1, 2, 3, 4), 120),
    (S.contrib.foreach(lambda x, s: (x, S.dot(s, SQUARE) + x), X, STATE)[0], (7, 4, 6), 7 * (STEP + 24)),
    (LOOP[1][1], (4, 6), 5 * (STEP + 2)),
    (S.contrib.cond(S.Variable("p", shape=(1,)) > 0, TWICE, ONCE), (4, 6), 2 * STEP + 1),
    (S.FullyConnected(X, num_hidden=10**6, no_bias=True), (1024, 10**6), 2 * 1024 * 10**12),
    (S.FullyConnected(X, num_hidden=5), None, 0),
]


@pytest.mark.parametrize(("net", "shape", "flops"), FLOPS)
def test_other_operators(net, shape, flops):
    assert counted(net, **({"data": shape} if shape else {}))[0] == flops


def test_gradients_that_nobody_wants_cost_nothing():
    frozen = S.FullyConnected(X, num_hidden=5, name="frozen")
    net = S.FullyConnected(S.BlockGrad(S.relu(frozen)), num_hidden=3, name="top")
    graph = net.graph
    forward = forward_flops(graph, infer_shapes(graph, {"data": (2, 4)}))
    for wanted, cost in ((["top_weight", "top_bias"], 2 * 2 * 3 * 5), (["frozen_weight"], 0), ([], 0)):
        assert sum(backward_flops(graph, forward, wanted).values()) == cost
