"""signalbox.yaml: what it gives, everything that can be wrong with it, its schema and its example."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
import yaml
from typer.testing import CliRunner

from bot.cli.command_line import command_line
from bot.config.chat import Slack
from bot.config.connectors import KINDS, ConnectorType
from bot.config.docs import example_text, schema_text
from bot.config.file import ConfigError, load, read
from bot.config.schema import build, model_of, seconds, size
from bot.config.settings import Cluster, Collect, Config, Connector, Retention
from connectors.base.contract import CheckResult, Deadline, Seconds, Size, SourceFailed
from connectors.base.http import Endpoint, Login
from connectors.base.secret import Secret
from tests.support.paths import ROOT

app = command_line()

DOCS = ROOT / "docs"


@dataclass(frozen=True, slots=True)
class ToySettings:
    """A store of toys. With a second sentence."""

    endpoint: Endpoint
    """where"""
    paths: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    """of what"""
    wait: Seconds = 5.0
    """for how
    long"""
    most: Size = 1024
    user: str | None = None
    retries: int = 3
    """how often"""
    secret: Secret | None = None

    def __post_init__(self) -> None:
        if self.retries > 9:
            raise ValueError("retries is more than 9: nobody waits that long")


@dataclass(frozen=True, slots=True)
class Toy:
    """A connector that works where its user is "well"."""

    settings: ToySettings
    provides: frozenset[str] = frozenset({"logs"})

    def check(self, deadline: Deadline) -> CheckResult:
        """Work or not, by the user's name."""
        assert deadline.left() > 0
        if self.settings.user == "broken":
            raise SourceFailed("unauthorised", "it answered 401", asked="/toys", hint="see login")
        return CheckResult(
            self.settings.user == "well", "3 toys", "/toys?limit=1", "" if self.settings.user else "say who"
        )


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast("dict[str, ConnectorType]", KINDS), "toy", ConnectorType(__name__, "ToySettings", "Toy"))


WHOLE = """\
version: 1
collect:
  deadline: 2m
  bytes: 64MiB
  share: 0
redact:
  emails: true
clusters:
  east:
    tenant: research
    connectors:
      toys:
        type: toy
        url: https://toys.example/api
        login:
          token: {env: TOY_TOKEN}
          headers: {X-Scope-OrgID: research}
        paths: [a, b]
        labels: {cluster: east}
        wait: 1.5h
        user: me
    topology:
      node-1: {rack: r1, leaf: l1}
  west: {}
"""


def faults(text: str) -> list[str]:
    """The errors of a file, without its name."""
    with pytest.raises(ConfigError) as caught:
        load(text, Path("signalbox.yaml"))
    return [str(fault).removeprefix("signalbox.yaml:") for fault in caught.value.faults]


def test_a_whole_file() -> None:
    """All settings in the file are read: units, secrets by reference, the endpoint's fields together with the connector's own."""
    endpoint = Endpoint(
        "https://toys.example/api", Login(token=Secret(env="TOY_TOKEN"), headers={"X-Scope-OrgID": "research"})
    )
    toys = ToySettings(endpoint, ("a", "b"), {"cluster": "east"}, 5400.0, user="me")
    east = Cluster("east", "research", (Connector("toys", "toy", toys),), {"node-1": {"rack": "r1", "leaf": "l1"}})
    expected = Config(
        (east, Cluster("west")),
        Collect(deadline=120.0, bytes=64 << 20, share=0.0),
        hide_emails=True,
        path=Path("signalbox.yaml"),
    )
    assert load(WHOLE, Path("signalbox.yaml")) == expected
    assert [cluster.name for cluster in expected.of_tenant("research")] == ["east"]
    assert expected.of_tenant("other") == ()
    assert expected.tenants == ("default", "research")


def test_all_faults_at_once() -> None:
    """All errors are reported, with line and column, in file order."""
    text = """\
version: 2
collect: {deadline: soon, byts: 1}
clusters:
  east:
    connectors:
      a: {url: http://x}
      b: {type: tyo, url: http://x}
      c: {type: toy}
      d: {type: toy, url: ftp://x}
      e: {type: toy, url: http://x, retries: 10}
      f: {type: toy, url: http://x, retries: many, wait: -1, labels: [x]}
      g: {type: toy, url: http://x, secret: {env: A, file: b}}
      h: {type: toy, url: http://x, password: hunter2}
"""
    told = faults(text)
    assert [int(word.split(":")[0]) for word in told] == [1, 2, 2, 6, 7, 8, 9, 10, 11, 11, 11, 12, 13]
    words = "\n".join(told)
    for said in (
        "'soon' is not a number of seconds",
        "unknown key 'byts' (did you mean 'bytes'?)",
        "has no `type`",
        "did you mean 'toy'?",
        "key 'url' is missing",
        "is not a server address",
        "nobody waits that long",
        "is negative",
        "exactly one of env: and file:",
        "unknown key 'password'",
    ):
        assert said in words, said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("- 1", "must be a mapping"),
        ("version: 1\nclusters: {a: {connectors: {x: 3}}}", "must be"),
        ("version: 1\nclusters: {a: &x {}, b: *x}", "anchor"),
        ("version: 1\nversion: 1", "defined twice"),
        ("version: 1\nclusters: {a: {tenant: '../x'}}", "form"),
        ("version: [", "1:"),
        ("a: " + "[" * 500, ""),
    ],
)
def test_files_that_are_none(text: str, said: str) -> None:
    """Anything else is refused with words, never with a traceback."""
    assert any(said in fault for fault in faults(text)), faults(text)


def test_where_it_is_read_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the flag, from SIGNALBOX_CONFIG, from the user's folder; without any, the configuration is empty."""
    monkeypatch.delenv("SIGNALBOX_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert read() == Config()
    mine = tmp_path / "signalbox" / "signalbox.yaml"
    mine.parent.mkdir()
    mine.write_text("version: 1\n")
    assert read().path == mine
    other = tmp_path / "other.yaml"
    other.write_text("version: 1\n")
    monkeypatch.setenv("SIGNALBOX_CONFIG", str(other))
    assert read().path == other
    for wrong, said in ((tmp_path / "gone.yaml", "no such file"), (tmp_path, "no such file")):
        with pytest.raises(ConfigError, match=said):
            read(wrong)
    monkeypatch.setenv("SIGNALBOX_CONFIG", str(tmp_path / "gone.yaml"))
    with pytest.raises(ConfigError, match="SIGNALBOX_CONFIG names it"):
        read()
    other.write_bytes(b"version: \xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        read(other)


@pytest.mark.parametrize(
    ("given", "expected"), [("90", 90.0), ("1.5m", 90.0), ("2h", 7200.0), ("250ms", 0.25), ("1 d", 86400.0), (3, 3)]
)
def test_spans_of_time(given: str | int, expected: float) -> None:
    """Seconds as numbers or with a unit."""
    assert seconds(given) == expected


def test_how_long_things_are_kept_is_read() -> None:
    """Retention and the spool folder, with the same units as elsewhere and defaults for missing values."""
    text = (
        "version: 1\ncollect: {spool: /shared/spool}\nretention: {hot: 14d, archive: 180d, reports: 730d, pinned: kept}"
    )
    known = load(text, Path("x.yaml"))
    assert (known.collect, known.retention) == (Collect(spool="/shared/spool"), Retention())
    known = load("version: 1\nretention: {hot: 2d, packs: /srv/packs}", Path("x.yaml"))
    assert known.retention == Retention(hot=2 * 86400.0, packs="/srv/packs")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("retention: {hot: 200d}", "x.yaml:2:12: hot, archive and reports follow each other"),
        ("retention: {packs: here}", "x.yaml:2:12: 'here' is not an absolute path"),
        ("retention: {pinned: gone}", "x.yaml:2:21: "),
        ("collect: {spool: ~/spool}", "x.yaml:2:10: '~/spool' is not an absolute path"),
    ],
)
def test_what_contradicts_itself_is_reported_where_it_stands(text: str, told: str) -> None:
    """Settings that do not go together are faults with line and column."""
    with pytest.raises(ConfigError) as caught:
        load(f"version: 1\n{text}", Path("x.yaml"))
    assert told in str(caught.value)


@pytest.mark.parametrize(("given", "expected"), [("1KiB", 1024), ("2GB", 2 * 10**9), ("64 mib", 64 << 20), (7, 7)])
def test_amounts_of_data(given: str | int, expected: int) -> None:
    """Bytes as numbers or with a unit."""
    assert size(given) == expected


@pytest.mark.parametrize("wrong", ["", "h", "1y", "1e5", "-1", "1 2", "1.2.3s", "٣s", "9" * 20])
def test_quantities_that_are_none(wrong: str) -> None:
    """Other forms are refused."""
    with pytest.raises(ValueError, match="is not a number"):
        seconds(wrong)


def test_every_kind_builds_from_its_example() -> None:
    """The commented example is valid, with every commented setting taken in as well."""
    text = example_text()
    for item in (text, re.sub(r"^        # (\w+:)", r"        \1", text, flags=re.MULTILINE)):
        known = load(item, Path("example.yaml"))
        assert {connector.type for connector in known.clusters[0].connectors} == set(KINDS)
        assert yaml.safe_load(item)["version"] == 1


def test_the_schema_knows_every_kind() -> None:
    """Each type of connector has its part in the JSON Schema, with the words of its docstring."""
    schema = json.loads(schema_text())
    toy = schema["$defs"]["toy"]
    assert toy["description"] == "A store of toys. With a second sentence."
    assert toy["properties"]["labels"]["description"] == "of what"
    assert toy["properties"]["retries"]["description"] == "how often"
    assert toy["properties"]["wait"]["description"] == "for how long"
    assert toy["properties"]["url"]["description"] == "The address, including any path prefix."
    assert toy["required"] == ["type", "url"]
    assert set(KINDS) <= set(schema["$defs"])


def test_what_is_built_is_what_was_checked() -> None:
    """Unset keys are left to the dataclass."""
    model = model_of(ToySettings, "toy").model_validate({"type": "toy", "url": "http://x", "most": "1MiB"})
    given = model.model_dump(exclude_unset=True, exclude={"type"})
    assert build(ToySettings, given) == ToySettings(Endpoint("http://x"), most=1 << 20)


def test_check_tries_every_connector(tmp_path: Path) -> None:
    """Shows which connectors work, what was sent and what to change, as text and as JSON; exits with 1 if one fails."""
    path = tmp_path / "signalbox.yaml"
    lines = [f"      {user}: {{type: toy, url: 'http://x', user: {user}}}" for user in ("well", "broken")]
    path.write_text("\n".join(["version: 1", "clusters:", "  east:", "    connectors:", *lines, ""]))
    told = CliRunner().invoke(app, ["config", "check", "--config", str(path)])
    assert told.exit_code == 1
    assert told.output.splitlines() == [
        f"{path}: 1 cluster, 2 connectors",
        "works  east/well (toy): 3 toys",
        "         sent: /toys?limit=1",
        "FAILS  east/broken (toy): it answered 401; see login",
        "         sent: /toys",
    ]
    told = CliRunner().invoke(app, ["config", "check", "--config", str(path), "--json"])
    assert [json.loads(line)["works"] for line in told.output.splitlines()] == [True, False]
    path.write_text("version: 1\nclusters: {}\n")
    assert CliRunner().invoke(app, ["config", "check", "--config", str(path)]).exit_code == 0


def test_check_never_passes_over_a_file_that_it_did_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a path, else looks at the current folder, and says so; without any file it does not exit with 0."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SIGNALBOX_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    nothing = CliRunner().invoke(app, ["config", "check"])
    assert nothing.exit_code == 2
    assert "neither" in nothing.output
    (tmp_path / "signalbox.yaml").write_text("version: 1\nclustres: {}\n")
    for arguments in ([], ["signalbox.yaml"], ["--config", "signalbox.yaml"]):
        told = CliRunner().invoke(app, ["config", "check", *arguments])
        assert isinstance(told.exception, ConfigError), arguments
        assert "clustres" in str(told.exception)
    (tmp_path / "config" / "signalbox").mkdir(parents=True)
    (tmp_path / "config" / "signalbox" / "signalbox.yaml").write_text("version: 1\n")
    other = CliRunner().invoke(app, ["config", "check"])
    assert (other.exit_code, "not ./signalbox.yaml" in other.output) == (0, True)


@pytest.mark.parametrize(
    ("tenant", "told"),
    [
        ("channels: ['#incidents']", "channels: '#incidents' is not the ID of a channel"),
        ("announce: incidents", "announce: 'incidents' is not the ID of a channel"),
        ("quiet: {channel: U0123456789}", "quiet: channel: 'U0123456789' is not the ID of a channel"),
        ("verbs: {annotate: [oncall]}", "annotate: 'oncall' is neither everyone, guests, nor the ID"),
        ("people: {groups: {hardwre: S0HARDWARE1}}", "there is no owner 'hardwre'"),
    ],
)
def test_names_where_slack_takes_ids_are_refused(tenant: str, told: str) -> None:
    """A name would match no channel and no person, without a word."""
    with pytest.raises(ConfigError, match=re.escape(told)):
        load(f"version: 1\ntenants:\n  default:\n    {tenant}\n", Path("signalbox.yaml"))


def test_the_example_of_slack_is_valid_once_uncommented() -> None:
    """What `config example` shows of Slack can be used as it is."""
    chat = example_text().split("# serve: ", 1)[1]
    lines = [line.removeprefix("# ") for line in f"# serve: {chat}".splitlines()]
    found = load("\n".join(["version: 1", *lines, ""]), Path("signalbox.yaml"))
    assert found.serve.slack is not None
    assert found.tenants_of_chat["default"].channels == ("C0123456789",)


@pytest.mark.parametrize(
    ("bot", "other", "told"),
    [
        ("xapp-1", "xoxb-1", "bot_token is not a bot token (xoxb-…), but an app-level token (xapp-…)"),
        ("xoxp-1", "xapp-1", "bot_token is not a bot token (xoxb-…)"),
        ("xoxb-1", "xoxb-1", "app_token is not an app-level token (xapp-…)"),
    ],
)
def test_tokens_of_the_wrong_kind_are_named_without_a_request(
    bot: str, other: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slack's answer would not say which setting is meant. The address here answers nothing."""
    from bot.slack.service import check

    monkeypatch.setenv("TOKEN_A", bot)
    monkeypatch.setenv("TOKEN_B", other)
    found = check(Slack(Secret("TOKEN_A"), app_token=Secret("TOKEN_B"), api="http://127.0.0.1:1/"))
    assert (found.works, found.words.startswith(told), found.sent) == (False, True, "")


def test_the_whole_files_of_the_documentation_are_valid():
    """A reader copies them."""
    page = (DOCS / "configuration.md").read_text("utf-8")
    files = re.findall(r"```yaml\n(# signalbox\.yaml\n.*?)```", page, re.DOTALL)
    clusters = [cluster for file in files for cluster in load(file, Path("signalbox.yaml")).clusters]
    assert [cluster.name for cluster in clusters] == ["alpha", "beta"]
    assert all(cluster.connectors for cluster in clusters)
