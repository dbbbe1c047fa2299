"""How sure one can be of a gain: intervals, and the three words for them.

`row_evidence` says what one split's test rows tell of a gain, `on_rows` makes an interval of it, `over_evidence` (or
`over_splits`) one of several splits, `mean_over_evidence` one for the mean over clients. `verdict` is the word for an
interval, and `count_verdicts` says how many clients have which word. docs/verdicts.md has the coverage that was
measured.
"""

from polyfed.studies.verdicts.intervals import Interval, paired, student, unknown
from polyfed.studies.verdicts.rows import (
    RowEvidence,
    RowKind,
    auc_evidence,
    interval_on_rows,
    mean_evidence,
    on_rows,
    over_seeds,
    row_evidence,
    row_kind,
)
from polyfed.studies.verdicts.splits import (
    clients_in_mean,
    mean_gain,
    mean_gain_on_rows,
    mean_over_evidence,
    over_evidence,
    over_splits,
)
from polyfed.studies.verdicts.words import Counts, Verdict, count_verdicts, detectable, holm, oriented, verdict

__all__ = [
    "Counts",
    "Interval",
    "RowEvidence",
    "RowKind",
    "Verdict",
    "auc_evidence",
    "clients_in_mean",
    "count_verdicts",
    "detectable",
    "holm",
    "interval_on_rows",
    "mean_evidence",
    "mean_gain",
    "mean_gain_on_rows",
    "mean_over_evidence",
    "on_rows",
    "oriented",
    "over_evidence",
    "over_seeds",
    "over_splits",
    "paired",
    "row_evidence",
    "row_kind",
    "student",
    "unknown",
    "verdict",
]
