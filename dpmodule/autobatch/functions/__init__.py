"""DyNet's functions of expressions; those without an underscore are what the package imports and shows."""
