"""Markov kernels on (x, z): pure functions `(key, state, data) -> (state, info)`."""
