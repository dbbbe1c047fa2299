"""synthetic(alpha, beta) of Li et al., as the APFL and FedBC papers use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.option_checks import flag, integer, number
from polyfed.data.population import Population
from polyfed.data.seeds import stream


@dataclass(frozen=True)
class ClientLaw:
    """How one client draws its rows: x ~ N(v, Sigma), y = argmax(W x + b)."""

    weights: np.ndarray  # W, (classes, features)
    bias: np.ndarray  # b, (classes,)
    center: np.ndarray  # v, (features,)
    model_mean: float  # u
    input_mean: float  # B

    def label(self, x: np.ndarray) -> np.ndarray:
        return np.argmax(x @ self.weights.T + self.bias, axis=1)

    def draw(self, rows: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """So many rows, with their labels."""
        features = len(self.center)
        x = self.center + np.arange(1, features + 1) ** -0.6 * random.standard_normal((rows, features))
        return x, self.label(x)


def synthetic(
    alpha: float = 0.5,
    beta: float = 0.5,
    clients: int = 30,
    sizes: str | int | Sequence[int] = "lognormal",
    features: int = 60,
    classes: int = 10,
    seed: int = 0,
    iid: bool = False,
    max_size: int | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    on_demand: bool = False,
) -> Federation | Population:
    """Multinomial logistic data whose models and inputs drift apart with alpha and beta.

    u_i ~ N(0, alpha), W_i ~ N(u_i, 1), b_i ~ N(u_i, 1); B_i ~ N(0, beta), v_i ~ N(B_i, 1);
    x ~ N(v_i, Sigma) with Sigma_jj = j^-1.2; y = argmax(softmax(W_i x + b_i)).
    APFL, Section 6.1; FedBC, Appendix D.1.

    alpha and beta are STANDARD DEVIATIONS of u_i and B_i: the text of the papers reads as a variance, but the published
    generator hands them to a normal law as its scale, and the published numbers come from that generator. The other
    reading is synthetic(sqrt(alpha), sqrt(beta)). Sigma_jj is a variance in both.

    `sizes` "lognormal" draws floor(LogNormal(4, 2)) + 50 rows per client, as published; `max_size` caps them, because
    the law's tail is heavy. With `iid` all clients share one W, b and v, and v has B in every place, as published: a v
    ~ N(B, 1) would leave some draws with a single class.

    `on_demand` gives a `Population` with the same rows, made when a client is needed and kept nowhere: for very many
    clients. It has no columns.
    """
    alpha, beta = number("alpha", alpha, 0), number("beta", beta, 0)
    clients, features = integer("clients", clients, 1), integer("features", features, 1)
    classes, seed = integer("classes", classes, 1), integer("seed", seed)
    shared, rows = (
        flag("iid", iid),
        _sizes(sizes, clients, None if max_size is None else integer("max_size", max_size, 1), seed),
    )

    def law(client: int) -> ClientLaw:
        return client_law(alpha, beta, features, classes, seed, None if shared else client)

    def drawn(client: int, law: ClientLaw) -> tuple[np.ndarray, np.ndarray]:
        return law.draw(rows[client], stream(seed, "synthetic", "inputs", client))

    source: dict[str, object] = {
        "name": "synthetic",
        "alpha": alpha,
        "beta": beta,
        "clients": clients,
        "sizes": sizes if isinstance(sizes, str) else np.asarray(sizes).tolist(),
        "features": features,
        "classes": classes,
        "seed": seed,
        "iid": iid,
        "max_size": max_size,
        "validation": validation,
        "test": test,
    }
    common = {"classes": classes, "validation": validation, "test": test, "seed": seed, "source": source}
    if flag("on_demand", on_demand):
        return Population(lambda client: drawn(client, law(client)), rows, **common)
    laws = [law(client) for client in range(clients)]
    return Federation.from_arrays(
        [drawn(client, own) for client, own in enumerate(laws)],
        columns={
            "model_mean": [law.model_mean for law in laws],
            "input_mean": [law.input_mean for law in laws],
        },
        **common,
    )


def client_law(alpha: float, beta: float, features: int, classes: int, seed: int, client: int | None) -> ClientLaw:
    """The law that `synthetic` gives to a client; None is the one that all share when iid."""
    random = stream(seed, "synthetic", "law", -1 if client is None else client)
    model_mean, input_mean = alpha * random.standard_normal(), beta * random.standard_normal()
    return ClientLaw(
        weights=model_mean + random.standard_normal((classes, features)),
        bias=model_mean + random.standard_normal(classes),
        center=input_mean + (np.zeros(features) if client is None else random.standard_normal(features)),
        model_mean=float(model_mean),
        input_mean=float(input_mean),
    )


def _sizes(sizes: str | int | Sequence[int], clients: int, max_size: int | None, seed: int) -> list[int]:
    if isinstance(sizes, str):
        if sizes != "lognormal":
            raise PolyfedError(f"sizes must be 'lognormal', a whole number or a list of them, found {sizes!r}")
        rows = [int(stream(seed, "synthetic", "size", i).lognormal(4, 2)) + 50 for i in range(clients)]
    elif isinstance(sizes, Integral):
        rows = [integer("sizes", sizes, 1)] * clients
    elif isinstance(sizes, list | tuple | np.ndarray):
        rows = [integer(f"sizes[{i}]", size, 1) for i, size in enumerate(sizes)]
        if len(rows) != clients:
            raise PolyfedError(f"sizes has {len(rows)} entries, expected one for each of {clients} clients")
    else:
        raise PolyfedError(f"sizes must be 'lognormal', a whole number or a list of them, found {sizes!r}")
    return rows if max_size is None else [min(size, max_size) for size in rows]
