"""Build script of the optional native extension; the other settings are in setup.cfg."""

import os
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("dpmodule", "native")
FINGERPRINT = runpy.run_path(str(NATIVE / "installed.py"))["fingerprint"](NATIVE)
REQUIRED = bool(os.environ.get("DPMODULE_REQUIRE_NATIVE"))

UNITS = {
    "io": ("io/*.cpp",),
    "steps": ("kernels/steps.cpp",),
    "norm": ("kernels/norm.cpp", "kernels/row_norm.cpp"),
    "product": ("kernels/product.cpp",),
    "depthwise": ("kernels/depthwise.cpp",),
    "conv3x3": ("kernels/conv3x3.cpp",),
    "trained_convolution": ("kernels/trained_convolution.cpp",),
    "recurrence": ("kernels/recurrence.cpp",),
    "kernels_plain": ("kernels/kernels_plain.cpp",),
    "kernels_avx2": ("kernels/kernels_avx2.cpp",),
    "small": ("kernels/small.cpp",),
    "kernels_avx512": ("kernels/kernels_avx512.cpp",),
    "convolution": ("kernels/convolution.cpp",),
    "image_layers": ("kernels/image_layers.cpp",),
    "python": (
        "recording/*.cpp",
        *(f"autobatch/{name}.cpp" for name in ("*_type", "engine_*", "function_*", "python_*", "update_*")),
    ),
    "autobatch": ("autobatch/*.cpp",),
    "streams": ("*.cpp", "functors/*.cpp", "hogwild/*.cpp", "pipe/*.cpp"),
    "kernels": ("kernels/*.cpp",),
}
"""Compilation units, which compile headers and templates once: for each unit, patterns of the sources that no earlier
unit has, the slowest ones last. Names within a unit differ, even in anonymous namespaces. Kernels are separate units,
since their pragmas apply to the end of a file."""


def asked_for(option):
    """Return True if the compiler flags of the environment contain an option with this prefix."""
    given = " ".join(os.environ.get(name, "") for name in ("CFLAGS", "CXXFLAGS")).split()
    return any(word.startswith(option) for word in given)


FLAGS = ["-std=c++17", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"]
LINK_FLAGS = ["-pthread"]
if not asked_for("-O"):
    FLAGS.append("-O2")
if not asked_for("-g"):  # Python's flags contain it, for a file of 25 times the size
    FLAGS.append("-g0")
    LINK_FLAGS.append("-Wl,-x" if sys.platform == "darwin" else "-s")


def units(folder):
    """Return the files to compile, slowest first; write those of several sources to a folder."""
    left = sorted(NATIVE.rglob("*.cpp"))
    found = []
    for name, patterns in UNITS.items():
        fitting = {path for pattern in patterns for path in NATIVE.glob(pattern)}
        sources = [path for path in left if path in fitting]
        left = [path for path in left if path not in fitting]
        found.insert(0, sources[0] if len(sources) == 1 else unit(folder / f"unit_{name}.cpp", sources))
    if left:
        raise ValueError(f"no unit in setup.py has {', '.join(map(str, left))}")
    return [str(path) for path in found]


def unit(path, sources):
    """Write the file that includes some sources, unless it exists; return its path."""
    text = "".join(f'#include "{source.relative_to(NATIVE).as_posix()}"\n' for source in sources)
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path


def several_at_once(compile_files):
    """Compile the files of an extension in parallel; setuptools would compile them sequentially."""

    def compile_all(sources, *args, **options):
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = pool.map(lambda source: compile_files([source], *args, **options), sources)
            return [path for paths in made for path in paths]

    return compile_all


class OptionalBuildExt(build_ext):
    """Continue without the extension if its build fails, unless DPMODULE_REQUIRE_NATIVE is set."""

    def build_extension(self, ext):
        """Build one extension; a failure becomes a warning."""
        self.compiler.compile = several_at_once(self.compiler.compile)
        try:
            ext.sources = units(Path(self.build_temp))
            super().build_extension(ext)
        except Exception as error:
            if REQUIRED:
                raise
            self.warn(f"{ext.name} was not built; dpmodule runs without it, but slower: {error}")


EXTENSION = Extension(
    "dpmodule._native",
    sources=sorted(map(str, NATIVE.rglob("*.cpp"))),
    depends=sorted(str(path) for pattern in ("*.cpp", "*.h*") for path in NATIVE.rglob(pattern)),
    define_macros=[("DPMODULE_FINGERPRINT", f'"{FINGERPRINT}"')],
    include_dirs=[str(NATIVE / "include"), str(NATIVE)],
    language="c++",
    extra_compile_args=FLAGS,
    extra_link_args=LINK_FLAGS,
    optional=not REQUIRED,  # else setuptools itself swallows the failure
)

# without the extension, the wheel is for all platforms
setup(
    ext_modules=[] if os.environ.get("DPMODULE_NATIVE") == "0" else [EXTENSION],
    cmdclass={"build_ext": OptionalBuildExt},
)
