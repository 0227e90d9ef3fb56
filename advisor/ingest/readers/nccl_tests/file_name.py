"""The operation that the name of a file tells, where its table does not."""

import re
from pathlib import PurePath

_IN_FILE_NAME = (
    ("reduce_scatter", r"reduce[_-]?scatter"),
    ("all_reduce", r"all[_-]?reduce"),
    ("all_gather", r"all[_-]?gather"),
    ("all_to_all", r"all[_-]?to[_-]?all"),
    ("broadcast", r"broadcast|bcast"),
    ("send_recv", r"send[_-]?recv"),
    ("hypercube", r"hypercube"),
    ("gather", r"gather"),
    ("scatter", r"scatter"),
    ("reduce", r"reduce"),
)


def op_in_name(path: PurePath | None) -> str | None:
    """The operation in the store's spelling; None where the name tells none."""
    if path is None:
        return None
    for op, pattern in _IN_FILE_NAME:
        if re.search(pattern, path.name, re.IGNORECASE):
            return op
    return None
