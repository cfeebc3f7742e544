"""The report on a run before it runs, and the gains that are recommended."""
