"""Iterators over image records."""

from .iterators import ImageDetRecordIter as ImageDetRecordIter
from .iterators import ImageRecordInt8Iter as ImageRecordInt8Iter
from .iterators import ImageRecordIter as ImageRecordIter
from .iterators import ImageRecordIter_v1 as ImageRecordIter_v1
from .iterators import ImageRecordUInt8Iter as ImageRecordUInt8Iter
from .iterators import ImageRecordUInt8Iter_v1 as ImageRecordUInt8Iter_v1
