"""`signalbox serve`: what it takes from the command line."""

from __future__ import annotations

from bot.cli.options import ConfigFile


def serve(
    config: ConfigFile = None,
) -> None:
    """Listen to alerts of Alertmanager and Grafana, and diagnose the jobs that they name, until stopped."""
    from bot.cli.serve import run

    run(config)
