"""Instruction set and number of threads of all sides."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ISAS", "OWN_THREADS", "THREADS", "USUAL", "Setting", "processor"]

THREADS = ("1", "default")
OWN_THREADS = "BENCHMARK_THREADS"
"""Environment variable that is "default" for sides with the libraries' default number of threads."""


@dataclass(frozen=True)
class _Isa:
    """An instruction set.

    Attributes:
        title: title in reports.
        flags: processor flags that it requires.
        variables: environment variables that limit libraries to it.
    """

    title: str
    flags: frozenset[str]
    variables: Mapping[str, str]


def _isa(title: str, flags: str, onednn: str, aten: str, mkl: str, ours: str, openblas: str = "") -> _Isa:
    variables = {
        "ONEDNN_MAX_CPU_ISA": onednn,
        "DNNL_MAX_CPU_ISA": onednn,  # its former name
        "ATEN_CPU_CAPABILITY": aten,
        "MKL_ENABLE_INSTRUCTIONS": mkl,
        "DPMODULE_ISA": ours,
    }
    if openblas:  # for MXNet; it has no kernels above AVX-512, and may choose less
        variables["OPENBLAS_CORETYPE"] = openblas
    return _Isa(title, frozenset(flags.split()), variables)


ISAS = {
    "sse41": _isa("SSE4.1", "sse4_1", "SSE41", "default", "SSE4_2", "plain", "Nehalem"),
    "avx2": _isa("AVX2", "avx2 fma", "AVX2", "avx2", "AVX2", "avx2", "Haswell"),
    "avx512": _isa(
        "AVX-512",
        "avx512f avx512bw avx512dq avx512vl",
        "AVX512_CORE",
        "avx512",
        "AVX512",
        "avx512",
    ),
}
"""Instruction sets by their names in `--isa`, from small to large."""


def processor() -> tuple[str, frozenset[str]]:
    """Return the model of the processor, and its flags, empty if unknown."""
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                found.setdefault(name.strip(), value.strip())
    except OSError:
        pass  # not Linux
    model = found.get("model name") or platform.processor() or platform.machine()
    return model, frozenset(found.get("flags", "").split())


@dataclass(frozen=True)
class Setting:
    """Setting of all sides.

    Attributes:
        isa: the largest allowed instruction set, one of `ISAS`; "" for no limit.
        threads: one of `THREADS`; "default" is each library's default.
    """

    isa: str = ""
    threads: str = "1"

    def problem(self) -> str:
        """Return the reason why this processor does not support the setting, "" if it does."""
        if not self.isa:
            return ""
        if self.isa not in ISAS:
            return f"--isa {self.isa}: expected one of {', '.join(ISAS)}"
        model, flags = processor()
        lacking = sorted(ISAS[self.isa].flags - flags)
        return f"--isa {self.isa}: this processor, {model}, lacks {', '.join(lacking)}" if lacking else ""

    @property
    def clock(self) -> str:
        """The compared clock: with several threads, waiting for them is part of the time."""
        return "cpu" if self.threads == "1" else "wall"

    @property
    def limits(self) -> bool:
        """True if the instruction set is limited below that of the processor."""
        return bool(self.isa) and any(
            each.flags <= processor()[1] for each in list(ISAS.values())[list(ISAS).index(self.isa) + 1 :]
        )

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of this setting."""
        found = {**base, **(ISAS[self.isa].variables if self.isa else {})}
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            found.pop(name, None)
            if self.threads == "1":
                found[name] = "1"
        found[OWN_THREADS] = self.threads
        return found

    def __str__(self) -> str:
        isa = ISAS[self.isa].title if self.isa else "all instructions"
        return f"{isa}, {'1 thread' if self.threads == '1' else 'default threads'}"


USUAL = Setting()
"""Setting of the report's other parts."""
