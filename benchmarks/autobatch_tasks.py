"""Tasks of automatic batching, as programs for one example in DyNet's interface.

`dy` is `dpmodule.autobatch` or DyNet: the code does not depend on it. This file also runs under Python 3.8.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .treebank import BATCH_SIZE, CHARACTERS, LABELS, LEFT, SHIFT, TAGS, TOGETHER, VOCABULARY, spelling

__all__ = [
    "EXAMPLES",
    "TASKS",
    "Attention",
    "Biaffine",
    "CharacterTagger",
    "Grid",
    "GruTagger",
    "Lattice",
    "MatrixVector",
    "Parser",
    "Tagger",
    "Together",
    "TreeGRU",
    "TreeLSTM",
    "Trees",
    "batch_size",
    "first_value",
]

EXAMPLES = {
    "tagger": "sentences",
    "characters": "sentences",
    "tree": "trees",
    "parser": "parses",
    "equal": "equal",
    "together": "together",
    "gru": "sentences",
    "attention": "sentences",
    "biaffine": "sentences",
    "tree_gru": "trees",
    "mv_rnn": "trees",
    "lattice": "lattices",
    "grid": "grids",
}
"""Training examples of the tasks, see `treebank.examples`."""


def batch_size(task: str) -> int:
    """Return the number of examples of a task that hold BATCH_SIZE sentences."""
    return BATCH_SIZE // TOGETHER if EXAMPLES[task] == "together" else BATCH_SIZE


def first_value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a parameter's value before training, the same on all sides because it only depends on its name."""
    source = np.random.RandomState(sum(ord(letter) * 7**place for place, letter in enumerate(name)) % 2**31)
    return source.uniform(-0.1, 0.1, shape).astype(np.float32)


class Task:
    """A network and its parameters.

    Args:
        dy: the package.

    Attributes:
        model: the collection of parameters.
        dense, tables: parameters and lookup parameters by name.
    """

    def __init__(self, dy: Any) -> None:
        self.dy, self.model = dy, dy.ParameterCollection()
        self.dense: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}

    def parameter(self, name: str, *shape: int) -> Any:
        """Add a parameter."""
        self.dense[name] = self.model.add_parameters(shape)
        return self.dense[name]

    def table(self, name: str, *shape: int) -> Any:
        """Add lookup parameters."""
        self.tables[name] = self.model.add_lookup_parameters(shape)
        return self.tables[name]

    def lstm(self, name: str, inputs: int, hidden: int) -> Any:
        """Add an LSTM; its parameters are named after it with _x, _h and _b."""
        builder = self.dy.VanillaLSTMBuilder(1, inputs, hidden, self.model)
        for suffix, each in zip("xhb", builder.get_parameters()[0]):
            self.dense[f"{name}_{suffix}"] = each
        return builder

    def reset(self) -> None:
        """Set all parameters to their first values."""
        for name, each in self.dense.items():
            each.set_value(first_value(name, tuple(each.shape())))
        for name, each in self.tables.items():
            value = first_value(name, tuple(each.shape()))
            if value.ndim == 2:
                each.init_from_array(value)
                continue
            for number, matrix in enumerate(value):  # DyNet's init_from_array does not take matrices
                each.init_row(number, matrix.flatten("F"))

    def values(self) -> dict[str, np.ndarray]:
        """Return all parameters."""
        return {name: each.as_array() for name, each in {**self.dense, **self.tables}.items()}

    def losses(self, *example: Any) -> list[Any]:
        """Return the losses of one example."""
        raise NotImplementedError(f"{type(self).__name__} does not define losses")


class Tagger(Task):
    """A bidirectional LSTM over the words; a tag for each."""

    def __init__(self, dy: Any, width: int = 128, hidden: int = 50) -> None:
        super().__init__(dy)
        self.embeddings = self.table("words", VOCABULARY, width)
        self.ahead = self.lstm("ahead", width, hidden)
        self.back = self.lstm("back", width, hidden)
        self.hidden = self.parameter("hidden", 32, 2 * hidden)
        self.output = self.parameter("output", TAGS, 32)

    def word(self, word: int) -> Any:
        """Return the vector of a word."""
        return self.embeddings[word]

    def read(self, words: list[int]) -> list[Any]:
        """Return a vector for every word from the words before and after it."""
        vectors = [self.word(word) for word in words]
        ahead = self.ahead.initial_state().transduce(vectors)
        back = self.back.initial_state().transduce(vectors[::-1])
        return [self.dy.concatenate([left, right]) for left, right in zip(ahead, reversed(back))]

    def losses(self, words: list[int], tags: list[int]) -> list[Any]:
        """Return the loss of every word."""
        dy = self.dy
        scores = [self.output * dy.tanh(self.hidden * vector) for vector in self.read(words)]
        return [dy.pickneglogsoftmax(each, tag) for each, tag in zip(scores, tags)]


class CharacterTagger(Tagger):
    """The same, with vectors of rare words from an LSTM over their characters in each direction."""

    def __init__(self, dy: Any, width: int = 128, hidden: int = 50) -> None:
        super().__init__(dy, width, hidden)
        self.letters = self.table("letters", CHARACTERS, 20)
        self.spelled_ahead = self.lstm("spelled_ahead", 20, width // 2)
        self.spelled_back = self.lstm("spelled_back", 20, width // 2)
        self.spelling = spelling()

    def word(self, word: int) -> Any:
        """Return the vector of a word."""
        letters = self.spelling[word]
        if not letters:
            return self.embeddings[word]
        vectors = [self.letters[letter] for letter in letters]
        ahead = self.spelled_ahead.initial_state().transduce(vectors)
        back = self.spelled_back.initial_state().transduce(vectors[::-1])
        return self.dy.concatenate([ahead[-1], back[-1]])


class Trees(Task):
    """A network over binary trees; a label for each node."""

    def __init__(self, dy: Any, hidden: int) -> None:
        super().__init__(dy)
        self.embeddings = self.table("words", VOCABULARY, hidden)
        self.output = self.parameter("output", LABELS, hidden)

    def leaf(self, word: int) -> tuple[Any, ...]:
        """Return the state of a leaf, its output first."""
        raise NotImplementedError(f"{type(self).__name__} does not define leaf")

    def node(self, left: Any, right: Any) -> tuple[Any, ...]:
        """Return the state of a node with two children."""
        raise NotImplementedError(f"{type(self).__name__} does not define node")

    def losses(self, words: list[int], left: list[int], right: list[int], labels: list[int]) -> list[Any]:
        """Return the loss of every node."""
        made: list[tuple[Any, ...]] = []
        losses = []
        for first, second, label in zip(left, right, labels):
            made.append(self.leaf(words[-1 - first]) if first < 0 else self.node(made[first], made[second]))
            losses.append(self.dy.pickneglogsoftmax(self.output * made[-1][0], label))
        return losses


class TreeLSTM(Trees):
    """A binary TreeLSTM in single operations."""

    def __init__(self, dy: Any, hidden: int = 128) -> None:
        super().__init__(dy, hidden)
        for gate in "iou":
            self.parameter(f"leaf_{gate}", hidden, hidden)
            self.parameter(f"node_{gate}", hidden, 2 * hidden)
        for gate in "iouf":
            self.parameter(f"bias_{gate}", hidden)
        self.parameter("forget_left", hidden, hidden)
        self.parameter("forget_right", hidden, hidden)

    def leaf(self, word: int) -> tuple[Any, Any]:
        """Return output and memory of a leaf."""
        dy, p, vector = self.dy, self.dense, self.embeddings[word]
        i = dy.logistic(dy.affine_transform([p["bias_i"], p["leaf_i"], vector]))
        o = dy.logistic(dy.affine_transform([p["bias_o"], p["leaf_o"], vector]))
        u = dy.tanh(dy.affine_transform([p["bias_u"], p["leaf_u"], vector]))
        c = dy.cmult(i, u)
        return dy.cmult(o, dy.tanh(c)), c

    def node(self, left: tuple[Any, Any], right: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return output and memory of a node with two children."""
        dy, p = self.dy, self.dense
        both = dy.concatenate([left[0], right[0]])
        i = dy.logistic(dy.affine_transform([p["bias_i"], p["node_i"], both]))
        o = dy.logistic(dy.affine_transform([p["bias_o"], p["node_o"], both]))
        u = dy.tanh(dy.affine_transform([p["bias_u"], p["node_u"], both]))
        f = dy.logistic(dy.affine_transform([p["bias_f"], p["forget_left"], left[0]]))
        g = dy.logistic(dy.affine_transform([p["bias_f"], p["forget_right"], right[0]]))
        c = dy.cmult(i, u) + dy.cmult(f, left[1]) + dy.cmult(g, right[1])
        return dy.cmult(o, dy.tanh(c)), c


class TreeGRU(Trees):
    """A binary tree of gated recurrent units: a reset gate for each child, and an update gate."""

    def __init__(self, dy: Any, hidden: int = 128) -> None:
        super().__init__(dy, hidden)
        for name in ("leaf_z", "leaf_u"):
            self.parameter(name, hidden, hidden)
        for name in ("node_z", "node_l", "node_r", "node_u"):
            self.parameter(name, hidden, 2 * hidden)
        for name in ("bias_z", "bias_r", "bias_u"):
            self.parameter(name, hidden)

    def leaf(self, word: int) -> tuple[Any, ...]:
        """Return the output of a leaf."""
        dy, p, vector = self.dy, self.dense, self.embeddings[word]
        z = dy.logistic(dy.affine_transform([p["bias_z"], p["leaf_z"], vector]))
        return (dy.cmult(z, dy.tanh(dy.affine_transform([p["bias_u"], p["leaf_u"], vector]))),)

    def node(self, left: Any, right: Any) -> tuple[Any, ...]:
        """Return the output of a node with two children."""
        dy, p, (a,), (b,) = self.dy, self.dense, left, right
        both = dy.concatenate([a, b])
        z = dy.logistic(dy.affine_transform([p["bias_z"], p["node_z"], both]))
        first = dy.logistic(dy.affine_transform([p["bias_r"], p["node_l"], both]))
        second = dy.logistic(dy.affine_transform([p["bias_r"], p["node_r"], both]))
        reset = dy.concatenate([dy.cmult(first, a), dy.cmult(second, b)])
        u = dy.tanh(dy.affine_transform([p["bias_u"], p["node_u"], reset]))
        summed = a + b
        return (summed + dy.cmult(z, u - summed),)


class MatrixVector(Trees):
    """MV-RNN: a vector and a matrix for each node (Socher and others 2012); words share 1,000 matrices."""

    def __init__(self, dy: Any, hidden: int = 32) -> None:
        super().__init__(dy, hidden)
        self.matrices = self.table("matrices", 1000, hidden, hidden)
        self.parameter("left", hidden, hidden)
        self.parameter("right", hidden, hidden)
        self.parameter("bias", hidden)
        self.parameter("upper", hidden, hidden)
        self.parameter("lower", hidden, hidden)

    def leaf(self, word: int) -> tuple[Any, ...]:
        """Return vector and matrix of a word."""
        return self.embeddings[word], self.matrices[word % 1000]

    def node(self, left: Any, right: Any) -> tuple[Any, ...]:
        """Return vector and matrix of a node with two children: each child's vector is seen through the other."""
        dy, p, (a, m), (b, n) = self.dy, self.dense, left, right
        vector = dy.tanh(dy.affine_transform([p["bias"], p["left"], n * a, p["right"], m * b]))
        return vector, p["upper"] * m + p["lower"] * n


class Parser(Task):
    """A transition parser: LSTMs over the stack, the remaining words and the actions; a loss for each action."""

    def __init__(self, dy: Any, hidden: int = 64, narrow: int = 32) -> None:
        super().__init__(dy)
        self.embeddings = self.table("words", VOCABULARY, hidden)
        self.acts = self.table("actions", 3, narrow)
        self.stack, self.buffer = self.lstm("stack", hidden, hidden), self.lstm("buffer", hidden, hidden)
        self.history = self.lstm("history", narrow, hidden)
        for name, shape in (
            ("no_stack", (hidden,)),
            ("no_buffer", (hidden,)),
            ("no_history", (narrow,)),
            ("compose", (hidden, 2 * hidden)),
            ("compose_bias", (hidden,)),
            ("hidden", (hidden, 3 * hidden)),
            ("hidden_bias", (hidden,)),
            ("output", (3, hidden)),
            ("output_bias", (3,)),
        ):
            self.parameter(name, *shape)

    def losses(self, words: list[int], actions: list[int]) -> list[Any]:
        """Return the loss of every action that had an alternative."""
        dy, p = self.dy, self.dense
        stack = [self.stack.initial_state().add_input(p["no_stack"])]
        history = self.history.initial_state().add_input(p["no_history"])
        buffer = [self.buffer.initial_state().add_input(p["no_buffer"])]
        vectors = [self.embeddings[word] for word in words]
        for vector in reversed(vectors):
            buffer.append(buffer[-1].add_input(vector))
        items: list[Any] = []
        losses = []
        for action in actions:
            if len(buffer) > 1 and len(stack) > 2:
                seen = dy.concatenate([stack[-1].output(), buffer[-1].output(), history.output()])
                inner = dy.rectify(dy.affine_transform([p["hidden_bias"], p["hidden"], seen]))
                scores = dy.affine_transform([p["output_bias"], p["output"], inner])
                losses.append(dy.pickneglogsoftmax(scores, action))
            history = history.add_input(self.acts[action])
            if action == SHIFT:
                item = vectors[len(vectors) - len(buffer) + 1]
                buffer.pop()
            else:
                right, left = items.pop(), items.pop()
                del stack[-2:]
                pair = [right, left] if action == LEFT else [left, right]
                affine = dy.affine_transform([p["compose_bias"], p["compose"], dy.concatenate(pair)])
                item = dy.tanh(affine)
            stack.append(stack[-1].add_input(item))
            items.append(item)
        return losses


class Together(Tagger):
    """The tagger on several sentences of one length together: each node holds one vector of each sentence."""

    def word(self, word: Any) -> Any:
        """Return the vectors of words."""
        return self.dy.lookup_batch(self.embeddings, word)

    def losses(self, words: list[Any], tags: list[Any]) -> list[Any]:
        """Return the mean loss of the words of every position."""
        dy = self.dy
        scores = [self.output * dy.tanh(self.hidden * vector) for vector in self.read(words)]
        return [dy.mean_batches(dy.pickneglogsoftmax_batch(each, tag)) for each, tag in zip(scores, tags)]


class GruTagger(Tagger):
    """The tagger with gated recurrent units."""

    def lstm(self, name: str, inputs: int, hidden: int) -> Any:
        """Add a GRU in place of an LSTM; its parameters are numbered."""
        builder = self.dy.GRUBuilder(1, inputs, hidden, self.model)
        self.dense.update({f"{name}_{i}": each for i, each in enumerate(builder.get_parameters()[0])})
        return builder


class Attention(Task):
    """An LSTM reads the words, another one writes the tags and attends to all words before each."""

    def __init__(self, dy: Any, hidden: int = 64) -> None:
        super().__init__(dy)
        self.embeddings, self.tags = self.table("words", VOCABULARY, 32), self.table("tags", TAGS, 32)
        self.reader = self.lstm("reader", 32, hidden)
        self.writer = self.lstm("writer", 32 + hidden, hidden)
        self.parameter("words_seen", hidden, hidden)
        self.parameter("state_seen", hidden, 2 * hidden)
        self.parameter("attention", 1, hidden)
        self.parameter("output", TAGS, hidden)
        self.parameter("bias", TAGS)

    def losses(self, words: list[int], tags: list[int]) -> list[Any]:
        """Return the loss of every tag."""
        dy, p = self.dy, self.dense
        read = dy.concatenate_cols(
            self.reader.initial_state().transduce([self.embeddings[word] for word in words])
        )
        seen = p["words_seen"] * read
        last = self.tags[0]
        state = self.writer.initial_state().add_input(
            dy.concatenate([dy.vecInput(p["words_seen"].shape()[0]), last])
        )
        losses = []
        for tag in tags:
            wanted = p["state_seen"] * dy.concatenate(list(state.s()))
            scores = p["attention"] * dy.tanh(dy.colwise_add(seen, wanted))
            context = read * dy.softmax(dy.transpose(scores))
            state = state.add_input(dy.concatenate([context, last]))
            losses.append(
                dy.pickneglogsoftmax(dy.affine_transform([p["bias"], p["output"], state.output()]), tag)
            )
            last = self.tags[tag]
        return losses


class Biaffine(Tagger):
    """A score for every pair of words from the tagger's vectors; the head of a word is at half its position.

    Its layers are smooth: at the kink of a rectifier, rounding would determine the gradient, and sides would differ.
    """

    def __init__(self, dy: Any, width: int = 128, hidden: int = 50) -> None:
        super().__init__(dy, width, hidden)
        self.heads, self.dependents, self.pairs = (
            self.parameter(name, 2 * hidden, 2 * hidden) for name in ("heads", "dependents", "pairs")
        )

    def losses(self, words: list[int], tags: list[int]) -> list[Any]:
        """Return the loss of every word's head."""
        dy = self.dy
        read = dy.concatenate_cols(self.read(words))
        heads, dependents = dy.tanh(self.heads * read), dy.tanh(self.dependents * read)
        scores = dy.transpose(dependents) * (self.pairs * heads)
        return [dy.pickneglogsoftmax(scores[place], place // 2) for place in range(len(words))]


class Lattice(Task):
    """A lattice LSTM: characters, and the words that end at each (Zhang and Yang 2018); a tag for each character."""

    def __init__(self, dy: Any, hidden: int = 64) -> None:
        super().__init__(dy)
        self.letters, self.words = (self.table(name, VOCABULARY, hidden) for name in ("letters", "words"))
        for name in ("char_i", "char_o", "char_u", "word_i", "word_f", "word_u", "link"):
            self.parameter(f"{name}_x", hidden, hidden)
            self.parameter(f"{name}_h", hidden, hidden)
            self.parameter(f"{name}_b", hidden)
        self.output = self.parameter("output", TAGS, hidden)

    def gate(self, name: str, x: Any, h: Any) -> Any:
        """Return a gate before its activation."""
        p = self.dense
        return self.dy.affine_transform([p[f"{name}_b"], p[f"{name}_x"], x, p[f"{name}_h"], h])

    def losses(self, letters: list[int], spans: list[list[tuple[int, int]]], tags: list[int]) -> list[Any]:
        """Return the loss of every character's tag."""
        dy, zeros, losses = self.dy, self.dy.zeros(self.output.shape()[1]), []
        states = [(zeros, zeros)]
        for letter, ending, tag in zip(letters, spans, tags):
            (h, c), x = states[-1], self.letters[letter]
            i, o, u = (self.gate(f"char_{name}", x, h) for name in "iou")
            i, o, u = dy.logistic(i), dy.logistic(o), dy.tanh(u)
            if ending:
                shares, parts = [dy.exp(i)], [u]
                for start, word in ending:
                    (h, c), vector = states[start], self.words[word]
                    kept, new, made = (self.gate(f"word_{name}", vector, h) for name in "fiu")
                    part = dy.cmult(dy.logistic(kept), c) + dy.cmult(dy.logistic(new), dy.tanh(made))
                    shares.append(dy.exp(dy.logistic(self.gate("link", x, part))))
                    parts.append(part)
                c = dy.cdiv(dy.esum([dy.cmult(a, b) for a, b in zip(shares, parts)]), dy.esum(shares))
            else:
                c = c + dy.cmult(i, u - c)
            states.append((dy.cmult(o, dy.tanh(c)), c))
            losses.append(dy.pickneglogsoftmax(self.output * states[-1][0], tag))
        return losses


class Grid(Task):
    """A DAG-RNN over the patches of a picture, each after those above and on the left; a label for each."""

    def __init__(self, dy: Any, hidden: int = 128) -> None:
        super().__init__(dy)
        self.embeddings = self.table("words", VOCABULARY, hidden)
        self.parameter("input", hidden, hidden)
        self.parameter("before", hidden, hidden)
        self.parameter("bias", hidden)
        self.output = self.parameter("output", LABELS, hidden)

    def losses(self, words: list[list[int]], labels: list[list[int]]) -> list[Any]:
        """Return the loss of every patch."""
        dy, p, losses = self.dy, self.dense, []
        above: list[Any] = [None] * len(words[0])
        for row, wanted in zip(words, labels):
            left = None
            for place, (word, label) in enumerate(zip(row, wanted)):
                found = dy.affine_transform([p["bias"], p["input"], self.embeddings[word]])
                before = [each for each in (above[place], left) if each is not None]
                if before:
                    found = found + p["before"] * (before[0] if len(before) == 1 else before[0] + before[1])
                left = above[place] = dy.tanh(found)
                losses.append(dy.pickneglogsoftmax(self.output * left, label))
        return losses


TASKS = {
    "tagger": Tagger,
    "characters": CharacterTagger,
    "tree": TreeLSTM,
    "parser": Parser,
    "equal": Tagger,
    "together": Together,
    "gru": GruTagger,
    "attention": Attention,
    "biaffine": Biaffine,
    "tree_gru": TreeGRU,
    "mv_rnn": MatrixVector,
    "lattice": Lattice,
    "grid": Grid,
}
