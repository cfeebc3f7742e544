"""What all tests share: a cache of compiled code of their own, kept from session to session."""

import os
from pathlib import Path

os.environ.setdefault("SERVOCTL_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "servoctl"))
