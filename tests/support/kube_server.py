"""A real Kubernetes API server for tests, from the binary or kubeconfig in SIGNALBOX_TEST_KUBERNETES.

A kube-apiserver binary is started with an etcd (from PATH), RBAC and tokens, on 127.0.0.1 and in a temporary folder; no
controller and no scheduler run. There are no real nodes: objects of nodes lead to a stand-in for the kubelet's log
endpoint, so that proxying, refusals and errors are those of the real server. A kubeconfig is used as it is, with an
account that may do everything; what the tests create there stays in namespaces of their own, which are deleted.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from connectors.base.budget import Load
from connectors.kubernetes.auth import from_kubeconfig
from kb.parsers.schedulers.workloads import KINDS
from tests.doubles.kubelet import Kubelet, kubelet_serving
from tests.doubles.kubernetes import Cluster
from tests.doubles.listening import Answering, listening
from tests.support.certificates import certificate
from tests.support.ports import kept_ports

VARIABLE = "SIGNALBOX_TEST_KUBERNETES"
ADMIN = "administrator-of-the-tests"
ISSUER = "https://signalbox.test"
READY = 180.0  # seconds
ACCOUNT = ("signalbox", "signalbox")  # namespace and name of the service account in deploy/kubernetes
PLURALS = {kind.kind: kind.plural for kind in KINDS if kind.group != "batch.volcano.sh"} | {
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "PriorityLevelConfiguration": "prioritylevelconfigurations",
    "FlowSchema": "flowschemas",
}
WIDE = {"Namespace", "Node", "ClusterRole", "ClusterRoleBinding", "PriorityLevelConfiguration", "FlowSchema"}


def named() -> bool:
    """Return whether a server is named at all."""
    return bool(os.environ.get(VARIABLE))


def given() -> str:
    """Return the binary or kubeconfig; skip and say why without one."""
    found = os.environ.get(VARIABLE, "")
    if not found:
        pytest.skip(f"{VARIABLE} names no Kubernetes API server (a kube-apiserver binary, or a kubeconfig)")
    if is_binary(found):
        if shutil.which("etcd") is None:
            pytest.skip(f"{VARIABLE} is a binary, and there is no etcd in PATH to start with it")
    elif not Path(found).is_file():
        pytest.skip(f"{VARIABLE}: {found} is neither an executable nor a kubeconfig")
    return found


def is_binary(name: str) -> bool:
    """Return whether this is a program, not a kubeconfig."""
    return shutil.which(name) is not None


@dataclass(slots=True)
class KubeServer:
    """A running server, asked as its administrator. `ca`: a file with its certificate; `etcd`: its address, if it is ours."""

    url: str
    ca: Path | None
    folder: Path
    token: str = ADMIN
    context: ssl.SSLContext | None = None
    etcd: str = ""
    kubelet: Kubelet = field(default_factory=Kubelet)
    kubelet_address: tuple[str, int] = ("127.0.0.1", 0)
    spaces: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, body: object = None, token: str | None = None) -> Any:
        """Send a request and return the JSON of the response; a refusal is an AssertionError with its text."""
        secret = self.token if token is None else token
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {secret}"} if secret else {})}
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, headers, method=method)  # noqa: S310 - our own server
        try:
            with urlopen(request, timeout=60, context=self.context) as response:  # noqa: S310 - our own server
                return json.loads(response.read())
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()[:1500].decode()}") from error

    def metric(self, name: str, label: str) -> float:
        """Return the sum of a metric of the server over all series with this text in their labels."""
        request = Request(f"{self.url}/metrics", headers={"Authorization": f"Bearer {self.token}"})  # noqa: S310
        with urlopen(request, timeout=60, context=self.context) as response:  # noqa: S310 - our own server
            lines = response.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{") and label in line)

    def create(self, item: Mapping[str, Any]) -> Any:
        """Create an object, then write its status; one that is there already is left as it is."""
        wanted = {key: value for key, value in item.items() if key != "status"}
        path = path_of(item)
        try:
            made = self.ask("POST", path, wanted)
        except AssertionError as refused:
            if "AlreadyExists" not in str(refused):
                raise
            return None
        meta = made["metadata"]
        if item.get("status") and item["kind"] != "Event":
            made = self.ask("PUT", f"{path}/{meta['name']}/status", {**made, "status": item["status"]})
        return made

    def apply(self, manifest: Path, namespace: str | None = None) -> None:
        """Create the RBAC objects of a file. `namespace`: in place of that in a Role's file."""
        for document in yaml.safe_load_all(manifest.read_text()):
            text = json.dumps(document)
            if namespace is not None:
                text = text.replace('"ml"', json.dumps(namespace))
            item = json.loads(text)
            if item["metadata"].get("namespace"):
                self.space(item["metadata"]["namespace"])
            self.create(item)

    def space(self, name: str) -> str:
        """Create a namespace, if there is none of this name."""
        if self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}) is not None:
            self.spaces.append(name)
        return name

    def node(self, item: Mapping[str, Any], *, dead: bool = False) -> None:
        """Create a node that leads to the stand-in for its kubelet; a dead one to a port where nothing listens."""
        address, port = self.kubelet_address
        status = {
            **item["status"],
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 9 if dead else port}},
        }
        if self.create({**item, "status": status}) is not None:
            self.nodes.append(item["metadata"]["name"])

    def account_token(self, namespace: str = ACCOUNT[0], name: str = ACCOUNT[1]) -> str:
        """Return a token of a service account, as a pod gets one."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str(self.ask("POST", path, body)["status"]["token"])

    def expired_token(self) -> str:
        """Return a token of the service account that expired an hour ago, signed with the server's key."""
        now = int(time.time())
        who = f"system:serviceaccount:{ACCOUNT[0]}:{ACCOUNT[1]}"
        claims = {"iss": ISSUER, "aud": [ISSUER], "sub": who, "iat": now - 7200, "nbf": now - 7200, "exp": now - 3600}
        claims["kubernetes.io"] = {
            "namespace": ACCOUNT[0],
            "serviceaccount": {"name": ACCOUNT[1], "uid": "0"},
        }
        text = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
        key = serialization.load_pem_private_key((self.folder / "accounts.key").read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return f"{text}.{_base64(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def compact(self) -> None:
        """Forget all old revisions in etcd: every continue token of a list has expired then."""
        if not self.etcd:
            pytest.skip(f"{VARIABLE} is a kubeconfig: its etcd cannot be compacted")
        put = {"key": _base64(b"signalbox", safe=False), "value": ""}
        revision = _post(f"{self.etcd}/v3/kv/put", put)["header"]["revision"]
        _post(f"{self.etcd}/v3/kv/compaction", {"revision": revision, "physical": True})

    def left(self) -> None:
        """Delete what the tests created in a server that is not ours."""
        for path in (*(f"namespaces/{name}" for name in self.spaces), *(f"nodes/{name}" for name in self.nodes)):
            self.ask("DELETE", f"/api/v1/{path}")


@contextmanager
def without_tls(server: KubeServer) -> Iterator[str]:
    """Yield a plain HTTP address that passes requests on, for whatever stands between a client and the server in tests."""

    class Handler(Answering):
        methods = ("GET", "POST", "PUT", "DELETE")

        def reply(self) -> None:
            """Pass the request on."""
            parts = urlsplit(server.url)
            connection = HTTPSConnection(parts.hostname or "", parts.port, timeout=60, context=server.context)
            kept = {name: value for name, value in self.lowered().items() if name not in {"host", "connection"}}
            with suppress(OSError, HTTPException):
                connection.request(self.command, self.path, self.body() or None, kept)
                response = connection.getresponse()
                passed = {name: value for name, value in response.getheaders() if name == "Retry-After"}
                data = response.read()
                self.send(response.status, data, response.getheader("Content-Type") or "", passed)
            connection.close()

    with listening(Handler) as url:
        yield url


@dataclass(slots=True)
class Loaded:
    """A cluster of the double in the real server: its namespace, and how names were changed so that nothing else has them."""

    namespace: str
    mark: str

    def there(self, text: str) -> str:
        """Return text of the double as the real server has it."""
        text = re.sub(r"(?<![\w-])ml(?=[\"/]|\Z)", self.namespace, text)
        text = re.sub(r"\bnode-(?=[0-9a]\d?\b)", f"node-{self.mark}-", text)
        return text.replace("llm-7b", f"llm-{self.mark}")

    def here(self, text: str) -> str:
        """Return text of the real server as the double has it."""
        text = text.replace(f"llm-{self.mark}", "llm-7b").replace(f"node-{self.mark}-", "node-")
        return text.replace(self.namespace, "ml")


def load(server: KubeServer, cluster: Cluster, *, namespace: str = "", mark: str = "") -> Loaded:
    """Create the objects of a double, in a namespace of their own, with the references that the server's own uids make."""
    mark = mark or uuid4().hex[:6]
    loaded = Loaded(server.space(namespace or f"ml-{mark}"), mark)
    uids: dict[str, str] = {}
    order = ["Pod", "Lease", "Event"]
    items = [item for listed in cluster.objects.values() for item in listed]
    for item in sorted(items, key=lambda item: order.index(item["kind"]) if item["kind"] in order else -1):
        text = loaded.there(json.dumps(item))
        for old, new in uids.items():
            text = text.replace(json.dumps(old), json.dumps(new))
        wanted = json.loads(text)
        meta = wanted["metadata"]
        fake, meta["managedFields"] = meta.pop("uid", ""), []
        if item["kind"] == "Node":
            server.node(wanted, dead=item["metadata"]["name"] in cluster.dead_nodes)
        elif made := server.create(wanted):
            uids[fake] = made["metadata"]["uid"]
    for (space, pod, container, which), lines in cluster.kubelet.logs.items():
        key = loaded.namespace if space == "ml" else space, loaded.there(pod), container, which
        server.kubelet.logs[key] = lines
    server.kubelet.zones.update({loaded.there(pod): hours for pod, hours in cluster.kubelet.zones.items()})
    server.kubelet.odd_logs.update({loaded.there(pod): text for pod, text in cluster.kubelet.odd_logs.items()})
    return loaded


def path_of(item: Mapping[str, Any]) -> str:
    """Return the path where objects of this kind and namespace are created."""
    version, kind = item["apiVersion"], item["kind"]
    plural = "jobs" if version.startswith("batch.volcano") else PLURALS.get(kind, f"{kind.lower()}s")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    space = item["metadata"].get("namespace")
    return f"{root}/{plural}" if kind in WIDE else f"{root}/namespaces/{space}/{plural}"


@contextmanager
def running(folder: Path) -> Iterator[KubeServer]:
    """Yield a server with the kinds of workloads that the connector knows, and with a stand-in for its kubelets."""
    found = given()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if is_binary(found):
            server = stack.enter_context(_started(found, folder))
            address = "127.0.0.1"
        else:
            server = _of_kubeconfig(found, folder)
            address = _own_address(server.url)
            stack.callback(server.left)
        certificate(folder / "kubelet.pem", address)
        port = stack.enter_context(kubelet_serving(server.kubelet, folder / "kubelet.pem", address))
        server.kubelet_address = address, port
        _define_kinds(server)
        yield server


@contextmanager
def _started(binary: str, folder: Path) -> Iterator[KubeServer]:
    with kept_ports("port", "client", "peer") as ports:
        yield from _running(binary, folder, **ports)


def _running(binary: str, folder: Path, port: int, client: int, peer: int) -> Iterator[KubeServer]:
    etcd = f"http://127.0.0.1:{client}"
    key = certificate(folder / "server.pem", "127.0.0.1")
    (folder / "accounts.key").write_bytes(key)
    (folder / "tokens.csv").write_text(f'{ADMIN},admin,admin,"system:masters"\n')
    store = [
        *("etcd", "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "error"),
        *("--listen-client-urls", etcd, "--advertise-client-urls", etcd),
        *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
    ]
    words = [
        binary,
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--tls-cert-file={folder / 'server.pem'}",
        f"--tls-private-key-file={folder / 'server.pem'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-signing-key-file={folder / 'accounts.key'}",
        f"--service-account-key-file={folder / 'accounts.key'}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged",
    ]
    context = ssl.create_default_context(cafile=str(folder / "server.pem"))
    server = KubeServer(f"https://127.0.0.1:{port}", folder / "server.pem", folder, context=context, etcd=etcd)
    with (folder / "server.log").open("ab") as log:
        held = [subprocess.Popen(store, cwd=folder, stdout=subprocess.DEVNULL, stderr=log)]
        try:
            held.append(subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=log))
            _wait(server, held)
            yield server
        finally:
            for process in reversed(held):
                process.kill()
                process.wait(20)


def _of_kubeconfig(path: str, folder: Path) -> KubeServer:
    endpoint = from_kubeconfig(path, None, Load(), (), folder)
    context = ssl.create_default_context(cafile=endpoint.ca_file)
    if endpoint.client_cert:
        context.load_cert_chain(endpoint.client_cert)
    token = endpoint.login.token.value() if endpoint.login.token else ""
    ca = Path(endpoint.ca_file) if endpoint.ca_file else None
    return KubeServer(endpoint.url.rstrip("/"), ca, folder, token, context)


def _define_kinds(server: KubeServer) -> None:
    """Define the kinds of workloads that are not built in, with any fields, and wait until they are served."""
    wanted = [(kind, version) for kind in KINDS if kind.group != "batch" for version in kind.versions[-1:]]
    for kind, version in wanted:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {
            "plural": kind.plural,
            "singular": kind.kind.lower(),
            "kind": kind.kind,
            "listKind": f"{kind.kind}List",
        }
        spec = {
            "group": kind.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [{**served, "subresources": {"status": {}}}],
        }
        body = {"metadata": {"name": f"{kind.plural}.{kind.group}"}, "spec": spec}
        item = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **body}
        try:
            server.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", item)
        except AssertionError as refused:
            if "AlreadyExists" not in str(refused):
                raise
    end = time.monotonic() + READY
    for kind, version in wanted:
        while time.monotonic() < end:
            try:
                server.ask("GET", f"/apis/{kind.group}/{version}/{kind.plural}?limit=1")
                break
            except AssertionError:
                time.sleep(0.1)


def _post(url: str, body: object) -> Any:
    request = Request(url, json.dumps(body).encode(), method="POST")  # noqa: S310 - our own server
    with urlopen(request, timeout=20) as response:  # noqa: S310 - our own server
        return json.loads(response.read())


def _base64(data: bytes, *, safe: bool = True) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=") if safe else base64.b64encode(data).decode()


def _own_address(url: str) -> str:
    """Return this machine's address towards a server."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname or "", parts.port or 443))
        return str(probe.getsockname()[0])


def _wait(server: KubeServer, processes: Iterable[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + READY
    while time.monotonic() < end and all(process.poll() is None for process in processes):
        try:
            with urlopen(Request(f"{server.url}/readyz"), timeout=5, context=server.context) as ready:  # noqa: S310
                if ready.status == 200:
                    return
        except (URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"the API server did not become ready:\n{(server.folder / 'server.log').read_text()[-3000:]}")
