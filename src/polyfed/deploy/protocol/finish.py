"""How a run ends at its sites: which model each deploys, fine-tuning there, and the training alone beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Self

from polyfed.algorithms import Local
from polyfed.algorithms.contract import Algorithm, hyper_parameters
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.files import JsonObject
from polyfed.engine.measure import FineTune
from polyfed.studies.config import algorithm_from

MODELS = ("personal", "global", "alone")
"""What a site may deploy."""
KEYS = ("model", "sites", "finetune_steps", "finetune_lr", "finetune_batch", "alone")


@dataclass(frozen=True)
class Finish:
    """The section [deploy] of server.toml."""

    model: str = "personal"
    """what sites deploy"""
    sites: dict[str, str] = field(default_factory=dict)
    """what single sites deploy instead"""
    finetune: FineTune | None = None
    """the personal model is the global one after these steps at the site"""
    alone: Algorithm = field(default_factory=Local)
    """how a site trains alone, for comparison, and where it deploys that model"""

    def of(self, site: str) -> str:
        return self.sites.get(site, self.model)

    @property
    def needs_global(self) -> bool:
        return self.finetune is not None or "global" in (self.model, *self.sites.values())

    @classmethod
    def read(cls, section: JsonObject, algorithm: JsonObject, roster: tuple[str, ...], where: str) -> Self:
        """Check the section; training alone has the keys of [algorithm] that it knows, unless it says others."""
        for key in section:
            if key not in KEYS:
                raise PolyfedError(f"{where}: unknown key deploy.{key}{suggestion(key, KEYS)}")
        sites, model = section.get("sites", {}), section.get("model", "personal")
        if not isinstance(sites, Mapping):
            raise PolyfedError(f"{where}: deploy.sites must be a table of sites, found {sites!r}")
        for site, chosen in {"": model, **sites}.items():
            key = f"deploy.sites.{site}" if site else "deploy.model"
            if site and site not in roster:
                raise PolyfedError(f"{where}: {key}: no such site{suggestion(site, roster)}")
            if chosen not in MODELS:
                raise PolyfedError(f"{where}: {key} must be one of {', '.join(MODELS)}, found {chosen!r}")
        given = section.get("alone")
        if given is None:
            known = {field.name for field in hyper_parameters(Local)}
            given = {key: value for key, value in algorithm.items() if key in known}
        elif not isinstance(given, Mapping):
            raise PolyfedError(f"{where}: deploy.alone must be a table of hyper-parameters, found {given!r}")
        alone = algorithm_from({**given, "name": Local.name}, "deploy.alone", where)
        return cls(model, dict(sites), _finetune(section, where), alone)


def _finetune(section: JsonObject, where: str) -> FineTune | None:
    given = {name: section[f"finetune_{name}"] for name in asdict(FineTune()) if f"finetune_{name}" in section}
    if not given:
        return None
    try:
        return read_finetune({**asdict(FineTune()), **given})
    except ValueError as error:
        raise PolyfedError(f"{where}: deploy.finetune_{error}") from None


def read_finetune(given: object) -> FineTune | None:
    """Fine-tuning as JSON; what is none is a ValueError."""
    if given is None:
        return None
    if not isinstance(given, dict) or set(given) != {field.name for field in fields(FineTune)}:
        raise ValueError("steps, finetune_lr and finetune_batch describe fine-tuning")
    steps, lr, batch = given["steps"], given["lr"], given["batch"]
    if isinstance(steps, bool) or not isinstance(steps, int) or not 0 < steps < 10**6:
        raise ValueError(f"steps must be a whole number above 0, found {steps!r}")
    if isinstance(lr, bool) or not isinstance(lr, int | float) or not 0 < lr < 1e6:
        raise ValueError(f"lr must be a number above 0, found {lr!r}")
    if batch != "full" and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ValueError(f"batch must be a whole number above 0 or 'full', found {batch!r}")
    return FineTune(steps, float(lr), batch)
