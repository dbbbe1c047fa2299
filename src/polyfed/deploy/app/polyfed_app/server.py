"""The ServerApp: a run over Flower's grid."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One run, from its checkpoint if it has one."""
    from polyfed.deploy.server.serve import serve

    serve(grid, str(context.run_config["settings"]))
