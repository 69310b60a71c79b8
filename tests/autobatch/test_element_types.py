"""Parameters that an engine cannot read where they lie: of another element type, or with gaps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.base import ArgumentError, DTypeError


@pytest.fixture(params=["python", "auto"], autouse=True)
def _engine(request):
    dy.configure(engine=request.param)
    yield
    dy.configure(engine="auto", dtype="float32")


def made_in(dtype):
    dy.configure(dtype=dtype)
    m = dy.ParameterCollection()
    return m.add_parameters((2, 3), init=1.0), m.add_lookup_parameters((4, 3), init=dy.ConstInitializer(2))


USES = {
    "product": lambda W, E: W * dy.inputVector([1, 2, 3]),
    "value": lambda W, E: W.npvalue(),
    "constant": lambda W, E: W.expr(update=False),
    "row": lambda W, E: E[1],
    "constant row": lambda W, E: dy.lookup(E, 1, update=False),
    "rows": lambda W, E: dy.lookup_batch(E, [1, 2]),
    "table": lambda W, E: E.expr(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("made", "graph"), [("float32", "float64"), ("float64", "float32")])
def test_parameters_of_another_type_are_refused(made, graph, use):
    W, E = made_in(made)
    dy.configure(dtype=graph)
    with pytest.raises(DTypeError, match=rf"is {made} on cpu, this graph {graph}.*test_element_types\.py"):
        USES[use](W, E)
    dy.configure(dtype=made)
    USES[use](W, E)


def test_a_parameter_that_became_double_is_refused_in_the_next_graph():
    W, _ = made_in("float32")
    x = dy.inputVector([1, 2, 3])
    assert (W * x).npvalue().tolist() == [6, 6]
    W.storage.tensor = W.storage.tensor.double()
    dy.renew_cg()
    with pytest.raises(DTypeError):
        W * dy.inputVector([1, 2, 3])


TURNED = torch.arange(6.0).reshape(3, 2).t()


def test_tensors_whose_elements_lie_apart_are_no_parameters():
    m = dy.ParameterCollection()
    with pytest.raises(ArgumentError, match=r"side by side.*strides \(1, 2\)"):
        m.parameter_from_tensor(TURNED)
    with pytest.raises(ArgumentError, match="side by side"):
        m.lookup_parameter_from_tensor(TURNED)
    assert not m.parameters_list()


def test_a_cell_reads_and_trains_an_array_whose_elements_lie_apart():
    weight = mx.nd.from_dlpack(
        torch.utils.dlpack.to_dlpack(TURNED.clone(memory_format=torch.preserve_format))
    )
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, no_bias=True, name="fc")
    cell = dy.cell(net, {"fc_weight": weight})
    for start in (0.0, 1.0):
        np.testing.assert_array_equal(
            weight.asnumpy(), [[0 - 2 * start, 2 - start, 4], [1 - 2 * start, 3 - start, 5]]
        )
        dy.renew_cg()
        y = cell([2.0, 1.0, 0.0])
        np.testing.assert_allclose(y.npvalue(), weight.asnumpy() @ [2, 1, 0])
        dy.sum_elems(y).backward()
        np.testing.assert_array_equal(weight.grad.asnumpy(), [[2, 1, 0], [2, 1, 0]])
        dy.SimpleSGDTrainer(cell.collection, 1.0).update()
