"""Weighted finite-state automata as recurrent layers, and back."""
