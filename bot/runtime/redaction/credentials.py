"""Secrets that their place gives away: addresses, headers, cookies, command lines, password files, webhooks."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator

from bot.runtime.redaction.names import Announces, announces
from bot.runtime.redaction.search import Search, Span, pattern_search
from bot.runtime.redaction.values import PATH, PLAIN, is_random, mixes
from kb.regex.lazy import lazy_compile

# Forms whose place is enough: hints, of which one must occur in lower case, and a pattern whose groups are masked.
_PLACES: tuple[tuple[str, bytes], ...] = (
    ("://", rb"://[^\s/:@\"'<>]{0,128}:([^\s/\"'<>]{1,256})@"),
    ("@tcp( @unix(", rb"(?<![\w.-])[\w.-]{1,64}:([^\s@/\"']{1,128})@(?:tcp|unix)\("),
    (
        "authorization",
        (rb"(?i:authorization)[\\\"']{0,4}[ \t]{0,8}[:=,][ \t]{0,8}[\\\"']{0,4}"
        rb"(?i:bearer|basic|token|digest|negotiate|apikey|api-key|key|splunk|bot|sso-key|ssws|aws4-hmac-sha256)[ \t=]{1,8}"
        rb"([^\s\"'\\,]+)"),
    ),
    (
        "authorization",
        (rb"(?i:authorization)[\\\"']{0,4}[ \t]{0,8}[:=][ \t]{0,8}[\\\"']{0,4}[A-Za-z][\w-]{2,24}[ ]{1,4}"
        rb"(?=[^\s\"'\\,]{0,64}[0-9])([^\s\"'\\,]{16,})"),
    ),
    ("bearer", rb"(?i:bearer)[ \t]{1,8}(?=[A-Za-z._~+/=-]{0,64}[0-9])([\w.~+/=-]{16,}+)"),
    (
        "signature= sig= x-amz- x-goog- accessid= awsaccesskeyid= token= key=",
        (rb"(?i)(?:[?&;]|\\u0026|%26|&amp;)(?:x-(?:amz|goog)-(?:signature|security-token|credential)|signature|sig|googleaccessid"
        rb"|awsaccesskeyid|(?:[\w.-]{0,40}[_.-])?(?:access_?)?token|(?:api|access|auth|app|subscription)[_-]?key|key|secret|code)"
        rb"=([^&\s\"'<>\\]{6,})"),
    ),
    ("signature=", rb"(?i)(?<![a-z0-9])signature=([0-9a-f]{32,}+)"),
    ("wandb", rb"(?i)wandb[. ]login[ \t(][^\r\n]{0,80}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f])"),
    ("/t/", rb"://[\w.-]{3,100}/t/(?=[a-z-]{0,40}[A-Z0-9])([A-Za-z0-9-]{12,})/"),  # channels of conda
    ("digest", rb"(?i)(?<![\w-])response=[\\\"']{0,3}([0-9a-f]{32,64})(?![0-9a-f])"),
    # webhooks
    ("victorops.com", rb"(?i)victorops\.com/integrations/[\w-]{1,40}/[0-9]{1,12}/alert/([\w-]{16,})"),
    ("hooks.slack", rb"(?i)hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/([\w/-]{10,}+)"),
    ("/api/webhooks/", rb"(?i)/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{5,25}/([\w-]{10,}+)"),
    ("webhookb2/ incomingwebhook/", rb"(?i)(?:webhookb2|/webhook)/([\w@-]{20,}+/incomingwebhook/[\w/-]{20,}+)"),
    ("hooks.zapier", rb"(?i)hooks\.zapier\.com/hooks/[a-z]{1,12}/([\w/-]{8,}+)"),
    ("ifttt.com", rb"(?i)ifttt\.com/[\w/-]{1,80}/key/([\w-]{10,}+)"),
    ("api.telegram.org/bot", rb"(?i)api\.telegram\.org/(?:file/)?bot([0-9]+:[\w-]{20,}+)"),
    ("/open-apis/bot/", rb"(?i)/open-apis/bot/(?:v2/)?hook/([\w-]{10,}+)"),
    ("/hooks/", rb"(?i)/hooks/(?:catch/)?(?:[\w-]{1,40}/){0,2}([A-Za-z0-9]{20,}+(?:/[A-Za-z0-9]{20,}+)?)"),
    ("events.pagerduty.com", rb"(?i)events\.pagerduty\.com/(?:integration|x-ere|generic)/([\w/]{10,}+)"),
    ("hc-ping.com webhook.site", rb"(?i)(?:hc-ping\.com|webhook\.site)/([0-9a-z][\w-]{15,}+)"),
    ("webhook", rb"(?i)webhooks?/(?:[\w.-]{1,40}/){0,3}([A-Za-z0-9_-]{24,}+)"),
    ("ingest", rb"(?i)://([0-9a-f]{32})@[\w.-]{1,100}\.(?:ingest|sentry)"),
    # password files and configuration by words
    ("login password", rb"(?i)(?<![\w-])login[ \t\r\n]+\S{1,128}[ \t\r\n]+(?:account[ \t\r\n]+\S{1,128}[ \t\r\n]+)?password[ \t\r\n]+(\S{1,256})"),
    ("psk", rb"(?<![\w-])PSK[ ]{1,4}\"([^\"\r\n]{6,256})\""),
    (
        "username enable neighbor tacacs radius",
        rb"(?i)(?<![\w-])(?:username|enable|neighbor|tacacs|radius)[^\r\n]{0,80}[ ](?:password|secret|key)[ ][0-9]{1,2}[ ]([^\s\"']{4,128})",
    ),
    ("routing_key routingkey", rb"(?i)routing_?key[\\\"']{0,3}[ ]?[:=][ ]?[\\\"']{0,3}([0-9a-f]{32})(?![0-9a-f])"),
    (
        "username",
        rb"(?i)[\"']username[\"'][ ]?:[ ]?[\"'][^\"'\r\n]{1,64}[\"'][ ]?,[ ]?[\"']key[\"'][ ]?:[ ]?[\"']([0-9a-f]{32,})[\"']",
    ),
    (
        "secret",
        rb"(?i)secret[ _-]?id[\\\"']{0,3}[ \t]{0,12}[:=|][ \t]{0,4}[\\\"']{0,3}([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
    ),
    (
        "name=",
        rb"(?i)name=\"[\w.-]{0,40}(?:password|passwd|passphrase|pwd|token|secret|api_?key)\"[^\r\n]{0,80}\r?\n(?:[\w-]{1,40}:[^\r\n]{0,200}\r?\n){0,2}\r?\n([^\s]{4,512})",
    ),
    ("true false", rb"(?:TRUE|FALSE)\t/[^\t\r\n]{0,200}\t(?:TRUE|FALSE)\t[0-9]{1,12}\t[\w.-]{1,80}\t([^\s]{8,4096})"),  # cookies.txt
    ("machine", rb"(?i)(?<![\w-])machine[ \t]+\S{1,128}\s+password\s+(\S{1,256})"),
    (
        "requirepass masterauth identified psk community",
        rb"(?i)(?:requirepass|masterauth|identified by|wpa-psk|snmp-server community)[ \t]+[\"']?([^\s\"']{3,128})",
    ),
    ("password", rb"(?i)(?:with|encrypted|user|role|set) (?:[\w.@'\"-]{1,64} )?(?:with )?(?:encrypted )?password[ \t]{1,4}(?:=[ \t]?)?(?:password\()?'([^'\r\n]{1,256})'"),
    ("mot", rb"(?i)mot[ ]de[ ]passe[ ]{0,2}[:=][ ]?[\"']?([^\s\"',;]{3,256})"),
    ("user", rb"(?i)(?<![\w-])user[ ][\w.@-]{1,64}[ ](?:on|off)[ ](?:[^\r\n]{0,80}?[ ])?>([^\s]{3,256})"),  # Redis
    ("convertto-securestring", rb"(?i)convertto-securestring[ ](?:-string[ ])?[\"']([^\"'\r\n]{3,256})[\"']"),
    # command lines
    ("shodan", rb"shodan init ([A-Za-z0-9]{32})(?![A-Za-z0-9])"),
    ("cloudsmith", rb"cloudsmith[ ][^\r\n]{0,300}?[ ]-k[ ]([0-9a-f]{40})(?![0-9a-f])"),
    ("pass:", rb"(?i)-pass(?:in|out|word)?[ ,'\"=]{1,6}pass:([^\s\"',]+)"),
    ("chpasswd", rb"(?<![\w-])[\w.-]{1,64}:([^\s\"'|]{1,128})[\"']?(?:\s{0,8}\|\s{0,8}|\r?\n[+ ]{0,4})(?:sudo )?chpasswd"),
    ("chpasswd", rb"chpasswd:\s{1,40}(?:expire:[ ]\w{1,6}\s{1,40})?list:[ ]?\|?\s{1,40}(?:- )?[\w.-]{1,64}:([^\s\"']{3,128})"),
    ("ssh-keygen", rb"ssh-keygen[ ,'\"](?:[^\r\n]{0,200}?[ '\"])?-[NP][ ,'\"]{1,6}([^\s\"',-][^\s\"',]{2,128})"),
    ("sending", rb"send: sending \"(?=[^\"\\\r\n]{0,64}[0-9])([^\s\"\\]{6,64})\\?"),
    (" -a --auth", rb"(?<![\w-])(?:https?|xhs?)[ ,'\"](?:[^\r\n]{0,200}?[ '\"])?(?:-a|--auth)[ ,'\"=]{1,6}[^\s:'\",]{1,64}:([^\s\"',]{3,128})"),
    (" login", rb"(?i)(?<![\w-])[\w-]{2,24} login[ ](?:[^\r\n]{0,100}?[ ])?(?:-k|-t|--key|--token)[ =][\"']?(?=[\w-]{0,64}[0-9])([A-Za-z0-9_-]{16,})"),
    ("alias config", rb"(?<![\w-])(?:mc|mcli) (?:alias set|config host add) [\w.-]{1,64} [^\s]{4,200} [^\s]{3,128} [\"']?([^\s\"']{8,128})"),
    ("qshell", rb"qshell account [^\s]{8,128} ([^\s]{16,128})"),
    (" -u", rb"(?<![\w-])-u[ ,'\"=]{1,6}(?=[^\s:]{0,64}[0-9])([^\s:'\",/]{20,256}):(?=[\s'\",]|\Z)"),
    ("snmp", rb"(?i:snmp\w+)[ ,'\"](?:[^\r\n]{0,200}?[ '\"])?-A[ ,'\"=]{1,6}([^\s\"',-][^\s\"',]{2,128})"),
    ("snmp", rb"(?i:snmp\w+)[ ,'\"](?:[^\r\n]{0,200}?[ '\"])?-X[ ,'\"=]{1,6}([^\s\"',-][^\s\"',]{2,128})"),
    (
        "echo printf",
        rb"(?i)(?:echo|printf)[ ](?:-[ne]{1,2} )?[\"']?([^\s\"'|$]{3,256})[\"']?\s{0,4}\|\s{0,4}(?:sudo -S|[\w-]{1,20} login|passwd|kinit|cryptsetup|gh auth|glab auth|vault login|su )",
    ),
    ("htpasswd", rb"htpasswd[ ](?:-\w+ ){0,4}-\w{0,6}b\w{0,6}[ ](?:\S{1,256}[ ])?\S{1,64}[ ]([^\s\"'|;&-]\S{0,128})"),
    ("user% -u", rb"(?<![\w-])-U[ ,'\"=]{0,6}[\w.\\@-]{1,64}%([^\s\"',]{1,128})"),
    ("sshpass", rb"sshpass[ ,'\"]{1,6}-p[ ,'\"=]{0,6}([^\s\"',]{1,128})"),
    ("login", rb"(?i)(?:docker|podman|helm|skopeo|buildah|oras|crane|nerdctl|regctl|az|registry|wandb|vault|cf|oc|rancher|ngc|singularity|apptainer)[ ,'\"][^\r\n]{0,300}?login[^\r\n]{0,300}?[ ,'\"]-p[ ,'\"=]{0,6}([^\s\"',-][^\s\"',]{0,256})"),
    (
        "mysql mariadb mongo cqlsh svn 7z clickhouse cypher influx rabbitmq plink pscp psftp sqlcmd isql sybase bcp ldap kadmin arango",
        (rb"(?i)(?:mysql\w*|mariadb[\w-]*|mongo\w*|cqlsh|svn|7z\w?|clickhouse[\w-]*|cypher-shell|influx|rabbitmq\w*|plink|pscp|psftp|sqlcmd|isql|bcp|ldap\w+|kadmin|arango\w+)"
        rb"[ ,'\"][^\r\n]{0,400}?[ '\"]-(?:p|P(?![ ,'\"=]{0,6}[0-9]+\b)|pw|w)[ ,'\"=]{0,6}([^\s\"',-][^\s\"',]{0,256})"),
    ),
    ("redis-cli ipmitool unzip zip", rb"(?i)(?:redis-cli|ipmitool|unzip|zip)[ ,'\"][^\r\n]{0,200}?[ '\"]-[aP][ ,'\"=]{0,6}([^\s\"',-][^\s\"',]{0,256})"),
    ("sqlplus", rb"(?i)sqlplus[ ,'\"]+(?:-\w+[ ,'\"]+){0,3}[\w.-]{1,64}/([^\s@\"']{1,128})"),
)  # fmt: skip
# Marks of the forms whose hints are frequent in logs.
_MARKS: dict[str, tuple[bytes, ...]] = {
    "://": (rb"://[^\s/:@\"'<>]{0,128}:[^\s/\"'<>]{1,256}@", rb"://[^\s/:@\"'<>]{0,128}%3a"),
    "signature= sig= x-amz- x-goog- accessid= awsaccesskeyid= token= key=": (
        rb"(?:[?&;]|\\u0026|%26)[\w.-]{0,60}(?:signature|sig|token|credential|key|accessid|accesskeyid|secret|code)(?:=|%3d|\\u003d)",
    ),
    "login password": (rb"login[ \t\r\n]+[^\s]{1,128}[ \t\r\n]+(?:account|password)",),
    "machine": (rb"machine[ \t]+[^\s]{1,128}\s+password",),
    "password": (rb"password[ \t]{1,4}(?:=[ \t]?)?(?:password\()?'",),
    "webhook": (rb"webhooks?/",),
    "ingest": (rb"://[0-9a-f]{32}@",),
    "echo printf": (rb"\|\s*(?:sudo|su|gh|glab|kinit|cryptsetup|passwd|vault|[\w-]{1,20} login)\b",),
    "user% -u": (rb"-U[ ,'\"=]{0,6}[\w.\\@-]{1,64}%",),
    "login": (rb"login[^\r\n]{0,300}[ ,'\"]-p",),
    "mysql mariadb mongo cqlsh svn 7z clickhouse cypher influx rabbitmq plink pscp psftp sqlcmd isql sybase bcp ldap kadmin arango": (
        rb"(?:mysql|mariadb|mongo|cqlsh|svn|7z|clickhouse|cypher-shell|influx|rabbitmq|plink|pscp|psftp|sqlcmd|isql|bcp|ldap|kadmin|arango)[^\n]*[ '\"]-[pw]",
    ),
    "redis-cli ipmitool unzip zip": (rb"(?:redis-cli|ipmitool|unzip|zip)[ ,'\"][^\n]*[ '\"]-[aP]",),
    "psk": (rb"\bpsk[ ]{1,4}\"",),
    "username enable neighbor tacacs radius": (rb"(?:username|enable|neighbor|tacacs|radius)[^\n]{0,80} (?:password|secret|key) [0-9]{1,2} ",),
    "username": (rb"[\"']username[\"'][^\n]{0,90}[\"']key[\"']",),
    "secret": (rb"secret[ _-]?id",),
    "name=": (rb"name=\"[\w.-]{0,40}(?:password|passwd|passphrase|pwd|token|secret|api_?key)\"",),
    "true false": (rb"(?:true|false)\t/[^\t\n]{0,200}\t(?:true|false)\t",),
    "digest": (rb"digest[^\n]{0,400}response=[\\\"']{0,3}[0-9a-f]{32}",),
    "mot": (rb"mot de passe",),
    "user": (rb"\buser [\w.@-]{1,64} (?:on|off) [^\n]{0,80}>",),
    "sending": (rb"send: sending \"",),
    " -a --auth": (rb"\b(?:https?|xhs?)[ ,'\"](?:[^\n]{0,200}[ '\"])?(?:-a|--auth)[ ,'\"=]",),
    " login": (rb" login [^\n]{0,100}(?:-k|-t|--key|--token)[ =]",),
    "alias config": (rb"\bmc(?:li)? (?:alias|config) ",),
    " -u": (rb" -u[ ,'\"=]{1,6}[^\s:'\",/]{20,256}:(?:[\s'\",]|$)",),
}  # fmt: skip
_URL_USER = lazy_compile(rb"://([^\s/:@\"'<>]{12,256})(?::(?:x-oauth-basic|x)?)?@")
_USER_OPTION = lazy_compile(rb"(?:(?<![\w-])-u|--(?:proxy-)?user)[ ,'\"=]{1,6}([^\s:'\",]{1,64}):([^\s'\",]{1,256})")
_RUNS_AS = lazy_compile(rb"(?:docker|podman|nerdctl)\b[^\n]{0,40}\b(?:run|exec)|chown|setpriv|unshare|install ")
_OPTION = lazy_compile(
    rb"(?:(?<![\w-])-|(?<!-)--)([A-Za-z][\w-]{1,60})['\"]?,?[ \t=]{1,8}(?:\"([^\"\r\n-][^\"\r\n]{0,255})\"|'([^'\r\n-][^'\r\n]{0,255})'|['\"]?([^\s\"'-][^\s\"']*))"
)
_COOKIE = lazy_compile(
    rb"(?i)(?:(?<![\w-])(?:set-)?cookies?2?[\\\"']{0,4}[ \t]{0,4}[:=,][ \t]{0,4}|(?:(?<=[ ])-b|--cookie)[ =])[\\\"'({]{0,4}([^\r\n]{4,8192})"
)
_CRUMB = lazy_compile(rb"([\w.%-]{1,80})[\\\"']{0,2}[=:][ ]?[\\\"']{0,2}([^\s;,\"'\\]{4,4096})")
_CRUMB_ATTRIBUTES = frozenset(b"path domain expires max-age samesite version comment priority maxage".split())
_PGPASS = lazy_compile(
    rb"(?<![^\s\"'=])([\w.*-]{1,120}):([0-9]{3,5}|\*):([\w.*-]{1,64}):([\w.@*-]{1,64}):((?:[^\s\"':\\]|\\[:\\]){3,128})(?![^\s\"',])"
)
_BASIC = lazy_compile(
    rb"(?i:(?<![A-Za-z])(?:basic[ \t]{1,4}|_?auth[\\\"']{0,3}[ \t]{0,4}[:=][ \t]{0,4}[\\\"']{0,3}))([A-Za-z0-9+/]{8,}+={0,2})"
)


def _url_users(text: bytes) -> Iterator[Span]:
    return (hit.span(1) for hit in _URL_USER.finditer(text) if mixes(hit[1]) and not hit[1].startswith(b"$"))


def _pgpass(text: bytes) -> Iterator[Span]:
    return (hit.span(5) for hit in _PGPASS.finditer(text) if _is_pgpass(hit))


def _basic(text: bytes) -> Iterator[Span]:
    return (hit.span(1) for hit in _BASIC.finditer(text) if pair_in_base64(hit[1]))


def _options(text: bytes) -> Iterator[Span]:
    for hit in _OPTION.finditer(text):
        group = hit.lastindex or 0
        strength, value = announces(hit[1]), hit[group]
        if strength is Announces.NOTHING or (PLAIN.fullmatch(value) and not value.isdigit()):
            continue
        if (
            strength is Announces.SECRET
            or (strength is Announces.OPAQUE and not PATH.match(value) and not value.isdigit())
            or (strength is Announces.TOKEN and hit[1].lower() == b"token" and len(value) >= 8)
            or is_random(value)
        ):
            yield hit.span(group)
    for hit in _USER_OPTION.finditer(text):
        line = text[max(0, hit.start() - 400) : hit.start()].rpartition(b"\n")[2]
        if not hit[2].isdigit() and not PLAIN.fullmatch(hit[2]) and not _RUNS_AS.search(line):
            yield hit.span(2)


def _cookies(text: bytes) -> Iterator[Span]:
    for cookie in _COOKIE.finditer(text):
        for crumb in _CRUMB.finditer(text, cookie.start(1), cookie.end(1)):
            if crumb[1].lower() not in _CRUMB_ATTRIBUTES and not PLAIN.fullmatch(crumb[2]) and not PATH.match(crumb[2]):
                yield crumb.span(2)


def _is_pgpass(hit: re.Match[bytes]) -> bool:
    """Whether host:port:database:user:password; addresses of cards and networks are five short hexadecimal numbers."""
    return not all(len(part) <= 5 and _SHORT_HEX.fullmatch(part) for part in hit.groups()) and not hit[5].isdigit()


_SHORT_HEX = lazy_compile(rb"[0-9a-fA-F]*")


def pair_in_base64(run: bytes) -> bool:
    """Whether a run of base64 is `user:password`."""
    try:
        text = binascii.a2b_base64(run + b"=" * (-len(run) % 4))
    except binascii.Error:
        return False
    return _USER_PAIR.fullmatch(text) is not None


_USER_PAIR = lazy_compile(rb"[\w.@$+/-]{1,128}:[\x21-\x7e]{3,512}\n?")


def _is_value(value: bytes) -> bool:
    return value.isdigit() or not PLAIN.fullmatch(value)


_OVER_LINES = frozenset(("login password", "machine", "chpasswd"))
# Words for a password or key in other languages, as launchers and platforms print them.
_FOREIGN = (
    "\u5bc6\u7801 \u53e3\u4ee4 \u5bc6\u94a5 \u79d8\u94a5 \u4ee4\u724c \u5bc6\u78bc \u30d1\u30b9\u30ef\u30fc\u30c9 \ube44\ubc00\ubc88\ud638 \uc554\ud638 \u043f\u0430\u0440\u043e\u043b\u044c \u041f\u0430\u0440\u043e\u043b\u044c"
    " \u0442\u043e\u043a\u0435\u043d \u043a\u043b\u044e\u0447 contrase\u00f1a has\u0142o \u015fifre l\u00f6senord jelsz\u00f3 wachtwoord salasana heslo senha"
)
_COLON = rb"(?:[:=]|\xef\xbc\x9a|\xef\xbc\x9d)"
_FOREIGN_VALUE = lazy_compile(
    rb"(?:" + rb"|".join(map(re.escape, _FOREIGN.encode().split())) + rb")[\"']?[ ]{0,4}" + _COLON + rb"[ ]{0,4}[\"'`]?"
    rb"([\x21\x23-\x26\x28-\x2b\x2d-\x3a\x3c-\x5f\x61-\x7e]{6,256})"
)


def _foreign(text: bytes) -> Iterator[Span]:
    """Return what follows such a word, up to a character outside ASCII, a quote or a bracket that closes a remark."""
    for hit in _FOREIGN_VALUE.finditer(text):
        value = re.split(rb"[()]", hit[1])[0]
        if len(value) >= 6 and _is_value(value) and (mixes(value) or not value.isalpha()):
            yield hit.start(1), hit.start(1) + len(value)


SEARCHES: tuple[Search, ...] = (
    Search(
        tuple(re.escape(word) for word in _FOREIGN.encode().split()),
        tuple(_FOREIGN.encode().split()),
        _foreign,
        cased=True,
    ),
    *(
        pattern_search(hints, pattern, _MARKS.get(hints, ()), _is_value, before=4 if hints in _OVER_LINES else 0)
        for hints, pattern in _PLACES
    ),
    Search((rb"://[^\s/:@\"'<>]{12,200}[:@]",), (b"://",), _url_users),
    Search(
        (
            rb"-(?:[a-z][\w-]{0,40})?(?:pass\w*|pwd|pw|secret|key|token|credentials?|auth|cookie)['\" ,]",
            rb"(?:^|[\s'\"])(?:-u|--user|--proxy-user)[ ,'\"=]{1,6}[^\s:]{1,64}:",
        ),
        (b"-",),
        _options,
    ),
    Search((rb"cookie", rb"\s-b[ =]"), (b"cookie", b" -b"), _cookies),
    Search((rb"[\w.*-]:(?:[0-9]{3,5}|\*):[\w.*-]{1,64}:[\w.@*-]{1,64}:[^\s]",), (b":",), _pgpass),
    Search(
        (rb"basic[ \t][a-z0-9+/]{8}", rb"auth[\\\"']{0,3}[ \t]{0,4}[:=]", rb"auth(?:\\u00|%22|&)"),
        (b"basic", b"auth"),
        _basic,
    ),
)
