"""Names that people bring from other libraries are answered with ours, wherever Python code may use one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import polyfed as pf

ROWS = pd.DataFrame({"ward": list("aabb") * 5, "age": np.arange(20.0), "ill": [0, 1] * 10})


def _federation(**options: Any) -> pf.Federation:
    return pf.Federation.from_dataframe(ROWS, **{"client": "ward", "target": "ill", **options})


FUNCTIONS: dict[str, Callable[..., object]] = {
    "simulate": lambda **options: pf.simulate(None, None, **options),  # pyright: ignore[reportArgumentType]
    "tune": lambda **options: pf.tune("none.toml", **options),
    "problem": lambda **options: pf.Problem(None, **options),  # pyright: ignore[reportArgumentType, reportCallIssue]
    "table": _federation,
    "mlp": pf.models.mlp,
    "finetune": pf.FineTune,
    "method": pf.algorithms.FedProx,
    "source": lambda **options: pf.data.load("synthetic", **options),
}
OURS = {
    "simulate": {
        "num_rounds": "rounds",
        "n_rounds": "rounds",
        "epochs": "rounds",
        "comm_rounds": "rounds",
        "num_server_rounds": "rounds",
        "num_clients_per_round": "participation",
        "C": "participation",
        "clients_per_round": "participation",
        "fraction_fit": "participation",
        "random_state": "seed",
        "evaluate_every": "eval_every",
        "verbose": "progress",
        "callback": "callbacks",
    },
    "tune": {"n_rounds": "rounds", "random_state": "seed"},
    "problem": {"criterion": "loss", "net": "model", "weight_decay": "l2", "lam": "l2"},
    "table": {"site": "client", "label": "target", "client_col": "client"},
    "mlp": {"hidden_sizes": "hidden", "hidden_layer_sizes": "hidden"},
    "finetune": {"learning_rate": "lr", "epochs": "steps", "batch_size": "batch"},
    "method": {
        "learning_rate": "lr",
        "batch_size": "batch",
        "local_epoch": "local_epochs",
        "prox_mu": "mu",
        "local_bs": "batch",
        "local_batch_size": "batch",
        "lmbda": "mu",
        "eta_l": "lr",
        "E": "local_epochs",
    },
    "source": {"n_clients": "clients", "num_clients": "clients", "num_users": "clients", "random_state": "seed"},
}


@pytest.mark.parametrize(("where", "theirs"), [(where, name) for where, names in OURS.items() for name in names])
def test_an_argument_from_elsewhere_is_answered_with_ours(where: str, theirs: str) -> None:
    with pytest.raises(pf.PolyfedError, match=f"{theirs}.*; did you mean '{OURS[where][theirs]}'\\?$"):
        FUNCTIONS[where](**{theirs: 1})


def test_a_name_that_means_nothing_here_is_answered_with_all_that_do() -> None:
    """`clients` is a name of ours, but not of `simulate`, which has `eval_clients`: that is not what was meant."""
    with pytest.raises(pf.PolyfedError, match="simulate has no argument 'num_clients'; known: adapt_on_test"):
        FUNCTIONS["simulate"](num_clients=10)


@pytest.mark.parametrize(
    ("module", "theirs", "ours"),
    [
        *((pf.algorithms, name, name.capitalize()) for name in ("SCAFFOLD", "DITTO")),
        (pf.algorithms, "pFedMe", "PFedMe"),
        (pf.algorithms, "FedAdam", "FedAvg"),
        (pf.algorithms, "ProxSkip", "Scaffnew"),
        (pf, "train", "simulate"),
        (pf, "federation", "Federation"),
    ],
)
def test_a_public_name_that_is_spelt_otherwise_is_named(module: Any, theirs: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=f"'{theirs}'; did you mean '{ours}'"):
        getattr(module, theirs)
