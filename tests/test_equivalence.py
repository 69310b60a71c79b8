"""Every way to run a network gives the same outputs, gradients and step: networks of helpers/nets.py times ways."""
