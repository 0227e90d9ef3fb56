"""Knowledge that rules join against: ``rules/data/*.yaml`` as tables of the sandbox.

``ref_setting`` holds environment settings that cost time, ``ref_bug`` bugs of NCCL and torch with
their versions, ``ref_device`` peaks and links of the devices in the run. Versions become integers
(2.19.3 is 2019003) so that SQL can compare them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from advisor.config.hardware import find_device
from advisor.config.loader import load_model
from advisor.config.paths import shipped


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Setting(_Strict):
    """An environment variable and the values that are worth a finding."""

    name: str
    bad: str
    severity: Literal["warning", "info"]
    effect: str
    fix: str
    source: str


class Bug(_Strict):
    """A bug: affected from ``since`` up to, not including, ``fixed``; conditions are all needed."""

    id: str
    component: Literal["nccl", "torch"]
    since: str
    fixed: str | None
    impact: Literal["slow", "hang", "memory", "wrong"]
    symptom: str
    fix: str
    source: str
    setting: str | None = None
    value: str | None = None
    device: str | None = None
    op: str | None = None
    algorithm: str | None = None


class _Settings(_Strict):
    settings: list[Setting]


class _Bugs(_Strict):
    bugs: list[Bug]


def data_file(name: str) -> Path:
    """A data file beside the rules."""
    return shipped("rules") / "data" / name


def version_key(version: str) -> int:
    """2.19.3 becomes 2019003; parts after the third and suffixes (+cuda12.4) do not count."""
    numbers = [int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3]]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major * 1_000_000 + minor * 1_000 + patch


def fill_reference_tables(con: Any) -> None:
    """Create and fill the ``ref_*`` tables."""
    con.execute(
        "CREATE TABLE ref_setting (name VARCHAR, bad VARCHAR, severity VARCHAR, effect VARCHAR, "
        "fix VARCHAR, source VARCHAR)"
    )
    settings = load_model(data_file("nccl-env.yaml"), _Settings).settings
    con.executemany(
        "INSERT INTO ref_setting VALUES (?, ?, ?, ?, ?, ?)",
        [[s.name, s.bad, s.severity, s.effect, s.fix, s.source] for s in settings],
    )
    con.execute(
        "CREATE TABLE ref_bug (id VARCHAR, component VARCHAR, since BIGINT, fixed BIGINT, "
        "since_text VARCHAR, fixed_text VARCHAR, impact VARCHAR, symptom VARCHAR, fix VARCHAR, "
        "source VARCHAR, setting VARCHAR, value VARCHAR, device VARCHAR, op VARCHAR, "
        "algorithm VARCHAR)"
    )
    bugs = load_model(data_file("known-bugs.yaml"), _Bugs).bugs
    con.executemany(
        "INSERT INTO ref_bug VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            [
                bug.id,
                bug.component,
                version_key(bug.since),
                version_key(bug.fixed) if bug.fixed else None,
                bug.since,
                bug.fixed,
                bug.impact,
                bug.symptom,
                bug.fix,
                bug.source,
                bug.setting,
                bug.value,
                bug.device,
                bug.op,
                bug.algorithm,
            ]
            for bug in bugs
        ],
    )
    con.execute(
        "CREATE TABLE ref_device (device_name VARCHAR, name VARCHAR, peak_bf16_flops DOUBLE, "
        "peak_fp32_flops DOUBLE, memory_bytes DOUBLE, link_gbps DOUBLE, source VARCHAR)"
    )
    names = con.execute(
        "SELECT DISTINCT device_name FROM rank WHERE device_name IS NOT NULL"
    ).fetchall()
    for (device_name,) in names:
        device = find_device(device_name)
        if device is not None:
            con.execute(
                "INSERT INTO ref_device VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    device_name,
                    device.name,
                    device.peak_flops("bf16"),
                    device.peak_flops("fp32"),
                    device.memory_gb * 1e9,
                    device.link_gbps,
                    device.link_source or device.peak_source,
                ],
            )
