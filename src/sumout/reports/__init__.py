"""The plan in words, and a run on one page of HTML."""
