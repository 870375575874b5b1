"""Secrets are masked, ordinary lines stay, and no offset changes. Tokens are put together here, so that the file contains none."""

from __future__ import annotations

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.runtime.redaction import redact, redact_bytes

LETTERS = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA"
HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c"
JWT = ".".join(("ey" + "JhbGciOiJIUzI1NiJ9", "ey" + "JzdWIiOiJydW4tNyJ9", "c2lnbmF0dXJlLW9mLXRoaXM"))

SECRETS = [
    ("aws key id {}", "AK" + "IA", "Q3ZR7XKM2NPL5TVW", ""),
    ("aws_secret_access_key = {}", "", LETTERS + "/+aB3dE5", ""),
    ('"SecretAccessKey": "{}"', "", LETTERS + "/+aB3dE5", ""),
    ("export AWS_SESSION_TOKEN={}", "", LETTERS * 3, ""),
    ("git clone failed for {}", "gh" + "p_", LETTERS + "aB3d", ""),
    ("remote: {} is not valid", "github" + "_pat_", LETTERS + "_" + LETTERS, ""),
    ("job token {}", "gl" + "pat-", "x9-" + LETTERS[:20], ""),
    ("downloading with {}", "h" + "f_", LETTERS + "aB", ""),
    ("HF_TOKEN={}", "", "h" + "f_" + LETTERS + "aB", ""),
    ("WANDB_API_KEY={}", "", HEX, ""),
    ("wandb login --relogin {}", "", HEX, ""),
    ("wandb.login(key='{}')", "", HEX, ""),
    ("key {} given", "wandb" + "_v1_", LETTERS + "_" + LETTERS, ""),
    ("openai.AuthenticationError: {}", "s" + "k-", "proj-" + LETTERS, ""),
    ("posting as {}", "xo" + "xb-", "12345678901-" + LETTERS, ""),
    ("webhook https://hooks.slack" + ".com/services/{}", "", "T0AB12/B0CD34/" + LETTERS[:24], ""),
    ("maps key {}", "AI" + "za", LETTERS + "x-_", ""),
    ("session {} expired", "ey" + "J", JWT[3:], ""),
    ("Authorization: Bearer {}", "", LETTERS, ""),
    ("authorization: Basic {}", "", "dXNlcjpwYXNzd29yZA==", ""),
    ("{{'Authorization': 'Bearer {}'}}", "", LETTERS, ""),
    ("curl -H 'X-Api-Key: {}'", "", LETTERS, ""),
    ("postgresql://train:{}@db-1:5432/runs", "", "p@ss:w0rd", ""),
    ("redis://:{}@cache:6379/0", "", "hunter2", ""),
    ("GET https://store/x?X-Amz-Signature={}&X-Amz-Expires=60", "", HEX, ""),
    ("https://acc.blob.example/c?sv=2024&sig={}", "", "aB3%2FdE5%3D", ""),
    ("https://cdn.example/o?Expires=1&Signature={}&Key-Pair-Id=K1", "", "aB3~dE5-", ""),
    ("SignedHeaders=host, Signature={}", "", HEX, ""),
    ("password={}", "", "hunter2", ""),
    ("PASSWORD: {}", "", "123456", ""),
    ("MYSQL_PASSWORD={} started", "", "s3cr&t"[:4], ""),
    ("connect(passwd='{}', port=1)", "", "with space", ""),
    ("db.password={}, db.user=x", "", "a,b;c", ""),
    ('{{"password": "{}"}}', "", 'quo\\"ted', ""),
    ('msg="{{\\"password\\": \\"{}\\"}}"', "", "inner", ""),
    ("api_key={}", "", "abc123def", ""),
    ('"apiKey": "{}"', "", "abc123def", ""),
    ("client_secret={}", "", "zz-91-kk", ""),
    ("token={}", "", "supersecretvalue", ""),
    ('"token": "{}"', "", "f81d4fae7dec", ""),
    ("accessToken: {}", "", "f81d4fae7dec", ""),
    ("INTERNAL_CI_TOKEN={}", "", LETTERS, ""),
    ("AccountKey={};Endpoint=x", "", LETTERS + "==", ""),
    ("--password {} --port 1", "", "hunter2", ""),
    ("--token {}", "", "f81d4fae7dec", ""),
    ("  wandb_api_key ................ {}", "", HEX, ""),
    ("trainctl login --passphrase '{}' --user u1", "", "thicket bison kestrel", ""),
    ("mon_token: {}", "", HEX[:32], ""),
    ("CLOUD_SK={}", "", HEX[:32], ""),
    ("SECRET_KEY_BASE={}", "", HEX * 2, ""),
    ("set api-key {}", "", HEX, ""),
    ('10.0.0.1 10.0.0.2 : PSK "{}"', "", LETTERS, ""),
    ("Authorization: AnyKey {}", "", "6c4dd0d4-e688-402d-88b0-1952879a86f3", ""),
    ("https://packages.example/t/{}/main", "", LETTERS, ""),
    ("ssh-keygen -t ed25519 -N {} -f key", "", "nutmeg50", ""),
    ("+ echo root:{}\n+ chpasswd", "", "Gherkin_2021", ""),
    ("db:5432:runs:ana:{}", "", "Ag\\:d4lG", ""),
]


@pytest.mark.parametrize(("line", "head", "secret", "_tail"), SECRETS, ids=[line for line, *_ in SECRETS])
def test_a_secret_is_masked_and_nothing_else(line, head, secret, _tail):
    """The secret becomes stars of the same length; the text around it, including its prefix, does not change."""
    text = line.format(head + secret)
    before, after = line.format("\0").split("\0")

    masked = redact(text)

    assert masked in (f"{before}{head}{'*' * len(secret)}{after}", f"{before}{'*' * len(head + secret)}{after}")
    assert masked.encode() == redact_bytes(text.encode())


ORDINARY = """\
[rank3]: 2026-03-02 11:09:41,771 INFO step 812/90000 | loss 2.114 | tokens per second 40231.7 | tokens=4096
tokens: 1048576 consumed_tokens=3355443200 token_count: 12345678 max_new_tokens=128 num_tokens=20480000
tokenizer_config: pad_token=<pad> eos_token='</s>' bos_token="<s>" unk_token=<unk> mask_token: [MASK]
pad_token_id=50256, eos_token_id: 50256, token_type_ids shape (8, 2048), next_token=1234567890
special token: <|endoftext|> image_token: <image> stop_token="<|im_end|>" token=123456789
TokenizerFast(name_or_path='x', vocab_size=32000, pad_token='<|padding|>', token='tower')
json.decoder.JSONDecodeError: unexpected token: identifier at line 4
git commit 9c1185a5c5e9fc54612808977ee8f548b2258d31 sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
wandb: Syncing run glad-river-12 to https://wandb.example/team/llm/runs/3k2j1h0g
wandb: git sha 9c1185a5c5e9fc54612808977ee8f548b2258d31
NVRM: Xid (PCI:0000:9a:00): 79, pid=5501, name=python, GPU has fallen off the bus.
GPU-5f0b1c2d-8e9f-4a3b-b7c6-0d1e2f3a4b5c node gpu-044 uuid f81d4fae-7dec-11d0-a765-00a0c91e6bf6
init_method tcp://10.4.0.17:29500 store env:// http://10.4.0.9:8080/metrics?job=a&rank=3
git+ssh://git@git.example/team/repo.git s3://bucket/ckpt/step_1200/shard-00012-of-00064.safetensors
PWD=/home/ana/runs/7 OLDPWD=/home/ana password=None api_key=None token=null secret: true
DB_PASSWORD=$DB_PASSWORD API_KEY=${API_KEY} HF_TOKEN=<unset> --token-dropout 0.1 --pad-token <pad>
wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])
MountVolume.SetUp failed for volume "creds" : secret "regcred-team" not found
secretKeyRef: name: wandb  imagePullSecrets: [regcred]
process got sig=9 signature=forward(x, mask) core dumped; task-sk-learn-pipeline-number disk-1
hf_model_conversion_path=/data hf_transformers_checkpoint_dir hf_hub_download
akia asia AKIA-like ASIA east; eyJust a.b.c; ghp_short xoxo-hugs AIza
File "/opt/train/auth/token.py", line 88, in get_token
    token = self.tokens[index]
    if token == "<pad>": continue
Bearer authentication is required; bearer token missing
Permission denied (publickey,password,keyboard-interactive).
the password of `user` has expired; password for 'ana' is wrong
-----BEGIN CERTIFICATE-----
MIIBszCCAVmgAwIBAgIUQm9ndXNDZXJ0aWZpY2F0ZUZvclRlc3RzMAoGCCqGSM49
-----END CERTIFICATE-----
"""


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_an_ordinary_line_stays(line):
    """Counts, special tokens, hashes, ids, addresses and sentences about secrets are not secrets."""
    assert line == redact(line)


def test_ordinary_lines_stay_together_too():
    """The same lines as one block: nothing is read across a line end."""
    assert redact(ORDINARY) == ORDINARY


KEY_LINES = [LETTERS * 2, (LETTERS * 2)[::-1], LETTERS[:20] + "=="]


def _pem(prefix="", glue="\n"):
    marks = ("-----BEGIN RSA " + "PRIVATE KEY-----", "-----END RSA " + "PRIVATE KEY-----")
    return glue.join(prefix + part for part in (marks[0], *KEY_LINES, marks[1]))


@pytest.mark.parametrize(("prefix", "glue"), [("", "\n"), ("[rank0]: ", "\n"), ("", "\\n"), ("", "\r\n")])
def test_a_private_key_is_masked_between_its_marks(prefix, glue):
    """The lines of the key are masked; the markers, line ends and surrounding text stay, also in JSON with escaped line ends."""
    text = f"before the key{glue}{_pem(prefix, glue)}{glue}ordinaryWordsAfterwards 12345678"

    masked = redact(text)

    expected = text
    for line in KEY_LINES:
        expected = expected.replace(line, "*" * len(line))
    assert expected == masked


def test_a_private_key_that_is_cut_is_masked():
    """With only one marker left, long key lines next to it are masked and ordinary lines stay."""
    lines = _pem().split("\n")

    head = redact("\n".join([*lines[:3], "ordinary words stay"]))
    tail = redact("\n".join(["ordinary words stay", *lines[2:]]))

    assert all(line not in head + tail for line in KEY_LINES[:2])
    assert head.endswith("\nordinary words stay")
    assert tail.startswith("ordinary words stay\n")


def test_masked_json_is_still_json():
    """Escapes within a masked value do not break the document, and the rest of it is as before."""
    text = json.dumps(
        {"password": 'a"b\\c', "key": _pem(), "n": 1, "env": [{"name": "API_KEY", "api_key": "ab12cd34"}]}
    )

    body = json.loads(redact(text))

    assert (body["n"], body["env"][0]["api_key"]) == (1, "*" * 8)
    assert set(body["password"]) == {"*"}


def test_text_outside_ascii_keeps_its_places():
    """Letters of other alphabets count as they are: characters in text, bytes in bytes."""
    text = "größe=3 пароль password=gehäim ✓ token=ab12cd34ef"

    assert redact(text) == "größe=3 пароль password=****** ✓ token=**********"
    assert len(redact_bytes(text.encode())) == len(text.encode())


PIECES = st.sampled_from(
    ["token", "password", "=", ": ", '"', "'", "\\", "\n", "\r", " ", ",", "--", "://", "@", "a:", "ey" + "J", ".", "s" + "k-",
     LETTERS, "Bearer ", "Authorization: ", "&sig=", "?", "é", "\udcff", "-----BEGIN PRIVATE " + "KEY-----", HEX, "\0"]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join))
def test_masking_keeps_length_and_line_ends_and_is_done_once(text):
    """Whatever comes in: the same length, the same line ends, only stars differ, and a second pass changes nothing."""
    masked = redact(text)

    assert len(text) == len(masked)
    assert all(new == old or (new == "*" and old not in "\r\n") for old, new in zip(text, masked, strict=True))
    assert masked == redact(masked)


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "piece",
    [
        "x" * 60 + "\n",
        "aB3_" * 20 + "\n",
        "[rank0]: 2026-01-01 00:00:00,000 INFO [train.py:1] x\n",
        "http -a ",
        "\\u5bc6",
        "token=",
        "password:",
        "s" + "k-",
        "ey" + "J",
        "ey" + "Jaaaaaaaaa.",
        "://a:",
        "-",
        "--token ",
        "secret.",
        '"\\',
        "a",
        "&sig=",
    ],
)
def test_the_work_is_linear(piece):
    """Half a megabyte of one piece, over and over, takes no more than a few seconds even on a busy machine."""
    block = (piece * 500_000)[:500_000].encode()
    begun = time.process_time()

    assert len(block) == len(redact_bytes(block))

    assert time.process_time() - begun < 3.0


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("place", [1, 3, 9])
def test_a_line_folded_at_a_usual_width_is_read_whole(width, place):
    """A terminal breaks a line within a password or within the head of a token; both parts are masked, also in a large block."""
    for before, secret in (("password=", "Jf~x2sfVSJ3P"), ("git clone https://ci:", "gh" + "p_" + LETTERS + "aB3d")):
        lead = f"{'launching with these settings on node gpu-4 ' * 9}"[: width - place - len(before)]
        text = f"{lead}{before}{secret[:place]}\n{secret[place:]} and more\nnext line"

        for masked in (redact(text), redact(f"{'ordinary words of a log' * 3}\n" * 400 + text)[-len(text) :]):
            assert secret[:place] not in masked.split(before)[1].split("\n")[0] or place <= 4
            assert secret[place:] not in masked
            assert masked.endswith("and more\nnext line")


def test_a_word_for_a_password_in_other_languages():
    """As text and as bytes, plain and escaped; the characters before and after stay in their places."""
    for word in ("\u5bc6\u7801", "\u043f\u0430\u0440\u043e\u043b\u044c", "\ube44\ubc00\ubc88\ud638", "contrase\u00f1a"):
        text = f"\u7528\u6237:admin {word}=Papaya@3165 \u5b8c"
        assert redact(text) == text.replace("Papaya@3165", "*" * 11)
        assert redact_bytes(text.encode()) == text.replace("Papaya@3165", "*" * 11).encode()
        assert "Papaya" not in redact(json.dumps(text))
        assert "Papaya" not in redact(repr(text.encode()))


def test_settings_in_base64_stay():
    """Launchers pass settings in base64; text that is not secret is not masked there either."""
    for settings in ({"localhost": [0]}, {f"worker-{n}": list(range(8)) for n in range(4)}):
        text = f"--world_info={base64.urlsafe_b64encode(json.dumps(settings).encode()).decode()} --master_port=29500"
        assert redact(text) == text
    hidden = base64.b64encode(json.dumps({"password": "hunter22"}).encode()).decode()
    assert hidden not in redact(f"--settings={hidden}")
