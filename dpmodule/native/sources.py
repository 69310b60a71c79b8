"""What the extension is built from, in short: ``setup.py`` writes it into the extension, to be compared with a tree."""

from __future__ import annotations

import hashlib
from pathlib import Path


def fingerprint(folder: Path) -> str:
    """Return 64 hexadecimal digits that differ where the C++ files below a folder differ."""
    found = hashlib.sha256()
    for path in sorted(path for pattern in ("*.cpp", "*.hpp", "*.h") for path in folder.rglob(pattern)):
        found.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    return found.hexdigest()
