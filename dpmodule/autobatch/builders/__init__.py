"""Builders of recurrent networks, tree networks and softmax layers."""
