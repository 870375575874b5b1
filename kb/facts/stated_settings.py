"""Settings of a run that its logs state: the size of its micro batch, and the length of its sequences."""

from __future__ import annotations

from collections.abc import Iterable

from kb.regex.lazy import lazy_compile

_STATED = {
    "batch_setting": lazy_compile(
        r"(?i)(?<![\w.])((?:device_)?(?:train_)?micro_?[_-]?batch(?:[_-]size)?(?:_per_gpu)?|per_device_(?:train_)?batch_size|batch_size_per_(?:gpu|device)|instantaneous batch size per device)"
        r"['\"]?[ .:=]{1,60}['\"]?(\d{1,6})(?![\w.])"
    ),
    "length_setting": lazy_compile(
        r"(?i)(?<![\w.])((?:max_)?seq(?:uence)?_len(?:gth)?|model_max_length|cutoff_len|max_model_len|max_prompt_length|max_completion_length)"
        r"['\"]?[ .:=]{1,60}['\"]?(\d{2,8})(?![\w.])"
    ),
}
# one of them is in each line that states it, and few other lines have it: step lines name the global batch and its length
_WORDS = {
    "batch_setting": ("micro", "per_device", "per device", "size_per_"),
    "length_setting": (
        "seq_len",
        "sequence_len",
        "model_max_length",
        "cutoff_len",
        "max_model_len",
        "max_prompt_length",
        "max_completion_length",
    ),
}


def stated_setting(name: str, texts: Iterable[str]) -> str:
    """Return a setting with its value, such as "micro_batch_size 4"; empty if none is stated, or several values are."""
    found: dict[str, str] = {}
    for text in texts:
        low = text.lower()
        if any(word in low for word in _WORDS[name]):
            found |= {match[2]: match[1] for match in _STATED[name].finditer(text)}
    return " ".join(next((setting, value) for value, setting in found.items())) if len(found) == 1 else ""
