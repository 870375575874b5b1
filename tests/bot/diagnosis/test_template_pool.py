"""Templates of many streams: one process, several, shards or Ray give the same tables; a dead worker is reported."""

from __future__ import annotations

import gzip
import os
import signal
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from bot.diagnosis import template_pool
from bot.diagnosis.template_pool import tables
from connectors.bundles.streams import discover
from kb.anomalies.core.representatives import Representatives
from kb.errors import UnreadableInput
from kb.templates.table import TemplateTable
from tests.support.common.template_noise import noise
from tests.support.paths import ROOT
from tests.support.template_samples import log


@pytest.fixture
def streams(tmp_path):
    """Three logs of some size, one of them compressed."""
    for number in range(2):
        (tmp_path / f"node-{number}.log").write_bytes(log(3000, number))
    (tmp_path / "node-2.log.gz").write_bytes(gzip.compress(log(500, 2)))
    return discover([tmp_path]).streams


def test_several_processes_and_shards_say_what_one_pass_says(streams, monkeypatch):
    """The tables depend neither on how many processes read, nor on shards."""
    whole = tables(streams, workers=1)
    monkeypatch.setattr(template_pool, "ALONE", 0)
    told = []

    split = tables(streams, workers=2, tell=told.append, shard=70_000)

    assert split == whole
    assert sum(told) == sum(ref.size for ref in streams)
    assert [table.lines for table in whole.tables] == [_lines(Path(ref.uri)) for ref in streams]
    assert whole.gaps == ()


def _lines(path: Path) -> int:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).count(b"\n")


def test_of_very_many_logs_some_are_compared(tmp_path, monkeypatch):
    """Those that stand for all, and the odd one, whoever mines them; a gap says so, and the others leave no more than their rank."""
    monkeypatch.setattr(template_pool, "Representatives", partial(Representatives, most=8))
    for rank in range(40):
        lines = [f"2026-11-03 04:0{step}:00 INFO train: step {step}" for step in range(6)]
        odd = ["ERROR ledger: lease 7 was granted twice"] if rank == 13 else []
        (tmp_path / f"rank-{rank}.log").write_text("\n".join([*lines, *odd, ""]))
    refs = discover([tmp_path]).streams
    alone = tables(refs, workers=1)
    assert len(alone.uncompared.uris) == 32
    assert not any(uri.endswith("rank-13.log") for uri in alone.uncompared.uris)
    assert [table.ref.resource.rank for table in alone.tables] == [ref.resource.rank for ref in refs]
    assert all(bool(table.templates) != (table.ref.uri in alone.uncompared.uris) for table in alone.tables)
    assert [gap.reason.split(":")[0] for gap in alone.gaps] == ["of 40 logs 8 were compared in full"]
    monkeypatch.setattr(template_pool, "ALONE", 0)
    assert tables(refs, workers=2) == alone


def test_no_streams_give_no_tables():
    """Nothing in, nothing out."""
    assert tables([]) == template_pool.MinedTables(())


def test_a_file_that_is_gone_is_a_gap(streams):
    """The others are mined; the one that cannot be read has an empty table."""
    Path(streams[0].uri).unlink()
    found = tables(streams, workers=1)
    assert [gap.code for gap in found.gaps] == ["unreadable"]
    assert found.tables[0].templates == {}
    assert found.tables[1].templates


def _dying(task: template_pool.TemplateTask):
    if task.index == 1 and task.start:
        os.kill(os.getpid(), signal.SIGKILL)
    return template_pool.mine(task)


def test_a_worker_that_dies_is_a_gap_that_names_its_part(streams, monkeypatch):
    """Its share is missing, and reported as missing."""
    monkeypatch.setattr(template_pool, "ALONE", 0)
    monkeypatch.setattr(template_pool, "_work", _dying)

    found = tables(streams, workers=2, shard=70_000)

    assert {gap.code for gap in found.gaps} == {"worker_died"}
    assert any(gap.source == streams[1].uri and "from byte" in gap.reason for gap in found.gaps)


def test_ray_that_is_missing_is_reported(streams, monkeypatch):
    """Without Ray the message names the extra and the other engine."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnreadableInput, match=r"signalbox\[ray\].*--engine local"):
        tables(streams, engine="ray")


def test_a_ray_that_does_not_start_is_reported(streams, monkeypatch):
    """Ray raises a bare exception where its node does not start in time, as on a host that is overloaded."""

    def init(**_: object) -> None:
        raise Exception("The current node timed out during startup.")  # noqa: TRY002 - as Ray does

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, is_initialized=lambda: False))
    with pytest.raises(UnreadableInput, match=r"Ray cannot be started.*timed out during startup.*--engine local"):
        tables(streams, engine="ray")


@pytest.fixture(scope="module")
def ray():
    """A Ray of two workers on this machine."""
    found = pytest.importorskip("ray", reason="SKIPPED: Ray is not installed (pip install 'signalbox[ray]')")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    found.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=128 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([str(ROOT), *_paths()])}},
    )
    yield found
    found.shutdown()


def _paths() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_tables(streams, ray):
    """Two workers of a real local Ray say what one process says."""
    assert ray.is_initialized()
    assert tables(streams, engine="ray", workers=2, shard=70_000) == tables(streams, workers=1)


def _dying_once(task: template_pool.TemplateTask):
    mark = Path(task.ref.uri).parent / ".died"
    if task.index == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return template_pool.mine(task)


@pytest.mark.slow  # test_ray_gives_the_same_tables
@pytest.mark.filterwarnings("ignore")
def test_a_worker_of_ray_that_is_killed_changes_nothing(streams, ray, monkeypatch):
    """Its task is done again by another: the same answer."""
    assert ray.is_initialized()
    monkeypatch.setattr(template_pool, "_work", _dying_once)
    found = tables(streams, engine="ray", workers=2, shard=70_000)
    assert (Path(streams[0].uri).parent / ".died").exists()
    assert found == tables(streams, workers=1)


@pytest.mark.slow  # test_ray_gives_the_same_tables
@pytest.mark.filterwarnings("ignore")
def test_a_task_that_kills_each_worker_of_ray_is_a_gap(streams, ray, monkeypatch):
    """After the tries it has, the part is missing, by name; the other streams are whole."""
    assert ray.is_initialized()
    monkeypatch.setattr(template_pool, "RETRIES", 1)
    monkeypatch.setattr(template_pool, "_work", _dying)
    found = tables(streams, engine="ray", workers=2, shard=70_000)
    assert {(gap.code, gap.source) for gap in found.gaps} == {("worker_died", streams[1].uri)}
    assert found.tables[0] == tables(streams, workers=1).tables[0]
    assert isinstance(found.tables[1], TemplateTable)


@pytest.mark.slow  # test_several_processes_and_shards_say_what_one_pass_says
def test_a_stream_of_unlike_lines_is_reported_and_the_same_whoever_mines_it(tmp_path, monkeypatch):
    """What other streams taught a worker changes nothing; the gap says how many lines were only counted."""
    for name, size in {"LOOKS": 900, "FEWEST_LOOKS": 300, "LEARNED": 150, "STRANGE": 100}.items():
        monkeypatch.setattr(template_pool, name, size)
    paths = []
    for seed in (1, 2, 1):
        paths.append(tmp_path / f"{len(paths)}.log")
        paths[-1].write_bytes(noise(6000, seed) + log(300, seed))
    streams = discover(paths).streams
    alone = [tables([stream], workers=1, shard=1 << 17) for stream in streams]
    together = tables(streams, workers=1, shard=1 << 17)
    assert tuple(item.tables[0] for item in alone) == together.tables
    assert tables(streams, workers=2, shard=1 << 17) == together
    assert [gap.reason for gap in together.gaps] == [
        f"{table.unlike} lines unlike all others were only counted: too many differ to look at each for templates"
        for table in together.tables
    ]
