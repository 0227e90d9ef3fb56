"""Knowledge that rules join against: ``rules/data/*.yaml`` as tables of the sandbox.

``ref_bug`` holds bugs of NCCL and torch with their versions, ``ref_message`` what they print when
something is wrong, ``ref_device`` peaks and links of devices. Versions become integers (2.19.3 is
2019003) so that SQL can compare them. ``setting_issues`` is a function: what check-env says of a
rank's settings; ``taken_back`` another: what idling less gives back to peers on the same cores.
"""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from advisor.config.hardware import Device, devices
from advisor.config.loader import load_model
from advisor.config.paths import shipped
from advisor.errors import AdvisorError


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Bug(_Strict):
    """A bug: affected from ``since`` up to, not including, ``fixed``; conditions are all needed."""

    id: str
    component: Literal["nccl", "torch"]
    since: str
    fixed: str | None
    impact: Literal["slow", "hang", "crash", "memory", "wrong"]
    symptom: str
    fix: str
    source: str
    setting: str | None = None
    value: str | None = None
    device: str | None = None
    op: str | None = None
    algorithm: str | None = None
    channels_at_most: int | None = None
    said: str | None = None  # a line of NCCL's log that shows it on any device
    graphs: bool | None = None  # only of runs that replay CUDA graphs
    workaround: dict[str, str] | None = None


class _Bugs(_Strict):
    bugs: list[Bug]


def known_bugs() -> list[Bug]:
    """The bugs of rules/data/known-bugs.yaml."""
    return load_model(data_file("known-bugs.yaml"), _Bugs).bugs


def data_file(name: str) -> Path:
    """A data file beside the rules."""
    return shipped("rules") / "data" / name


def version_key(version: str) -> int:
    """2.19.3 becomes 2019003; parts after the third and suffixes (+cuda12.4) do not count."""
    numbers = [int(part) for part in re.findall(r"\d+", version.split("+", maxsplit=1)[0])[:3]]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major * 1_000_000 + minor * 1_000 + patch


_TEXT, _NUMBER = "VARCHAR", "BIGINT"
_TABLES: dict[str, dict[str, str]] = {
    "ref_bug": dict.fromkeys(Bug.model_fields.keys() - {"workaround"}, _TEXT)
    | {"since": _NUMBER, "fixed": _NUMBER, "since_text": _TEXT, "fixed_text": _TEXT}
    | {"channels_at_most": _NUMBER, "graphs": "BOOLEAN"},
    "ref_message": dict.fromkeys(("message", "effect", "cause", "fix", "source"), _TEXT)
    | {"place": _NUMBER, "explains": "VARCHAR[]"}
    | dict.fromkeys(("between_hosts", "by_class", "recovers"), "BOOLEAN"),
    "ref_device": {
        "name": _TEXT,
        "phrases": "VARCHAR[]",
        **dict.fromkeys(("peak_bf16_flops", "peak_16bit_flops"), "DOUBLE"),
        **dict.fromkeys(("peak_tf32_flops", "peak_fp32_flops"), "DOUBLE"),
        **dict.fromkeys(("memory_bytes", "link_gbps", "pcie_gbps"), "DOUBLE"),
        "gpudirect": "BOOLEAN",
        "source": _TEXT,
    },
}


REFERENCE_TABLES = frozenset(_TABLES)

_TAKEN_BACK = """CREATE TEMP MACRO taken_back(cores, shared_ns, idle_ns) AS
  coalesce(least(1 / cores, shared_ns / idle_ns), 0)"""


def add_functions(con: Any) -> None:
    """Give SQL ``setting_issues`` and ``taken_back``, a share (0 to 1) of a rank's idle time.

    On busy cores its peers run alone meanwhile, and beside it once it no longer idles.
    """
    con.execute(_TAKEN_BACK)
    con.create_function(
        "setting_issues", _setting_issues, [_TEXT, _TEXT, _NUMBER], _TEXT, null_handling="special"
    )


def make_reference_table(con: Any, name: str) -> None:
    """Create and fill one of the ``ref_*`` tables."""
    # As JSON: Arrow imports pandas to look at Python's values, which takes longer than all rules.
    records = [{column: row[column] for column in _TABLES[name]} for row in _reference(name)]
    con.execute(
        f'CREATE TABLE "{name}" AS SELECT row.* FROM (SELECT unnest(from_json(?, ?)) AS row)',
        [json.dumps(records), json.dumps([_TABLES[name]])],
    )


@lru_cache(maxsize=4096)
def _setting_issues(settings: str | None, version: str | None, nodes: int | None) -> str:
    """What check-env says of one environment but for what is only worth knowing, as JSON.

    ``settings`` is a JSON object of names and values, ``version`` NCCL's, ``nodes`` the job's.
    """
    from advisor.model.nccl.env.check import check_env  # late: most recordings name no settings
    from advisor.model.nccl.version import parse_version

    try:
        release = parse_version(version) if version else None
    except AdvisorError:
        release = None  # a release unknown here: everything is said
    found = check_env(json.loads(settings or "{}"), release, nodes=nodes)
    return json.dumps([issue._asdict() for issue in found if issue.severity != "info"])


def _reference(name: str) -> list[dict[str, Any]]:
    if name == "ref_bug":
        return [_bug_row(bug) for bug in known_bugs()]
    if name == "ref_device":
        return [_device_row(device) for device in devices()]
    from advisor.model.nccl.messages import messages  # late, as above

    return [
        {**vars(item), "message": item.id, "place": place} for place, item in enumerate(messages())
    ]


def _bug_row(bug: Bug) -> dict[str, Any]:
    return {
        **vars(bug),
        "since": version_key(bug.since),
        "fixed": version_key(bug.fixed) if bug.fixed else None,
        "since_text": bug.since,
        "fixed_text": bug.fixed,
    }


def _device_row(device: Device) -> dict[str, Any]:
    # Before Ampere tensor cores have float16 only.
    of_16_bits = [peak for kind in ("bf16", "fp16") if (peak := device.peak_flops(kind))]
    return {
        "name": device.name,
        "phrases": device.match,
        "peak_bf16_flops": device.peak_flops("bf16"),
        "peak_16bit_flops": max(of_16_bits, default=None),
        "peak_tf32_flops": device.peak_flops("tf32"),
        "peak_fp32_flops": device.peak_flops("fp32"),
        "memory_bytes": device.memory_gb * 1e9,
        "link_gbps": device.link_gbps,
        "pcie_gbps": device.pcie_gbps,
        "gpudirect": device.gpudirect,
        "source": device.link_source or device.peak_source,
    }
