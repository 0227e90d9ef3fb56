"""Finds rule files, shipped and the user's own, and reads them with file:line errors."""

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from advisor.config.loader import load_model
from advisor.config.paths import shipped
from advisor.engine.rule import Rule
from advisor.errors import AdvisorError
from advisor.findings import Outcome, OutcomeKind

_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class Recipe(BaseModel):
    """How to capture a kind of evidence: ``advisor explain KEY`` prints it."""

    model_config = ConfigDict(extra="forbid")

    title: str
    how: str
    by_format: dict[str, str] = Field(
        default_factory=dict,
        description="instead, where files of this format were read and none of Kineto's",
    )

    def for_formats(self, formats: Collection[str]) -> str:
        """How to capture it with the tool that wrote files of these ``formats``."""
        others = [way for name, way in self.by_format.items() if name in formats]
        return self.how if "kineto" in formats or not others else others[0]


class _Recipes(BaseModel):
    model_config = ConfigDict(extra="forbid")

    recipes: dict[str, Recipe]


def load_rule(path: Path) -> Rule:
    """Read one rule. Raises AdvisorError naming file and line of every mistake."""
    if not _ID.fullmatch(path.stem):
        raise AdvisorError(
            "a rule's file name is its id: lower-case words joined by '-'", where=str(path)
        )
    if path.exists() and not path.is_file():  # a pipe that nobody writes into never begins
        raise AdvisorError("a rule is a file: no folder, pipe or device", where=str(path))
    return load_model(path, Rule).located(path)


def rule_files(folder: Path) -> list[Path]:
    """The rule files of a folder, sorted by id."""
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")], key=lambda path: path.stem)


def load_catalogue(
    rule_dirs: Sequence[Path] = (),
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> tuple[list[Rule], list[Outcome]]:
    """The shipped rules and those of ``rule_dirs`` (a user's rule replaces one of the same id).

    A shipped or user file that cannot be read becomes an ``error`` outcome, never a silent gap.
    Raises AdvisorError for a folder that does not exist or a selected rule that is unknown.
    """
    rules: dict[str, Rule] = {}
    broken: dict[str, Outcome] = {}
    for folder in (shipped("rules"), *(Path(folder) for folder in rule_dirs)):
        if not folder.is_dir():
            raise AdvisorError("no such folder of rules", where=str(folder), hint="check --rules")
        for path in rule_files(folder):
            name = path.stem
            rules.pop(name, None)
            broken.pop(name, None)
            try:
                rules[name] = load_rule(path)
            except AdvisorError as error:
                broken[name] = Outcome(
                    run="", rule=name, outcome=OutcomeKind.ERROR, reason=str(error)
                )
    known = sorted([*rules, *broken])
    for name in (*select, *ignore):
        if name not in known:
            close = get_close_matches(name, known, n=1)
            raise AdvisorError(
                f"no rule is called '{name}'",
                hint=f"did you mean '{close[0]}'?" if close else "list them: advisor rules",
            )
    wanted = [name for name in known if (not select or name in select) and name not in ignore]
    return (
        [rules[name] for name in wanted if name in rules],
        [broken[name] for name in wanted if name in broken],
    )


@cache
def recipes() -> Mapping[str, Recipe]:
    """How to capture what a trace alone does not hold, by key."""
    return load_model(shipped("rules") / "data" / "capture.yaml", _Recipes).recipes
