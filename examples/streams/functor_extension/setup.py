"""Build an extension with a custom functor for dpmodule's threads.

    python setup.py build_ext --inplace
    python count_words.py --smoke

It works the same way with pybind11 or nanobind: return ``dpmodule::make_capsule(functor)``, or define a method
``__dpmodule_functor__`` that does.
"""

from setuptools import Extension, setup

import dpmodule

setup(
    name="word_count",
    version="1.0",
    ext_modules=[
        Extension(
            "word_count",
            sources=["word_count.cpp"],
            include_dirs=[dpmodule.get_include()],
            extra_compile_args=["-std=c++17", "-O2"],
            language="c++",
        )
    ],
)
