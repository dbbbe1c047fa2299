"""The answer of `polyfed advise`: for the federation, and for each site."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from polyfed.core import html
from polyfed.problem.metrics import Metric
from polyfed.studies.advice.choices import Deployed
from polyfed.studies.advice.contenders import ALONE, Candidate
from polyfed.studies.advice.influence import Influence
from polyfed.studies.advice.kept_parts import PROJECT
from polyfed.studies.advice.private import PrivacyCost
from polyfed.studies.advice.settings import AdviceSettings
from polyfed.studies.verdicts import Interval, Verdict


@dataclass(frozen=True)
class SiteAdvice:
    """What one site is told. Gains are in the metric, positive for the better, over going alone."""

    client: str
    rows: int
    test_rows: int
    deploy: Deployed
    verdict: Verdict
    """of following the advice, by the site's own interval"""
    gain: float
    gain_low: float | None
    gain_high: float | None
    verdict_among_all: Verdict
    """the same after Holm's correction for the number of sites"""
    smallest: float | None
    """the smallest gain that these rows could have shown"""
    alone: float
    advised: float
    """the metric of the site's model alone, and of what the advice deploys; means over the splits"""
    together_verdict: Verdict
    """of the federation's model, had the site not been free to choose another"""
    together_gain: float
    together_low: float | None
    together_high: float | None


@dataclass(frozen=True)
class Advice:
    """The answer for a federation."""

    method: str
    """the contender with the lowest validation loss: "alone" if that is nobody's loss"""
    label: str
    model: str
    candidate: Candidate
    alone: Candidate
    """how sites train alone, with the same model"""
    metric: Metric
    sites: list[SiteAdvice]
    mean: Interval
    """of the gain over the sites"""
    table: list[dict[str, Any]]
    """a row per contender and model: validation loss and test metric, means over the splits"""
    skipped: list[str]
    """what the time did not allow"""
    warnings: list[str]
    rounds: int
    bits_up: int
    bits_down: int
    """of one training, all sites together"""
    training_seconds: float
    """of one training, all sites on this machine"""
    seconds: float
    """of finding this"""
    settings: AdviceSettings = field(repr=False)
    """what was tried"""
    influence: Influence | None = field(default=None, repr=False)
    privacy: PrivacyCost | None = field(default=None, repr=False)
    apart: list[str] = field(default_factory=list)
    """sites that a common model fails and that would spoil it: the others train without them"""

    @property
    def splits(self) -> int:
        return self.settings.splits

    @property
    def sentence(self) -> str:
        """The answer in one sentence; it counts sites after Holm's correction."""
        counts = {word: sum(site.verdict_among_all == word for site in self.sites) for word in ("gains", "loses")}
        total, own = len(self.sites), sum(site.deploy == "alone" for site in self.sites)
        if self.method == ALONE:
            if not any(row["method"] not in (ALONE, "constant") for row in self.table):
                return "Cannot tell: the time was too short to try any way of training together"
            return "Stay alone: no way of training together has a lower validation loss"
        without = f", without {', '.join(self.apart)}" if self.apart else ""
        start = f"Train together with {self.label} ({self.model}){without}:"
        alone = f"; {own} should deploy {'its' if own == 1 else 'their'} own model" if 0 < own < total else ""
        return f"{start} {_helped(counts['gains'], counts['loses'], total)}{alone}"

    @property
    def beside(self) -> list[str]:
        """What is said beside the answer: the mean gain, and sites whose own intervals say more."""
        said = [f"Mean gain over the sites, in {self.metric.label}: {_between(self.mean)}"]
        own = {word: sum(site.verdict == word for site in self.sites) for word in ("gains", "loses")}
        if own != {word: sum(site.verdict_among_all == word for site in self.sites) for word in own}:
            said.append(
                f"By their own intervals {own['gains']} of {len(self.sites)} gain and {own['loses']} lose; for certain "
                f"means after correction for {len(self.sites)} verdicts at once"
            )
        if self.apart:
            names = ", ".join(self.apart)
            rest = "without it, and it deploys its own model"
            if len(self.apart) > 1:
                rest = "without them, and they deploy their own models"
            said.append(f"At {names} the common model is worse than a constant prediction: the others train {rest}")
        return said

    @property
    def not_tried(self) -> str:
        """What the time did not allow. A model that was not tried at all is named once."""
        left = list(self.skipped)
        for model in self.settings.kinds:
            every = [f"{way.label}, {model}" for way in self.settings.ways]
            if set(every) <= set(left):
                left = [what for what in left if what not in every] + [f"all with {model}"]
        return "; ".join(left)

    def _repr_html_(self) -> str:
        """For notebooks: the answer, and a row per site."""
        rows = [
            [site.client, site.rows, site.deploy, site.verdict_among_all, site.gain, site.gain_low, site.gain_high]
            for site in self.sites
        ]
        columns = ("client", "rows", "deploy", "verdict", f"gain, {self.metric.label}", "low", "high")
        said = map(html.note, [*self.beside, *self.warnings])
        return html.page(self.sentence, *said, html.table(columns, rows))

    def next_commands(self, folder: Path) -> list[str]:
        """What to do next: repeat it, and where training together is advised, deploy it."""
        again = f"polyfed compare {shlex.quote(str(folder / 'config.toml'))}"
        own, project = folder / "alone.toml", folder / PROJECT
        apart = [f"polyfed compare {shlex.quote(str(own))}"] if own.exists() else []
        return [again, *apart, *([f"polyfed deploy init {shlex.quote(str(project))}"] if project.exists() else [])]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        mean = self.mean
        return {
            "method": self.method,
            "model": self.model,
            "algorithm": self.candidate.algorithm.name,
            "metric": self.metric.name,
            "answer": self.sentence,
            "apart": self.apart,
            "sites": [_without_nan(asdict(site)) for site in self.sites],
            "mean_gain": {"estimate": mean.estimate, "low": end_of(mean, mean.low), "high": end_of(mean, mean.high)},
            "methods": [_without_nan(row) for row in self.table],
            "influence": None if self.influence is None else self.influence.as_dict(),
            "brings": None if self.influence is None else self.influence.brings_by_site,
            "privacy": None if self.privacy is None else self.privacy.as_dict([site.client for site in self.sites]),
            "skipped": self.skipped,
            "warnings": self.warnings,
            "rounds": self.rounds,
            "bits_up": self.bits_up,
            "bits_down": self.bits_down,
            "training_seconds": self.training_seconds,
            "seconds": self.seconds,
            "splits": self.splits,
            "seed": self.settings.seed,
        }


def end_of(interval: Interval, value: float) -> float | None:
    """An end of an interval; None where the rows give none."""
    return value if interval.known else None


def _helped(gains: int, loses: int, total: int) -> str:
    """How many sites an advice helps and harms for certain."""
    sites, unsure = f"of {total} sites for certain", total - gains - loses
    if not gains and not loses:
        return f"whether it helps any single one of the {total} sites the rows cannot tell"
    if gains == total:
        return f"it helps all {total} sites for certain"
    said = f"it helps {gains} {sites} and harms {loses or 'none'}"
    if not gains:
        said = f"it harms {loses} {sites} and helps none"
    return f"{said}; for {unsure} the rows cannot tell" if unsure else said


def _between(interval: Interval) -> str:
    ends = f" (95%: {interval.low:+.3f} to {interval.high:+.3f})" if interval.known else ""
    return f"{interval.estimate:+.3f}{ends}"


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: what is not known is null."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
