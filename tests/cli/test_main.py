"""What holds for every command: the version, the exit codes, and one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyfed import __version__
from tests.cli.command import polyfed, polyfed_process


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert polyfed("--version", cwd=tmp_path).stdout == f"polyfed {__version__}\n"


def test_a_process_ends_with_the_sentence_and_the_code(tmp_path: Path) -> None:
    done = polyfed_process("rum", "small.toml", cwd=tmp_path, check=2)
    assert done.stderr == "error: unknown command 'rum'; did you mean 'run'?\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rum", "small.toml"], "unknown command 'rum'; did you mean 'run'?"),
        (["run", "smal.toml"], "smal.toml: no such config file"),
        (
            ["run", "small.toml", "--set", "algorithm.lrr=1"],
            "unknown key algorithm.lrr for scaffold; did you mean 'lr'?",
        ),
        (
            ["run", "small.toml", "--set", "algorithm.name=scafold"],
            "unknown algorithm 'scafold'; did you mean 'scaffold'?",
        ),
        (["algorithms", "fedprx"], "unknown algorithm 'fedprx'; did you mean 'fedprox'?"),
        (["report", "nowhere"], "nowhere: no run directory here or below it"),
        (
            ["run", "small.toml", "--rounds", "3"],
            "polyfed run: unknown option '--rounds'; a key of the config is set by --set run.rounds=...",
        ),
        (
            ["run", "small.toml", "--rouds", "3"],
            "polyfed run: unknown option '--rouds'; a key of the config is set by --set run.rounds=...",
        ),
        (
            ["tune", "small.toml", "--budgt", "3"],
            "polyfed tune: unknown option '--budgt'; a key of the config is set by --set tune.budget=...",
        ),
        (
            ["run", "small.toml", "--learning-rate", "0.1"],
            "polyfed run: unknown option '--learning-rate'; a key of the config is set by --set algorithm.lr=...",
        ),
        (
            ["run", "small.toml", "--num-clients", "3"],
            "polyfed run: unknown option '--num-clients'; a key of the config is set by --set data.clients=...",
        ),
        (["advise", "t.csv", "--label", "y"], "polyfed advise: unknown option '--label'; did you mean '--target'?"),
        (["score", "run", "rows.csv"], "unknown command 'score'; did you mean 'predict'?"),
        (["tune", "small.toml", "--oit", "x"], "polyfed tune: unknown option '--oit'; did you mean '--out'?"),
        (["--versio"], "polyfed: unknown option '--versio'; did you mean '--version'?"),
        (["data", "lst"], "polyfed data: unknown command 'lst'; did you mean 'list'?"),
        (["run", "small.toml", "--ovewrite"], "polyfed run: unknown option '--ovewrite'; did you mean '--overwrite'?"),
        (["bench", "scale", "--jsn"], "polyfed bench scale: unknown option '--jsn'; did you mean '--json'?"),
    ],
)
def test_a_mistake_ends_with_one_sentence_and_code_2(
    config: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = polyfed(*arguments, cwd=tmp_path, check=2)
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
