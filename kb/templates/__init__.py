"""Log templates: lines with their variables masked, counted in tables that are bounded and merge in any order."""
