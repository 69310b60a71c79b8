"""`Closing`: what a ``with`` block closes at its end."""

from __future__ import annotations

from typing_extensions import Self


class Closing:
    """Base of what is closed: its ``with`` block gives itself, and calls `close` in any case."""

    def close(self) -> None:
        """Give back what it holds; each class says what that is."""
        raise NotImplementedError(f"{type(self).__name__} does not define close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
