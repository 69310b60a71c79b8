"""Numbers of the native engine's operations are those that the extension itself has."""

import pytest

from dpmodule import native
from dpmodule.autobatch.ops import native_kernels


@pytest.mark.skipif(native.core is None, reason="no native extension")
def test_numbers_come_from_the_extension():
    names = ["unary", "binary", "reduction", "arrangement", "draw", "convolution"]
    wanted = {name: getattr(native_kernels, name.upper()) for name in names} | {
        "operation": native_kernels.OP
    }
    assert wanted == native.core.AUTOBATCH_NUMBERS
    for kinds in wanted.values():
        assert list(kinds.values()) == list(range(len(kinds)))
    with pytest.raises(KeyError):
        native_kernels.UNARY["none such"]
