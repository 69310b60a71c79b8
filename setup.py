"""Build script: adds the optional native extension to what stands in setup.cfg."""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("dpmodule", "native")


class OptionalBuildExt(build_ext):
    """Go on without the extension if it cannot be built, unless DPMODULE_REQUIRE_NATIVE says that it must."""

    def build_extension(self, ext):
        """Build one extension; a failure becomes a warning."""
        try:
            super().build_extension(ext)
        except Exception as error:
            if os.environ.get("DPMODULE_REQUIRE_NATIVE"):
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
            extra_compile_args=["-O2", "-std=c++17", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"],
            extra_link_args=["-pthread"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": OptionalBuildExt},
)
