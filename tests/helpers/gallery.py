"""The script of the gallery, imported: it lies among the sources of the site."""

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location("gallery", Path(__file__).parents[2] / "docs" / "gallery.py")
gallery = sys.modules["gallery"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gallery)
