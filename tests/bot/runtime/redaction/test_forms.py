"""Many forms of secrets in many wrappings are masked, alone and within large blocks; what only resembles them stays."""

from __future__ import annotations

import random

import pytest

from bot.runtime.redaction import assignments, redact, redact_bytes
from bot.runtime.redaction.candidates import SMALL
from kb.regex.hazards import exponential_parts
from tests.support.secret_forms import ALNUM, HEX, WRAPPINGS, Form, forms

FORMS = forms()
LEAST = 8  # characters of a secret in a row that give it away
PADDING = "an ordinary line of a log, with nothing in it\n" * (SMALL // 40)


def _leaks(form: Form, wrapping: str, masked: str) -> bool:
    if wrapping == "base64":
        return masked.count("*") < len(form.secret)
    pieces = (form.secret[place : place + LEAST] for place in range(max(1, len(form.secret) - LEAST + 1)))
    return any(piece in masked for piece in pieces)


@pytest.mark.quick("json twice", "coloured whole", "newline", "url")
@pytest.mark.parametrize("wrapping", [name for name in WRAPPINGS if name != "split"])
def test_no_form_is_readable_in_a_wrapping(wrapping):
    """Whatever wraps it, no eight characters of a secret are left, and the text keeps its length and line ends."""
    leaks = []
    for form in FORMS:
        text = WRAPPINGS[wrapping](form)
        masked = redact(text)
        assert len(masked) == len(text)
        assert [place for place, letter in enumerate(masked) if letter == "\n"] == [
            place for place, letter in enumerate(text) if letter == "\n"
        ]
        if _leaks(form, wrapping, masked):
            leaks.append((form.name, masked))

    assert [leak for leak in leaks if not (wrapping == "letter" and leak[0].startswith("| user |"))] == []


def test_a_token_broken_over_two_lines_is_masked_on_both():
    """At most one form in fifty escapes: the rest of a token that looks like a word."""
    leaks = [form.name for form in FORMS if _leaks(form, "split", redact(WRAPPINGS["split"](form)))]

    assert len(leaks) <= len(FORMS) / 40, leaks


@pytest.mark.quick("json twice", "url")
@pytest.mark.parametrize("wrapping", ["plain", "line", "colour", "json", "json twice", "url", "html"])
def test_a_large_block_hides_what_a_line_hides(wrapping):
    """The lines that one pass chooses contain every secret: a large block is masked as its parts are."""
    redact_bytes(PADDING.encode() * 8)  # from now on, lines are chosen
    leaks = []
    for form in FORMS:
        block = f"{PADDING}{WRAPPINGS[wrapping](form)}\n{PADDING}".encode()
        if _leaks(form, wrapping, redact_bytes(block).decode()):
            leaks.append(form.name)

    assert leaks == []


HARMLESS = (
    "git commit {h40}", "sha256:{h64}", "image nvcr.io/nvidia/pytorch@sha256:{h64}", "md5={h32}", "blob {h64} of 4.2 GB",
    "snapshot models--org--name/snapshots/{h40}/model.safetensors", "GPU-{h8}-{h4}-{h4}-{h4}-{h12} fell off", "uuid {h8}-{h4}-{h4}-{h4}-{h12}",
    "https://wandb.example/team/llm/runs/{l8}", "run id {l8}, name glad-river-12", "/scratch/torchinductor_root/{l2}/c{l50}.py",
    "/root/.triton/cache/{u52}/kernel.json", "pod train-{l10}-{l5} on node gpu-{d4}", "container {h64} exited", 'ETag: "{h32}"',
    "SHA256:{a43} host key", "integrity sha512-{a86}==", "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEE{d2}",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_relu_f2f_stages_32x6_nn", "Qwen2ForCausalLMWithValueHead at {h16}", "0x{h12} in frame {d3}",
    "s3://bucket/ckpt/step_{d5}/shard-00012-of-00064.safetensors", "10.4.{d2}.17:29500", "node-{d3}.cluster.example.com:{d4}",
    "cache_key={h32} hit", "primary_key: {d9}", "tokens={d7} consumed_tokens={d9}", "ray object {h56}", "trace_id={h32} span_id={h16}",
    "nccl commId 0x{h16} rank {d2} nranks 64", "mlx5_{d1}:1 lid {d3} qpn 0x{h6}", "seed={d9} lr=3e-4", 'File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line {d4}, in _call_impl',
    "srun -p gpu -N {d2} -u python train.py", "docker run -u 1000:1000 -p 8080:80 image:{d2}", "mkdir -p /scratch/{l8}/out",
    "fingerprint {h2}:{h2}:{h2}:{h2}:{h2}:{h2}", "00:15:5d:{h2}:{h2}:{h2}", "key_padding_mask shape (8, {d4})", "missing key(s) in state_dict: layers.{d2}.attn.weight",
    "monkey=3 keyboard=us hotkey: F{d1} turkey", "auth: munge", "password authentication is disabled", "no token given", "pass rate: {d2}/64",
    "passed={d3} failed=0 pass=1", "the token is not in the vocabulary", "author=ana signature=forward(x)", "session=train-{d3} host=gpu{d3}",
)  # fmt: skip
ALPHABETS = {
    "h": HEX,
    "l": "abcdefghijklmnopqrstuvwxyz234567",
    "u": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    "a": ALNUM,
    "d": "0123456789",
}


def _harmless(count: int) -> list[str]:
    rng = random.Random(11)
    names = {f"{letter}{size}": (letter, size) for letter in ALPHABETS for size in range(1, 90)}

    def filled(text: str) -> str:
        for name, (letter, size) in names.items():
            while f"{{{name}}}" in text:
                text = text.replace(f"{{{name}}}", "".join(rng.choices(ALPHABETS[letter], k=size)), 1)
        return text

    return [filled(HARMLESS[place % len(HARMLESS)]) for place in range(count)]


def test_harmless_strings_stay():
    """Hashes, ids, digests, checksums, hosts, paths and numbers: at most five of a thousand are touched."""
    lines = _harmless(1000)

    touched = [line for line in lines if redact(line) != line]

    assert len(touched) <= 5, touched
    assert redact("\n".join(lines)).count("*") <= 40 * 5


@pytest.mark.parametrize(
    "value", ["[SaK2VqfEDeXzKPor]", "(SaK2VqfEDeXzKPor)", "{SaK2VqfEDeXzKPor}", "<SaK2VqfEDeXzKPor>"]
)
def test_brackets_around_a_value_hide_no_secret(value: str) -> None:
    """C++ programs print their settings so."""
    assert (
        redact(f"user:[model],passwd:{value}, conf:[./client.conf]")
        == f"user:[model],passwd:{value[0]}{'*' * 16}{value[-1]}, conf:[./client.conf]"
    )


@pytest.mark.parametrize("text", ["mask_token: [MASK]", "tokens=[1024]", "key=(batch_size)", "secret=<redacted>"])
def test_brackets_around_a_word_are_kept(text: str) -> None:
    """Names of tokens, counts and placeholders are no secrets."""
    assert redact(text) == text


def test_a_secret_in_a_sentence_is_found_in_few_steps():
    """Words that lead to it can be read in one way only, so a hostile line of them does not stop the service."""
    sentence = assignments._SENTENCE.pattern

    assert exponential_parts(sentence) == ()
    assert "hunter2" not in redact("the password set for us is hunter2x9k")
    assert redact("the password" + " is" * 60).startswith("the password is")
