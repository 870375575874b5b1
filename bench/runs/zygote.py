"""A warm Python: imports the frameworks once, then forks a child for every `python …` that `client.py` hands over.

    PYTHON bench/runs/zygote.py --socket PATH [--import torch,transformers]

Importing them takes longer than a tiny training. A child gets the standard streams, environment, folder and arguments of
its client, runs the script (or `-m module`) as `__main__`, and ends as a Python of its own would: through sys.excepthook,
with the exit hooks. Its status goes back to the client, which ends likewise.
"""

# ruff: noqa: BLE001, SLF001 - a child meets whatever its script raises, and ends by the interpreter's own means

from __future__ import annotations

import argparse
import atexit
import builtins
import contextlib
import ctypes
import gc
import importlib
import json
import logging
import os
import resource
import select
import signal
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any, NoReturn

MODULES = (
    "torch.distributed.run,torch.utils.data,torch.distributed.fsdp,torch.distributed.checkpoint,torch.nn.parallel,numpy,"
    "transformers.models.gpt2.modeling_gpt2,transformers.models.llama.modeling_llama,transformers.trainer,accelerate,"
    "accelerate.commands.launch,lightning,lightning.pytorch.callbacks,peft,trl.trainer.sft_trainer,datasets,deepspeed,jax,optax,jax.experimental.multihost_utils"
)
CLONE_NEWUTS = 0x04000000


def main() -> None:
    """Import, listen, fork."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--import", dest="modules", default=MODULES)
    options = parser.parse_args()
    for module in options.modules.split(","):
        try:
            importlib.import_module(module)
        except Exception as error:
            print(f"not warm: {module}: {error}", file=sys.stderr)
    atexit._clear()  # what libraries do at the exit of this process is not for its children
    atexit.register(logging.shutdown)
    gc.freeze()
    serve(options.socket)


def serve(path: Path) -> None:
    """Fork a child for each request; wait for children and for clients that went away."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(256)
    clients: dict[int, socket.socket] = {}  # by pid of the child
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([listener, wake_read, *clients.values()], [], [])
        if wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)
        reap(clients)
        for pid, client in list(clients.items()):
            if client in ready and client.fileno() >= 0 and not client.recv(1):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # the client is gone: so goes what it stood for
        if listener in ready:
            client, _ = listener.accept()
            pid = accept(client, [listener, *clients.values()])
            if pid:
                clients[pid] = client


def reap(clients: dict[int, socket.socket]) -> None:
    """Hand the status of every child that ended to its client."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        client = clients.pop(pid, None)
        if client is not None:
            with contextlib.suppress(OSError):
                client.sendall(f"{status}\n".encode())
            client.close()


def accept(client: socket.socket, inherited: list[socket.socket]) -> int:
    """Fork the child that `client` asks for; its pid, 0 if the client left before it asked."""
    data, streams, _, _ = socket.recv_fds(client, 1 << 16, 3)
    while data and not data.endswith(b"\n"):
        data += client.recv(1 << 16)
    if len(streams) != 3:
        client.close()
        return 0
    pid = os.fork()
    if pid == 0:
        for other in (*inherited, client):
            other.close()
        signal.set_wakeup_fd(-1)
        become(json.loads(data), streams)
    for number in streams:
        os.close(number)
    with contextlib.suppress(OSError):  # the client is gone already: `serve` sees that, too
        client.sendall(f"{pid}\n".encode())
    return pid


def become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be the Python that the client stands for, to its end."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for name in ("SIGCHLD", "SIGTERM", "SIGINT"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED")) or "-u" in request["argv"]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - descriptors
    sys.stdout = open(1, "w", buffering=1 if unbuffered or os.isatty(1) else 8192, closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    if unbuffered:
        sys.stdout.reconfigure(write_through=True)
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
    sys.executable = request["executable"]
    refresh_library_streams()
    confine(request["env"])
    own = Path(__file__).resolve().parent
    extra = [part for part in request["env"].get("PYTHONPATH", "").split(":") if part]
    sys.path[:] = extra + [part for part in sys.path if Path(part).resolve() != own]
    finish(run(request["argv"]))


def refresh_library_streams() -> None:
    """Point the handlers that libraries made while they were imported at this process's streams."""
    handlers = [handler for ref in logging._handlerList if (handler := ref()) is not None]  # type: ignore[attr-defined]
    for handler in handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            to_out = "deepspeed" in sys.modules and handler.stream is DEEPSPEED_OUT
            handler.setStream(sys.stdout if to_out else sys.stderr)


DEEPSPEED_OUT = sys.stdout


def confine(env: dict[str, str]) -> None:
    """Limits and host name that a shell around the client would have given."""
    for name, value in json.loads(env.get("RUN_LIMITS", "{}")).items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if host := env.get("RUN_HOST"):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWUTS) == 0:
            socket.sethostname(host)


def run(argv: list[str]) -> int:  # noqa: C901 - the ways in which a Python starts and ends
    """Run `script …` or `-m module …`; the exit status."""
    rest = list(argv)
    while rest and rest[0] in ("-u", "-B", "-X", "-W"):
        rest.pop(0)
    try:
        if rest[0] == "-m":
            module = rest[1]
            spec = importlib.util.find_spec(module)
            if spec is not None and spec.submodule_search_locations:
                module += ".__main__"
                spec = importlib.util.find_spec(module)
            if spec is None or spec.origin is None:
                print(f"{sys.executable}: No module named {rest[1]}", file=sys.stderr)
                return 1
            path, rest, package = Path(spec.origin), rest[1:], module.rpartition(".")[0]
        else:
            path, package = Path(rest[0]), ""
            sys.path.insert(0, str(path.resolve().parent))
            if not path.is_file():
                print(
                    f"{sys.executable}: can't open file '{path.absolute()}': [Errno 2] No such file or directory",
                    file=sys.stderr,
                )
                return 2
        sys.argv = [str(path), *rest[1:]]
        scope = types.ModuleType("__main__")
        scope.__dict__.update(__file__=str(path), __builtins__=builtins, __package__=package or None)
        sys.modules["__main__"] = scope
        exec(compile(path.read_text("utf-8"), str(path), "exec"), scope.__dict__)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            return -signal.SIGINT
        return 1
    return 0


def finish(status: int) -> NoReturn:
    """End as an interpreter does: threads, exit hooks, streams."""
    for step in (threading._shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):  # type: ignore[attr-defined]
        with contextlib.suppress(Exception):
            step()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main()
