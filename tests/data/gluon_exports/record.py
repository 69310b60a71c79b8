"""Record the exports of Gluon's blocks: ``python record.py`` with MXNet 1.9.1 writes ``exports.tar.xz``.

For each network and style, the archive has the symbol file and parameters that `HybridBlock.export` wrote, and an .npz:
inputs, outputs of a prediction, gradients of the outputs, outputs of a training step, samples of the gradients of inputs
and parameters, and the states after the step. Networks are in `layers.py` and `models.py`. Values are rounded, as the
archive is then small.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path

import mxnet as mx
import numpy as np

HERE = Path(__file__).resolve().parent
SAMPLES = 24


def flat(outputs):
    """Return the arrays of nested lists."""
    if isinstance(outputs, (list, tuple)):
        return [array for each in outputs for array in flat(each)]
    return [outputs]


def sample(values):
    """Return the norm of values and some of them, evenly spaced."""
    flat = np.asarray(values, "f8").ravel()
    picked = flat[np.linspace(0, flat.size - 1, min(SAMPLES, flat.size)).astype(int)]
    return np.append(np.linalg.norm(flat), picked).astype("f4")


class Draw:
    """Values of inputs and parameters, by the name of a network."""

    def __init__(self, name, is_np):
        self.rng = np.random.RandomState(zlib.crc32(name.encode()))
        self.is_np = is_np
        self.fixed = []  # inputs without gradients

    def __call__(self, *shape):
        return (self.rng.randint(-31, 32, shape) / 16.0).astype("f4")

    def tokens(self, count, *shape):
        self.fixed.append(self.rng.randint(0, count, shape).astype("i4" if self.is_np else "f4"))
        return self.fixed[-1]

    def lengths(self, count, longest):
        self.fixed.append(self.rng.randint(1, longest + 1, count).astype("f4"))
        return self.fixed[-1]

    def parameter(self, name, shape):
        if name.endswith("running_var"):
            return self.rng.randint(16, 48, shape) / 32.0
        if name.endswith(("gamma", "alpha")):
            return self.rng.randint(16, 48, shape) / 32.0
        bound = (3.0 / max(int(np.prod(shape[1:])), 3)) ** 0.5
        most = max(int(bound * 64), 4)
        return self.rng.randint(-most, most + 1, shape) / 64.0


def record(name, make, is_np, folder):
    draw = Draw(name, is_np)
    array = mx.np.array if is_np else mx.nd.array
    block, values = make(draw)
    inputs = [array(value, dtype=value.dtype) for value in values]
    block.initialize()
    block.hybridize()
    block(*inputs)
    params = block.collect_params()
    for key, parameter in params.items():
        if parameter.shape and not key.endswith("const"):
            parameter.set_data(array(draw.parameter(key, parameter.shape), dtype="f4"))
    found = {"data%d" % i: value for i, value in enumerate(values)}

    def outputs():
        return flat(block(*inputs))

    for i, each in enumerate(outputs()):
        found["output%d" % i] = each.asnumpy()
    for each, value in zip(inputs, values):
        if not any(value is fixed for fixed in draw.fixed):
            each.attach_grad()
    with mx.autograd.record():
        found_outputs = outputs()
    heads = [array(draw.rng.randint(-8, 9, each.shape) / 8.0, dtype=each.dtype) for each in found_outputs]
    block.export(str(folder / name))
    before = {k: p.data().asnumpy() for k, p in params.items()}
    mx.autograd.backward(found_outputs, heads)
    for i, (each, head) in enumerate(zip(found_outputs, heads)):
        found["trained%d" % i], found["head%d" % i] = each.asnumpy(), head.asnumpy()
    for i, each in enumerate(inputs):
        if each.grad is not None:
            found["data_grad%d" % i] = sample(each.grad.asnumpy())
    for key, parameter in params.items():
        if parameter.grad_req != "null":
            found["grad:" + key] = sample(parameter.grad().asnumpy())
        elif not np.array_equal(before[key], parameter.data().asnumpy()):
            found["aux:" + key] = sample(parameter.data().asnumpy())
    if hasattr(block, "begin_state"):  # the exported network has inputs for the first states
        for state in block.begin_state(values[0].shape[block._layout.find("N")]):
            found["data%d" % (len([key for key in found if key[:4] == "data" and key[4:].isdigit()]))] = (
                state.asnumpy()
            )
    stored = io.BytesIO()
    np.savez(stored, **found)
    (folder / (name + ".npz")).write_bytes(stored.getvalue())


def record_style(style, folder):
    import layers
    import models

    if style == "np":
        mx.npx.set_np()
    for name, (styles, make) in {**layers.NETS, **models.NETS}.items():
        if styles in ("both", style):
            record(name, make, style == "np", folder)


def main():
    if len(sys.argv) > 2:
        record_style(sys.argv[1], Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for style in ("classic", "np"):
            (Path(folder) / style).mkdir()
            subprocess.run([sys.executable, __file__, style, str(Path(folder) / style)], check=True)
        with tarfile.open(str(HERE / "exports.tar.xz"), "w:xz", preset=9) as archive:
            for path in sorted(Path(folder).rglob("*"), key=lambda path: (path.name, path.parent.name)):
                if path.is_file():
                    about = tarfile.TarInfo(str(path.relative_to(folder)))
                    about.size = path.stat().st_size
                    with path.open("rb") as file:
                        archive.addfile(about, file)


if __name__ == "__main__":
    main()
