"""The commands `polyfed bench engine`, `convex`, `methods`, `neural`, `scale` and `deploy`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from polyfed.cli.groups import Commands
from polyfed.cli.options import AsJson, out

bench_app = typer.Typer(
    cls=Commands,
    help="Measure this machine: ratios inside one run, never absolute claims.",
    no_args_is_help=True,
)
TorchPython = Annotated[
    Path | None, typer.Option("--torch", help="A Python that has PyTorch, to run its loop side by side.")
]
FedjaxPython = Annotated[
    Path | None, typer.Option("--fedjax", help="A Python that has FedJAX, to run its loop side by side.")
]


@bench_app.command("engine")
def bench_engine_command(
    repeat: Annotated[int, typer.Option(help="Repetitions of each measurement.")] = 5,
    torch_python: TorchPython = None,
    memory: Annotated[bool, typer.Option(help="Also measure memory with 1,000 and 10,000 clients.")] = True,
    as_json: AsJson = False,
) -> None:
    """One round of 100 clients x 20 steps x batch 20 on an MLP, beside the matrix-product rate and a PyTorch loop."""
    from polyfed.bench import bench_engine

    figures = bench_engine(repeat, torch_python, memory).as_dict()
    if as_json:
        print(json.dumps(figures, indent=1))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), f"{value:.3g}")
    out.print(table)


@bench_app.command("convex")
def bench_convex_command(
    clients: Annotated[list[int] | None, typer.Option(help="Numbers of clients; may be repeated.")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions of each measurement.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Rounds per second of GD, DIANA and Scafflix on mushrooms, beside a plain NumPy loop over the clients."""
    from polyfed.bench import bench_convex

    rows = [speed.as_dict() for speed in bench_convex(clients or (8, 50, 500), repeat)]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = Table("clients", "method", "rounds/s", "NumPy rounds/s", "times NumPy", box=None, pad_edge=False)
    for row in rows:
        speeds = (row["rounds_per_second"], row["numpy_rounds_per_second"], row["times_numpy"])
        table.add_row(str(row["clients"]), row["method"], *(f"{speed:,.3g}" for speed in speeds))
    out.print(table)


@bench_app.command("methods")
def bench_methods_command(
    method: Annotated[list[str] | None, typer.Option(help="Methods beside FedAvg; may be repeated.")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions of each measurement.")] = 5,
    as_json: AsJson = False,
) -> None:
    """A round of 20 devices x 5 epochs on an MLP of MNIST's shape: FedProx, FedBC or others beside FedAvg."""
    from polyfed.bench import bench_methods
    from polyfed.bench.methods import METHODS

    rows = [cost.as_dict() for cost in bench_methods(method or METHODS, repeat)]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = Table("method", "s/round", "times FedAvg", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row["method"], f"{row['round_seconds']:.3g}", f"{row['times_fedavg']:.3f}")
    out.print(table)


@bench_app.command("sweep")
def bench_sweep_command(
    candidates: Annotated[int, typer.Option(help="Candidates of every method.")] = 24,
    repeat: Annotated[int, typer.Option(help="Repetitions of each measurement.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Candidates of FedAvg and APFL as one program, beside as many separate runs; and what a short warm run costs."""
    from polyfed.bench import bench_sweep

    rows = [cost.as_dict() for cost in bench_sweep(candidates, repeat)]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    heads = ("method", "model", "evaluations", "one run", f"{candidates} runs", "sweep", "share", "4 rounds, warm")
    table = Table(*heads, box=None, pad_edge=False)
    for row in rows:
        seconds = [f"{row[name]:.3g} s" for name in ("one_run", "separate_runs", "sweep")]
        warm = f"{1000 * float(row['short_run']):.1f} ms"
        table.add_row(
            str(row["method"]), str(row["model"]), str(row["evaluations"]), *seconds, f"{row['share']:.2f}", warm
        )
    out.print(table)


@bench_app.command("neural")
def bench_neural_command(
    chunk: Annotated[list[int] | None, typer.Option(help="Clients side by side; may be repeated.")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions of each measurement.")] = 5,
    torch_python: TorchPython = None,
    fedjax_python: FedjaxPython = None,
    devices: Annotated[int | None, typer.Option(help="Devices, and threads of PyTorch; by default all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rounds of APFL on an MLP, of the FEMNIST CNN and of the character LSTM, beside PyTorch's and FedJAX's loops."""
    from polyfed.bench import bench_neural

    speeds = bench_neural(repeat, torch_python, fedjax_python, chunk or (), devices)
    rows = [speed.as_dict() for speed in speeds]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    columns = ("work", "chunk", "s/round", "beside", "its s/round", "times as fast per gradient", "loss differs by")
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        figures = (row.get("peer_seconds"), row.get("times_peer_per_gradient"), row.get("loss_difference"))
        shown = ("-" if figure is None else f"{figure:.3g}" for figure in figures)
        table.add_row(row["work"], str(row["chunk"]), f"{row['round_seconds']:.3g}", row.get("peer", "-"), *shown)
    out.print(table)


@bench_app.command("scale")
def bench_scale_command(
    clients: Annotated[list[int] | None, typer.Option(help="Clients in the population; may be repeated.")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions of each measurement.")] = 20,
    growth: Annotated[bool, typer.Option(help="Also against cohort, local steps, parameters and clients.")] = False,
    writers: Annotated[bool, typer.Option(help="Also the memory of 539 clients' CNNs, which takes minutes.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", "-p", help="Draw the growth to a .png, .svg or .pdf.")
    ] = None,
    record: Annotated[Path | None, typer.Option(help="Also write the figures to this JSON file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rounds of 100 clients out of 1,000 to 1,000,000 whose rows are generated: time, memory, store and checkpoint."""
    from polyfed.bench import bench_growth, bench_scale, bench_writers
    from polyfed.bench.growth import draw, over_populations
    from polyfed.bench.scale import POPULATIONS, as_dicts, this_machine
    from polyfed.core.files import write_text

    machine = this_machine()  # before anything runs, because it tells the load
    points = bench_scale(clients or POPULATIONS, repeat)
    grown = [*bench_growth(max(1, repeat // 2)), over_populations(points)] if growth or picture is not None else []
    if picture is not None:
        draw(grown, picture)
    populations, lines = as_dicts(points), [one.as_dict() for one in grown]
    stores = [bench_writers(store) for store in ("host", "disk")] if writers else []
    sections = {"machine": machine, "populations": populations}
    sections |= {name: rows for name, rows in (("growth", lines), ("writers", stores)) if rows}
    if record is not None:
        write_text(record, json.dumps(sections, indent=1) + "\n")
    if as_json:
        print(json.dumps(sections, indent=1))
        return
    table = Table(
        "clients", "ms/round", "ratio", "peak MiB", "seen", "store MiB", "checkpoint MiB", box=None, pad_edge=False
    )
    for row in populations:
        sizes = (f"{row[name] / 2**20:,.0f}" for name in ("peak_memory_bytes", "store_bytes", "checkpoint_bytes"))
        peak, store, saved = sizes
        times = (f"{1000 * row['round_seconds']:.3g}", f"{row['ratio']:.3f}")
        table.add_row(f"{row['clients']:,}", *times, peak, f"{row['seen']:,}", store, saved)
    out.print(table)
    for row in lines:
        line = f"{row['axis']}: {1000 * row['fixed_seconds']:.3g} ms + {1e6 * row['slope']:.3g} us x {row['axis']}"
        knee = "" if row["knee"] is None else f", knee at {row['knee']:,.3g}"
        out.print(f"{line}{knee}; at most {row['off_the_line']:.0%} off the line", highlight=False)
    for row in stores:
        used, states = (row[name] / 2**30 for name in ("peak_memory_bytes", "state_bytes"))
        what = f"{row['clients']} CNNs of {row['parameters']:,} parameters, store {row['store']}"
        out.print(f"{what}: {states:.2f} GiB of states, peak {used:.2f} GiB", highlight=False)


@bench_app.command("deploy")
def bench_deploy_command(
    rounds: Annotated[int, typer.Option(help="Rounds of each kind.", min=2)] = 5,
    secure: Annotated[bool, typer.Option("--secure", help="With masked uploads.")] = False,
    as_json: AsJson = False,
) -> None:
    """A round across three sites on loopback, beside a bare round of Flower on the same processes."""
    from polyfed.bench.deploy import bench_deploy

    figures = bench_deploy(rounds, secure)
    if as_json:
        print(json.dumps(figures, indent=1))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in figures.items():
        if isinstance(value, float):
            table.add_row(name.replace("_", " "), f"{value:.3g}")
    out.print(table)
