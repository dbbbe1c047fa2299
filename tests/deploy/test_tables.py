"""Tables as they are across sites: they agree on columns, and learn the preparation from one sum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyfed as pf
from polyfed.data.tables.preparation import Preparation
from polyfed.deploy.settings import site_rows
from polyfed.deploy.site.policy import PinnedTerms, RunPolicy
from tests.deploy.expected import simulated_on
from tests.deploy.hospitals import COLUMNS, SITES, hospitals, write_site_tables
from tests.deploy.loopback import Loopback

FEDAVG = {"name": "fedavg", "lr": 0.1, "local_steps": 3, "batch": 16}
TABLES = {"features": COLUMNS}
LOGISTIC = {"loss": "logistic"}


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, Any]:
    files = write_site_tables(hospitals(), tmp_path)
    return {
        name: site_rows(name, {"source": "csv", "path": str(file), "target": "died"}, {})
        for name, file in files.items()
    }


@pytest.fixture
def whole(tmp_path: Path) -> pf.Federation:
    hospitals().to_csv(tmp_path / "all.csv", index=False)
    return pf.Federation.from_csv(tmp_path / "all.csv", client="hospital", target="died")


@pytest.mark.parametrize("secure", [False, True])
def test_sites_learn_the_preparation_and_the_model_that_the_simulation_learns(sites, whole, tmp_path, secure) -> None:
    grid = Loopback(sites, tmp_path / "run")
    grid.serve(FEDAVG, {"rounds": 2}, problem=LOGISTIC, data=TABLES, secure=secure)
    agreed = Preparation.from_json(json.loads((grid.run_folder / "server" / "preparation.json").read_text()))
    assert whole.preparation is not None
    assert agreed.lacking == {"west": ("lactate",)} == whole.preparation.lacking
    assert [column.kind for column in agreed.columns] == [column.kind for column in whole.preparation.columns]
    table = hospitals()
    np.testing.assert_allclose(agreed.apply(table), whole.preparation.apply(table), rtol=1e-10, atol=1e-10)
    grid.assert_equal(simulated_on(whole, FEDAVG, 2, "logistic"))


def test_a_site_may_keep_its_sums_and_its_small_categories_to_itself(sites, tmp_path) -> None:
    with pytest.raises(pf.PolyfedError, match=r"site 'north' does not take part: its config does not allow the sums"):
        Loopback(sites, tmp_path / "a", sums=False).serve(FEDAVG, problem=LOGISTIC)
    with pytest.raises(pf.PolyfedError, match=r"names categories of at least 5 rows, the run asks for 2"):
        Loopback(sites, tmp_path / "b").serve(FEDAVG, problem=LOGISTIC, data={"min_count": 2})
    with pytest.raises(pf.PolyfedError, match="allows masked sums only"):
        Loopback(sites, tmp_path / "c", plain=False).serve(FEDAVG, problem=LOGISTIC)


@pytest.mark.parametrize("changed", [{"features": COLUMNS[:-1]}, {"min_count": 9}])
def test_masked_sums_of_tables_cannot_be_subtracted_under_other_questions(sites, tmp_path, caplog, changed) -> None:
    """A server asks about the same rows once more, a little differently, and without one site."""
    grid = Loopback(sites, tmp_path / "run")
    grid.serve(FEDAVG, {"rounds": 1}, problem=LOGISTIC, data=TABLES, secure=True)
    grid.names = ("north", "south")
    with pytest.raises(pf.PolyfedError, match="could not be added up under masks"):
        grid.serve(FEDAVG, problem=LOGISTIC, data={**TABLES, **changed}, secure=True, name="again", patience=1)
    assert "round 1 was summed up before, with north, south, west" in caplog.text


def test_questions_that_would_single_out_rows_wait_for_the_operator(sites, tmp_path) -> None:
    """The sums with and without one value of a column tell how many rows have it, however few."""
    grid = Loopback(sites, tmp_path / "run", policy=RunPolicy(fewest_sites=1))
    grid.serve(FEDAVG, {"rounds": 1}, problem=LOGISTIC, data=TABLES)
    single = {**TABLES, "columns": {"age": {"missing": ["40"]}}}
    said = r"site 'north' does not take part: the questions about its table are not those that its operator accepted"
    with pytest.raises(pf.PolyfedError, match=said):
        grid.serve(FEDAVG, {"rounds": 1}, problem=LOGISTIC, data=single, name="again")
    for site in sites:
        pinned = PinnedTerms(grid.folder / site)
        assert pinned.waiting() == ['tables.columns.age.missing: nothing -> ["40"]']
        pinned.accept(pinned.waiting())
        assert not pinned.waiting()
    grid.serve(FEDAVG, {"rounds": 1}, problem=LOGISTIC, data=single, name="again")
    grid.serve(FEDAVG, {"rounds": 1}, problem=LOGISTIC, data=TABLES, name="as before")


def test_columns_that_tables_cannot_do_without_are_named_with_their_site(sites, tmp_path) -> None:
    numbers = {"prepare": False, "features": ["sbp", "lactate"]}
    with pytest.raises(pf.PolyfedError, match=r"site 'north' has columns with anything but numbers, or with gaps"):
        Loopback(sites, tmp_path / "a").serve(FEDAVG, problem=LOGISTIC, data=numbers)
    only = {name: sites[name] for name in ("west", "south")}
    with pytest.raises(pf.PolyfedError, match=r"site 'west' has no column 'lactate', and data.prepare is false"):
        Loopback(only, tmp_path / "b").serve(FEDAVG, problem=LOGISTIC, data=numbers)
    with pytest.raises(pf.PolyfedError, match=r"data.features: no site has the column 'lactat'"):
        Loopback(sites, tmp_path / "c").serve(FEDAVG, problem=LOGISTIC, data={"features": ["lactat"]})


def test_sums_that_no_rows_can_have_are_refused_by_column(sites, tmp_path) -> None:
    grid = Loopback(sites, tmp_path / "run")

    def lie(name: str, number: int, reply: Any) -> Any:
        if name == "south" and "sums" in reply.content.array_records:
            from polyfed.deploy.protocol import wire

            vector = wire.as_arrays(reply.content["sums"])["vector"].copy()
            vector[1] = 1e6  # rows of the first column that are there
            reply.content["sums"] = wire.as_record({"vector": vector})
        return reply

    grid.change = lie
    with pytest.raises(pf.PolyfedError, match=r"site 'south' does not take part: column 'age': a count that 84 rows"):
        grid.serve(FEDAVG, problem=LOGISTIC, data=TABLES)


def test_tables_of_numbers_are_not_scaled_and_their_columns_come_in_any_order(tmp_path) -> None:
    table = hospitals()[["hospital", "sbp", "died"]].assign(n=np.arange(360) % 7)
    table.to_csv(tmp_path / "all.csv", index=False)
    whole = pf.Federation.from_csv(tmp_path / "all.csv", client="hospital", target="died")
    sites = {}
    for place, name in enumerate(SITES):
        own: Any = table[table.hospital == name][["sbp", "n", "died"][:: 1 - 2 * (place == 1)]]
        own.to_csv(tmp_path / f"{name}.csv", index=False)
        sites[name] = site_rows(name, {"source": "csv", "path": str(tmp_path / f"{name}.csv"), "target": "died"}, {})
    grid = Loopback(sites, tmp_path / "run")
    method = {**FEDAVG, "lr": 1e-5}
    grid.serve(method, {"rounds": 1}, problem=LOGISTIC)
    assert read_plain(grid) == [True, True]
    grid.assert_equal(simulated_on(whole, method, 1, "logistic"))


def read_plain(grid: Loopback) -> list[bool]:
    about = json.loads((grid.run_folder / "server" / "preparation.json").read_text())
    return [column["complete"] for column in about["columns"]]
