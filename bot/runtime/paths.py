"""Where Signalbox keeps its state and its cache, and the environment variables that move them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

STATE = "SIGNALBOX_STATE"  # a folder: the incidents
CACHE = "SIGNALBOX_CACHE"  # a folder: compiled patterns, anything that may be deleted at any time
SITE = "SIGNALBOX_SITE"  # a folder: the overlay with the site's own rules, exceptions and parameters
CONFIG = "SIGNALBOX_CONFIG"  # a file: signalbox.yaml, the clusters and their connectors
DATABASE = "SIGNALBOX_DATABASE"  # a database URL instead of the file in the state folder
FILE_NAME = "signalbox.yaml"  # of the configuration
DEFAULT_TENANT = "default"  # owns everything without an explicit tenant
_XDG = {
    "state": ("XDG_STATE_HOME", ".local/state"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "config": ("XDG_CONFIG_HOME", ".config"),
}


def state_dir() -> Path:
    """Return the folder of the persistent state. Not created here: the writer creates it, and reports a failure."""
    return _moved(STATE) or _platform_folder("state")


def cache_dir() -> Path:
    """Return the cache folder. Not created here either."""
    return _moved(CACHE) or _platform_folder("cache")


def site_dir() -> Path | None:
    """Return the folder of the site overlay; None if none is configured and the default one does not exist."""
    named = _moved(SITE)
    if named is not None:
        return named
    usual = _platform_folder("config") / "site"
    return usual if os.path.isdir(usual) else None  # noqa: PTH112 - never raises, whatever may not be read


def config_path() -> Path | None:
    """Return the configuration file; None if none is given and the default one does not exist."""
    named = _moved(CONFIG)
    if named is not None:
        return named
    usual = default_config()
    return usual if os.path.lexists(usual) else None


def default_config() -> Path:
    """Return where the configuration file lies if nothing names another place."""
    return _platform_folder("config") / FILE_NAME


def database_url() -> str:
    """Return the URL of the incident database: SQLite in the state folder unless the environment sets another one."""
    return os.environ.get(DATABASE) or f"sqlite:///{state_dir() / 'signalbox.db'}"


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite database; None for another kind, or in memory."""
    kind, _, place = url.partition(":///")
    file = place.partition("?")[0]
    return Path(file) if kind.partition("+")[0] == "sqlite" and file not in ("", ":memory:") else None


def _moved(variable: str) -> Path | None:
    # An empty value counts as unset: `VAR= command` and unset Helm values produce it.
    named = os.environ.get(variable, "").strip()
    return Path(os.path.abspath(os.path.expanduser(named))) if named else None  # noqa: PTH100, PTH111 - never raises


def _platform_folder(kind: str) -> Path:
    return _linux_folder(kind) or _asked(kind)


def _linux_folder(kind: str) -> Path | None:
    """What platformdirs returns on Linux, without its import, which takes a fiftieth of a start; None: it must be asked."""
    variable, usual = _XDG[kind]
    named, home = os.environ.get(variable, ""), os.environ.get("HOME", "")
    if sys.platform != "linux" or "ANDROID_ROOT" in os.environ:
        return None
    if named:
        return Path(named, "signalbox") if named.startswith("/") else None
    return Path(home, usual, "signalbox") if home.startswith("/") else None


def _asked(kind: str) -> Path:
    import platformdirs  # noqa: PLC0415 - not needed on Linux

    folders = {
        "state": platformdirs.user_state_path,
        "cache": platformdirs.user_cache_path,
        "config": platformdirs.user_config_path,
    }
    return folders[kind]("signalbox")
