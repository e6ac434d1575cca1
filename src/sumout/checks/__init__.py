"""What `sumout.check` looks at before a program is sampled."""
