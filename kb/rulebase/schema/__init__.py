"""Pydantic models of rule.yaml, faults.yaml, actions.yaml and site.yaml, and their JSON Schema for editors.

This is the only package that imports pydantic, and a start from a cached rulebook never loads it. Conditions are
checked by kb.rulebase.conditions, names across files by kb.rulebase.rulebook.
"""
