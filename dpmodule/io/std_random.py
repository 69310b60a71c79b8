"""The random numbers of the C++ standard library, so that a seed gives MXNet's numbers."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

_RANGE = 1 << 32
_WORDS = 64
_SCRATCH = threading.local()


class StdRandom:
    """Mersenne twister generator.

    Args:
        seed: any integer; its low 32 bits are used.

    Source: libstdc++ `std::mt19937`, `uniform_real_distribution<float>`, `uniform_int_distribution`,
    `bernoulli_distribution`, `normal_distribution<float>` and `shuffle`.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed % _RANGE
        self._state: np.random.RandomState | None = None  # created for the second block
        self._begun = False
        self._words: list[int] = []
        self._spare: float | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the generator as plain data and arrays."""
        state = list(self._own().get_state()) if self._begun else None
        return {"seed": self._seed, "state": state, "words": list(self._words), "spare": self._spare}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state_dict`."""
        self._seed, self._words, self._spare = state["seed"], list(state["words"]), state["spare"]
        self._begun = state["state"] is not None
        self._state = np.random.RandomState() if self._begun else None
        if self._state is not None:
            self._state.set_state(tuple(state["state"]))

    def _word(self) -> int:
        """Return 32 random bits."""
        if not self._words:
            drawn = np.frombuffer(self._block(), "<u4").tolist()
            self._words = drawn[::-1]
        return self._words.pop()

    def _block(self) -> bytes:
        """Return the next words; the first come from a shared generator, since creating one is slow."""
        if self._begun:
            return self._own().bytes(4 * _WORDS)
        self._begun = True
        scratch = getattr(_SCRATCH, "state", None)
        if scratch is None:
            scratch = _SCRATCH.state = np.random.RandomState()
        scratch.seed(self._seed)
        first: bytes = scratch.bytes(4 * _WORDS)
        return first

    def _own(self) -> np.random.RandomState:
        """Return the generator, after the first block of words."""
        if self._state is None:
            self._state = np.random.RandomState(self._seed)
            self._state.bytes(4 * _WORDS)
        return self._state

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """Return a float32 number from [low, high)."""
        fraction = np.float32(self._word()) / np.float32(_RANGE)
        fraction = min(fraction, np.float32(0.99999994))
        return float(fraction * (np.float32(high) - np.float32(low)) + np.float32(low))

    def whole(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        count = high - low + 1
        step = (_RANGE - 1) // count
        while True:
            drawn = self._word()
            if drawn < count * step:
                return low + drawn // step

    def coin(self) -> bool:
        """Return True or False, each with probability one half."""
        lower = self._word()
        return (lower + self._word() * float(_RANGE)) / (float(_RANGE) * _RANGE) < 0.5

    def normal(self) -> float:
        """Return a float32 number from the standard normal distribution."""
        if self._spare is not None:
            spare, self._spare = self._spare, None
            return spare
        while True:
            x, y = 2 * self.uniform() - 1, 2 * self.uniform() - 1
            square = x * x + y * y
            if 0 < square <= 1:
                break
        scale = math.sqrt(-2 * math.log(square) / square)
        self._spare = x * scale
        return y * scale

    def shuffled(self, count: int) -> list[int]:
        """Return 0, 1, ... count - 1 in a random order."""
        order = list(range(count))
        self.shuffle(order)
        return order

    def shuffle(self, items: list[int]) -> None:
        """Shuffle a list in place."""
        for i in range(1, len(items)):
            j = self.whole(0, i)
            items[i], items[j] = items[j], items[i]
