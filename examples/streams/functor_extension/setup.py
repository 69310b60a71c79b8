"""Build an extension with a functor of one's own for dpmodule's threads.

    python setup.py build_ext --inplace
    python count_words.py --smoke

With pybind11 or nanobind it is the same: return ``dpmodule::make_capsule(functor)``, or give a class a method
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
