"""Chains of modules and SVRG trainings, for any package with MXNet's interface; the recipe of the goldens uses them."""

import numpy as np

ROWS, FEATURES, CLASSES, STEPS = 6, 4, 3, 3
CHAINS = ("two", "named", "states", "python_loss", "two_labels", "optimizer_object")


def values(name, shape):
    """Return numbers that depend on a name alone."""
    seed = sum(ord(letter) * (i + 1) for i, letter in enumerate(name)) % 2**31
    return np.random.RandomState(seed).uniform(-0.8, 0.8, shape).astype("f4")


def dense(mx, data, width, name, act="tanh"):
    net = mx.sym.FullyConnected(data, num_hidden=width, name=name)
    return mx.sym.Activation(net, act_type=act, name=name + "_" + act) if act else net


def head(mx, data, name="top"):
    return mx.sym.SoftmaxOutput(dense(mx, data, CLASSES, name, None), name="softmax")


def hinge_gradient(mx):
    """Return the gradient of the hinge loss of several classes, as a function of scores and labels."""

    def gradient(scores, labels):
        scores, labels = scores.asnumpy(), labels.asnumpy().astype(int)
        rows = np.arange(len(labels))
        margins = 1 + scores - scores[rows, labels][:, None]
        margins[rows, labels] = 0
        found = np.zeros_like(scores)
        found[rows, labels] -= 1
        found[rows, margins.argmax(1)] += 1
        return mx.nd.array(found)

    return gradient


def chain(mx, case, contexts):
    """Return the modules of a case, each with the options of `add`, for one context or several."""
    v, module = mx.sym.Variable, mx.mod.Module
    first = module(dense(mx, v("data"), 5, "low"), label_names=None, context=contexts)
    last = module(head(mx, v("data")), context=contexts), {"take_labels": True, "auto_wiring": True}
    if case in ("two", "optimizer_object"):
        return [(first, {}), last]
    if case == "named":
        named = module(head(mx, v("low_tanh_output")), data_names=["low_tanh_output"], context=contexts)
        return [(first, {}), (named, {"take_labels": True})]
    if case == "states":
        net = mx.sym.BatchNorm(v("x"), fix_gamma=False, momentum=0.7, name="bn")
        return [(first, {}), (module(net, ["x"], None, context=contexts), {"auto_wiring": True}), last]
    if case == "python_loss":
        loss = mx.mod.PythonLossModule(grad_func=hinge_gradient(mx))
        scores = module(dense(mx, v("data"), CLASSES, "top", None), label_names=None, context=contexts)
        wired = {"auto_wiring": True}
        return [(first, {}), (scores, wired), (loss, {"take_labels": True, **wired})]
    middle = dense(mx, v("data"), 5, "mid")
    both = mx.sym.Group([middle, head(mx, middle, "side")])
    join = head(mx, mx.sym.Concat(v("a"), v("b"), dim=1))
    fork = module(both, context=contexts), {"take_labels": True, "auto_wiring": True}
    end = module(join, ["a", "b"], context=contexts), {"take_labels": True, "auto_wiring": True}
    return [(first, {}), fork, end]


def batch(mx, number):
    data = mx.nd.array(values(f"data{number}", (ROWS, FEATURES)))
    return mx.io.DataBatch([data], [mx.nd.array((np.arange(ROWS) * (number + 2)) % CLASSES)])


def optimizer(mx, case):
    """Return the arguments of `init_optimizer`."""
    if case == "optimizer_object":
        rate = {"learning_rate": 0.2, "momentum": 0.8, "wd": 0.01}
        return {"optimizer": mx.optimizer.SGD(rescale_grad=1.0 / ROWS, **rate)}
    if case == "states":
        return {"optimizer": "rmsprop", "optimizer_params": {"learning_rate": 0.02}}
    return {"optimizer": "sgd", "optimizer_params": {"learning_rate": 0.3, "momentum": 0.9, "wd": 0.05}}


def train_chain(mx, case, contexts):
    """Train a chain some steps; return outputs, gradients, metric and parameters by name."""
    mod = mx.mod.SequentialModule()
    members = chain(mx, case, contexts)
    for member, options in members:
        mod.add(member, **options)
    mod.bind([("data", (ROWS, FEATURES))], [("softmax_label", (ROWS,))], inputs_need_grad=True)
    return train(mx, mod, optimizer(mx, case), members[0][0])


def train(mx, mod, optimizer_arguments, first):
    """Train a bound module on three batches; return outputs, gradients, metric and parameters by name.

    `first` is asked for the gradients of the inputs, which MXNet's SequentialModule never hands out.
    """

    def fill(desc, array):
        low, high = (0.5, 1.5) if desc.endswith("_var") else (-0.8, 0.8)
        array[:] = low + (values(desc, array.shape) + 0.8) / 1.6 * (high - low)

    mod.init_params(fill)
    mod.init_optimizer(**optimizer_arguments)
    found = {}
    metric = mx.metric.create("acc", output_names=["softmax_output"], label_names=["softmax_label"])
    for step in range(STEPS):
        one = batch(mx, step)
        mod.forward(one, is_train=True)
        mod.backward()
        found[f"output{step}"] = mod.get_outputs()[0].asnumpy().copy()
        found[f"grad{step}"] = first.get_input_grads()[0].asnumpy().copy()
        mod.update_metric(metric, one.label)
        mod.update()
    mod.forward(batch(mx, STEPS), is_train=False)
    found["prediction"] = mod.get_outputs()[0].asnumpy()
    found["metric"] = np.array([metric.get()[1]])
    for kind, arrays in zip(("arg", "aux"), mod.get_params()):
        found.update({kind + ":" + name: array.asnumpy() for name, array in arrays.items()})
    return found


SVRG = {
    "sgd": ("sgd", {"learning_rate": 0.025}, 2),
    "every_epoch": ("sgd", {"learning_rate": 0.01, "momentum": 0.5, "wd": 0.1}, 1),
    "rare": ("nag", {"learning_rate": 0.01, "momentum": 0.5}, 3),
}


def svrg_data():
    """Return 22 rows, so that the last batch of 4 has padding."""
    data = np.random.RandomState(0).randint(1, 5, (22, 2)).astype("f4")
    return data, data.dot(np.array([1, 2], "f4"))


def train_svrg(mx, svrg_module, case, contexts, kvstore="local"):
    """Fit four epochs; return parameters after each and the mean gradients in each, by name."""
    data, label = svrg_data()
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
    net = mx.sym.LinearRegressionOutput(net, mx.sym.Variable("label"), name="out")
    rule, arguments, freq = SVRG[case]
    mod = svrg_module(net, ["data"], ["label"], context=contexts, update_freq=freq)
    found = {}

    def end_epoch(epoch, symbol, arg_params, aux_params):
        found.update({f"{epoch}/{name}": value.asnumpy() for name, value in arg_params.items()})

    def end_batch(param):
        if param.nbatch == 0:
            for name, value in mod._param_dict[0].items():
                found[f"{param.epoch}/full/{name}"] = value.asnumpy().copy()

    options = {"optimizer": rule, "optimizer_params": tuple(arguments.items()), "kvstore": kvstore}
    options["arg_params"] = {"fc_weight": mx.nd.array([[0.3, -0.2]]), "fc_bias": mx.nd.array([0.1])}
    options.update(epoch_end_callback=end_epoch, batch_end_callback=end_batch, eval_metric="mse", num_epoch=4)
    mod.fit(mx.io.NDArrayIter(data, label, 4, label_name="label"), **options)
    return found
