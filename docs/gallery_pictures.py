"""Pictures for examples that do not draw one: a network, or the batches of automatic batching."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import dpmodule as mx
import dpmodule.autobatch as dy


def _explained(losses: Callable[[ModuleType], list[dy.Expression]]) -> Callable[[ModuleType], Any]:
    """Return a function that shows how the losses of some examples were batched."""

    def explain(example: ModuleType) -> Any:
        dy.configure(autobatch=True, random_seed=1)
        dy.renew_cg()
        dy.esum(losses(example)).value()
        return dy.explain()

    return explain


def _acceptor(example: ModuleType) -> list[dy.Expression]:
    return [example.Program().batch_loss(example.examples(example.BATCH_SIZE))]


def _parser(example: ModuleType) -> list[dy.Expression]:
    parser, draw = example.Parser(24, 24), random.Random(0)
    return [loss for _ in range(example.BATCH_SIZE) for loss in parser.losses(*example.sentence(draw))]


def _tagger(example: ModuleType) -> list[dy.Expression]:
    data = example.sentences()[:32]
    tagger = example.Tagger(data, 32, 24)
    return [
        dy.pickneglogsoftmax(scores, tag)
        for words, tags in data
        for scores, tag in zip(tagger.scores(words), tags)
    ]


def _treelstm(example: ModuleType) -> list[dy.Expression]:
    net, draw = example.TreeLSTM(32), random.Random(0)
    return [dy.sum_elems(net.run(example.statement(draw, 3))[0]) for _ in range(32)]


def _batched(results: Callable[[ModuleType], Any]) -> Callable[[ModuleType], Any]:
    """Return a function that shows what a block of PyTorch ran together."""

    def explain(example: ModuleType) -> Any:
        torch.manual_seed(0)
        with dy.batching() as run, torch.no_grad():
            results(example)
        return run.explain()

    return explain


def _trees(example: ModuleType) -> Any:
    net, draw = example.TreeLSTM(32), random.Random(0)
    return [net(example.phrase(draw)[0]) for _ in range(32)]


def _await_parser(example: ModuleType) -> Any:
    draw = random.Random(0)
    return dy.map(example.Parser(32), [example.formula(draw) for _ in range(32)])


def _decoder(example: ModuleType) -> Any:
    draw = random.Random(0)
    return dy.map(example.Network(48).decode, [example.text(draw) for _ in range(64)])


def _exits(example: ModuleType) -> Any:
    return dy.map(example.Network(48).classify, torch.rand(64, 64))


def _dialogue(example: ModuleType) -> mx.sym.Symbol:
    agent = example.Seq2seqAgent({"task": "reverse"})
    return agent.sym_gen(agent.opt, agent.dict)(("train", 8, 8))


def _starspace(example: ModuleType) -> mx.sym.Symbol:
    agent = example.StarspaceAgent({"task": "docs"})
    return agent.sym_gen(agent.opt, agent.dict)


DRAWN: dict[str, Callable[[ModuleType], Any]] = {
    "bucketing_lm": lambda example: example.generator(5000, 128)(20),
    "chained_modules": lambda example: mx.sym.from_torch(example.Residual(32), torch.zeros(1, 32)),
    "distillation": lambda example: example.by_teacher(example.small()),
    "matrix_factorization": lambda example: example.network(3000, 2000),
    "model_parallel_lstm": lambda example: example.generator(27, 128)(1),
    "sparse_linear": lambda example: example.factorization_machine(4),
    "stateful_lstm": lambda example: example.network(60, 128),
    "stochastic_depth": lambda example: example.network(1, 16, 0.5),
    "svm": lambda example: example.network("svm L2"),
    "text_cnn": lambda example: example.network(5000, 50),
    "autobatch/acceptor": _explained(_acceptor),
    "autobatch/parser": _explained(_parser),
    "autobatch/tagger": _explained(_tagger),
    "autobatch/treelstm_sentiment": _explained(_treelstm),
    "autobatch/treelstm_torch": _batched(_trees),
    "autobatch/parser_await": _batched(_await_parser),
    "autobatch/greedy_decoding": _batched(_decoder),
    "autobatch/early_exit": _batched(_exits),
    "hogwild/bag_of_words": lambda example: example.network(5000),
    "agents/batch": _dialogue,
    "agents/both": _dialogue,
    "agents/hogwild": _starspace,
    "agents/module_agent": lambda example: example.MoodAgent.sym_gen(None, {}, example.MOODS),
    "agents/plain_torch": lambda example: mx.sym.from_torch(
        example.LastAgent({}).model, torch.zeros(1, example.LENGTH, dtype=torch.int64)
    ),
    "streams/detection_loader": lambda example: mx.sym.from_torch(
        example.Detector().body.eval(), torch.zeros(1, 1, example.SIZE, example.SIZE)
    ),
    "interop/come_back": lambda example: mx.sym.from_torch(example.network().eval(), torch.zeros(1, 1, 8, 8)),
}
"""Object to draw, by the example's name; by default, the result of its function `network`."""


def drawn(name: str, path: Path) -> str:
    """Return the picture of an example in SVG, on white paper.

    Args:
        name: name of the example, as in `DRAWN`.
        path: file of the example.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    example = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    thing = DRAWN[name](example) if name in DRAWN else example.network()
    symbol = thing[0] if isinstance(thing, tuple) else thing  # followed by names of inputs or states
    drawn = re.sub(r" made at [^<\n]*?:\d+", "", symbol._repr_svg_())  # paths of this machine
    return drawn.replace("<svg ", '<svg style="background: #ffffff" ', 1) + "\n"
