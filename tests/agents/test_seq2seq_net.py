import itertools

import numpy as np
import pytest

from dpmodule.agents import seq2seq

END, START = 0, 9


class Chain:
    """A model whose next token depends on the last one, and on the row, which it finds by following origins."""

    def __init__(self, rows, width, tokens, seed=1):
        draw = np.random.RandomState(seed)
        self.tables = np.log(draw.dirichlet(np.full(tokens, 0.5), (rows, 10)))
        self.rows = np.repeat(np.arange(rows), width)

    def __call__(self, origins, tokens):
        self.rows = self.rows[origins]
        return self.tables[self.rows, tokens]

    def likelihood(self, row, sequence):
        steps = itertools.pairwise([START, *sequence])
        return sum(self.tables[row, last, token] for last, token in steps)


def best(chain, row, tokens, longest):
    every = [
        (*middle, END) for n in range(longest) for middle in itertools.product(range(1, tokens), repeat=n)
    ]
    every += itertools.product(range(1, tokens), repeat=longest)
    found = max(every, key=lambda sequence: chain.likelihood(row, sequence))
    return [token for token in found if token != END]


def test_greedy_search_takes_the_likeliest_token_at_each_step():
    chain = Chain(3, 1, 4)
    found = seq2seq.beam_search(chain, 3, 1, 5, START, END)
    for row, sequence in enumerate(found):
        last = START
        for token in [*sequence, *([END] if len(sequence) < 5 else [])]:
            assert token == chain.tables[row, last].argmax()
            last = token


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_that_takes_everything_finds_the_likeliest_sequence(seed):
    width = 3**4
    chain = Chain(2, width, 3, seed)
    wanted = [best(chain, row, 3, 4) for row in range(2)]
    assert seq2seq.beam_search(chain, 2, width, 4, START, END) == wanted


def test_a_wider_beam_is_never_less_likely_than_none():
    for seed in range(10):
        likely = []
        for width in (1, 200):
            chain = Chain(1, width, 5, seed)
            (found,) = seq2seq.beam_search(chain, 1, width, 3, START, END)
            likely.append(chain.likelihood(0, [*found, *([END] if len(found) < 3 else [])]))
        assert likely[1] >= likely[0] - 1e-9


def test_what_ends_at_once_is_empty():
    def ends(origins, tokens):
        return np.log(np.tile([0.9, 0.1], (len(tokens), 1)))

    assert seq2seq.beam_search(ends, 2, 2, 10, START, END) == [[], []]
