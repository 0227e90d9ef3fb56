"""NCCL's own cost model as data and code: what it would choose, and the times it predicts.

Restated from the behaviour of src/graph/tuning.cc and src/enqueue.cc at the releases named in
constants.json. It ranks options the way NCCL does; it does not predict measured times.
"""
