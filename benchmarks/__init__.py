"""How fast sumout is, beside its peers: `python -m benchmarks` runs them all on the same models and data."""
