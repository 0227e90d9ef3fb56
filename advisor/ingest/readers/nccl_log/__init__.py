"""NCCL's debug log (``NCCL_DEBUG=INFO``, versions 2.8–2.30) → topology, link, nccl_choice.

What the lines mean is spread over ``prefix`` (who printed it), ``lines`` (single lines),
``graphs`` (system tree, patterns, rings, trees), ``tables`` (tuning tables, matrix, choices),
``communicators`` (which communicator, which rank) and ``collect`` (all, over all files of a run).

The vocabulary of ``topology.kind``
===================================
``rank`` is the global rank (the rank in the communicator of all ranks) or null when a row holds for
a host; ``host`` is the host name in the line's prefix; ``value`` is text or JSON as listed.

=============== ==================== =============================================================
kind            name                 value
=============== ==================== =============================================================
version         nccl, cuda, driver   ``2.27.7``; ``12.8``; ``12080``. Per host.
                rccl                 ``2.22.3``: AMD's, in place of NCCL
                aws-ofi-nccl,        ``1.17.2``; ``2.3``: of the network plugin for libfabric
                libfabric
rank            bus id               {pid, cuda_device, nvml_device, bus_id}. Per rank.
communicator    commId or ``world``  {ranks, nodes, members: [global ranks or null]}; members is
                                     null where a few of more than 256 ranks wrote the log
communicators-  ``4 ranks``          {ranks, communicators}: how many of one size of which nothing
alike                                tells whose lines are whose
devices         ``of a host``        ``8``: so many GPUs at least, by the highest number of one
node            host                 {ranks, gpus, nics, net_ports, max_bw_gbps, total_bw_gbps}
gpu             ``GPU/18000``        {parent, bw_gbps, nvlink_gbps}: place in the PCI tree.
net-port        ``NET/3``            {parent, bw_gbps, guid, port}: a NIC port in that tree.
path            ``GPU/1 -> NET/3``   {hops, bw_gbps, type}; type LOC NVL NVB C2C PIX PXB PXN P2C PHB
                                     SYS NET DIS. From GPUs to GPUs and NICs only. Per host.
nic             ``mlx5_0``           {index, port, link, net}: link IB or RoCE (null for sockets),
                                     net IB, Socket, Libfabric, …  Per host.
nic-group       ``0000:86:00.0``     {group, device}: NICs that a plugin uses as one; group is the
                                     number in ``NET/Libfabric/0``.  Per host.
net             ``network``          transport between nodes: IB, Socket, Libfabric, …
                ``IB``, ``Socket``   ``no device found``
                ``OFI``              {provider, fabric, nics}: provider efa, cxi, tcp, …
                ``OFI protocol``     ``RDMA`` or ``SENDRECV``
gdr             ``GPU 1 / HCA 0``    {enabled, distance, limit, read}; ``HCA mlx5_0`` {enabled, net}
p2p             ``check``            {all_direct, direct_mode} (``Check P2P Type``). Per rank.
p2p-disabled    ``1-0``              GPUs between which P2P is disabled
graph           ring, tree, collnet, {pattern, channels, bw_intra, bw_inter, type_intra, type_inter,
                nvls                 cross_nic, same_channels, paths: [[…]], communicator, ranks}
ring            ``ring 0``           {channel, ranks: [global ranks], complete, communicator}
tree            ``trees``            [{channel, children, parent}, …]. Per rank.
channels        ``channels``         {coll, collnet, nvls, p2p, p2p_per_peer}. Per rank.
nvls            multicast            true: the GPUs have NVLS, whether or not a call uses it
fabric          registered           true: a GPU of NVSwitches, Hopper or later (``MNNVL busId …``)
device          ``NVIDIA H100 …``    a GPU that nvidia-smi or Lightning lists, as printed
connected       rings, trees, …      {pxn, gdr} or {}. Per rank.
thresholds      ``threads``          the text of ``threadThresholds``
matrix          operation            {protocols: {LL: 1, …}, algorithms: {RING: 1, …}}: enabled ones
env             ``NCCL_ALGO``        value as set in the environment. Per rank or host.
machine         ``aws-p5``           a machine of model/hardware whose type a plugin names
env-plugin      ``NCCL_PROTO``       value that a network plugin put into the environment itself
plugin          net, tuner, profiler name of the plugin that was loaded
init-time       ``init``             {total_s, …}: seconds per phase of communicator creation
warning         ``shm-full``, ""     file:line and text of an ``NCCL WARN`` line, or of what torch,
                                     the driver or a scheduler printed; the name is the entry of
                                     advisor/model/nccl/messages.yaml that it has. Per rank or
                                     host, as the prefix, a launcher or the line itself says
raised-at       uncaught, ""         where that line's exception was raised: file, line, function
named-by        calls                the same place, where the exception's text is not of the entry:
                                     its calls alone named it
survived        init                 a later line of the same thread: its communicator was made
fatal           init                 the line that gave up a communicator, right behind a warning
                                     in spite of the warning in that line
said-at         time                 when that line was printed, or the last before it with a time:
                                     MM-DD hh:mm:ss.fffffffff. Only where the warnings are of
                                     several files and all have one
output          passing              a line at the end of an output that tells of a failure in words
                                     of no known form, after which the job went on
output          silent               lines of a job's output that name nothing of the above
output          silent-nccl          the same, where some are NCCL's
progress        step                 the last line looked at of a file whose job trained on
=============== ==================== =============================================================

``link`` holds the connections (global ranks; ``nic`` by name where the NIC list was printed, else
its index), ``nccl_choice`` the tuning tables (``source = 'table'``) and the printed choices
(``'call'``): see the columns' comments in schema.sql. ``nccl_choice.bytes`` is as printed: totals
up to 2.23, count × element size (per rank for all_gather and reduce_scatter) from 2.24 on.
"""

import re
from collections.abc import Sequence

from advisor.ingest.readers._text import plain, unwrapped
from advisor.ingest.readers.nccl_log.prefix import looks_like_log
from advisor.ingest.source import HEAD_BYTES, ReadContext, Source
from advisor.ingest.unknown import NO_SIGN, why_unknown

FORMAT = "nccl-log"
SUMMARY = "NCCL debug logs (NCCL_DEBUG=INFO, 2.8 to 2.30): topology, transports, tuning, choices"
PRIORITY = 45
_LATEST = 256 * 1024 * 1024
_LONGEST_SIGN = 64
# Pages and sources speak of errors that no job of theirs had.
_QUOTES_OUTPUTS = frozenset((".md", ".rst", ".html", ".py", ".sh", ".yaml", ".yml", ".toml"))

# How a job's output is called, by users and schedulers.
_OUTPUTS = frozenset((".log", ".out", ".err"))
_TABLES = frozenset((".csv", ".tsv", ".json", ".jsonl", ".xml", ".c", ".cc", ".cpp", ".cu", ".h"))

# A traceback, whole or a piece of one.
_CALLS = re.compile(
    rb"Traceback \(most recent call last\)|File \"[^\"\n]{1,300}\", line \d{1,7}, in \w"
)
# A program of several processes raised an exception.
_RAISED = re.compile(
    rb"Traceback \(most recent call last\)|terminate called after throwing an instance of|"
    rb"(?m:^(?:\([^()\n]{1,80} pid=\d{1,9}(?:, ip=[^()\n]{1,60})?\) |ERROR:? {1,8})"
    rb"(?:[a-z_][\w.]{0,120}\.)?[A-Z]\w{0,60}(?:Error|Exception): )"
)
_OF_SEVERAL = re.compile(
    rb"torch[./]distributed|c10d::|init_process_group|deepspeed|torchrun|\[rank\d|"
    rb"accelerate[ /]launch|horovod|megatron|lightning/|ray\.exceptions|\(raylet|"
    rb"sglang/|vllm/|gloo/|gloo::|\(local_rank: \d|EngineCore|/job:worker/|CollectiveFingerPrint\(|"
    rb"(?:slurmstepd|srun): error|"
    rb"(?:site|dist)-packages/(?:torch|triton|jax|tensorflow|mpi4py)/"
)
_OF_A_RANK = re.compile(
    rb"\[rank\d{1,7}\]: {1,8}(?:raise |[\w.]{1,80}[.])?[A-Z]\w{0,60}(?:Error|Exception)\b"
)

# Values that a program prints, and words of its below them.
_VALUES = re.compile(rb"(?:[\[(][^\]\)\n{\"]{0,400}[\])]\s{0,8}\n){1,1000}[A-Za-z]")
_ELEMENT = re.compile(rb"<[A-Za-z/!?]")
# A page or a document of ours, in which a log may be quoted: a diagnosis that is read again. Nsight
# Systems keeps what the program prints in its database.
_QUOTES = re.compile(
    rb"\s{0,8}(?:<(?:!doctype|html|\?xml)\b|\{\s{0,8}\"(?:schema|advisor)_version\")"
    rb"|SQLite format 3\0",
    re.IGNORECASE,
)

# A time, rank or worker in brackets with words behind it, where data have a comma or their end.
_BRACKETED = re.compile(
    rb"(?:\[[^\]\[{}\"\n]{1,200}\]|\([A-Za-z][^()\n]{1,80}\))[ \t:]{0,8}[^\s,\])]"
)


def detect(source: Source) -> bool:
    """Lines with NCCL's own prefix, which a job's output may print late, or a known reason."""
    if _QUOTES.match(source.head):
        return False
    if looks_like_log(source.head):
        return True
    head = unwrapped(source.head)
    if not _is_output(head) or source.path.suffix.lower() in _QUOTES_OUTPUTS:
        return False
    suffix = source.path.suffix.lower()
    if source.named and suffix in _OUTPUTS and why_unknown(source) is NO_SIGN:
        return True  # where it names nothing the user is told that it does not
    asked_for = source.named and suffix not in _TABLES
    return _names_a_reason(head, asked_for=asked_for) or (
        len(source.head) >= HEAD_BYTES and _starts_late(source, asked_for=asked_for)
    )


def _names_a_reason(head: bytes, *, asked_for: bool) -> bool:
    """Whether an output without a line of NCCL's says what its job died of.

    Of one that the user names it is enough that its end tells of a failure in any words.
    """
    of_several = _OF_SEVERAL.search(head) is not None
    if (of_several and _RAISED.search(head)) or _OF_A_RANK.search(head):
        return True
    if asked_for and (of_several or _CALLS.search(head)):
        return True  # of a job's output without a failure what it lacks is told
    from advisor.ingest.readers.nccl_log.last_words import LAST_LINES, strength
    from advisor.ingest.readers.nccl_log.numbered import ranks_repeat
    from advisor.ingest.readers.nccl_log.progress import is_step
    from advisor.model.nccl.effects import is_reason, tells_of_failure

    lines = head.decode(errors="replace").splitlines()
    if asked_for:
        at_end = lines[-LAST_LINES:] if len(head) < HEAD_BYTES else []
        if any(map(tells_of_failure, lines)) or any(strength(line) > 0 for line in at_end):
            return True
        return ranks_repeat(lines) or any(map(is_step, lines))
    return any(is_reason(line, of_several=of_several) for line in lines)


def _is_output(head: bytes) -> bool:
    """Text of a program, neither data nor a document of another format."""
    text = plain(head[:200].decode("latin-1")).encode("latin-1") + head[200:]
    text = text.lstrip()
    if b"\0" in head or (text[:1] in (b"{", b"") and text[:2] != b"{'"):  # a printed dict
        return False
    if text[:1] == b"<":
        return _ELEMENT.match(text) is None
    if text[:1] not in (b"[", b"(") or text[:2] == b"['" or _BRACKETED.match(text):
        return True
    return _VALUES.match(text) is not None


def _starts_late(source: Source, *, asked_for: bool) -> bool:
    """Whether NCCL's first message stands within the first :data:`_LATEST` bytes.

    Of a file that the user names it is enough that its end tells that something failed.
    """
    before = b""
    with source.open() as stream:
        for _ in range(_LATEST // HEAD_BYTES):
            piece = stream.read(HEAD_BYTES)
            if not piece:
                return asked_for and _names_a_reason(before[-HEAD_BYTES + 1 :], asked_for=True)
            if looks_like_log(before[-_LONGEST_SIGN:] + piece):
                return True
            before = piece
    return False


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Read all logs of a run together: a rank's lines may stand in any of them."""
    from advisor.ingest.readers._nccl_text import read_texts

    read_texts(sources, context, FORMAT)
