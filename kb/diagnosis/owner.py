"""Who should act on a fault: the owner of its rule's row, else its rule's, else its class's, else that of the class's domain.

What a job installs and imports is its user's, as far as nothing shows otherwise. A class whose domain is the platform
and whose owner is the user is the platform's only where the lines of the fault name a file in a tree that the site
installs for everybody, and none in an environment that users make for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from kb.diagnosis.findings import Finding
from kb.model import OF_MACHINES
from kb.regex.lazy import lazy_compile
from kb.rulebase.rule import Rulebook

_FEW = 8  # signals of a finding that are searched
_FILE = lazy_compile(r"(?<![\w./-])(?:/[\w.+@~-]{1,120}){2,40}")
# Trees of software that a site maintains: Cray PE, Bright, OpenHPC, EESSI, EasyBuild, Spack, Lmod trees of large centres.
_SITE = lazy_compile(
    r"/(?:opt/(?:cray|ohpc|apps|modulefiles|sw|software|spack|easybuild)|cm/(?:shared|local)|cvmfs|soft|sw|apps|software|easybuild"
    r"|global/common/software|usr/local/(?:apps|packages|sw)|share/apps|mnt/(?:sw|apps))/"
)
# What people make for themselves, wherever it lies: homes, virtual and conda environments, user installs.
_OWN = lazy_compile(
    r"/(?:home|users?|Users|homes|root|workspaces?|scratch\d*|work|projects?|lustre|fsx|gpfs)/"
    r"|/(?:\.local|\.conda|\.venvs?|\.virtualenvs|\.pyenv|\.cache|venvs?|env|envs|virtualenvs|(?:mini|ana)conda\d?|(?:mini|micro)(?:forge|mamba)\d?)/"
)


def on_loopback(best: Finding) -> bool:
    """Whether the address that did not answer is the node's own, so that nothing outside the job has to change."""
    return best.captures.get("endpoint") == "loopback"


def owner(best: Finding, rulebook: Rulebook) -> str:
    """Return who should act on a finding, in the words of actions.yaml (`owners`)."""
    usual = rulebook.owners.get(best.fault.domain, "none")
    if told := (best.row and best.row.owner) or best.rule.owner:
        return told
    if on_loopback(best):
        return "user"  # no network lies between
    if best.fault.owner and usual == "platform" and _installed_by_site(best):
        return usual
    return best.fault.owner or usual


def lies_in(best: Finding) -> str:
    """Return what is at fault if nobody is accused, in a few words, as the row, the rule or the class of a finding says.

    A row of a different class than its rule's does not take over what the rule says. What a class of the hardware or of the
    network says does not hold where the rule knows that the user must act.
    """
    of_rule = best.rule.lies_in if best.fault.id == best.rule.fault else ""
    own = (best.row.lies_in if best.row is not None else "") or of_rule
    acts = (best.row and best.row.owner) or best.rule.owner
    elsewhere = acts == "user" and best.fault.domain in OF_MACHINES
    return best.fill(own or ("" if elsewhere else best.fault.lies_in))


def _installed_by_site(best: Finding) -> bool:
    """Whether the lines of a finding name files of the site's software, and none of an environment that a user made."""
    files = [file for signal in best.signals[:_FEW] for file in _files(signal.line, signal.captures.get("message", ""))]
    files = files or [file for signal in best.signals[:_FEW] for file in _files(signal.captures.get("last_frame", ""))]
    return any(_SITE.match(file) for file in files) and not any(_is_own(file) for file in files)


def _is_own(file: str) -> bool:
    return _OWN.search(file) is not None


def _files(*texts: str) -> Iterator[str]:
    for text in texts:
        yield from (found[0] for found in _FILE.finditer(text))
