"""Made-up secrets in the forms of many vendors, files and commands, and what wraps them in logs.

Bodies are drawn by chance from a seed, and prefixes are put together from parts, so that the file contains no secret.
"""

from __future__ import annotations

import base64
import json
import random
import string
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + "234567"


@dataclass(frozen=True)
class Form:
    """A text with a secret. `whole`: the text; `secret`: the part that must not be readable anywhere."""

    name: str
    whole: str
    secret: str


def _drawn(rng: random.Random, spec: str) -> str:
    """Return what a specification such as `A36` (36 of letters and digits) or `L"-"` draws; parts are separated by spaces."""
    alphabets = {"A": ALNUM, "H": HEX, "L": LOWER, "U": UPPER, "W": ALNUM + "-_", "B": ALNUM + "+/", "D": string.digits}
    parts = []
    for part in spec.split():
        count = int(part[1:]) if part[0] in alphabets and part[1:].isdigit() else 0
        parts.append("".join(rng.choices(alphabets[part[0]], k=count)) if count else part)
    return "".join(parts)


# name, head in two halves, body
_TOKENS = """
aws AK|IA U16
aws-session AS|IA U16
bedrock AB|SK B120
github gh|p_ A36
github-oauth gh|o_ A36
github-user gh|u_ A36
github-server gh|s_ A36
github-refresh gh|r_ A36
github-fine github|_pat_ A22 _ A59
gitlab gl|pat- W20
gitlab-runner gl|rt- W20
gitlab-deploy gl|dt- W20
gitlab-trigger gl|ptt- H40
gitlab-job gl|cbt- A2 _ W20
gitlab-feed gl|ft- W20
gitlab-agent gl|agent- W50
huggingface h|f_ A34
hf-org api|_org_ A34
wandb wandb|_v1_ A60
openai s|k-proj- A60 T3Blbk FJ A60
openai-old s|k- A20 T3Blbk FJ A20
anthropic s|k-ant-api03- W93 AA
openrouter s|k-or-v1- H64
nvidia nv|api- W64
perplexity pp|lx- A48
groq gs|k_ A52
xai xa|i- A80
replicate r|8_ A37
langsmith ls|v2_pt_ H32 _ H10
pinecone pc|sk_ A60
tavily tv|ly- A32
jina ji|na_ A60
npm np|m_ A36
pypi py|pi-AgEIcHlwaS5vcmc W80
docker dck|r_pat_ W27
rubygems ruby|gems_ H48
google AI|za W35
google-oauth ya|29. W100
google-client GOC|SPX- W28
google-refresh 1//|0 W60
alibaba LT|AI A20
tencent AK|ID A32
digitalocean do|p_v1_ H64
databricks da|pi H32
pulumi pu|l- H40
fly fo1|_ W43
heroku HR|KU-AA W58
tailscale ts|key-auth- A12 - A24
cloudflare-origin v1.|0- H24 - H146
supabase sb|p_ H40
netlify nf|p_ A36
vault hv|s. W95
vault-batch hv|b. W140
vault-old s|. A24
doppler dp|.pt. A43
planetscale pscale|_tkn_ W43
prefect pn|u_ A36
terraform A14.|atlasv1. W64
onepassword op|s_ey J A250
age AGE-SEC|RET-KEY-1 U58
sentry sntr|yu_ H64
grafana gl|sa_ A32 _ H8
grafana-cloud gl|c_ B100
newrelic NR|AK- U27
dynatrace dt0|c01. U24 . U64
slack xo|xb- D12 - D12 - A24
slack-user xo|xp- D12 - D12 - D12 - H32
slack-app xa|pp-1- U11 - D13 - H64
slack-config xo|xe.xoxp-1- A160
telegram D9|:AA W33
sendgrid S|G. W22 . W43
mailgun ke|y- H32
mailchimp H32|-us D2
brevo xkey|sib- H64 - A16
twilio S|K H32
stripe sk|_live_ A24
stripe-restricted rk|_live_ A24
stripe-hook wh|sec_ A32
square sq0|atp- W22
shopify shp|at_ H32
paypal access|_token$production$ L16 $ H32
atlassian AT|ATT3 W180
bitbucket AT|BB A32
linear lin|_api_ A40
notion nt|n_ D11 A35
figma fi|gd_ W40
postman PM|AK- H24 - H34
circleci CCI|PAT_ A22 _ H40
buildkite bk|ua_ H40
sonar sq|u_ H40
snyk snyk|_uat. H8 . A40
hubspot pat|-na1- H8 - H4 - H4 - H4 - H12
airtable pa|t A14 . H64
discord MT|A A22 . A6 . W38
facebook EA|AC A120
jwt ey|JhbGciOiJIUzI1NiJ9. A60 . W43
paseto v4|.local. W120
okta 0|0 W40
artifactory AK|Cp A69
artifactory-ref cm|Vmd A59
azure-client A3|7Q~ W33
launchdarkly sd|k- H8 - H4 - H4 - H4 - H12
octopus AP|I- U26
openshift sha|256~ W43
easypost EZ|AK A54
readme rd|me_ L70
rapidapi A10|msh A15 p1 A6 jsn A12
""".strip().splitlines()

_KEYED = (
    "DB_PASS={}|A10", "MYSQL_PWD={}|A10", "ENCRYPTION_KEY={}|H32", "dbPassword: {}|A12", "db.pwd = {}|A9", "REDIS_PASSWORD='{}'|A12",
    "DD_API_KEY={}|H32", "STRIPE_SECRET={}|A24", "SMTP_PASS: {}|A12", "userPass={}|A10", "client_secret: {}|A30", "X-Api-Key: {}|A32",
    "x-auth-token: {}|H32", "api key: {}|A24", '"apiKey" : "{}"|A24', "secretKey=>'{}'|A30", "AZURE_STORAGE_KEY={}|B86",
    "aws_secret_access_key = {}|B40", "--password {}|A10", "--password={}|A10", "--db-password '{}'|A10", "--api-key {}|H32",
    "--secret-key {}|A20", "--hf-token {}|A20", "curl -u admin:{} https://h.example|A12", "curl --user admin:{} https://h.example|A12",
    "mysql -h db -u root -p{} runs|A10", "mysql -h db -u root -p {} runs|A10", "sshpass -p {} ssh node-a|A10",
    "docker login -u ci -p {} registry.example|A16", "redis-cli -h r -a {} ping|A16", "postgres://train:{}@db:5432/x|A14",
    "https://{}@github.com/team/repo.git|A36", "https://oauth2:{}@gitlab.example/x.git|A20", "amqp://u:{}@mq:5672|A10",
    "https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/{}|A24", "https://discord.com/api/webhooks/123456789012345678/{}|W68",
    "https://x.webhook.office.com/webhookb2/{}|H8 - H4 - H4 - H4 - H12 @ H8 - H4 - H4 - H4 - H12 /IncomingWebhook/ H32 / H8 - H4 - H4 - H4 - H12",
    "https://api.telegram.org/bot{}/sendMessage|D9 :AA W33", "Cookie: sessionid={}|A32", "Set-Cookie: sid={}; Path=/; HttpOnly|A32",
    "cookie: csrftoken={}|A32", "Authorization: Bearer {}|A40", "Authorization: Token {}|H40", "Proxy-Authorization: Basic {}|A30 ==",
    "machine api.wandb.ai login user password {}|H40", "machine api.wandb.ai\n  login user\n  password {}|H40", "db-1:5432:runs:train:{}|A12",
    "bo:$apr1$k2j3h4g5${}|A22", "root:$6$saltsalt${}|A86", "<password>{}</password>|A10", '<add key="Password" value="{}" />|A10',
    "<property><name>fs.s3a.secret.key</name><value>{}</value></property>|B40", '{{"name": "DB_PASSWORD", "value": "{}"}}|A10',
    "- name: WANDB_API_KEY\n  value: {}|H40", "password: |\n  {}|A12", "password:\n  {}|A12", 'password = """\n{}\n"""|A12',
    "| db_password | {} ||A12", "| user | password |\n|------|----------|\n| bo | {} ||A12", "user,password\nbo,{}|A12",
    "db_password    {}|A12", "client-key-data: {}|B120", "password is {}|A12", "using password '{}'|A10", "IDENTIFIED BY '{}'|A10",
    "AccountKey={};EndpointSuffix=core|B86 ==", "https://acc.blob.example/c?sv=2024&sig={}|A40 %3D", "Server=db;Uid=sa;Pwd={};|A10",
    "GET /x?access_token={}|A30", "GET /x?api_key={}&n=1|A30", "openssl rsa -passin pass:{}|A10", "requirepass {}|A12",
    "//registry.npmjs.org/:_authToken={}|A36", "WANDB_API_KEY={}|H40", "os.environ['HF_TOKEN'] = '{}'|A30", "echo {} | docker login --password-stdin|A16",
    "PGPASSWORD={} psql -h db|A10", "export SLURM_JWT={}|A60", "jupyter: http://h:8888/?token={}|H48", "https://{}@o1.ingest.sentry.io/2|H32",
    "bare {} in a sentence|A40", "ssh-key body:\n{}\n{}|B64",
)  # fmt: skip


def forms(seed: int = 7) -> list[Form]:
    """Return the forms, the same for a seed."""
    rng = random.Random(seed)
    found = []
    for row in _TOKENS:
        name, head, *body = row.split(" ", 2)
        first, _, second = head.partition("|")
        first = _drawn(rng, first) if first in {"A14.", "D9", "H32", "A3", "A10"} else first
        first = first.replace("A14.", _drawn(rng, "A14 ."))
        secret = _drawn(rng, body[0])
        found.append(Form(name, f"{first}{second}{secret}", secret))
    for row in _KEYED:
        text, _, spec = row.rpartition("|")
        secret = _drawn(rng, spec)
        found.append(Form(text, text.format(*[secret] * text.count("{}")), secret))
    auth = base64.b64encode(f"ci:{_drawn(rng, 'A12')}".encode()).decode()
    found.append(Form("docker auths", json.dumps({"auths": {"registry.example": {"auth": auth}}}), auth))
    for plain in (f"password={_drawn(rng, 'A12')}", f"{'gh' + 'p_'}{_drawn(rng, 'A36')}", f"user:{_drawn(rng, 'A12')}"):
        hidden = base64.b64encode(plain.encode()).decode()
        found.append(Form(f"base64 of {plain[:6]}", f"data: {hidden}", hidden))
    return found


def _split(form: Form) -> str:
    """The secret broken over two lines after two thirds, as a narrow terminal does."""
    cut = len(form.secret) * 2 // 3
    return form.whole.replace(form.secret, f"{form.secret[:cut]}\n{form.secret[cut:]}")


WRAPPINGS: dict[str, Callable[[Form], str]] = {
    "plain": lambda form: form.whole,
    "line": lambda form: (
        f"[rank3]: 2026-03-02 11:09:41,771 INFO {form.whole} (attempt 2)" if "\n" not in form.whole else form.whole
    ),
    "colour": lambda form: form.whole.replace(form.secret, f"\x1b[31m{form.secret}\x1b[0m"),
    "coloured whole": lambda form: f"\x1b[1;33m{form.whole}\x1b[0m",
    "json": lambda form: json.dumps({"message": form.whole}),
    "json twice": lambda form: json.dumps({"log": json.dumps({"message": form.whole})}),
    "url": lambda form: f"GET /log?m={urllib.parse.quote(form.whole, safe='')}",
    "newline": lambda form: f"b'first\\n{form.whole}\\nlast'",
    "letter": lambda form: f"x{form.whole}",
    "quoted": lambda form: f"value='{form.whole}'",
    "html": lambda form: (
        form.whole.replace("&", "&amp;").replace('"', "&quot;").replace("'", "&#39;").replace("<", "&lt;")
    ),
    "base64": lambda form: f"data: {base64.b64encode(form.whole.encode()).decode()}",
    "split": _split,
}
