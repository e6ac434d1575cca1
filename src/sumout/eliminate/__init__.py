"""Exact sums over z by variable elimination."""
