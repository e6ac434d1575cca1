"""Markov kernels on (x, z): pure functions `(key, state, data, t) -> (state, info)`."""
