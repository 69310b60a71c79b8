"""Run operators on data of every layout and type, with every choice of gradients; a program, since torch may crash.

The arguments are names of types, then of operators, or nothing for all. Every call is compared with the one on
contiguous data with all gradients. What is being tried is written to standard error, for the case that it is the last.
"""

import sys
import warnings
from collections import Counter

import numpy as np
import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule.base import MXNetError
from helpers.op_case import OpCase, call, parsed
from helpers.op_tables import arrays_of, recorded_calls, table_rows


def turned(t):
    """Return it with the first axis innermost in memory."""
    axes = tuple(range(t.dim()))[::-1]
    return t.permute(axes).contiguous().permute(axes)


def channels_last(t):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    t = t.contiguous(memory_format=formats.get(t.dim(), torch.contiguous_format))
    if t.dim() == 4 and t.shape[1] == 1:  # as passes make it
        return t.as_strided(t.shape, (t.stride(0), 1, t.shape[3], 1))
    return t


def gapped(t):
    """Return it as every other number of a larger tensor."""
    wide = t.new_zeros(*t.shape, 2)
    wide[..., 0] = t
    return wide[..., 0]


def shifted(t):
    """Return it behind one number of a larger tensor, off the alignment that torch's memory has."""
    wide = t.new_zeros(t.numel() + 1)
    wide[1:] = t.reshape(-1)
    return wide[1:].view(t.shape)


LAYOUTS = {
    "plain": torch.Tensor.contiguous, "turned": turned, "channels_last": channels_last, "gapped": gapped,
    "shifted": shifted,
}  # fmt: skip
MOST = 8
TOLERANCE = {"float32": 1e-4, "float64": 1e-7, "bfloat16": 0.1, "float16": 2e-2}


def recorded(names):
    """Yield the recorded calls of MXNet that consist of one of the operators; without names, of any."""
    for group, case in recorded_calls():
        nodes = [node for node in mx.sym.load_json(case["symbol_json"]).graph.nodes if node.op is not None]
        if len(nodes) != 1 or (names and nodes[0].op.name not in names):
            continue
        arrays, name = arrays_of(group), case["name"]
        keys = [child.name for child, _ in nodes[0].inputs]
        inputs = tuple(arrays.get(f"{name}/in/{key}", arrays.get(f"{name}/aux_in/{key}")) for key in keys)
        yield OpCase(nodes[0].op.name, inputs, dict(nodes[0].params))


def calls(names):
    """Yield known calls of operators, with the positions of the inputs that may want gradients.

    Args:
        names: of the operators, of which some calls are taken; nothing for every call of all.
    """
    count = Counter()
    for case in (*table_rows(), *recorded(names)):
        op = ops.get(case.name)
        count[op.name] += 1
        if names and (op.name not in names or count[op.name] > MOST):
            continue
        try:
            attrs = parsed(case.name, case.attrs)
        except MXNetError:  # a call that is refused
            continue
        kinds = [] if op.variadic else [each.kind for each in op.active_inputs(attrs)]
        floats = [i for i, x in enumerate(case.inputs) if np.asarray(x).dtype.kind == "f"]
        floats = [i for i in floats if i >= len(kinds) or kinds[i] != "aux"]
        if floats and not op.draws(attrs):
            yield case, floats[:4]


def wanted_gradients(floats):
    """Return the choices: none, all, one alone, all but one."""
    found = [(), tuple(floats), *((i,) for i in floats)]
    return dict.fromkeys([*found, *(tuple(j for j in floats if j != i) for i in floats)])


def run(case, dtype, layout, which, wanted):
    """Return the outputs of a call, and the gradients by position.

    Args:
        case: the call.
        dtype: of all inputs that are no integers.
        layout: of the inputs in `which`.
        which: positions.
        wanted: positions of the inputs that want a gradient.
    """
    tensors = []
    for i, x in enumerate(case.inputs):
        t = torch.from_numpy(np.array(x))
        t = t.to(getattr(torch, dtype)) if t.is_floating_point() else t
        t = LAYOUTS[layout](t) if i in which else t
        tensors.append(t.detach().requires_grad_(i in wanted))
    outputs = call(case.name, *tensors, **case.attrs)
    grads = {}
    if wanted and outputs[0].requires_grad:
        head = torch.linspace(0.5, 1.5, outputs[0].numel()).to(outputs[0].dtype).reshape(outputs[0].shape)
        found = torch.autograd.grad(outputs[0], [tensors[i] for i in wanted], head, allow_unused=True)
        grads = dict(zip(wanted, found, strict=True))
    return [out.detach() for out in outputs], grads


def differences(case, dtype, floats):
    """Yield what is wrong with a call in other layouts, or with other gradients."""
    try:
        outputs, grads = run(case, dtype, "plain", (), tuple(floats))
    except (MXNetError, RuntimeError, IndexError, TypeError):  # a type, or a form, that it does not take
        return
    tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype], "equal_nan": True}
    everything = tuple(range(len(case.inputs)))
    for layout in LAYOUTS:
        for which in ((0,), everything):
            for wanted in wanted_gradients(floats):
                what = f"{case} {dtype}, inputs {which} {layout}, gradients of {wanted}"
                print(what, file=sys.stderr, flush=True)
                try:
                    own, own_grads = run(case, dtype, layout, which, wanted)
                except Exception as error:
                    yield f"{what}: {type(error).__name__}: {error}"
                    continue
                pairs = [*zip(own, outputs, strict=True)]
                pairs += [(grad, grads[i]) for i, grad in own_grads.items() if grads[i] is not None]
                for found, want in pairs:
                    if not torch.allclose(found.double(), want.double(), **tolerance):
                        yield f"{what}: {found} instead of {want}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    types, names = sys.argv[1].split(","), frozenset(sys.argv[2:])
    wrong = [each for call in calls(names) for kind in types for each in differences(call[0], kind, call[1])]
    print(*wrong[:20], sep="\n")
    sys.exit(bool(wrong))
