"""What all tests share: generated examples have no deadline, since a busy machine is not a defect."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import settings

from bot.rulebase.loader import Knowledge, knowledge, prefilter_of
from bot.runtime.paths import cache_dir
from tests.support.quick_engines import quick_engines

BYTECODE = Path(__file__).parent / "kb" / "__pycache__"  # missing in a fresh checkout, until tests are imported

pytest_plugins = ["pytester", "tests.support.left_processes", "tests.support.tiers"]

# the suite starts hundreds of interpreters: without its bytecode on disk, each would compile the product
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that starts the suite in the background ignores SIGINT, and every child would inherit that: tests that interrupt a
# command would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("signalbox", deadline=None, max_examples=30)  # new ones in each run; 100 take thrice as long
settings.load_profile("signalbox")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, let it pass over what was made then, and let it work less often.

    12,000 tests live as long as the process: it would look at them again and again, also in every fork.
    """
    gc.disable()
    try:
        with _compiled_by_one_worker() if "PYTEST_XDIST_WORKER" in os.environ else nullcontext():
            return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@contextmanager
def _compiled_by_one_worker() -> Iterator[None]:
    """Load the rule base, which modules of tests do when they are imported: the first worker compiles it, the others wait.

    In a fresh checkout they wait until it has collected: it compiles the modules, and Hypothesis reads their constants.
    """
    with ExitStack() as held:
        with suppress(OSError):
            cache_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = held.enter_context((cache_dir() / "tests.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            prefilter_of(knowledge())
            if BYTECODE.is_dir():
                held.close()
        yield


@pytest.fixture(scope="session", autouse=True)
def each_set_built_once() -> Iterator[None]:
    """Build the engines that a few lines of a log need once for all logs."""
    with quick_engines():
        yield


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that all tests share, those of other workers too: compiling the rule base takes seconds.

    It begins with what the user's cache holds. Workers may copy the same at once.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "signalbox-cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in cache_dir().glob("*.bin"):
        with suppress(OSError), NamedTemporaryFile(dir=folder, prefix="new-", delete=False) as copy:
            copy.write(path.read_bytes())
            Path(copy.name).replace(folder / path.name)
    return folder


@pytest.fixture(scope="session")
def known(cache: Path) -> Knowledge:
    """The rule base that ships. Of the workers, the first compiles it; the others wait and read it."""
    with pytest.MonkeyPatch.context() as patch, (cache / "lock").open("w") as lock:
        patch.setenv("SIGNALBOX_CACHE", str(cache))
        fcntl.flock(lock, fcntl.LOCK_EX)
        return knowledge()
