"""ODrive's own message database, an independent reader and writer of its frames; half a second to read."""

from functools import cache
from importlib.resources import files

import cantools
from cantools.database.can import Database


@cache
def odrive_database() -> Database:
    """The DBC of firmware 0.6.10 that `odrive-can` carries."""
    database = cantools.database.load_file(str(files("odrive_can") / "dbc" / "odrive-cansimple-0.6.10.dbc"))
    assert isinstance(database, Database)
    return database
