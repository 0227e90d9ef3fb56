"""What a trial or the survey recorded, in a store."""

from pathlib import Path

from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.store import Store


def traces_in(folder: Path) -> list[str]:
    """The traces that a job left in ``folder``, one per rank."""
    return [str(path) for path in sorted(folder.glob("rank*.json*"))]


def recorded(folder: Path, run: str, path: Path | None = None) -> Store:
    """A store with the traces of ``folder`` and what follows from them.

    It is written to ``path`` when it is saved; what is there is replaced.
    """
    store = Store.create(path, force=True)
    try:
        ingest(traces_in(folder), store, run=run)
        derive(store)
    except BaseException:
        store.close()
        raise
    return store
