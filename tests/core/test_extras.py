"""The plain install does without some packages: who needs one is told which extra brings it."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.data.picture import picture

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def _fed() -> pf.Federation:
    return pf.Federation.from_arrays([(np.arange(4.0)[:, None], [0, 1, 0, 1])] * 2, classes=2)


def _result() -> pf.Result:
    return pf.simulate(pf.Problem(_fed(), pf.models.linear()), pf.algorithms.FedAvg(lr=0.1, local_steps=1), rounds=1)


def _parquet(folder: Path) -> object:
    (folder / "t.parquet").write_bytes(b"PAR1")
    return pf.Federation.from_parquet(folder / "t.parquet", client="site", target="y")


NEEDS: list[tuple[str, str, str, Callable[[Path], object]]] = [
    ("matplotlib.figure", "figures", "a picture", lambda folder: _result().plot()),
    ("matplotlib", "figures", "a picture", lambda folder: picture(_fed(), folder / "p.svg")),
    ("matplotlib", "figures", "polyfed reproduce", lambda folder: importlib.import_module("polyfed.papers")),
    ("pyarrow", "parquet", "t.parquet: a Parquet file", _parquet),
    ("sklearn", "sklearn", "polyfed.sklearn", lambda folder: importlib.import_module("polyfed.sklearn")),
    ("onnx", "onnx", "m.onnx", lambda folder: _result().export(folder / "m.onnx", None)),
    ("equinox", "equinox", "pf.models.equinox", lambda folder: pf.models.equinox(lambda key: None)),  # type: ignore
]


@pytest.mark.parametrize(("module", "extra", "who", "use"), NEEDS, ids=[f"{n[0]}: {n[2]}" for n in NEEDS])
def test_what_is_missing_is_named_with_its_extra(
    module: str, extra: str, who: str, use: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for loaded in [name for name in sys.modules if name.startswith(("polyfed.papers", "polyfed.sklearn"))]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    before = set(tmp_path.iterdir())
    with pytest.raises(PolyfedError) as caught:
        use(tmp_path)
    package = {"sklearn": "scikit-learn"}.get(module, module.partition(".")[0])
    needs = f"{who} needs the package {package}, which is not installed: pip install 'polyfed[{extra}]'"
    assert str(caught.value).removeprefix(f"{tmp_path}/") == needs
    assert {path.name for path in set(tmp_path.iterdir()) - before} <= {"t.parquet"}
    assert any(line.startswith(package) for line in PROJECT["optional-dependencies"][extra])
    assert not any(line.startswith(package) for line in PROJECT["dependencies"])
