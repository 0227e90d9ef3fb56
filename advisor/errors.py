"""The one error that people see: what happened, where, and what to do about it."""

from __future__ import annotations


class AdvisorError(Exception):
    """A problem the user can act on.

    ``message`` says what happened, ``where`` the place (``file:line``, ``file:offset`` or a
    name), ``hint`` what to do. The command line prints it in one line (or a short list when
    the message holds several lines) and exits with status 2; it is caught in one place.
    """

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  {self.hint}" if self.hint else text
