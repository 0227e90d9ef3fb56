"""How NCCL calls the host that a line of another writer names, by its address or a longer name."""

import re
from dataclasses import dataclass, field

from advisor.ingest.readers.nccl_log.prefix import Thread

_ADDRESS = re.compile(r"^Bootstrap : Using (?:\[0\])?[^\s:]{1,40}:([\w.:]{2,60})<\d{1,5}>")


@dataclass
class Hosts:
    """The hosts of a run's logs; ``see`` what their processes print."""

    _of_file: dict[str, set[str]] = field(default_factory=dict)
    _addresses: dict[str, str] = field(default_factory=dict)
    _threads: dict[tuple[int, int], Thread] = field(default_factory=dict)

    def whole(self, thread: Thread) -> Thread:
        """The thread as its first line names it: a torn line of another writer leaves something
        before its host's name, or takes the beginning of that. Hosts that are numbers, of which 1
        ends 11, are of logs that were made anonymous.
        """
        known = self._threads.setdefault((thread.pid, thread.tid), thread)
        ends = sorted((known.host, thread.host), key=len)
        is_torn = bool(ends[0]) and not ends[0].isdigit() and ends[1].endswith(ends[0])
        return known if is_torn else thread

    def see(self, path: str, host: str) -> None:
        """Take the host of a message's prefix."""
        if host:
            self._of_file.setdefault(path, set()).add(host)

    def see_address(self, text: str, host: str) -> None:
        """Take a message of ``host``, which may say its address."""
        if address := _ADDRESS.match(text):
            self._addresses[address[1]] = host

    def known(self, named: str, path: str) -> str:
        """The host of a line without a prefix, as NCCL calls it; of a file of one host that one."""
        if named:
            known = {host for hosts in self._of_file.values() for host in hosts}
            short = named.partition(".")[0]
            return self._addresses.get(named, short if short in known else named)
        hosts = self._of_file.get(path, set())
        return next(iter(hosts)) if len(hosts) == 1 else ""
