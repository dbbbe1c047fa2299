"""Which method the report speaks about: the most promising collaboration that is sound, chosen on validation rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyfed.report.methods import Method

FLAWS: tuple[tuple[str, Callable[[Method], bool]], ...] = (
    ("diverged", lambda method: method.diverged),
    ("are worse than a constant prediction", lambda method: method.worse_than_constant()),
    ("leak test labels", lambda method: method.leaks),
)


def choose_focus(methods: Sequence[Method]) -> tuple[Method, list[str]]:
    """The method to speak about and, of several, how it was picked.

    The mean validation loss chooses, as it does in tuning: it is a proper score, and every validation row counts in
    it. Without one the shown metric does; test rows pick only where there are no validation rows.
    """
    together = [method for method in methods if not method.alone_itself] or list(methods)
    sound, flaws = _sound(together)
    kind = "" if sound[0].alone_itself else " that train together"
    if len(sound) == 1:
        return sound[0], _only(sound[0], methods, f"{len(together)} methods{kind}", flaws)
    kind += " and are sound" if len(sound) < len(together) else ""
    known = [(loss, method) for method in sound if (loss := method.validation_loss) is not None]
    if known:
        best = min(known, key=lambda pair: round(pair[0], 12))[1]
        lacking = len(sound) - len(known)
        none = f"; {lacking} of them {'has' if lacking == 1 else 'have'} none" if lacking else ""
        return best, [f"Of the {len(sound)} methods{kind}, {best.label} has the lowest validation loss{none}."]
    return _by_metric(sound, kind)


def _sound(methods: list[Method]) -> tuple[list[Method], list[str]]:
    """The methods without a flaw, and the flaws of the others. A flaw that all share rules nobody out."""
    sound, flaws = methods, []
    for words, flawed in FLAWS:
        rest = [method for method in sound if not flawed(method)]
        if rest and len(rest) < len(sound):
            sound, flaws = rest, [*flaws, words]
    return sound, flaws


def _only(method: Method, methods: Sequence[Method], of: str, flaws: Sequence[str]) -> list[str]:
    """Whom the headline is about where nothing had to be chosen."""
    if len(methods) == 1:
        return []
    if not flaws:
        return [f"This is about {method.label}, the only method that trains together."]
    return [f"Of the {of}, this is about {method.label}: the others {' or '.join(flaws)}."]


def _by_metric(sound: Sequence[Method], kind: str) -> tuple[Method, list[str]]:
    task = sound[0].task
    for split in ("validation", task.split):
        ranked = [(method.mean(method.deployed, split), method) for method in sound]
        known = [(round(task.gain(mean, 0.0), 12), method) for mean, method in ranked if mean is not None]
        if len(known) == len(sound) or (known and split != "validation"):
            best = max(known, key=lambda pair: pair[0])[1]
            word = f"Of the {len(sound)} methods{kind}, {best.label} has the best mean {task.label} on the {split} rows"
            if split == task.split:
                word += ", the same rows that are reported here, which flatters it a little"
            return best, [word + "."]
    return sound[0], [f"This is about {sound[0].label}: nothing was measured to choose by."]
