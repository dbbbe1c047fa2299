"""Own data in a folder with one file per client."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed.data as data
from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from tests.data.formats.test_tables import table


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_a_folder_has_a_client_per_file(tmp_path, kind):
    df = table(30)
    for name, own in df.groupby("hospital"):
        own = own.drop(columns="hospital")
        if kind == "npz":
            np.savez(tmp_path / f"{name}.npz", x=own[["age", "dose"]].to_numpy(float), y=own["y"].to_numpy())
        else:
            getattr(own, f"to_{kind}")(tmp_path / f"{name}.{kind}", index=False)
    (tmp_path / "README.md").write_text("not data")
    federation = data.load("folder", path=tmp_path, target="y", seed=3)
    expected = Federation.from_dataframe(df, client="hospital", target="y", seed=3)
    assert federation.clients == ("east", "north", "south")
    for name in federation.clients:
        for part in ("train", "validation", "test"):
            got, want = federation.split(part).of(federation.index(name)), expected.split(part).of(expected.index(name))
            np.testing.assert_array_equal(got[0], want[0])
            np.testing.assert_array_equal(got[1], want[1])


def test_wrong_folders_are_refused_by_name(tmp_path):
    with pytest.raises(PolyfedError, match="no such file or folder"):
        Federation.from_folder(tmp_path / "none", target="y")
    with pytest.raises(PolyfedError, match="no client files"):
        Federation.from_folder(tmp_path, target="y")
    own = table().drop(columns="hospital")
    own.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(PolyfedError, match="not a folder"):
        Federation.from_folder(tmp_path / "a.csv", target="y")
    own.drop(columns="dose").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(PolyfedError, match=r"b\.csv: site 'b' has no column 'dose'"):
        Federation.from_folder(tmp_path, target="y", prepare=False)
    own.drop(columns="y").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(PolyfedError, match=r"b\.csv: site 'b' has no column 'y'"):
        Federation.from_folder(tmp_path, target="y")
    own[:0].to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(PolyfedError, match=r"b\.csv: client 'b' is empty"):
        Federation.from_folder(tmp_path, target="y")
    own.assign(dose=[np.nan, *own.dose[1:]]).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(PolyfedError, match=r"column 'dose' is missing or NaN at client 'b', row 0 of b\.csv"):
        Federation.from_folder(tmp_path, target="y", prepare=False)
    own.to_csv(tmp_path / "b.csv", index=False)
    own.to_parquet(tmp_path / "b.parquet")
    with pytest.raises(PolyfedError, match=r"client 'b' has two files, b\.csv and b\.parquet"):
        Federation.from_folder(tmp_path, target="y")


def test_wrong_npz_files_of_a_folder_are_refused_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2)), labels=np.ones(4))
    with pytest.raises(PolyfedError, match=r"a\.npz: there is no array 'label'; did you mean 'labels'"):
        Federation.from_folder(tmp_path, target="label")
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2)), y=np.array([{}, [], 1, 2], dtype=object))
    with pytest.raises(PolyfedError, match=r"a\.npz: cannot be read"):
        Federation.from_folder(tmp_path, target="y")
    (tmp_path / "a.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(PolyfedError, match=r"a\.npz: cannot be read"):
        Federation.from_folder(tmp_path, target="y")
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2)), y=np.ones(3))
    with pytest.raises(PolyfedError, match="client 'a' has 4 rows in X and 3 in y"):
        Federation.from_folder(tmp_path, target="y")
