"""Of a trace's own fields only those are stored that something reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.config.workload import Workload
from advisor.ingest import ingest
from advisor.ingest.readers.kineto.metadata_fields import allowed_fields
from advisor.store.store import Store

HIDDEN = "s3kr1t"
ADVISOR: dict[str, Any] = {
    "strategy": "ddp",
    "environment": {
        "AWS_SECRET_ACCESS_KEY": HIDDEN,
        "HF_TOKEN": HIDDEN,
        "NCCL_TOKEN": HIDDEN,
        "MASTER_ADDR": "10.0.0.1",
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "3",
    },
}


def _trace(advisor: Any) -> dict[str, Any]:
    span = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    return {
        "schemaVersion": 1,
        "distributedInfo": {"rank": 0, "world_size": 1, "token": HIDDEN},
        "advisor": advisor,
        "env": {"WANDB_API_KEY": HIDDEN, "NCCL_ALGO": "Ring"},
        "API_KEY": HIDDEN,
        "password": HIDDEN,
        "host_name": "n1",
        "traceEvents": [span],
    }


@pytest.mark.parametrize("advisor", [ADVISOR, json.dumps(ADVISOR)], ids=["object", "text"])
def test_no_secret_of_a_trace_reaches_the_store(tmp_path: Path, advisor: Any) -> None:
    trace = tmp_path / "rank0.json"
    trace.write_text(json.dumps(_trace(advisor)))
    place = tmp_path / "run.duckdb"
    with Store.create(place) as store:
        ingest([trace], store)
        [(environment,)] = store.con.execute("SELECT environment FROM run").fetchall()
        [(metadata,)] = store.con.execute("SELECT metadata FROM rank").fetchall()
        [(note,)] = store.con.execute("SELECT note FROM source").fetchall()
        store.save()
    assert json.loads(environment) == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "3"}
    kept = json.loads(metadata)
    assert kept["advisor"]["strategy"] == "ddp"
    assert "env" not in kept
    assert kept["distributedInfo"] == {"rank": 0, "world_size": 1}
    assert kept["host_name"] == "n1"
    assert HIDDEN.encode() not in place.read_bytes()
    assert "fields not kept in the store: API_KEY, advisor.environment.AWS_SECRET" in note
    assert kept["left_out"]["API_KEY"] == len(json.dumps(HIDDEN))


# Spellings under which secrets were found in traces; none of the names is on a list of such names.
_PLACES: dict[str, Any] = {
    "env": [f"HF_TOKEN={HIDDEN}"],
    "environ": f"HF_TOKEN={HIDDEN}\nPATH=/x",
    "Environment": [{"name": "HF_TOKEN", "value": HIDDEN}],
    "env_vars": {"FOO": HIDDEN},
    "os.environ": {"GITHUB_PAT": HIDDEN},
    "process_env": {"A_SIGNING": HIDDEN},
    "headers": {"Authorization": HIDDEN},
    "db_pass": HIDDEN,
    "pwd": HIDDEN,
    "url": f"https://user:{HIDDEN}@host",
    "cmdline": f"python t.py --api-key {HIDDEN}",
    "argv": ["--token", HIDDEN],
    "metadata": {"environment": {"X": HIDDEN}},
    "json": json.dumps({"token": HIDDEN}),
    "sas": f"?sig={HIDDEN}",
    f"HF_TOKEN={HIDDEN}": 1,
}


@pytest.mark.parametrize("inside", ["", "advisor", "distributedInfo", "advisor.workload"])
def test_fields_that_nothing_reads_leave_their_size_only(inside: str) -> None:
    fields: dict[str, Any] = {"with_stack": 1}
    place = fields
    for name in filter(None, inside.split(".")):
        place = place.setdefault(name, {})
    place |= _PLACES
    kept, left_out = allowed_fields(fields)
    assert HIDDEN not in json.dumps(kept)
    assert kept["with_stack"] == 1
    before = f"{inside}." if inside else ""
    assert left_out == sorted(before + name for name in _PLACES)
    named = {name: len(json.dumps(value)) for name, value in _PLACES.items() if "=" not in name}
    assert kept["left_out"] == {before + name: size for name, size in named.items()}


@pytest.mark.parametrize(
    "value",
    [
        f"http://user:{HIDDEN}@proxy",
        f"a\nHF_TOKEN={HIDDEN}",
        json.dumps({"token": HIDDEN}),
        [HIDDEN],
        {"a": HIDDEN},
    ],
    ids=["address", "lines", "json", "list", "object"],
)
def test_values_of_the_allow_list_have_the_shape_of_settings(value: Any) -> None:
    settings = {"NCCL_ALGO": "allreduce:tree;broadcast:ring", "NCCL_SOCKET_IFNAME": "^docker,=eth0"}
    fields = {"advisor": {"environment": {**settings, "NCCL_NET_PLUGIN": value}}}
    kept, left_out = allowed_fields(fields)
    assert kept["advisor"]["environment"] == settings
    assert left_out == ["advisor.environment.NCCL_NET_PLUGIN"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "description": "mine",
            "compute": "emulated",
            "emulated": {},
            "stage_layers": [1, 2],
            "reduce_precision": "bf16",
        },
    ],
    ids=["defaults", "all"],
)
def test_every_setting_of_a_workload_is_kept_but_its_description(settings: dict[str, Any]) -> None:
    workload = Workload.model_validate(settings).model_dump(mode="json")
    kept, left_out = allowed_fields({"advisor": {"workload": workload}})
    workload.pop("description")
    assert kept == {"advisor": {"workload": workload}}
    assert left_out == []


def test_fields_of_the_projects_own_recordings_are_kept(fixtures_dir: Path) -> None:
    for name in ("gpt2-tiny-ddp-2-slow-rank", "emulated-sync-every-micro-batch"):
        with Store.create() as store:
            ingest([fixtures_dir / name / "rank0.json.gz"], store)
            [(note,)] = store.con.execute("SELECT note FROM source").fetchall()
        assert note is None


def test_what_a_profiler_always_writes_is_left_out_without_a_word() -> None:
    fields = {"traceName": "/home/me/t.json", "username": "me", "deviceProperties": [{"id": 0}]}
    assert allowed_fields({**fields, "INFO": ["x"], "with_stack": 0}) == ({"with_stack": 0}, [])


@pytest.mark.parametrize("key", [1, None, (1, 2)], ids=["number", "none", "tuple"])
def test_names_of_a_python_literal_may_be_no_text(key: Any) -> None:
    kept, left_out = allowed_fields({"advisor": {"rank": 1, key: 2, "environment": {key: "x"}}})
    assert kept["advisor"] == {"rank": 1, "environment": {}}
    assert left_out == sorted([f"advisor.{key}", f"advisor.environment.{key}"])
