"""The steps of a run: its training series, how they are counted, and tests on a series. Knows no log's other lines, and no rule."""
