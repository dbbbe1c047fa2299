"""`pf.gains`: what each client gains from one simulation over another, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polyfed.core.errors import PolyfedError, own_names
from polyfed.engine.result import Result
from polyfed.problem.metrics import Metric, default_metric, metric_named
from polyfed.studies.gains import Basis, GainsInTheMaking
from polyfed.studies.same_rows import rarest_class, same_rows
from polyfed.studies.scoring import client_scores, side_by_side
from polyfed.studies.verdicts import detectable, verdict

if TYPE_CHECKING:
    import pandas as pd


@own_names
def gains(
    results: Result | Sequence[Result], over: Result | Sequence[Result], metric: str | Metric | None = None
) -> pd.DataFrame:
    """A row per client: its gain over another model on its test rows, with a 95% interval and a verdict.

    `results` and `over` are a run each, or as many of each: with several seeds, or on several splits
    (`Federation.redrawn`), paired in their order. The models are those that clients deploy. `metric`: by default AUC
    for two classes, accuracy for more, RMSE for real numbers. A gain is positive where it is for the better.
    """
    ours = [results] if isinstance(results, Result) else list(results)
    theirs = [over] if isinstance(over, Result) else list(over)
    if not ours or len(ours) != len(theirs):
        raise PolyfedError(f"gains: found {len(ours)} results over {len(theirs)}, expected as many of each")
    first = ours[0].problem
    for one, other in zip(ours, theirs, strict=True):
        if one.problem.fingerprint != other.problem.fingerprint:
            raise PolyfedError("gains: two results are of different rows; a gain is paired on the same test rows")
    chosen = default_metric(first) if metric is None else metric_named(metric, first)
    splits = len({result.problem.fingerprint for result in ours})
    if splits not in (1, len(ours)):
        raise PolyfedError(f"gains: {len(ours)} results are of {splits} splits, expected one split or one for each")
    basis: Basis = "rows" if len(ours) == 1 else "seeds" if splits == 1 else "splits"
    clients, federation = ours[0].simulation.evaluated, first.federation
    test = federation.test.sizes[clients]
    if not test.any():
        raise PolyfedError("gains: this federation has no test rows")
    outside = federation.train.sizes[clients] + federation.validation.sizes[clients]
    federations = [result.problem.federation for result in ours]
    making = GainsInTheMaking(chosen, len(clients), basis, outside)
    streams = [client_scores(result.simulation, "test") for side in (ours, theirs) for result in side]
    for place, scored in side_by_side(streams):
        own = [client.scores["personal"] for client in scored]
        pairs = zip(own[: len(ours)], own[len(ours) :], (client.labels for client in scored), strict=False)
        rows = same_rows(federations, int(clients[place])) if basis == "splits" else None
        rarest = rarest_class(federations, int(clients[place])) if basis == "splits" else np.inf
        making.add(place, list(pairs), rows, rarest)
    return _table([str(federation.clients[i]) for i in clients.tolist()], test, making)


def _table(names: list[str], rows: np.ndarray, making: GainsInTheMaking) -> pd.DataFrame:
    import pandas as pd

    intervals = making.finished().clients
    shown = [interval.within(making.metric.largest) for interval in intervals]
    return pd.DataFrame(
        {
            "client": names,
            "test_rows": rows,
            "verdict": [verdict(interval) for interval in intervals],
            "gain": [interval.estimate for interval in intervals],
            "gain_low": [interval.low for interval in shown],
            "gain_high": [interval.high for interval in shown],
            "gain_p": [interval.p_value for interval in intervals],
            "detectable": [detectable(interval) for interval in intervals],
        }
    )
