"""States that are carried from batch to batch: truncated backpropagation through time."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.small_fits import both_contexts, ready

ROWS, STEPS, FEATURES, UNITS = 4, 3, 2, 5


def recurrent(steps=STEPS, contexts=None, fused=False, **options):
    """Return a bound module of an LSTM with a loss and its last states as outputs."""
    if fused:
        cell = mx.rnn.FusedRNNCell(UNITS, mode="lstm", prefix="l_", get_next_state=True)
    else:
        cell = mx.rnn.LSTMCell(UNITS, prefix="l_")
    begin = cell.begin_state(func=mx.sym.Variable)
    output, states = cell.unroll(steps, mx.sym.Variable("data"), begin, merge_outputs=True, layout="NTC")
    loss = mx.sym.LinearRegressionOutput(output, mx.sym.Variable("label"), name="out")
    net, names = mx.sym.Group([loss, *map(mx.sym.BlockGrad, states)]), [state.name for state in begin]
    mod = mx.mod.Module(net, ["data"], ["label"], context=contexts, state_names=names)
    mx.random.seed(0)
    shapes = [("data", (ROWS, steps, FEATURES))], [("label", (ROWS, steps, UNITS))]
    mod = ready(mod, shapes=shapes, init=mx.init.Uniform(0.5), **options)
    mod.set_states(value=0)
    return mod


def batch(number):
    rng = np.random.RandomState(number)
    data, label = rng.randn(ROWS, STEPS, FEATURES), rng.randn(ROWS, STEPS, UNITS)
    return mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)])


def carry(mod):
    mod.set_states(states=mod.get_outputs(merge_multi_context=False)[1:])


@pytest.mark.parametrize("fused", [False, True])
@both_contexts
def test_carried_states_join_two_batches_to_one(contexts, fused):
    short, whole = (recurrent(n, contexts, fused) for n in (STEPS, 2 * STEPS))
    whole.set_params(*short.get_params())
    parts = []
    for number in (1, 2):
        short.forward(batch(number), is_train=False)
        parts.append(short.get_outputs()[0].asnumpy())
        carry(short)
    both = np.concatenate([batch(n).data[0].asnumpy() for n in (1, 2)], axis=1)
    whole.forward(mx.io.DataBatch([mx.nd.array(both)]), is_train=False)
    found = whole.get_outputs()[0].asnumpy()
    np.testing.assert_allclose(found, np.concatenate(parts, 1), rtol=1e-5, atol=1e-6)
    short.set_states(value=0)
    short.forward(batch(2), is_train=False)
    assert abs(short.get_outputs()[0].asnumpy() - parts[1]).max() > 1e-3


def test_states_are_no_parameters_and_are_kept_apart_from_outputs():
    mod = recurrent()
    assert sorted(mod.get_params()[0]) == ["l_h2h_bias", "l_h2h_weight", "l_i2h_bias", "l_i2h_weight"]
    mod.set_states(value=0.5)
    assert all((s[0].asnumpy() == 0.5).all() for s in mod.get_states(False))
    mod.forward(batch(0), is_train=True)
    carry(mod)
    before = [s[0].asnumpy().copy() for s in mod.get_states(False)]
    mod.get_outputs()[1][:] = 9
    mod.backward()
    for state, value in zip(mod.get_states(False), before):
        np.testing.assert_array_equal(state[0].asnumpy(), value)
    saved = [[s.copy() for s in parts] for parts in mod.get_states(False)]
    mod.set_states(value=0)
    mod.set_states(states=saved)
    np.testing.assert_array_equal(mod.get_states(False)[1][0].asnumpy(), before[1])
    assert mx.mod.SequentialModule().get_states() == []
