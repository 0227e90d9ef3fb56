"""What a trace says of its environment is kept by the allow-list of recordings, and no secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.config.environment import without_secrets
from advisor.ingest import ingest
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
    assert kept["env"] == {"NCCL_ALGO": "Ring"}
    assert kept["distributedInfo"] == {"rank": 0, "world_size": 1}
    assert kept["host_name"] == "n1"
    assert HIDDEN.encode() not in place.read_bytes()
    assert "not kept, as they may be secrets: API_KEY, advisor.environment.AWS_SECRET" in note
    assert "env.WANDB_API_KEY" in note or "more" in note


def test_only_text_under_a_telling_name_is_a_secret() -> None:
    fields = {
        "tokens_per_step": 4096,
        "tokenizer": "llama",
        "author": "a",
        "monkey": "b",
        "key": 3,
        "nested": [{"api_key": "x", "name": "y"}, 1],
        "private-key": ["x"],
    }
    kept, out = without_secrets(fields)
    assert kept == {
        "tokens_per_step": 4096,
        "tokenizer": "llama",
        "author": "a",
        "monkey": "b",
        "key": 3,
        "nested": [{"name": "y"}, 1],
    }
    assert out == ["nested.api_key", "private-key"]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (json.dumps({"lr": 0.1, "hub": {"token": HIDDEN}}), '{"lr": 0.1, "hub": {}}'),
        (json.dumps(json.dumps([{"db_password": HIDDEN}])), json.dumps("[{}]")),
        (f"{{'api_key': '{HIDDEN}'}}", None),
        (f'{{"token": "{HIDDEN}", "cut', None),
        (f"A=1 HF_TOKEN={HIDDEN}", None),
        ([f"HF_TOKEN={HIDDEN}", "A=1"], ["A=1"]),
        (["train.py", "--token", HIDDEN, "--lr", "1"], ["train.py", "--token", "--lr", "1"]),
        (["train.py", f"--api-key={HIDDEN}"], ["train.py"]),
        (f"train.py --hf_token {HIDDEN} --lr 1", None),
        (f"https://host/?access_token={HIDDEN}", None),
    ],
    ids=[
        *("json", "json-twice", "python", "cut", "assignment", "list"),
        *("argv", "argv-assignment", "command", "address"),
    ],
)
def test_secrets_inside_text_are_left_out(value: Any, kept: Any) -> None:
    fields, left_out = without_secrets({"advisor": {"argv": value, "steps": 3}})
    expected = {"steps": 3} if kept is None else {"argv": kept, "steps": 3}
    assert fields == {"advisor": expected}
    assert HIDDEN not in json.dumps(fields)
    assert [name.startswith("advisor.argv") for name in left_out] == [True]


@pytest.mark.parametrize(
    "value",
    [
        ["train.py", "--max-tokens", "2048", "--tokenizer", "gpt2", "--keys=a"],
        "max_tokens=2048 tokenizer: gpt2 author=me",
        json.dumps({"tokens": 5, "tokenizer": "gpt2", "big": 12345678901234567890}) + " ",
        "[rank 0] step=3",
        "x" * 100_000,
        "a." * 50_000 + "=",
        "a=" * 50_000,
    ],
    ids=["argv", "text", "json", "log", "long", "long-name", "assignments"],
)
def test_text_without_secrets_stays_as_it_is(value: Any) -> None:
    assert without_secrets({"argv": value}) == ({"argv": value}, [])


@pytest.mark.parametrize(
    "environment",
    [
        [f"AWS_ID={HIDDEN}", "NCCL_ALGO=Ring"],
        json.dumps({"AWS_ID": HIDDEN, "NCCL_ALGO": "Ring"}),
        json.dumps([f"AWS_ID={HIDDEN}", "NCCL_ALGO=Ring"]),
    ],
    ids=["list", "text", "text-of-list"],
)
def test_of_an_environment_in_any_form_the_allow_list_stays(environment: Any) -> None:
    fields, left_out = without_secrets({"env": environment})
    assert left_out == ["env.AWS_ID"]
    assert HIDDEN not in json.dumps(fields)
    assert "NCCL_ALGO" in json.dumps(fields)
