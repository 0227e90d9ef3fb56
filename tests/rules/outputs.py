"""Whole outputs of jobs, and what ``nccl-error`` says of them, by two roads.

:func:`first_causes` goes the user's: every output is a run of a store, found out, read, derived and
diagnosed. :func:`first_named` finds out, reads and asks the rule alone, of one sandbox whose rows
change: a tenth of the time, for hundreds of outputs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from advisor import api
from advisor.engine.catalogue import load_catalogue
from advisor.engine.evaluate import evaluate
from advisor.engine.facts import read_facts
from advisor.engine.rule import Rule
from advisor.engine.sandbox import Sandbox
from advisor.findings import Finding
from advisor.ingest.readers import nccl_log
from advisor.ingest.source import ReadContext, Source
from advisor.store import Store
from advisor.store.columns import rows

LOGS: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("nccl_logs.yaml").read_text(), Loader=yaml.CSafeLoader
)
"""Each with its cause, and where the output tells them ranks, hosts and what the advice names."""


def first_causes(folder: Path, logs: dict[str, str]) -> dict[str, Finding]:
    """Of each output by itself the finding that stands first."""
    for name, text in logs.items():
        (folder / f"{name}.log").write_text(text)
    first: dict[str, Finding] = {}
    with api.load_runs([folder / f"{name}.log" for name in logs]) as runs:
        for item in runs.diagnose(select=["nccl-error"]).findings:
            first.setdefault(item.run, item)
    return first


def first_named(folder: Path, cases: dict[str, dict[str, Any]]) -> dict[str, Finding]:
    """As :func:`first_causes`; an output that is not found to be one has no finding.

    Of outputs that come to the same names in the same order one is asked for, but for those whose
    place is known and those of which the rule reads more than names.
    """
    first: dict[str, Finding] = {}
    of_form: dict[Any, Finding | None] = {}
    with Store.create() as store, Sandbox(None, "output") as sandbox:
        facts = read_facts(sandbox)
        for name, case in cases.items():
            path = folder / f"{name}.log"
            path.write_text(case["log"])
            source = Source.of(path, 0)
            if not nccl_log.detect(source):
                continue
            nccl_log.read([source], ReadContext(store, name))
            topology = _topology(store, name)
            form = name if {"ranks", "hosts"} & case.keys() else _form(topology) or name
            if form not in of_form:
                sandbox.hold({"topology": topology})
                of_form[form] = next(iter(evaluate(_rule(), sandbox, facts).findings), None)
            if found := of_form[form]:
                first[name] = found
    return first


# Entries of which the rule or its views read the text too.
_READ = frozenset(
    {
        "watchdog-timeout",
        "watchdog-says",
        "barrier-timeout",
        "missing-rank",
        "store-timeout",
        "duplicate-gpu",
        "shm-small",
        "unhandled",
        "version-mismatch",
        "engine-waits",
        "exception",
    }
)


def _form(topology: list[dict[str, Any]]) -> Any:
    """What the rule sees of an output, without the texts; None where it reads these."""
    names = tuple((row["kind"], row["name"]) for row in topology if row["kind"] in _KINDS)
    if any(name in _READ for _, name in names):
        return None
    return names, min(2, len({row["host"] for row in topology} - {None}))


_KINDS = frozenset(("warning", "raised-at", "survived", "said-at", "progress", "version", "net"))


def _topology(store: Store, run: str) -> list[dict[str, Any]]:
    names = ("run", "kind", "rank", "host", "name", "value", "source")
    found = rows(store.con, f"SELECT {', '.join(names)} FROM topology WHERE run = ?", [run])
    return [dict(zip(names, row, strict=True)) for row in found]


@cache
def _rule() -> Rule:
    return load_catalogue(select=["nccl-error"])[0][0]


def what_differs(item: dict[str, Any], found: Finding | None) -> list[str]:
    """What of the first finding is not as a case of nccl_logs.yaml says."""
    if found is None:
        return [] if item["cause"] == "none" else ["nothing found"]
    if item["cause"] == "none":
        return [] if found.severity.value == "info" else [str(found.evidence.facts["message"])]
    if found.evidence.facts["message"] != item["cause"]:
        return [f"{found.evidence.facts['message']} in place of {item['cause']}"]
    wrong = [] if found.severity.value in {"critical", "warning"} else [found.severity.value]
    wrong += [f"ranks {found.ranks}"] if found.ranks != item.get("ranks", found.ranks) else []
    wrong += [f"hosts {found.hosts}"] if found.hosts != item.get("hosts", found.hosts) else []
    advice = " ".join(str(step) for step in found.fix)
    return wrong + ([f"advice: {advice}"] if item.get("fix", "") not in advice else [])
