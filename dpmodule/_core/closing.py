"""`Closing`: context managers that call `close`."""

from __future__ import annotations

from typing_extensions import Self


class Closing:
    """Base of objects with a `close` method: a ``with`` block returns the object and closes it at the end."""

    def close(self) -> None:
        """Release the resources of the object."""
        raise NotImplementedError(f"{type(self).__name__} does not define close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
