"""The traced program → Structure."""
