"""From a program and a kernel to a result."""
