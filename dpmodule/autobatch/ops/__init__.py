"""The table of operations that both engines of automatic batching run.

A record (`spec.Operation`) defines an operation: its shape rule, which nodes may share a batch, value and gradient in
torch, and how to add a node to the native engine (`native_kernels`, by numbers that the extension exports). Functions
of one expression without further arguments are generated from their records, including the documentation; `functions`
contains all others, which check their arguments.

Derivatives are explicit because autograd would run the operation again: backward passes over batches of 96 nodes take
1.1 to 2.4 times as long with it, those of images and filters 1.7 to 3.5 times.
"""
