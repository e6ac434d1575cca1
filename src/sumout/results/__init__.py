"""From draws to a DataTree, and what a result says: summary, marginals, likelihood."""
