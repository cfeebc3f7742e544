"""`python -m servoctl` is the command line."""

import sys

from servoctl.cli import main

sys.exit(main())
