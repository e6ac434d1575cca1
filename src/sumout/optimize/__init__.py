"""Modes of p(x|y), z summed out or drawn."""
