"""Writes the JSON Schemas of docs/: reports, rules, site overlays, signalbox.yaml with its example. A test says whether they are current.

Run as: python docs/make/schemas.py
"""

from __future__ import annotations

import json
from pathlib import Path

from bot.config.docs import example_text
from bot.config.docs import schema_text as config_schema_text
from bot.render.report_json import schema_text
from bot.rulebase.loader import knowledge
from kb.rulebase.schema.json_schema import rule_json_schema, site_json_schema

DOCS = Path(__file__).resolve().parent.parent


def rule_schema_text() -> str:
    """The schema of rule.yaml with the words of today's vocabulary."""
    book = knowledge().rulebook
    return json.dumps(rule_json_schema(sorted(book.faults), sorted(book.actions)), indent=2, sort_keys=True) + "\n"


def site_schema_text() -> str:
    """The schema of site.yaml."""
    return json.dumps(site_json_schema(), indent=2, sort_keys=True) + "\n"


def main() -> None:
    """Write them all."""
    (DOCS / "site.schema.json").write_text(site_schema_text(), "utf-8")
    (DOCS / "config.schema.json").write_text(config_schema_text(), "utf-8")
    (DOCS / "examples" / "signalbox.yaml").write_text(example_text(), "utf-8")
    (DOCS / "report.schema.json").write_text(schema_text(), "utf-8")
    (DOCS / "rule.schema.json").write_text(rule_schema_text(), "utf-8")


if __name__ == "__main__":
    main()
