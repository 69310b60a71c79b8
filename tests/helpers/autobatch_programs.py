"""Small programs that DyNet and `dpmodule.autobatch` both run: networks, trainers. Imports neither."""

import numpy as np

_PLAIN = ["VanillaLSTM", "CompactVanillaLSTM", "CoupledLSTM", "FastLSTM", "GRU", "SimpleRNN", "SparseLSTM"]
BUILDERS = {
    **{f"{name}Builder": {} for name in _PLAIN},
    "VanillaLSTMBuilder_norm": {"ln_lstm": True},
    "VanillaLSTMBuilder_forget": {"forget_bias": 0.25},
}
_PLAIN = ["SimpleSGD", "MomentumSGD", "Adagrad", "Adadelta", "RMSProp", "Adam", "Amsgrad"]
TRAINERS = {
    **{f"{name}Trainer": {} for name in _PLAIN},
    "SimpleSGDTrainer_rate": {"learning_rate": 0.7},
    "CyclicalSGDTrainer": {"learning_rate_min": 0.02, "learning_rate_max": 0.2, "step_size": 3, "gamma": 0.9},
}


def fill(model, seed=0):
    """Give all parameters values that depend on their order only."""
    draw = np.random.RandomState(seed)
    for p in model.parameters_list():
        p.set_value(draw.uniform(-0.5, 0.5, p.shape()).astype(np.float32))


def network(dy, name, first):
    """Return outputs of a network of two layers, and the gradients of its parameters and inputs."""
    m = dy.ParameterCollection()
    kind = name.split("_")[0]
    builder = getattr(dy, kind)(2, 3, 4, m, **BUILDERS[name])
    fill(m)
    draw = np.random.RandomState(1)
    dy.renew_cg()
    xs = [dy.inputTensor(draw.uniform(-1, 1, 3)) for _ in range(3)]
    count = 0 if not first else 4 if "LSTM" in kind else 2
    vecs = [dy.inputTensor(draw.uniform(-1, 1, 4)) for _ in range(count)] or None
    states = builder.initial_state(vecs, True).add_inputs(xs)
    outputs = [s.output() for s in states] + list(states[-1].s())
    weights = dy.inputTensor(np.linspace(-1, 1, 4))
    loss = dy.esum([dy.dot_product(weights, y) for y in outputs])
    found = [y.npvalue() for y in outputs]
    loss.backward(full=True)
    found += [p.grad_as_array() for p in m.parameters_list()]
    found += [x.gradient() for x in xs + (vecs or [])]
    return found


def training(dy, name, clip, sparse, decay):
    """Return the values of a matrix and a table after each of some updates."""
    m = dy.ParameterCollection()
    w, table, frozen = m.add_parameters((2, 3)), m.add_lookup_parameters((5, 3)), m.add_parameters((2,))
    fill(m, 3)
    table.init_from_array(np.random.RandomState(4).uniform(-1, 1, (5, 3)).astype(np.float32))
    frozen.set_updated(False)
    if decay:
        m.set_weight_decay(decay)
    trainer = getattr(dy, name.split("_")[0])(m, **TRAINERS[name])
    trainer.set_clip_threshold(clip)
    trainer.set_sparse_updates(sparse)
    found = []
    for step in range(6):
        dy.renew_cg()
        rows = [step % 5, (2 * step + 1) % 5]
        ys = [dy.parameter(w) * table[row] + dy.const_parameter(frozen) for row in rows]
        loss = dy.esum([dy.squared_norm(y) for y in ys]) * 3.0
        loss.forward()
        loss.backward()
        trainer.update()
        if step == 3:
            trainer.restart()
        found += [w.as_array(), table.as_array(), frozen.as_array()]
    return found
