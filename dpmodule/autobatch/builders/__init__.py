"""Recurrent networks, tree networks and softmax layers, made of parameters of a collection."""
