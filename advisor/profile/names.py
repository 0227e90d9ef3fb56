"""The names of the ranges in our own recordings: written here once, read by ingest and metrics.

Every range is opened twice under the same name: as a ``record_function`` annotation (it ends up in
the Kineto trace as ``user_annotation``) and as an NVTX range in the domain ``advisor`` (it ends up
in an Nsight Systems report). A step is torch's own ``ProfilerStep#N``.

``## bucket N ##`` marks the moment at which DDP's reducer launches bucket N: the collective that
the same thread enqueues next is that bucket's. Its communication runs asynchronously on gloo's or
NCCL's side, so the range itself is short; see ``strategies/ddp.py`` for why it is not a comm hook.
FSDP2 names its own ranges, ``FSDP::all_gather (layers.3)`` and the like.
"""

from advisor.vocabulary.operations import PICKLES, UNPICKLES

NVTX_DOMAIN = "advisor"
METADATA_KEY = "advisor"
STEPS_BEFORE = "steps_before_ns"
"""Metadata: how long the last steps before the recording took, by the host's clock."""
LAST_STEPS = 10
"""So many steps before a recording tell what it costs: enough for a median past the first ones."""

STEP_PREFIX = "ProfilerStep#"
FORWARD = "## forward ##"
BACKWARD = "## backward ##"
OPTIMIZER = "## optimizer ##"
DATA = "## data ##"
COLLECTION = "gc.collect"
PICKLING = (PICKLES, UNPICKLES)
"""Functions of ``torch.distributed.distributed_c10d``, as ranges of the same names."""


def layer(number: int) -> str:
    """The range of layer ``number``; it occurs in the forward and again in the backward pass."""
    return f"## layer {number} ##"


def bucket(number: int) -> str:
    """The mark at which bucket ``number`` of DDP is launched."""
    return f"## bucket {number} ##"
