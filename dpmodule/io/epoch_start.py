"""`EpochStart`: what an iterator or iterable without `state_dict` is like when an epoch begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import StateError
from ..devices import generators
from ..object_state import (
    has_live_iterator,
    noted,
    packed_changes,
    random_generators,
    restore,
    set_state,
    state_of,
)

_LARGEST = 2**20
"""Arrays with more numbers are the data themselves, which the program has anyway."""
_BATCHES = frozenset({"current_batch"})
"""Attributes that the next epoch does not depend on."""


class EpochStart:
    """Notes what an object is like, so that another one made alike can begin the same epoch.

    Attributes that are small and plain, and random generators wherever the object holds them, are kept; iterators,
    files and large arrays are not. Whoever reads the epoch again must therefore compare what comes.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._before = noted(source, _BATCHES, largest=_LARGEST)

    def state_dict(self) -> dict[str, Any]:
        """Return the changes since the object was made, and the states of all random generators."""
        attributes, unpackable = packed_changes(self._source, self._before, _BATCHES, largest=_LARGEST)
        return {
            "attributes": attributes,
            "lost": list(unpackable),
            "own": {path: state_of(each) for path, each in self._generators().items()},
            "generators": generators.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the object, and all random generators, like those that `state_dict` was called for."""
        restore(self._source, self._before, state["attributes"], leave_out=_BATCHES, largest=_LARGEST)
        for path, each in self._generators().items():
            if path in state["own"]:
                set_state(each, state["own"][path])
        generators.load_state_dict(state["generators"])

    def check(self, state: Mapping[str, Any], held: Mapping[str, Any] | None = None) -> None:
        """Refuse an epoch whose beginning could not be kept whole, and of which no batch has been read to compare.

        Args:
            held: what `live` returned before the epoch was begun; None: nothing has been begun.
        """
        now = self.live()
        data = [name for name in state["lost"] if name not in now]
        stale = [name for name in now if held is None or now[name] is held.get(name)]
        if wrong := [*data, *stale]:
            raise StateError(
                f"{type(self._source).__name__} does not say where it stands, and {', '.join(wrong)} cannot be kept "
                "over a resume; give it state_dict and load_state_dict, or use DataLoaderIter"
            )

    def live(self) -> dict[str, Any]:
        """Return the attributes that stand somewhere and cannot say where, such as iterators, by name."""
        packed = noted(self._source, _BATCHES, largest=_LARGEST)
        return {name: getattr(self._source, name) for name, tree in packed.items() if has_live_iterator(tree)}

    def _generators(self) -> dict[str, Any]:
        return random_generators({"": self._source})
