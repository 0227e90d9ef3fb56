"""What is damaged in a compressed file, and how that is told."""

from dataclasses import dataclass, field
from typing import NamedTuple

_CHECKS = ("data check", "length check", "checksum")


class Damage(NamedTuple):
    """Decompressing failed at byte ``at``, in the member (or frame) that starts at ``start``.

    ``error`` is the decoder's; empty where no member begins behind another one.
    """

    start: int
    at: int
    error: str

    @property
    def is_checksum(self) -> bool:
        """Whether all was decompressed, and only the check at the end failed."""
        return any(sign in self.error for sign in _CHECKS)


@dataclass
class Lost:
    """The damages of one file; ``skipped`` compressed bytes were not read.

    After ``resumed`` of the damages, reading went on at a later member.
    """

    places: list[Damage] = field(default_factory=list)
    skipped: int = 0
    resumed: int = 0

    def told(self, name: str, size: int) -> str:
        """What happened to a file of ``size`` bytes of the format ``name``, in a sentence."""
        first = self.places[0]
        error = first.error or "no further stream begins there"
        more = f" and in {len(self.places) - 1} more places" if len(self.places) > 1 else ""
        if all(place.is_checksum for place in self.places) and not self.skipped:
            return (
                f"{name} data is damaged somewhere before byte {first.at} ({error}){more}: "
                "all of it was read, and some events may hold altered values"
            )
        what = "frame" if name == "zstd" else "member"
        parts = [f"{name} data is damaged at or before byte {first.at} ({error}){more}"]
        if self.skipped:
            parts[0] += f": {share_of(self.skipped, size)} of the compressed bytes were not read"
        if self.resumed:
            parts.append(f"reading went on at the next {what}")
        parts.append("events next to the damage may hold altered values")
        return "; ".join(parts)


def share_of(part: int, whole: int) -> str:
    """A share of a file in percent."""
    share = 100 * part / max(whole, 1)
    return "less than 0.1 %" if share < 0.1 else f"{share:.1f} %"
