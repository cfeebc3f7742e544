"""Runs benchmarks and prints their rows: `python -m tests.benchmarks [NAME...] [--quick] [--json]`."""

import os
import sys

if __name__ == "__main__":
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # threads that wait busily slow small matrices down
        os.environ.setdefault(variable, "1")
    from tests.benchmarks.cases import main

    sys.exit(main())
