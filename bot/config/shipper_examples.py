"""Configurations for the labels and fields that common log shippers make, ready to be adapted: `config example --for NAME`."""

from __future__ import annotations

from pathlib import Path

from kb.errors import UnreadableInput

_FOLDER = Path(__file__).parent / "examples"


def shippers() -> tuple[str, ...]:
    """Return the names of the log shippers that have an example."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def shipper_example(name: str) -> str:
    """Return a signalbox.yaml for a log shipper; its comments say what the shipper itself must be told.

    Raises:
        UnreadableInput: There is none of this name; the text lists those that there are.
    """
    known = {shipper.casefold(): shipper for shipper in shippers()}
    found = known.get(name.strip().casefold().replace("_", "-").replace(" ", "-"))
    if found is None:
        raise UnreadableInput(f"no example for {name[:40]!r}; there are {', '.join(shippers())}")
    return (_FOLDER / f"{found}.yaml").read_text("utf-8")
