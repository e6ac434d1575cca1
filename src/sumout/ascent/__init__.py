"""Ascents to the modes of p(x|y), z summed out or drawn."""
