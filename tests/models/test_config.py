"""Models by name: what a config may ask for, and what it is told otherwise."""

from __future__ import annotations

import jax
import pytest

import polyfed as pf
from polyfed.models import MODELS
from polyfed.studies.config import Config, make_config
from tests.models.test_conv import images

SECTIONS = {"data": {"source": "digits", "clients": 3}, "algorithm": {"name": "fedavg"}}


def config(**problem: object) -> Config:
    """A config whose data are images of 12 x 12 pixels."""
    made = make_config({**SECTIONS, "problem": problem})
    made._federation = images((12, 12), classes=10)
    return made


def test_every_option_of_a_network_comes_from_the_config() -> None:
    options = {"channels": [4, 6], "kernel": [3, 2], "pool": [2, 1], "hidden": [7], "dropout": [0.25, 0.5]}
    made = config(model="cnn", padding="same", activation="tanh", **options)
    shapes = jax.eval_shape(made.problem.init)
    assert [layer["w"].shape for layer in shapes["conv"]] == [(3, 3, 1, 4), (2, 2, 4, 6)]
    assert [layer["w"].shape for layer in shapes["fc"]] == [(6 * 6 * 6, 7), (7, 10)]
    assert made.problem.model.train_apply is not None


@pytest.mark.parametrize("name", ["cnn", "femnist_cnn", "linear", "mlp"])
def test_a_name_alone_is_enough_and_the_defaults_are_written_down(name: str) -> None:
    made = config(model=name)
    resolved = made.resolved(made.methods[0])["problem"]
    assert resolved["model"] == name
    if name == "femnist_cnn":
        assert resolved["dropout"] == [0.25, 0.5]
    again = config(**resolved)
    assert jax.eval_shape(again.problem.init) == jax.eval_shape(made.problem.init)


def test_the_names_are_those_of_the_functions() -> None:
    assert set(MODELS) == {"linear", "mlp", "cnn", "femnist_cnn", "cifar_cnn", "lenet", "lstm"}
    for name, make in MODELS.items():
        assert getattr(pf.models, name) is make


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"model": "femnist-cnn"}, "unknown problem.model 'femnist-cnn'; did you mean 'femnist_cnn'"),
        ({"model": "cnn", "chanels": [3]}, "unknown key problem.chanels for cnn; did you mean 'channels'"),
        ({"model": "lenet"}, r"config: lenet: images of shape \(12, 12\) are too small"),
        ({"model": "lstm"}, "config: lstm reads rows of token ids"),
        ({"model": "mlp", "dropout": 1.5}, r"config: mlp: dropout must be a number in \[0, 1\), found"),
        ({"model": "cnn", "hidden": "many"}, "config: cnn: hidden must be a list"),
    ],
)
def test_what_cannot_be_is_refused_with_the_key(problem, message: str) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        assert config(**problem).problem
