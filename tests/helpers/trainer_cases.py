"""Train one small network with MXNet's first trainers; run by MXNet (data/record_mxnet.py) and by the tests."""

import numpy as np


def data():
    """Return inputs (60, 8) and labels (60,) of three classes."""
    random = np.random.RandomState(0)
    x = random.randn(60, 8).astype("f")
    return x, (x @ random.randn(8, 3)).argmax(1).astype("f")


def network(mx):
    """Return a network with a hidden layer and its parameters."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1")
    net = mx.sym.BatchNorm(net, fix_gamma=False, name="bn")
    net = mx.sym.Activation(net, act_type="tanh")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc2"), name="softmax")
    random = np.random.RandomState(1)
    shapes = {"fc1_weight": (16, 8), "fc1_bias": 16, "bn_gamma": 16, "bn_beta": 16}
    shapes.update(fc2_weight=(3, 16), fc2_bias=3)
    values = {name: mx.nd.array(random.uniform(-0.5, 0.5, shape)) for name, shape in shapes.items()}
    aux = {"bn_moving_mean": mx.nd.zeros(16), "bn_moving_var": mx.nd.ones(16)}
    return net, values, aux


def feed_forward(mx):
    """Train with FeedForward on two contexts, in epochs that end amid the data."""
    net, args, aux = network(mx)
    x, y = data()
    options = {"num_epoch": 4, "epoch_size": 5, "learning_rate": 0.2, "momentum": 0.9}
    contexts = [mx.cpu(0), mx.cpu(1)]
    model = mx.model.FeedForward(net, contexts, arg_params=args, aux_params=aux, **options)
    batches = mx.io.NDArrayIter(x, y, 15)
    model.fit(batches, eval_data=mx.io.NDArrayIter(x, y, 15))
    found = {**model.arg_params, **model.aux_params}
    return {name: value.asnumpy() for name, value in found.items()}, model


def manager(mx, executor_manager):
    """Train by hand with DataParallelExecutorManager on unequal shares."""
    net, args, aux = network(mx)
    batches = mx.io.NDArrayIter(*data(), 15)
    names = net.list_arguments()
    params, states = [n for n in names if n not in ("data", "softmax_label")], net.list_auxiliary_states()
    given = net, [mx.cpu(0), mx.cpu(1)], batches, names, params, states
    parallel = executor_manager.DataParallelExecutorManager(*given, work_load_list=[2, 1])
    parallel.set_params(args, aux)
    metric = mx.metric.create("acc")
    for batch in batches:
        parallel.load_data_batch(batch)
        parallel.forward(is_train=True)
        parallel.backward()
        parallel.update_metric(metric, batch.label)
        for weights, grads in zip(parallel.param_arrays, parallel.grad_arrays):
            total = sum(g.asnumpy() for g in grads)
            for weight in weights:
                weight[:] = weight.asnumpy() - 0.01 * total
    parallel.copy_to(args, aux)
    return {"accuracy": metric.get()[1], **{k: v.asnumpy() for k, v in {**args, **aux}.items()}}
