"""The commands `polyfed deploy ...`: a run across real sites."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from polyfed.cli.groups import ASKS_FOR_HELP, Commands
from polyfed.cli.options import Quiet, err, out
from polyfed.core.errors import PolyfedError

if TYPE_CHECKING:
    from polyfed.deploy.network.running_site import RunningSite
    from polyfed.deploy.network.server_link import ServerLink

deploy_app = typer.Typer(cls=Commands, help="Run an algorithm across real sites.", no_args_is_help=True)
ServerFolder = Annotated[Path, typer.Argument(help="The server's folder, with server.toml.")]
SiteFolder = Annotated[Path, typer.Argument(help="The site's folder, with site.toml.")]
POLL = 0.3
"""Seconds between looks at a run's progress."""


@deploy_app.callback()
def _begin(ctx: typer.Context) -> None:
    """Refuse where Flower is missing. What these commands and their processes write, its owner alone can read.

    What others sent speaks to no terminal.
    """
    if ctx.meta[ASKS_FOR_HELP]:
        return
    if find_spec("flwr") is None:
        raise PolyfedError("Flower is not installed: pip install 'polyfed[deploy]'")
    from polyfed.deploy.logs import OneLine

    ctx.call_on_close(partial(os.umask, os.umask(0o077)))
    for handler in logging.getLogger().handlers:
        ctx.call_on_close(partial(handler.setFormatter, handler.formatter))
        handler.setFormatter(OneLine("%(message)s"))


@deploy_app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The project's folder: new, empty, or one without keys.")],
    sites: Annotated[str, typer.Option("--sites", help="The sites' names, or how many.")] = "north,south,west",
    host: Annotated[str, typer.Option("--host", help="The server's name or address, as sites reach it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The server's port.", min=1, max=65535)] = 8443,
    example: Annotated[bool, typer.Option("--example", help="Give every site some made-up rows.")] = False,
    advice: Annotated[
        Path | None, typer.Option("--from", help="The folder of an advice: its sites, model and method.")
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="With --from: give every site its rows of the table.")] = False,
) -> None:
    """Write a project: a folder for the server and one for each site, with configs, certificates and keys.

    Of a project without keys, such as an advice leaves in deploy/, make the keys.
    """
    from polyfed.deploy.configs import has_no_keys
    from polyfed.deploy.from_advice import project_from_advice
    from polyfed.deploy.project import add_keys, make_project

    if advice is None and rows:
        raise PolyfedError("--rows goes with --from")
    if advice is not None:
        project_from_advice(advice, folder, host, port, rows)
    elif has_no_keys(folder):
        add_keys(folder, host, port)
    else:
        make_project(folder, _names(sites), host, port, example)
    out.print(f"{escape(str(folder))}: read README.md there", soft_wrap=True, highlight=False)


@deploy_app.command()
def up(
    folder: Annotated[Path | None, typer.Argument(help="A project of `polyfed deploy init`; or none.")] = None,
    sites: Annotated[str, typer.Option("--sites", help="Without a project: the sites' names, or how many.")] = "3",
    quiet: Quiet = False,
) -> None:
    """Start a whole federation on this machine, run it, and stop all of it."""
    from polyfed.deploy.network.processes import free_port, stop_together
    from polyfed.deploy.network.server_link import ServerLink
    from polyfed.deploy.project import make_project

    if folder is None:
        folder = _fresh(Path("runs/deploy"))
        make_project(folder, _names(sites), "127.0.0.1", free_port(), example=True)
    link = ServerLink(folder / "server")
    say = _say(quiet)
    with _stopping() as stack:
        say(f"server: {link.address}, sites with a certificate and a known key only")
        stack.enter_context(link.start())
        nodes: list[RunningSite] = []
        stack.callback(lambda: stop_together(node.stop for node in nodes))
        for site in link.federation.sites:
            nodes.append(_start_site(folder / site, say))
        _follow(link, link.submit(), say)
    _say_where_published(link, quiet)


@deploy_app.command()
def server(folder: ServerFolder, quiet: Quiet = False) -> None:
    """Start the server; a run that was under way when it stopped goes on."""
    from polyfed.deploy.network.server_link import ServerLink

    link, say = ServerLink(folder), _say(quiet)
    unfinished = link.unfinished()
    with _stopping() as stack:
        child = stack.enter_context(link.start())
        say(f"server: {link.address}, waiting for {', '.join(link.federation.sites)}")
        if unfinished:
            say("going on with the run that was under way")
        while child.running:
            time.sleep(POLL)
        raise PolyfedError(f"the server ended; its log {child.log} ends with:\n{child.tail()}")


@deploy_app.command()
def site(folder: SiteFolder, quiet: Quiet = False) -> None:
    """Start a site: its rows and its state stay here."""
    from polyfed.deploy.logs import site_log

    say = _say(quiet)
    with _stopping() as stack:
        node = _start_site(folder, say)
        logging.getLogger("polyfed").addHandler(site_log(node.settings.folder))
        stack.callback(node.stop)
        while node.running:
            time.sleep(POLL)
        raise PolyfedError(f"the site '{node.settings.name}' ended")


@deploy_app.command()
def run(
    folder: ServerFolder,
    back: Annotated[
        bool, typer.Option("--back", help="Drop the last round: go on from the checkpoint before.")
    ] = False,
    back_to: Annotated[
        int | None, typer.Option("--back-to", help="Drop all rounds after this one; the last few are kept.", min=1)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Start the run of server.toml on a server that is up, or go on with it, and follow it to its end."""
    from polyfed.deploy.network.server_link import ServerLink
    from polyfed.deploy.server.going_back import round_before

    link = ServerLink(folder)
    if back and back_to is None:
        back_to = round_before(link.run_folder)
    _follow(link, link.submit(back_to), _say(quiet))
    _say_where_published(link, quiet)


@deploy_app.command()
def admit(
    folder: ServerFolder,
    name: Annotated[str, typer.Argument(help="The site's name.")],
    key: Annotated[Path, typer.Argument(help="The public key that the site sent, as ssh-keygen writes it.")],
) -> None:
    """Let a site in that made its own key: keep the key, and issue the certificate that the site needs."""
    from polyfed.deploy.project import admit

    certificate = folder / "certificates" / f"{name}.pem"
    certificate.write_bytes(admit(folder, name, key))
    text = f"send {certificate} to site '{name}'\n"
    text += f"the other sites put {folder / 'keys' / f'{name}.pub'} into their roster/, once they have compared it"
    out.print(escape(f"{text} with its owner"), soft_wrap=True, highlight=False)


@deploy_app.command()
def add_site(
    folder: Annotated[Path, typer.Argument(help="The project's folder, with server/ in it.")],
    name: Annotated[str, typer.Argument(help="The new site's name.")],
) -> None:
    """Add a site to a project: its folder, its key and certificate, and its name on the roster."""
    from polyfed.deploy.project import add_site

    made = add_site(folder, name)
    key = folder / "server" / "keys" / f"{name}.pub"
    text = f"send {made} to site '{name}', and start the server again; a run of another name includes it\n"
    text += f"sites elsewhere put {key} into their roster/, once they have compared it with its owner"
    out.print(escape(text), soft_wrap=True, highlight=False)


@deploy_app.command()
def renew(folder: ServerFolder) -> None:
    """Make all certificates anew, with the same keys; it needs certificates/ca.key."""
    from polyfed.deploy.project import renew
    from polyfed.deploy.settings import read_toml, server_settings

    path = folder / "server.toml"
    federation, _, _ = server_settings(read_toml(path), str(path))
    for name, certificate in renew(folder.resolve(), federation.sites).items():
        ca = folder / "certificates" / "ca.pem"
        text = f"site '{name}': {certificate} is new"
        if certificate.parent.name == "certificates":
            text = f"send {certificate} and {ca} to site '{name}', as {name}.pem and ca.pem in its folder"
        out.print(escape(text), soft_wrap=True, highlight=False)
    out.print("start the server and the sites again; until then they go on with the old ones", highlight=False)


@deploy_app.command()
def accept(folder: SiteFolder, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Show the terms that a server proposed to this site, and accept them."""
    from polyfed.deploy.settings import site_settings
    from polyfed.deploy.site.policy import PinnedTerms

    pinned = PinnedTerms(site_settings(folder).folder)
    lines = pinned.waiting()
    if not lines:
        out.print("no terms wait", highlight=False)
        return
    for line in lines:
        out.print(escape(line), soft_wrap=True, highlight=False)
    if yes or typer.confirm("accept these terms?"):
        pinned.accept(lines)
        out.print("accepted", highlight=False)


@deploy_app.command()
def personalize(
    published: Annotated[Path, typer.Argument(help="What the run published: runs/NAME/server of the server's folder.")],
    folder: SiteFolder,
    steps: Annotated[int | None, typer.Option("--steps", help="Local steps; by default the method's own rule.")] = None,
) -> None:
    """Give a new site a model from the published global model and its own rows; nothing leaves it."""
    from polyfed.cli.personalize import show
    from polyfed.deploy.new_site import personalize_new_site
    from polyfed.deploy.settings import site_settings

    settings = site_settings(folder, connects=False)
    newcomer = personalize_new_site(published, settings.site().federation, steps)
    show(newcomer, newcomer.save(settings.folder / "models" / "newcomer"))


def _names(sites: str) -> list[str]:
    """Names with commas between them, or a number of sites."""
    if sites.isdecimal():
        return [f"site-{number + 1}" for number in range(int(sites))]
    return [name.strip() for name in sites.split(",")]


def _fresh(folder: Path) -> Path:
    """The first of FOLDER-1, FOLDER-2, ... that does not exist."""
    number = 1
    while (numbered := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return numbered


def _say(quiet: bool) -> Callable[[str], None]:
    logging.getLogger("polyfed").setLevel(logging.WARNING)
    return lambda text: None if quiet else out.print(escape(text), soft_wrap=True, highlight=False)


def _start_site(folder: Path, say: Callable[[str], None]) -> RunningSite:
    from polyfed.deploy.keys import warn_daily
    from polyfed.deploy.logs import site_log
    from polyfed.deploy.network.running_site import RunningSite
    from polyfed.deploy.settings import site_settings

    settings = site_settings(folder)
    log = logging.getLogger(f"polyfed.sites.{settings.name}")
    log.setLevel(logging.INFO)
    log.handlers = [site_log(settings.folder)]
    log.propagate = False

    def tell(text: str) -> None:
        log.info(text)
        say(text)

    def warn(text: str) -> None:
        log.warning(text)
        err.print(f"[yellow]warning[/]: {escape(text)}", soft_wrap=True, highlight=False)

    warn_daily((settings.certificate, settings.own_certificate), warn)
    node = RunningSite(settings, tell)
    rows = node.site.training_rows
    tell(f"site '{settings.name}': {rows} training rows, server {settings.server}")
    return node


def _follow(link: ServerLink, request: str, say: Callable[[str], None]) -> None:
    """Tell each round as it ends, until the run ends."""
    begun, seen = time.monotonic(), len(link.progress())
    while True:
        running, why, rows = link.running, link.ended(request), link.progress()
        for row in rows[seen:]:
            spent = time.monotonic() - begun
            epsilon = row.get("epsilon")
            privacy = "" if epsilon is None else f", epsilon {epsilon:.3g} at delta {row.get('delta'):g}"
            say(f"round {row['round']} of {row['of']}: {', '.join(row['sites'])} ({spent:.0f} s){privacy}")
        seen = len(rows)
        if why == "":
            return
        if why is not None or not running:
            raise PolyfedError(
                why or f"the server of {link.folder} ended; `polyfed deploy server` goes on with the run"
            )
        time.sleep(POLL)


def _say_where_published(link: ServerLink, quiet: bool) -> None:
    if not quiet:
        out.print(f"published: {escape(str(link.run_folder / 'server'))}", soft_wrap=True, highlight=False)
    away = link.without_result()
    if away:
        out.print(
            f"without the result: {', '.join(away)}; `polyfed deploy run {escape(str(link.folder))}` hands it over "
            "when they are back",
            soft_wrap=True,
            highlight=False,
        )


@contextmanager
def _stopping() -> Iterator[ExitStack]:
    """Within it, SIGTERM and a closed terminal end the command as Ctrl-C does: everything it started is stopped."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), end)
    try:
        with ExitStack() as stack:
            yield stack
    except KeyboardInterrupt:
        err.print("\nstopped", highlight=False)
        raise typer.Exit(130) from None
