"""Networks that MXNet's Gluon exported, as files, and what MXNet makes of them (data/goldens/gluon)."""

from pathlib import Path

import numpy as np

import dpmodule as mx

with np.load(Path(__file__).parents[1] / "data" / "goldens" / "gluon" / "blocks.npz") as file:
    GOLDEN = dict(file)


def nets(folder):
    """Write the exported networks; return the folder."""
    for net in (key.split()[0] for key in GOLDEN if key.endswith(" symbol")):
        (folder / f"{net}-symbol.json").write_text(str(GOLDEN[f"{net} symbol"]))
        start = f"{net} params "
        params = {k.removeprefix(start): mx.nd.array(v) for k, v in GOLDEN.items() if k.startswith(start)}
        mx.nd.save(str(folder / f"{net}-0000.params"), params)
    return str(folder)


def expected(part):
    """Return the results of a part of the recording."""
    return {k.removeprefix(f"{part}: "): v for k, v in GOLDEN.items() if k.startswith(f"{part}: ")}


def same(found, wanted):
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=2e-5, err_msg=key)
