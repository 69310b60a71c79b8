"""The table of operations that both engines of automatic batching run."""
