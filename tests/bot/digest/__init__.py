"""The weekly digest: out of the store, drawn, and put out."""
