"""`python -m sumout`."""

import sys

from sumout.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
