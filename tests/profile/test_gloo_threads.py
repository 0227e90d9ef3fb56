"""Which group gloo's worker threads serve, when thread ids have started over in between."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.gloo_groups import may_have_wrapped, threads_by_consistency
from advisor.profile.recording import _start_ticks, in_order_of_start

PID_MAX = 32_768
# A callback on an operation's future runs in gloo's thread, before the end of its span is noted.
LATE = """
import hashlib, pathlib, torch, torch.distributed as dist
from advisor.profile.recording import Recording
folder = pathlib.Path.cwd()
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
for number in range(5):
    with Recording(folder / f"{number}.json", steps=1, device="cpu", metadata=dict) as recording:
        recording.step()
        done = dist.all_reduce(torch.ones(8), async_op=True).get_future()
        done.then(lambda _: hashlib.pbkdf2_hmac("sha256", b"a", b"b", 100_000))
        done.wait()
        recording.step()
print("trained")
"""


@pytest.mark.parametrize(
    ("started", "order"),
    [
        ({10: 5, 11: 5, 12: 5}, [10, 11, 12]),
        ({32_766: 5, 32_767: 5, 301: 5, 302: 5}, [32_766, 32_767, 301, 302]),
        ({32_767: 5, 301: 6, 300: 6}, [32_767, 300, 301]),
        # Far apart in time: the ids passed half the range without starting over.
        ({400: 5, 401: 5, 30_000: 90, 30_001: 90}, [400, 401, 30_000, 30_001]),
    ],
)
def test_threads_come_in_order_of_their_start(started: dict[int, int], order: list[int]) -> None:
    assert in_order_of_start(started, PID_MAX) == order


def test_start_is_read_from_the_kernel() -> None:
    seen: list[str] = []
    task = Path("/proc/self/task")
    later = threading.Thread(
        target=lambda: seen.append((task / str(threading.get_native_id()) / "stat").read_text())
    )
    later.start()
    later.join()
    own = (task / str(os.getpid()) / "stat").read_text()
    assert 0 < _start_ticks(own) <= _start_ticks(seen[0])
    assert _start_ticks("7 (a) b) S" + " 0" * 18 + " 123 9") == 123


@pytest.mark.parametrize(
    ("threads", "unknown"),
    [([32_760, 300], True), ([500, 502], False), ([70_000, 3_000_000], False), ([7], False)],
)
def test_ids_that_may_have_started_over_tell_no_order(threads: list[int], unknown: bool) -> None:
    assert may_have_wrapped(threads) is unknown


def test_no_group_is_guessed_from_such_ids() -> None:
    def calls(op: str) -> list[Call]:
        return [Call(rank=0, op=op, start=10 * n, end=10 * n + 5, event_id=n) for n in range(4)]

    members = {"0": (0, 1), "1": (0, 1)}
    mine = {0: ["0", "1"], 1: ["0", "1"]}
    plain = {rank: {n: calls("all_gather" if n < 103 else "all_reduce") for n in range(101, 105)}
             for rank in (0, 1)}  # fmt: skip
    told = threads_by_consistency(plain, mine, members)
    assert told[0] == {101: "0", 102: "0", 103: "1", 104: "1"}
    wrapped = {rank: {32_700: own[101], 32_701: own[102], 301: own[103], 302: own[104]}
               for rank, own in plain.items()}  # fmt: skip
    assert threads_by_consistency(wrapped, mine, members) == {}


@pytest.mark.long
@pytest.mark.slow
def test_the_profiler_stops_after_gloo_has_noted_an_operations_end(tmp_path: Path) -> None:
    """GIVEN memory that is given back at once THEN nothing is written where none is any more."""
    pytest.importorskip("torch")
    at_once = {"MALLOC_MMAP_THRESHOLD_": "16384", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, "-c", LATE], cwd=tmp_path, env={**os.environ, **at_once},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert len(list(tmp_path.glob("?.json"))) == 5
