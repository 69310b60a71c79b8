"""A process that reads damaged files of one kind and reports every one that is not simply read or refused.

Usage: python campaign.py KIND COUNT SEED, with the folder of the tests' helpers on the path.

An input may succeed or raise MXNetError with a text that UTF-8 can hold. Anything else is a finding: another
exception, more than 5 seconds of the processor, or memory beyond 4 times the file and 64 MB. The process prints a line
of JSON; if it dies, the input at fault lies in `last` in the working folder.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import logging
import random
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from mutate import mutate
from seeds import KINDS

from dpmodule.base import MXNetError

LIMIT_S, LIMIT_BYTES, TIMES_SIZE = 5.0, 64 * 2**20, 4
ADDRESS_SPACE = 2**30
"""How much more memory the process may ask for at all, in bytes: an absurd request fails at once."""


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def campaign(kind: str, count: int, seed: int) -> dict[str, Any]:
    """Read `count` damaged files; return how many were read, refused and found faulty."""
    rng = random.Random(f"{kind} {seed}")
    folder = Path.cwd() / "files"
    folder.mkdir(exist_ok=True)
    make, read = KINDS[kind]
    valid = make(folder)
    for data in valid:
        read(data, folder)
    result: dict[str, Any] = {"read": 0, "refused": 0, "slowest_s": 0.0, "findings": []}
    texts: set[str] = set()
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + ADDRESS_SPACE, resource.RLIM_INFINITY))
    before = _peak()
    for _ in range(count):
        data = mutate(rng.choice(valid), valid, rng)
        Path("last").write_bytes(data)
        faulthandler.dump_traceback_later(4 * LIMIT_S, exit=True)
        fault, start = "", time.process_time()
        try:
            read(data, folder)
            result["read"] += 1
        except MXNetError as error:
            result["refused"] += 1
            str(error).encode()
            texts.add(type(error).__name__)
        except BaseException as error:
            fault = f"{type(error).__name__}: {error}"
        spent, grown = time.process_time() - start, _peak() - before
        result["slowest_s"] = max(result["slowest_s"], round(spent, 3))
        if spent > LIMIT_S:
            fault = f"{spent:.1f} s"
        if grown > LIMIT_BYTES + TIMES_SIZE * len(data):
            fault, before = f"{grown / 2**20:.0f} MB", _peak()
        if fault:
            name = hashlib.sha1(data).hexdigest()[:12]
            Path(name).write_bytes(data)
            result["findings"].append([name, fault[:300]])
    faulthandler.cancel_dump_traceback_later()
    result["errors"] = sorted(texts)
    return result


def main() -> None:
    """Run the campaign that the command line names."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print(json.dumps(campaign(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))


if __name__ == "__main__":
    main()
