import dpmodule as mx
from helpers.pictures import FOLDER, NAMES, OPTIONS

I = mx.image  # noqa: E741
LISTED = [[*labels, f"{name}.png"] for labels, name in zip(OPTIONS["objects"], NAMES, strict=True)]


def images(imglist=LISTED, **given):
    return I.ImageDetIter(2, (3, 12, 14), imglist=imglist, path_root=FOLDER, **given)


def test_objects_are_changed_with_their_images():
    it = images(rand_crop=0.5, rand_pad=0.5, rand_mirror=True, mean=True, std=True, inter_method=10)
    for _ in range(5):
        for batch in it:
            assert batch.data[0].shape == (2, 3, 12, 14)
            label = batch.label[0].asnumpy()
            kept = label[label[:, :, 0] >= 0]
            assert ((kept[:, 1:5] >= 0) & (kept[:, 1:5] <= 1)).all()
        it.reset()


def test_shapes_are_brought_together():
    more = [2, 5] + [0, 0.1, 0.1, 0.5, 0.6] * 4
    one, other = images(), images([[*more, "wide.png"]])
    assert one.sync_label_shape(other) is other
    assert one.label_shape == other.label_shape == (4, 5)
    assert one.provide_label[0][1] == (2, 4, 5)
    assert one.next().label[0].shape == (2, 4, 5)
    one.reshape(data_shape=(3, 20, 22))
    one.auglist = I.CreateDetAugmenter((3, 20, 22))
    one.reset()
    assert one.next().data[0].shape == (2, 3, 20, 22)


def test_objects_are_drawn():
    drawn = list(images().draw_next(color=(255, 0, 0), mean=True, std=True, id2labels={0: "cat"}))
    assert len(drawn) == 3
    assert drawn[0].shape == (12, 14, 3)
    plain = images(aug_list=[]).draw_next(color=(1, 2, 3), thickness=1)
    box = next(plain)  # of 13 x 17 pixels; its first object begins at (1, 1)
    assert box[1, 1].tolist() == [3, 2, 1]


def test_images_that_a_subclass_refuses_are_left_out():
    shapes = [I.imread(f"{FOLDER}/{name}.png").shape for name in NAMES]

    class WithoutTheFirst(I.ImageDetIter):
        def check_valid_image(self, data):
            if data[0].shape == shapes[0]:
                raise RuntimeError("not this one")

    it = WithoutTheFirst(1, (3, 12, 14), imglist=LISTED, path_root=FOLDER)
    assert len(list(it)) == len(shapes) - shapes.count(shapes[0]) > 0
