"""Classifies the names of keys in all their spellings: `DB_PASSWORD`, `dbPassword`, `db.pwd`, `X-Api-Key`, `api key`.

A training log is full of `tokens=4096`, `pad_token=<pad>`, `cache_key` and `num_key_value_heads`, so that most names only make a
value suspicious, and the value decides (bot.runtime.redaction.assignments).
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from kb.regex.lazy import lazy_compile


class Announces(IntEnum):
    """What a name says about its value."""

    NOTHING = 0
    CHANCE = 1  # a secret if the value looks generated: `signature`, `SOME_KEY`
    TOKEN = 2  # `token` after a word that is not of authentication
    OPAQUE = 3  # a secret unless the value is a word, code or a number: `client_secret`, `api_key`
    SECRET = 4  # a secret whatever the value: `password`


_WORDS = lazy_compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_QUALIFIER = frozenset(
    b"value val data base base64 b64 enc plain plaintext cleartext raw text str string old new current prod dev staging test live header".split()
)
_PASSWORD = lazy_compile(
    rb"(?:password|passwd|passwrd|passphrase|passcode|passwort|kennwort|contrasena|senha|userpw|dbpw|rootpw|adminpw|sshpass"
    rb"|(?:db|database|user|admin|root|mysql|pg|postgres|redis|mongo|smtp|mail|ldap|ftp|ssh|login|key|store|proxy|bind|key_?store)pass"
    rb"|[a-z]{2,}pwd)\Z"
)
_SECRET_WORDS = frozenset(
    b"secret secrets credential credentials creds mnemonic apikey webhook authtoken authtok psk sk".split()
)
_KEY_QUALIFIER = frozenset(
    b"api apis access secret private priv auth account storage encryption encrypt crypto cipher signing sign master service client"
    b" admin app application license licence ssh ssl tls deploy hmac jwt session bot consumer subscription integration ingest"
    b" ingestion shared fernet aes rsa license cookie csrf webhook server user project org team workspace wandb comet neptune mlflow"
    b" openai anthropic hf huggingface ngc nvidia aws gcp azure gh github gitlab datadog dd newrelic sentry grafana stripe twilio"
    b" sendgrid cohere mistral together groq replicate pinecone langchain langsmith serper tavily cloudflare infura alchemy etherscan"
    b" maps algolia mapbox mailgun pagerduty opsgenie splunk elastic influx snowflake databricks shodan virustotal".split()
)
_KEY_JOINED = lazy_compile(
    rb"(?:api|access|secret|private|priv|auth|account|storage|encryption|signing|master|license|licence|app|client|service|subscription)key\Z"
)
_NO_KEY = frozenset(
    b"cache primary foreign partition sort public pub dict group routing row hash lookup state param metric config obj object bucket"
    b" idempotency kms sharding shard value past num query head index host layer module tensor name rng random seed registry image"
    b" train dataset column field json yaml store map item weight attention attn cross self the a this that missing unexpected step"
    b" artifact file path dedup dedupe fingerprint compile kernel plugin known".split()
)
_TOKEN_QUALIFIER = lazy_compile(
    rb"(?:auth|access|refresh|session|bearer|oauth2?|security|hugging_?face|hub|github|gitlab|vault|wandb"
    rb"|(?:\A|[_.-])(?:api|hf|gh|gl|slack|bot|jwt|login|pat|registry|sas|account|csrf|xsrf|id|ci|job|deploy|aws|gcp|azure|user|web"
    rb"|influx|kube|k8s|service|secret|private|personal|app|admin|cli|npm|pypi|docker|telegram|discord|sentry|datadog|vercel"
    rb"|replicate|kaggle|mlflow|comet|neptune|client|webhook|push|device|join|bootstrap|root|github|cloudflare|grafana|consul|nomad"
    rb"|tfe?|terraform|rancher|quay|heroku|netlify|fly|digitalocean|do|linode|hetzner|sonar|snyk|codecov|jira|confluence|bitbucket))"
    rb"[_.-]?\Z"
)
_CHANCE = frozenset(
    b"auth authorization signature sig hmac sas sid session sessionid sessid cookie csrf xsrf jwt bearer pat dsn otp totp nonce webhook salt"
    b" license licence entitlement credential".split()
)


@lru_cache(maxsize=16_384)
def announces(name: bytes) -> Announces:  # noqa: PLR0911 - one rule after the other
    """Return what a key's name says of its value. The work is bounded: only the last 80 characters count."""
    name = name[-80:]
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and (words[-1] in _QUALIFIER or words[-1].isdigit()):
        words.pop()
    if not words:
        return Announces.NOTHING
    last, before = words[-1], words[-2] if len(words) > 1 else b""
    joined = b"".join(words)
    if _PASSWORD.search(joined) or _password_word(words):
        return Announces.SECRET
    if last in _SECRET_WORDS or joined.endswith((b"secret", b"apikey")):
        return Announces.OPAQUE
    if words == [b"pass"]:
        return Announces.CHANCE
    if last == b"key" or (last.endswith(b"key") and _KEY_JOINED.search(last)):
        return _key(last, before)
    if last == b"token" or last.endswith(b"token"):
        prefix = name.lower().rpartition(b"token")[0]
        return Announces.OPAQUE if _TOKEN_QUALIFIER.search(prefix) else Announces.TOKEN
    return Announces.CHANCE if last in _CHANCE else Announces.NOTHING


def _password_word(words: list[bytes]) -> bool:
    """Return whether the last word means a password; `PWD` is also a folder, which its value shows, and tests pass."""
    last = words[-1]
    if last in (b"pwd", b"pw"):
        return len(words) > 1 or last == b"pwd"
    return last == b"pass" and len(words) > 1 and words[-2] not in _PASSES


_PASSES = frozenset(
    b"forward backward first second last one two single multi by all tests test checks low high band full num n".split()
)


def _key(last: bytes, before: bytes) -> Announces:
    if last != b"key" or before in _KEY_QUALIFIER:
        return Announces.OPAQUE
    return Announces.NOTHING if before in _NO_KEY else Announces.CHANCE
