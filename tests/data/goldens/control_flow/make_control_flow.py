"""Record graphs with loops and branches as real MXNet 1.9.1 makes, writes and runs them.

Run it in an environment with MXNet 1.9.1: python make_control_flow.py
It writes control_flow.json (symbol JSON, names, shapes) and control_flow.npz (inputs, outputs, head gradients and
gradients; none of them for a graph that MXNet cannot run, no gradients for one that it cannot differentiate).
`builders.py` beside it makes the symbols; the test calls it with this package instead of MXNet.
"""

import json
import pathlib

import mxnet as mx
import numpy as np
from builders import BUILDERS

HERE = pathlib.Path(__file__).parent


def run(symbol, args, draw):
    """Return named arrays: inputs, outputs, head gradients and gradients."""
    found = {f"in/{key}": value.asnumpy() for key, value in args.items()}
    grads = {key: mx.nd.zeros(value.shape) for key, value in args.items()}
    try:
        executor = symbol.bind(mx.cpu(), args, grads)
    except mx.MXNetError:  # a loop that MXNet cannot differentiate
        executor, grads = symbol.bind(mx.cpu(), args), {}
    outputs = executor.forward(is_train=bool(grads))
    heads = [mx.nd.array(draw.uniform(-1, 1, out.shape)) for out in outputs]
    if grads:
        executor.backward(heads)
    for i, (out, head) in enumerate(zip(outputs, heads)):
        found[f"out/{i}"], found[f"head/{i}"] = out.asnumpy(), head.asnumpy()
    found.update({f"grad/{key}": grad.asnumpy() for key, grad in grads.items()})
    return found


def main():
    """Write both files."""
    cases, arrays = {}, {}
    draw = np.random.RandomState(7)
    for name, (build, shapes) in BUILDERS.items():
        mx.attribute.AttrScope._subgraph_names.clear()
        with mx.name.NameManager():
            symbol = build(mx)
        arguments = symbol.list_arguments()
        inferred = symbol.infer_shape_partial(**shapes)
        cases[name] = {
            "symbol": json.loads(symbol.tojson()),
            "arguments": arguments,
            "outputs": symbol.list_outputs(),
            "internals": symbol.get_internals().list_outputs(),
            "shapes": shapes,
            "inferred": inferred,
        }
        try:
            args = {
                key: mx.nd.array(draw.uniform(-1, 1, shape) + (9 if key == "k" else 0))
                for key, shape in zip(arguments, inferred[0])
            }
            arrays.update({f"{name}/{key}": value for key, value in run(symbol, args, draw).items()})
        except mx.MXNetError:  # a graph that MXNet can make, but not run
            pass
    (HERE / "control_flow.json").write_text(json.dumps(cases, indent=1) + "\n")
    np.savez_compressed(HERE / "control_flow.npz", **arrays)


if __name__ == "__main__":
    main()
