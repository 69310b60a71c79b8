"""Counts of arithmetic: against torch's own counter where it has one, by formula and by other networks elsewhere."""

import pytest
import torch
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


def convolution(data, count, size, stride=1, name=None, **more):
    pad = (size // 2, size // 2)
    where = {"kernel": (size, size), "stride": (stride, stride), "pad": pad}
    return S.Convolution(data, num_filter=count, no_bias=True, name=name, **where, **more)


def resnet50():
    """The first version, without BatchNorm, which does not matter to products."""
    net = S.Pooling(convolution(X, 64, 7, 2), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            body = convolution(convolution(net, width, 1), width, 3, stride)
            skip = net if block else convolution(net, 4 * width, 1, stride)
            net = S.relu(convolution(body, 4 * width, 1) + skip)
    net = S.Flatten(S.Pooling(net, kernel=(7, 7), global_pool=True, pool_type="avg"))
    return S.FullyConnected(net, num_hidden=1000)


def test_resnet50_takes_what_is_published():
    total, by_name = counted(resnet50(), data=(1, 3, 224, 224))
    products = by_name["Convolution"] + by_name["FullyConnected"]
    assert products == pytest.approx(2 * 4.09e9, rel=0.005)
    assert products < total < 1.01 * products


NETS = {
    "grouped": (convolution(convolution(X, 8, 3, num_group=4), 6, 1, 2), (2, 4, 9, 8)),
    "dilated": (S.Convolution(X, kernel=(3, 3), dilate=(2, 2), num_filter=5), (2, 4, 9, 8)),
    "one axis": (S.Convolution(X, kernel=(3,), num_filter=5), (2, 4, 9)),
    "three axes": (S.Convolution(X, kernel=(2, 3, 2), num_filter=5), (2, 4, 5, 6, 7)),
    "transposed": (S.Deconvolution(X, kernel=(4, 4), stride=(2, 2), num_filter=6, num_group=2), (2, 4, 5, 6)),
    "dense": (S.FullyConnected(S.FullyConnected(X, num_hidden=7), num_hidden=3), (4, 2, 5)),
    "by rows": (S.FullyConnected(X, num_hidden=7, flatten=False), (4, 2, 5)),
    "dot": (S.dot(X, S.Variable("w", shape=(5, 6))), (4, 5)),
    "dot of transposed": (
        S.dot(X, S.Variable("w", shape=(6, 4)), transpose_a=True, transpose_b=True),
        (4, 5),
    ),
    "batch_dot": (S.batch_dot(X, S.Variable("w", shape=(3, 6, 5)), transpose_b=True), (3, 4, 5)),
    "gemm2": (S.linalg.gemm2(X, S.Variable("w", shape=(3, 5, 6))), (3, 4, 5)),
    "gemm2 of transposed": (S.linalg.gemm2(X, S.Variable("w", shape=(3, 4, 6)), transpose_a=True), (3, 4, 5)),
}


@pytest.mark.parametrize("case", NETS)
@pytest.mark.parametrize("data_wanted", [True, False])
def test_products_equal_what_torch_counts(case, data_wanted):
    net, shape = NETS[case]
    requirements = dict.fromkeys(net.list_arguments(), "write")
    if not data_wanted:
        requirements["data"] = "null"
    executor = net.simple_bind(mx.cpu(), grad_req=requirements, data=shape)
    counters = [FlopCounterMode(display=False) for _ in range(2)]
    with executor.trial_run(True) as run:
        with counters[0]:
            result = run.forward()
        with counters[1]:
            run.backward(run.head_gradients(result))
    found = executor.explain()
    assert found.flops == counters[0].get_total_flops() > 0
    if "num_group" in net.tojson():  # torch's counter forgets the groups in backward
        assert found.backward_flops <= 2 * found.flops
    else:
        assert found.backward_flops == counters[1].get_total_flops() > 0


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh"])
@pytest.mark.parametrize("ways", [1, 2])
def test_fused_recurrent_layers_take_the_products_of_their_cells(mode, ways):
    fused = mx.rnn.FusedRNNCell(6, num_layers=2, mode=mode, bidirectional=ways == 2, prefix="r_")
    with mx.name.NameManager():
        net = fused.unroll(5, X, layout="TNC", merge_outputs=True)[0]
    total = counted(net, data=(5, 3, 4))[1]["RNN"]
    with mx.name.NameManager():
        apart = fused.unfuse().unroll(5, X, layout="TNC", merge_outputs=True)[0]
    assert total == counted(apart, data=(5, 3, 4))[1]["FullyConnected"]


def test_attention_takes_two_products():
    length, batch, heads, width = 5, 2, 3, 4
    shape = (length, batch, heads * width * 3)
    scores = S.contrib.interleaved_matmul_selfatt_qk(X, heads=heads)
    values = S.contrib.interleaved_matmul_selfatt_valatt(X, S.softmax(scores), heads=heads)
    products = 2 * batch * heads * length * length * width
    _, by_name = counted(values, data=shape)
    assert by_name["_contrib_interleaved_matmul_selfatt_qk"] == products
    assert by_name["_contrib_interleaved_matmul_selfatt_valatt"] == products
    queries, pairs = S.Variable("queries"), S.Variable("pairs")
    scores = S.contrib.interleaved_matmul_encdec_qk(queries, pairs, heads=heads)
    values = S.contrib.interleaved_matmul_encdec_valatt(pairs, S.softmax(scores), heads=heads)
    shapes = {"queries": (7, batch, heads * width), "pairs": (length, batch, heads * width * 2)}
    _, by_name = counted(values, **shapes)
    assert by_name["_contrib_interleaved_matmul_encdec_qk"] == products // length * 7
    assert by_name["_contrib_interleaved_matmul_encdec_valatt"] == products // length * 7


@pytest.mark.parametrize(
    ("net", "flops"),
    [
        (S.relu(X), 24),
        (X + X, 24),
        (S.sum(X), 24),
        (S.mean(X, axis=1), 24),
        (S.Flatten(X), 0),
        (S.transpose(X), 0),
        (S.Concat(X, X, dim=0), 0),
        (S.Embedding(X, input_dim=10, output_dim=7), 0),
        (S.Pooling(X, kernel=(2, 2), stride=(1, 1), pool_type="max"), 12 * 4),
        (S.Pooling(X, kernel=(2, 2), global_pool=True, pool_type="avg"), 24),
        (S.BatchNorm(X), 24),
        (S.linalg.syrk(X), 2 * 2 * 3 * 3 * 4),
        (S.broadcast_add(X, S.Variable("y", shape=(5, 1, 2, 3, 4))), 120),
    ],
)
def test_other_operators(net, flops):
    shape = (1, 2, 3, 4)
    assert counted(net, data=shape)[0] == flops


def test_loops_count_their_steps_and_branches_the_dearer_one():
    weight = S.Variable("w", shape=(6, 6))
    step = 2 * 4 * 6 * 6

    def body(x, state):
        return x, S.dot(state, weight) + x

    looped, _ = S.contrib.foreach(body, X, S.Variable("state", shape=(4, 6)))
    assert counted(looped, data=(7, 4, 6))[0] == 7 * (step + 24)
    _, last = S.contrib.while_loop(
        lambda i, x: i < 3, lambda i, x: ([], [i + 1, S.dot(x, weight)]), [S.Variable("i", shape=(1,)), X], 5
    )
    assert counted(last[1], data=(4, 6))[0] == 5 * (step + 2)
    branch = S.contrib.cond(
        S.Variable("p", shape=(1,)) > 0, lambda: S.dot(S.dot(X, weight), weight), lambda: S.dot(X, weight)
    )
    assert counted(branch, data=(4, 6))[0] == 2 * step + 1


def test_gradients_that_nobody_wants_cost_nothing():
    frozen = S.FullyConnected(X, num_hidden=5, name="frozen")
    net = S.FullyConnected(S.BlockGrad(S.relu(frozen)), num_hidden=3, name="top")
    graph = net.graph
    forward = forward_flops(graph, infer_shapes(graph, {"data": (2, 4)}))
    for wanted, cost in (
        (["top_weight", "top_bias"], 2 * 2 * 3 * 5),
        (["frozen_weight"], 0),
        ([], 0),
    ):
        found = backward_flops(graph, forward, wanted)
        assert sum(found.values()) == cost


def test_nothing_is_counted_where_shapes_are_not_known():
    net = S.FullyConnected(X, num_hidden=5)
    assert list(forward_flops(net.graph, infer_shapes(net.graph, {})).values()) == [0]


def test_counting_runs_nothing():
    net = S.FullyConnected(X, num_hidden=10**6, no_bias=True)
    before = torch.get_rng_state()
    assert counted(net, data=(1024, 10**6))[0] == 2 * 1024 * 10**12
    assert torch.equal(before, torch.get_rng_state())
