"""Softmax layers over many classes, and readers of cluster files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ..._devices.generators import host
from ..._files import regular_file
from ...base import FileError, FileFormatError
from ..arguments import as_index, as_integer, file_name, flag
from ..collection import ParameterCollection, as_collection
from ..errors import BoundsError, ShapeError, user_line, wrong_type
from ..expression import Expression, as_list, node_of, plain
from ..functions.arithmetic import affine_transform, concatenate, concatenate_to_batch, log
from ..functions.inputs import zeros
from ..functions.losses import log_softmax, pickneglogsoftmax, pickneglogsoftmax_batch
from ..functions.shapes import pick, pick_batch_elem
from ..initializers import ConstInitializer
from ..ops.linear import MATMUL
from ..ops.spec import format_dim
from ..parameters import Parameters
from ..session import state


def _lines(cluster_file: str, word_dict: Mapping[str, int]) -> Iterator[tuple[list[str], int]]:
    if not isinstance(word_dict, Mapping):
        raise wrong_type("word_dict", word_dict, "is not a dict from words to numbers")
    try:
        with open(file_name(cluster_file, "cluster_file"), encoding="utf-8", opener=regular_file) as source:
            text = source.read().splitlines()
    except OSError as failure:
        raise FileError(failure.errno, f"cannot read clusters: {failure.strerror}", cluster_file) from failure
    seen: set[int] = set()
    for number, line in enumerate(text, 1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) < 2 or fields[-1] not in word_dict:
            raise FileFormatError(
                f"{cluster_file}, line {number}: expected a group and a known word, got {line!r}"
            )
        word = as_integer(word_dict[fields[-1]], f"word_dict[{fields[-1]!r}]")
        if word < 0 or word in seen:
            raise FileFormatError(
                f"{cluster_file}, line {number}: {fields[-1]!r} is word {word}, expected a number from 0 that no"
                " earlier line has"
            )
        seen.add(word)
        yield fields[:-1], word
    if not seen:
        raise FileFormatError(f"{cluster_file} has no words, expected lines with a group and a word")


def read_clusters(cluster_file: str, word_dict: Mapping[str, int]) -> list[list[int]]:
    """Read lines "group word" and return the word numbers of every group, in file order."""
    groups: dict[str, list[int]] = {}
    for path, word in _lines(cluster_file, word_dict):
        groups.setdefault(path[0], []).append(word)
    return list(groups.values())


def read_paths(
    cluster_file: str, word_dict: Mapping[str, int]
) -> tuple[dict[int, list[tuple[int, int]]], list[int]]:
    """Read lines "branch branch ... word".

    Returns:
        The path of every word, as pairs of node and branch number, and the number of branches of every node. A single
        field, as in Brown clusters, has one branch per digit.
    """
    nodes: dict[tuple[str, ...], int] = {}
    branches: list[dict[str, int]] = []
    paths: dict[int, list[tuple[int, int]]] = {}
    for fields, word in _lines(cluster_file, word_dict):
        path = list(fields[0]) if len(fields) == 1 else fields
        steps = []
        for depth, branch in enumerate([*path, f"word {word}"]):
            node = nodes.setdefault(tuple(path[:depth]), len(nodes))
            if node == len(branches):
                branches.append({})
            steps.append((node, branches[node].setdefault(branch, len(branches[node]))))
        paths[word] = steps
    return paths, [len(each) for each in branches]


class SoftmaxBuilder:
    """Base of softmax layers: a distribution over classes, given a vector.

    Shape:
        vector: (rep_dim,), any minibatch.

    Source: DyNet's `SoftmaxBuilder`, and its subclasses.
    """

    def param_collection(self) -> ParameterCollection:
        """Return the collection of the parameters."""
        raise NotImplementedError(f"{type(self).__name__} does not define param_collection")

    def neg_log_softmax(self, x: Expression, c: int, update: bool = True) -> Expression:
        """Return the negative log-probability of class `c`.

        Shape:
            x: (rep_dim,).
            returns: (1,).

        Args:
            update: False to treat the parameters as constants.

        Raises:
            BoundsError: the class does not exist.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define neg_log_softmax")

    def neg_log_softmax_batch(self, x: Expression, c: Sequence[int], update: bool = True) -> Expression:
        """Return the negative log-probability of one class for each element of a minibatch.

        Shape:
            x: (rep_dim,), with a minibatch of ``len(c)``.
            returns: (1,), with the same minibatch.

        Args:
            update: False to treat the parameters as constants.

        Raises:
            BoundsError: a class does not exist, or there are more classes than elements of the minibatch.
            ForeignValueError: `c` is not a list of integers.
            ShapeError: there are fewer classes than elements of the minibatch.
        """
        labels, dim = as_list("c", c), state.graph.dim(node_of(x))
        if 0 < len(labels) < dim.batch:
            raise ShapeError(
                f"neg_log_softmax_batch of {format_dim(dim)}: got {len(labels)} classes, expected one for each of the"
                f" {dim.batch} elements of the minibatch (at {user_line()})"
            )
        return concatenate_to_batch(
            [self.neg_log_softmax(pick_batch_elem(x, at), label, update) for at, label in enumerate(labels)]
        )

    def full_logits(self, x: Expression, update: bool = True) -> Expression:
        """Return the scores of all classes, before the softmax.

        Shape:
            x: (rep_dim,).
            returns: (classes,).

        Args:
            update: False to treat the parameters as constants.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define full_logits")

    def full_log_distribution(self, x: Expression, update: bool = True) -> Expression:
        """Return the log-probabilities of all classes; see `full_logits`.

        Args:
            update: False to treat the parameters as constants.

        Shape:
            x: (rep_dim,).
            returns: (classes,).

        Raises:
            ShapeError: `x` has the wrong size.
        """
        return log_softmax(self.full_logits(x, update))

    def sample(self, x: Expression) -> int:
        """Draw a class, computing the graph up to here.

        Shape:
            x: (rep_dim,), no minibatch.

        Raises:
            ShapeError: `x` is not a vector, or has a minibatch.
        """
        dim = state.graph.dim(node_of(x))
        if len(dim.d) > 1 or dim.batch > 1:
            raise ShapeError(f"sample of {format_dim(dim)}: expected one vector (at {user_line()})")
        weights = np.exp(self.full_log_distribution(x).npvalue())
        return int(host().choice(len(weights), p=weights / weights.sum()))


class _WithSubcollection:
    """Mixin of builders whose parameters are in a subcollection."""

    def __init__(self, pc: ParameterCollection, name: str) -> None:
        self._model = as_collection(pc, "pc").add_subcollection(name)

    def param_collection(self) -> ParameterCollection:
        """Return the collection of the parameters."""
        return self._model

    def _add_weights(self, classes: int, size: int, bias: bool) -> tuple[Parameters, ...]:
        """Create a weight matrix (classes, size) and, if `bias` is set, a vector (classes,)."""
        has_bias = flag(bias, "bias")
        found = self._model.add_parameters((classes, size))
        return (
            (found, self._model.add_parameters((classes,), ConstInitializer(0.0))) if has_bias else (found,)
        )


def _affine(weights: tuple[Parameters, ...], x: Expression, update: bool) -> Expression:
    expressions = weights if update is True else [each.expr(update) for each in weights]
    if len(expressions) == 1:
        return plain(MATMUL, expressions[0], x)
    return affine_transform([expressions[1], expressions[0], x])


def _nothing(x: Expression) -> Expression:
    """Return a zero for every element of the minibatch of `x`."""
    return zeros(1, state.graph.dim(node_of(x)).batch)


class StandardSoftmaxBuilder(_WithSubcollection, SoftmaxBuilder):
    """One softmax over all classes.

    Shape:
        vector: (rep_dim,), any minibatch.

    Args:
        num_classes: number of classes.
        pc: collection that gets the parameters.
        bias: True to add biases.

    Raises:
        ForeignValueError: `pc` is not a collection, a size is not an integer, or `bias` is not a bool.
        ShapeError: a size is not positive.
    """

    def __init__(self, rep_dim: int, num_classes: int, pc: ParameterCollection, bias: bool = True) -> None:
        super().__init__(pc, "standard-softmax-builder")
        self._weights = self._add_weights(num_classes, rep_dim, bias)

    def full_logits(self, x: Expression, update: bool = True) -> Expression:
        return _affine(self._weights, x, update)

    def neg_log_softmax(self, x: Expression, c: int, update: bool = True) -> Expression:
        return pickneglogsoftmax(self.full_logits(x, update), c)

    def neg_log_softmax_batch(self, x: Expression, c: Sequence[int], update: bool = True) -> Expression:
        return pickneglogsoftmax_batch(self.full_logits(x, update), c)


class ClassFactoredSoftmaxBuilder(_WithSubcollection, SoftmaxBuilder):
    """A softmax over groups and one within each group: p(word) = p(group) * p(word | group).

    Shape:
        vector: (rep_dim,), any minibatch.

    Args:
        cluster_file: a text file with lines "group word".
        pc: collection that gets the parameters.
        bias: True to add biases.

    Raises:
        FileError: the file cannot be read.
        FileFormatError: a line is not a group and a known word, two lines have the same word, or none has one.
        ForeignValueError: an argument has the wrong type.

    Source: Goodman, "Classes for fast maximum entropy training", 2001.
    """

    def __init__(
        self,
        rep_dim: int,
        cluster_file: str,
        word_dict: dict[str, int],
        pc: ParameterCollection,
        bias: bool = True,
    ) -> None:
        super().__init__(pc, "class-factored-softmax-builder")
        self._groups = read_clusters(cluster_file, word_dict)
        self._positions = {
            word: (group, at) for group, words in enumerate(self._groups) for at, word in enumerate(words)
        }
        self._top = self._add_weights(len(self._groups), rep_dim, bias)
        self._inner: list[tuple[Parameters, ...] | None] = [
            self._add_weights(len(words), rep_dim, bias) if len(words) > 1 else None for words in self._groups
        ]

    def class_logits(self, x: Expression, update: bool = True) -> Expression:
        """Return the scores of groups.

        Args:
            update: False to treat the parameters as constants.

        Shape:
            x: (rep_dim,).
            returns: (groups,).
        """
        return _affine(self._top, x, update)

    def class_log_distribution(self, x: Expression, update: bool = True) -> Expression:
        """Return the log-probabilities of the groups.

        Args:
            update: False to treat the parameters as constants.

        Shape:
            x: (rep_dim,).
            returns: (groups,).
        """
        return log_softmax(self.class_logits(x, update))

    def subclass_logits(self, x: Expression, classid: int, update: bool = True) -> Expression:
        """Return the scores of the words of a group.

        Args:
            update: False to treat the parameters as constants.

        Shape:
            x: (rep_dim,).
            returns: (words of the group,).

        Raises:
            BoundsError: the group does not exist.
        """
        weights = self._inner[as_index(classid, len(self._inner), "classid")]
        return _nothing(x) if weights is None else _affine(weights, x, update)

    def subclass_log_distribution(self, x: Expression, classid: int, update: bool = True) -> Expression:
        """Return the log-probabilities of the words of a group.

        Args:
            update: False to treat the parameters as constants.

        Shape:
            x: (rep_dim,).
            returns: (words of the group,).

        Raises:
            BoundsError: the group does not exist.
        """
        return log_softmax(self.subclass_logits(x, classid, update))

    def neg_log_softmax(self, x: Expression, c: int, update: bool = True) -> Expression:
        if (c := as_integer(c, "c")) not in self._positions:
            raise BoundsError(f"word {c} is in no group of the cluster file (at {user_line()})")
        group, at = self._positions[c]
        loss = pickneglogsoftmax(self.class_logits(x, update), group)
        return (
            loss
            if self._inner[group] is None
            else loss + pickneglogsoftmax(self.subclass_logits(x, group, update), at)
        )

    def full_log_distribution(self, x: Expression, update: bool = True) -> Expression:
        top = self.class_log_distribution(x, update)
        parts: dict[int, Expression] = {}
        for group, words in enumerate(self._groups):
            inner = self.subclass_log_distribution(x, group, update) + pick(top, group)
            parts.update({word: pick(inner, at) for at, word in enumerate(words)})
        missing = log(_nothing(x))
        return concatenate([parts.get(word, missing) for word in range(max(parts) + 1)])

    def full_logits(self, x: Expression, update: bool = True) -> Expression:
        return self.full_log_distribution(x, update)


class HierarchicalSoftmaxBuilder(_WithSubcollection, SoftmaxBuilder):
    """A tree of softmaxes; a word's probability is the product along its path.

    Shape:
        vector: (rep_dim,), any minibatch.

    Args:
        cluster_file: a text file with lines "branch branch ... word", or "branches word" as in Brown clusters.
        pc: collection that gets the parameters.
        bias: True to add biases.

    Raises:
        FileError: the file cannot be read.
        FileFormatError: a line is not a path and a known word, two lines have the same word, or none has one.
        ForeignValueError: an argument has the wrong type.

    Source: Morin and Bengio, "Hierarchical probabilistic neural network language model", 2005.
    """

    def __init__(
        self,
        rep_dim: int,
        cluster_file: str,
        word_dict: dict[str, int],
        pc: ParameterCollection,
        bias: bool = True,
    ) -> None:
        super().__init__(pc, "hierarchical-softmax-builder")
        self._paths, sizes = read_paths(cluster_file, word_dict)
        self._nodes: list[tuple[Parameters, ...] | None] = [
            self._add_weights(size, rep_dim, bias) if size > 1 else None for size in sizes
        ]

    def neg_log_softmax(self, x: Expression, c: int, update: bool = True) -> Expression:
        if (c := as_integer(c, "c")) not in self._paths:
            raise BoundsError(f"word {c} is not in the cluster file (at {user_line()})")
        loss: Expression | None = None
        for node, branch in self._paths[c]:
            weights = self._nodes[node]
            if weights is not None:
                part = pickneglogsoftmax(_affine(weights, x, update), branch)
                loss = part if loss is None else loss + part
        return _nothing(x) if loss is None else loss

    def full_log_distribution(self, x: Expression, update: bool = True) -> Expression:
        missing = log(_nothing(x))
        words: Iterable[int] = range(max(self._paths) + 1)
        return concatenate(
            [-self.neg_log_softmax(x, word, update) if word in self._paths else missing for word in words]
        )

    def full_logits(self, x: Expression, update: bool = True) -> Expression:
        return self.full_log_distribution(x, update)
