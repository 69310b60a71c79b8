"""Random networks with losses, of the kinds of layers that passes look for."""

import random
from collections.abc import Callable
from typing import Any

import dpmodule as mx

S = mx.sym
ACTIVATIONS: tuple[Callable[[Any], Any], ...] = (
    *(S.relu, S.tanh, S.sigmoid),
    *(lambda v, kind=kind: S.Activation(v, act_type=kind) for kind in ("relu", "softrelu", "softsign")),
    lambda v: S.LeakyReLU(v, act_type="leaky", slope=0.1),
    lambda v: S.clip(v, a_min=-0.5, a_max=0.7),
)


class _Net:
    """A network under construction.

    Attributes:
        value: what has been made last.
        size: its spatial size, 0 behind the images.
        middle: values on the way, some of which become outputs.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.batch, self.channels, self.size = 4, self.random.choice((1, 3, 4)), self.random.choice((7, 8))
        self.shapes = {"data": (self.batch, self.channels, self.size, self.size)}
        self.value = S.Variable("data")
        self.middle: list[Any] = []
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def convolved(self, value: Any, name: str, kernel: int = 3, stride: int = 1, **attrs: Any) -> Any:
        options = {"pad": (kernel // 2,) * 2, "num_filter": self.channels, **attrs}
        return S.Convolution(value, name=name, kernel=(kernel, kernel), stride=(stride, stride), **options)

    def convolution(self) -> None:
        self.channels = self.random.choice((2, 4))
        bare, kernel = self.random.random() < 0.5, self.random.choice((1, 3))
        self.value = self.convolved(self.value, self.name("conv"), kernel, no_bias=bare)

    def norm(self) -> None:
        if self.size > 2:
            fixed = self.random.random() < 0.3
            self.value = S.BatchNorm(self.value, name=self.name("bn"), fix_gamma=fixed)

    def activation(self) -> None:
        self.value = self.random.choice(ACTIVATIONS)(self.value)

    def pool(self) -> None:
        if self.size < 4:
            return
        kind, kernel = self.random.choice(("max", "max", "avg")), self.random.choice((2, 3))
        convention = self.random.choice(("valid", "full"))
        options = {"pool_type": kind, "pooling_convention": convention}
        self.value = S.Pooling(self.value, kernel=(kernel,) * 2, stride=(2, 2), **options)
        self.size = (self.size - kernel + (convention == "full")) // 2 + 1

    def residual(self) -> None:
        inner = self.convolved(self.value, self.name("conv"), no_bias=True)
        if self.size > 2:
            inner = S.BatchNorm(inner, name=self.name("bn"), fix_gamma=False)
        self.value = self.value + inner if self.random.random() < 0.5 else inner + self.value

    def twice(self) -> None:
        """Do the same to the same twice, with the same weight."""
        if self.random.random() < 0.5:
            act = self.random.choice(ACTIVATIONS)
            self.value = act(self.value) * 0.5 + act(self.value)
            return
        weight = S.Variable(self.name("shared") + "_weight")
        options = {"weight": weight, "no_bias": True}
        first = self.convolved(self.value, self.name("conv"), **options)
        self.value = first + S.tanh(self.convolved(self.value, self.name("conv"), **options))

    def dropout(self) -> None:
        self.value = S.Dropout(self.value, p=0.3)

    def remember(self) -> None:
        self.middle.append(self.value)

    def images(self) -> None:
        steps = [self.convolution, self.norm, self.activation, self.pool]
        steps += [self.residual, self.twice, self.dropout, self.remember]
        for _ in range(self.random.randint(3, 9)):
            self.random.choice(steps)()

    def recurrent(self) -> None:
        """Read the features as a sequence, by cells one after the other."""
        wide = S.FullyConnected(self.value, num_hidden=9, name=self.name("wide"))
        kind = self.random.choice((mx.rnn.LSTMCell, mx.rnn.GRUCell, mx.rnn.RNNCell))
        prefix, form = self.name("cell"), self.seed // 20 % 3
        cell: Any = kind(5, prefix=f"{prefix}_")
        if form == 1:
            back = mx.rnn.GRUCell(2, prefix=f"{prefix}r_")
            cell = mx.rnn.BidirectionalCell(cell, back, output_prefix=prefix)
        elif form == 2:
            stack = mx.rnn.SequentialRNNCell()
            last = mx.rnn.ResidualCell(mx.rnn.GRUCell(5, prefix=f"{prefix}s_"))
            for each in (cell, mx.rnn.DropoutCell(0.3), last):
                stack.add(each)
            cell = stack
        outputs, _ = cell.unroll(3, inputs=S.Reshape(wide, shape=(0, 3, 3)), layout="NTC", merge_outputs=True)
        self.value = S.Reshape(outputs, shape=(0, -1))

    def features(self) -> None:
        self.value = S.Flatten(self.value)
        if self.random.random() < 0.25:
            self.recurrent()
        for _ in range(self.random.randint(0, 2)):
            self.value = S.FullyConnected(self.value, num_hidden=6, name=self.name("fc"))
            if self.random.random() < 0.8:
                self.activation()
            if self.random.random() < 0.2:
                self.remember()

    def loss(self) -> Any:
        kind = self.random.randrange(6)
        scores = S.FullyConnected(self.value, num_hidden=4, name=self.name("scores"))
        name = self.name("loss")
        if kind == 0:
            return S.SoftmaxOutput(scores, name=name, use_ignore=True, ignore_label=1, normalization="valid")
        if kind in (1, 2):
            return (S.LogisticRegressionOutput, S.LinearRegressionOutput)[kind - 1](scores, name=name)
        if kind == 3:
            return S.MakeLoss(S.square(scores), name=name, grad_scale=0.3)
        scores = S.Reshape(scores, shape=(0, 2, 2)) if kind == 4 else scores
        return S.SoftmaxOutput(scores, name=name, multi_output=kind == 4)

    def heads(self) -> list[Any]:
        found = [self.loss() for _ in range(self.random.choice((1, 1, 2)))]
        found += [S.BlockGrad(value) for value in self.middle if self.random.random() < 0.5]
        self.random.shuffle(found)
        return found


def random_net(seed: int) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Make a network, the same one for the same seed.

    Args:
        seed: what it is made from.

    Returns:
        A symbol all of whose outputs are losses or blocked, and the shape of its data.
    """
    net = _Net(seed)
    net.images()
    net.features()
    return S.Group(net.heads()), net.shapes
