"""The tuner plugin, driven as NCCL drives it, on any machine with a C compiler."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from advisor.cli.tuner_plugin import command
from advisor.errors import AdvisorError
from advisor.model.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS, legal
from advisor.tune.plugin.build import build_plugin
from advisor.tune.plugin.parse import parse_rules
from advisor.tune.plugin.rules import Rule, check_rules, format_rules
from benchmarks.fuzz import sanitized as sanitized_code

NCCL = (2, 29, 7)
NO_LIMIT = 18446744073709551615

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang")), reason="no C compiler"
)

# 2 nodes x 8 ranks: trees for small, rings for large.
SAMPLE = f"""\
# a comment
allreduce,0,262144,tree,ll,8,2,16

  allreduce , 262145,8388608 ,\ttree,ll128,16,2,16
allreduce,8388609,{NO_LIMIT},ring,simple,-1,2,16\r
allgather,0,{NO_LIMIT},ring,ll,8,-1,-1,-1,1
broadcast,0,1000,ring,simple,-1,4,-1
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plugin(tmp_path_factory.mktemp("plugin"))


_LOGGER = ctypes.c_void_p
_TABLE = ctypes.c_void_p


class V4(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        (
            "init",
            ctypes.CFUNCTYPE(
                ctypes.c_int,
                ctypes.c_size_t,
                ctypes.c_size_t,
                _LOGGER,
                ctypes.POINTER(ctypes.c_void_p),
            ),
        ),
        (
            "choose",
            ctypes.CFUNCTYPE(
                ctypes.c_int,
                ctypes.c_void_p,
                ctypes.c_int,
                ctypes.c_size_t,
                ctypes.c_int,
                _TABLE,
                ctypes.c_int,
                ctypes.c_int,
                ctypes.c_int,
                ctypes.POINTER(ctypes.c_int),
            ),
        ),
        ("destroy", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)),
    ]


class V5(ctypes.Structure):
    _fields_ = [
        V4._fields_[0],
        (
            "init",
            ctypes.CFUNCTYPE(
                ctypes.c_int,
                ctypes.POINTER(ctypes.c_void_p),
                ctypes.c_uint64,
                ctypes.c_size_t,
                ctypes.c_size_t,
                _LOGGER,
                ctypes.c_void_p,
                ctypes.c_void_p,
            ),
        ),
        V4._fields_[2],
        V4._fields_[3],
    ]


class Session:
    """One communicator that loaded the plugin."""

    def __init__(
        self, library: Path, api: int, config: Path | None, ranks: int, nodes: int
    ) -> None:
        loaded = ctypes.CDLL(str(library))
        libc = ctypes.CDLL(None)
        if config is None:
            libc.unsetenv(b"NCCL_TUNER_CONFIG_FILE")
        else:
            libc.setenv(b"NCCL_TUNER_CONFIG_FILE", str(config).encode(), 1)
        self.context = ctypes.c_void_p()
        self.constants = (ctypes.c_double * 200)(*range(200))
        self.api: V4 | V5
        if api == 4:
            self.api = V4.in_dll(loaded, "ncclTunerPlugin_v4")
            self.status = self.api.init(ranks, nodes, None, ctypes.byref(self.context))
        else:
            self.api = V5.in_dll(loaded, "ncclTunerPlugin_v5")
            self.status = self.api.init(
                ctypes.byref(self.context), 7, ranks, nodes, None, None, self.constants
            )

    def choose(
        self,
        function: str,
        size: int,
        *,
        registered: int = 0,
        unavailable: tuple[tuple[str, str], ...] = (),
    ) -> tuple[tuple[str, str], int]:
        """What NCCL would take where its own choice is a ring with Simple."""
        costs = [
            -1.0
            if (a, p) in unavailable or not legal(function, a, p, NCCL)
            else (1.0 if (a, p) == ("Ring", "Simple") else 50.0)
            for a in ALGORITHMS
            for p in PROTOCOLS
        ]
        return self.choose_from(costs, function, size, registered=registered)

    def choose_from(
        self, costs: list[float], function: str, size: int, *, registered: int = 0
    ) -> tuple[tuple[str, str], int]:
        """What NCCL would take: the first strict minimum, and the channels asked for (0: none).

        ``costs`` is NCCL's table, algorithms x protocols, -1 for what is not available.
        """
        table = (ctypes.c_float * 21)(*costs)
        channels = ctypes.c_int(0)
        status = self.api.choose(
            self.context,
            FUNCTIONS.index(function),
            size,
            1,
            ctypes.addressof(table),
            7,
            3,
            registered,
            ctypes.byref(channels),
        )
        assert status == 0
        for before, after in zip(costs, table, strict=True):
            assert (before == -1.0) == (after == -1.0), "an unavailable entry was touched"
        cells = [(a, p) for a in ALGORITHMS for p in PROTOCOLS]
        best = min((cost, position) for position, cost in enumerate(table) if cost >= 0)[1]
        return cells[best], channels.value


@pytest.fixture(params=[4, 5])
def session(request: pytest.FixtureRequest, library: Path, tmp_path: Path) -> Iterator[Session]:
    config = tmp_path / "rules.csv"
    config.write_text(SAMPLE, newline="")
    made = Session(library, request.param, config, 16, 2)
    assert made.status == 0
    yield made
    if request.param == 4:
        assert made.api.destroy(made.context) == 0  # type: ignore[union-attr]
    else:
        assert list(made.constants) == list(range(200)), "NCCL's constants were changed"
        assert made.api.destroy(made.context) == 0  # type: ignore[union-attr]


@needs_compiler
def test_rules_apply_in_order_with_inclusive_ranges(session: Session) -> None:
    assert session.choose("AllReduce", 0) == (("Tree", "LL"), 8)
    assert session.choose("AllReduce", 262_144) == (("Tree", "LL"), 8)
    assert session.choose("AllReduce", 262_145) == (("Tree", "LL128"), 16)
    assert session.choose("AllReduce", 8_388_609) == (("Ring", "Simple"), 0)
    assert session.choose("AllReduce", 2**63) == (("Ring", "Simple"), 0)


@needs_compiler
def test_what_matches_no_rule_stays_nccls(session: Session) -> None:
    assert session.choose("Reduce", 4096) == (("Ring", "Simple"), 0)
    assert session.choose("Broadcast", 500) == (("Ring", "Simple"), 0)  # rule is for 4 nodes
    assert session.choose("AllGather", 4096, registered=0) == (("Ring", "Simple"), 0)
    assert session.choose("AllGather", 4096, registered=1) == (("Ring", "LL"), 8)


@needs_compiler
def test_an_unavailable_entry_is_left_alone(session: Session) -> None:
    got = session.choose("AllReduce", 1024, unavailable=(("Tree", "LL"),))
    assert got == (("Ring", "Simple"), 0)


@needs_compiler
def test_another_size_of_communicator_matches_other_rules(library: Path, tmp_path: Path) -> None:
    config = tmp_path / "rules.csv"
    config.write_text(SAMPLE)
    other = Session(library, 5, config, 8, 1)
    assert other.choose("AllReduce", 1024) == (("Ring", "Simple"), 0)


BROKEN = {
    "allreduce,0,1,ring,simple,-1,-1": "expected 8 to 10",
    "allreduce,0,1,ring,simple,-1,-1,-1,1,1,1": "expected 8 to 10",
    "colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks": "header row",
    "AllReduce,0,1,ring,simple,-1,-1,-1": "unknown collective",
    "sendrecv,0,1,ring,simple,-1,-1,-1": "unknown collective",
    "allreduce,,1,ring,simple,-1,-1,-1": "minbytes is no size",
    "allreduce,0,-1,ring,simple,-1,-1,-1": "maxbytes is no size",
    "allreduce,0,18446744073709551616,ring,simple,-1,-1,-1": "maxbytes is no size",
    "allreduce,0,0x10,ring,simple,-1,-1,-1": "maxbytes is no size",
    "allreduce,9,1,ring,simple,-1,-1,-1": "minbytes exceeds maxbytes",
    "allreduce,0,1,rings,simple,-1,-1,-1": "unknown algorithm",
    "allreduce,0,1,ring,Simple,-1,-1,-1": "unknown protocol",
    "broadcast,0,1,tree,simple,-1,-1,-1": "no such algorithm|no tree",
    "allreduce,0,1,nvls,ll,-1,-1,-1": "no such algorithm|no nvls",
    "allreduce,0,1,ring,simple,0,-1,-1": "channels must be",
    "allreduce,0,1,ring,simple,65,-1,-1": "channels must be",
    "allreduce,0,1,ring,simple,-1,0,-1": "nNodes must be",
    "allreduce,0,1,ring,simple,-1,4,2": "nRanks is below nNodes",
    "allreduce,0,1,ring,simple,-1,-1,-1,0": "numPipeOps must be",
    "allreduce,0,1,ring,simple,-1,-1,-1,-1,2": "regBuff must be",
}

_INIT = """
import ctypes, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_plugin import Session
print(Session(Path(sys.argv[2]), 5, Path(sys.argv[3]), 16, 2).status)
"""


def _load_in_another_process(library: Path, config: Path) -> tuple[int, str]:
    """Status of init and what the plugin wrote to stderr (no logger given)."""
    done = subprocess.run(
        [sys.executable, "-c", _INIT, str(Path(__file__).parent), str(library), str(config)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout), done.stderr


@pytest.mark.slow
@needs_compiler
def test_mistakes_stop_the_job_and_name_their_lines(library: Path, tmp_path: Path) -> None:
    config = tmp_path / "rules.csv"
    config.write_text("# rules\n" + "\n".join(BROKEN) + "\n")
    status, output = _load_in_another_process(library, config)
    assert status == 5  # ncclInvalidUsage
    for number, expected in enumerate(BROKEN.values(), 2):
        line = next(text for text in output.splitlines() if f"{config}:{number}: " in text)
        assert any(part in line for part in expected.split("|")), line
    assert f"{len(BROKEN)} mistake(s)" in output


@pytest.mark.parametrize(("line", "expected"), BROKEN.items())
def test_the_parser_refuses_what_the_plugin_refuses(line: str, expected: str) -> None:
    with pytest.raises(AdvisorError) as caught:
        parse_rules(f"# first\n{line}\n", where="r.csv")
    assert "r.csv:2: " in str(caught.value)
    assert any(part in str(caught.value) for part in expected.split("|"))


@pytest.mark.slow
@needs_compiler
def test_a_named_file_must_exist(library: Path, tmp_path: Path) -> None:
    status, output = _load_in_another_process(library, tmp_path / "absent.csv")
    assert status == 5
    assert "absent.csv: No such file" in output


@needs_compiler
def test_without_any_file_the_plugin_changes_nothing(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bare = Session(library, 5, None, 16, 2)
    assert bare.status == 0
    assert bare.choose("AllReduce", 1024) == (("Ring", "Simple"), 0)


@needs_compiler
def test_the_default_file_is_found_beside_the_job(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nccl_tuner.conf").write_text(SAMPLE)
    monkeypatch.chdir(tmp_path)
    assert Session(library, 5, None, 16, 2).choose("AllReduce", 1024) == (("Tree", "LL"), 8)


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harness with the plugin inside, under AddressSanitizer and UBSan."""
    try:
        return sanitized_code.built(tmp_path_factory.mktemp("harness"), "plugin")
    except subprocess.CalledProcessError as error:
        if "cannot find" in error.stderr and "asan" in error.stderr:
            pytest.skip("this compiler has no AddressSanitizer")
        raise


@needs_compiler
def test_sound_and_broken_files_under_address_sanitizer(sanitized: Path, tmp_path: Path) -> None:
    contents = {
        "sound.csv": SAMPLE.encode(),
        "empty.csv": b"",
        "no_newline.csv": b"reduce,0,99,ring,simple,-1,-1,-1",
        "long.csv": b"#" + b"x" * 100_000 + b"\n" + SAMPLE.encode(),
        "nul.csv": b"allreduce,0,1,ring\0,simple,-1,-1,-1\n",
        "binary.csv": bytes(range(256)) * 64,
        "commas.csv": b"," * 5000 + b"\n",
        "many.csv": b"allreduce,0,9,ring,ll,-1,-1,-1\n" * 4097,
        "all_broken.csv": b"x\n" * 30_000,
    }
    files = []
    for name, content in contents.items():
        files.append(tmp_path / name)
        files[-1].write_bytes(content)
    files.append(tmp_path)  # a directory
    files.append(tmp_path / "absent")
    results = dict(
        zip([*contents, "directory", "absent"], sanitized_code.tune(sanitized, files), strict=True)
    )
    assert {name for name, (status, _) in results.items() if status == 0} == {
        "sound.csv",
        "empty.csv",
        "no_newline.csv",
    }
    assert results["sound.csv"][1] > 0
    assert results["empty.csv"][1] == 0


@needs_compiler
def test_mangled_files_under_address_sanitizer(sanitized: Path, tmp_path: Path) -> None:
    results = sanitized_code.tune(sanitized, sanitized_code.rule_files(tmp_path, range(600), 7))
    assert len(results) == 600
    assert {status for status, _ in results} <= {0, 5}
    assert any(status == 5 for status, _ in results)


@needs_compiler
def test_the_plugin_takes_exactly_what_the_parser_takes(sanitized: Path, tmp_path: Path) -> None:
    generator = random.Random(11)
    tokens = [
        "allreduce", "reduce", "tree", "ring", "pat", "ll", "simple", "-1", "0", "1", "64", "any",
        "ring|tree", "tree|pat", "ring|", "|", "any|ring", "ll|simple", "ll|ll128|simple", "ll|any",
    ]  # fmt: skip
    files, accepted = [], []
    for number in range(400):
        fields = SAMPLE.splitlines()[1].split(",")
        fields[generator.randrange(8)] = generator.choice([*tokens, "", " 7 ", "1e3"])
        text = ",".join(fields) + "\n"
        files.append(tmp_path / f"{number}.csv")
        files[-1].write_text(text)
        try:
            accepted.append(len(parse_rules(text)) == 1)
        except AdvisorError:
            accepted.append(False)
    assert [status == 0 for status, _ in sanitized_code.tune(sanitized, files)] == accepted
    assert any(accepted)
    assert not all(accepted)


@needs_compiler
def test_the_plugin_and_the_parser_take_the_same_odd_files(sanitized: Path, tmp_path: Path) -> None:
    rule = "allreduce,0,9,ring,ll,-1,-1,-1"
    sound = [
        f"{rule}\r\n{rule}\r\n", rule, "", "\n\n \t\n" + rule, f"  # x\n{rule}",
        f"#{'x' * 510}\n{rule}",
        f"{rule}\n" * 4096, "allreduce,000,09,ring,ll,007,2147483647,2147483647",
    ]  # fmt: skip
    broken = [
        f"{rule}\r{rule}", f"{rule}\r\r\n", f"#a\0b\n{rule}", f"{rule}\0\n", "\0",
        f"#{'x' * 511}\n{rule}", f"#{'x' * 2_000_000}\n{rule}", f"{rule}\n" * 4097,
        "allreduce,-5,9,ring,ll,-1,-1,-1", f"allreduce,0,{'9' * 490},ring,ll,-1,-1,-1",
        "allreduce,0,9,ring,ll,-1,2147483648,-1", "allreduce,+0,9,ring,ll,-1,-1,-1",
        "allreduce,0,9,ring,ll,-0,-1,-1", "allreduce,0,9,ring,ll,-01,-1,-1", f"\ufeff{rule}",
        f"\u00a0{rule}", f"{rule}\x0b{rule}", f"{rule}\x0c", f"{rule}\u2028{rule}", f"{rule} # x",
        "allreduce,\u0660,9,ring,ll,-1,-1,-1", "allreduce,0,\u00b2,ring,ll,-1,-1,-1", f"{rule},",
        "allreduce,0,1_000,ring,ll,-1,-1,-1", f"# x\r{rule}\r{rule}\n{rule}\rx",
    ]  # fmt: skip
    files = []
    for number, text in enumerate([*sound, *broken]):
        files.append(tmp_path / f"{number}.csv")
        files[-1].write_bytes(text.encode())
    statuses = [status for status, _ in sanitized_code.tune(sanitized, files)]
    assert statuses == [0] * len(sound) + [5] * len(broken)
    for text in sound:
        parse_rules(text)
    for text in broken:
        with pytest.raises(AdvisorError, match=r"r\.csv:[1-9]"):
            parse_rules(text, where="r.csv")
    # AND so does the command, which reads the very files
    for path, status in zip(files, statuses, strict=True):
        done = CliRunner().invoke(command, ["check", str(path)])
        refused = "fields: colltype" in done.output
        assert refused == (status != 0), path.read_bytes()


@needs_compiler
def test_a_long_verdict_is_a_comment_that_the_plugin_reads(sanitized: Path, tmp_path: Path) -> None:
    rules = [Rule("AllReduce", 0, 9, "Ring", "LL")]
    verdict = ", ".join(f"setting_{number}=value" for number in range(60))
    path = tmp_path / "tuner.csv"
    path.write_text(format_rules(rules, NCCL, comments=[verdict]))
    assert "setting_59" in path.read_text()
    assert [status for status, _ in sanitized_code.tune(sanitized, [path])] == [0]
    assert parse_rules(path.read_text()) == rules


_NAMES = st.sampled_from(
    [(f, a, p) for f in FUNCTIONS for a in ALGORITHMS for p in PROTOCOLS if legal(f, a, p, NCCL)]
)
_SOME = st.one_of(st.just(-1), st.integers(1, 64))


@given(
    names=_NAMES,
    ends=st.tuples(st.integers(0, NO_LIMIT), st.integers(0, NO_LIMIT)),
    channels=_SOME,
    pipe_ops=_SOME,
    registered=st.sampled_from([-1, 0, 1]),
)
def test_rules_survive_writing_and_reading(
    names: tuple[str, str, str],
    ends: tuple[int, int],
    channels: int,
    pipe_ops: int,
    registered: int,
) -> None:
    function, algorithm, protocol = names
    rule = Rule(
        function,
        min(ends),
        max(ends),
        algorithm,
        protocol,
        channels,
        pipe_ops=pipe_ops,
        registered=registered,
    )
    if algorithm == "NVLS" and function != "AllReduce":
        with pytest.raises(AdvisorError, match="permuted"):
            format_rules([rule], NCCL)
        return
    assert parse_rules(format_rules([rule], NCCL, comments=["made by\na test"])) == [rule]


def test_rows_that_cannot_apply_are_named() -> None:
    rules = [
        Rule("AllReduce", 0, 100, "Ring", "LL"),
        Rule("AllReduce", 10, 20, "Tree", "LL"),
        Rule("AllGather", 0, 100, "PAT", "Simple"),
        Rule("AllReduce", 0, 100, "Ring", "Simple", channels=99),
        Rule("Broadcast", 0, 100, "Tree", "LL"),
        Rule("Reduce", 0, 100, "Ring", "LL128"),
        Rule("Reduce", 0, 100, "Ring", "LL|Simple"),  # LL128 may not be available
        Rule("Reduce", 0, 100, "any", "LL"),
    ]
    text = "\n".join(check_rules(rules, (2, 22, 3)))
    assert "rule 2 (AllReduce Tree/LL): never reached, rule 1 covers it" in text
    assert "rule 3 (AllGather PAT/Simple): NCCL 2.22.3 has no such combination" in text
    assert "rule 4 (AllReduce Ring/Simple): 99 channels" in text
    assert "rule 5 (Broadcast Tree/LL): NCCL 2.22.3 has no such combination" in text
    assert "rule 7 (" not in text
    assert "rule 8 (Reduce any/LL): never reached, rule 7 covers it" in text
    with pytest.raises(AdvisorError, match="never reached"):
        format_rules(rules, (2, 22, 3))


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("allreduce,0,100,nvls_tree,simple,-1,1,8", "NVLSTree needs several nodes"),
        ("allreduce,0,100,nvls_tree,simple,-1,1,-1", "NVLSTree needs several nodes"),
        ("allgather,0,9,pat,simple,4,1,8", "PAT needs one rank per node"),
        ("allgather,0,9,pat,simple,4,2,16", "PAT needs one rank per node"),
        ("allreduce,0,9,collnet_direct,simple,-1,2,32", "at most 8 ranks per node"),
        ("allreduce,0,9,ring,ll,1,1,1", "a communicator of one rank moves nothing"),
        ("allreduce,0,9,any,any,1,-1,1", "a communicator of one rank moves nothing"),
        ("allgather,0,9,pat,simple,4,2,2", ""),
        ("allgather,0,9,pat,simple,4,-1,-1", ""),
        ("allgather,0,9,pat|ring,simple,4,1,8", ""),
        ("allreduce,0,100,nvls_tree,simple,-1,2,16", ""),
        ("allreduce,0,9,collnet_direct,simple,-1,4,32", ""),
    ],
)
def test_rules_for_calls_that_never_come_are_named(tmp_path: Path, row: str, why: str) -> None:
    path = tmp_path / "rules.csv"
    path.write_text(f"{row}\n")
    done = CliRunner().invoke(command, ["check", str(path)], standalone_mode=False)
    assert done.return_value == (1 if why else 0), done.output
    assert (f"can never apply, {why}" if why else "1 rule, all sound") in done.output.replace(
        "CollNetDirect covers ", ""
    )


def test_a_rule_that_the_plugin_refuses_is_a_finding_of_the_check(tmp_path: Path) -> None:
    path = tmp_path / "rules.csv"
    path.write_text("allreduce,0,9,rng,ll,-1,-1,-1\n")
    done = CliRunner().invoke(command, ["check", str(path)], standalone_mode=False)
    assert done.return_value == 1
    assert f"{path}:1: " in done.output
    with pytest.raises(AdvisorError, match="cannot be read"):
        CliRunner().invoke(command, ["check", str(tmp_path / "none")], catch_exceptions=False)


@needs_compiler
def test_building_does_not_overwrite_and_shows_the_compilers_words(tmp_path: Path) -> None:
    out = build_plugin(tmp_path)
    assert out.stat().st_size > 0
    with pytest.raises(AdvisorError, match="exists already"):
        build_plugin(tmp_path)
    build_plugin(tmp_path, force=True)
    with pytest.raises(AdvisorError, match="failed"):
        build_plugin(tmp_path, compiler="false", force=True)


def test_a_compiler_that_is_ended_leaves_no_half_of_a_library(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n'
        'echo half > "$2"; echo text > "$TMPDIR/a.s"; exit 1\n'
    )
    compiler.chmod(0o700)
    with pytest.raises(AdvisorError, match="failed"):
        build_plugin(tmp_path / "plugin", compiler=str(compiler))
    assert list((tmp_path / "plugin").iterdir()) == []


def test_the_command_checks_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.csv"
    path.write_text(SAMPLE)
    sound = CliRunner().invoke(command, ["check", str(path)], standalone_mode=False)
    assert sound.return_value == 0
    assert "5 rules, all sound" in sound.output
    path.write_text("allgather,0,9,nvls,simple,-1,-1,-1\n")
    risky = CliRunner().invoke(command, ["check", str(path)], standalone_mode=False)
    assert risky.return_value == 1
    assert "permuted data" in risky.output


@pytest.mark.parametrize("release", ["2.8.4", "2.18.5", "2.21.5"])
def test_a_release_that_loads_no_such_plugin_is_said(tmp_path: Path, release: str) -> None:
    path = tmp_path / "rules.csv"
    path.write_text("allreduce,0,65536,ring,ll,-1,-1,-1\n")
    old = CliRunner().invoke(command, ["check", str(path), "--nccl", release])
    assert f"NCCL {release} does not load the plugin, which needs 2.22 or later" in old.stdout
    assert "sound" not in old.stdout
    first = CliRunner().invoke(command, ["check", str(path), "--nccl", "2.22.3"])
    assert "1 rule, all sound" in first.stdout
