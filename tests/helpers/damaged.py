"""Damage to files, drawn at random."""


def damaged(draw, data, odd):
    """Return text or bytes in which some pieces are cut out, repeated, or replaced by odd ones."""
    for _ in range(draw.choice((1, 1, 2, 8))):
        at, length = draw.randrange(len(data) + 1), draw.randrange(12)
        piece = draw.choice((draw.choice(odd), data[max(at - length, 0) : at], data[:0]))
        data = data[:at] + piece + data[at + draw.choice((0, length)) :]
    return data
