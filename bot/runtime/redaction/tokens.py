"""Tokens that a known head announces, whatever surrounds them: one row per form.

The heads, alphabets and lengths are facts from the vendors' documentation and from the rule list of gitleaks (MIT licence,
github.com/gitleaks/gitleaks, config/gitleaks.toml, commit b58d3f10), which its maintainers keep current. Lengths here are lower
bounds and a little below the documented ones, because vendors lengthen tokens without notice and logs cut them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bot.runtime.redaction.search import Search, pattern_search
from bot.runtime.redaction.values import is_opaque, is_random

# Heads with a body of their own alphabet: the head, the body, and at least how many characters.
_ALNUM, _WORD, _DASH, _HEX = rb"[A-Za-z0-9]", rb"\w", rb"[\w-]", rb"[0-9a-fA-F]"
_DOTTED, _BASE64 = rb"[\w.=-]", rb"[A-Za-z0-9+/=_-]"
_PLAIN: tuple[tuple[bytes, int, str], ...] = (
    (_ALNUM, 16, "ghp_ gho_ ghu_ ghr_"),  # GitHub
    (_DOTTED, 16, "ghs_ github_pat_"),
    # GitLab
    (
        _DOTTED,
        16,
        "glpat- gldt- glrt- glptt- glft- glimt- glagent- gloas- glsoat- glcbt- glffct- glrtr- glwt- GR1348941",
    ),
    (_ALNUM, 30, "hf_ hf_oauth_ hf_jwt_ api_org_"),  # Hugging Face: 34 letters, so that no look at digits can tell them
    (_WORD, 16, "wandb_v1_ wandb_v2_"),
    # model providers and their tools
    (
        _DASH,
        16,
        "sk-ant- sk-proj- sk-svcacct- sk-admin- sk-or- sk-lf- nvapi- pplx- xai- gsk_ csk- tgp_v1_ esecret_ jina_ tvly- llx-",
    ),
    (
        _DASH,
        16,
        "lsv2_pt_ lsv2_sk_ pcsk_ hxtp_ sk_car_ KGAT_ apify_api_ vercel_blob_rw_ e2b_ bfl- ollama_sk_ rpa_ crsr_ r8_",
    ),
    # package and image registries
    (_ALNUM, 24, "npm_ CLOJARS_ rubygems_ AKCp cmVmd"),
    (_DASH, 16, "pypi-AgE dckr_pat_ dckr_oat_ pypi-"),
    # clouds
    (_DASH, 20, "AIza ya29. GOCSPX- 1//0 GOOG1E GOOG1"),
    (_BASE64, 60, "ABSK bedrock-api-key-"),
    (_ALNUM, 12, "LTAI AKLT"),
    (_ALNUM, 20, "STS."),
    (rb"[A-Z0-9]", 14, "DO00 JDC_"),
    (_ALNUM, 28, "AKID"),
    (_DASH, 20, "AQVN t1.9eu y0__ y0_"),
    (_HEX, 24, "doo_v1_ dop_v1_ dor_v1_ dapi dkea pul- sntryu_ sntrya_ sntryi_"),
    (
        _DASH,
        20,
        "fo1_ fm1r_ fm1a_ fm2_ HRKU- rnd_ nfp_ nfo_ nfc_ nfb_ nfu_ sbp_ sb_secret_ napi_ vcp_ vci_ vca_ vcr_ vck_",
    ),
    (
        _DASH,
        20,
        "cfut_ cfat_ cfk_ v1.0- akab- tskey-auth- tskey-api- tskey-client- tskey-scim- tskey-webhook- tk-us- tk_us_",
    ),
    # secret stores and infrastructure
    (_DOTTED, 16, "hvs. hvb. hvr. dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. pscale_tkn_ pscale_oauth_ pscale_pw_"),
    (_BASE64, 24, "ops_eyJ glc_ AGE-SECRET-KEY-1 sntrys_"),
    (_DASH, 16, "pnu_ pnb_ CCDB1_ mdb_sa_sk_ xau_ dbtc_ dbtu_ dbts_ prefect_ infracost_ ico- sha256~ K10"),
    # monitoring
    (
        _DOTTED,
        20,
        "glsa_ dt0c01. dt0s01. dt0s02. dt0s03. hcaik_ hcxik_ hcalk_ hcamk_ hcmik_ essu_ phx_ phc_ ddapp_ ddpat_ ddsat_",
    ),
    (_DASH, 16, "NRAK- NRII- NRIQ- NRJS- NRRA- NRBR-"),
    # chat, mail, telephony
    (_DASH, 10, "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xoxb- xoxe.xoxp- xapp- xwfp-"),
    (_DOTTED, 20, "SG. mlsn. xkeysib- xsmtpsib- re_"),
    (_HEX, 24, "key- pubkey-"),
    # payment and shops
    (
        _DASH,
        10,
        "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ pk_live_ whsec_ rzp_live_ rzp_test_ sq0atp- sq0csp- sq0idp- sq0i",
    ),
    (_HEX, 24, "shpat_ shpca_ shppa_ shpss_ shptka_ shpua_ shippo_live_ shippo_test_"),
    (
        _DASH,
        12,
        "FLWSECK- FLWSECK_TEST- FLWPUBK_TEST- duffel_live_ duffel_test_ EZAK EZTK live_pub_",
    ),
    # development tools
    (
        _DASH,
        20,
        "ATATT ATCTT ATSTT ATTA BBDC- lin_api_ lin_oauth_ ntn_ secret_ figd_ figu_ figo_ figor_ PMAK- PMAT- CCIPAT_ CCIPRJ_",
    ),
    (_ALNUM, 20, "ATBB bkua_ bkct_ bkaj_ bkr_ sqa_ sqp_ sqs_ squ_ sgp_ sgp_local_ slk_ rdme_ sbf_ cio_ oy2"),
    (
        _DOTTED,
        16,
        "snyk_uat. snyk_sat. pat-na1- pat-eu1- tfp_ CFPAT- fio-u- sl. sm_aat_ sm_pat_ sm_sat_ p8e- s-s4t2ud- s-s4t2af- dnkey-",
    ),
    (_DASH, 20, "EAAA EAAB EAAC EAAD EAAG EAAH EAAM EAAJ EAAP EAAS EAAW EAAX IGQV IGAA"),
    (_ALNUM, 20, "b_live_ oauth:"),
)
_SHORT = {b"re_", b"sl.", b"pypi-", b"1//0", b"GOOG1", b"K10", b"r8_", b"rpa_", b"ico-", b"pul-", b"dapi", b"dkea", b"AKID", b"LTAI", b"AKLT",
          b"AQVN", b"y0_", b"cmVmd", b"AKCp", b"oy2", b"sqa_", b"sqp_", b"sqs_", b"squ_", b"SG.", b"secret_", b"xai-", b"csk-", b"tfp_", b"prefect_",
          b"infracost_", b"sq0i", b"oauth:", b"slk_", b"sgp_", b"nfb_", b"nfu_", b"e2b_", b"bfl-", b"rnd_", b"napi_", b"EAAA", b"EAAB", b"EAAC", b"EAAD",
          b"EAAG", b"EAAH", b"EAAM", b"EAAJ", b"EAAP", b"EAAS", b"EAAW", b"EAAX", b"IGQV", b"IGAA", b"ATTA", b"phc_", b"phx_", b"jina_", b"key-",
          b"pubkey-", b"dbtc_", b"dbtu_", b"dbts_", b"llx-", b"cfk_", b"sbf_", b"cio_", b"ABSK", b"v1.0-", b"EZAK", b"EZTK", b"ATBB", b"EAA", b"xau_",
          b"vcp_", b"vci_", b"vca_", b"vcr_", b"vck_", b"ntn_", b"sha256~", b"crsr_"}  # fmt: skip


_SPECIAL = (
    ("akia asia abia acca a3t", rb"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{8}", rb"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])([A-Z0-9]{16})(?![A-Z0-9])"),
    ("eyj", rb"eyJ[\w-]{8}", rb"eyJ([\w-]{8,2048}+(?:\.[\w-]{2,}+){1,4})"),
    ("v1.local. v2.local. v3.local. v4.local. v1.public. v2.public. v3.public. v4.public.", b"", rb"v[1-4]\.(?:local|public)\.([\w.-]{20,}+)"),
    (".atlasv1.", b"", rb"([A-Za-z0-9]{10,20}\.atlasv1\.[\w=-]{40,}+)"),
    ("a3-", rb"A3-[A-Z0-9]{6}-", rb"A3-([A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3})"),
    ("sct", rb"SCT[0-9]{3,8}T[A-Za-z0-9]{16}", rb"SCT[0-9]{3,8}(T[A-Za-z0-9]{20,})"),  # ServerChan
    ("2/", rb"2/[0-9]{12,20}/[0-9]{12,20}:", rb"(?<![0-9A-Za-z])2/([0-9]{12,20}/[0-9]{12,20}:[0-9a-f]{32})"),  # Asana
    ("q~", rb"[0-9]Q~[\w.~-]{20}", rb"([\w.~]{3}[0-9]Q~[\w.~-]{31,34})"),
    (":aa", rb"[0-9]{8,10}:AA[\w-]{20}", rb"([0-9]{8,10}:AA[\w-]{32,34})(?![\w-])"),  # Telegram
    ("-us", rb"[0-9a-f]{32}-us[0-9]", rb"([0-9a-f]{32}-us[0-9]{1,2})(?![0-9])"),  # Mailchimp
    ("apa91b", b"", rb"(AAAA[\w-]{7}:APA91b[\w-]{60,}+)"),
    ("_mmk", b"", rb"([A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk)"),
    ("api-", rb"API-[A-Z0-9]{25}", rb"API-([A-Z0-9]{25,})(?![A-Za-z0-9])"),
    ("4b1d", rb"4b1d[A-Za-z0-9]{38}", rb"(?<![0-9A-Za-z])4b1d((?=[A-Za-z0-9]{0,37}[G-Zg-z])[A-Za-z0-9]{38})(?![0-9A-Za-z])"),
    ("sdk- api- mob-", rb"(?:sdk|api|mob)-[0-9a-f]{8}-[0-9a-f]{4}-", rb"(?:sdk|api|mob)-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"),  # LaunchDarkly
    ("access-", rb"access-(?:sandbox|dev|prod)", rb"access-(?:sandbox|development|production)-([0-9a-f-]{36})"),
    ("nral", rb"[0-9a-z]{20}NRAL", rb"((?:[0-9a-f]{36}|[a-z]{2}\d\d[a-z0-9]{28,34})NRAL)"),
    ("jsn", rb"jsn[0-9a-zA-Z]{12}", rb"([0-9a-zA-Z]{10}msh[0-9a-zA-Z]{15}p1[0-9a-zA-Z]{6}jsn[0-9a-zA-Z]{12})"),  # RapidAPI
    ("pat. sat.", rb"[ps]at\.[\w-]{22}\.", rb"(?:pat|sat)\.([\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20})"),  # Harness
    ("pat", rb"pat[A-Za-z0-9]{14}\.[0-9a-f]{20}", rb"pat([A-Za-z0-9]{14}\.[0-9a-f]{64})"),  # Airtable
    ("access_token$", b"", rb"access_token\$(?:production|sandbox)\$([a-z0-9]{8,}\$[0-9a-f]{20,}+)"),  # PayPal
    ("pk.eyj sk.eyj", b"", rb"[ps]k\.eyJ([\w-]{20,}+\.[\w-]{20,}+)"),  # Mapbox
    ("pk_", rb"pk_[0-9]{6}", rb"pk_([0-9]{6,9}_[A-Z0-9]{32})"),  # ClickUp
    ("ssws", rb"ssws ", rb"SSWS[ ]{1,4}([\w-]{20,}+)"),
    ("md-", rb"md-[\w-]{22}", rb"(?<![\w-])md-([\w-]{22})(?![\w-])"),
    ("sess-", rb"sess-[A-Za-z0-9]{30}", rb"(?<![\w-])sess-([A-Za-z0-9]{36,}+)"),
    ("t3blbkfj", b"", rb"([\w-]{20,80}T3BlbkFJ[\w-]{20,80})"),  # OpenAI, whatever its head
    ("jqqj99", b"", rb"([A-Za-z0-9]{20,90}JQQJ99[A-Za-z0-9]{10,40})"),  # Azure
    ("acdb", rb"ACDb[A-Za-z0-9+/]{4}=", rb"([A-Za-z0-9+/]{60,90}ACDb[A-Za-z0-9+/]{4}==)"),
    ("cloudinary://", b"", rb"cloudinary://[0-9]{6,20}:([\w-]{10,}+)"),
    ("sk_", rb"sk_[0-9a-f]{40}", rb"(?<![A-Za-z0-9_])sk_([0-9a-f]{40,}+)"),
    ("ak- as-", rb"a[ks]-[A-Za-z0-9]{22}", rb"(?<![\w-])a[ks]-((?=[a-z]{0,21}[A-Z])(?=[A-Z]{0,21}[a-z])[A-Za-z0-9]{22})(?![\w-])"),  # Modal
    ("11", rb"11[0-9a-f]{32}", rb"(?<![0-9A-Za-z])11([0-9a-f]{32})(?![0-9A-Za-z])"),  # Jenkins
    ("scw", rb"SCW[A-Z0-9]{17}", rb"(?<![A-Z0-9])SCW([A-Z0-9]{17})(?![A-Z0-9])"),
    ("rpa_", rb"rpa_[A-Z0-9]{30}", rb"rpa_([A-Z0-9]{30,}+)"),
    ("$apr1$ $2a$ $2b$ $2y$ $1$ $5$ $6$ $y$ $argon2", rb"\$(?:apr1|1|2[aby]|5|6|y|argon2(?:i|d|id))\$[^\s]{12}",
     rb"\$(?:apr1|1|2[aby]|5|6|y|argon2(?:i|d|id))\$([^\s:\"'|,;<>]{20,}+)"),  # hashes of passwords: shadow, htpasswd
    ("{sha} {ssha}", b"", rb"\{S?SHA(?:256|512)?\}([A-Za-z0-9+/]{20,}+={0,2})"),
    ("pbkdf2", b"", rb"pbkdf2[:_-][\w:]{1,30}\$([^\s\"',;]{20,}+)"),
)  # fmt: skip
_RANDOM = (
    ("sk-", rb"sk-[\w-]{16}", rb"sk-([\w-]{20,}+)"),
    ("twilio sk", rb"SK[0-9a-f]{32}", rb"SK([0-9a-f]{32})(?![0-9a-f])"),
    (".", rb"[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{20}", rb"([MNO][A-Za-z0-9_-]{22,27}\.[\w-]{6}\.[\w-]{27,40})(?![\w-])"),  # Discord
    ("s.", rb"s\.[A-Za-z0-9]{24}", rb"s\.([A-Za-z0-9]{24})(?![A-Za-z0-9.])"),
    ("00", rb"00[\w-]{40}", rb"(?<![0-9a-f_-])00([\w-]{40})(?![\w-])"),  # Okta
    ("fw_ fc- pa- ck- re_ secret_ ak_ sk_ pk_ pat_ key_ tok_ api_ token_", rb"(?:fw_|fc-|pa-|ck-|ak_|sk_|pk_|pat_|key_|tok_|api_|token_)[A-Za-z0-9]{20}", rb"(?:fw_|fc-|pa-|ck-|ak_|sk_|pk_|pat_|key_|tok_|api_|token_)([A-Za-z0-9]{20,}+)"),
)  # fmt: skip


_ANY_RANDOM = frozenset(("sk-", "twilio sk", "00", "."))
_LEAST_HEAD = 4  # characters of a head that is a mark by itself


def _searches() -> Iterator[Search]:
    for body, least, heads in _PLAIN:
        for head in heads.encode().split():
            pattern = re.escape(head) + rb"(" + body + rb"{%d,}+)" % least
            short = head in _SHORT
            # A head that ordinary words end with marks a line only with its body.
            mark = re.escape(head) + (body + rb"{%d}" % min(least, 10) if short or len(head) < _LEAST_HEAD else b"")
            yield pattern_search(head.lower().decode(), pattern, (mark,), is_random if short else None)
    for hints, mark, pattern in _SPECIAL:
        yield pattern_search(hints, pattern, (mark,) if mark else ())
    for hints, mark, pattern in _RANDOM:
        yield pattern_search(hints, pattern, (mark,), is_random if hints in _ANY_RANDOM else is_opaque)


SEARCHES: tuple[Search, ...] = tuple(_searches())
