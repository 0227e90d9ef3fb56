"""A report that is made to be shared names no host, user or path, whatever the format."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import advisor
from advisor.api import Run
from advisor.cli import diagnose
from advisor.config.share_key import share_key
from advisor.errors import AdvisorError
from advisor.store.pseudonyms import Pseudonyms
from benchmarks.fuzz import documents
from tests.support.marks import thinned

pytestmark = pytest.mark.slow

SECRET = (
    "falcon7",
    "secretcorp",
    "alice",
    "10.20.30.4",
    "fe80::42",
    "launchpad",
    "projectx",
    "s3cr3t",
    "osprey",
)
ROOT = Path(__file__).parents[2]
FORMATS = ("text", "html", "json", "junit", "github", "markdown")
_KEY = b"k" * 32


@pytest.fixture(autouse=True)
def _own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A trace, a log, dumps and an Inspector's file of two secret hosts."""
    folder = tmp_path / "home" / "alice" / "projectx"
    folder.mkdir(parents=True)
    traces = documents.kineto()
    for rank, trace in enumerate(traces):
        host = f"falcon7{rank}.secretcorp.lan"
        trace |= {"host_name": host, "traceName": "/home/alice/projectx/x.json"}
        for event in trace["traceEvents"]:
            if event["name"] == "aten::mm":
                event["name"] = "/home/alice/projectx/launchpad/train.py(12): step"
        (folder / f"{host}_{100 + rank}.1700000000.pt.trace.json").write_text(json.dumps(trace))
    head = "falcon70:11:11 [0] NCCL INFO"
    (folder / "nccl.falcon70.log").write_text(
        f"{head} NCCL version 2.21.5+cuda12.4\n"
        f"{head} Bootstrap : Using eth0:10.20.30.4<0>\n"
        f"{head} NET/Socket : Using [0]eth0:10.20.30.4<0> [1]eth1:fe80::42%eth1<0>\n"
        f"{head} NCCL_COMM_ID set by environment to 10.20.30.4:5000\n"
        f"{head} NCCL_TOPO_FILE set by environment to /home/alice/projectx/topo.xml\n"
        f"{head} comm 0xaa rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE\n"
        f"{head} Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
        "falcon70:11:12 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to "
        "10.20.30.4<5000> failed : Connection refused\n"
        f"{head} NCCL_HOSTID set by environment to osprey\n"
        "falcon70:11:12 [0] NCCL WARN Call to open failed, osprey: run --hf-token s3cr3t --lr 3\n"
    )
    dump: Any = documents.flight_recorder()
    dump["entries"][0]["frames"][0]["filename"] = "/home/alice/projectx/launchpad/train.py"
    (folder / "fr_trace_0.json").write_text(json.dumps(dump))
    return folder


@pytest.fixture
def shared(inputs: Path) -> Iterator[Run]:
    with advisor.load(inputs, share=True, command="advisor diagnose --share") as run:
        yield run


@pytest.mark.long
def test_a_command_that_was_given_names_nobody_either(inputs: Path) -> None:
    given = (
        f"diagnose {inputs} --rules '{inputs}/launchpad/' --token s3cr3t "
        "--note falcon70.secretcorp.lan:10.20.30.4"
    )
    with advisor.load(inputs, share=True, command=given) as run:
        said = json.loads(run.render("json"))["command"]
    assert said.startswith("diagnose input-") and " --rules " in said and " --note host-" in said
    assert not [word for word in SECRET if word in said]


def test_only_whole_paths_of_a_command_are_inputs() -> None:
    names = Pseudonyms(_KEY)
    said = names.hidden_command("advisor diagnose a data 'b c'/", ["a", "b c", "."])
    assert said.startswith("advisor diagnose input-") and " data 'input-" in said
    assert "b c" not in said and said.endswith("'/")


def test_no_format_names_anybody(shared: Run) -> None:
    for form in FORMATS:
        text = shared.render(form, **({"verbose": True} if form == "text" else {}))
        left = [text[max(0, at - 60) : at + 60] for s in SECRET if (at := text.find(s)) >= 0]
        assert not left, form
    assert "host-" in shared.render("json")


def test_no_derived_table_names_anybody(shared: Run) -> None:
    """Whatever a rule or a section reads later, one column that is forgotten fails here."""
    con = shared.store.con
    for table, column in con.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE data_type LIKE 'VARCHAR%' "
        "AND table_name NOT IN ('event', 'comm_event', 'activity') AND NOT internal"
    ).fetchall():
        values = con.execute(f'SELECT DISTINCT "{column}"::VARCHAR FROM "{table}"').fetchall()
        text = " ".join(value for (value,) in values if value)
        assert not [secret for secret in SECRET if secret in text], (table, column)


def test_the_same_host_has_the_same_name_everywhere_and_in_the_next_report(
    shared: Run, inputs: Path
) -> None:
    query = "SELECT DISTINCT host FROM rank WHERE host IS NOT NULL ORDER BY 1"
    hosts = shared.sql(query).host.tolist()
    assert len(hosts) == 2
    with advisor.load(inputs, share=True) as again:
        assert again.sql(query).host.tolist() == hosts
    of_log = shared.sql("SELECT DISTINCT host FROM topology WHERE host IS NOT NULL").host.tolist()
    assert set(of_log) <= set(hosts)


def test_the_judgement_is_the_same(fixtures_dir: Path) -> None:
    folder = fixtures_dir / "lab-ddp-slow-link"
    with advisor.load(folder) as plain, advisor.load(folder, share=True) as shared:
        one, other = plain.report, shared.report
    assert [(f.rule, f.ranks, f.savings_ns) for f in one.findings] == [
        (f.rule, f.ranks, f.savings_ns) for f in other.findings
    ]
    assert one.verdict.kind == other.verdict.kind
    assert one.outcomes == other.outcomes


def test_names_inside_words_and_paths_go_and_words_of_ours_stay() -> None:
    names = Pseudonyms(_KEY)
    host = names.learn("host", "node1.lan")
    assert names.hidden("node1-ib0: node1.lan/node1_17 node rank11") == (
        f"{host}-ib0: {host}/{host}_17 node rank11"
    )
    for kept in ("NET/IB/0/GDRDMA", "3.2 GB/s", "https://github.com/NVIDIA/nccl/issues/1405",
                 "2.21.5", "12:34:56", "0000:3b:00.0", "127.0.0.1", "and/or", "a / b"):  # fmt: skip
        assert names.hidden(kept) == kept
    assert "bucket" not in names.hidden("s3://bucket/of/me/rank0.json")
    assert names.hidden("/data/a/x.py(3)").endswith("/x.py(3)")


@pytest.mark.parametrize(
    "text",
    [
        'cannot open "/home/alice smith/private dir/x"',
        "cannot open '/home/alice smith/private dir/deep/x.py': no such file",
        "open(`/data/smith private dir/x`) failed",
        "FileNotFoundError: [Errno 2] '~/smith/private dir/a file.bin' and '/a b/private/c'",
    ],
)
def test_a_quote_bounds_a_path_with_spaces(text: str) -> None:
    said = Pseudonyms(_KEY).hidden(text)
    assert not [part for part in ("smith", "private", "dir", "deep", "a b") if part in said], said
    assert said.count("path-") == text.count("/x") + text.count("bin") + text.count("/c")


@pytest.mark.parametrize(
    "text", ["3 GB'/s and 'a/b'", "'/' or \"/\" and 'x'", "a '/x' b/c '", "it's 1/2 of don't"]
)
def test_what_stands_between_two_quotes_is_no_path(text: str) -> None:
    assert Pseudonyms(_KEY).hidden(text) == text


def test_a_known_folder_bounds_a_path_with_spaces() -> None:
    names = Pseudonyms(_KEY)
    names.learn_spaced(["/home/alice smith/private dir", "/plain"])
    said = names.hidden("at /home/alice smith/private dir/deep/x.py, /home/alice smith/y: smith")
    assert not [part for part in ("alice", "smith", "private", "dir", "deep") if part in said]
    assert said.startswith("at path-")
    assert "/x.py, path-" in said


def test_a_folder_with_spaces_is_hidden_wherever_it_stands(tmp_path: Path) -> None:
    """GIVEN inputs in a folder with spaces, which a line of a log names without quotes."""
    folder = tmp_path / "alice smith" / "private dir"
    folder.mkdir(parents=True)
    head = "n1:11:11 [0] NCCL"
    (folder / "nccl.log").write_text(
        f"{head} INFO NCCL version 2.21.5+cuda12.4\n"
        f"{head} WARN Call to open {folder}/topo.xml failed, no such file\n"
        f"{head} WARN Call to open '/mnt/osprey launchpad/projectx/topo' failed, no such file\n"
        f"{head} WARN Call to open /mnt/osprey launchpad/projectx/graph failed, no such file\n"
    )
    with advisor.load(folder, share=True) as run:
        for form in FORMATS:
            text = run.render(form)
            secrets = ("alice", "smith", "private", "osprey", "launchpad", "projectx")
            assert not [secret for secret in secrets if secret in text], form


def test_pseudonyms_are_of_one_key() -> None:
    assert Pseudonyms(_KEY).learn("host", "a1") == Pseudonyms(_KEY).learn("host", "a1")
    assert Pseudonyms(_KEY).learn("host", "a1") != Pseudonyms(b"other").learn("host", "a1")


def test_the_key_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    left = tmp_path / "state" / "nccl-advisor" / f".share.key.{os.getpid()}"
    left.parent.mkdir(parents=True)
    left.touch()  # by a process of the same number that was killed
    key = share_key()
    assert share_key() == key
    left.unlink()
    (place,) = (tmp_path / "state").rglob("share.key")
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert [path.name for path in place.parent.iterdir()] == ["share.key"]
    place.write_bytes(b"short")
    assert share_key() != share_key()


def test_the_command_writes_what_may_be_passed_on(inputs: Path, tmp_path: Path) -> None:
    """GIVEN a report with names THEN it is its owner's alone; one without may be read by all."""
    modes = {}
    for name, options in {"own.json": [], "shared.json": ["--share"]}.items():
        place = tmp_path / name
        given = [str(inputs), *options, "--format", "json", "-o", str(place)]
        done = CliRunner().invoke(diagnose.command, given, standalone_mode=False)
        assert done.exception is None
        modes[name] = stat.S_IMODE(place.stat().st_mode)
    assert modes == {"own.json": 0o600, "shared.json": 0o644}
    text = (tmp_path / "shared.json").read_text()
    assert not [secret for secret in (*SECRET, str(tmp_path)) if secret in text]


def test_a_store_is_not_made_to_be_shared(inputs: Path, tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="not made to be shared"):
        advisor.load(inputs, share=True, store=tmp_path / "run.duckdb")
    assert not (tmp_path / "run.duckdb").exists()


@pytest.mark.long
def test_a_stored_run_is_shared_too(inputs: Path, tmp_path: Path) -> None:
    place = tmp_path / "run.duckdb"
    with advisor.load(inputs, store=place) as run:
        run.store.save()
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    with advisor.load(place, share=True) as shared:
        text = shared.render("html")
    assert not [secret for secret in SECRET if secret in text]


@pytest.mark.parametrize(
    "text",
    [
        "python train.py --hf-token s3cr3t --lr 3",
        'python train.py --hf_token="s3cr3t"',
        "python train.py --api_key='a s3cr3t'",
        "HF_TOKEN='s3cr3t' WANDB_API_KEY=\"s3cr3t\"",
        "AWS_SECRET_ACCESS_KEY=s3cr3t",
        "Authorization: Bearer s3cr3t",
        "failed: --password s3cr3t --auth s3cr3t",
        "GET https://somebody:s3cr3t@example.org/x?token=s3cr3t&n=1",
        'x {"token": "s3cr3t"}',
        "token: s3cr3t",
    ],
)
def test_what_a_secret_is_set_to_is_left_out(text: str) -> None:
    assert "s3cr3t" not in Pseudonyms(_KEY).hidden(text)


@pytest.mark.parametrize(
    "text", ["invalid token at line 3", "monkey=3 keys, authors: 5", "NCCL_KEYED 1", "tokens 4096"]
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert Pseudonyms(_KEY).hidden(text) == text


def test_a_host_in_capitals_is_the_same_host() -> None:
    names = Pseudonyms(_KEY)
    said = names.learn("host", "Falcon7.secretcorp.lan")
    assert names.hidden("FALCON7 and falcon7.secretcorp.lan:5000") == f"{said} and {said}:5000"


@pytest.mark.long
def test_a_relative_path_names_no_folder(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN traces that are named from the folder above THEN places in logs hide it, too."""
    monkeypatch.chdir(tmp_path)
    with advisor.load("home/alice/projectx", share=True) as run:
        for form in FORMATS:
            text = run.render(form)
            assert not [secret for secret in SECRET if secret in text], form
        (place,) = run.sql(
            "SELECT DISTINCT source FROM topology WHERE kind = 'warning' LIMIT 1"
        ).source
    assert place.startswith("path-")


def test_hosts_of_another_number_or_domain_are_hosts_too() -> None:
    names = Pseudonyms(_KEY)
    one = names.learn("host", "gpunode-Quokka0")
    said = names.hidden(
        "gpunode-quokka0 GPUNODE-quokka12 gpunode-quokka12.cell-3.lab.de, node 12.5"
    )
    first, second, third, rest = said.split(" ", 3)
    assert first == one
    assert second != one
    assert third.rstrip(",").startswith("host-")
    assert rest == "node 12.5"
    names.learn("host", "rank0")  # a word of ours: what has another number is no host
    assert names.hidden("rank1, rank0.log") == f"rank1, {names.hidden('rank0')}.log"


_IN_TEXT = (
    "NET/IB : Got completion from peer gpunode-quokka8<55000> with status=12",
    "peer 10.99.88.99<41231> (gpunode-quokka9.cluster.marmoset.example) refused",
    "contact wombat@marmoset.example or ssh wombat@login-echidna; gpunode-quokka9",
    "srun --user numbat x, user=numbat, fe80::1234:5678:9abc:def0",
    "https://ci.bilby.corp/x, numbat again, LOGIN-ECHIDNA, quoll.marmoset.example:80",
)


def test_hosts_and_users_that_only_a_free_text_names_are_hidden(tmp_path: Path) -> None:
    """GIVEN lines of a log that name hosts by an address, a login, an end or a domain."""
    head = "pademelon3:11:11 [0] NCCL"
    lines = [f"{head} INFO NCCL version 2.21.5+cuda12.4"]
    lines += [f"{head} WARN {text}" for text in _IN_TEXT]
    (tmp_path / "nccl.log").write_text("\n".join(lines) + "\n")
    secrets = ("quokka", "marmoset", "wombat", "echidna", "numbat", "bilby", "quoll", "pademelon",
               "10.99", "fe80")  # fmt: skip
    with advisor.load(tmp_path, share=True) as run:
        for form in FORMATS:
            text = run.render(form).lower()
            left = [text[max(0, at - 40) : at + 40] for s in secrets if (at := text.find(s)) >= 0]
            assert not left, form


@pytest.mark.parametrize(
    "name", thinned(sorted(path.name for path in (ROOT / "fixtures").iterdir()), 8)
)
def test_no_report_of_a_fixture_names_a_host(name: str, fixtures_dir: Path) -> None:
    place = fixtures_dir / name
    try:
        with advisor.load(place) as plain:
            hosts = {
                host
                for table in ("rank", "topology")
                for host in plain.sql(f"SELECT DISTINCT host FROM {table}").host.dropna()
            }
    except AdvisorError:
        return  # no recording
    hosts -= {"localhost"}
    if not hosts:
        return
    with advisor.load(place, share=True) as run:
        for form in ("html", "json"):
            text = run.render(form)
            found = [h for h in hosts if re.search(rf"(?<!\w){re.escape(h)}(?!\w)", text, re.I)]
            assert not found, form
