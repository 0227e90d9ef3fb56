"""Which fields of an event are kept, and the classes of rows that need a second look.

Key names are data of the format, not of a trace. Such classes start with ``!``.
"""

IDS_PER_CHUNK = 1 << 20
"""Room for the events of one chunk in ``event_id``: 256 KiB hold at most 87,000 (``{},``)."""
IDS_PER_FILE = 1 << 46
"""Room for the chunks of one file (16 TiB); files are numbered within the run, up to 131,072."""

BEGIN, END = "!begin", "!end"
METADATA = "!metadata"
NO_TIME = "!no timestamp"
NO_PHASE = "!not an event"
NO_RANK = "!no usable rank"

FACT_COLUMNS = {
    "collective": "Collective name",
    "dtype": "dtype",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "group_size": "Group size",
    "process_group": "Process Group Name",
    "group_description": "Process Group Description",
    "group_ranks": "Process Group Ranks",
    "seq": "Seq",
    "src_rank": "Src Rank",
    "dst_rank": "Dst Rank",
    "in_split": "In split size",
    "out_split": "Out split size",
}
SHAPE_COLUMNS = {
    "input_dims": "Input Dims",
    "input_types": "Input type",
    "concrete_inputs": "Concrete Inputs",
}
COMM_COLUMNS = FACT_COLUMNS | SHAPE_COLUMNS
_INTEGERS = ("device", "rank", "Group size", "Src Rank", "Dst Rank")
_LONG = (
    "stream", "correlation", "External id", "bytes", "In msg nelems", "Out msg nelems", "Seq",
)  # fmt: skip
ARGS = {
    **dict.fromkeys(("name", *COMM_COLUMNS.values()), "VARCHAR"),
    **dict.fromkeys(_INTEGERS, "INTEGER"),
    **dict.fromkeys(_LONG, "BIGINT"),
}
"""Arguments of events that are kept, and what they are."""
UNUSABLE = "kineto_unusable"
UNUSABLE_SQL = f"""
CREATE TEMP TABLE IF NOT EXISTS {UNUSABLE} (run VARCHAR, event_id BIGINT, field VARCHAR)
"""
NOT_LEAN = ("python",)
"""Classes that ``--lean`` does not even read; what else may go is told later (ingest/lean.py)."""
# Flows (arrows between events), counters, samples, object snapshots and async spans carry no
# time on a stream or thread; letters of the Trace Event Format.
IGNORED_PHASES = "stfCPNODbneSTpFcvV"
INSTANTS = ("i", "I", "R")
LARGEST_NS = 4_600_000_000_000_000_000
"""Base time and timestamps up to this (year 2115) add up to no more than 64 bits."""
LARGEST_US = LARGEST_NS // 1000
