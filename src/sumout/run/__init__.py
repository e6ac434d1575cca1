"""From a program and a kernel to draws."""
