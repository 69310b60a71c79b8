"""Registries by base class, as MXNet's mx.registry offers them."""

import dpmodule as mx


def test_functions_for_a_class_of_ones_own():
    class Shape:
        def __init__(self, size=1):
            self.size = size

    register = mx.registry.get_register_func(Shape, "shape")
    alias = mx.registry.get_alias_func(Shape, "shape")
    create = mx.registry.get_create_func(Shape, "shape")

    @register
    class Square(Shape):
        pass

    @alias("ring", "disc")
    class Circle(Shape):
        pass

    register(Square, "box")
    assert mx.registry.get_registry(Shape).keys() == {"square", "box", "circle", "ring", "disc"}
    assert type(create("Disc", size=3)) is Circle
    assert (create('["square", {"size": 4}]').size, create(shape="box", size=5).size) == (4, 5)
    made = Square()
    assert create(made) is made
