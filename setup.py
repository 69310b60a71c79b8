"""Build script: adds the optional native extension to what stands in setup.cfg."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("dpmodule", "native")
REQUIRED = bool(os.environ.get("DPMODULE_REQUIRE_NATIVE"))
FLAGS = ["-std=c++17", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"]
if "-O" not in os.environ.get("CXXFLAGS", ""):
    FLAGS.append("-O2")


def several_at_once(compile_files):
    """Give each file of an extension to a compiler of its own; setuptools would run one after the other."""

    def compile_all(sources, *args, **options):
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = pool.map(lambda source: compile_files([source], *args, **options), sources)
            return [path for paths in made for path in paths]

    return compile_all


class OptionalBuildExt(build_ext):
    """Go on without the extension if it cannot be built, unless DPMODULE_REQUIRE_NATIVE says that it must."""

    def build_extension(self, ext):
        """Build one extension; a failure becomes a warning."""
        self.compiler.compile = several_at_once(self.compiler.compile)
        try:
            super().build_extension(ext)
        except Exception as error:
            if REQUIRED:
                raise
            self.warn(f"{ext.name} was not built, dpmodule runs without it, slower: {error}")


setup(
    ext_modules=[
        Extension(
            "dpmodule._native",
            sources=sorted(map(str, NATIVE.rglob("*.cpp"))),
            depends=sorted(map(str, NATIVE.rglob("*.h*"))),
            include_dirs=[str(NATIVE / "include"), str(NATIVE)],
            language="c++",
            extra_compile_args=FLAGS,
            extra_link_args=["-pthread"],
            optional=not REQUIRED,  # else setuptools itself swallows the failure
        )
    ],
    cmdclass={"build_ext": OptionalBuildExt},
)
