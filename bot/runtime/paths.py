"""Where Signalbox keeps what it remembers and what it can make anew, and by which environment variable each is moved."""

from __future__ import annotations

import os
from pathlib import Path

STATE = "SIGNALBOX_STATE"  # a folder: the incidents
CACHE = "SIGNALBOX_CACHE"  # a folder: compiled patterns, anything that may be deleted at any time
SITE = "SIGNALBOX_SITE"  # a folder: the overlay of the site's own rules, exceptions and numbers
CONFIG = "SIGNALBOX_CONFIG"  # a file: signalbox.yaml, the clusters and their connectors
DATABASE = "SIGNALBOX_DATABASE"  # a database URL in place of the file in the state folder
DEFAULT_TENANT = "default"  # whose everything is where nothing else is said


def state_dir() -> Path:
    """The folder of what must be kept. Not made here: whoever writes makes it, and says so where it cannot."""
    return _moved(STATE) or _platform_folder("state")


def cache_dir() -> Path:
    """The folder of what can be made anew. Not made here either."""
    return _moved(CACHE) or _platform_folder("cache")


def site_dir() -> Path | None:
    """The folder of the site's overlay; None where none is named and the usual place has none."""
    named = _moved(SITE)
    if named is not None:
        return named
    usual = _platform_folder("config") / "site"
    return usual if os.path.isdir(usual) else None  # noqa: PTH112 - never raises, whatever may not be read


def config_path() -> Path | None:
    """The configuration file; None where none is named and the usual place has none."""
    named = _moved(CONFIG)
    if named is not None:
        return named
    usual = _platform_folder("config") / "signalbox.yaml"
    return usual if os.path.lexists(usual) else None


def database_url() -> str:
    """The database of incidents: SQLite in the state folder unless the environment names another."""
    return os.environ.get(DATABASE) or f"sqlite:///{state_dir() / 'signalbox.db'}"


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite database; None where it is another kind, or in memory."""
    kind, _, place = url.partition(":///")
    file = place.partition("?")[0]
    return Path(file) if kind.partition("+")[0] == "sqlite" and file not in ("", ":memory:") else None


def _moved(variable: str) -> Path | None:
    # An empty value counts as unset: that is what `VAR= command` and unset Helm values give.
    named = os.environ.get(variable, "").strip()
    return Path(os.path.abspath(os.path.expanduser(named))) if named else None  # noqa: PTH100, PTH111 - never raises


def _platform_folder(kind: str) -> Path:
    import platformdirs  # noqa: PLC0415 - not needed where the environment names the folder

    folders = {
        "state": platformdirs.user_state_path,
        "cache": platformdirs.user_cache_path,
        "config": platformdirs.user_config_path,
    }
    return folders[kind]("signalbox")
