"""A few seconds that touch every part once; runs before each commit."""

import numpy as np

import dpmodule as mx


def test_train_save_load_predict_on_two_contexts(tmp_path):
    mx.random.seed(0)
    x = np.random.RandomState(0).normal(size=(200, 8)).astype(np.float32)
    y = (x.sum(axis=1) > 0).astype(np.float32)
    batches = mx.io.NDArrayIter(x, y, 32, shuffle=True)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1")
    net = mx.sym.BatchNorm(mx.sym.Activation(net, act_type="relu"), fix_gamma=False, name="bn")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=2, name="fc2"), name="softmax")

    module = mx.mod.Module(net, context=[mx.cpu(0), mx.cpu(1)])
    module.fit(
        batches,
        num_epoch=8,
        optimizer_params={"learning_rate": 0.2, "momentum": 0.9},
        initializer=mx.init.Xavier(),
        epoch_end_callback=mx.callback.module_checkpoint(module, str(tmp_path / "net"), 8, True),
    )

    plain = mx.io.NDArrayIter(x, y, 32)
    outputs = []
    for context in (mx.cpu(0), [mx.cpu(0), mx.cpu(1)]):
        again = mx.mod.Module.load(str(tmp_path / "net"), 8, load_optimizer_states=True, context=context)
        again.bind(plain.provide_data, plain.provide_label)
        assert dict(again.score(plain, "acc"))["accuracy"] > 0.9
        outputs.append(again.predict(plain).asnumpy())
    np.testing.assert_allclose(*outputs, atol=1e-6)
