"""Moves that leave p(z | x, y) invariant."""
