"""What editors and people read of signalbox.yaml: its JSON Schema and a commented example, both made of the settings."""

from __future__ import annotations

import json
import re
from typing import Any

from bot.config.connectors import KINDS
from bot.config.file import ConfigFile
from bot.config.schema import model_of
from bot.config.settings import Collect, Retention

_EXAMPLE = re.compile(r" as `([^`]+)`")
_SERVER = "https://server.example"
_HEAD = """\
# signalbox.yaml: where the evidence of your jobs is. `signalbox config check` tries all of it.
# Put it where SIGNALBOX_CONFIG says, or into the configuration folder of your user; name any other place with --config. Secrets are never written here:
# each is named by an environment variable (env:) or a file (file:).
version: 1

# collect:                # limits of one collection; these are the defaults
"""

_SPAN = "from={start_ms}&to={end_ms}"
_LINKS = (
    ("Grafana", f"https://grafana.example/d/gpu-nodes?var-job={{job}}&var-node={{node}}&{_SPAN}"),
    ("Loki", f"https://grafana.example/a/grafana-lokiexplore-app/explore/job/{{job}}/logs?{_SPAN}"),
    (
        "Kibana",
        "https://kibana.example/app/discover#/?_g=(time:(from:'{start_iso}',to:'{end_iso}'))&_a=(query:(query:'{job}'))",
    ),
    ("W&B", "https://wandb.example/my-team/my-project?search={name}"),
    ("Slurm", "https://ondemand.example/pun/sys/dashboard/activejobs?jobid={job}&cluster={cluster}"),
    ("Kubernetes", "https://console.example/pods?labelSelector=job-name%3D{name}"),
)
_RULES = (
    "# rules:                  # where rules come from and go to: docs/rule-pull-requests.md",
    f"#   source: {{git: {_SERVER}/rules.git, ref: main, folder: rules}}",
    "#   pull_requests: {backend: github, repository: owner/name, token: {env: NAME_OF_VARIABLE}}",
)
_CHAT = (
    "# serve:                  # signalbox serve, here with Slack: docs/slack-setup.md explains the steps and all settings",
    "#   slack:",
    "#     bot_token: {env: SLACK_BOT_TOKEN}   # xoxb-…",
    "#     app_token: {env: SLACK_APP_TOKEN}   # xapp-…",
    "# tenants:",
    "#   default:",
    "#     channels: [C0123456789]             # where it can be used: IDs, not names",
    "#     announce: C0123456789               # where failures are posted automatically",
    "#     verbs: {annotate: [S0ONCALL123]}    # who may record causes: everyone, channels (C…), user groups (S…), users (U…)",
)


def schema_text() -> str:
    """JSON Schema (draft 2020-12) of signalbox.yaml."""
    schema = ConfigFile.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "signalbox.yaml"
    kinds = []
    for name, kind in sorted(KINDS.items()):
        part = model_of(kind.settings_class(), name).model_json_schema(ref_template=f"#/$defs/{name}-{{model}}")
        for inner, body in part.pop("$defs", {}).items():
            schema["$defs"][f"{name}-{inner}"] = body
        schema["$defs"][name] = part
        kinds.append({"$ref": f"#/$defs/{name}"})
    schema["$defs"]["ClusterFile"]["properties"]["connectors"]["additionalProperties"] = {"oneOf": kinds}
    return json.dumps(_plain(schema), indent=2, sort_keys=True) + "\n"


def connector_example(kind: str) -> str:
    """A short signalbox.yaml with one connector of this type, a key of `KINDS`."""
    schema = model_of(KINDS[kind].settings_class(), kind).model_json_schema()
    lines = [*_HEAD.splitlines()[:-2], "clusters:", "  my-cluster:", "    connectors:", *_connector(kind, schema)]
    return "\n".join(lines) + "\n"


def example_text() -> str:
    """A commented example: every type of connector with all its settings."""
    lines = [_HEAD.rstrip(), *_defaults(Collect())]
    lines += ["", "# retention:              # how long evidence and answers are kept; these are the defaults"]
    lines += _defaults(Retention())
    lines += [
        "",
        "clusters:",
        "  my-cluster:",
        "    # tenant: my-team     # the owner; others do not see it",
        "    connectors:",
    ]
    for name, kind in sorted(KINDS.items()):
        lines += _connector(name, model_of(kind.settings_class(), name).model_json_schema())
    lines += ["    # topology:           # the location of nodes, if the scheduler does not report it"]
    lines += ["    #   node-001: {rack: r1, leaf: leaf-3, rail: '0', nvlink_domain: d1}"]
    lines += ["    # links:              # shown with each answer, if all their placeholders are known"]
    lines += [f"    #   {name}: {link}" for name, link in _LINKS]
    lines += ["", *_RULES, "", *_CHAT]
    return "\n".join(lines) + "\n"


def _connector(name: str, schema: dict[str, Any]) -> list[str]:
    lines = [f"      {name}:", f"        type: {name}", f"        # {_about(schema)}"]
    must = set(schema.get("required", ()))
    for key, item in schema["properties"].items():
        if key == "type":
            continue
        mark = "" if key in must else "# "
        about = _about(item)
        told = _EXAMPLE.search(about) if key in must else None  # of what must be given, the example that it names
        value = _SERVER if key == "url" else told[1] if told else _form(item, schema)
        lines.append(f"        {mark}{key}: {value}{f'  # {about}' if about else ''}")
    return lines


def _form(item: dict[str, Any], schema: dict[str, Any]) -> str:
    """A value of the right form."""
    kinds = item.get("anyOf", [item])
    first: dict[str, Any] = next((kind for kind in kinds if kind.get("type") != "null"), {})
    if "$ref" in first:
        first = schema["$defs"][first["$ref"].rsplit("/", 1)[-1]]
    if first.get("title") == "Secret" or set(first.get("properties", ())) == {"env", "file"}:
        return "{env: NAME_OF_VARIABLE}"
    if "properties" in first:
        parts = first["properties"].items()
        inner = (f"{key}: {_SERVER if key == 'url' else _form(value, schema)}" for key, value in parts)
        return "{" + ", ".join(inner) + "}"
    forms = {"string": "text", "integer": "1", "number": "1.0", "boolean": "false", "array": "[]", "object": "{}"}
    return str(first.get("const") or (first.get("enum") or [forms.get(str(first.get("type")), "text")])[0])


def _about(item: dict[str, Any]) -> str:
    return str(item.get("description", "")).split("\n\n", maxsplit=1)[0]


def _defaults(settings: Collect | Retention) -> list[str]:
    """A part whose settings all have defaults, as comments."""
    kind: type = type(settings)
    told = model_of(kind).model_json_schema()["properties"]
    lines = []
    for name, item in told.items():
        value = getattr(settings, name)
        written = f"# {name}: /shared/folder" if value is None else f"{name}: {_quantity(name, value)}"
        lines.append(f"#   {f'{written}  ':<22}# {_about(item)}")
    return lines


def _quantity(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if name in ("bytes", "keep"):
        return f"{int(value) >> 20}MiB"
    return f"{value / 86400:g}d" if value >= 86400 else f"{value:g}s"


def _plain(schema: Any) -> Any:
    """Without the titles that pydantic makes of names."""
    if isinstance(schema, dict):
        return {
            key: _plain(value)
            for key, value in schema.items()
            if key != "title" or not isinstance(value, str) or "." in value
        }
    return [_plain(item) for item in schema] if isinstance(schema, list) else schema
