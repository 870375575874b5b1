"""What imports cannot show: kb touches nothing outside, values are frozen, rules are whole. Ruff asks modules for docstrings."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect

import pytest

import kb.model
import kb.report
import kb.rulebase.rule
from tests.support.paths import ROOT

MODULES = sorted((ROOT / "kb").rglob("*.py"))
RULES = sorted(
    path.parent
    for path in (ROOT / "rules").glob("*/*/rule.yaml")
    if "\nstatus: deprecated\n" not in path.read_text("utf-8")
)
OUTSIDE = {"open", "print", "input", "eval", "exec", "compile", "__import__", "breakpoint"}
CLOCK = {"now", "today", "utcnow"}


def called(tree: ast.AST) -> set[str]:
    """The bare names that a module calls, and the methods that would read the clock."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                names.add(node.func.id)
            elif isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK:
                names.add(node.func.attr)
    return names


def test_kb_reads_no_file_and_no_clock() -> None:
    """No module of kb calls what reaches outside or asks for the time. One compiles methods, as dataclasses does."""
    assert len(MODULES) > 200
    kept = {
        path.relative_to(ROOT).as_posix(): called(ast.parse(path.read_text("utf-8"))) & (OUTSIDE | CLOCK)
        for path in MODULES
    }

    assert {path: names for path, names in kept.items() if names} == {"kb/values.py": {"exec"}}


@pytest.mark.parametrize("module", [kb.model, kb.rulebase.rule, kb.report], ids=lambda m: m.__name__)
def test_values_are_frozen(module: object) -> None:
    """Every value of the model is a frozen dataclass."""
    values = [item for _, item in inspect.getmembers(module, dataclasses.is_dataclass) if isinstance(item, type)]
    assert values
    assert all(value.__dataclass_params__.frozen for value in values)  # type: ignore[attr-defined]


def test_every_rule_folder_is_whole() -> None:
    """A rule has its file, material on which it speaks, and material on which it is silent."""
    assert len(RULES) > 200
    assert [folder.name for folder in RULES if len(list((folder / "match").iterdir())) < 2] == []
    assert [folder.name for folder in RULES if not any((folder / "silent").iterdir())] == []


def test_the_schemas_in_docs_are_current() -> None:
    """docs/ describes the rule format and the report as they are now."""
    spec = importlib.util.spec_from_file_location("schemas", ROOT / "docs" / "make" / "schemas.py")
    assert spec is not None
    assert spec.loader is not None
    schemas = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(schemas)
    assert (ROOT / "docs" / "rule.schema.json").read_text("utf-8") == schemas.rule_schema_text()
    assert (ROOT / "docs" / "site.schema.json").read_text("utf-8") == schemas.site_schema_text()
    assert (ROOT / "docs" / "report.schema.json").read_text("utf-8") == schemas.schema_text()
    assert (ROOT / "docs" / "config.schema.json").read_text("utf-8") == schemas.config_schema_text()
    assert (ROOT / "docs" / "examples" / "signalbox.yaml").read_text("utf-8") == schemas.example_text()
