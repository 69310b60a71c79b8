"""Modules of ParlAI that only programs written for it use; see `dpmodule.as_mxnet`."""
