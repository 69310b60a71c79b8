"""Update rules in NumPy float64, written from MXNet's formulas one parameter at a time."""

import numpy as np


def _clip(value, limit):
    return value if limit is None else np.clip(value, -limit, limit)


def _scaled(g, decay=0.0, rescale_grad=1.0, clip_gradient=None, **_):
    return _clip(rescale_grad * g + decay, clip_gradient)


def sgd(w, g, s, t, *, lr, wd=0.0, momentum=0.0, rescale_grad=1.0, clip_gradient=None, **_):
    step = lr * (_clip(rescale_grad * g, clip_gradient) + wd * w)
    if not momentum:
        return w - step, s
    m = momentum * s.get("m", 0.0) - step
    return w + m, {"m": m}


def adam(w, g, s, t, *, lr, wd=0.0, beta1=0.9, beta2=0.999, epsilon=1e-8, **o):
    g = _scaled(g, wd * w, **o)
    m = beta1 * s.get("m", 0.0) + (1 - beta1) * g
    v = beta2 * s.get("v", 0.0) + (1 - beta2) * g * g
    rate = lr * np.sqrt(1 - beta2**t) / (1 - beta1**t)
    return w - rate * m / (np.sqrt(v) + epsilon), {"m": m, "v": v}


def adagrad(w, g, s, t, *, lr, wd=0.0, eps=1e-7, rescale_grad=1.0, clip_gradient=None, **_):
    g = _clip(rescale_grad * g, clip_gradient)
    h = s.get("h", 0.0) + g * g
    return w - lr * (g / np.sqrt(h + eps) + wd * w), {"h": h}


def plainadagrad(w, g, s, t, *, lr, wd=0.0, eps=1e-7, rescale_grad=1.0, clip_gradient=None, **_):
    g = _clip(rescale_grad * g, clip_gradient) + wd * w
    h = s.get("h", 0.0) + g * g
    return w - lr * g / (np.sqrt(h) + eps), {"h": h}


def rmsprop(w, g, s, t, *, lr, wd=0.0, gamma1=0.9, gamma2=0.9, centered=False, clip_weights=None, **o):
    g, epsilon = _scaled(g, wd * w, **o), 1e-8
    n = gamma1 * s.get("n", 0.0) + (1 - gamma1) * g * g
    if not centered:
        return _clip(w - lr * g / np.sqrt(n + epsilon), clip_weights), {"n": n}
    b = gamma1 * s.get("b", 0.0) + (1 - gamma1) * g
    d = gamma2 * s.get("d", 0.0) - lr * g / np.sqrt(n - b * b + epsilon)
    return _clip(w + d, clip_weights), {"n": n, "b": b, "d": d}


def ftrl(w, g, s, t, *, lr, wd=0.0, lamda1=0.01, beta=1.0, rescale_grad=1.0, clip_gradient=None, **_):
    if lr == 0:
        return w, s
    g = _clip(rescale_grad * g, clip_gradient)
    n = s.get("n", 0.0)
    z = s.get("z", 0.0) + g - (np.sqrt(n + g * g) - np.sqrt(n)) * w / lr
    n = n + g * g
    w = np.where(np.abs(z) > lamda1, (np.sign(z) * lamda1 - z) / ((beta + np.sqrt(n)) / lr + wd), 0.0)
    return w, {"z": z, "n": n}


RULES = {rule.__name__: rule for rule in (sgd, adam, adagrad, plainadagrad, rmsprop, ftrl)}
HALF = {"batch_scale": 2, "warmup_strategy": "lars", "momentum": 0.9}
PLAIN = "sgd nag adam adagrad rmsprop adadelta adamax nadam ftrl ftml signum dcasgd lars lamb groupadagrad plainadagrad"
VARIANTS = [
    *((name, {}) for name in PLAIN.split()),
    *((name, {"momentum": 0.9}) for name in ("sgd", "nag", "lbsgd")),
    ("adam", {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}),
    *(("rmsprop", extra) for extra in ({"clip_weights": 0.5}, {"centered": True})),
    ("ftrl", {"lamda1": 0.2, "beta": 0.5}),
    *(("signum", extra) for extra in ({"momentum": 0.0}, {"wd_lh": 0.1})),
    ("dcasgd", {"momentum": 0.9, "lamda": 0.5}),
    *(("lars", {"momentum": 0.9, "eta": 0.1, "momentum_correction": on}) for on in (True, False)),
    *(("lamb", extra) for extra in ({"bias_correction": False}, {"lower_bound": 10.0}, {"upper_bound": 2.0})),
    *(("lbsgd", extra) for extra in (HALF, {**HALF, "warmup_strategy": "sqrt", "updates_per_epoch": 2})),
]
"""Names of optimizers with arguments of their own, for tests that go through all of them."""
