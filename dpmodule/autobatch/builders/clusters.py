"""Files that put words into groups or trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...base import FileError, FileFormatError
from ...files.file_kind import regular_file
from ..arguments import file_name
from ..errors import foreign_value


def _lines(cluster_file: str, word_dict: Mapping[str, int]) -> Iterator[tuple[list[str], int]]:
    if not isinstance(word_dict, Mapping):
        raise foreign_value("word_dict", word_dict, "is no dict from words to their numbers")
    try:
        with open(file_name(cluster_file, "cluster_file"), encoding="utf-8", opener=regular_file) as source:
            text = source.read().splitlines()
    except OSError as failure:
        raise FileError(failure.errno, f"cannot read clusters: {failure.strerror}", cluster_file) from failure
    for number, line in enumerate(text, 1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) < 2 or fields[-1] not in word_dict:
            raise FileFormatError(
                f"{cluster_file}, line {number}: expected a group and a known word, got {line!r}"
            )
        yield fields[:-1], word_dict[fields[-1]]


def read_clusters(cluster_file: str, word_dict: Mapping[str, int]) -> list[list[int]]:
    """Read lines "group word" and return the numbers of the words of every group, in the order of the file."""
    groups: dict[str, list[int]] = {}
    for path, word in _lines(cluster_file, word_dict):
        groups.setdefault(path[0], []).append(word)
    return list(groups.values())


def read_paths(
    cluster_file: str, word_dict: Mapping[str, int]
) -> tuple[dict[int, list[tuple[int, int]]], list[int]]:
    """Read lines "branch branch ... word".

    Returns:
        For every word the nodes on its way, each with the number of the branch taken; and how many branches every node
        has. A single field of several digits, as in Brown clusters, stands for one branch a digit.
    """
    nodes: dict[tuple[str, ...], int] = {}
    branches: list[dict[str, int]] = []
    paths: dict[int, list[tuple[int, int]]] = {}
    for fields, word in _lines(cluster_file, word_dict):
        path = list(fields[0]) if len(fields) == 1 else fields
        way = []
        for depth, branch in enumerate([*path, f"word {word}"]):
            node = nodes.setdefault(tuple(path[:depth]), len(nodes))
            if node == len(branches):
                branches.append({})
            way.append((node, branches[node].setdefault(branch, len(branches[node]))))
        paths[word] = way
    return paths, [len(each) for each in branches]
