"""The releases of NCCL that have a cause: a bug until it was mended, a call since it is made."""

from typing import Annotated

from pydantic import AfterValidator, model_validator

from advisor.config.loader import FileModel
from advisor.model.nccl.version import NcclVersion, parse_version


def _valid_release(value: str) -> str:
    parse_version(value)
    return value


Release = Annotated[str, AfterValidator(_valid_release)]


class Releases(FileModel):
    """From ``since`` on, to the last one ``before``; None: no bound on that side."""

    since: Release | None = None
    before: Release | None = None

    @model_validator(mode="after")
    def _is_range(self) -> "Releases":
        if self.since is None and self.before is None:
            raise ValueError("give since, before or both")
        if self.since and self.before and parse_version(self.since) >= parse_version(self.before):
            raise ValueError("since must be older than before")
        return self

    def __contains__(self, release: NcclVersion) -> bool:
        """Whether it is one of them."""
        since, before = self.since, self.before
        return (since is None or release >= parse_version(since)) and (
            before is None or release < parse_version(before)
        )
