"""Run every command of an installed polyfed once, as a stranger would: `python every_command.py FOLDER`.

It needs nothing but the environment that it runs in, so that `make test-floor` can try it in any. A command without an
entry in `CALLS` is a failure: a new one cannot be forgotten.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

Call = Callable[[list[str], Path], subprocess.CompletedProcess[str]]
POLYFED = [sys.executable, "-m", "polyfed"]
LIMIT = 900
"""Seconds after which a command is given up."""
RUN = """
[data]
source = "csv"
path = "visits.csv"
client = "site"
target = "late"

[algorithm]
name = "apfl"
lr = 0.1
local_steps = 2
batch = 8

[run]
rounds = 3
eval_every = 3
finetune_steps = 0
"""
COMPARE = RUN.replace('name = "apfl"\n', "") + '[[compare]]\nname = "local"\n\n[[compare]]\nname = "fedavg"\n'
TUNE = RUN.replace("lr = 0.1\n", "") + "[tune]\nbudget = 2\n\n[tune.space.apfl]\nlr = [0.05, 0.2]\n"
PLAN = (
    '[data]\nsource = "quadratics"\nclients = 4\ndim = 3\n\n[problem]\nloss = "squared"\nmodel = "linear"\nl2 = 0.1\n\n'
    '[algorithm]\nname = "scafflix"\n\n[run]\nrounds = 3\ndtype = "float64"\n'
)
CONFIGS = {"run.toml": RUN, "compare.toml": COMPARE, "tune.toml": TUNE, "plan.toml": PLAN}
CALLS: dict[str, list[str]] = {
    "run": ["run.toml", "--out", "runs/run"],
    "compare": ["compare.toml", "--out", "runs/compare"],
    "tune": ["tune.toml", "--out", "runs/tune"],
    "personalize": ["runs/run", "new.csv"],
    "predict": ["runs/run", "new.csv", "--client", "north", "--out", "scored.csv"],
    "export": ["runs/run", "model.onnx", "--client", "north"],
    "report": ["runs/run", "--out", "report.html"],
    "algorithms": [],
    "plan": ["plan.toml"],
    "reproduce": ["--list"],
    "data list": [],
    "data fetch": ["nothing-of-this-name"],
    "data info": ["run.toml", "--picture", "data.png"],
    "deploy init": ["project", "--sites", "north,south", "--example", "--port", "FREE"],
    "deploy add-site": ["project", "west"],
    "deploy admit": ["project/server", "east", "east.pub"],
    "deploy renew": ["project/server"],
    "deploy accept": ["project/north", "--yes"],
    "deploy up": ["project"],
    "deploy personalize": ["PUBLISHED", "project/west"],
    "leaderboard merge": ["nothing-of-this-name.csv", "--table", "board.csv"],
    "leaderboard list": ["--table", "board.csv"],
    "leaderboard draw": ["--table", "board.csv", "--page", "board.md"],
    "leaderboard run": ["nothing-of-this-name"],
    "demo": ["--quiet", "--set", "run.rounds=2", "--set", "run.splits=1"],
    "advise": ["visits.csv", "--target", "late", "--client", "site", "--minutes", "0.2", "--out", "advice"],
    "bench engine": ["--repeat", "1", "--no-memory"],
    "bench convex": ["--clients", "4", "--repeat", "1"],
    "bench methods": ["--method", "fedprox", "--repeat", "1"],
    "bench sweep": ["--candidates", "2", "--repeat", "1"],
    "bench neural": ["--chunk", "2", "--repeat", "1"],
    "bench scale": ["--clients", "200", "--repeat", "1"],
    "bench deploy": ["--rounds", "2"],
}
"""Each command's arguments, quick ones first; `deploy server`, `site` and `run` are tried in `three_processes`."""
LOADED = ("jax", "optax", "pandas", "scipy.optimize", "polyfed.cli.main", "polyfed.studies.experiment")
"""What most commands import."""
SERVICES = {"deploy server", "deploy site", "deploy run"}
REFUSED = {
    "data fetch": "nothing-of-this-name",
    "leaderboard run": "nothing-of-this-name",
    "leaderboard merge": "nothing-of-this-name.csv",
    "leaderboard draw": "board.csv",
    "bench convex": "mushrooms",
}
"""Commands that end with code 2 and a sentence with this word: they would need a network, a dataset, or an hour."""
EXTRAS = {
    "export": ("onnx", "onnx"),
    "reproduce": ("matplotlib", "figures"),
    "data info": ("matplotlib", "figures"),
    **{name: ("flwr", "deploy") for name in (*CALLS, *SERVICES, "bench deploy") if "deploy" in name},
}
"""The package and the extra that a command needs; without it, a sentence names the extra."""


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    rows = "".join(
        f"{site},{hour % 24},{'yes' if (hour * (k + 3)) % 7 > 3 else 'no'}\n"
        for k, site in enumerate(("north", "south", "west"))
        for hour in range(60)
    )
    (folder / "visits.csv").write_text("site,hour,late\n" + rows)
    (folder / "new.csv").write_text("site,hour,late\n" + rows.replace("west", "east"))
    for name, text in CONFIGS.items():
        (folder / name).write_text(text)
    known = sorted(commands())
    unknown = set(known) ^ {*CALLS, *SERVICES}
    if unknown:
        print(f"commands without a call, or calls without a command: {', '.join(sorted(unknown))}")
        return 1
    first, *others = (*CALLS, "deploy run")  # the first in a process of its own: it shows what its imports say
    failed = [] if tried(first, folder) else [first]
    for module in LOADED:
        importlib.import_module(module)
    failed += [name for name in others if not tried(name, folder, forked)]
    print(f"{len(known) - len(failed)} of {len(known)} commands" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def commands() -> Iterator[str]:
    """Every command by its words, and its help, which must show each text that was written for it."""
    import typer

    from polyfed.cli.main import app

    os.environ["COLUMNS"] = "400"
    whole = typer.main.get_command(app)
    found = [((), whole)]
    while found:
        path, command = found.pop()
        shown = io.StringIO()
        done = call([*path, "run", "--nonsense"], Path()) if path == () else None
        assert done is None or "unknown option '--nonsense'" in done.stderr, done
        with redirect_stdout(shown):
            whole.main([*path, "--help"], prog_name="polyfed", standalone_mode=False)
        texts = [(command.help or "").split("\n\n")[0], *(getattr(one, "help", None) or "" for one in command.params)]
        for text in texts:
            assert letters(text) in letters(shown.getvalue()), f"polyfed {' '.join(path)} --help lacks: {text}"
        inner = getattr(command, "commands", {})
        if not inner:
            yield " ".join(path)
        found += [((*path, name), one) for name, one in inner.items()]


def letters(text: str) -> str:
    """The text without spaces, frames and marks: how a help page is laid out does not matter."""
    return re.sub(r"[\s│─╭╮╰╯`*]+", "", text)


def settings(arguments: list[str]) -> dict[str, str]:
    """Programs are compiled in a hurry, but for the benches, which run them for longer than that takes."""
    hurry = {} if arguments[0] == "bench" else {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
    return {"NO_COLOR": "1", **hurry}


def call(arguments: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **settings(arguments), **variables}
    return subprocess.run(
        [*POLYFED, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def forked(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The same in a copy of this process, which has loaded the large libraries: that takes most of a short command."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with warnings.catch_warnings(action="ignore"):  # NumPy has threads, which do nothing now
            child = os.fork()
        if not child:
            code = 1
            try:
                signal.alarm(LIMIT)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os.chdir(folder)
                os.environ.update(settings(arguments))
                sys.argv = ["polyfed", *arguments]
                code = _ended()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return subprocess.CompletedProcess(arguments, code, *texts)


def _ended() -> int:
    """The exit code of the command in `sys.argv`."""
    import atexit
    import traceback

    from polyfed.cli.main import main as polyfed

    try:
        polyfed()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        atexit._run_exitfuncs()
    return 0


def tried(name: str, folder: Path, run: Call = call) -> bool:
    """Whether a command does what it should: its work, or a sentence that says what is missing."""
    began, used = time.monotonic(), _processor_time()
    module, extra = EXTRAS.get(name, ("polyfed", ""))
    complete = find_spec(module) is not None
    if name == "deploy run" and complete:
        done = three_processes(folder)
    else:
        done = run([*name.split(), *(filled(a, folder) for a in CALLS.get(name, [" "]))], folder)
    if not complete:
        good = done.returncode == 2 and f"polyfed[{extra}]" in done.stderr
    elif name in REFUSED and not (name == "bench convex" and done.returncode == 0):
        good = done.returncode == 2 and REFUSED[name] in done.stderr
    else:
        good = done.returncode == 0
    good = good and "Traceback" not in done.stderr and "Warning" not in done.stderr
    took, used = time.monotonic() - began, _processor_time() - used
    print(f"{'ok    ' if good else 'FAILED'} polyfed {name} ({took:.0f} s, {used:.0f} of a processor)", flush=True)
    if not good:
        print(done.stdout[-2000:] + done.stderr[-4000:], flush=True)
    if name == "deploy add-site" and complete:  # admit needs a key that another site made; west, rows
        call(["deploy", "init", "other", "--sites", "east,far"], folder)
        (folder / "project/west/data.csv").write_bytes((folder / "project/north/data.csv").read_bytes())
        (folder / "east.pub").write_bytes((folder / "other/server/keys/east.pub").read_bytes())
    return good


def _processor_time() -> float:
    times = os.times()
    return times.children_user + times.children_system


def filled(argument: str, folder: Path) -> str:
    """What stands for a word of `CALLS`; other environments may be at work beside this one."""
    return {"PUBLISHED": lambda: published(folder), "FREE": free_port}.get(argument, lambda: argument)()


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def published(folder: Path) -> str:
    found = sorted((folder / "project/server/runs").glob("*/server"))
    return str(found[0].relative_to(folder)) if found else "no-run"


def three_processes(folder: Path) -> subprocess.CompletedProcess[str]:
    """A server and two sites in processes of their own, a run, and an orderly end."""
    port = free_port()
    call(["deploy", "init", "three", "--sites", "north,south", "--example", "--port", port], folder)
    services = [("server", "three/server"), ("site", "three/north"), ("site", "three/south")]
    with started([["deploy", kind, place] for kind, place in services], folder):
        time.sleep(20)
        return call(["deploy", "run", "three/server"], folder)


@contextmanager
def started(services: list[list[str]], folder: Path) -> Iterator[None]:
    with open(folder / "services.log", "w") as log:
        running = [subprocess.Popen([*POLYFED, *words], cwd=folder, stdout=log, stderr=log) for words in services]
        try:
            yield
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(timeout=60)


if __name__ == "__main__":
    sys.exit(main())
