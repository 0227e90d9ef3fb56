"""NCCL's own cost model as data and code: what it would choose, and the times it predicts.

Restated from the behaviour of src/graph/tuning.cc and src/enqueue.cc at the releases named in
constants.json. It ranks options the way NCCL does; it does not predict measured times.
"""

from __future__ import annotations

from advisor.model.nccl.cost import Choice, Prediction, Row, predict
from advisor.model.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS, function_name
from advisor.model.nccl.version import NcclVersion, parse_version

__all__ = [
    "ALGORITHMS",
    "FUNCTIONS",
    "PROTOCOLS",
    "Choice",
    "NcclVersion",
    "Prediction",
    "Row",
    "function_name",
    "parse_version",
    "predict",
]
