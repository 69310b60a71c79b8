"""Compile an extension module from one C++ file, once per test run, and import it."""

import contextlib
import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import dpmodule

try:
    import fcntl
except ImportError:
    fcntl = None

_FOLDER = "DPMODULE_TEST_COMPILED"  # workers of pytest and processes of tests find here what is compiled


def compiler():
    """Return the path of a C++ compiler, None where there is none."""
    named = shlex.split(os.environ.get("CXX", ""))
    for name in (*named[:1], "c++", "g++", "clang++"):
        if shutil.which(name):
            return shutil.which(name)
    return None


def folder():
    """Return where modules are compiled, which goes with the process that asked first; those it starts share it."""
    if _FOLDER not in os.environ:
        made = tempfile.TemporaryDirectory(prefix="dpm-compiled-")
        folder.keep = made  # removed with the process
        os.environ[_FOLDER] = made.name
    return Path(os.environ[_FOLDER])


@contextlib.contextmanager
def _alone(path):
    """Let others that want a file to be made wait for the first one."""
    with open(f"{path}.lock", "w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@functools.cache
def load(source):
    """Return the module compiled from a file; its name is dpm_test_<stem>."""
    source = Path(source)
    name = f"dpm_test_{source.stem}"
    target = folder() / f"{name}.so"
    with _alone(target):
        if not target.exists():
            build([source], target, "-O1", "-g")
    return load_file(name, target)


def build(sources, target, *flags):
    """Compile an extension module.

    Args:
        sources: its C++ files.
        target: the file to make.
        flags: further ones of the compiler.
    """
    includes = [dpmodule.get_include(), sysconfig.get_paths()["include"]]
    extra = shlex.split(os.environ.get("DPMODULE_TEST_CXXFLAGS", ""))
    if sys.platform == "darwin":
        extra += ["-undefined", "dynamic_lookup"]
    command = [compiler(), "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", *flags]
    command += [*(f"-I{path}" for path in includes), *extra, *map(str, sources), "-o", f"{target}.new"]
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # of a sanitizer
    subprocess.run(command, check=True, env=plain)
    os.replace(f"{target}.new", target)


def load_file(name, path):
    """Return the extension module of a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
