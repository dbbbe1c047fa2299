"""What the numbers say, in plain words: the report's first sentences and the ones under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyfed.report.constant import shortfall
from polyfed.report.focus import choose_focus
from polyfed.report.gains import GAINS, LOSES, UNDECIDED, Gains
from polyfed.report.methods import Method, Task
from polyfed.report.numbers import NO_INTERVAL, average, between, gained, percent, significant, two_digits
from polyfed.studies.run_directory import JsonObject
from polyfed.studies.verdicts.intervals import Interval


@dataclass(frozen=True)
class Headline:
    """The answer, what should be known with it, and the method it is about."""

    sentence: str
    details: tuple[str, ...]
    focus: Method


def headline(methods: Sequence[Method]) -> Headline:
    """What the most promising collaboration among the methods is worth, whether that is good news or not."""
    focus, details = choose_focus(methods)
    if focus.diverged:
        return Headline(f"{focus.label} diverged: its figures are not a result.", (), focus)
    alone, shared = focus.gains, focus.gains_over_global
    subject = "training together and personalizing" if focus.personalizes else "training together"
    if focus.worse_than_constant():
        sentence = _below_constant(methods, focus)
    elif alone is not None and alone.judged and not focus.alone_itself:
        sentence = _verdict(subject, alone, focus.task, "over going alone", "compared with going alone")
        details += _against_global(focus)
    elif shared is not None and shared.judged:
        sentence = _verdict("personalizing", shared, focus.task, "over the global model", "against the global model")
        details.append("How each client would do alone was not measured.")
    else:
        sentence = _plain(focus)
    details += _constant(focus) + _missing(focus)
    if focus.leaks:
        sentence = f"Test labels leak, so this is no result. {sentence}"
    if focus.sample:
        details.append(f"Measured on a sample, {focus.sample}, which each run's seed drew.")
    if focus.privacy:
        details.append(_privacy(focus.privacy))
    return Headline(sentence, tuple(details), focus)


def amount(task: Task, size: float) -> str:
    """A difference with its unit, such as 3.1 points or 0.052 AUC."""
    if task.is_share:
        return f"{100 * size:.{max(1, two_digits(100 * size))}f} points"
    return f"{significant(size, 2)} {task.label}"


def moved(interval: Interval, task: Task) -> str:
    """A gain with its sign, and with points where it is one of shares."""
    return gained(interval, task.is_share) + (" points" if task.is_share else "")


def could_be_seen(gains: Gains, task: Task) -> str:
    """How small a difference the rows could have shown, in words; empty where nobody was judged."""
    least = gains.detectable
    if least is None:
        return ""
    if least < task.largest:
        where = "" if gains.judged == 1 else " at the median client"
        return f"nothing below {amount(task, least)} could have been seen{where}"
    blind = gains.blind(task.largest)
    if blind == gains.judged:
        return "no difference could have been seen" + ("" if blind == 1 else " at any of them")
    where = "most" if 2 * blind > gains.judged else "half of the"
    return f"at {where} clients no difference could have been seen"


def reach(interval: Interval, task: Task, of: str = "") -> str:
    """The interval's ends, or that they are not known."""
    ends = between(interval, task.is_share)
    return ends if ends == NO_INTERVAL else f"95% interval{of} {ends}"


def _verdict(subject: str, gains: Gains, task: Task, over: str, against: str) -> str:
    """Whom it helps and harms for certain, and what it does on average."""
    helped, harmed, open_ = (gains.count(verdict) for verdict in (GAINS, LOSES, UNDECIDED))
    count = gains.judged
    if helped == harmed == 0:
        return _nobody(subject, gains, task, against)
    start = subject[0].upper() + subject[1:]
    if count == 1:
        sentence = f"{start} {'helps' if helped else 'harms'} the only client for certain."
        interval = next(client.interval for client in gains.clients if client.verdict)
        return f"{sentence} {_average(interval, task, over, against, 'Its')}"
    verb, most, least = ("helps", helped, harmed) if helped else ("harms", harmed, helped)
    if most == count:
        sentence = f"{start} {verb} all {count:,} clients for certain."
    else:
        sentence = f"{start} {verb} {most:,} of {count:,} clients for certain"
        sentence += f", harms {least:,}" if least else " and harms none" if helped else " and helps none"
        sentence += f"; for {open_:,} the rows cannot tell." if open_ else "."
    return f"{sentence} {_average(gains.mean, task, over, against, _on_average(gains))}".rstrip()


def _nobody(subject: str, gains: Gains, task: Task, against: str) -> str:
    one = gains.judged == 1
    whom = "the only client" if one else f"any of the {gains.judged:,} clients"
    sentence = f"These rows cannot tell whether {subject} helps {whom}"
    seen = could_be_seen(gains, task)
    sentence += f": {seen}" if seen else ""
    interval = gains.clients[0].interval if one and len(gains.clients) == 1 else gains.mean
    return f"{sentence}. {_average(interval, task, against, against, 'Its' if one else _on_average(gains))}".rstrip()


def _on_average(gains: Gains) -> str:
    return f"On average over {gains.mean_over}" if gains.mean_over else "On average"


def _average(interval: Interval | None, task: Task, over: str, against: str, whose: str = "On average") -> str:
    """How the metric moves, over the clients or (`whose`: "Its") for the only one, and whether that may be chance."""
    if interval is None:
        return ""
    if interval.estimate == interval.low == interval.high == 0:
        return f"{whose} {task.label} does not change {against}."
    rises = (interval.estimate >= 0) == task.higher_is_better
    down = interval.estimate < 0
    seen = Interval(-interval.estimate, -interval.high, -interval.low) if down else interval
    size = moved(seen, task).removeprefix("+")
    change = f"{whose} {task.label} {'rises' if rises else 'falls'} by {size}"
    if interval.sign == "undecided":  # both signs are inside: what they mean must be said, and be as in the tables
        return f"{change} {against}, which may be chance ({reach(interval, task, ' of the gain')})."
    return f"{change} ({reach(seen, task)}) {over if rises and not down else against}."


def _against_global(method: Method) -> list[str]:
    gains = method.gains_over_global
    if gains is None or not method.personalizes or gains.judged < 2:
        return []
    helped, harmed = gains.count(GAINS), gains.count(LOSES)
    return [
        f"Against the one global model, personalizing helps {helped:,} of {gains.judged:,} clients for certain "
        f"and harms {harmed:,}."
    ]


def _constant(method: Method) -> list[str]:
    """A method that may be no better than the constant predictor has it said."""
    interval = method.gain_over_constant()
    if interval is None or interval.sign != "undecided" or method.worse_than_constant():
        return []
    task = method.task
    return [
        f"It cannot be told from predicting the same for every row of a client: the mean {task.label} is better "
        f"by {moved(interval, task)} ({reach(interval, task)})."
    ]


def _missing(method: Method) -> list[str]:
    gains, details = method.gains, []
    if gains is not None and 0 < gains.judged < len(gains.clients):
        count = len(gains.clients) - gains.judged
        details.append(f"{_count(count, 'client')} could not be compared: a figure is missing.")
    if gains is not None and gains.apart > 1:
        details.append(
            f"Its runs were judged {gains.apart} times apart: gains are means of these, an interval is as wide as the "
            "widest, and a verdict stands only where all agree."
        )
    return details


def _below_constant(methods: Sequence[Method], focus: Method) -> str:
    """No method is worth a word but that a model that looks at no feature is better."""
    together = [method for method in methods if not method.alone_itself]
    who = "None of the methods beats" if len(together) > 1 else f"{focus.label} does not beat"
    best = f"; {focus.label}, the best of them," if len(together) > 1 else ": it"
    return f"{who} predicting the same for every row of a client{best} has {shortfall(focus, focus.deployed)}."


def _plain(method: Method) -> str:
    mean = method.mean(method.deployed)
    if mean is None:
        mean = average(method.values(method.deployed))
    count = _count(len(method.clients), "client")
    if mean is None:
        return f"{method.label} ran on {count}, and no {method.task.name} was measured."
    value = _value(method.task, mean)
    if len(method.clients) == 1:
        return f"{method.label} reaches a {method.task.name} of {value} on its only client."
    who = "Going alone, the clients reach" if method.alone_itself else f"{method.label} reaches"
    return f"{who} a mean {method.task.name} of {value} over {method.over or count}."


def _privacy(spent: JsonObject) -> str:
    """What was spent, between whom it holds, and what it does not cover."""
    if spent["epsilon"] is None:
        return "Uploads were clipped, but without noise nobody is private: epsilon is infinite."
    return (
        f"What the server sent and learned is differentially private for every client: epsilon = "
        f"{significant(spent['epsilon'], 3)} at delta = {spent['delta']:g} ({spent['neighbours']}). Figures that were "
        "measured on clients' rows, as those on this page, are not covered."
    )


def _value(task: Task, value: float | None) -> str:
    return percent(value) if task.is_share else significant(value)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"
