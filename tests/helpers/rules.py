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


def nag(w, g, s, t, *, lr, wd=0.0, momentum=0.0, rescale_grad=1.0, clip_gradient=None, **_):
    g = _clip(rescale_grad * g, clip_gradient)
    if not momentum:
        return w - lr * (g + wd * w), s
    m = s.get("m", 0.0)
    new = w + momentum**2 * m - (1 + momentum) * lr * (g + wd * w)
    return new, {"m": momentum * m - lr * (g + wd * new)}


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


def rmsprop(w, g, s, t, *, lr, wd=0.0, gamma1=0.9, gamma2=0.9, centered=False, clip_weights=None, **o):
    g, epsilon = _scaled(g, wd * w, **o), 1e-8
    n = gamma1 * s.get("n", 0.0) + (1 - gamma1) * g * g
    if not centered:
        return _clip(w - lr * g / np.sqrt(n + epsilon), clip_weights), {"n": n}
    b = gamma1 * s.get("b", 0.0) + (1 - gamma1) * g
    d = gamma2 * s.get("d", 0.0) - lr * g / np.sqrt(n - b * b + epsilon)
    return _clip(w + d, clip_weights), {"n": n, "b": b, "d": d}


def adadelta(w, g, s, t, *, lr, wd=0.0, rho=0.9, epsilon=1e-5, rescale_grad=1.0, clip_gradient=None, **_):
    g = _clip(rescale_grad * g, clip_gradient)
    h, d = s.get("h", 0.0), s.get("d", 0.0)
    h = rho * h + (1 - rho) * g * g
    step = np.sqrt((d + epsilon) / (h + epsilon)) * g
    return w - step - wd * w, {"h": h, "d": rho * d + (1 - rho) * step * step}


def adamax(w, g, s, t, *, lr, wd=0.0, beta1=0.9, beta2=0.999, rescale_grad=1.0, clip_gradient=None, **_):
    g = _clip(rescale_grad * g + wd * w, clip_gradient)
    m = beta1 * s.get("m", 0.0) + (1 - beta1) * g
    u = np.maximum(beta2 * s.get("u", 0.0), np.abs(g))
    return w - lr / (1 - beta1**t) * m / (u + 1e-8), {"m": m, "u": u}


def nadam(w, g, s, t, *, lr, wd=0.0, beta1=0.9, beta2=0.999, epsilon=1e-8, schedule_decay=0.004, **o):
    g = _scaled(g, wd * w, **o)
    here, ahead = (beta1 * (1 - 0.5 * 0.96 ** (n * schedule_decay)) for n in (t, t + 1))
    product = s.get("product", 1.0) * here
    m = beta1 * s.get("m", 0.0) + (1 - beta1) * g
    v = beta2 * s.get("v", 0.0) + (1 - beta2) * g * g
    mean = (1 - here) * g / (1 - product) + ahead * m / (1 - product * ahead)
    w = w - lr * mean / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    return w, {"m": m, "v": v, "product": product}


def ftrl(w, g, s, t, *, lr, wd=0.0, lamda1=0.01, beta=1.0, rescale_grad=1.0, clip_gradient=None, **_):
    if lr == 0:
        return w, s
    g = _clip(rescale_grad * g, clip_gradient)
    n = s.get("n", 0.0)
    z = s.get("z", 0.0) + g - (np.sqrt(n + g * g) - np.sqrt(n)) * w / lr
    n = n + g * g
    w = np.where(np.abs(z) > lamda1, (np.sign(z) * lamda1 - z) / ((beta + np.sqrt(n)) / lr + wd), 0.0)
    return w, {"z": z, "n": n}


def ftml(w, g, s, t, *, lr, wd=0.0, beta1=0.6, beta2=0.999, epsilon=1e-8, **o):
    if lr == 0:
        return w, s
    g = _scaled(g, wd * w, **o)
    v = beta2 * s.get("v", 0.0) + (1 - beta2) * g * g
    d = (1 - beta1**t) / lr * (np.sqrt(v / (1 - beta2**t)) + epsilon)
    z = beta1 * s.get("z", 0.0) + (1 - beta1) * g - (d - beta1 * s.get("d", 0.0)) * w
    return -z / d, {"d": d, "v": v, "z": z}


def signum(w, g, s, t, *, lr, wd=0.0, momentum=0.9, wd_lh=0.0, rescale_grad=1.0, clip_gradient=None, **_):
    if not momentum:
        return (1 - lr * wd) * w - lr * np.sign(g), s
    g = _clip(rescale_grad * g, clip_gradient)
    m = momentum * s.get("m", 0.0) - (1 - momentum) * (g + wd * w)
    return (1 - lr * wd_lh) * w + lr * np.sign(m), {"m": m}


def dcasgd(w, g, s, t, *, lr, wd=0.0, momentum=0.0, lamda=0.04, rescale_grad=1.0, clip_gradient=None, **_):
    g = _clip(rescale_grad * g, clip_gradient)
    m = momentum * s.get("m", 0.0) - lr * (g + wd * w + lamda * g * g * (w - s.get("before", w)))
    return w + m, {"m": m, "before": w}


def lars(
    w, g, s, t, *, lr, wd=0.0, momentum=0.0, eta=0.001, eps=0.0, momentum_correction=True, skip=False, **o
):
    size, slope = np.linalg.norm(w), np.linalg.norm(g)
    bottom = abs(o.get("rescale_grad", 1.0)) * slope + wd * size + eps
    trust = eta * size / bottom if size > 0 and slope > 0 and bottom > 0 and not skip else 1.0
    before = s.get("lr", 0.0)
    keep = momentum * (lr / before if momentum_correction and before else 1.0)
    m = keep * s.get("m", 0.0) - lr * trust * (_scaled(g, **o) + wd * w)
    return w + m, {"m": m, "lr": lr}


def lamb(w, g, s, t, *, lr, wd=0.0, beta1=0.9, beta2=0.999, epsilon=1e-6, bias_correction=True, **o):
    g = _scaled(g, **o)
    m = beta1 * s.get("m", 0.0) + (1 - beta1) * g
    v = beta2 * s.get("v", 0.0) + (1 - beta2) * g * g
    mean, square = (m / (1 - beta1**t), v / (1 - beta2**t)) if bias_correction else (m, v)
    step = mean / (np.sqrt(square) + epsilon) + wd * w
    size, slope = np.linalg.norm(w), np.linalg.norm(step)
    size = np.clip(size, o.get("lower_bound", 0), o.get("upper_bound", np.inf))
    trust = 1.0 if size == 0 or slope == 0 else size / slope
    return w - lr * trust * step, {"m": m, "v": v}


def lbsgd(w, g, s, t, *, lr, wd=0.0, momentum=0.0, warmup_strategy="linear", batch_scale=1, **o):
    total = s.get("total", 0.0) + g
    if t % batch_scale:
        return w, {**s, "total": total}
    g, done = total / batch_scale, t / (o.get("warmup_epochs", 5) * o.get("updates_per_epoch", 32))
    if warmup_strategy == "lars":
        size = np.sum(w * w)
        lr = lr * np.clip(np.sqrt(size / (np.sum(g * g) + wd * size + 1e-18)), 0.01, 100)
    else:
        power = {"linear": 1, "power2": 2, "sqrt": 0.5}[warmup_strategy]
        lr = lr * (1 + (batch_scale - 1) * min(done, 1.0) ** power)
    m = momentum * s.get("m", 0.0) - lr * (_scaled(g, **o) + wd * w)
    return w + m, {"m": m}


def groupadagrad(w, g, s, t, *, lr, eps=1e-5, rescale_grad=1.0, clip_gradient=None, **_):
    g = _clip(rescale_grad * g, clip_gradient)
    h = s.get("h", 0.0) + np.mean(g * g, axis=tuple(range(1, g.ndim)), keepdims=True)
    return w - lr * g / np.sqrt(h + eps), {"h": h}


RULES = {
    rule.__name__: rule for rule in (sgd, nag, adam, adagrad, rmsprop, adadelta, adamax, nadam, ftrl, ftml)
}
RULES |= {rule.__name__: rule for rule in (signum, dcasgd, lars, lamb, lbsgd, groupadagrad)}


VARIANTS = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9}),
    ("nag", {}),
    ("nag", {"momentum": 0.9}),
    ("adam", {}),
    ("adam", {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}),
    ("adagrad", {}),
    ("rmsprop", {}),
    ("rmsprop", {"clip_weights": 0.5}),
    ("rmsprop", {"centered": True}),
    ("adadelta", {}),
    ("adadelta", {"rho": 0.8, "epsilon": 1e-3}),
    ("adamax", {}),
    ("adamax", {"beta1": 0.8, "beta2": 0.9}),
    ("nadam", {}),
    ("nadam", {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3, "schedule_decay": 0.1}),
    ("ftrl", {}),
    ("ftrl", {"lamda1": 0.2, "beta": 0.5}),
    ("ftml", {}),
    ("ftml", {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}),
    ("signum", {}),
    ("signum", {"momentum": 0.0}),
    ("signum", {"wd_lh": 0.1}),
    ("dcasgd", {}),
    ("dcasgd", {"momentum": 0.9, "lamda": 0.5}),
    ("lars", {}),
    ("lars", {"momentum": 0.9, "eta": 0.1, "eps": 0.1}),
    ("lars", {"momentum": 0.9, "eta": 0.1, "momentum_correction": False}),
    ("lamb", {}),
    ("lamb", {"bias_correction": False}),
    ("lamb", {"lower_bound": 0.5, "upper_bound": 2.0}),
    ("lamb", {"upper_bound": 2.0}),
    ("lamb", {"lower_bound": 10.0}),
    ("lbsgd", {"momentum": 0.9}),
    ("lbsgd", {"batch_scale": 2, "warmup_strategy": "sqrt", "warmup_epochs": 2, "updates_per_epoch": 2}),
    ("lbsgd", {"batch_scale": 2, "warmup_strategy": "lars", "momentum": 0.9}),
    ("groupadagrad", {}),
]
"""Names of optimizers with arguments of their own, for tests that go through all of them."""


def follow(name, weight, grads, lrs, **options):
    """Return the parameter after each gradient, in float64."""
    w, state, found = np.asarray(weight, np.float64), {}, []
    for t, (g, lr) in enumerate(zip(grads, lrs), 1):
        w, state = RULES[name](w, np.asarray(g, np.float64), state, t, lr=lr, **options)
        found.append(w)
    return found
