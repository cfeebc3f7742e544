"""Suggests the known word nearest to an unknown one."""

import difflib
from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str]) -> str:
    """The hint "did you mean 'theta'?" for the known word nearest to this one; empty if none is similar."""
    candidates = list(dict.fromkeys(known))
    lowered = {candidate.lower(): candidate for candidate in reversed(candidates)}
    near = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    near = near or difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f"did you mean {lowered.get(near[0], near[0])!r}?" if near else ""


def remedy(word: str, known: Iterable[str]) -> str:
    """The suggestion, or the list of the known words if there is none."""
    words = list(dict.fromkeys(known))
    return suggestion(word, words) or (f"known: {', '.join(words)}" if words else "none is known here")
