"""Writes the ONNX files that the tests import: of torch's two exporters, of skl2onnx, and written by hand.

Usage: python tests/onnx/make_files.py FOLDER
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from helpers import onnx_files


def main():
    """Write all files into a folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    every = onnx_files.names()
    for kind in ("by_hand", "from_sklearn"):
        for name in every[kind]:
            print(getattr(onnx_files, kind)(name, folder).path)
    for name in every["from_torch"]:
        for is_new in onnx_files.exporters(name):
            print(onnx_files.from_torch(name, folder, is_new).path)


if __name__ == "__main__":
    main()
