"""Recognisers of special structure, for which sums or draws cost less."""
