"""Parse formulas by shifts and reductions whose order depends on scores, in plain PyTorch.

The parser reads a formula such as "a + b * c - d" word by word. It scores two actions from the vectors of its stack and
of the next word: shift the next word, or reduce the three top entries of the stack to one. It learns the right actions.
In prediction it awaits the scores of each step, so that all formulas of a batch make their steps together.

Figure: formulas whose whole tree is right, at least 0.95; 0.8 with --smoke.
Time: 5 s; 3 s with --smoke.
Run: python examples/autobatch/parser_await.py [--smoke]
"""

from __future__ import annotations

import argparse
import random
import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from dpmodule import autobatch

STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 3, "end": 0}
WORDS = ["a", "b", "c", "d", *STRENGTH]
NUMBER = {word: i for i, word in enumerate(WORDS)}
SHIFT, REDUCE, BATCH_SIZE = 0, 1, 32
Tree = str | tuple["Tree", str, "Tree"]


def formula(draw: random.Random) -> list[str]:
    """Return the words of a formula."""
    words = [draw.choice("abcd")]
    for _ in range(draw.randint(1, 7)):
        words += [draw.choice("+-*/^"), draw.choice("abcd")]
    return [*words, "end"]


def right_action(stack: list[Tree], word: str) -> int:
    """Return the action that leads to the right tree: strong operators first, equal ones from the left."""
    return int(len(stack) >= 3 and word in STRENGTH and STRENGTH[word] <= STRENGTH[str(stack[-2])])


class Parser(nn.Module):
    """Vectors of words and of reduced parts, and scores of the actions.

    Args:
        width: size of the vectors.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), width)
        self.reduce = nn.Linear(3 * width, width)
        self.hidden, self.actions = nn.Linear(3 * width, width), nn.Linear(width, 2)
        self.nothing = nn.Parameter(torch.zeros(width))
        self.numbers = torch.arange(len(WORDS))

    def scores(self, vectors: list[Tensor], word: Tensor) -> Tensor:
        """Return the scores of the actions, from two entries of the stack and the next word."""
        below, top = [self.nothing, self.nothing, *vectors][-2:]
        return self.actions(torch.relu(self.hidden(torch.cat([below, top, word]))))

    async def forward(self, words: list[str], learn: bool = False) -> tuple[Tree, Tensor]:
        """Return the tree of one formula and, to learn, the sum of the losses of the right actions."""
        waiting, read = list(words), [self.words(self.numbers[NUMBER[word]]) for word in words]
        stack, vectors, losses = list[Tree](), list[Tensor](), list[Tensor]()
        while len(waiting) > 1 or len(stack) > 1:
            scores = self.scores(vectors, read[-len(waiting)])
            if learn:
                action = right_action(stack, waiting[0])
                losses.append(F.cross_entropy(scores, torch.tensor(action)))
            elif len(waiting) == 1 or len(stack) < 3:  # only one action is possible
                action = SHIFT if len(waiting) > 1 else REDUCE
            else:
                action = int(await scores.argmax())
            if action == SHIFT:
                vectors.append(read[-len(waiting)])
                stack.append(waiting.pop(0))
            else:
                vectors[-3:] = [torch.tanh(self.reduce(torch.cat(vectors[-3:])))]
                left, name, right = stack[-3:]
                stack[-3:] = [(left, str(name), right)]
        return stack[0], torch.stack(losses).sum() if learn else vectors[0]


def right_tree(words: list[str]) -> Tree:
    """Return the tree by the rules of arithmetic."""
    stack, waiting = list[Tree](), list(words)
    while len(waiting) > 1 or len(stack) > 1:
        if right_action(stack, waiting[0]) == SHIFT:
            stack.append(waiting.pop(0))
        else:
            left, name, right = stack[-3:]
            stack[-3:] = [(left, str(name), right)]
    return stack[0]


def main() -> int:
    """Train and check; return the exit code."""
    line = argparse.ArgumentParser(description=__doc__)
    line.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    steps, target = (60, 0.8) if line.parse_args().smoke else (200, 0.95)

    draw = random.Random(0)
    torch.manual_seed(0)
    parser = Parser(32)
    optimizer = torch.optim.Adam(parser.parameters(), lr=0.01)
    for _ in tqdm(range(steps), unit="batch", leave=False):
        batch = [formula(draw) for _ in range(BATCH_SIZE)]
        results = autobatch.map(parser, batch, [True] * BATCH_SIZE)
        loss = torch.stack([each for _, each in results]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    test = [formula(draw) for _ in range(200)]
    with torch.no_grad():
        found = autobatch.map(parser, test)
    right = sum(tree == right_tree(words) for (tree, _), words in zip(found, test)) / len(test)
    print(f"formulas whose whole tree is right: {right:.3f}, target at least {target}")
    return 0 if right >= target else 1


if __name__ == "__main__":
    sys.exit(main())
