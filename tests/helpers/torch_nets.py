"""Torch networks of many kinds, with inputs: what `sym.from_torch` reads, and torch's exporters write as ONNX."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import Conv2d, Embedding, LayerNorm, Linear, ReLU, Sequential

__all__ = ["NETS", "floats", "net", "words"]


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

    body = (
        conv_bn(inputs, outputs, 3, stride),
        Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
    )
    same = stride == 1 and inputs == outputs
    shortcut = () if same else (Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
    return net(forward, body=Sequential(*body), shortcut=Sequential(*shortcut), relu=ReLU(inplace=True))


def resnet():
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), Linear(8, 10)
    return Sequential(basic_block(4, 4), basic_block(4, 8, 2), *head)


def convnext():
    def forward(self, x):
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)

    layers = {"dwconv": Conv2d(6, 6, 7, padding=3, groups=6), "norm": LayerNorm(6, eps=1e-6)}
    gamma = nn.Parameter(torch.full((6,), 0.5))
    return net(forward, **layers, pwconv1=Linear(6, 24), pwconv2=Linear(24, 6), gamma=gamma)


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


def projected():
    return net(
        lambda self, x: self.lstm(x.transpose(0, 1))[0][-1], lstm=nn.LSTM(4, 6, proj_size=3, bias=False)
    )


def transformer():
    def forward(self, src, tgt):
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return self.out(self.body(self.src(src), self.tgt(tgt), tgt_mask=causal, tgt_is_causal=True))

    body = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
    return net(forward, src=Embedding(20, 8), tgt=Embedding(20, 8), body=body, out=Linear(8, 20))


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
    made = net(
        forward, wte=Embedding(20, 8), wpe=Embedding(16, 8), blocks=blocks, ln_f=LayerNorm(8), head=head
    )
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


def llama_block():
    """Rotary positions, RMS norm and a gated feed-forward part."""

    def rotate(x, cos, sin):
        return x * cos + torch.cat((-x[..., 2:], x[..., :2]), dim=-1) * sin

    def forward(self, x):
        b, t, _ = x.shape
        angles = torch.outer(torch.arange(t).float(), self.inverse)
        cos, sin = (each(torch.cat((angles, angles), dim=-1)) for each in (torch.cos, torch.sin))
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(b, t, 8)
        return x + self.down(F.silu(self.gate(x)) * self.up(x))

    linear = {"gate": Linear(8, 12), "up": Linear(8, 12), "down": Linear(12, 8)}
    made = net(forward, norm=nn.RMSNorm(8, eps=1e-6), qkv=Linear(8, 24, bias=False), **linear)
    made.register_buffer("inverse", 1.0 / (10000 ** (torch.arange(0, 4, 2).float() / 4)), persistent=False)
    return made


# tables, graphs, parts that are read in odd ways


def mixture():
    """Experts weighted by a gate; writes its results into parts of an array."""

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        outs = x.new_zeros(x.shape[0], 3, 2)
        for i, expert in enumerate(self.experts):
            outs[:, i] = expert(x)
        return (weights.unsqueeze(-1) * outs).sum(1)

    return net(forward, gate=Linear(4, 3), experts=nn.ModuleList(Linear(4, 2) for _ in range(3)))


def activations():
    named = "elu selu celu softplus mish silu hardswish relu6 tanh logsigmoid"
    functions = [getattr(F, name) for name in named.split()]
    return net(lambda self, x: self.p(sum(f(self.f(x)) for f in functions)), f=Linear(8, 6), p=nn.PReLU(6))


def odd():
    def forward(self, x):
        y = torch.where(x > 0, x, x.exp() - 1).clamp(-0.5, 2.0)
        return torch.cat([y[:, 1:, ::2], y.flip(1)[:, :3, ::2]], 1), y.cumsum(1), y.argmax(-1), y.std(-1)

    return net(forward)


def encoder_layer():
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


def loss_inside():
    return net(lambda self, x, label: F.cross_entropy(self.fc(x), label), fc=Linear(6, 3))


def several(*makes):
    return lambda n: tuple(make(n)[0] for make in makes)


def labels(n):
    return (torch.randint(0, 3, (n,)),)


SERIES, IMAGE = floats(6, 8), floats(3, 16, 16)
NETS = {
    "resnet": (resnet, floats(4, 8, 8)),
    "convnext": (convnext, floats(6, 7, 7)),
    "ssd": (ssd, IMAGE),
    "bag_of_words": (bag_of_words, words(7)),
    "bilstm": (lambda: recurrent(nn.LSTM, 2, True), SERIES),
    "bigru": (lambda: recurrent(nn.GRU, 2, True), SERIES),
    "projected": (projected, floats(5, 4)),
    "encoder_layer": (encoder_layer, floats(5, 8)),
    "transformer": (transformer, words(5, 4)),
    "gpt_block": (gpt_block, floats(5, 8)),
    "gpt": (gpt, words(6)),
    "causal_attention": (causal_attention, floats(5, 8)),
    "llama_block": (llama_block, floats(5, 8)),
    "loss_inside": (loss_inside, several(floats(6), labels)),
    "mixture": (mixture, floats(4)),
    "activations": (activations, floats(8)),
    "odd": (odd, SERIES),
}
"""Name: what makes the module, and what makes its inputs for a batch size."""
