"""The command line: `sumout`, or `python -m sumout`.

One module for each command: `add(subparsers)` describes it, `run(options)` does it and returns the exit code. Whatever
takes long to import is imported inside `run`, so that help comes at once.
"""
