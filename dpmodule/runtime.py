"""Features of the installed torch under MXNet's names (`mx.runtime`)."""

from __future__ import annotations

import functools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ._core import lazy
from .base import ArgumentError

__all__ = ["Feature", "Features", "feature_list"]

lazy.publish(__name__, __all__)

# in MXNet's order; names that `_present` does not list are never enabled
_NAMES = """
    CUDA CUDNN NCCL CUDA_RTC TENSORRT CPU_SSE CPU_SSE2 CPU_SSE3 CPU_SSE4_1 CPU_SSE4_2 CPU_SSE4A CPU_AVX
    CPU_AVX2 OPENMP SSE F16C JEMALLOC BLAS_OPEN BLAS_ATLAS BLAS_MKL BLAS_APPLE LAPACK MKLDNN OPENCV
    CAFFE PROFILER DIST_KVSTORE CXX14 INT64_TENSOR_SIZE SIGNAL_HANDLER DEBUG TVM_OP
""".split()  # noqa: SIM905  # thirty lines as a list
_OF_AVX2 = ("CPU_SSE", "CPU_SSE2", "CPU_SSE3", "CPU_SSE4_1", "CPU_SSE4_2", "CPU_AVX", "CPU_AVX2", "F16C")


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature.

    Args:
        name: MXNet's name of the feature.
    """

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


def _present() -> set[str]:
    config = torch.__config__.show()
    backends: Any = torch.backends  # its functions have no types
    known = {
        "CUDA": torch.version.cuda is not None,
        "CUDNN": backends.cudnn.is_available(),
        "NCCL": torch.distributed.is_available() and torch.distributed.is_nccl_available(),
        "OPENMP": backends.openmp.is_available(),
        "BLAS_OPEN": "BLAS_INFO=open" in config,
        "BLAS_MKL": backends.mkl.is_available(),
        "BLAS_APPLE": "BLAS_INFO=accelerate" in config,
        "LAPACK": "LAPACK is enabled" in config,
        "MKLDNN": backends.mkldnn.is_available(),
        "INT64_TENSOR_SIZE": True,
    }
    vector = backends.cpu.get_cpu_capability().startswith("AVX")
    return {name for name, has in known.items() if has} | set(_OF_AVX2 if vector else ())


@functools.cache
def _features() -> tuple[Feature, ...]:
    present = _present()
    return tuple(Feature(name, name in present) for name in _NAMES)


def feature_list() -> list[Feature]:
    """Return MXNet's features; `enabled` is True if the installed torch has one."""
    return list(_features())


class Features(OrderedDict[str, Feature]):
    """The features by name; a singleton.

    Example:
        >>> mx.runtime.Features().is_enabled("INT64_TENSOR_SIZE")
        True
    """

    instance: ClassVar[Features | None] = None

    def __new__(cls) -> Features:
        """Return the singleton."""
        if cls.instance is None:
            cls.instance = super().__new__(cls)
        return cls.instance

    def __init__(self) -> None:
        super().__init__((feature.name, feature) for feature in feature_list())

    def is_enabled(self, feature_name: str) -> bool:
        """Return True if a feature is enabled; case does not matter.

        Args:
            feature_name: such as ``"CUDA"`` or ``"OPENCV"``.

        Raises:
            ArgumentError: MXNet does not know this feature.
        """
        found = self.get(feature_name.upper())
        if found is None:
            raise ArgumentError(f"unknown feature {feature_name!r}; expected one of {', '.join(self)}")
        return found.enabled

    def __repr__(self) -> str:
        return str(list(self.values()))
