"""Exact sums over z from tables of the factors: log p(x|y), z drawn given x, the most probable z, its marginals."""
