"""Run and train exported Gluon networks as blocks; run by MXNet (data/record_mxnet.py) and by the tests."""

import numpy as np


def batches(net):
    """Return three batches of inputs and labels."""
    random = np.random.RandomState(5)
    shape = {"conv": (6, 2, 8, 8), "lstm": (5, 6, 3), "cell": (6, 5, 3), "pair": (6, 4)}[net]
    return [(random.randn(*shape).astype("f"), random.randint(0, 3, 6).astype("f")) for _ in range(3)]


TRAININGS = {
    "sgd": {"net": "conv", "optimizer": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01})},
    "adam": {"net": "conv", "optimizer": ("adam", {"learning_rate": 0.01})},
    "rate": {"net": "conv", "optimizer": ("sgd", {"learning_rate": 0.1}), "rates": [0.1, 0.05, 0.2]},
    "schedule": {
        "net": "cell",
        "optimizer": ("sgd", {"learning_rate": 0.4, "momentum": 0.5}),
        "schedule": True,
    },
    "frozen": {
        "net": "conv",
        "optimizer": ("sgd", {"learning_rate": 0.1, "wd": 0.1}),
        "null": ".*conv|.*batchnorm",
    },
    "gamma": {"net": "conv", "optimizer": ("sgd", {"learning_rate": 0.1}), "null": ".*batchnorm"},
    "multipliers": {
        "net": "conv",
        "optimizer": ("sgd", {"learning_rate": 0.1, "wd": 0.1}),
        "slow": ".*conv",
        "bare": ".*bias",
    },
    "add": {"net": "conv", "optimizer": ("sgd", {"learning_rate": 0.1}), "add": ".*dense"},
    "two": {
        "net": "conv",
        "optimizer": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}),
        "contexts": 2,
    },
    "two_outside": {
        "net": "conv",
        "optimizer": ("adam", {"learning_rate": 0.01}),
        "contexts": 2,
        "update_on_kvstore": False,
    },
    "cell": {"net": "cell", "optimizer": ("adam", {"learning_rate": 0.02, "epsilon": 1e-3})},
    "pair": {"net": "pair", "optimizer": ("sgd", {"learning_rate": 0.1, "wd": 0.1})},
}


def opened(mx, folder, net, ctx=None):
    return mx.gluon.SymbolBlock.imports(
        f"{folder}/{net}-symbol.json", ["data"], f"{folder}/{net}-0000.params", ctx=ctx
    )


def values(block):
    return {name: param._reduce().asnumpy() for name, param in block.collect_params().items()}


def prepare(mx, block, case):
    """Return a trainer with the settings of a case."""
    for key, attribute, value in (
        ("null", "grad_req", "null"),
        ("add", "grad_req", "add"),
        ("slow", "lr_mult", 0.1),
        ("bare", "wd_mult", 0.0),
    ):
        if key in case:
            block.collect_params(case[key]).setattr(attribute, value)
    name, options = case["optimizer"]
    options = dict(options)
    if "schedule" in case:
        options["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=0.4)
    return mx.gluon.Trainer(
        block.collect_params(), name, options, update_on_kvstore=case.get("update_on_kvstore")
    )


def step(mx, block, trainer, case, batch, contexts):
    """Train one batch; return the outputs on the first context."""
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    x, y = batch
    xs = mx.gluon.utils.split_and_load(mx.nd.array(x), contexts)
    ys = mx.gluon.utils.split_and_load(mx.nd.array(y), contexts)
    with mx.autograd.record():
        outs = [block(part) for part in xs]
        firsts = [out[0] if isinstance(out, (list, tuple)) else out for out in outs]
        losses = [loss_of(out, label) for out, label in zip(firsts, ys)]
    mx.autograd.backward(losses)
    trainer.step(len(y))
    return firsts[0].asnumpy()


def train(mx, folder, name):
    """Train three batches; return the outputs of each, and the parameters."""
    case = TRAININGS[name]
    contexts = [mx.cpu(i) for i in range(case.get("contexts", 1))]
    block = opened(mx, folder, case["net"], contexts)
    trainer = prepare(mx, block, case)
    found = {}
    for i, batch in enumerate(batches(case["net"])):
        if "rates" in case:
            trainer.set_learning_rate(case["rates"][i])
        found[f"out{i}"] = step(mx, block, trainer, case, batch, contexts)
    found["rate"] = np.array(trainer.learning_rate)
    found.update(values(block))
    return found


def predict(mx, folder, net):
    """Predict a batch, and a smaller one."""
    block, x = opened(mx, folder, net), batches(net)[0][0]
    small = x[:, :2] if net == "lstm" else x[:2]
    outs = [block(mx.nd.array(part)) for part in (x, small)]
    flat = [each for out in outs for each in (out if isinstance(out, (list, tuple)) else [out])]
    return {f"out{i}": out.asnumpy() for i, out in enumerate(flat)}


def stale(mx, folder):
    """Train two blocks with one trainer, of which only the first is called in the second step."""
    first, second = opened(mx, folder, "conv"), opened(mx, folder, "pair")
    params = mx.gluon.ParameterDict()
    params.update(first.collect_params())
    params.update(second.collect_params())
    trainer = mx.gluon.Trainer(params, "sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.1})
    (x, _), (z, _) = batches("conv")[0], batches("pair")[0]
    x, z = mx.nd.array(x), mx.nd.array(z)
    with mx.autograd.record():
        loss = first(x).square().mean() + second(z)[1].square().mean()
    loss.backward()
    trainer.step(1)
    with mx.autograd.record():
        loss = first(x).square().mean()
    loss.backward()
    try:
        trainer.step(1)
    except UserWarning:
        trainer.step(1, ignore_stale_grad=True)
    else:
        raise AssertionError("the stale gradients are no error")
    return dict(values(first), **values(second))


def twice(mx, folder):
    """Call a block twice in one recording; return the statistics after backward, and the gradients."""
    block, x = opened(mx, folder, "conv"), mx.nd.array(batches("conv")[0][0])
    with mx.autograd.record():
        loss = block(x).sum() + block(x * 2).sum()
    loss.backward()
    found = values(block)
    found.update(
        ("grad " + name, param.grad().asnumpy())
        for name, param in block.collect_params().items()
        if param.grad_req != "null"
    )
    return found


def begin(mx, folder, name, prefix):
    """Train one batch and save states and network."""
    case = TRAININGS[name]
    contexts = [mx.cpu(i) for i in range(case.get("contexts", 1))]
    block = opened(mx, folder, case["net"], contexts)
    trainer = prepare(mx, block, case)
    step(mx, block, trainer, case, batches(case["net"])[0], contexts)
    trainer.save_states(prefix + ".states")
    block.export(prefix, 1)


def go_on(mx, name, prefix):
    """Open what `begin` saved, train two batches, and return the parameters."""
    case = TRAININGS[name]
    contexts = [mx.cpu(i) for i in range(case.get("contexts", 1))]
    block = mx.gluon.SymbolBlock.imports(
        prefix + "-symbol.json", ["data"], prefix + "-0001.params", ctx=contexts
    )
    trainer = prepare(mx, block, case)
    trainer.load_states(prefix + ".states")
    for batch in batches(case["net"])[1:]:
        step(mx, block, trainer, case, batch, contexts)
    return values(block)


LOSSES = [
    ("L2Loss", {}),
    ("L2Loss", {"weight": 3.0, "batch_axis": 1}),
    ("L1Loss", {}),
    ("L1Loss", {"weight": 0.5}),
    ("HuberLoss", {}),
    ("HuberLoss", {"rho": 0.5}),
    ("HingeLoss", {}),
    ("SquaredHingeLoss", {"margin": 2}),
    ("LogisticLoss", {}),
    ("LogisticLoss", {"label_format": "binary"}),
    ("SigmoidBinaryCrossEntropyLoss", {}),
    ("SigmoidBCELoss", {"weight": 2.0}),
    ("SigmoidBCELoss", {"from_sigmoid": True}),
    ("KLDivLoss", {}),
    ("KLDivLoss", {"from_logits": False}),
    ("SoftmaxCELoss", {"sparse_label": False}),
    ("SoftmaxCrossEntropyLoss", {"sparse_label": False, "from_logits": True, "batch_axis": 1}),
]


def losses(mx):
    """Return values and gradients of losses, with and without weights of the elements."""
    random = np.random.RandomState(3)
    pred, label, weight = (random.rand(4, 3).astype("f") for _ in range(3))
    found = {}

    def note(key, loss_of, *args):
        args = [mx.nd.array(each) for each in args]
        args[0].attach_grad()
        with mx.autograd.record():
            loss = loss_of(*args)
        loss.backward()
        found[key + " value"], found[key + " gradient"] = loss.asnumpy(), args[0].grad.asnumpy()

    for i, (name, options) in enumerate(LOSSES):
        loss_of = getattr(mx.gluon.loss, name)(**options)
        rest = weight[:, :1] if name.startswith("Softmax") else weight
        note(f"{i}", loss_of, pred, label)
        note(f"{i} weighted", loss_of, pred, label, rest)
    bce = mx.gluon.loss.SigmoidBCELoss
    for from_sigmoid in (False, True):
        note(f"positive {int(from_sigmoid)}", bce(from_sigmoid), pred, label, weight, weight[:1] * 3)
    note("triplet", mx.gluon.loss.TripletLoss(), pred, label, weight)
    scores, words = random.randn(2, 5, 4).astype("f"), np.array([[0, 1, -1], [2, 1, 2]], "f")
    note("ctc", mx.gluon.loss.CTCLoss(), scores, words)
    note("ctc turned", mx.gluon.loss.CTCLoss("TNC", "TN", 2.0), scores.transpose(1, 0, 2), words.T)
    note("ctc lengths", mx.gluon.loss.CTCLoss(), scores, words, np.array([4, 5], "f"), np.array([2, 3], "f"))
    return found
