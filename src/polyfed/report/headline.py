"""What the numbers say, in plain words: the report's first sentence and the ones under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyfed.report.methods import Method
from polyfed.report.numbers import average, percent, points, significant
from polyfed.studies.run_directory import JsonObject


@dataclass(frozen=True)
class Headline:
    """The sentence, what should be known with it, and the method it is about."""

    sentence: str
    details: tuple[str, ...]
    focus: Method


def headline(methods: Sequence[Method]) -> Headline:
    """What the most promising collaboration among the methods is worth, whether that is good news or not."""
    focus, chosen = _focus(methods)
    if focus.diverged:
        return Headline(f"{focus.label} diverged: its figures are not a result.", (), focus)
    if _known(focus.gains) and not focus.alone_itself:
        sentence, details = _against_alone(focus)
    elif _known(focus.gains_over("global")) and focus.personalizes:
        sentence, details = _against_global(focus)
    else:
        sentence, details = _plain(focus), []
    if chosen:
        details.insert(0, chosen)
    if focus.leaks:
        sentence = f"Test labels leak, so this is no result. {sentence}"
    if focus.sample:
        details.append(f"Measured on a sample, {focus.sample}, which each run's seed drew.")
    if focus.privacy:
        details.append(_privacy(focus.privacy))
    return Headline(sentence, tuple(details), focus)


def _privacy(spent: JsonObject) -> str:
    """What was spent, between whom it holds, and what it does not cover."""
    if spent["epsilon"] is None:
        return "Uploads were clipped, but without noise nobody is private: epsilon is infinite."
    return (
        f"What the server sent and learned is differentially private for every client: epsilon = "
        f"{significant(spent['epsilon'], 3)} at delta = {spent['delta']:g} ({spent['neighbours']}). Figures that were "
        "measured on clients' rows, as those on this page, are not covered."
    )


def _focus(methods: Sequence[Method]) -> tuple[Method, str]:
    """The method to speak about, and how it was picked. Test rows pick only where there are no validation rows."""
    together = [method for method in methods if not method.alone_itself] or list(methods)
    honest = [method for method in together if not method.leaks] or together
    sound = [method for method in honest if not method.diverged] or honest
    if len(sound) == 1:
        return sound[0], ""
    kind = "" if sound[0].alone_itself else " that train together"
    kind += " without test labels that leak" if len(honest) < len(together) else ""
    sign = -1.0 if sound[0].task.lower_is_better else 1.0
    for split in ("validation", sound[0].task.split):
        means = [(method.mean(method.deployed, split), method) for method in sound]
        ranked = [(sign * mean, method) for mean, method in means if mean is not None]
        if len(ranked) == len(sound) or (ranked and split != "validation"):
            best = max(ranked, key=lambda pair: pair[0])[1]
            word = f"Of the {len(sound)} methods{kind}, {best.label} has the best mean on the {split} rows"
            if split == sound[0].task.split:
                word += ", the same rows that are reported here, which flatters it a little"
            return best, word + "."
    return sound[0], ""


def _against_alone(method: Method) -> tuple[str, list[str]]:
    gains = method.gains
    there = _known(gains)
    better, worse = sum(gain > 0 for gain in there), sum(gain < 0 for gain in there)
    mean = average(there) or 0.0
    subject = "Training together and personalizing" if method.personalizes else "Training together"
    verb = _helps(better, worse, len(there))
    joint = _joint(better, len(there), mean)
    tail = _average_gain(method, "alone", mean, "over going alone" if mean >= 0 else "compared with going alone")
    sentence = f"{subject} {verb}{joint}{tail}." if better or worse else f"{subject} {verb}."
    details = []
    if 0 < worse < len(there):
        lowest, client = min((gain, name) for gain, name in zip(gains, method.clients, strict=True) if gain is not None)
        who = f"{_count(worse, 'client')} {'is' if worse == 1 else 'are'}"
        amount = f"by {_amount(method, -lowest)}"
        name = client if client.startswith("client") else f"client {client}"
        whom = f"{amount} ({name})" if worse == 1 else f"most of all {name} ({amount})"
        details.append(f"{who} better off alone, {whom}.")
    unchanged = len(there) - better - worse
    if 0 < unchanged < len(there):
        details.append(f"For {_count(unchanged, 'client')} nothing changes.")
    over_global = _known(method.gains_over("global"))
    if method.personalizes and len(over_global) > 1:
        wins = sum(gain > 0 for gain in over_global)
        details.append(f"Against the one global model, personalizing helps {_of(wins, len(over_global))}.")
    if len(there) < len(gains):
        details.append(f"{_count(len(gains) - len(there), 'client')} could not be compared: a figure is missing.")
    return sentence, details


def _amount(method: Method, difference: float) -> str:
    if method.task.is_share:
        return f"{points(difference).removeprefix('+')} points"
    return f"{significant(difference, 3)} of {method.task.metric}"


def _against_global(method: Method) -> tuple[str, list[str]]:
    there = _known(method.gains_over("global"))
    better, worse = sum(gain > 0 for gain in there), sum(gain < 0 for gain in there)
    mean = average(there) or 0.0
    tail = _average_gain(
        method, "global", mean, "over the one global model" if mean >= 0 else "against the global model"
    )
    sentence = f"Personalizing {_helps(better, worse, len(there))}{_joint(better, len(there), mean)}{tail}."
    return sentence, ["How each client would do alone was not measured."]


def _plain(method: Method) -> str:
    mean = method.mean(method.deployed)
    if mean is None:
        mean = average(method.values(method.deployed))
    count = _count(len(method.clients), "client")
    if mean is None:
        return f"{method.label} ran on {count}, and no {method.task.name} was measured."
    value = percent(mean) if method.task.is_share else significant(mean)
    if len(method.clients) == 1:
        return f"{method.label} reaches a {method.task.name} of {value} on its only client."
    who = "Going alone, the clients reach" if method.alone_itself else f"{method.label} reaches"
    return f"{who} a mean {method.task.name} of {value} over {count}."


def _helps(better: int, worse: int, count: int) -> str:
    if count == 1:
        return "helps the only client" if better else "does not help the only client"
    if better == 0 and worse == 0:
        return f"changes nothing for the {count} clients"
    if better == 0:
        return f"helps none of the {count} clients"
    only = "only " if better < worse else ""
    return f"helps {only}{_of(better, count)}"


def _joint(better: int, count: int, mean: float) -> str:
    """The words between how many clients gain and what the average is, honest where the two disagree."""
    if count == 1:
        return ": "
    majority = 2 * better > count
    if majority and mean < 0:
        return ", but the others lose more: on average "
    if not majority and mean > 0 and better:
        return "; even so, on average "
    return "; on average "


def _average_gain(method: Method, reference: str, mean: float, comparison: str) -> str:
    name = method.task.name
    if method.task.is_share:
        return f"{points(mean)} points of {name} {comparison}"
    pairs = zip(method.values(method.deployed), method.values(reference), strict=True)
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    after, before = average(a for a, _ in both) or 0.0, average(b for _, b in both) or 0.0
    if before <= 0 or after == before:
        return f"the {name} is {significant(after, 3)} instead of {significant(before, 3)}"
    change = f"{percent(abs(mean) / before)} {'lower' if mean > 0 else 'higher'}"
    than = "alone" if reference == "alone" else "with the global model"
    return f"the {name} is {change} than {than} ({significant(after, 3)} instead of {significant(before, 3)})"


def _known(gains: Sequence[float | None]) -> list[float]:
    return [gain for gain in gains if gain is not None]


def _of(part: int, count: int) -> str:
    return f"all {count:,} clients" if part == count > 1 else f"{part:,} of {_count(count, 'client')}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"
