"""The class of an error that no rule knows, from what was already read of it: type, message, place and chain.

`kb.classifier.classify` is the entry. The weights are data (`weights.tsv`), trained by bench/catalogue/train.py and
loaded when the first unexplained error needs them. See docs/classifier.md.
"""
