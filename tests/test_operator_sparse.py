"""Operators of users on sparse arrays: what `infer_storage_type` says is what they get and what they return.

Which storage types methods are asked about and handed was looked up in MXNet 1.9.1.
"""

import numpy as np
import pytest

import dpmodule as mx

X = np.array([[0, 2, 0], [3, 0, 4.0]], "f4")
LOG = []


def stored(array, values):
    """Return an array that stores other values in the places of `array`."""
    if array.stype == "csr":
        return mx.nd.sparse.csr_matrix((values, array.indices, array.indptr), shape=array.shape)
    return mx.nd.sparse.row_sparse_array((values, array.indices), shape=array.shape)


def stypes(*groups):
    return tuple([array.stype for array in group] for group in groups)


class Square(mx.operator.CustomOp):
    """Squares what is stored, and counts forwards in a state where there is one."""

    def forward(self, is_train, req, in_data, out_data, aux):
        LOG.append(("forward", *stypes(in_data, out_data, aux)))
        x = in_data[0]
        self.assign(out_data[0], req[0], x * x if x.stype == "default" else stored(x, x.data * x.data))
        for state in aux:
            state[:] = x if state.asnumpy().max() == 0 else (x * 10).tostype(x.stype)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        LOG.append(("backward", *stypes(out_grad, in_data, out_data, in_grad, aux)))
        assert out_data[0].asnumpy().tolist() == (in_data[0].asnumpy() ** 2).tolist()
        grad = 2 * in_data[0].tostype("default") * out_grad[0].tostype("default")
        self.assign(in_grad[0], req[0], grad.tostype(in_grad[0].stype))


class SquareProp(mx.operator.CustomOpProp):
    states = ()

    def list_auxiliary_states(self):
        return list(self.states)

    def infer_shape(self, in_shape):
        return in_shape, in_shape, in_shape * len(self.states)

    def infer_type(self, in_type):
        return in_type, in_type, in_type * len(self.states)

    def infer_storage_type(self, in_stype):
        return in_stype, in_stype, in_stype * len(self.states)

    def infer_storage_type_backward(self, ograd_stype, in_stype, out_stype, igrad_stype, aux_stype):
        LOG.append(("asked", ograd_stype, in_stype, out_stype, igrad_stype, aux_stype))
        return ["default"], in_stype, out_stype, in_stype, aux_stype

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return Square()


mx.operator.register("sparse_square")(SquareProp)


@mx.operator.register("sparse_square_state")
class WithState(SquareProp):
    states = ("aux",)


@pytest.fixture(autouse=True)
def forget():
    LOG.clear()


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
def test_arrays(stype):
    x = mx.nd.array(X).tostype(stype)
    plain = mx.nd.Custom(x, op_type="sparse_square")
    assert plain.stype == stype
    np.testing.assert_array_equal(plain.asnumpy(), X**2)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Custom(x, op_type="sparse_square")
        loss = (y.tostype("default") * 3).sum()
    loss.backward()
    assert (y.stype, x.grad.stype) == (stype, stype)
    np.testing.assert_array_equal(x.grad.asnumpy(), 6 * X)
    one = [stype]
    forward = ("forward", one, one, [])
    asked = ("asked", ["default"], one, one, ["undefined"], [])
    backward = ("backward", ["default"], one, one, one, [])
    assert [forward, forward, asked, backward] == LOG


@pytest.mark.parametrize("stype", ["default", "csr", "row_sparse"])
@pytest.mark.parametrize("kind", ["sparse_square", "sparse_square_state"])
def test_executors(stype, kind):
    x = mx.nd.array(X).tostype(stype)
    net = mx.sym.Custom(mx.sym.Variable("data", stype=stype), op_type=kind, name="square")
    executor = net.simple_bind(mx.cpu(), data=X.shape, grad_req="add")
    arrays = [*executor.arg_arrays, *executor.grad_arrays, *executor.outputs, *executor.aux_arrays]
    assert {array.stype for array in arrays} == {stype}
    x.copyto(executor.arg_dict["data"])
    for round in (1, 2):
        found = executor.forward(is_train=True)[0]
        executor.backward(mx.nd.ones(X.shape))
        assert found.stype == stype
        np.testing.assert_array_equal(found.asnumpy(), X**2)
        assert executor.grad_dict["data"].stype == stype
        np.testing.assert_array_equal(executor.grad_dict["data"].asnumpy(), 2 * X * round)
        if executor.aux_arrays:  # which stores in other places now, if it is sparse
            np.testing.assert_array_equal(executor.aux_arrays[0].asnumpy(), X if round == 1 else X * 10)
    assert LOG[-1][0] == "backward"


class Lookup(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], mx.nd.take(in_data[1], in_data[0]))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        rows = in_data[0].astype("int64")
        assert in_grad[1].stype == "row_sparse"
        in_grad[1][:] = mx.nd.sparse.row_sparse_array((out_grad[0], rows), shape=in_grad[1].shape)


@mx.operator.register("sparse_lookup")
class LookupProp(mx.operator.CustomOpProp):
    """A dense table whose gradient is row-sparse."""

    def list_arguments(self):
        return ["data", "table"]

    def infer_shape(self, in_shape):
        return in_shape, [[in_shape[0][0], in_shape[1][1]]], []

    def infer_storage_type_backward(self, ograd_stype, in_stype, out_stype, igrad_stype, aux_stype):
        return ograd_stype, in_stype, out_stype, ["default", "row_sparse"], aux_stype

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return Lookup()


def test_a_row_sparse_gradient_of_a_dense_table():
    places, table = mx.nd.array([1, 4]), np.arange(10, dtype="f4").reshape(5, 2)
    expected = np.zeros_like(table)
    expected[[1, 4]] = 2
    net = mx.sym.Custom(mx.sym.Variable("data"), mx.sym.Variable("table"), op_type="sparse_lookup") * 2
    executor = net.simple_bind(mx.cpu(), data=(2,), table=(5, 2), grad_req={"data": "null", "table": "write"})
    executor.forward(is_train=True, data=places, table=mx.nd.array(table))
    executor.backward(mx.nd.ones((2, 2)))
    grads = [executor.grad_dict["table"]]
    array = mx.nd.array(table)
    array.attach_grad(stype="row_sparse")
    with mx.autograd.record():
        loss = (mx.nd.Custom(places, array, op_type="sparse_lookup") * 2).sum()
    loss.backward()
    for grad in [*grads, array.grad]:
        assert grad.stype == "row_sparse"
        assert grad.indices.asnumpy().tolist() == [1, 4]
        np.testing.assert_array_equal(grad.asnumpy(), expected)


def test_gradients_are_dense_where_the_class_does_not_say():
    class Silent(SquareProp):
        infer_storage_type_backward = mx.operator.CustomOpProp.infer_storage_type_backward

    mx.operator.register("sparse_silent")(Silent)
    net = mx.sym.Custom(mx.sym.Variable("data", stype="csr"), op_type="sparse_silent")
    executor = net.simple_bind(mx.cpu(), data=X.shape)
    mx.nd.array(X).tostype("csr").copyto(executor.arg_dict["data"])
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones(X.shape))
    assert executor.grad_dict["data"].stype == "default"
    np.testing.assert_array_equal(executor.grad_dict["data"].asnumpy(), 2 * X)
