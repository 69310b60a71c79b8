"""What is wrong with a file: everything is collected, and told in one error."""

from __future__ import annotations

from ...base import FileFormatError

_SHOWN = 60
"""How many problems a message lists; of more it tells the number."""


class Refused(Exception):
    """A translator cannot express what a node does; the text says why."""


class TooLarge(Exception):
    """A file stands for more nodes than are made of one; the text says how many. Nothing else is looked at."""


class Problems:
    """Collects what is wrong with a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.found: dict[str, None] = {}

    def add(self, place: str, what: str) -> None:
        """Remember a problem."""
        text = f"{place}: {what}" if place else what
        self.found[text.encode("utf-8", "backslashreplace").decode()] = None

    def check(self) -> None:
        """Refuse the file if anything is wrong with it."""
        if not self.found:
            return
        shown = [f"  {each}" for each in list(self.found)[:_SHOWN]]
        if len(self.found) > _SHOWN:
            shown.append(f"  and {len(self.found) - _SHOWN} more")
        lines = "\n".join(shown)
        raise FileFormatError(f"{self.path}: this ONNX file cannot be imported:\n{lines}")
