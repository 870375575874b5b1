"""Runs readers over a text the way a scanner does: triggers by line, windows of the size each reader asks for."""

import re


def scan(readers, text):
    """All structures of the readers in the text, with offsets counted from its start, in the order of readers."""
    data = text if isinstance(text, bytes) else text.encode()
    found = []
    for reader in readers:
        trigger = re.compile(reader.trigger.encode(), re.MULTILINE)
        for start in sorted({data.rfind(b"\n", 0, hit.start()) + 1 for hit in trigger.finditer(data)}):
            first = max(0, start - reader.before)
            first = data.rfind(b"\n", 0, first) + 1
            window = data[first : start + reader.after]
            found += [(reader.name, first, structure) for structure in reader.read(window, start - first)]
    return found


def structures(readers, text, name=None):
    """Structures alone, of one reader where it is named; offsets counted from the text's start."""
    return [_shifted(structure, first) for reader, first, structure in scan(readers, text) if name in (None, reader)]


def _shifted(structure, by):
    from dataclasses import replace

    return replace(structure, offset=structure.offset + by, end=structure.end + by)


def one(readers, text, name=None):
    """The only structure."""
    (structure,) = structures(readers, text, name)
    return structure
