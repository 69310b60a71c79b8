"""A few seconds that touch every part once; runs before each commit."""

import numpy as np

import dpmodule as mx
from helpers.nets import mlp


def test_train_save_load_predict_on_two_contexts(tmp_path):
    mx.random.seed(0)
    x = np.random.RandomState(0).normal(size=(200, 8)).astype(np.float32)
    y = (x.sum(axis=1) > 0).astype(np.float32)
    batches = mx.io.NDArrayIter(x, y, 32, shuffle=True)
    module = mx.mod.Module(mlp(2), context=[mx.cpu(0), mx.cpu(1)])
    saving = mx.callback.module_checkpoint(module, str(tmp_path / "net"), 8, True)
    rates = {"learning_rate": 0.2, "momentum": 0.9}
    module.fit(batches, num_epoch=8, optimizer_params=rates, initializer="xavier", epoch_end_callback=saving)
    plain, outputs = mx.io.NDArrayIter(x, y, 32), []
    for context in (mx.cpu(0), [mx.cpu(0), mx.cpu(1)]):
        again = mx.mod.Module.load(str(tmp_path / "net"), 8, load_optimizer_states=True, context=context)
        again.bind(plain.provide_data, plain.provide_label)
        assert dict(again.score(plain, "acc"))["accuracy"] > 0.9
        outputs.append(again.predict(plain).asnumpy())
    np.testing.assert_allclose(*outputs, atol=1e-6)
