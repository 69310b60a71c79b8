"""Cases of the update operators: formulas, with betas and rates that float32 holds exactly. MXNet's own numbers for
random attributes are in data/goldens/update."""

import numpy as np

from helpers.op_case import OpCase

rng = np.random.RandomState(5)
STEP = "an optimizer's step has no gradient in MXNet"
LR, WD, MOM, SCALE, CLIP = 0.5, 0.125, 0.75, 2.0, 0.5
BETA1, BETA2, EPS = 0.5, 0.75, 0.25
COMMON = {"wd": WD, "rescale_grad": SCALE, "clip_gradient": CLIP}
ADAM = {"beta1": BETA1, "beta2": BETA2, "epsilon": EPS}


def draw(shape=(2, 3), positive=False, dtype="f8"):
    found = rng.uniform(-1, 1, shape)
    return (abs(found) if positive else found).astype(dtype)


def cut(x):
    return np.clip(x, -CLIP, CLIP)


def sgd(w, g, lr=LR, wd=WD):
    return w - lr * (cut(SCALE * g) + wd * w)


def sgd_mom(w, g, mom, lr=LR, wd=WD):
    return w + MOM * mom - lr * (cut(SCALE * g) + wd * w)


def nag(w, g, mom):
    return w + MOM**2 * mom - (1 + MOM) * LR * (cut(SCALE * g) + WD * w)


def signum(w, g, mom):
    return (1 - LR * 0.25) * w + LR * np.sign(MOM * mom - (1 - MOM) * (cut(SCALE * g) + WD * w))


def moments(g, mean, var):
    return BETA1 * mean + (1 - BETA1) * g, BETA2 * var + (1 - BETA2) * g**2


def adam(w, g, mean, var):
    mean, var = moments(cut(SCALE * g + WD * w), mean, var)
    return w - LR * mean / (np.sqrt(var) + EPS)


def adamw(w, g, mean, var, scale, lr=LR, wd=WD, eta=0.5):
    if not np.isfinite(scale).all() or not scale.all():
        return w
    mean, var = moments(cut(scale * g), mean, var)
    return w - eta * (lr * mean / (np.sqrt(var) + EPS) + wd * w)


def ftml(w, g, d, v, z):
    g = cut(SCALE * g + WD * w)
    v = BETA2 * v + (1 - BETA2) * g**2
    new = (1 - BETA1**3) / LR * (np.sqrt(v / (1 - BETA2**3)) + EPS)
    return -(BETA1 * z + (1 - BETA1) * g - (new - BETA1 * d) * w) / new


def ftrl(w, g, z, n):
    g = cut(SCALE * g)
    z = z + g - (np.sqrt(n + g**2) - np.sqrt(n)) * w / LR
    return -np.sign(z) * np.maximum(abs(z) - 0.25, 0) / ((1 + np.sqrt(n + g**2)) / LR + WD)


def rmsprop(w, g, n):
    g = cut(SCALE * g + WD * w)
    return np.clip(w - LR * g / np.sqrt(0.75 * n + 0.25 * g**2 + EPS), -0.75, 0.75)


def rmspropalex(w, g, n, mean, delta):
    g = cut(SCALE * g + WD * w)
    n, mean = 0.75 * n + 0.25 * g**2, 0.75 * mean + 0.25 * g
    return w + 0.5 * delta - LR * g / np.sqrt(n - mean**2 + EPS)


def adagrad(w, g, history):
    g = cut(SCALE * g)
    return w - LR * g / np.sqrt(history + g**2 + EPS)


def group_adagrad(w, g, history):
    g = cut(SCALE * g)
    return w - LR * g / np.sqrt(history + (g**2).mean(1, keepdims=True) + EPS)


def lamb1(w, g, mean, var, t=3, wd=WD):
    mean, var = moments(cut(SCALE * g), mean, var)
    return mean / (1 - BETA1**t) / (np.sqrt(var / (1 - BETA2**t)) + EPS) + wd * w


def lamb2(w, g, r1, r2, lr=LR):
    r1 = np.clip(r1, 0.25, 0.75)
    return w - lr * (r1 / r2 if r1 and r2 else 1.0) * g


def lamb(w, g, mean, var, lr=LR, wd=WD, t=3):
    move = lamb1(w, g, mean, var, t, wd)
    return lamb2(w, move, np.linalg.norm(w), np.linalg.norm(move), lr)


def narrow(rule):
    """Make the formula of a 16-bit weight with a float32 copy from the formula of the copy."""

    def run(w, g, *rest):
        return rule(rest[-1].astype("f8"), g.astype("f8"), *(x.astype("f8") for x in rest[:-1])).astype("f2")

    return run


def row(name, expect, inputs, **attrs):
    return OpCase(name, tuple(inputs), attrs, expect, no_grad=STEP)


def wide(states):
    """Return the inputs of a 16-bit weight: weight, gradient, states, copy."""
    weight = draw(dtype="f2")
    return [
        weight,
        draw(dtype="f2"),
        *(draw(positive=True, dtype="f4") for _ in range(states)),
        weight.astype("f4"),
    ]


def plain(states):
    return [draw(), draw(), *(draw(positive=True) for _ in range(states))]


RMS = {"gamma1": 0.75, "epsilon": EPS}
LAMB = {**ADAM, "t": 3, **COMMON}
BOUNDS = {"lower_bound": 0.25, "upper_bound": 0.75}
ONE = np.array([SCALE])
CASES = [
    row("sgd_update", sgd, plain(0), lr=LR, **COMMON),
    row("sgd_update", lambda w, g: w - LR * g, plain(0), lr=LR),
    row("sgd_mom_update", sgd_mom, plain(1), lr=LR, momentum=MOM, **COMMON),
    row("mp_sgd_update", narrow(sgd), wide(0), lr=LR, **COMMON),
    row("mp_sgd_mom_update", narrow(sgd_mom), wide(1), lr=LR, momentum=MOM, **COMMON),
    row("nag_mom_update", nag, plain(1), lr=LR, momentum=MOM, **COMMON),
    row("mp_nag_mom_update", narrow(nag), wide(1), lr=LR, momentum=MOM, **COMMON),
    row("signsgd_update", lambda w, g: (1 - LR * WD) * w - LR * np.sign(g), plain(0), lr=LR, **COMMON),
    row("signum_update", signum, plain(1), lr=LR, momentum=MOM, wd_lh=0.25, **COMMON),
    row("adam_update", adam, plain(2), lr=LR, **ADAM, **COMMON),
    row("_adamw_update", adamw, [*plain(2), ONE], lr=LR, eta=0.5, wd=WD, clip_gradient=CLIP, **ADAM),
    row("_adamw_update", adamw, [*plain(2), np.array([np.nan])], lr=LR, eta=0.5, wd=WD, **ADAM),
    row("_adamw_update", adamw, [*plain(2), np.array([0.0])], lr=LR, eta=0.5, wd=WD, **ADAM),
    row(
        "_mp_adamw_update",
        lambda w, g, m, v, c, s: narrow(lambda w, g, m, v: adamw(w, g, m, v, s))(w, g, m, v, c),
        [*wide(2), ONE.astype("f4")],
        lr=LR,
        eta=0.5,
        wd=WD,
        clip_gradient=CLIP,
        **ADAM,
    ),
    row("ftml_update", ftml, plain(3), lr=LR, t=3, wd=WD, rescale_grad=SCALE, clip_grad=CLIP, **ADAM),
    row("ftrl_update", ftrl, plain(2), lr=LR, lamda1=0.25, **COMMON),
    row("rmsprop_update", rmsprop, plain(1), lr=LR, clip_weights=0.75, **RMS, **COMMON),
    row("rmspropalex_update", rmspropalex, plain(3), lr=LR, gamma2=0.5, **RMS, **COMMON),
    row(
        "_sparse_adagrad_update",
        adagrad,
        plain(1),
        lr=LR,
        epsilon=EPS,
        rescale_grad=SCALE,
        clip_gradient=CLIP,
    ),
    row(
        "_contrib_group_adagrad_update",
        group_adagrad,
        [draw(), draw(), draw((2, 1), positive=True)],
        lr=LR,
        epsilon=EPS,
        rescale_grad=SCALE,
        clip_gradient=CLIP,
    ),
    row("lamb_update_phase1", lamb1, plain(2), **LAMB),
    row(
        "mp_lamb_update_phase1",
        lambda w, g, m, v, c: lamb1(c.astype("f8"), g.astype("f8"), m, v).astype("f4"),
        wide(2),
        **LAMB,
    ),
    row("lamb_update_phase2", lamb2, [*plain(0), np.array([2.0]), np.array([0.5])], lr=LR, **BOUNDS),
    row("lamb_update_phase2", lamb2, [*plain(0), np.array([2.0]), np.array([0.0])], lr=LR, **BOUNDS),
    row(
        "mp_lamb_update_phase2",
        lambda w, g, r1, r2, c: lamb2(c, g, r1, r2).astype("f2"),
        [draw(dtype="f2"), draw(dtype="f4"), np.array([2.0], "f4"), np.array([0.5], "f4"), draw(dtype="f4")],
        lr=LR,
        **BOUNDS,
    ),
    row(
        "multi_lars",
        lambda lr, w, g, wd: np.where(
            (w > 0) & (g > 0), lr * 0.5 * np.sqrt(w) / (np.sqrt(g) * SCALE + wd * np.sqrt(w) + EPS), lr
        ),
        [draw((4,), True), np.array([0, 1, 2.0, 3]), np.array([1, 0, 2.0, 3]), draw((4,), True)],
        eta=0.5,
        eps=EPS,
        rescale_grad=SCALE,
    ),
    row(
        "multi_sum_sq",
        lambda *arrays: np.array([(x**2).sum() for x in arrays]).astype("f4"),
        [draw(), draw((4,)), draw((1, 2, 2))],
    ),
    row("reset_arrays", lambda *arrays: (), [draw(), draw((4,))]),
]

RATES = {"lrs": (LR, 0.25), "wds": (WD, 0.0)}
SCALING = {"rescale_grad": SCALE, "clip_gradient": CLIP}
TWO = np.array([LR, 0.25], "f4"), np.array([WD, 0.0], "f4")


def each(rule, width, *rates):
    """Make the formula of two weights from that of one; `rates` are its last arguments for each."""

    def run(*inputs):
        groups = [inputs[i * width : (i + 1) * width] for i in range(2)]
        return tuple(
            rule(*group, *rate) for group, rate in zip(groups, zip(*rates, strict=True), strict=True)
        )

    return run


def with_rates(rule):
    """Let a formula take its rates behind a 16-bit weight's copy."""
    return lambda *x: narrow(lambda *y: rule(*y, *x[-2:]))(*x[:-2])


for states, rule, extra in ((0, sgd, {}), (1, sgd_mom, {"momentum": MOM})):
    kind = "sgd_mom_update" if states else "sgd_update"
    inputs, copies = [*plain(states), *plain(states)], [*wide(states), *wide(states)]
    two = each(rule, 2 + states, *RATES.values())
    two_wide = each(with_rates(rule), 3 + states, *RATES.values())
    CASES += [
        row(f"multi_{kind}", two, inputs, **RATES, **SCALING, **extra),
        row(f"multi_mp_{kind}", two_wide, copies, **RATES, **SCALING, **extra),
        row(f"preloaded_multi_{kind}", two, [*inputs, *TWO], **SCALING, **extra),
        row(f"preloaded_multi_mp_{kind}", two_wide, [*copies, *TWO], **SCALING, **extra),
    ]


def adamw_of(*x):
    return adamw(*x[:4], ONE, *x[4:])


ETAS = {**RATES, "etas": (0.5, 1.0)}
STEPS = {"learning_rates": (LR, 0.25), "wds": (WD, 0.0), "step_count": (3, 1)}
inputs, copies = [*plain(2), *plain(2)], [*wide(2), *wide(2)]
CASES += [
    row(
        "_multi_adamw_update",
        each(adamw_of, 4, *ETAS.values()),
        [*inputs, ONE],
        clip_gradient=CLIP,
        **ETAS,
        **ADAM,
    ),
    row(
        "_multi_mp_adamw_update",
        each(lambda *x: narrow(lambda *y: adamw_of(*y, *x[5:]))(*x[:5]), 5, *ETAS.values()),
        [*copies, ONE.astype("f4")],
        clip_gradient=CLIP,
        **ETAS,
        **ADAM,
    ),
    row(
        "_multi_lamb_update",
        each(lamb, 4, *STEPS.values()),
        inputs,
        **STEPS,
        **SCALING,
        **ADAM,
        **BOUNDS,
    ),
    row(
        "_multi_mp_lamb_update",
        each(lambda *x: narrow(lambda *y: lamb(*y, *x[5:]))(*x[:5]), 5, *STEPS.values()),
        copies,
        **STEPS,
        **SCALING,
        **ADAM,
        **BOUNDS,
    ),
]
