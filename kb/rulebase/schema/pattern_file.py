"""A pattern in a rule file, and its parts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from kb.model import SourceKind, Stage
from kb.parsers.signals import WORDS
from kb.rulebase.schema.fields import FieldTest, Identifier, NumberOrParam, PatternName, Regex, StrictModel
from kb.rulebase.signal_texts import USUAL, Teller


class WhereFile(StrictModel):
    """Where a pattern may match."""

    sources: list[SourceKind] = Field(default=[], description="Kinds of source. Default: any.")
    stages: list[Stage] = Field(default=[], description="Stages of the run. Default: any.")
    in_traceback: bool | None = Field(None, description="Inside a Python traceback (true) or outside (false).")
    last_frame: Regex | None = Field(
        None, description="Regex searched in the innermost frame, 'path:line in function'."
    )


class ExceptionFile(StrictModel):
    """A Python exception, with or without its traceback."""

    type: Regex | None = Field(None, description="Regex that matches the whole class name without its module.")
    message: Regex | None = Field(None, description="Regex searched in the first 2,000 characters of the message.")
    frame: Regex | None = Field(None, description="Regex searched in every frame, 'path:line in function'.")
    last_frame: Regex | None = Field(None, description="Regex searched in the innermost frame.")
    not_message: Regex | None = Field(None, description="Regex that the message must not contain.")
    not_frame: Regex | None = Field(None, description="Regex that no frame may contain.")
    not_last_frame: Regex | None = Field(None, description="Regex that the innermost frame must not contain.")
    not_type: Regex | None = Field(None, description="Regex that must not match the whole class name.")
    classified: bool = Field(
        default=False, description="The classifier is sure enough of its class, which is captured as 'class'."
    )

    @model_validator(mode="after")
    def _says_something(self) -> ExceptionFile:
        if not (self.type or self.message or self.frame or self.last_frame or self.classified):
            raise ValueError("an exception pattern needs type, message, frame, last_frame or classified")
        return self


class StructureFile(StrictModel):
    """A structure from docs/structures.md."""

    kind: Annotated[str, Field(pattern=r"^[a-z0-9_]+(\|[a-z0-9_]+)*$", max_length=120)] = Field(
        description="Kind of structure; `elastic_exit|launcher_exit`: one of these kinds."
    )
    fields: dict[str, FieldTest] = Field(
        default={}, description="Regex or list of values that each field matches as a whole."
    )
    not_fields: dict[str, FieldTest] = Field(default={}, description="Regex or list of values that no field may match.")


class DetectFile(StrictModel):
    """A detector over the series of iteration lines."""

    name: Identifier = Field(description="Name of the detector.")
    params: dict[str, NumberOrParam] = Field(default={}, description="Its numbers, or '$name' of a site parameter.")


class SeriesFile(StrictModel):
    """A test of one metric over the steps of a run: how it changes, or how long it stays above or below a number."""

    metric: Identifier = Field(description="A field of iteration lines, or a metric of the bundle.")
    change: Identifier | None = Field(None, description="The kind of change to look for.")
    above: NumberOrParam | None = Field(None, description="The value is above this number.")
    below: NumberOrParam | None = Field(None, description="The value is below this number.")
    of: Literal["value", "mean", "median", "max"] = Field("value", description="What the number is a multiple of.")
    points: NumberOrParam | None = Field(None, description="For this many logged points in a row.")
    steps: NumberOrParam | None = Field(
        None, description="For this many steps in a row, whatever the logging interval."
    )
    seconds: NumberOrParam | None = Field(None, description="For this many seconds in a row.")
    after: NumberOrParam | None = Field(None, description="Skip this many first steps.")
    at_end: bool = Field(default=False, description="Also true at the last point.")
    params: dict[str, NumberOrParam] = Field(default={}, description="Parameters of the change.")

    @model_validator(mode="after")
    def _one_test(self) -> SeriesFile:
        if sum(item is not None for item in (self.change, self.above, self.below)) != 1:
            raise ValueError("a series test needs exactly one of change, above, below")
        given = [point for point in (self.points, self.steps, self.seconds) if point is not None]
        if self.change is not None and (given or self.of != "value" or self.at_end):
            raise ValueError("points, steps, seconds, of and at_end require above or below")
        if self.params and self.change is None:
            raise ValueError("params requires change")
        return self


class PluginFile(StrictModel):
    """A detector that users programmed in Python (docs/detectors.md)."""

    name: Identifier = Field(description="Name of its entry point in the group signalbox.detectors.")
    params: dict[str, NumberOrParam] = Field(default={}, description="Its numbers, or '$name' of a site parameter.")
    captures: list[PatternName] = Field(default=[], description="The names of its captures, for holes in texts.")


class PatternFile(StrictModel):
    """A named thing to look for: exactly one of literal, regex, signal, exception, structure, detect, series, plugin."""

    literal: Regex | None = Field(None, description="Literal text in a line.")
    regex: Regex | None = Field(None, description="A regular expression of the safe subset, in a line.")
    signal: Annotated[str, Field(max_length=100)] | None = Field(
        None, description="A line that states one of these signals, such as SIGSEGV|SIGFPE."
    )
    said_by: list[Teller] = Field(
        default=[], description="Whose statements of the signal. Default: " + ", ".join(USUAL)
    )
    exception: ExceptionFile | None = None
    structure: StructureFile | None = None
    detect: DetectFile | None = None
    series: SeriesFile | None = None
    plugin: PluginFile | None = None
    ignore_case: bool = Field(default=False, description="Ignore case.")
    confirm: Regex | None = Field(None, description="A full Python regex that the line must also match.")
    not_line: Regex | None = Field(None, description="A regex that the line must not match.")
    level: Literal["error", "error_if_stated"] | None = Field(
        None,
        description="The level of the line: error (it states error or worse), error_if_stated (or it states no level).",
    )
    recovered: Literal[False] | None = Field(
        None, description="With false, the line must not say that the program overcame it: a retry, a fallback, a skip."
    )
    where: WhereFile | None = Field(None, description="Where the pattern applies.")

    @model_validator(mode="after")
    def _level_of_a_line(self) -> PatternFile:
        if (self.level is not None or self.recovered is not None) and not (self.literal or self.regex or self.signal):
            raise ValueError("level and recovered require literal, regex or signal")
        if self.level == "error" and self.confirm is not None:
            raise ValueError("level: error and confirm exclude each other: both say what the line must also match")
        return self

    @model_validator(mode="after")
    def _known_signals(self) -> PatternFile:
        unknown = [name for name in (self.signal or "").split("|") if name and name not in WORDS]
        if unknown or (self.signal is not None and not self.signal.strip("|")):
            raise ValueError(f"no signal {unknown[0] if unknown else ''!r}; known are {', '.join(WORDS)}")
        if self.said_by and self.signal is None:
            raise ValueError("said_by requires signal")
        return self

    @model_validator(mode="after")
    def _exactly_one(self) -> PatternFile:
        given: list[object] = [self.literal, self.regex, self.signal, self.exception, self.structure]
        given += [self.detect, self.series, self.plugin]
        if sum(item is not None for item in given) != 1:
            raise ValueError(
                "a pattern needs exactly one of literal, regex, signal, exception, structure, detect, series, plugin"
            )
        return self
