"""The table of operations that both engines of automatic batching run.

A record (`spec.Operation`) says all of an operation: its shape rule, what may share a batch, value and gradient in
torch, and how a node is added to the native engine (`native_kernels`, by the numbers that the extension
tells). Functions of one expression alone are made of their records, documentation included; all others are written
down in `functions`, where their arguments are checked.

Derivatives are written down rather than left to autograd, which runs the operation once more: backward passes over
batches of 96 nodes take 1.1 to 2.4 times as long with it, those of images and filters 1.7 to 3.5 times.
"""
