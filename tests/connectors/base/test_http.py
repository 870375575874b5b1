"""The HTTP client: limits, retries, redirects, logins; tested against real sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from connectors.base.budget import Budget, Load
from connectors.base.contract import Deadline, SourceFailed, safe_name
from connectors.base.http import Endpoint, HttpClient, HttpRequest, Login, url_path
from connectors.base.secret import Secret
from tests.doubles.kubelet import Kubelet, kubelet_serving
from tests.doubles.listening import Answering, listening
from tests.support.certificates import certificate
from tests.support.contract.hostile import Fault, Hostile, hostile


def echo() -> AbstractContextManager[str]:
    """A server that answers with what it was sent."""

    class Handler(Answering):
        def reply(self) -> None:
            body = self.body()
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/here")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            told = {
                "method": self.command,
                "path": self.path,
                "body": body.decode(),
                "headers": self.lowered(),
            }
            self.send(200, json.dumps(told).encode(), "application/json")

    return listening(Handler)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The echo's address."""
    with echo() as address:
        yield address


@pytest.fixture
def server(url: str) -> Iterator[Hostile]:
    """A hostile server in front of the echo."""
    with hostile(url) as one:
        yield one


def soon() -> Deadline:
    """Enough time."""
    return Deadline.within(60)


def failure(server: Hostile, fault: Fault, seconds: float = 10.0, **options: int) -> SourceFailed:
    """How each fault is reported."""
    server.fault = fault
    with pytest.raises(SourceFailed) as caught:
        HttpClient(Endpoint(server.url)).json(HttpRequest("/x"), Deadline.within(seconds), **options)
    return caught.value


def test_parameters_are_quoted(url: str) -> None:
    """A parameter's value cannot become another parameter; None is left out."""
    told = HttpClient(Endpoint(url + "/base/")).json(HttpRequest("/x", {"query": 'a&b=c#"é\n', "step": None}), soon())
    assert told["path"] == "/base/x?query=a%26b%3Dc%23%22%C3%A9%0A"
    assert told["method"] == "GET"


def test_a_body_is_sent_as_json(url: str) -> None:
    """Values are sent as JSON, a form as a form, both by POST."""
    told = HttpClient(Endpoint(url)).json(HttpRequest("/x", body={"a": ["é"]}), soon())
    assert (told["method"], json.loads(told["body"])) == ("POST", {"a": ["é"]})
    assert told["headers"]["content-type"] == "application/json"
    told = HttpClient(Endpoint(url)).json(HttpRequest("/x", form={"a": "b&c"}), soon())
    assert (told["method"], told["body"]) == ("POST", "a=b%26c")


def test_logins(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token from a file, a user with a password from the environment, headers of the system's own; read at each call."""
    token = tmp_path / "token"
    token.write_text("t0\n")
    client = HttpClient(Endpoint(url, Login(token=Secret(file=str(token)))))
    assert client.json(HttpRequest("/"), soon())["headers"]["authorization"] == "Bearer t0"
    token.write_text("t1")
    assert client.json(HttpRequest("/"), soon())["headers"]["authorization"] == "Bearer t1"
    monkeypatch.setenv("SB_PASSWORD", "secret")
    login = Login(user="u", password=Secret(env="SB_PASSWORD"), headers={"X-Scope-OrgID": "team"})
    headers = HttpClient(Endpoint(url, login)).json(HttpRequest("/"), soon())["headers"]
    assert (headers["authorization"], headers["x-scope-orgid"]) == ("Basic dTpzZWNyZXQ=", "team")


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read"), ("", "is empty"), ("a\nb", "not a single line"), ("a\x00", "not a")]
)
def test_secrets_that_are_none(url: str, tmp_path: Path, content: str | None, said: str) -> None:
    """A secret that is missing, empty or not a single line is reported before anything is sent."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SourceFailed, match=said) as caught:
        HttpClient(Endpoint(url, Login(token=Secret(file=str(path))))).json(HttpRequest("/"), soon())
    assert caught.value.kind == "not_configured"


def test_a_secret_is_named_once() -> None:
    """By its variable or by its file, exactly one of them."""
    for wrong in ({}, {"env": "A", "file": "b"}):
        with pytest.raises(ValueError, match="exactly one"):
            Secret(**wrong)


@pytest.mark.parametrize(
    "address", ["ftp://x", "x:80", "http://u:p@x", "http://x/?q=1", "http://x/#a", "http://", "file:///etc/passwd"]
)
def test_addresses_that_are_none(address: str) -> None:
    """Other schemes, credentials in the address and queries are refused."""
    with pytest.raises(ValueError, match=r"address"):
        Endpoint(address)


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("refuse_401", "unauthorised", "401"),
        ("refuse_403", "forbidden", "privileges"),
        ("refuse_404", "missing", "404"),
        ("limit_always", "rate_limited", "429"),
        ("error_always", "server_error", "oh <b>no</b> [31m"),
        ("broken_json", "bad_answer", "not JSON"),
        ("cut", "bad_answer", "ended early"),
        ("elsewhere", "redirected", "169.254.169.254"),
        ("no_http", "bad_answer", "HTTP"),
    ],
)
def test_failures_have_kinds(server: Hostile, fault: Fault, kind: str, said: str) -> None:
    """Each failure has its kind and message, names the request, and contains no control characters."""
    failed = failure(server, fault)
    assert failed.kind == kind
    assert said in str(failed)
    assert failed.asked == "/x"
    assert str(failed).isprintable()


def test_what_never_ends_is_left_at_the_deadline(server: Hostile) -> None:
    """A silent or dripping server is abandoned in time; an endless answer at the limit."""
    for fault in ("silent", "drip"):
        began = time.monotonic()
        assert failure(server, fault, 0.5).kind == "timeout"
        assert time.monotonic() - began < 20
    assert failure(server, "huge", largest=1 << 20).kind == "too_large"


def test_it_tries_again(server: Hostile) -> None:
    """429 with Retry-After is waited for as long as requested; 500 is retried; 404 is not."""
    waits: list[float] = []
    server.fault = "limit_then_well"
    HttpClient(Endpoint(server.url), sleep=waits.append).json(HttpRequest("/x"), soon())
    [wait] = waits
    assert 1.0 <= wait <= 1.25
    server.seen.clear()
    waits.clear()
    server.fault = "error_always"
    with pytest.raises(SourceFailed):
        HttpClient(Endpoint(server.url), sleep=waits.append).json(HttpRequest("/x"), soon())
    assert (len(server.seen), len(waits)) == (4, 3)
    server.seen.clear()
    failure(server, "refuse_404")
    assert len(server.seen) == 1


def test_redirects_within_the_host_are_followed(url: str) -> None:
    """A redirect on the same host is followed."""
    assert HttpClient(Endpoint(url)).json(HttpRequest("/moved"), soon())["path"] == "/here"


def test_paths_cannot_climb() -> None:
    """A part of a path is quoted completely; dots alone are refused."""
    assert url_path("api", "a/b?c#d", "é") == "/api/a%2Fb%3Fc%23d/%C3%A9"
    for wrong in ("", ".", ".."):
        with pytest.raises(SourceFailed, match="not a path"):
            url_path("api", wrong)


def test_a_budget_spreads_calls() -> None:
    """A minute's requests may come at once; the next waits its turn, or fails if the deadline is sooner."""
    now = [0.0]
    budget = Budget(Load(requests=2, bytes=100, calls=1), clock=lambda: now[0])
    late = Deadline(0.0, clock=lambda: -0.5)
    for _ in range(2):
        with budget.call(late):
            pass
    with pytest.raises(SourceFailed, match="2 requests") as caught, budget.call(late):
        pass
    assert caught.value.kind == "over_budget"
    now[0] = 30.0
    with budget.call(late):
        budget.read(1000)
    now[0] = 60.0
    with pytest.raises(SourceFailed, match="bytes"), budget.call(late):
        pass


def test_a_budget_bounds_calls_at_once() -> None:
    """If all connections are in use, one more call fails at its deadline."""
    budget = Budget(Load(calls=1))
    with (
        budget.call(soon()),
        pytest.raises(SourceFailed, match="concurrent calls"),
        budget.call(Deadline.within(0.05)),
    ):
        pass


def test_lines_are_cut_out_of_pieces(server: Hostile) -> None:
    """A streamed body arrives as lines, including a last one without an end; overlong ones are cut."""
    with HttpClient(Endpoint(server.url)).stream(HttpRequest("/x"), soon()) as answer:
        [line] = answer.lines()
    assert json.loads(line)["path"] == "/x"
    with HttpClient(Endpoint(server.url)).stream(HttpRequest("/x"), soon()) as answer:
        assert list(answer.lines(longest=6)) == [b'{"meth']


def test_safe_names() -> None:
    """Any name becomes one part of a path, and different names stay different."""
    assert safe_name("rank-3") == "rank-3"
    names = ["../x", "..", "", "a/b", "a_b", "a b", "é", "x" * 500, "x" * 501]
    safe = [safe_name(name) for name in names]
    assert len(set(safe)) == len(names)
    assert not [text for text in safe if "/" in text or text.startswith(".") or len(text) > 100 or not text.isascii()]


def test_a_call_that_is_sent_once(server: Hostile) -> None:
    """The answer is returned for any status, with headers; nothing is retried, and a truncated answer is an error."""
    client = HttpClient(Endpoint(server.url))
    assert client.once(HttpRequest("/x"), soon()).status == 200
    cases: list[tuple[Fault, int]] = [("refuse_404", 404), ("limit_always", 429), ("error_always", 500)]
    for fault, status in cases:
        server.fault = fault
        before = len(server.seen)
        answer = client.once(HttpRequest("/x", body={"a": 1}), soon())
        assert (answer.status, len(server.seen) - before) == (status, 1)
    server.fault = "cut"
    with pytest.raises(SourceFailed, match="ended early"):
        client.once(HttpRequest("/x"), soon())
    server.fault = "elsewhere"
    with pytest.raises(SourceFailed, match="another host"):
        client.once(HttpRequest("/x"), soon())


def test_a_secret_of_several_lines(tmp_path: Path) -> None:
    """A private key has many lines; it is refused as the value of a header."""
    (tmp_path / "key").write_text("-----BEGIN-----\nabc\n-----END-----\n")
    secret = Secret(file=str(tmp_path / "key"))
    assert secret.block() == "-----BEGIN-----\nabc\n-----END-----"
    with pytest.raises(SourceFailed, match="is not a single line"):
        secret.value()


def test_a_certificate_of_another_authority(tmp_path: Path) -> None:
    """A server whose certificate the given CA did not sign is not talked to; the message says which setting to check."""
    for name in ("server", "other"):
        certificate(tmp_path / f"{name}.pem", "127.0.0.1")
    with kubelet_serving(Kubelet(), tmp_path / "server.pem") as port:
        ours, others = (
            HttpClient(
                Endpoint(f"https://127.0.0.1:{port}", ca_file=str(tmp_path / f"{name}.pem")), sleep=lambda _: None
            )
            for name in ("server", "other")
        )
        assert ours.get(HttpRequest("/containerLogs/ml/pod/main"), Deadline.within(60)).status == 200
        with pytest.raises(SourceFailed, match=r"certificate is not trusted: .*self.signed.*; check ca_file") as failed:
            others.get(HttpRequest("/containerLogs/ml/pod/main"), Deadline.within(60))
    assert failed.value.kind == "unreachable"
