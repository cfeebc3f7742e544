"""Checks that the optional packages of `tune` are installed."""

from servoctl.errors import MissingPackageError


def require() -> None:
    """Checks that Optuna and its samplers are installed, and limits Optuna's log to warnings.

    Raises:
        MissingPackageError: A package is not installed.
    """
    try:
        import cmaes  # noqa: F401  (Optuna itself imports it only in the middle of a search)
        from optuna.logging import WARNING, set_verbosity
    except ImportError as error:
        message = f"servoctl tune: {error.name} is not installed (pip install servoctl[tune])"
        raise MissingPackageError(message) from error
    set_verbosity(WARNING)
