"""What rule.yaml, faults.yaml, actions.yaml and site.yaml hold, as pydantic models, and their JSON Schema for editors.

The only package that imports pydantic: a start from a cached rulebook never comes here. A condition is checked by
kb.rulebase.conditions, names across files by kb.rulebase.rulebook.
"""
