"""`Tickets`: numbers that several processes take in turn, each number by one of them."""

from __future__ import annotations

import os
import struct
import tempfile
from multiprocessing import reduction
from typing import Any

_NUMBER = struct.Struct("<q")


class Tickets:
    """The numbers from 0 on, up to a count, for processes that take the next one each.

    They lie in a file without a name; the position in it, which all processes have in common and which the system moves
    with every read, says how far they are. So there is no lock that a process could die with.

    An argument of a child of a `Supervisor`, it is the same tickets there.
    """

    __slots__ = ("__weakref__", "_fd")

    def __init__(self) -> None:
        self._fd = _nameless()

    def refill(self, count: int) -> None:
        """Begin anew, while nobody takes any."""
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        with open(os.dup(self._fd), "wb") as file:
            file.write(b"".join(map(_NUMBER.pack, range(count))))
        os.lseek(self._fd, 0, os.SEEK_SET)

    def take(self) -> int | None:
        """Return the next number, None when all are taken."""
        data = os.read(self._fd, _NUMBER.size)
        return _NUMBER.unpack(data)[0] if len(data) == _NUMBER.size else None

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self._fd),)


def _nameless() -> int:
    """Return an open file of the temporary folder, whose position Linux guards against readers that come together.

    It does not guard that of a file of ``memfd_create``, from which two of them got the same number now and then.
    """
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _received(fd: Any) -> Tickets:
    made = Tickets.__new__(Tickets)
    made._fd = fd.detach()
    return made
