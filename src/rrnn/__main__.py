"""`python -m rrnn` is the `rrnn` command."""

import sys

from rrnn.cli import main

sys.exit(main())
