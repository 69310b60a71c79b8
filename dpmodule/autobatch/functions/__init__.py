"""DyNet's functions of expressions; the package exports all names without an underscore."""
