"""Torch networks of many kinds, with inputs: what `sym.from_torch` reads, and torch's exporters write as ONNX."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import Conv2d, Embedding, LayerNorm, Linear, ReLU, Sequential


def net(forward, **parts):
    """Return a module with these parts; those that are plain tensors become buffers."""
    made = type("Net", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        made.register_buffer(name, part) if type(part) is torch.Tensor else setattr(made, name, part)
    return made


def floats(*shape):
    return lambda n: (torch.randn(n, *shape),)


def words(*steps, most=20):
    return lambda n: tuple(torch.randint(0, most, (n, each)) for each in steps)


# images


def conv_bn(inputs, outputs, kernel=3, stride=1, groups=1, act=ReLU):
    conv = Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return Sequential(conv, nn.BatchNorm2d(outputs), act(inplace=True))


def basic_block(inputs, outputs, stride=1):
    def forward(self, x):
        out = self.body(x)
        out += self.shortcut(x)
        return self.relu(out)

    last = Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)
    body = conv_bn(inputs, outputs, 3, stride), *last
    same = stride == 1 and inputs == outputs
    shortcut = () if same else (Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
    return net(forward, body=Sequential(*body), shortcut=Sequential(*shortcut), relu=ReLU(inplace=True))


def resnet():
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), Linear(8, 10)
    return Sequential(basic_block(4, 4), basic_block(4, 8, 2), *head)


def ssd():
    def forward(self, x):
        scores, boxes = [], []
        for down, cls, loc in zip(self.down, self.cls, self.loc):
            x = down(x)
            scores.append(cls(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
            boxes.append(loc(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
        return {"scores": torch.cat(scores, 1).softmax(-1), "boxes": torch.cat(boxes, 1)}

    down = nn.ModuleList([conv_bn(3, 8, 3, 2), conv_bn(8, 8, 3, 2)])
    cls, loc = (nn.ModuleList(Conv2d(8, 12, 3, padding=1) for _ in range(2)) for _ in range(2))
    return net(forward, down=down, cls=cls, loc=loc)


# text


def bag_of_words():
    def forward(self, words):
        mask = (words != 0).unsqueeze(-1).float()
        return self.fc((self.embed(words) * mask).sum(1) / mask.sum(1).clamp(min=1))

    return net(forward, embed=Embedding(20, 6, padding_idx=0), fc=Linear(6, 3))


def recurrent(kind, layers=1, both=False, **options):
    rnn = kind(8, 6, layers, bidirectional=both, batch_first=True, **options)
    return net(lambda self, x: self.fc(self.rnn(x)[0]), rnn=rnn, fc=Linear(12 if both else 6, 5))


def gpt_block():
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, 2, c // 2).transpose(1, 2) for p in self.c_attn(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.ln_2(x))

    mlp = Sequential(Linear(8, 32), nn.GELU(approximate="tanh"), Linear(32, 8))
    attention = {"c_attn": Linear(8, 24), "c_proj": Linear(8, 8)}
    return net(forward, ln_1=LayerNorm(8), ln_2=LayerNorm(8), **attention, mlp=mlp)


def gpt():
    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.ln_f(self.blocks(x)))

    blocks = Sequential(gpt_block(), gpt_block())
    head = Linear(8, 20, bias=False)
    wte, wpe = Embedding(20, 8), Embedding(16, 8)
    made = net(forward, wte=wte, wpe=wpe, blocks=blocks, ln_f=LayerNorm(8), head=head)
    made.head.weight = made.wte.weight
    return made


def causal_attention():
    def forward(self, x):
        b, t, c = x.size()
        k, q, v = (f(x).view(b, t, 2, 4).transpose(1, 2) for f in (self.key, self.query, self.value))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(4)
        att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        return (F.softmax(att, dim=-1) @ v).transpose(1, 2).reshape(b, t, c)

    linear = {name: Linear(8, 8) for name in ("key", "query", "value")}
    return net(forward, **linear, mask=torch.tril(torch.ones(10, 10)).view(1, 1, 10, 10))


# tables, graphs, parts that are read in odd ways


def mixture():
    """Experts weighted by a gate; writes its results into parts of an array."""

    def forward(self, x):
        weights, outs = self.gate(x).softmax(-1), x.new_zeros(x.shape[0], 3, 2)
        for i, expert in enumerate(self.experts):
            outs[:, i] = expert(x)
        return (weights.unsqueeze(-1) * outs).sum(1)

    return net(forward, gate=Linear(4, 3), experts=nn.ModuleList(Linear(4, 2) for _ in range(3)))


def odd():
    def forward(self, x):
        y = torch.where(x > 0, x, x.exp() - 1).clamp(-0.5, 2.0)
        return torch.cat([y[:, 1:, ::2], y.flip(1)[:, :3, ::2]], 1), y.cumsum(1), y.argmax(-1), y.std(-1)

    return net(forward)


def encoder_layer():
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


SERIES, IMAGE = floats(6, 8), floats(3, 16, 16)
NETS = {
    "resnet": (resnet, floats(4, 8, 8)), "ssd": (ssd, IMAGE), "bag_of_words": (bag_of_words, words(7)),
    "bilstm": (lambda: recurrent(nn.LSTM, 2, True), SERIES), "bigru": (lambda: recurrent(nn.GRU, 2, True), SERIES),
    "encoder_layer": (encoder_layer, floats(5, 8)), "gpt_block": (gpt_block, floats(5, 8)), "gpt": (gpt, words(6)),
    "causal_attention": (causal_attention, floats(5, 8)), "mixture": (mixture, floats(4)), "odd": (odd, SERIES),
}  # fmt: skip
"""Name: what makes the module, and what makes its inputs for a batch size."""
