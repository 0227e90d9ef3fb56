"""A store instead of traces: what was read into it is taken over, to be derived again."""

from pathlib import Path

from advisor.errors import AdvisorError
from advisor.store.batches import INGESTED
from advisor.store.store import Store
from advisor.store.stored import reading_stored


def is_derived(store: Store) -> bool:
    """Whether the analysis has run: ``advisor ingest`` writes only what was read."""
    for table in ("activity", "collective", "step"):
        if store.con.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall():
            return True
    return not store.con.execute("SELECT 1 FROM event LIMIT 1").fetchall()


def take(path: Path, into: Store, *, run: str | None = None) -> None:
    """Copy the ingested tables of the store at ``path``; its one run is renamed to ``run``.

    Raises AdvisorError when ``run`` is given and the store holds several.
    """
    with Store.open(path) as source, reading_stored(path):
        names = [name for (name,) in source.con.execute("SELECT run FROM run").fetchall()]
        if run is not None and len(names) != 1:
            raise AdvisorError(
                f"holds {len(names)} runs ({', '.join(names)})",
                where=str(path),
                hint="pass stores of one run each",
            )
        for table in INGESTED:
            reader = source.con.sql(f"SELECT * FROM {table}").to_arrow_reader()
            into.con.register("taken", reader)
            try:
                renamed = "* REPLACE ($run AS run)" if run is not None else "*"
                into.con.execute(
                    f"INSERT INTO {table} BY NAME SELECT {renamed} FROM taken",
                    {"run": run} if run is not None else {},
                )
            finally:
                into.con.unregister("taken")
