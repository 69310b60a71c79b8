"""Record what MXNet 1.9.1 computes for the networks of `tests/helpers/detection_nets.py`, as `heads.npz`.

Run beside this file in an environment with MXNet: ``python make_heads.py``. Keys are ``<net>/out/<i>`` and
``<net>/grad/<argument>``; arguments are filled in the order of their sorted names from one seeded generator.
"""

import sys
from pathlib import Path

import mxnet as mx
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "helpers"))

from detection_nets import NETS, fill  # noqa: E402


def main():
    """Record every network."""
    arrays = {}
    for name, make in NETS.items():
        symbol, shapes = make(mx)
        executor = symbol.simple_bind(mx.cpu(), grad_req="write", **shapes)
        random = np.random.RandomState(3)
        for key in sorted(executor.arg_dict):
            executor.arg_dict[key][:] = mx.nd.array(fill(key, executor.arg_dict[key].shape, random))
        for i, out in enumerate(executor.forward(is_train=True)):
            arrays[f"{name}/out/{i}"] = out.asnumpy()
        executor.backward()
        for key, grad in executor.grad_dict.items():
            arrays[f"{name}/grad/{key}"] = grad.asnumpy()
    np.savez_compressed(HERE / "heads.npz", **arrays)


if __name__ == "__main__":
    main()
