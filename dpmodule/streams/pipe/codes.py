"""What the two cores answer with: the ones in Python, and those of the extension."""

from __future__ import annotations

__all__ = ["ENDED", "FOREIGN", "FULL", "LOOK", "NEWS", "READY", "SENT", "UNFIT"]

SENT, FULL, UNFIT, FOREIGN, LOOK = 0, 1, 2, 3, 4
"""What `send` says: done; no slot is free; no free slot has room for this structure; a tensor is on a device; it is
time to see whether the reader is still there."""

READY, NEWS, ENDED = 1, 2, 4
"""What `wait` says, added up: there is work or a wake-up; the socket is readable; the other process has ended."""
