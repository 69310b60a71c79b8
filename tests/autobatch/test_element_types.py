"""Parameters that an engine cannot read where they lie: of another element type, or with gaps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.base import ArgumentError, DTypeError
from helpers.walk import walks


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


@walks([(a, *b) for a, b in itertools.product(USES, [("float32", "float64"), ("float64", "float32")])])
def test_parameters_of_another_type_are_refused(use, made, graph):
    W, E = made_in(made)
    dy.configure(dtype=graph)
    with pytest.raises(
        DTypeError, match=rf"is {made} on cpu, but this graph uses {graph}.*test_element_types\.py"
    ):
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
    with pytest.raises(ArgumentError, match=r"not contiguous.*strides \(1, 2\)"):
        m.parameter_from_tensor(TURNED)
    with pytest.raises(ArgumentError, match="not contiguous"):
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


REPLACED = {
    "another shape": lambda old: torch.ones(len(old) + 3, 3),
    "fewer rows": lambda old: torch.ones(1, 3),
    "another rank": lambda old: torch.ones(len(old) * 3),
    "another type": lambda old: old.double(),
}


@pytest.mark.parametrize("use", [name for name in USES if name != "value"])
def test_parameters_whose_memory_was_replaced(use):
    """By what does not fit: an error that names it, in the graph under construction as in later ones."""
    for autobatch, replace in itertools.product((False, True), REPLACED.values()):
        dy.configure(autobatch=autobatch)
        m = dy.ParameterCollection()
        W, E = m.add_parameters((4, 3)), m.add_lookup_parameters((4, 3))
        values = [USES[use](W, E), E[1] * 2.0, W * dy.inputVector([1, 2, 3])]
        dy.forward([dy.esum([dy.sum_elems(each) for each in values])])
        wrong = E if use in ("row", "constant row", "rows", "table") else W
        wrong.tensor.data = replace(wrong.tensor)
        if use == "table":  # one expression, whose value is there
            dy.renew_cg()
        for _ in range(2):
            with pytest.raises((DTypeError, dy.ShapeError), match=f"parameter {wrong.name()} (is|has)"):
                dy.sum_elems(USES[use](W, E)).value()
            dy.renew_cg()


def test_updates_of_a_parameter_whose_memory_was_replaced():
    for trainer in (dy.SimpleSGDTrainer, dy.AdamTrainer):
        dy.renew_cg()
        m = dy.ParameterCollection()
        W = m.add_parameters((4,), init=1.0)
        update = trainer(m)
        dy.squared_norm(W).backward()
        update.update()
        dy.renew_cg()
        loss = dy.squared_norm(W)
        loss.value()
        W.tensor.data = torch.ones(700)
        with pytest.raises(dy.ShapeError, match="has the shape"):
            loss.backward()
        W.tensor.data = torch.ones(4)
        loss.backward()
        W.tensor.data = torch.ones(700)
        with pytest.raises(dy.ShapeError, match="has the shape"):
            update.update()
        with pytest.raises(dy.StateError, match="storage cannot be replaced"):
            W.storage = dy.ParameterCollection().add_parameters((4,)).storage


@pytest.mark.parametrize(
    ("tensor", "error"),
    [
        (torch.tensor([1, 2]), DTypeError),
        (torch.tensor([True]), DTypeError),
        (torch.ones(2, dtype=torch.complex64), DTypeError),
        (torch.ones(0), dy.ShapeError),
        (torch.ones(0, 3), dy.ShapeError),
        (torch.ones(3, 0), dy.ShapeError),
    ],
    ids=str,
)
def test_tensors_that_are_no_parameters(tensor, error):
    m = dy.ParameterCollection()
    for make in (m.parameter_from_tensor, m.lookup_parameter_from_tensor):
        with pytest.raises(error, match=r"parameter /\(unnamed\) would .*test_element_types\.py"):
            make(tensor)
        with pytest.raises(error, match="parameter /w would"):
            make(tensor, "w")
    assert m.parameter_count() == 0
    assert [m.add_parameters(2).name(), m.add_parameters(2, name="w").name()] == ["/_0", "/w"]
    with pytest.raises((error, ArgumentError)):
        dy.wrap(torch.tanh, params=[tensor.requires_grad_() if tensor.is_floating_point() else tensor])
    if error is dy.ShapeError:
        module = torch.nn.Linear(2, 2)
        module.extra = torch.nn.Parameter(tensor)
        with pytest.raises(error, match="parameter /extra would have the shape"):
            dy.wrap(module)
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, name="fc")
    with pytest.raises(error, match="parameter /fc_weight would"):
        dy.cell(net, {"fc_weight": tensor, "fc_bias": torch.ones(2)})
    if tensor.dtype is torch.int64:
        with pytest.raises(error, match="parameter /fc_weight would be int32"):
            dy.cell(net, {"fc_weight": mx.nd.array([[1, 2]], dtype="int32"), "fc_bias": mx.nd.zeros((2,))})


def test_a_single_number_is_a_parameter():
    tensor = torch.tensor(2.0)
    p = dy.ParameterCollection().parameter_from_tensor(tensor)
    (p * 3.0).backward()
    assert (p.shape(), p.grad_as_array().tolist()) == ((1,), [3.0])
    dy.renew_cg()
    tensor.fill_(5.0)
    assert (p * 3.0).value() == 15.0
