"""Three made-up hospitals with tables as they are: categories, missing values, dates, a column that one lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SITES = ["north", "south", "west"]
COLUMNS = ["age", "sbp", "ward", "smoker", "admitted", "lactate"]


def hospitals(rows: int = 90) -> pd.DataFrame:
    """One table with the column `hospital`; `west` has no `lactate` at all."""
    rng = np.random.default_rng(3)
    parts = []
    for place, site in enumerate(SITES):
        n = rows + 30 * place
        age, sbp = rng.normal(60 + 4 * place, 12, n).round(1), rng.normal(130, 18, n).round(0)
        ward = rng.choice(["A", "B", "C", "Z"], n, p=[0.5, 0.3, 0.16, 0.04])
        smoker = rng.choice(["yes", "no"], n, p=[0.3, 0.7])
        lactate = rng.gamma(2.0, 1.0, n).round(2)
        days: Any = pd.to_datetime("2023-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
        risk = 0.05 * (age - 60) - 0.02 * (sbp - 130) + 1.2 * (ward == "C") + 0.8 * (smoker == "yes") + 0.6 * lactate
        died = np.where(rng.random(n) < 1 / (1 + np.exp(1.5 - risk)), "yes", "no")
        part = pd.DataFrame(
            {
                "hospital": site,
                "age": np.where(rng.random(n) < 0.1, np.nan, age),
                "sbp": sbp,
                "ward": pd.Series(ward).mask(rng.random(n) < 0.05),
                "smoker": smoker,
                "admitted": days.strftime("%Y-%m-%d"),
                "lactate": np.nan if site == "west" else np.where(rng.random(n) < 0.2, np.nan, lactate),
                "died": died,
            }
        )
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def write_site_tables(table: pd.DataFrame, folder: Path) -> dict[str, Path]:
    """A file for each site, the columns of each in another order; `west` has no column `lactate`."""
    files = {}
    for place, site in enumerate(SITES):
        own: Any = table[table.hospital == site].drop(columns="hospital")
        own = own.drop(columns="lactate") if site == "west" else own
        own = own[list(own.columns[place:]) + list(own.columns[:place])]
        files[site] = folder / f"{site}.csv"
        own.to_csv(files[site], index=False)
    return files
