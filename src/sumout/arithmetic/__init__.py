"""Equations of jaxprs computed by NumPy: nothing is compiled for them."""
