"""What files hold that few commands read, as pydantic models; others are records."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FileModel(BaseModel):
    """What a file holds: nothing that is not known, and nobody changes it once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
