"""The law of a finished run once more, on its logged states."""
