"""Creation, shape, joining, indexing, ordering and type conversion."""
