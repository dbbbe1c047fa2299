"""Which federations can have a rule for single uploads."""

from __future__ import annotations

from polyfed.core.errors import PolyfedError
from polyfed.deploy.protocol.rules import FederationRules
from polyfed.engine.participation import Sampling
from polyfed.engine.robust.settings import Aggregate


def check_aggregate(aggregate: Aggregate, rules: FederationRules, private: bool, sampling: Sampling) -> None:
    """Refuse what a rule for single uploads cannot go with."""
    if rules.secure:
        raise PolyfedError("aggregate does not go with federation.secure: masks hide single uploads from the server")
    if private:
        raise PolyfedError("aggregate does not go with privacy: its noise protects a sum, and a rule makes none")
    cohort = round(sampling.expected)
    aggregate.check_cohort(cohort if rules.minimum is None else min(rules.minimum, cohort))
