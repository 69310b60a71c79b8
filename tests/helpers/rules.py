"""Update rules in NumPy float64, written from MXNet's formulas one parameter at a time."""

import numpy as np


def _clip(value, limit):
    return value if limit is None else np.clip(value, -limit, limit)


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


def adam(
    w, g, s, t, *, lr, wd=0.0, beta1=0.9, beta2=0.999, epsilon=1e-8, rescale_grad=1.0, clip_gradient=None, **_
):
    g = _clip(rescale_grad * g + wd * w, clip_gradient)
    m = beta1 * s.get("m", 0.0) + (1 - beta1) * g
    v = beta2 * s.get("v", 0.0) + (1 - beta2) * g * g
    rate = lr * np.sqrt(1 - beta2**t) / (1 - beta1**t)
    return w - rate * m / (np.sqrt(v) + epsilon), {"m": m, "v": v}


def adagrad(w, g, s, t, *, lr, wd=0.0, eps=1e-7, rescale_grad=1.0, clip_gradient=None, **_):
    g = _clip(rescale_grad * g, clip_gradient)
    h = s.get("h", 0.0) + g * g
    return w - lr * (g / np.sqrt(h + eps) + wd * w), {"h": h}


def rmsprop(
    w,
    g,
    s,
    t,
    *,
    lr,
    wd=0.0,
    gamma1=0.9,
    gamma2=0.9,
    epsilon=1e-8,
    centered=False,
    clip_weights=None,
    rescale_grad=1.0,
    clip_gradient=None,
    **_,
):
    g = _clip(rescale_grad * g + wd * w, clip_gradient)
    n = gamma1 * s.get("n", 0.0) + (1 - gamma1) * g * g
    if not centered:
        return _clip(w - lr * g / np.sqrt(n + epsilon), clip_weights), {"n": n}
    b = gamma1 * s.get("b", 0.0) + (1 - gamma1) * g
    d = gamma2 * s.get("d", 0.0) - lr * g / np.sqrt(n - b * b + epsilon)
    return _clip(w + d, clip_weights), {"n": n, "b": b, "d": d}


RULES = {"sgd": sgd, "nag": nag, "adam": adam, "adagrad": adagrad, "rmsprop": rmsprop}


def follow(name, weight, grads, lrs, **options):
    """Return the parameter after each gradient, in float64."""
    w, state, found = np.asarray(weight, np.float64), {}, []
    for t, (g, lr) in enumerate(zip(grads, lrs), 1):
        w, state = RULES[name](w, np.asarray(g, np.float64), state, t, lr=lr, **options)
        found.append(w)
    return found
