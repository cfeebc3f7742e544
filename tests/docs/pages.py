"""The tools of the docs, which stand beside their pages."""

import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / ".docs"
sys.path.insert(0, str(DOCS))

import blocks as blocks  # noqa: E402
import config_types as config_types  # noqa: E402
import equations as equations  # noqa: E402
import made as made  # noqa: E402
import python_reference as python_reference  # noqa: E402
import shown as shown  # noqa: E402
