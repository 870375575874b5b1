"""The weekly digest: its rows, charts, text, page and files, and its schedule."""
