"""The command `signalbox`. Heavy modules are imported only where they are needed, to keep the start fast."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from bot.cli.console import FEW, complain, discard_output, mask_uncaught
from bot.cli.diagnose_options import DiagnoseOptions, plain_options
from kb.errors import RuleError, SignalboxError

_COMPLETION = "_SIGNALBOX_COMPLETE"  # set by the shell when it asks what may follow


def main() -> None:
    """Run the command. Errors that the user can fix are printed as one line."""
    from bot.runtime.errors import exit_status

    mask_uncaught()
    if sys.stdout is None or sys.stderr is None:  # closed by the parent process
        nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names can contain any bytes
    try:
        options = None if _COMPLETION in os.environ else plain_options(sys.argv[1:])
        if options is not None:
            sys.exit(_run_plain(options))
        from bot.cli.command_line import command_line, named

        command_line(named(sys.argv[1:]))(prog_name="signalbox", standalone_mode=True)  # also when started as a module
    except RuleError as error:
        for fault in error.faults[:FEW]:
            complain(str(fault))
        sys.exit(exit_status(error))
    except SignalboxError as error:
        complain(str(error))
        sys.exit(exit_status(error))
    except OSError as error:  # most likely from writing the output: trouble with a source is a gap, not an error
        complain(str(error))
        discard_output()
        sys.exit(2)


def _run_plain(options: DiagnoseOptions) -> int:
    """Diagnose without typer. Returns the exit status, after a refusal or an interrupt the same as with it."""
    from bot.cli.diagnose import run

    try:
        return run(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard_output()
        return 1
    except RuntimeError as error:
        from typer import Exit

        if isinstance(error, Exit):
            return error.exit_code
        raise


if __name__ == "__main__":
    main()
