"""The samplers, an adapter each; `names.py` lists them."""
