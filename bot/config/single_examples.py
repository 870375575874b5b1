"""Configurations for one connector, or for the labels and fields that common log shippers make: `config example --for NAME`."""

from __future__ import annotations

from pathlib import Path

from bot.config.connectors import KINDS
from bot.config.docs import connector_example
from kb.errors import UnreadableInput

_FOLDER = Path(__file__).parent / "examples"


def shippers() -> tuple[str, ...]:
    """Return the names of the log shippers that have an example."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def example_for(name: str) -> str:
    """Return a signalbox.yaml for a connector type or a log shipper; its comments say what the shipper itself must be told.

    Raises:
        UnreadableInput: There is none of this name; the text lists those that there are.
    """
    wanted = name.strip().casefold()
    if wanted in KINDS:
        return connector_example(wanted)
    known = {shipper.casefold(): shipper for shipper in shippers()}
    found = known.get(wanted.replace("_", "-").replace(" ", "-"))
    if found is None:
        raise UnreadableInput(
            f"no example for {name[:40]!r}; connectors: {', '.join(sorted(KINDS))}; log shippers: {', '.join(shippers())}"
        )
    return (_FOLDER / f"{found}.yaml").read_text("utf-8")
