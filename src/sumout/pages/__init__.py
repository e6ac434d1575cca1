"""A run on one page of HTML."""
