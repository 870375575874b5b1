"""The options of `signalbox serve`."""

from __future__ import annotations

from bot.cli.options import ConfigFile


def serve(
    config: ConfigFile = None,
) -> None:
    """Run the service: receive alerts from Alertmanager and Grafana, and diagnose the jobs they name."""
    from bot.cli.serve import run

    run(config)
