"""A data-parallel group written by hand against the public pieces, as code of 2016 to 2018 did.

It allocates every array itself, binds with lists and dicts, shares data memory between groups and reads executors'
arrays; nothing of `dpmodule.module` is used.
"""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import context as ctx
from dpmodule import ndarray as nd
from dpmodule.executor_manager import _split_input_slice
from dpmodule.io import DataBatch, DataDesc
from dpmodule.module.executor_group import DataParallelExecutorGroup
from helpers.small_fits import TWO


class HandMadeGroup:
    """One executor per device; shapes and batches are given per device."""

    def __init__(self, symbol, contexts, data_shapes, label_shapes, param_names, shared=None):
        self.arg_names = symbol.list_arguments()
        self.param_names = param_names
        self.pools = [{} for _ in contexts] if shared is None else shared.pools
        self.layouts = [DataDesc.get_batch_axis(symbol[n].attr("__layout__")) for n in symbol.list_outputs()]
        self.reqs = {n: "write" if n in param_names or n == "data" else "null" for n in self.arg_names}
        self.execs = [
            self._bind(symbol, i, c, data_shapes[i], label_shapes[i], shared) for i, c in enumerate(contexts)
        ]

    def _bind(self, symbol, i, context, data, label, shared):
        inputs = dict(data + label)
        arg_shapes, _, aux_shapes = symbol.infer_shape(**inputs)
        arg_types, _, aux_types = symbol.infer_type(**{d.name: d.dtype for d in data + label})
        other = None if shared is None else shared.execs[i]
        args, grads = [], {}
        for name, shape, dtype in zip(self.arg_names, arg_shapes, arg_types):
            if name in self.param_names and other is not None:
                args.append(other.arg_dict[name])
                grads[name] = other.grad_dict[name]
                continue
            args.append(self._pooled(i, name, shape, dtype, context))
            if self.reqs[name] != "null":
                grads[name] = self._pooled(i, "grad of " + name, shape, dtype, context)
        if other is None:
            aux = [nd.zeros(s, context, dtype=t) for s, t in zip(aux_shapes, aux_types)]
        else:
            aux = other.aux_arrays[:]
        return symbol.bind(
            ctx=context, args=args, args_grad=grads, aux_states=aux, grad_req=self.reqs, shared_exec=other
        )

    def _pooled(self, i, name, shape, dtype, context):
        pool = self.pools[i]
        if name not in pool or np.prod(pool[name].shape) < np.prod(shape):
            pool[name] = nd.zeros(shape, context, dtype=dtype)
        return pool[name].reshape(shape)

    def step(self, batch):
        for executor, data, label in zip(self.execs, batch.data, batch.label):
            for source, name in zip(data + label, ("data", "softmax_label")):
                source.copyto(executor.arg_dict[name])
            executor.forward(is_train=True)
            executor.backward(out_grads=[])

    def outputs(self):
        return nd.concatenate([e.outputs[0] for e in self.execs], axis=self.layouts[0], always_copy=False)

    def averaged(self, name):
        block = [e.arg_arrays[self.arg_names.index(name)] for e in self.execs]
        return sum(w.copyto(ctx.cpu()) for w in block) / len(block)


PARAMS = ["fc1_weight", "fc1_bias", "bn_gamma", "bn_beta", "fc2_weight", "fc2_bias"]
STATES = {"bn_moving_mean": nd.zeros((8,)), "bn_moving_var": nd.ones((8,))}
RNG = np.random.RandomState(3)


def network():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn", fix_gamma=False), act_type="tanh", name="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc2"), name="softmax")


def described(sizes):
    return [[DataDesc("data", (n, 5))] for n in sizes], [[DataDesc("softmax_label", (n,))] for n in sizes]


def batch(*sizes):
    data, label = RNG.randn(4, 5), RNG.randint(0, 3, 4)
    return DataBatch([[nd.array(data[:n])] for n in sizes], [[nd.array(label[:n])] for n in sizes])


@pytest.fixture
def values():
    shapes = dict(zip(network().list_arguments(), network().infer_shape(data=(4, 5))[0]))
    return {n: nd.array(RNG.randn(*shapes[n]) * 0.3) for n in PARAMS}


def own_group(values, needs_grad):
    group = DataParallelExecutorGroup(network(), TWO, [1, 1], *described((4, 2)), PARAMS, True, needs_grad)
    group.set_params(values, STATES)
    return group


def test_hand_made_group_equals_ours_fed_per_context(values):
    hand, ours, one = (
        HandMadeGroup(network(), TWO, *described((4, 2)), PARAMS),
        own_group(values, True),
        batch(4, 2),
    )
    for executor in hand.execs:
        executor.copy_params_from(values, STATES)
    hand.step(one)
    ours.forward(one)
    ours.backward()
    np.testing.assert_array_equal(hand.outputs().asnumpy(), ours.get_outputs()[0].asnumpy())
    inputs = ours.get_input_grads(merge_multi_context=False)[0]
    for i, executor in enumerate(hand.execs):
        found = {**dict(zip(PARAMS, (grads[i] for grads in ours.grad_arrays))), "data": inputs[i]}
        for name, grad in found.items():
            np.testing.assert_array_equal(executor.grad_dict[name].asnumpy(), grad.asnumpy())
        for mine, its in zip(executor.aux_arrays, ours.execs[i].aux_arrays):
            np.testing.assert_array_equal(mine.asnumpy(), its.asnumpy())
    np.testing.assert_allclose(
        hand.averaged("fc1_weight").asnumpy(), values["fc1_weight"].asnumpy(), rtol=1e-6
    )


def test_hand_made_groups_share_parameters_and_data_memory(values):
    first = HandMadeGroup(network(), TWO, *described((4, 2)), PARAMS)
    second = HandMadeGroup(network(), TWO, *described((4, 2)), PARAMS, shared=first)
    first.execs[0].copy_params_from(values, STATES)
    mine, its = first.execs[0].arg_dict, second.execs[0].arg_dict
    assert its["fc1_weight"] is mine["fc1_weight"]
    np.testing.assert_array_equal(its["fc2_weight"].asnumpy(), values["fc2_weight"].asnumpy())
    its["data"][:] = 7
    assert (mine["data"].asnumpy() == 7).all()


def test_reshaping_a_pooled_array_to_a_smaller_size_is_refused_as_in_mxnet_1_9():
    with pytest.raises(ValueError, match="shape"):
        nd.zeros((4, 5)).reshape((2, 5))


def test_per_context_metric_update_and_reshape(values):
    group, one, metric = own_group(values, False), batch(4, 2), mx.metric.create("acc")
    group.forward(one)
    group.update_metric(metric, one.label)
    pairs = zip((e.outputs[0] for e in group.execs), one.label)
    assert metric.get()[1] == sum((o.asnumpy().argmax(1) == y[0].asnumpy()).sum() for o, y in pairs) / 6
    group.reshape(*described((3, 1)))
    group.forward(batch(3, 1), is_train=False)
    assert group.get_outputs()[0].shape == (4, 3)
    assert [e.arg_dict["fc1_weight"] is w for e, w in zip(group.execs, group.param_arrays[0])] == [True, True]


def test_old_import_path_splits():
    assert _split_input_slice(8, [3, 1]) == [slice(0, 6), slice(6, 8)]
