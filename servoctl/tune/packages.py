"""Optuna and what it needs: an extra, asked for before it is imported where it is used."""

from importlib import import_module

from servoctl.errors import MissingPackageError


def require() -> None:
    """Nothing, where the packages of a search are there; Optuna says warnings only from then on.

    Raises:
        MissingPackageError: One is not installed.
    """
    try:
        for name in ("cmaes", "optuna"):  # Optuna would miss cmaes in the middle of a search
            import_module(name)
    except ImportError as error:
        message = f"servoctl tune: {error.name} is not installed (pip install servoctl[tune])"
        raise MissingPackageError(message) from error
    import_module("optuna.logging").set_verbosity(30)
