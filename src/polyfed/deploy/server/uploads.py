"""The answers of a round: each is read against what this round, this site and this method allow, or refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import jax
import numpy as np
from flwr.app import RecordDict

from polyfed.algorithms import FLIX, Scafflix, Scaffnew
from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.bonds import BondedMethod
from polyfed.algorithms.shared.compressed import CompressedMethod
from polyfed.algorithms.shared.local_work import Weighted
from polyfed.algorithms.shared.per_client import is_vector
from polyfed.compress import Compressor
from polyfed.core.errors import PolyfedError
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.plain_values import (
    PlainValues,
    Refused,
    plain_values,
    real_number,
    refusal_in,
    refuse_incomplete,
    text,
    whole_number,
    yes_or_no,
)
from polyfed.deploy.server.agreement import Agreement
from polyfed.engine.round.records import Sums
from polyfed.problem.problem import precision

ROUNDING = 1e-4
"""The share by which a weight may differ from the known one: sites compute in 32 bits."""


@dataclass
class UploadReader:
    """Reads uploads. `like` is a sum of none, in the shapes and types that an upload must have."""

    agreement: Agreement
    like: Sums
    norm: float | None
    """the longest upload; None: no fixed bound"""
    outlier: float
    """how many times the usual norm is too much"""

    def checked(self, site: str, reply: RecordDict, number: int) -> PlainValues:
        """An answer's plain values. It is refused unless it is of this site, run, round and version."""
        values = plain_values(reply)
        why = refusal_in(values)
        if why is not None:
            raise Refused(why)
        refuse_incomplete(values, "run", "round", "site", "fingerprint", "good")
        if values["site"] != site:
            raise Refused(f"it answers as site {str(values['site'])[:60]!r}")
        round, run = whole_number(values, "round"), text(values, "run", 200)
        if run != self.agreement.run.name or round != number:
            raise Refused(f"a replayed message: an upload of round {round + 1} of {run!r}")
        if values["fingerprint"] != self.agreement.fingerprints[site]:
            raise Refused(f"another version of {self.agreement.method.name} or of its hyper-parameters")
        if not yes_or_no(values, "good"):
            raise Refused("its update is not finite")
        return values

    def taken(self, site: str, reply: RecordDict, number: int) -> Sums:
        """An answer as a sum of one upload, or a refusal."""
        given, empty = self.checked(site, reply, number), self.like
        refuse_incomplete(given, "weight", "silent")
        silent, values = yes_or_no(given, "silent"), empty.values
        weight = self._weight(site, real_number(given, "weight"), silent)
        if "upload" in reply.array_records and not silent:
            code = text(given, "code") if "code" in given else ""
            with precision(self.agreement.run.dtype):
                arrays = wire.as_arrays(reply.array_records["upload"])
                values = wire.decode_upload(arrays, code, values, self._compressor(site))
        elif not silent:
            raise Refused("it sent no upload")
        leaves = [leaf for leaf in jax.tree.leaves(values) if np.issubdtype(leaf.dtype, np.inexact)]
        scalar: Any = np.asarray(weight, empty.weight.dtype)
        if not all(np.isfinite(leaf).all() for leaf in (*leaves, scalar)):
            raise Refused("its update is not finite")
        one: Any = np.ones((), empty.uploads.dtype)
        upload = empty._replace(values=values, weight=scalar, uploads=one)
        if self.norm is not None and unweighted_norm(upload) > self.norm:
            raise Refused(f"its upload has norm {unweighted_norm(upload):g}, beyond federation.norm = {self.norm:g}")
        return upload

    def outliers(self, uploads: dict[str, Sums], past: list[float]) -> dict[str, str]:
        """The sites whose upload is far beyond the usual, and why; `past` are norms that were counted.

        The usual norm is the median of those of past rounds and of this one, the lower of two. So up to half of the
        uploads may be wrong before the bound moves.
        """
        norms = {site: unweighted_norm(upload) for site, upload in uploads.items()}
        usual = _usual([*past, *norms.values()])
        return {
            site: f"its upload has norm {norm:g}, the usual one is {usual:g}"
            for site, norm in norms.items()
            if usual > 0 and norm > self.outlier * usual
        }

    def check_sum(self, total: Sums, senders: list[str], number: int, past: list[float]) -> None:
        """Refuse a masked sum that these sites' uploads cannot add up to. Nobody can tell whose doing it is.

        A second sum of the same uploads would be the same, so the run stops, with the state before.
        """
        known = [self._known_weights(site) for site in senders]
        most = sum(map(max, known)) if all(known) else np.inf
        weight, norm, usual = float(total.weight), unweighted_norm(total), _usual(past)
        why = ""
        if not -ROUNDING * (most if np.isfinite(most) else 0) <= weight <= most * (1 + ROUNDING):
            why = f"its weight is {weight:g}, and its sites' weights make {most:g}"
        elif self.norm is not None and norm > self.norm:
            why = f"its mean has norm {norm:g}, beyond federation.norm = {self.norm:g}"
        elif usual > 0 and norm > self.outlier * usual:
            why = f"its mean has norm {norm:g}, the usual one is {usual:g}"
        if why:
            raise PolyfedError(
                f"round {number + 1}: a masked upload is not what it should be, and masks hide whose: the sum of "
                f"{', '.join(senders)} is refused, as {why}; the state of round {number} is kept"
            )

    def _weight(self, site: str, weight: float, silent: bool) -> float:
        """The weight, if this site may have it."""
        if not np.isfinite(weight):
            raise Refused("its weight is not finite")
        if weight < 0 or (weight == 0 and not silent):
            raise Refused(f"its weight must be a number above 0, found {weight:g}")
        known = self._known_weights(site)
        if known and not any(abs(weight - one) <= ROUNDING * one for one in known):
            raise Refused(f"its weight is {weight:g}, expected {known[-1]:g} as it declared")
        method = self.agreement.method
        if isinstance(method, BondedMethod) and method.weighting == "multiplier":
            most = method.multiplier_max
            if most is not None and weight > most * (1 + 1e-6):
                raise Refused(f"its weight is {weight:g}, beyond multiplier_max = {most:g}")
        return weight

    def _known_weights(self, site: str) -> list[float]:
        """The weights that may follow from what the site declared; none where they follow from its state alone."""
        method = self.agreement.terms[site].method
        if self.agreement.run.privacy is not None:
            return [1.0]
        if isinstance(method, BondedMethod) and method.weighting == "multiplier":
            return []
        if isinstance(method, Weighted | BondedMethod):
            return [float(self.agreement.rows[site]) if method.weighting == "size" else 1.0]
        if isinstance(method, Scafflix) and (is_vector(method.lr) or is_vector(method.alpha)):
            return [_own(method.alpha) ** 2 / _own(method.lr)]  # line 11 of the paper's algorithm
        if isinstance(method, Scaffnew) and is_vector(method.lr):
            return [1.0 / _own(method.lr)]
        if isinstance(method, FLIX) and method.start != "init" and method.smoothness is not None:
            return [_own(method.alpha) ** 2 * _own(method.smoothness), 1.0]  # in the first round, and later
        return [1.0]

    def _compressor(self, site: str) -> Compressor | None:
        """The compressor of a site, with its own values."""
        method: Algorithm = self.agreement.terms[site].method
        if not isinstance(method, CompressedMethod):
            return None
        return jax.tree.map(lambda leaf: leaf[0] if np.ndim(leaf) == 1 else leaf, method.made_compressor)


def _own(value: Any) -> float:
    """A site's value of a hyper-parameter: terms have vectors of length one."""
    return float(np.ravel(np.asarray(value))[0])


def unweighted_norm(upload: Sums) -> float:
    """The norm of what an upload says before it is weighted."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(upload.values)]
    with np.errstate(over="ignore"):
        length = float(np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in leaves)))
    weight = float(upload.weight)
    return length / weight if weight > 0 else length


def _usual(numbers: Iterable[float]) -> float:
    """The median of those above zero, the lower of two; zero if there are none."""
    above = [number for number in numbers if number > 0]
    return median_low(above) if above else 0.0
