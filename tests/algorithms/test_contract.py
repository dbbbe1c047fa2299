"""The contract of an algorithm: what the types of its hyper-parameters say, its hooks, and the example of the docs."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, NewType, Optional

import jax
import numpy as np
import pytest
from typing_extensions import TypeAliasType

import polyfed as pf
from polyfed.algorithms import REGISTRY, Algorithm, FedAvg, algorithm
from polyfed.algorithms.contract import HOOKS, hyper_parameters, kinds
from polyfed.compress import Compressor
from polyfed.core.schedules import Schedule

ROOT = Path(__file__).parents[2]
PerClient = float | list[float]
"""An alias, for fields that name it in quotes."""
Rate, Count = NewType("Rate", float), NewType("Count", int)
Named = TypeAliasType("Named", float | None)
"""What Python 3.12 makes of `type Named = float | None`."""


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def method_with(hint: object, value: object = None) -> type[FedAvg]:
    """FedAvg with one more field, `extra`, of this type."""
    members = {"__annotations__": {"extra": hint}, "__module__": __name__, "extra": value}
    return algorithm("probe")(type("Probe", (FedAvg,), members))


@pytest.mark.parametrize(
    "hint",
    [
        float,
        "float",
        Optional[float],  # noqa: UP045
        float | None,
        "list[float] | float",
        "PerClient",
        "Optional[PerClient]",
        Schedule,
        Schedule | None,
        tuple[float, ...],
        float | str | list[float],
        float | Literal["auto"],
        Compressor | str | dict[str, object],
        jax.Array,
        Annotated[float, "in (0, 1]"],
        Annotated[float | None, "in (0, 1]"],
        Rate,
        list[Rate] | None,
        Named,
        "Named | list[float]",
    ],
    ids=str,
)
def test_real_numbers_schedules_and_compressors_are_inputs_of_the_program(hint: object) -> None:
    assert kinds(method_with(hint))["extra"].traced


@pytest.mark.parametrize(
    "hint",
    [
        int,
        "int",
        bool,
        str,
        Literal["a", "b"],
        int | None,
        int | Literal["full"],
        "int | Literal['full']",
        list[str] | str,
        tuple[int, ...],
        Callable[[float], float],
        Count | None,
    ],
    ids=str,
)
def test_whole_numbers_words_flags_and_functions_are_part_of_the_program(hint: object) -> None:
    assert not kinds(method_with(hint))["extra"].traced


def test_another_traced_value_is_another_leaf_and_another_static_one_another_program() -> None:
    traced, static = method_with("float | None", 1.0), method_with("int | None", 1)
    for cls, same in ((traced, True), (static, False)):
        one, other = cls(), dataclasses.replace(cls(), extra=2)
        assert (jax.tree.structure(one) == jax.tree.structure(other)) is same


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        (Any, "Any"),
        (object, "object"),
        (float | bool, r"float \| bool"),
        (dict[str, float], "dict"),
        (list[Any], "list"),
        (float | object, r"float \| object"),
        (Compressor | bool, r"Compressor \| bool"),
    ],
)
def test_a_type_that_does_not_tell_is_refused_at_registration(hint: object, shown: str) -> None:
    with pytest.raises(pf.PolyfedError, match=f"algorithm 'probe': the type of extra, {shown}.*, does not tell"):
        method_with(hint)
    assert "probe" not in REGISTRY


@pytest.mark.parametrize("value", [0, -2, 2.5, "ful", True, None])
@pytest.mark.parametrize(
    ("name", "field"),
    [(name, f.name) for name in sorted(REGISTRY) for f in hyper_parameters(REGISTRY[name]) if f.name.endswith("batch")],
)
def test_a_number_of_rows_that_makes_no_sense_is_refused_by_name(name: str, field: str, value: object) -> None:
    """Every method that has batches, those of its pure local models included."""
    wanted = f"{name}: {field} must be a whole number, at least 1, or 'full', found {value!r}"
    with pytest.raises(pf.PolyfedError, match=re.escape(wanted)):
        REGISTRY[name](**{field: value}).check()


@pytest.mark.parametrize(
    ("method", "values"),
    [
        (pf.algorithms.Scafflix, {"lr": ["a", 0.5, 0.5]}),
        (pf.algorithms.Scaffnew, {"lr": [True, 0.5, 0.5]}),
        (pf.algorithms.Scaffnew, {"p": [0.5, 0.5, 0.5]}),
        (pf.algorithms.DIANA, {"beta": "full"}),
        (pf.algorithms.DIANA, {"beta": [0.5, 2.0, 0.5]}),
        (pf.algorithms.DIANA, {"alpha": True}),
    ],
)
def test_what_is_no_number_for_a_client_is_refused_by_name(method: type, values: dict) -> None:
    (field,) = values
    with pytest.raises(pf.PolyfedError, match=rf"{method.name}: {field} must be "):
        method(**values).check()


def test_a_type_that_cannot_be_resolved_is_refused_at_registration() -> None:
    with pytest.raises(pf.PolyfedError, match=r"algorithm 'probe': the type of extra cannot be .*'Nowhere' is not def"):
        method_with("Nowhere | None")
    assert "probe" not in REGISTRY


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("apfl", {"adaptive": "rounds"}, "apfl: adaptive must be one of step, round, off; found 'rounds'"),
        ("fedavg", {"weighting": 1}, "fedavg: weighting must be one of size, uniform; found 1"),
        ("fedavg", {"replace": "yes"}, "fedavg: replace must be true or false, found 'yes'"),
        ("fedbc", {"grow": 1}, "fedbc: grow must be true or false, found 1"),
    ],
)
def test_a_misspelt_word_and_a_wrong_flag_are_refused_by_their_types(
    name: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(pf.PolyfedError, match=f"^{re.escape(sentence)}$"):
        REGISTRY[name](**options).check()


@pytest.mark.parametrize("hint", [Literal["a", "b"] | None, "bool | None"], ids=str)
def test_a_word_or_a_flag_that_may_be_none_is_checked_all_the_same(hint: object) -> None:
    probe: Any = method_with(hint)
    probe().check()
    with pytest.raises(pf.PolyfedError, match=r"probe: extra must be .*found 'yes'"):
        probe(extra="yes").check()


def test_the_contract_is_seven_functions_and_six_hooks() -> None:
    functions = {"check", "init_server", "init_client", "broadcast", "local", "update", "personal"}
    assert Algorithm.__abstractmethods__ == functions
    optional = [name for name in vars(Algorithm) if name[0] != "_" and name not in functions]
    assert tuple(optional) == HOOKS
    assert all(vars(Algorithm)[name] is None for name in HOOKS)
    assert len(HOOKS) <= 6


def test_nothing_outside_the_algorithms_reads_a_hyper_parameter_by_its_name() -> None:
    """By `getattr(method, "lr")` and the like: whoever needs a field asks for the type that has it."""
    fields = {field.name for cls in REGISTRY.values() for field in hyper_parameters(cls)}
    package = ROOT / "src" / "polyfed"
    read = [
        f"{file.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for file in sorted(package.rglob("*.py"))
        if not file.is_relative_to(package / "algorithms")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("getattr", "hasattr")
        if isinstance(call.args[1], ast.Constant) and call.args[1].value in fields
    ]
    assert read == []


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example of docs/add-an-algorithm.md, as the file that a reader would make of it."""
    text = (ROOT / "docs" / "add-an-algorithm.md").read_text(encoding="utf-8")
    example = re.search(r"^<!-- run -->\n```python\n(.*?)^```", text, re.S | re.M)
    assert example is not None
    (tmp_path / "anchored.py").write_text(example[1], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("anchored")
    del sys.modules["anchored"]


def gradient(x: np.ndarray, labels: np.ndarray, params: np.ndarray, l2: float) -> np.ndarray:
    """Of softmax regression on all rows, the bias being the last row of the parameters."""
    rows = np.hstack([x, np.ones((len(x), 1))])
    odds = np.exp(rows @ params)
    off = odds / odds.sum(axis=1, keepdims=True) - np.eye(params.shape[1])[labels]
    return rows.T @ off / len(rows) + l2 * params


def anchored(problem: pf.Problem, rounds: int, steps: int, lr: float, pull: float) -> tuple[np.ndarray, np.ndarray]:
    """The page's formula, on all rows: w, and every v_i."""
    clients = [problem.federation.train.of(client) for client in range(len(problem))]
    sizes = np.array([len(labels) for _, labels in clients], float)
    w, own = np.zeros((5, 3)), np.zeros((len(clients), 5, 3))
    for _ in range(rounds):
        ends = []
        for client, (x, labels) in enumerate(clients):
            y, v = w, own[client]
            for _ in range(steps):
                pulled = gradient(x, labels, v, problem.l2) + pull * (v - w)
                y, v = y - lr * gradient(x, labels, y, problem.l2), v - lr * pulled
            ends.append(y)
            own[client] = v
        w = np.tensordot(sizes / sizes.sum(), ends, 1)
    return w, own


def test_the_example_of_the_docs_is_its_formula(problem: pf.Problem, page: ModuleType) -> None:
    method = page.Anchored(lr=0.3, pull=0.5, local_steps=3, batch="full", weighting="size")
    result = pf.simulate(problem, method, rounds=4, dtype="float64")
    w, own = anchored(problem, rounds=4, steps=3, lr=0.3, pull=0.5)
    np.testing.assert_allclose(stacked(result.global_params), w, rtol=1e-10, atol=1e-12)
    for client, expected in enumerate(own):
        np.testing.assert_allclose(stacked(result.personal(client)), expected, rtol=1e-10, atol=1e-12)
    assert REGISTRY["anchored"] is page.Anchored
    np.testing.assert_array_equal(result.simulation.own_share, 1.0)


def stacked(params: dict[str, np.ndarray]) -> np.ndarray:
    """The weights with the bias as their last row."""
    return np.vstack([params["w"], params["b"]])
