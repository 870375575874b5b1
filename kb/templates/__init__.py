"""Log templates: lines with their variables masked, counted in bounded tables that can be merged in any order."""
