"""The weekly digest: its rows out of the store, its pictures, text, page and files, and when it is given."""
