"""What a file of RBAC objects grants, and what requests to the API server use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml


def rules_of(manifest: Path) -> set[tuple[str, str, str]]:
    """Verb, group and resource of all rules of a file."""
    documents = [item for item in yaml.safe_load_all(manifest.read_text()) if item]
    return {
        (verb, group, resource)
        for document in documents
        for rule in document.get("rules", ())
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def used_by(paths: Iterable[str]) -> set[tuple[str, str, str]]:
    """Verb, group and resource of requests."""
    found = set()
    for path in paths:
        words = path.split("/")[1:]
        if words == ["apis"]:
            continue  # open to every account
        group = "" if words[0] == "api" else words[1]
        rest = words[2 if words[0] == "api" else 3 :]
        if rest[0] == "namespaces":
            rest = rest[2:]
        found.add(("list" if len(rest) == 1 else "get", group, "/".join([rest[0], *rest[2:]])))
    return found
