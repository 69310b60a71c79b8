"""Reading, augmenting and drawing images, and iterators over them (`mx.image`, `mx.img`)."""

from .._core import lazy
from .augment import Augmenter as Augmenter
from .augment import BrightnessJitterAug as BrightnessJitterAug
from .augment import CastAug as CastAug
from .augment import CenterCropAug as CenterCropAug
from .augment import ColorJitterAug as ColorJitterAug
from .augment import ColorNormalizeAug as ColorNormalizeAug
from .augment import ContrastJitterAug as ContrastJitterAug
from .augment import ForceResizeAug as ForceResizeAug
from .augment import HorizontalFlipAug as HorizontalFlipAug
from .augment import HueJitterAug as HueJitterAug
from .augment import LightingAug as LightingAug
from .augment import RandomCropAug as RandomCropAug
from .augment import RandomGrayAug as RandomGrayAug
from .augment import RandomOrderAug as RandomOrderAug
from .augment import RandomSizedCropAug as RandomSizedCropAug
from .augment import ResizeAug as ResizeAug
from .augment import SaturationJitterAug as SaturationJitterAug
from .augment import SequentialAug as SequentialAug
from .create import CreateAugmenter as CreateAugmenter
from .create import CreateDetAugmenter as CreateDetAugmenter
from .create import CreateMultiRandCropAugmenter as CreateMultiRandCropAugmenter
from .det_augment import DetAugmenter as DetAugmenter
from .det_augment import DetBorrowAug as DetBorrowAug
from .det_augment import DetHorizontalFlipAug as DetHorizontalFlipAug
from .det_augment import DetRandomCropAug as DetRandomCropAug
from .det_augment import DetRandomPadAug as DetRandomPadAug
from .det_augment import DetRandomSelectAug as DetRandomSelectAug
from .det_iterator import ImageDetIter as ImageDetIter
from .functions import center_crop as center_crop
from .functions import color_normalize as color_normalize
from .functions import copyMakeBorder as copyMakeBorder
from .functions import fixed_crop as fixed_crop
from .functions import imdecode as imdecode
from .functions import imread as imread
from .functions import imresize as imresize
from .functions import imrotate as imrotate
from .functions import random_crop as random_crop
from .functions import random_rotate as random_rotate
from .functions import random_size_crop as random_size_crop
from .functions import resize_short as resize_short
from .functions import scale_down as scale_down
from .iterator import ImageIter as ImageIter

__all__ = [*lazy.public_names(vars()), "detection", "image"]

lazy.publish(__name__, __all__)
