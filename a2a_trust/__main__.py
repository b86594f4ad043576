"""``python -m a2a_trust`` is ``a2a-sign``."""

import sys

from a2a_trust.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
