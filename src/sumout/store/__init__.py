"""Trace backends: draws in memory or in a folder, and results in files."""
