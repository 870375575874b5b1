"""The options of `signalbox pages`."""

from __future__ import annotations

from typing import Annotated

import typer


def pages(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the overview in the browser.")] = False,
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant.")] = "default",
) -> None:
    """Show your incidents as pages in a browser on this machine, until Ctrl-C."""
    from bot.cli.pages import run

    run(port, tenant, browser=browser)
