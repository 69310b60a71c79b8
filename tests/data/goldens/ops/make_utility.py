"""Record what MXNet 1.9.1 computes for the operators of linear algebra, utility, contrib and quantization.

Run in an environment with MXNet 1.9.1 (CPU) and NumPy: ``python make_utility.py``. It writes the groups
``linalg_utility``, ``contrib_utility``, ``pdf_utility`` and ``quantize_utility`` beside itself, in the layout that
README.md tells.
"""

import json
import zlib
from pathlib import Path

import mxnet as mx
import numpy as np

HERE = Path(__file__).parent
GROUPS = {}


def draw(name):
    """Return a generator of the case's own."""
    return np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)


def function_of(op):
    """Return MXNet's symbol function of a registry name."""
    for prefix, space in (("_contrib_", mx.sym.contrib), ("_linalg_", mx.sym.linalg)):
        if op.startswith(prefix):
            return getattr(space, op[len(prefix) :])
    return getattr(mx.sym, op, None) or getattr(mx.sym._internal, op)


def add(group, name, op, inputs, attrs=None, grad=True, skip=()):
    """Keep what MXNet makes of one case; say so if it refuses."""
    try:
        run(group, name, op, inputs, attrs, grad, skip)
    except mx.MXNetError as error:
        print(f"{group}/{name} is refused: {str(error).strip().splitlines()[-1][:150]}")


def run(group, name, op, inputs, attrs, grad, skip):
    """Run one case forward and backward and keep what came out."""
    attrs = attrs or {}
    variables = [mx.sym.Variable(key) for key in inputs]
    symbol = function_of(op)(*variables, name="op", **attrs)
    arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    by_name = dict(inputs)
    arrays = {key: mx.nd.array(by_name[key], dtype=by_name[key].dtype) for key in arguments}
    aux = {key: mx.nd.array(by_name[key]) for key in states}
    wanted = [k for k in arguments if grad and by_name[k].dtype.kind == "f" and k not in skip]
    grads = {key: mx.nd.zeros(by_name[key].shape, dtype=by_name[key].dtype) for key in wanted}
    req = {key: "write" if key in grads else "null" for key in arguments}
    executor = symbol.bind(mx.cpu(), arrays, args_grad=grads or None, grad_req=req, aux_states=aux or None)
    outputs = [o.asnumpy() for o in executor.forward(is_train=grad)]
    store = {f"in/{key}": by_name[key] for key in arguments}
    if grad:
        heads = [draw(name + "#head").uniform(-1, 1, o.shape).astype(o.dtype) for o in outputs]
        executor.backward([mx.nd.array(h, dtype=h.dtype) for h in heads])
        store.update({f"head/{i}": h for i, h in enumerate(heads)})
        store.update({f"grad/{key}": found.asnumpy() for key, found in grads.items()})
    for key in states:
        store[f"aux_in/{key}"], store[f"aux_out/{key}"] = by_name[key], aux[key].asnumpy()
    store.update({f"out/{i}": o for i, o in enumerate(outputs)})
    cases, data = GROUPS.setdefault(group, ([], {}))
    cases.append(
        {
            "name": name,
            "op": op,
            "attrs": json.loads(json.dumps(attrs)),
            "inputs": list(inputs),
            "arguments": arguments,
            "aux": states,
            "outputs": symbol.list_outputs(),
            "is_train": grad,
            "head_gradient": grad,
            "backward": grad,
            "grads": sorted(grads),
            "eval_too": False,
            "symbol_json": symbol.tojson(),
        }
    )
    data.update({f"{name}/{key}": value for key, value in store.items()})


def real(name, *shape, low=-1.0, high=1.0, dtype="f8"):
    """Return seeded numbers."""
    return draw(f"{name}{shape}").uniform(low, high, shape).astype(dtype)


def positive(name, *shape):
    """Return symmetric positive definite matrices."""
    x = real(name, *shape)
    return x @ x.swapaxes(-1, -2) + 2 * np.eye(shape[-1])


def lower(name, *shape):
    """Return triangular matrices that are far from singular, with numbers above the diagonal too."""
    return real(name, *shape) + 2 * np.eye(shape[-1])


def linalg():
    """Record linear algebra."""
    g = "linalg_utility"
    for number, (flip_a, flip_b) in enumerate([(False, False), (True, False), (False, True), (True, True)]):
        a = real("a", 2, 4, 3) if flip_a else real("a", 2, 3, 4)
        b = real("b", 2, 5, 4) if flip_b else real("b", 2, 4, 5)
        flips = {"transpose_a": flip_a, "transpose_b": flip_b, "alpha": 1.5}
        add(g, f"gemm2_{number}", "_linalg_gemm2", {"A": a, "B": b}, flips)
        c = {"A": a, "B": b, "C": real("c", 2, 3, 5)}
        add(g, f"gemm_{number}", "_linalg_gemm", c, {**flips, "beta": -0.5})
    axes = {"A": real("a", 3, 2, 4), "B": real("b", 4, 2, 5)}
    add(g, "gemm2_axis", "_linalg_gemm2", axes, {"axis": 0})
    add(g, "gemm_axis", "_linalg_gemm", {**axes, "C": real("c", 3, 2, 5)}, {"axis": 0})
    for shape in ((3, 3), (2, 2, 3, 3)):
        word = f"{len(shape)}d"
        add(g, f"potrf_{word}", "_linalg_potrf", {"A": positive("p", *shape)})
        add(g, f"potri_{word}", "_linalg_potri", {"A": lower("p", *shape)})
        add(g, f"potrf_u_{word}", "_linalg_potrf", {"A": positive("p", *shape)}, {"lower": False})
        add(g, f"potri_u_{word}", "_linalg_potri", {"A": lower("p", *shape)}, {"lower": False})
        add(g, f"det_{word}", "_linalg_det", {"A": real("d", *shape)})
        add(g, f"slogdet_{word}", "_linalg_slogdet", {"A": real("d", *shape)})
        add(g, f"inverse_{word}", "_linalg_inverse", {"A": lower("i", *shape)})
        add(g, f"sumlogdiag_{word}", "_linalg_sumlogdiag", {"A": positive("s", *shape)})
        add(g, f"syevd_{word}", "_linalg_syevd", {"A": positive("e", *shape)})
        add(g, f"gelqf_{word}", "_linalg_gelqf", {"A": real("q", *shape[:-2], 3, 5)})
        add(g, f"syrk_{word}", "_linalg_syrk", {"A": real("y", *shape[:-1], 4)}, {"alpha": 2.0})
        add(g, f"syrk_t_{word}", "_linalg_syrk", {"A": real("y", *shape[:-1], 4)}, {"transpose": True})
        for offset in (0, 1, -1):
            add(
                g,
                f"extractdiag_{word}_{offset}",
                "_linalg_extractdiag",
                {"A": real("x", *shape)},
                {"offset": offset},
            )
            vector = real("m", *shape[:-2], 3)
            add(g, f"makediag_{word}_{offset}", "_linalg_makediag", {"A": vector}, {"offset": offset})
            for side in (True, False):
                attrs = {"offset": offset, "lower": side}
                name = f"{word}_{offset}_{int(side)}"
                add(g, f"extracttrian_{name}", "_linalg_extracttrian", {"A": real("x", *shape)}, attrs)
                add(g, f"maketrian_{name}", "_linalg_maketrian", {"A": real("t", *shape[:-2], 6)}, attrs)
    add(g, "det_singular", "_linalg_det", {"A": np.zeros((2, 2))})
    for number in range(8):
        flip, right, below = bool(number & 1), bool(number & 2), bool(number & 4)
        attrs = {"transpose": flip, "rightside": right, "lower": below, "alpha": 1.5}
        b = real("b", 2, 4, 3) if right else real("b", 2, 3, 4)
        for op in ("trmm", "trsm"):
            add(g, f"{op}_{number}", f"_linalg_{op}", {"A": lower("t", 2, 3, 3), "B": b}, attrs)
    add(
        g,
        "khatri_rao_3",
        "khatri_rao",
        {"a": real("k", 2, 3), "b": real("k", 4, 3), "c": real("k", 1, 3)},
        grad=False,
    )


def contrib():
    """Record positions, masks, attention and single contrib operators."""
    g = "contrib_utility"
    index = np.array([[0, 2, 1], [3, 1, 2]])
    for kind in ("float32", "int64", "int32"):
        add(
            g,
            f"ravel_{kind}",
            "_ravel_multi_index",
            {"data": index.astype(kind)},
            {"shape": (3, 4)},
            grad=False,
        )
        flat = np.array([1, 7, 11, 100]).astype(kind)
        add(g, f"unravel_{kind}", "_unravel_index", {"data": flat}, {"shape": (3, 2, 2)}, grad=False)
    values = np.array([0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, -1, 9], dtype="float32")
    for kind in ("float32", "float64", "int32"):
        data = values.astype(kind)
        add(
            g,
            f"histogram_{kind}",
            "_histogram",
            {"data": data},
            {"bin_cnt": 3, "range": (0.0, 3.0)},
            grad=False,
        )
        edges = np.array([0, 1, 2, 4]).astype(kind)
        add(g, f"histogram_edges_{kind}", "_histogram", {"data": data, "bins": edges}, grad=False)
    old = {"old": real("o", 5, 2), "index": np.array([3, 0], dtype="int32"), "new": real("n", 2, 2)}
    add(g, "index_copy", "_contrib_index_copy", old)
    add(g, "index_array", "_contrib_index_array", {"data": real("i", 2, 3, 2)}, grad=False)
    add(
        g,
        "index_array_axes",
        "_contrib_index_array",
        {"data": real("i", 2, 3, 2)},
        {"axes": (2, 0)},
        grad=False,
    )
    mask = {"data": real("b", 4, 2), "index": np.array([1, 0, 2, 0], dtype="int32")}
    add(g, "boolean_mask", "_contrib_boolean_mask", mask)
    for axis in (None, 0, -1):
        attrs = {"start": 1.5, "step": -0.5, "repeat": 2, "axis": axis}
        add(g, f"arange_like_{axis}", "_contrib_arange_like", {"data": real("a", 4, 6)}, attrs, grad=False)
    add(g, "div_sqrt_dim", "_contrib_div_sqrt_dim", {"data": real("d", 2, 3, 5)})
    heads = {"heads": 2}
    packed = {"qkv": real("q", 4, 3, 2 * 3 * 5, dtype="f4")}
    add(g, "selfatt_qk", "_contrib_interleaved_matmul_selfatt_qk", packed, heads)
    attention = {**packed, "att": real("t", 6, 4, 4, dtype="f4")}
    add(g, "selfatt_valatt", "_contrib_interleaved_matmul_selfatt_valatt", attention, heads)
    cross = {"queries": real("q", 4, 3, 10, dtype="f4"), "kv": real("k", 7, 3, 20, dtype="f4")}
    add(g, "encdec_qk", "_contrib_interleaved_matmul_encdec_qk", cross, heads)
    weighted = {"kv": cross["kv"], "att": real("w", 6, 4, 7, dtype="f4")}
    add(g, "encdec_valatt", "_contrib_interleaved_matmul_encdec_valatt", weighted, heads)
    add(g, "quadratic", "_contrib_quadratic", {"data": real("u", 2, 3)}, {"a": 2.0, "b": -3.0, "c": 0.5})
    add(g, "gradientmultiplier", "_contrib_gradientmultiplier", {"data": real("g", 2, 3)}, {"scalar": -0.5})
    for word in ("round", "sign"):
        edge = np.array([-1.5, -0.5, -0.2, 0.0, 0.5, 1.2, 2.5])
        add(g, f"{word}_ste", f"_contrib_{word}_ste", {"data": edge})
    near = {"a": np.array([1.0, np.nan, 2.0]), "b": np.array([1.0 + 1e-7, np.nan, 2.0])}
    add(g, "allclose", "_contrib_allclose", near, grad=False)
    add(g, "allclose_nan", "_contrib_allclose", near, {"equal_nan": False}, grad=False)
    add(g, "all_finite", "all_finite", {"data": np.array([1, np.inf], dtype="f4")}, grad=False)
    add(g, "grad_add", "_grad_add", {"lhs": real("l", 2, 3), "rhs": real("r", 2, 3)}, grad=False)
    hawkes = {
        "lda": real("l", 3, 2, low=0.5, high=1.5, dtype="f4"),
        "alpha": np.array([0.3, 0.6], dtype="f4"),
        "beta": np.array([1.0, 2.0], dtype="f4"),
        "state": real("s", 3, 2, low=0.1, high=0.5, dtype="f4"),
        "lags": real("t", 3, 5, low=0.1, high=0.9, dtype="f4"),
        "marks": draw("marks").randint(0, 2, (3, 5)).astype("int32"),
        "valid_length": np.array([5, 2, 0], dtype="f4"),
        "max_time": np.array([6, 5, 4], dtype="f4"),
    }
    add(g, "hawkesll", "_contrib_hawkesll", hawkes, skip=("state", "lags", "valid_length", "max_time"))


def pdf():
    """Record probability densities and their gradients."""
    g = "pdf_utility"
    parameters = {
        "uniform": {"low": (0.0, 0.4), "high": (1.1, 2.0)},
        "normal": {"mu": (-1.0, 1.0), "sigma": (0.5, 2.0)},
        "gamma": {"alpha": (0.5, 3.0), "beta": (0.5, 2.0)},
        "exponential": {"lam": (0.5, 2.0)},
        "poisson": {"lam": (0.5, 4.0)},
        "negative_binomial": {"k": (1.0, 4.0), "p": (0.2, 0.8)},
        "generalized_negative_binomial": {"mu": (0.5, 3.0), "alpha": (0.3, 2.0)},
    }
    for short, limits in parameters.items():
        whole = "poisson" in short or "binomial" in short
        for log in (False, True):
            name = f"{short}_{int(log)}"
            sample = draw(name).randint(0, 5, (2, 3, 4)) if whole else real(name, 2, 3, 4, low=0.5)
            inputs = {"sample": sample.astype("f4")}
            inputs.update(
                {k: real(name + k, 2, 3, low=a, high=b, dtype="f4") for k, (a, b) in limits.items()}
            )
            skip = ("sample",) if whole else ()
            add(g, name, f"_random_pdf_{short}", inputs, {"is_log": log}, skip=skip)
    for log in (False, True):
        sample = draw("dirichlet").dirichlet([1.0, 2.0, 3.0], (2, 4)).astype("f4")
        inputs = {"sample": sample, "alpha": real("alpha", 2, 3, low=0.5, high=3, dtype="f4")}
        add(g, f"dirichlet_{int(log)}", "_random_pdf_dirichlet", inputs, {"is_log": log})


def bits(name, *shape, kind="int8"):
    """Return seeded numbers of an 8-bit type."""
    low, high = (-127, 128) if kind == "int8" else (0, 256)
    return draw(name + kind).randint(low, high, shape).astype(kind)


def ends(**ranges):
    """Return arrays of the ends of ranges, by name."""
    return {key: np.array([value], dtype="f4") for key, value in ranges.items()}


def quantize():
    """Record quantization and quantized layers, as far as MXNet's CPU build runs them."""
    g = "quantize_utility"
    data = np.concatenate([real("z", 40, low=-1.5, high=1.5), np.arange(-127, 128) / 254.0]).astype("f4")

    def put(name, op, inputs, attrs=None):
        add(g, name, f"_contrib_{op}", inputs, attrs, grad=False)

    for kind in ("uint8", "int8"):
        put(f"quantize_{kind}", "quantize", {"data": data, **ends(low=-0.3, high=1.2)}, {"out_type": kind})
        put(f"v2_{kind}", "quantize_v2", {"data": data}, {"out_type": kind})
        calib = {"out_type": kind, "min_calib_range": -0.2, "max_calib_range": 0.5}
        put(f"v2_{kind}_calib", "quantize_v2", {"data": data}, calib)
        small = {"data": bits("d", 30, kind=kind), **ends(low=-0.7, high=1.3)}
        put(f"dequantize_{kind}", "dequantize", small)
    put(
        "v2_auto",
        "quantize_v2",
        {"data": data},
        {"out_type": "auto", "min_calib_range": 0.0, "max_calib_range": 1.0},
    )
    sums = draw("sums").randint(-(10**8), 10**8, 60).astype("int32")
    wide = {"data": np.concatenate([sums, np.arange(-30, 30, dtype="int32") * 8454660]).astype("int32")}
    wide.update(ends(low=-20.0, high=10.0))
    put("requantize", "requantize", wide)
    put("requantize_calib", "requantize", wide, {"min_calib_range": -0.3, "max_calib_range": 0.9})
    for kind in ("uint8", "auto"):
        calib = {"out_type": kind, "min_calib_range": 0.0, "max_calib_range": 1.1}
        put(f"requantize_{kind}", "requantize", wide, calib)
    for bins, count in ((7, 31), (15, 31), (8, 31), (255, 1001)):
        hist = draw(f"hist{bins}").exponential(30, count).astype("int32").astype("f4")
        hist *= np.exp(-(np.linspace(-2, 2, count) ** 2)).astype("f4")
        hist = hist.astype("int32").astype("f4")
        edges = np.linspace(-3, 3, count + 1).astype("f4")
        put(
            f"entropy_{bins}",
            "calibrate_entropy",
            {"hist": hist, "edges": edges},
            {"num_quantized_bins": bins},
        )
    layers(put)


def layers(put):
    """Record quantized layers."""
    both = ends(min_data=-1.0, max_data=2.0)
    for kind in ("int8", "uint8"):
        x = {"data": bits("x", 2, 4, 5, 5, kind=kind)}
        dense = {**x, "weight": bits("w", 3, 100), "bias": bits("b", 3), **both}
        dense.update(ends(min_weight=-0.5, max_weight=0.6, min_bias=-0.1, max_bias=0.07))
        put(f"dense_{kind}", "quantized_fully_connected", dense, {"num_hidden": 3})
        for pool in ("max", "avg"):
            attrs = {"kernel": (2, 2), "stride": (2, 2), "pool_type": pool}
            put(f"pool_{pool}_{kind}", "quantized_pooling", {**x, **both}, attrs)
            everything = {"kernel": (5, 5), "global_pool": True, "pool_type": pool}
            put(f"pool_all_{pool}_{kind}", "quantized_pooling", {**x, **both}, everything)
        put(f"flatten_{kind}", "quantized_flatten", {**x, **both})
        rows = {"gamma": real("g", 4, low=0.5, high=1.5, dtype="f4"), "beta": real("be", 4, dtype="f4")}
        rows["op_moving_mean"] = real("mm", 4, dtype="f4")
        rows["op_moving_var"] = real("mv", 4, low=0.5, high=1.5, dtype="f4")
        norm = {**x, **rows, **both}
        for fixed in (True, False):
            attrs = {"min_calib_range": -2.0, "max_calib_range": 3.0, "fix_gamma": fixed}
            add_norm(f"norm_{kind}_{int(fixed)}", norm, attrs)
    conv = {
        "data": bits("x", 2, 4, 5, 5, kind="uint8"),
        "weight": bits("w", 4, 4, 3, 3),
        "bias": bits("b", 4),
        **both,
    }
    conv.update(ends(min_weight=-0.5, max_weight=0.6, min_bias=-0.1, max_bias=0.07))
    put("conv", "quantized_conv", conv, {"kernel": (3, 3), "num_filter": 4, "pad": (1, 1), "stride": (2, 2)})
    put("act", "quantized_act", {"data": bits("x", 3, 7), **both}, {"act_type": "relu"})
    table = {
        "data": np.array([0, 2, 5, -1], dtype="f4"),
        "weight": bits("w", 3, 2),
        **ends(low=-1.0, high=2.0),
    }
    put("embedding", "quantized_embedding", table, {"input_dim": 3, "output_dim": 2})
    pairs(put)


def pairs(put):
    """Record quantized operators of two arrays."""
    limits = ends(a_low=-1.0, a_high=0.8, b_low=-0.3, b_high=2.0)
    for left, right in (("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8")):
        data = {"a": bits("a", 2, 20, kind=left), "b": bits("b", 2, 20, kind=right)}
        put(f"concat_{left}_{right}", "quantized_concat", {**data, **limits}, {"num_args": 2, "dim": 1})
        calib = {"min_calib_range": -1.5, "max_calib_range": 2.5}
        put(f"add_calib_{left}_{right}", "quantized_elemwise_add", {**data, **limits}, calib)
        if left == right:
            put(f"add_{left}", "quantized_elemwise_add", {**data, **limits})
    data = {"a": bits("a", 2, 20), "b": bits("b", 2, 20), **limits}
    for name, attrs in (
        ("", {}),
        ("_calib", {"min_calib_range": -1.5, "max_calib_range": 2.5}),
        ("_float", {"enable_float_output": True}),
    ):
        put(f"mul{name}", "quantized_elemwise_mul", data, attrs)


def add_norm(name, inputs, attrs):
    """Record batch normalization, whose states are made by the symbol."""
    add("quantize_utility", name, "_contrib_quantized_batch_norm", inputs, attrs, grad=False)


def save():
    """Write the groups."""
    for group, (cases, data) in GROUPS.items():
        (HERE / f"{group}.json").write_text(json.dumps(cases, indent=0) + "\n")
        np.savez_compressed(HERE / f"{group}.npz", **data)


if __name__ == "__main__":
    for part in (linalg, contrib, pdf, quantize):
        part()
    save()
