"""Optuna and what it needs: an extra, asked for before it is imported where it is used."""

from servoctl.errors import MissingPackageError


def require() -> None:
    """Nothing, where the packages of a search are there; Optuna says warnings only from then on.

    Raises:
        MissingPackageError: One is not installed.
    """
    try:
        import cmaes  # noqa: F401  which Optuna would miss in the middle of a search
        from optuna.logging import WARNING, set_verbosity
    except ImportError as error:
        message = f"servoctl tune: {error.name} is not installed (pip install servoctl[tune])"
        raise MissingPackageError(message) from error
    set_verbosity(WARNING)
