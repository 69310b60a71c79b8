"""Loads a network by the id of a repository, as the package of the hub would fetch it.

Usage: python hub.py FOLDER
"""

import sys
import types

import dpmodule as mx

asked = []


def snapshot_download(repo_id, revision=None, allow_patterns=None):
    asked.append((repo_id, revision, allow_patterns))
    if repo_id == "some/missing":
        raise KeyError("404")
    return sys.argv[1]


sys.modules["huggingface_hub"] = types.SimpleNamespace(snapshot_download=snapshot_download)
module = mx.mod.Module.from_pretrained("some/net", revision="v1")
assert module.data_names == ["data"]
assert asked == [("some/net", "v1", ["*.json", "*.safetensors", "README.md"])], asked
try:
    mx.mod.Module.from_pretrained("some/missing")
except mx.base.FileError as error:
    print(error)
sys.modules["huggingface_hub"] = None
try:
    mx.mod.Module.from_pretrained("some/net")
except mx.base.MissingPackageError as error:
    print(error)
