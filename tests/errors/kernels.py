"""Wrong arguments of the native extension's kernels."""

from dpmodule import native
from dpmodule.ops.nn.linear import multiply
from helpers.arrays import numbers

COUNTS = {"multiply": 12, "lstm": 16, "recurrent_forward": 17, "recurrent_backward": 18}
COUNTS |= {"conv3x3": 16, "conv3x3_gradients": 15}
COUNTS |= {"convolve": 24, "convolution_data": 24, "overlapping_data": 24, "convolution_gradients": 24}
LAYERS = [
    ((b"",), TypeError, "expected rows, threads and addresses, got 1 argument"),
    ((1, 1, 2), TypeError, "expected bytes"),
    ((bytes(247), 1, 0), ValueError, "rows has 247 bytes, expected 248 for each"),
    ((bytes(248), 1), IndexError, "a place is 0, expected one among 0 addresses"),
    ((bytes(248), 1, "0"), TypeError, "int"),
]
MISFITS = [
    ((numbers(8, 300), numbers(300, 299)), "shapes cannot be multiplied"),
    ((numbers(8, 300), numbers(300, 300), numbers(300).double()), "dtype"),
]


def called(name, *given):
    return lambda: getattr(native.core, name)(*given)


def with_text(name, count, place):
    return (called(name, *[0] * place, "1", *[0] * (count - place - 1)), TypeError, "")


ROWS = [
    row
    for name, count in COUNTS.items()
    if hasattr(native.core, name)
    for row in [
        (called(name, 1, 2), TypeError, f"expected {count} arguments, got 2"),
        *[with_text(name, count, place) for place in (0, 1, count - 1)],
    ]
]
if hasattr(native.core, "dense"):
    ROWS += [(called("dense", *[0] * count), TypeError, "expected") for count in (1, 13, 92)]
    ROWS += [with_text("dense", 12, 11)]
    ROWS += [(lambda given=given: multiply(*given), RuntimeError, text) for given, text in MISFITS]
    ROWS += [(lambda: multiply(MISFITS[0][0][0][:2], MISFITS[0][0][1]), RuntimeError, MISFITS[0][1])]
if hasattr(native.core, "run_layers"):
    ROWS += [(called("run_layers", *given), error, text) for given, error, text in LAYERS]
    ROWS += [(called("convolution_block", "many"), TypeError, "")]
