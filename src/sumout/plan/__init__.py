"""Structure → Plan → Target: how each discrete site is handled, and the gradients that follow."""
