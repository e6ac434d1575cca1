"""Factor tables, shared by sums and moves."""
