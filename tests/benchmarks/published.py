"""Published figures of the pseudoinverse study, as printed, with the copy errors marked.

Source: de Falco, Pennestri, Vita, tables 2-7. CPU times have no unit there.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One row of a published table.

    Attributes:
        result: `correct`, or how long the motion was correct.
        violation: Sum of the squared violations; None where not given.
        evaluations: Calls of the right-hand side; None where not given.
        steps: Integration steps; None where not given.
        cpu_time: In an unknown unit; None where not given.
        doubtful: Fields that are copied from another table.
    """

    result: str
    violation: float | None = None
    evaluations: int | None = None
    steps: int | None = None
    cpu_time: float | None = None
    doubtful: tuple[str, ...] = ()


Rows = dict[str, Published]

WITHOUT_STABILISATION: dict[float, Rows] = {
    1e-10: {  # table 2
        "svd": Published("fails after 9.1 s", 3.7e-7),
        "varga": Published("fails after 8.0 s", 9.9e-2),
        "greville": Published("correct up to 17.5 s", 4.5e-5, 2_961_955, 2_633_811, 0.93),
        "householder": Published("correct up to 16.5 s", 2.3e-4, 6_131_159, 4_177_395, 11.57),
        "gram_schmidt": Published("correct up to 17.0 s", 1.1e-4, 3_749_766, 3_015_354, 36.85),
    },
    1e-8: {  # table 3
        "svd": Published("fails after 12.07 s", 3.4e-6),
        "varga": Published("fails after 8.06 s", 9.9e-2),
        "greville": Published("correct up to 17.5 s", 1.86e-4, 1_648_055, 1_422_689, 0.53),
        "householder": Published("correct up to 18.0 s", 7.9e-4, 1_641_751, 1_422_297, 1.28),
        "gram_schmidt": Published("correct up to 18.0 s", 5.2e-4, 1_644_341, 1_424_864, 6.03),
    },
    1e-6: {  # table 4
        "svd": Published("correct up to 17.5 s", 4.1e-4, 1_033_381, 847_294, 0.28),
        "varga": Published("fails after 7.3 s", 9.9e-2),
        # the steps are those of table 3, and more than the evaluations
        "greville": Published("correct up to 19.0 s", 9.7e-4, 1_017_558, 1_422_689, 0.37, ("steps",)),
        # all but the CPU time is that of table 3
        "householder": Published("correct", 7.9e-4, 1_641_751, 1_422_297, 0.76, ("violation", "evaluations", "steps")),
        "gram_schmidt": Published("correct", 6.9e-4, 1_013_795, 839_020, 3.40),
    },
}
"""Tolerance -> method -> row; alpha = beta = 0."""

WITH_STABILISATION: dict[float, Rows] = {
    1e-10: {  # table 5
        "svd": Published("fails after 1.17 s"),
        "varga": Published("correct", 4.5e-5, 78_491_398, 47_074_599, 11.4),
        "greville": Published("correct", 2.1e-7, 74_043_990, 44_053_874, 18.3),
        "householder": Published("correct", 3.3e-7, 73_707_588, 43_948_609, 51.5),
        "gram_schmidt": Published("correct", 4.1e-7, 73_910_268, 44_515_071, 241.0),
    },
    1e-8: {  # table 6
        "svd": Published("fails after 0.17 s"),
        "varga": Published("fails after 14.97 s"),
        "greville": Published("correct", 4.90e-7, 80_109_155, 55_569_995, 19.4),
        "householder": Published("correct", 3.5e-7, 80_197_458, 54_468_468, 55.0),
        "gram_schmidt": Published("correct", 4.9e-7, 80_112_706, 54_604_452, 290.0),
    },
    1e-6: {  # table 7
        "svd": Published("fails after 0.46 s"),
        "varga": Published("fails after 9.7 s"),
        "greville": Published("correct", 1.9e-6, 80_483_163, 57_743_095, 19.5),
        "householder": Published("correct", 1.14e-6, 80_689_071, 58_099_798, 55.0),
        "gram_schmidt": Published("correct", 1.06e-6, 80_636_983, 58_010_479, 291.0),
    },
}
"""Tolerance -> method -> row; alpha = 1000, beta = 100."""
