"""Errors of a TensorFlow graph: the message stands below the stack of the node."""

from kb.parsers.logs.exceptions.readers import READERS

READ = {reader.name: reader.read for reader in READERS}
HEAD = b"""Traceback (most recent call last):
  File "fit.py", line 3, in <module>
    model.fit(data)
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

"""


def _message(window: bytes) -> str:
    return str(READ["traceback"](window, 0)[0].fields["message"])


def test_the_message_follows_stacks_with_blank_lines() -> None:
    """Each frame of a node's stack has a blank line below it, and several nodes may come first."""
    stack = b'Detected at node emb/lookup defined at (most recent call last):\n  File "fit.py", line 3, in <module>\n\n'
    told = b"2 root error(s) found.\n  (0) INVALID_ARGUMENT:  indices[5,2] = 9 is not in [0, 5)\n\t [[{{node emb/lookup}}]]\n"
    message = _message(HEAD + stack + stack + told + b"0 successful operations.\n0 derived errors ignored.\n")
    assert "Detected at node emb/lookup" in message
    assert "indices[5,2] = 9 is not in [0, 5)" in message
    assert "successful" not in message


def test_the_message_follows_the_name_of_the_node() -> None:
    """Older releases name the node once more before the message."""
    message = _message(
        HEAD + b"Detected at node 'gelu/Tanh' defined at (most recent call last):\n"
        b"    File \"fit.py\", line 3, in <module>\n      model.fit(data)\nNode: 'gelu/Tanh'\nJIT compilation failed.\n"
    )
    assert message.endswith("JIT compilation failed.")


def test_a_heading_without_a_message_stays_as_it_is() -> None:
    """A log that ends in the stack has nothing more to read, and the next traceback is no message."""
    assert _message(HEAD + b"Detected at node a defined at (most recent call last):\n") == "Graph execution error:"
    assert _message(HEAD + b"Traceback (most recent call last):\n") == "Graph execution error:"


def test_nodes_that_were_pasted_with_spaces_belong_to_the_message() -> None:
    """The tab before the brackets of a node may have become spaces."""
    window = HEAD.replace(b"Graph execution error:\n", b"truncated block read\n         [[{{node save/RestoreV2}}]]")
    assert "RestoreV2" in _message(window)
