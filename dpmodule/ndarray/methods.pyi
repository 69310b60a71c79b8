"""Made by tools/stubs.py from the operator declarations; do not edit."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .ndarray import NDArray

T = TypeVar("T", bound=type)
FLUENT: tuple[str, ...]

def fluent(make: Callable[[str], Callable[..., Any]]) -> Callable[[T], T]: ...

class OpMethods:
    def abs(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the magnitude; its gradient at 0 is 0."""

    def arccos(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the inverse cosine in radians."""

    def arccosh(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the inverse hyperbolic cosine."""

    def arcsin(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the inverse sine in radians."""

    def arcsinh(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the inverse hyperbolic sine."""

    def arctan(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the inverse tangent in radians."""

    def arctanh(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the inverse hyperbolic tangent."""

    def argmax(
        self,
        axis: int | None = None,
        keepdims: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Return the index of the largest element along an axis, the first of equal ones."""

    def argmax_channel(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the index of the largest element along axis 1."""

    def argmin(
        self,
        axis: int | None = None,
        keepdims: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Return the index of the smallest element along an axis, the first of equal ones."""

    def argsort(
        self,
        axis: int | None = -1,
        is_ascend: bool = True,
        dtype: Any = "float32",
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Return the indices that sort an array along an axis; equal elements keep their order."""

    def broadcast_axes(
        self,
        axis: int | tuple[int, ...] = ...,
        size: int | tuple[int, ...] = ...,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Repeat the elements along axes of size 1."""

    def cbrt(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the real cube root."""

    def ceil(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Round up; the gradient is 0."""

    def clip(
        self,
        a_min: float = ...,
        a_max: float = ...,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Clip each element to [a_min, a_max]; the gradient is 1 inside and at both ends, else 0."""

    def cos(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the cosine of angles in radians."""

    def cosh(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the hyperbolic cosine."""

    def degrees(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Convert radians to degrees."""

    def depth_to_space(
        self,
        block_size: int = ...,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Rearrange channels into blocks of pixels."""

    def exp(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return e to the power of each element."""

    def expm1(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return exp(x) - 1, exact near 0."""

    def fix(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Round towards 0; the gradient is 0."""

    def flip(
        self,
        axis: int | tuple[int, ...] = ...,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Reverse the order of the elements along axes."""

    def floor(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Round down; the gradient is 0."""

    def log(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the natural logarithm."""

    def log10(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the logarithm to base 10."""

    def log1p(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return log(1 + x), exact near 0."""

    def log2(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the logarithm to base 2."""

    def log_softmax(
        self,
        axis: int = -1,
        temperature: float | None = None,
        dtype: Any = None,
        use_length: bool | None = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Return the logarithm of softmax, computed without loss of precision."""

    def max(
        self,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Return the maximum along axes (all elements equal to it get the gradient)."""

    def mean(
        self,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Average the elements along axes."""

    def min(
        self,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Return the minimum along axes (all elements equal to it get the gradient)."""

    def nanprod(
        self,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Multiply the elements along axes, treating NaN as 1."""

    def nansum(
        self,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Sum the elements along axes, treating NaN as 0."""

    def norm(
        self,
        ord: int = 2,
        axis: int | tuple[int, ...] | None = None,
        out_dtype: str | None = None,
        keepdims: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Return the norm along axes; its gradient at 0 is 0."""

    def one_hot(
        self,
        depth: int = ...,
        on_value: float = 1.0,
        off_value: float = 0.0,
        dtype: Any = "float32",
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Return one-hot rows; a position outside [0, depth) gives a row of `off_value`."""

    def ones_like(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return ones of the shape and type of `data`."""

    def pad(
        self,
        mode: str = ...,
        pad_width: tuple[int, ...] = ...,
        constant_value: float = 0.0,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Pad an array with a constant, its repeated edge, or its reflection."""

    def pick(
        self,
        index: NDArray | None = None,
        axis: int | None = -1,
        keepdims: bool = False,
        mode: str = "clip",
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Pick one element along an axis for every position of the other axes."""

    def prod(
        self,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Multiply the elements along axes."""

    def radians(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Convert degrees to radians."""

    def rcbrt(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return one over the real cube root."""

    def reciprocal(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return one over each element."""

    def relu(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return max(x, 0); its gradient at 0 is 0, at NaN it is NaN."""

    def repeat(
        self,
        repeats: int = ...,
        axis: int | None = None,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Repeat each element along an axis."""

    def reshape_like(
        self,
        rhs: NDArray | None = None,
        lhs_begin: int | None = None,
        lhs_end: int | None = None,
        rhs_begin: int | None = None,
        rhs_end: int | None = None,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Reshape `lhs` to the shape of `rhs`, or a range of its axes to a range of the axes of ..."""

    def rint(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Round to the nearest integer, halves down; the gradient is 0."""

    def round(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Round to the nearest integer, halves away from 0; the gradient is 0."""

    def rsqrt(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return 1 / sqrt(x)."""

    def shape_array(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the shape of `data` as an array."""

    def sigmoid(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return 1 / (1 + exp(-x))."""

    def sign(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return -1, 0 or 1, with 0 for 0 and NaN; the gradient is 0."""

    def sin(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the sine of angles in radians."""

    def sinh(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the hyperbolic sine."""

    def size_array(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the number of elements of `data` as an array."""

    def slice(
        self,
        begin: int | tuple[int | None, ...] | None = ...,
        end: int | tuple[int | None, ...] | None = ...,
        step: int | tuple[int | None, ...] | None = ...,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Slice the leading axes, as data[begin:end:step] in Python."""

    def slice_axis(
        self,
        axis: int = ...,
        begin: int = ...,
        end: int | None = ...,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Slice one axis."""

    def slice_like(
        self,
        shape_like: NDArray | None = None,
        axes: tuple[int, ...] = ...,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Slice the beginning of `data` to the size of `shape_like` along some axes."""

    def softmax(
        self,
        length: NDArray | None = None,
        axis: int = -1,
        temperature: float | None = None,
        dtype: Any = None,
        use_length: bool | None = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Apply softmax along an axis: ``exp(x) / sum(exp(x))``."""

    def softmin(
        self,
        axis: int = -1,
        temperature: float | None = None,
        dtype: Any = None,
        use_length: bool | None = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Return the softmax of the negated data."""

    def sort(
        self,
        axis: int | None = -1,
        is_ascend: bool = True,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Sort along an axis; equal elements keep their order."""

    def space_to_depth(
        self,
        block_size: int = ...,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Rearrange blocks of pixels into channels."""

    def split(
        self,
        num_outputs: int = ...,
        axis: int = 1,
        squeeze_axis: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> Any:
        """Split an array into equal pieces along an axis."""

    def sqrt(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the square root."""

    def square(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the square."""

    def sum(
        self,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Sum the elements along axes."""

    def swapaxes(
        self,
        dim1: int = 0,
        dim2: int = 0,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Exchange two axes."""

    def take(
        self,
        indices: NDArray | None = None,
        axis: int = 0,
        mode: str = "clip",
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Pick slices of an array along an axis by position."""

    def tan(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the tangent of angles in radians."""

    def tanh(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return the hyperbolic tangent."""

    def tile(
        self,
        reps: tuple[int, ...] = ...,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Repeat the whole array along axes."""

    def topk(
        self,
        axis: int | None = -1,
        k: int = 1,
        ret_typ: str = "indices",
        is_ascend: bool = False,
        dtype: Any = "float32",
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> Any:
        """Return the k largest elements along an axis, in order; of equal elements the first ..."""

    def transpose(
        self,
        axes: tuple[int, ...] = ...,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
    ) -> NDArray:
        """Permute the axes."""

    def trunc(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Truncate the fraction; the gradient is 0."""

    def zeros_like(
        self,
        *,
        out: NDArray | Sequence[NDArray] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray:
        """Return zeros of the shape and type of `data`."""
