"""The folders of Linux are those that platformdirs returns, whatever the environment says."""

from __future__ import annotations

import sys

import platformdirs
import pytest

from bot.runtime.paths import cache_dir, default_config, state_dir

FOLDERS = (
    "SIGNALBOX_STATE",
    "SIGNALBOX_CACHE",
    "SIGNALBOX_CONFIG",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
)


@pytest.mark.parametrize("home", ["/home/ada", "/home/ada/", "/", "relative", "", None])
@pytest.mark.parametrize("named", [None, "", " ", "/data/xdg", "/data/xdg/", "relative"])
def test_the_folders_of_platformdirs(monkeypatch, home, named):
    """A relative or empty value of a variable counts as unset, as the XDG specification says."""
    for variable in FOLDERS:
        monkeypatch.delenv(variable, raising=False)
    for variable in FOLDERS[3:] if named is not None else ():
        monkeypatch.setenv(variable, named)
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)

    assert state_dir() == platformdirs.user_state_path("signalbox")
    assert cache_dir() == platformdirs.user_cache_path("signalbox")
    assert default_config().parent == platformdirs.user_config_path("signalbox")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems ask platformdirs")
def test_a_start_on_linux_does_not_need_platformdirs(monkeypatch):
    """Its import, with those of tempfile and bz2, takes a fiftieth of a start."""
    monkeypatch.delenv("SIGNALBOX_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setitem(sys.modules, "platformdirs", None)  # an import would raise

    assert str(cache_dir()) == "/home/ada/.cache/signalbox"
