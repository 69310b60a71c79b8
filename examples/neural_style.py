"""Draw one image in the style of another, with gradients with respect to the image, not to parameters.

The content is a handwritten digit, the style a pattern of stripes. Fixed filters are applied to both at three scales.
The filter outputs represent the content; their correlations (Gram matrices) represent the style. Training starts from
the content and changes the image until its Gram matrices match the style, while its filter outputs remain close to the
content. The parameters of the module are never updated.

Source: Gatys, Ecker, Bethge, "A neural algorithm of artistic style", 2015; random filters: Ustyuzhaninov et al., 2016.

Figure: distance in style, as a share of that at the beginning, at most 0.1; 0.3 with --smoke.
Time: 5 s; 3 s with --smoke.
Run: python examples/neural_style.py [--smoke] [--picture FILE]
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from sklearn.datasets import load_digits

import dpmodule as mx

SIZE, FILTERS, SCALES = 40, 24, (3, 5, 9)
GRAMS = [f"gram{width}" for width in SCALES]


def seen(image: mx.sym.Symbol) -> tuple[mx.sym.Symbol, list[mx.sym.Symbol]]:
    """Return the filter outputs of an image, (1, filters, height, width), and a Gram matrix for each scale."""
    answers = [
        mx.sym.relu(
            mx.sym.Convolution(image, kernel=(k, k), pad=(k // 2, k // 2), num_filter=FILTERS, name=f"of{k}")
        )
        for k in SCALES
    ]
    rows = [mx.sym.Reshape(each, shape=(1, FILTERS, -1)) for each in answers]
    grams = [
        mx.sym.batch_dot(each, each, transpose_b=True, name=name) / SIZE**2 for each, name in zip(rows, GRAMS)
    ]
    return mx.sym.Pooling(
        mx.sym.concat(*answers, dim=1), kernel=(5, 5), stride=(5, 5), pool_type="avg"
    ), grams


def module_of(heads: list[mx.sym.Symbol], shapes: dict[str, tuple[int, ...]]) -> mx.mod.Module:
    """Return a module whose inputs get gradients."""
    module = mx.mod.Module(mx.sym.Group(heads), list(shapes), None)
    module.bind(list(shapes.items()), inputs_need_grad=True)
    return module


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Return a digit and diagonal stripes, each (1, 1, SIZE, SIZE), around 0."""
    digit = np.kron(load_digits().images[8] / 16, np.ones((SIZE // 8, SIZE // 8))) - 0.5
    y, x = np.mgrid[:SIZE, :SIZE]
    stripes = 0.5 * np.sin(2 * np.pi * (x + y) / 8)
    return tuple(each[None, None].astype("float32") for each in (digit, stripes))


def shown(image: np.ndarray) -> str:
    """Return an image as text, every other row."""
    shades = np.array(list(" .:-=+*#%@"))
    levels = np.clip((image + 0.5) * len(shades), 0, len(shades) - 1).astype(int)
    return "\n".join("".join(row) for row in shades[levels[::2]])


def draw(path: str, images: list[np.ndarray]) -> None:
    """Draw images, each (1, 1, SIZE, SIZE), side by side."""
    from matplotlib.image import imsave

    framed = [np.pad(each[0, 0], 2, constant_values=-1) for each in images]
    imsave(path, np.kron(np.hstack(framed), np.ones((4, 4))), cmap="gray_r", vmin=-1, vmax=1)


def main() -> int:
    """Draw, and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="fewer steps and a lower target")
    parser.add_argument("--picture", metavar="FILE", help="draw content, style and result into a file")
    parser.add_argument("--style", type=float, default=150.0, help="weight of the style against the content")
    args = parser.parse_args()
    steps, target = (40, 0.3) if args.smoke else (400, 0.1)

    mx.random.seed(0)
    image, (digit, stripes) = mx.sym.Variable("image"), pictures()
    content, grams = seen(image)
    looking = module_of([content, *grams], {"image": digit.shape})
    looking.init_params(mx.init.Xavier(factor_type="in", magnitude=2))

    def look(picture: np.ndarray) -> list[mx.nd.NDArray]:
        looking.forward(mx.io.DataBatch([mx.nd.array(picture)]), is_train=False)
        return [output.copy() for output in looking.get_outputs()]

    wanted = [look(digit)[0], *look(stripes)[1:]]
    targets = {"content": wanted[0].shape, **{f"{name}_target": (1, FILTERS, FILTERS) for name in GRAMS}}
    terms = [
        mx.sym.sum(mx.sym.square(found - mx.sym.Variable(name)))
        for found, name in zip([content, *grams], targets)
    ]
    losses = [mx.sym.MakeLoss(terms[0], grad_scale=1 / args.style), *map(mx.sym.MakeLoss, terms[1:])]
    drawing = module_of(losses, {"image": digit.shape, **targets})
    drawing.set_params(*looking.get_params())

    canvas, history = mx.nd.array(digit), []
    update = mx.optimizer.get_updater(mx.optimizer.Adam(learning_rate=0.03))
    for _ in range(steps):
        drawing.forward_backward(mx.io.DataBatch([canvas, *wanted]))
        history.append([float(each.asscalar()) for each in drawing.get_outputs()])
        update(0, drawing.get_input_grads()[0], canvas)
    print(shown(canvas.asnumpy()[0, 0]))
    far = float(mx.nd.square(look(stripes)[0] - wanted[0]).sum().asscalar())
    share = sum(history[-1][1:]) / sum(history[0][1:])
    print(f"distance in content {history[-1][0]:.2f}, of the style image {far:.2f}")
    if args.picture:
        draw(args.picture, [digit, stripes, canvas.asnumpy()])
    print(f"distance in style, as a share of that at the beginning: {share:.3f}, target at most {target}")
    return 0 if share <= target and history[-1][0] < far else 1


if __name__ == "__main__":
    sys.exit(main())
