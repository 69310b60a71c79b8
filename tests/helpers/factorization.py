"""A factorization machine over sparse data, written once for this package and for MXNet, which recorded its goldens."""

import numpy as np

SAMPLES, FEATURES, FACTORS, BATCH = 64, 40, 3, 16

ROW_SPARSE = ("v_weight", "w_weight")

OPTIMIZERS = {
    "sgd": {"learning_rate": 0.1, "wd": 0.01},
    "momentum": {"momentum": 0.9, "clip_gradient": 0.5, "learning_rate": 0.1, "wd": 0.01},
    "momentum of all rows": {"momentum": 0.9, "lazy_update": False, "learning_rate": 0.1, "wd": 0.01},
    "adam": {"learning_rate": 0.05, "wd": 0.01},
    "adam of all rows": {"learning_rate": 0.05, "wd": 0.01, "lazy_update": False},
    "adagrad": {"learning_rate": 0.05},
    "ftrl": {"learning_rate": 0.1, "wd": 0.01, "lamda1": 0.001},
}
"""Arguments by name; the first word is the optimizer's (momentum: sgd)."""


def network(mx):
    """Return the graph: bias, linear part and pairwise products of features, against a squared error."""
    x = mx.sym.Variable("data", stype="csr")
    v = mx.sym.Variable("v_weight", shape=(FEATURES, FACTORS), stype="row_sparse")
    w = mx.sym.Variable("w_weight", shape=(FEATURES, 1), stype="row_sparse")
    linear = mx.sym.broadcast_add(mx.sym.dot(x, w), mx.sym.Variable("b_bias", shape=(1,)))
    pairs = 0.5 * mx.sym.square(mx.sym.dot(x, v))
    own = mx.sym.dot(mx.sym.square(x), mx.sym._internal._square_sum(v, axis=1, keepdims=True))
    total = mx.sym.sum(mx.sym.Concat(linear, pairs, dim=1), axis=1, keepdims=True)
    total = mx.sym.elemwise_add(total, 0.5 * mx.sym.negative(own))
    return mx.sym.LinearRegressionOutput(total, mx.sym.Variable("label"))


def data():
    """Return features, most of them zero (the last five always), and targets."""
    rng = np.random.RandomState(0)
    features = np.where(rng.rand(SAMPLES, FEATURES) < 0.05, rng.rand(SAMPLES, FEATURES), 0).astype("f4")
    features[:, -5:] = 0
    return features, rng.rand(SAMPLES, 1).astype("f4")


def train(mx, name, contexts, kvstore="local", epochs=2):
    """Train and return the parameters as NumPy arrays.

    Args:
        mx: the package.
        name: of `OPTIMIZERS`.
        contexts: where.
        kvstore: how gradients are summed.
        epochs: how often all samples are seen.
    """
    features, targets = data()
    rows, label = mx.nd.array(features).tostype("csr"), {"label": mx.nd.array(targets)}
    batches = mx.io.NDArrayIter(rows, label, BATCH, last_batch_handle="discard")
    module = mx.mod.Module(network(mx), ["data"], ["label"], context=contexts)
    module.bind(batches.provide_data, batches.provide_label)
    rng = np.random.RandomState(1)
    first = {"b_bias": (1,), "v_weight": (FEATURES, FACTORS), "w_weight": (FEATURES, 1)}
    params = {key: mx.nd.array(rng.randn(*shape) * 0.1) for key, shape in first.items()}
    params.update({key: params[key].tostype("row_sparse") for key in ROW_SPARSE})
    module.init_params(arg_params=params, aux_params={})
    kind = {"momentum": "sgd"}.get(name.split()[0], name.split()[0])
    optimizer = mx.optimizer.create(kind, rescale_grad=1.0 / BATCH, **OPTIMIZERS[name])
    module.init_optimizer(kvstore=kvstore, optimizer=optimizer)
    every = mx.nd.arange(0, FEATURES, dtype="int64")
    for _ in range(epochs):
        batches.reset()
        for batch in batches:
            module.prepare(batch, sparse_row_id_fn=lambda _: dict.fromkeys(ROW_SPARSE, every))
            module.forward_backward(batch)
            module.update()
    return {key: value.asnumpy() for key, value in module.get_params()[0].items()}
