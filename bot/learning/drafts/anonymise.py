"""Removes from lines and texts what must not leave the site: secrets, hosts, people, paths, addresses, ids.

It combines two methods. Text of a recognisable form is replaced by a placeholder. Plain words stay only if they are words of
English, the rule base uses them, or the rule matches them, so a name that cannot be recognised is an unknown word and is removed.
"""

from __future__ import annotations

import builtins
import gzip
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from bot.runtime.redaction import redact_bytes
from kb.learning.tokenizer import Token, tokens
from kb.rulebase.rule import Rulebook
from kb.scanning.prefilter import COMMON, TELLING

LONGEST = 600  # characters per line
LONGEST_NUMBER = 7  # digits of a count; longer ones may be ids
NAME = "name"  # replaces an unknown word of a log line
SOMEBODY = "(name)"  # likewise in a person's text
_CAPITAL = re.compile(r"(?<=[a-z0-9,] )[A-Z][a-z]{1,30}\b(?![-\w])")  # within a sentence: a name
_PROGRAM = re.compile(r"[a-z][a-z0-9_.-]{1,30}(?=\s|==)")  # of a command; a single word may as well be a login
_SETTING = re.compile(
    r"\b[A-Z][A-Z0-9]{1,30}(?:_[A-Z0-9]{1,30}){1,6}(?==)"
)  # an environment variable, before its value
_NUMBERED = re.compile(
    r"(thread|worker|reader|writer|shard|part|stage|step|batch|block|queue|layer|group|epoch)[-_]?\d{1,6}"
)
_HOST = re.compile(
    r"(?:node|host|nid|compute|dgx|hgx|cn|gpu|srv|rack|login)[a-z]{0,10}[-_]?[a-z]{0,3}\d{1,8}.*|.{1,60}\.[a-z]{2,12}"
)
# hosts, whatever they are called: of NCCL's prefix, and of a list of nodes
_LISTED = re.compile(
    r"^(\s{0,8})([A-Za-z][\w.-]{1,60})(?=:\d{1,8}:\d{1,8} \[\d{1,3}\] [NR]CCL)|(?<=\b(?:nodes|hosts)=)([A-Za-z][\w.,\[\]-]{1,200})"
)
_COMPOUND_NAME = re.compile(r"[a-z0-9]{2,}(?:[-_][a-z0-9]+){1,8}")
_BEGINS = {"ip": "192.0.2.", "host": "node-", "name": "name-"}
_PARTS = re.compile(r"[A-Za-z]+")
_LIBRARY = re.compile(r"(?:site-packages|dist-packages)/((?:[\w.-]{1,60}/){0,8}[\w.-]{1,60})")
_SUFFIX = re.compile(
    r"\.(?:py|pt|pth|bin|idx|json|jsonl|yaml|safetensors|tar|parquet|txt|log|distcp|so|cc|cpp|cu)(?=[.\d]{0,8}\W{0,2}$)"
)
_PLAIN = frozenset(
    """
    a about after again all also an and any are as at be because been before but by came can cause caused changed did
    do does done down each every fixed for found from full gave given gone had has have her his how if in into is it
    its job jobs just kept know last left like made make many may more moved much must my need needed never new next
    no not now of off often old on once one only or our out over own put ran replaced reset restarted run runs said
    same saw see seen set several she should so some still such switched take taken than that the their them then
    there these they this those through to too took two turned under until up use used very was we went were what
    when where which while who why with within without work worked would yet you your node rank host cable driver
    port link switch bad broken slow stuck jan feb mar apr jun jul aug sep oct nov dec mon tue wed thu fri sat sun
    info warning error debug warn fatal critical python torch traceback most recent call file line kernel rank local
    world size epoch lr iter
    """.split()  # noqa: SIM905 - a list would take a page
)
# words of the trade that a dictionary lacks
_TRADE = frozenset(
    """
    ci cd nvme ssd ssds ecc dns admin args arg kwargs desc ctx msg backend backoff bashrc bmc boolean bootstrapped checksum checksums chrony cgroup chunked config configs cron daemonset
    dataloader dataset datasets datacenter decommissioned deduplicated deploy deployed deployment deployments dequeued desync env epilog ethernet failover filesystem firmware
    fsync goodput hostname infiniband inode inodes ipmi kernel keyring kubectl lifecycle linter memtest metadata mid misconfigured mtime namespace netplan nic nics ntp nvlink
    nonzero offline online optimizer optimizers overcommit param params patched pinned prefetch prefetching preempted
    placer pre preprocess preprocessed prolog quorum ran reran rebalanced rebased rebooted reconnect reconnected redeployed reindexed
    relaunch relaunched reload reloaded remount remounted renamed reopened repo requeue requeued rerun resharded
    reshard resubmit resubmitted resync resynced retokenised retokenized retried retries rollout runtime serialized
    sharded sharding shards sidecar sidecars signed softirq stalled subnet subprocess symlink sync synced sysadmin systemd throttled
    timeout timeouts timestamp timestamps tokenise tokenised tokenize tokenized tokenizer tokenizers toolchain transceiver transceivers ts ttl unmount
    allowlist apiserver autoscaler autoscaling backend backends backpressure backtrace basename bf bgp bios bitwise broker brokers btrfs ceph checkpointing
    collator collectives compaction configmap coredump crd cronjob crontab csi cni cuda dataloaders dcqcn dedup dedupe deduplication denylist desynced detokenize devs dhcp dimm
    dimms dtype dtypes ecmp ecn egress embeddings endpoint endpoints etcd filesystems fifo finetune finetuned fp fuse gcs geo gib glibc gpfs gpu gpudirect gpus grpc
    hbm hca hdd heartbeat heartbeats hostfile hotfix hotplug http https hugepage hugepages hypervisor ib ingress init initializer integrations interconnect ioctl iommu iops iscsi
    jwt kafka keepalive keepalives kerberos kib kubelet lacp ldap libc libs lockfile logits logrotate lora lossless lru lustre lvm malloc memlock mib microbatch microbatches
    middlebox minibatch mmap moe mountpoint mpi mps mtls mtu multicast multinode multipath multiprocess mutex nccl nfs nodelist nodelists noisy nsys numa nvlinks nvme nvswitch oauth
    offload offloaded offloading offsets oom optimiser ordinals overlayfs overran parallelism pci pcie peering pfc pids pmix portable posix prefetcher preprocessor presigned pretrain
    pretrained pretraining prober prolog protobuf proxied ptp pvc qos quantisation quantise quantised quantization quantize quantized raid rankfile rdma readahead realloc rebalance
    rebind redis regex relaunches replan requeues resampled resend resume resumes retimer retimers reuse rewrite roce rollouts rootfs sbatch scaler scalers scontrol segfault semaphore
    sha errorcode exitcode sharder slurm slurmctld slurmd slurmstepd softmax spinlock srun ssh ssl stacktrace statefulset stdin stderr stdout stdlib subdirectory submodule superblock svc swapfile syscall
    tcp tensor tensors throughput tmpfs tombstone tombstoned tombstones topology traceback udp uid ulimit unbind unfreeze unpin unpinned unthrottle userspace vf virtio vllm vpn
    vram vxlan warmup watermark watermarks webhook webhooks writeback xfs xid zfs zpool zookeeper
    inode inodes lifecycle uplink uplinks neighbour neighbours unmounted unset upstream venv vlan wandb watchdog whitelist whitelisted workflow yaml
    """.split()  # noqa: SIM905 - a list would take a page
)
# A list of a language has few of its compounds. The word before or behind such a part must be one of the list, and no short one,
# so that a name does not become a word.
_COMPOUND = re.compile(
    r"(?P<rest>[a-z]{5,})(?:ments?|ly|ness|able)|(?P<doer>[a-z]{5,})(?:ors?|ers?)|(?P<verb>[a-z]{3,})(?:back|backs|out|outs|over|overs|down|downs|off|offs|up|ups)"
    r"|(?:un|re|over|under|pre|non|auto|multi|micro|sub|super|inter|mis)-?(?P<base>[a-z]{4,})|(?:back|out|down|side)(?P<behind>[a-z]{4,})"
)
_BRITISH = re.compile(r"([a-z]{4,})is(e|es|ed|ing|ation|ations|er|ers)")  # the list is American
# words of English that are more often people in a close-out
_PEOPLE = frozenset(
    [
        "bob",
        "bobby",
        "dick",
        "earl",
        "frank",
        "gene",
        "harry",
        "jack",
        "jay",
        "jerry",
        "jimmy",
        "josh",
        "ken",
        "mike",
        "nick",
        "pat",
        "robin",
        "sue",
        "tom",
        "tommy",
        "underhill",
        "underwood",
        "victor",
    ]
)


@dataclass(slots=True)
class Anonymiser:
    """Anonymises the lines of one rule. Each host keeps the same placeholder throughout.

    `known`: words that may stay, in lower case; `names`: words that must be removed in any case.
    """

    known: frozenset[str]
    names: frozenset[str] = frozenset()
    _stand_ins: dict[str, str] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)
    _numbers: dict[str, list[str]] = field(default_factory=dict)

    def line(self, line: str, keep: Collection[str] = (), name: str = NAME) -> str:
        """Return a line without anything that must not leave the site.

        Args:
            line: the text; only its beginning counts.
            keep: words that the rule matches.
            name: what replaces an unknown word.
        """
        hidden = redact_bytes(line[:LONGEST].encode("utf-8", "replace"), emails=True).decode("utf-8", "replace")
        named = _LISTED.sub(lambda hit: f"{hit[1] or ''}{self._stand_in('host', hit[2] or hit[3])}", hidden)
        whole = self._without_compounds(named, name)
        return "".join(self._piece(token, keep, name) for token in tokens(whole, self.names)).rstrip()

    def _without_compounds(self, text: str, name: str) -> str:
        """Return a text without the names that are made of several words, each of which may be one of the language."""
        compounds = sorted(
            (item for item in self.names if _COMPOUND_NAME.fullmatch(item)), key=lambda item: (-len(item), item)
        )
        if not compounds:
            return text
        found = re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(map(re.escape, compounds))})(?![\w-])")
        return found.sub(
            lambda hit: SOMEBODY if name == SOMEBODY else self._stand_in(self._kind(hit[0]), hit[0].lower()), text
        )

    def _kind(self, text: str) -> str:
        return "host" if _HOST.fullmatch(text.lower()) is not None else "name"

    def words(self, text: str, keep: Collection[str] = ()) -> str:
        """Return a person's text as plain words and commands in backticks, without markup, names, or placeholders of rule texts."""
        keep = frozenset(keep) | self._settings(text)
        parts = re.split(r"`([^`\n]{1,300})`", " ; ".join(text.split("\n")))
        told = [self._command(part, keep) if at % 2 else self._prose(part, keep) for at, part in enumerate(parts)]
        plain = re.sub(r"\s+([,.;:)])", r"\1", " ".join(" ".join(told).split()))
        plain = re.sub(rf"{re.escape(SOMEBODY)}[-_.]?\d[\w-]*", SOMEBODY, plain)  # the number of a machine
        return re.sub(rf"{re.escape(SOMEBODY)}(?:[ ,]+{re.escape(SOMEBODY)})+", SOMEBODY, plain).strip(" ,;:-")

    def _settings(self, text: str) -> frozenset[str]:
        """The environment variables to which a text gives values, unless they contain a name: a remedy without them is none."""
        found = frozenset(_SETTING.findall(text))
        return frozenset(name for name in found if self.names.isdisjoint(name.lower().split("_")))

    def _prose(self, text: str, keep: Collection[str]) -> str:
        unnamed = _CAPITAL.sub(lambda hit: hit[0] if hit[0].lower() in self.known or hit[0] in keep else SOMEBODY, text)
        line = self.line(unnamed, keep, SOMEBODY)
        return re.sub(r"[^A-Za-z0-9 ,.;:/()%+=_'-]+", " ", line)

    def _command(self, text: str, keep: Collection[str]) -> str:
        """A command in backticks. Its program is kept: it is what the reader needs."""
        program = _PROGRAM.match(text.strip())
        words = _PARTS.findall(program[0]) if program is not None else []
        kept = frozenset(keep) | {word for word in words if word.lower() not in self.names}
        clean = re.sub(r"[^A-Za-z0-9 ,.;:/()%+=_<>|'-]+", " ", self.line(text, kept))
        return f"`{' '.join(clean.split())}`" if clean.strip() else ""

    def _piece(self, token: Token, keep: Collection[str], name: str) -> str:
        if token.kind == "word":
            return self._word(token.text, keep, name)
        if token.kind == "number":
            return token.text if len(token.text) <= LONGEST_NUMBER or "." in token.text else self._rounded(token.text)
        if token.kind == "space":
            return token.text if token.text.isspace() else " "
        if token.kind == "sign":
            return token.text if " " <= token.text <= "~" else "?"
        return self._varying(token, keep, name)

    def _word(self, word: str, keep: Collection[str], name: str) -> str:
        if word in keep and word.lower() not in self.names:
            return word
        parts = [part.lower() for item in _PARTS.findall(word) for part in _camels(item)]
        looked_for = {item.lower() for item in keep}
        fine = all(
            (part in self.known or is_word(part) or part in looked_for) and part not in self.names for part in parts
        )
        return word if fine and word.lower() not in self.names else name

    def _varying(self, token: Token, keep: Collection[str], name: str) -> str:
        text = token.text
        if token.form == "path":
            return _path(text)
        if token.form == "quoted":
            inner = "".join(self._quoted(item, keep, name) for item in tokens(text[1:-1], self.names))
            return f"{text[0]}{inner}{text[-1]}"
        if token.form == "ip":
            tail = re.search(r"[:<]\d{1,5}>?$", text)
            return f"{self._stand_in('ip', text[: tail.start()] if tail else text)}{tail[0] if tail else ''}"
        if token.form in ("name", "maybe_name"):
            return self._name(token, keep, name)
        if token.form in ("pci", "time", "unit"):
            return text
        return {"url": "https://example.com/path", "email": "user@example.com"}.get(token.form) or self._id(text)

    def _id(self, text: str) -> str:
        """Return an id of the same form. Equal ids stay equal and different ones different, as an error may be just that."""
        number = self._ids.setdefault(text.lower(), len(self._ids))
        begin = "0x" if text.lower().startswith("0x") else ""
        zeros = re.sub(r"[0-9A-Fa-f]", "0", text[len(begin) :])
        mark = f"{number:x}a"
        return f"{begin}{zeros[: -len(mark)]}{mark}" if zeros.endswith("0" * (len(mark) + 1)) else f"{begin}{zeros}"

    def _rounded(self, digits: str) -> str:
        """Return a long number without what could identify something. Different ones stay different, and of the same length."""
        head = digits[:3]
        own = self._numbers.setdefault(f"{head}/{len(digits)}", [])
        if digits not in own:
            own.append(digits)
        return f"{head}{own.index(digits):0{len(digits) - len(head)}d}"

    def _quoted(self, token: Token, keep: Collection[str], name: str) -> str:
        """Return a piece of what is in quotes: a name there is that of a thread or a thing, and no host, unless it is known as one."""
        if token.kind == "varying" and token.form in ("name", "maybe_name") and not self._is_host(token.text):
            return NAME if name == NAME else SOMEBODY
        return self._piece(token, keep, name)

    def _name(self, token: Token, keep: Collection[str], name: str) -> str:
        """Return a placeholder for a name, or the word if it may be none: one of the event or of the language."""
        text, word = token.text, token.text.isalpha()
        if len(text) == 1 and text.lower() not in self.names:
            return text  # as in "zone c": a letter names nobody
        if text.isupper() and text.lower() in _TRADE and text.lower() not in self.names:
            return text  # an abbreviation of the trade, as in "ask CI"
        numbered = _NUMBERED.fullmatch(text)
        if numbered is not None and numbered[1] in self.known and text.lower() not in self.names:
            return text  # a thing of the program, as in "worker-3"
        common = text in keep or (text.islower() and is_word(text))
        if word and common and token.form == "maybe_name" and text.lower() not in self.names:
            return text
        if name == SOMEBODY and text.rstrip("0123456789").isalpha():
            return SOMEBODY
        return self._stand_in("host" if self._is_host(text) else "name", text)

    def _is_host(self, text: str) -> bool:
        return text.lower() in self.names or _HOST.fullmatch(text) is not None

    def _stand_in(self, form: str, text: str) -> str:
        """Return a placeholder: node-a, node-b, … for hosts, name-a, … for other names, or an address reserved for documentation."""
        known, begin = self._stand_ins, _BEGINS[form]
        if text not in known:
            number = sum(word.startswith(begin) for word in known.values())
            known[text] = f"{begin}{number % 250 + 1}" if form == "ip" else f"{begin}{_letters(number)}"
        return known[text]


def _letters(number: int) -> str:
    first, last = divmod(number, 26)
    return (_letters(first - 1) if first else "") + chr(ord("a") + last)


def _camels(word: str) -> Iterator[str]:
    yield from re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", word)


def _path(path: str) -> str:
    """Return the path of a library starting at its package, and any other path as a folder and a file with its extension."""
    own = _LIBRARY.search(path)
    if own is not None:
        return f"/usr/lib/python3/dist-packages/{own[1]}"
    suffix = _SUFFIX.search(path)
    ending = suffix[0] if suffix is not None else ""
    return f"/path/file{ending}" if path.startswith(("/", "~", ".")) else f"file{ending}"


@lru_cache(1)
def english() -> frozenset[str]:
    """Return the words of English, in lower case; english_words.LICENSE says where they come from."""
    text = gzip.decompress(Path(__file__).with_name("english_words.gz").read_bytes()).decode()
    return frozenset(text.split()) - _PEOPLE | _TRADE


def is_word(text: str) -> bool:
    """Return whether a lower-case word is one of English, or a compound of one, such as "rollback" or "undrained"."""
    american = _BRITISH.sub(lambda hit: f"{hit[1]}iz{hit[2]}", text)
    if american != text and american in english():
        return True
    found = _COMPOUND.fullmatch(text)
    if text in _PEOPLE:
        return False
    plural = len(text) > 4 and text.endswith("s") and text[:-1] in english()
    return text in english() or plural or (found is not None and next(filter(None, found.groups())) in english())


@lru_cache(4)
def vocabulary(texts: frozenset[str]) -> frozenset[str]:
    """Return all words in some texts, in lower case, and the words common in logs."""
    found = {part.lower() for text in texts for item in _PARTS.findall(text) for part in (*_camels(item), item)}
    built_in = {part.lower() for name in dir(builtins) for part in _camels(name)}
    return frozenset(
        found | built_in | {part for item in (*COMMON, *TELLING) for part in _PARTS.findall(str(item))} | _PLAIN
    )


def words_of(rulebook: Rulebook) -> frozenset[str]:
    """Return the vocabulary of a rule base: the words of its patterns and texts."""
    return vocabulary(frozenset(_texts(rulebook)))


def _texts(rulebook: Rulebook) -> Iterable[str]:
    for rule in rulebook.rules:
        yield from (rule.title, rule.summary, rule.cause, rule.impact, *rule.known_problems)
        yield from (step.text for step in rule.remediation)
        for pattern in rule.patterns:
            yield from (item for item in (pattern.literal, pattern.regex, pattern.not_line) if item)
            if pattern.exception is not None:
                yield from (item for item in (pattern.exception.type, pattern.exception.message) if item)
    yield from (fault.title for fault in rulebook.faults.values())
