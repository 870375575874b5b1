"""What holds for a run as a whole, in words for the conditions of texts: processes, nodes, devices, precision, scheduler.

A text of a rule is true for every line that the rule matches only where it assumes none of these. Each is named only
where the logs or the job's description show it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from kb.facts.job_facts import Facts
from kb.facts.standstill import in_words, stood_still
from kb.facts.stated_settings import stated_setting
from kb.facts.topology import Places
from kb.regex.lazy import lazy_compile
from kb.regex.one_pass import one_pass
from kb.scanning.summary import tail_lines

_OF_SEVERAL = ("watchdog", "watchdog_status", "nccl_warn", "ib_completion", "collective_culprit", "stack_outlier")
_MESSAGES = ("exception", "watchdog", "nccl_warn", "native_crash", "error_line", "launcher_exit", "slurm_end")
_LARGE = r"(?:[2-9]|[1-9]\d{1,5})\b"
_SEVERAL = lazy_compile(
    rf"(?i:\b(?:world|data_parallel|tensor_parallel|(?:model|tensor|pipeline|data)[_-](?:model[_-])?parallel)[_ -]?size[\"']?[ ,:=]{{1,4}}{_LARGE})"
    rf"|(?i:\b(?:nproc|num_proc|ntasks|gpus|tasks)[_-]per[_-]node[\"']?[ ,:=]{{1,3}}{_LARGE}|\bnum_processes[\"']?[ ,:=]{{1,3}}{_LARGE})"
    rf"|\[(?:default|rank) ?[1-9]\d{{0,5}}\]:|\bRank [1-9]\d{{0,5}}\b|\bglobal[_ ]rank[:= ]{{1,2}}[1-9]|\b\d{{1,6}} ?/ ?{_LARGE} ranks"
    r"|\bWorkNCCL\(|\bProcessGroup(?:NCCL|Gloo|HCCL)\.cpp|\bdistributed_backend=nccl\nAll distributed processes"
)
_ALONE = lazy_compile(r"(?i)\b(?:world[_ ]size|num_processes)['\"]?[ ,:=]{1,4}1\b(?!\.\d)")
_SEVERAL_NODES = lazy_compile(
    rf"(?i)\b(?:nnodes|num[_-]?nodes|num[_-]?machines)[\"']?[ ,:=]{{1,3}}{_LARGE}|\b(?:node|machine)[_-]?rank[\"']?[ ,:=]{{1,3}}[1-9]"
)
_ONE_NODE = lazy_compile(
    r"(?i)\b(?:nnodes|num[_-]?nodes|num[_-]?machines|min_nodes)[\"']?[ ,:=]{1,3}1\b|--standalone\b"
)
_DEVICES = {  # the first of those that are shown counts
    # not the line in which JAX says on other devices that it found no libtpu
    "tpu": r"XLA:TPU|\blibtpu[ _-](?:version|init|nightly|multi|is)|\bLIBTPU_INIT|/libtpu/|\bTpuDevice\(|\bTPU[ _]?v\d|/dev/accel\d|\bmegascale\b"
    r"|\bTPU (?:backend|initialization|is already|platform)|Error: Unable to initialize backend 'tpu'",
    "npu": r"\btorch_npu\b|\bnpu:\d|\bNPUs? (?:devices?|is|are)\b|\bHCCL\b|\bAscend\b|\bCANN\b|\bdcmi (?:module|model)|\bMindSpore\b|modelarts",
    "neuron": r"\bNRT[:_]|\bNEURON_[A-Z]|\b(?:torch_)?neuronx?[-_](?:cc|rt|ls|monitor|top|distributed)\b|\bNeuron(?:Cores?| [Rr]untime| [Dd]evices?)\b",
    "gaudi": r"\bhpu:\d|\bhabana|\bHCL\b|\bGaudi",
    "amd": r"\bHIP error|\bhip(?::\d|Error\w)|\bROCm\b|\bROCk module|/dev/kfd|\bhsa_init|\brocm\d|\bRCCL\b|\bamdgpu\b|\bMI[23]\d\dX?\b",
    "xpu": r"\bxpu:\d|\bXPUs? (?:devices?|is|are)\b|\boneCCL\b|\bUR_RESULT_|\bZE_RESULT_|\bLevel[ -]Zero\b",
    "apple": r"\(mps\), used: True|\bmps:0\b|\bMPS backend\b|device(?:_type)?[=: '\"]{1,3}mps\b",
    "nvidia": r"\bNCCL (?:INFO|WARN|version)\b|ProcessGroupNCCL|\bWorkNCCL\(|\bcuda:\d|\bCUDA (?:error|out of memory|[Vv]ersion)"
    r"|\bcu(?:DNN|BLAS)\b|/libcuda\.so[.\d]*\(|GPU available: True \(cuda\), used: True|\bNVIDIA\b|\bNVRM\b|\bnvidia-smi\b|\bXid\b|\b[AHBVT]\d{2,3}-SXM|\bCUDA_\w{3,40}",
    "cpu": r"used: False|CUDA(?: is)? (?:not |un)available|[Ff]ailed call to cuInit|no CUDA-capable device"
    r"|[Dd]evice(?:_type)?[=: '\"]{1,3}cpu\b|libcuda\.so\.1: cannot open",
}
_FP16 = lazy_compile(
    r"(?i)\bfp16(?:_enabled)?[\"']?[ .]*[:=][ \"']*(?:true|1\b|\{)|--fp16\b|\bprecision[\"']?[ :=\"']{1,4}(?:16|fp16|float16|16-mixed)\b|[\"' =.]float16\b"
    r"|\bhalf-precision\b|\bAMP fp16\b|\bOVERFLOW!|\bFP16 Optimizer|\bmixed_precision[\"']?[ :=\"']{1,4}fp16|\bfp16 training"
)
_RECORDS = lazy_compile(
    r"flight recorder dump|dump signal|signal dumping|Dumping (?:debug|flight)|preparing to dump debug"
)
_SLURM = lazy_compile(r"\bslurmstepd\b|\bsrun: |\bSLURM_|\bslurm_|\bsbatch\b|\bStepId=")
_KUBERNETES = lazy_compile(r"\bkubelet\b|\bkubernetes\b|\bpytorchjob\b|\bOOMKilled\b|/var/run/secrets/kubernetes\.io")
_PYTHON = lazy_compile(
    r"(?i:\bpython|\.py\b|Traceback|\btorch|site-packages|\bnumpy|\bjax\b|tensorflow|\bwandb|\bdeepspeed|\[rank\d|\btokens?\b|\bloss\b)"
    r"|\b[A-Z]\w{1,40}Error: |NCCL (?:INFO|version)"
)
_CLOUD = lazy_compile(
    r"-dy-[\w-]{1,40}-\d{1,4}\b|\bip-\d{1,3}(?:-\d{1,3}){3}\b|\.(?:ec2|compute)\.internal\b|\.c\.[\w-]{1,60}\.internal\b|\b(?:gke|aks|eks)-[\w-]{4,60}|\.internal\.cloudapp\.net\b"
)
_ON_DRIVE = lazy_compile(r"(?m)(?:File \"|^ *)[A-Za-z]:\\\\?[^\"\n]{1,300}(?:\.py\b|\.dll\b)")
_RESULT = lazy_compile(
    r"(?i)\b(?:accuracy|perplexity|(?:train|val|valid|eval|test)\w{0,8}[_ ]loss)['\"]?\s{0,4}[:=]\s{0,4}\d"
)
_INFERS = lazy_compile(
    r"(?i)\b(?:vllm|sglang|lm[-_]eval\w*|llm_engine|tgi|text-generation-launcher|triton(?:_inference)?_?server)\b|\binfer(?:ence|ring)?\b"
    r"|\b(?:evaluat(?:e|ion|or|ing)|eval|generat(?:e|ion|ing)|predict(?:ion|ing)?|benchmark|serve|serving)(?:\.py|\b)|\bloglikelihood requests\b|\bProcessed prompts\b"
)
_TRAINS = lazy_compile(
    r"(?i)(?<![a-z])(?:pre-?|post-?)?train(?:ing|er|_\w{1,30}|\.py)?(?![a-z])|fine-?tun|\bbackward\b|\boptimi[sz]er\b|\bgrad(?:ient)?[ _]|\bepochs?\b|\blearning[_ ]rate\b|\blr[=:]"
    r"|\bsft\b|\bdpo\b|\bgrpo\b|\bppo\b|\blora\b"
)
# modules that Ray 2.0 moved, and the words of the releases before 1.0
_OLD_RAY = lazy_compile(
    r"/ray/(?:worker|services|import_thread)\.py\b|\bThe node with client ID\b|/ray/_raylet\.pyx\b.{0,40}execute_task\b|\bray[ =-]{1,3}[vV]?[01]\.\d"
)
_NCCL = lazy_compile(r"\bNCCL version (\d{1,2})\.(\d{1,2})\.\d")
_TORCH = lazy_compile(
    r"(?i)\b(?:py)?torch(?:[ _-]version)?[ :=v]{1,4}(\d)\.(\d{1,2})\.\d(?![\w.+]{0,20} or )|\btorch-(\d)\.(\d{1,2})\.\d"
)
_BUILT = lazy_compile(r"conda-bld/pytorch_(\d{10})")  # the second at which a release was built
_TORCH_2 = 1_678_000_000  # in March 2023, before release 2.0
# Settings in force: as a variable is printed, or as only the setting makes a library write. Libraries also advise them.
_SEGMENTS = lazy_compile(r"expandable_segments['\"]?[:=] ?['\"]?[Tt]rue")
_NO_SEGMENTS = lazy_compile(
    r"expandable_segments not supported on this platform|reserved in total by PyTorch\)"
)  # the latter before 2.1
_DETAIL = lazy_compile(r"TORCH_DISTRIBUTED_DEBUG['\"]?[=:] ?['\"]?DETAIL|ProcessGroupWrapper|\bCollectiveFingerPrint\(")
_BLOCKING = lazy_compile(
    r"(?:CUDA_LAUNCH_BLOCKING|HIP_LAUNCH_BLOCKING|ASCEND_LAUNCH_BLOCKING)['\"]?[=:] ?['\"]?1|AMD_SERIALIZE_KERNEL['\"]?[=:] ?['\"]?3"
)
_VERBOSE = lazy_compile(r"NCCL_DEBUG['\"]?[=:] ?['\"]?(?:INFO|TRACE)\b|\bNCCL INFO\b")
_RECOMPUTES = lazy_compile(
    r"(?i)\b(?:gradient|activation|selective_ac|fsdp_activation)_checkpoint\w{0,12}['\"]?[ .:=]{1,60}['\"]?(?:true|full|selective)\b"
    r"|\brecompute[_-]granularity['\"]?[ .:=]{1,60}['\"]?(?:full|selective)\b|\bapplied (?:full |selective )?activation checkpointing\b"
)
_ONE_SAMPLE = lazy_compile(
    r"(?i)\b(?:(?:device_)?(?:train_)?micro_?[_-]?batch(?:[_-]size)?(?:_per_gpu)?|per_device_(?:train_)?batch_size|batch_size_per_(?:gpu|device)|instantaneous batch size per device)['\"]?[ .:=]{1,60}['\"]?1(?![\w.])"
)
_ADVISED = lazy_compile(
    r"(?i)\b(?:consider|try|please|rerun|run|running|passing|use|setting|set|with|if)\b.{0,60}(?:_LAUNCH_BLOCKING|_SERIALIZE_KERNEL|ALLOC_CONF|_DEBUG|expandable_segments)"
)
# Where torchrun runs the rendezvous itself. A static one uses MASTER_ADDR.
_ELASTIC = lazy_compile(
    r"rdzv_backend['\"]?\s{0,12}[:=]\s{0,3}['\"]?(?:c10d|etcd)|elastic/rendezvous/(?:c10d|dynamic|etcd)"
)
_STEP_OF = lazy_compile(r"\b(?:StepId=|JOB |STEP |[Jj]ob(?:_?[Ii][Dd])?[=: ]{1,2})(\d{3,12})\b")


class RunCircumstances:
    """The circumstances of a run, by name (kb.rulebase.circumstances.OF_RUN). Each is determined when it is first asked for."""

    def __init__(self, facts: Facts, places: Places) -> None:
        self._facts, self._places = facts, places
        self._known: dict[str, str] = {}

    def get(self, name: str) -> str:
        """Return a circumstance; empty if it is unknown, or no circumstance of a run."""
        if name not in self._known:
            self._known[name] = self._determined(name)
        return self._known[name]

    def in_force(self, name: str, value: str) -> bool:
        """Whether a line shows that a variable or an option has this value, and does not only advise it."""
        shown = rf"(?<!\w){re.escape(name)}(?:['\"]?\s{{0,3}}[:=]\s{{0,3}}['\"]?| set by environment to ){re.escape(value)}(?!\w|\.\d)"
        return any(name in text for text in self._lines) and _in_force(re.compile(shown), self._lines)

    @cached_property
    def _lines(self) -> list[str]:
        return list(dict.fromkeys(_texts(self._facts)))  # ranks print much alike, and order tells nothing here

    def _determined(self, name: str) -> str:
        facts, places = self._facts, self._places
        ways: Mapping[str, Callable[[], str]] = {
            "processes": lambda: _processes(facts, places, self._lines),
            "nodes": lambda: _nodes(facts, places, self._lines),
            "device": lambda: _device(facts, self._lines),
            "precision": lambda: "fp16" if _scaled(facts) or _shows(_FP16, self._lines) else "",
            "scheduler": lambda: _scheduler(facts, self._lines),
            "language": lambda: _language(facts, self._lines),
            "job": lambda: _job(facts),
            "steps": lambda: "some" if _trained(facts, self._lines) else "none",
            "system": lambda: "windows" if _on_windows(facts, self._lines) else "",
            "kernel": lambda: "seen" if any(True for _ in facts.of_kind("kernel")) else "",
            "ray": lambda: "old" if _shows(_OLD_RAY, self._lines) else "",
            "nccl": lambda: "old" if _older(_NCCL, "nccl", (2, 18), self._lines) else "",
            "torch": lambda: "old" if _old_torch(self._lines) else "",
            "recorder": lambda: "on" if _shows(_RECORDS, self._lines) else "",
            "checkpoint": lambda: "some" if _saved(facts) else "",
            "machine": lambda: "cloud" if _in_cloud(facts, places, self._lines) else "",
            "segments": lambda: _segments(self._lines),
            "detail": lambda: "on" if _in_force(_DETAIL, self._lines) else "",
            "blocking": lambda: "on" if _in_force(_BLOCKING, self._lines) else "",
            "verbose": lambda: "on" if _in_force(_VERBOSE, self._lines) else "",
            "recompute": lambda: "on" if _shows(_RECOMPUTES, _naming(self._lines, "checkpoint", "recompute")) else "",
            "micro_batch": lambda: "one" if _shows(_ONE_SAMPLE, self._lines) else "",
            "batch_setting": lambda: stated_setting("batch_setting", self._lines),
            "length_setting": lambda: stated_setting("length_setting", self._lines),
            "elastic": lambda: "yes" if _shows(_ELASTIC, self._lines) else "",
            "work": lambda: "inference" if _only_infers(facts, self._lines) else "",
            "stood": lambda: in_words(seconds) if (seconds := stood_still(facts)) else "",
        }
        return ways[name]() if name in ways else ""


def _texts(facts: Facts) -> Iterator[str]:
    """Yield what is kept of the job's logs: their beginnings, the lines of structures, and their ends."""
    for kind in _MESSAGES:
        for _, structure in facts.structures(kind):
            yield structure.line
            yield str(structure.fields.get("message") or "")[:2000]
    for stream in facts.of_kind("job"):
        yield stream.summary.head
        yield from (line for _, line in tail_lines(stream.summary))


def _shows(regex: re.Pattern[str], texts: Iterable[str]) -> bool:
    return any(regex.search(text) for text in texts)


def _naming(texts: Iterable[str], *words: str) -> Iterator[str]:
    """Yield the texts with one of these words in any case: few have, and an expression that ignores case tries every byte."""
    for text in texts:
        low = text.lower()
        if any(word in low for word in words):
            yield text


def _processes(facts: Facts, places: Places, texts: list[str]) -> str:
    failed = [item for kind in ("elastic_failure", "elastic_exit") for _, item in facts.structures(kind)]
    beyond = any((item.fields.get(name) or 0) not in (0, -1) for item in failed for name in ("rank", "local_rank"))
    job = facts.evidence.job
    ranks = sum(len(ranks) for ranks in job.nodes.values())
    if max(job.world_size or 0, ranks, places.least_world) > 1 or beyond:
        return "several"
    tasks = [str(item.fields.get("task") or "0") for _, item in facts.structures("launcher_exit")]
    if any(task not in ("0", "None") for task in tasks):
        return "several"
    if job.world_size == 1:
        return "one"
    if any(facts.structures(kind) for kind in _OF_SEVERAL) or _shows(_SEVERAL, texts):
        return "several"
    return "one" if _shows(_ALONE, texts) else ""


def _nodes(facts: Facts, places: Places, texts: list[str]) -> str:
    if max(len(facts.evidence.job.nodes), len(places.nodes)) > 1 or _shows(_SEVERAL_NODES, texts):
        return "several"
    return "one" if len(facts.evidence.job.nodes) == 1 or _shows(_ONE_NODE, texts) else ""


def _device(facts: Facts, texts: list[str]) -> str:
    if any(facts.structures(kind) for kind in ("xid", "sxid")):
        return "nvidia"
    shown = "\n".join(texts).encode("utf-8", "replace")  # no such word goes over the end of a line
    return next((device for device, words in _DEVICES.items() if one_pass(words)(shown)), "")


def _in_cloud(facts: Facts, places: Places, texts: list[str]) -> bool:
    """Whether the nodes have the names that clouds give to machines which they start on demand."""
    return _shows(_CLOUD, [*facts.evidence.job.nodes, *places.nodes, *texts])


def _only_infers(facts: Facts, texts: list[str]) -> bool:
    """Whether the logs show an evaluation, generation or service, and nothing of a training."""
    trained = any(
        point.loss is not None or point.learning_rate is not None or point.grad_norm is not None
        for stream in facts.streams
        for point in stream.points
    )
    return not trained and not _saved(facts) and _shows(_INFERS, texts) and not _shows(_TRAINS, texts)


def _scaled(facts: Facts) -> bool:
    """Whether step lines give a loss scale above 1, which only training in fp16 has."""
    return any((point.loss_scale or 0) > 1 for stream in facts.streams for point in stream.points)


def _scheduler(facts: Facts, texts: list[str]) -> str:
    if facts.structures("slurm_end") or _shows(_SLURM, texts):
        return "slurm"
    return "kubernetes" if _shows(_KUBERNETES, texts) else ""


def _trained(facts: Facts, texts: list[str]) -> bool:
    """Whether steps were logged, or the result of a training or an evaluation."""
    return any(stream.points for stream in facts.streams) or _shows(_RESULT, texts)


def _on_windows(facts: Facts, texts: list[str]) -> bool:
    """Whether the program lies on a drive with a letter."""
    frames = (str(item.fields.get("frames") or "") for _, item in facts.structures("exception"))
    return any(_ON_DRIVE.search(text) for text in (*frames, *texts) if ":\\" in text)


def _language(facts: Facts, texts: list[str]) -> str:
    if facts.structures("exception") or _shows(_PYTHON, texts):
        return "python"
    return "native" if any(facts.structures(kind) for kind in ("native_crash", "launcher_exit")) else ""


def _job(facts: Facts) -> str:
    """Return the id of the job, from its description or the lines of its scheduler where these name only one."""
    if facts.evidence.job.id:
        return facts.evidence.job.id
    told = [str(item.fields.get("job") or "") for _, item in facts.structures("slurm_end")]
    told += [str(item.fields.get("id") or "") for _, item in facts.structures("job_id")]
    lines = (item.line for kind in ("oom_kill", "slurm_end") for _, item in facts.structures(kind))
    told += [found[1] for line in lines if (found := _STEP_OF.search(line))]
    ids = {name.partition(".")[0] for name in told} - {""}
    return ids.pop() if len(ids) == 1 else ""


def _in_force(regex: re.Pattern[str], texts: list[str]) -> bool:
    """Whether a line shows that a setting is in force, and does not only advise it."""
    found = (line for text in texts if regex.search(text) for line in text.split("\n"))
    return any(regex.search(line) and not _ADVISED.search(line) for line in found)


def _segments(texts: list[str]) -> str:
    if _shows(_NO_SEGMENTS, texts):
        return "none"
    return "on" if _in_force(_SEGMENTS, texts) else ""


def _older(regex: re.Pattern[str], name: str, least: tuple[int, int], texts: list[str]) -> bool:
    """Whether the texts state a release of what has this name, and only releases before `least`."""
    naming = _naming(texts, name)
    found = {tuple(int(part) for part in match.groups() if part) for text in naming for match in regex.finditer(text)}
    return bool(found) and all(release < least for release in found)


def _old_torch(texts: list[str]) -> bool:
    built = [int(second) for text in texts for second in _BUILT.findall(text)]
    return all(second < _TORCH_2 for second in built) if built else _older(_TORCH, "torch", (2, 0), texts)


def _saved(facts: Facts) -> bool:
    """Whether the logs show a save that ended, or that was followed by steps."""
    return any(
        item.fields.get("event") == "save_end" or facts.streams[index].steps_after(item.offset) >= 2
        for index, item in facts.structures("checkpoint")
        if item.fields.get("event") in ("save_begin", "save_end")
    )
