"""Program analysis on jaxprs, nothing Bayesian: flatten, simplify, unroll scans, evaluate."""
