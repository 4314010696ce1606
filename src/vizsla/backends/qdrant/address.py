"""Where a collection is: `qdrant://host:6333,host2:6333/NAME`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from vizsla.errors import VizslaError

PORT = 6333
SCHEMES = {"qdrant": "http", "qdrants": "https"}
_EXAMPLE = "as in qdrant://localhost:6333/my"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::(\d{1,5}))?")
_FORBIDDEN = '<>:"/\\|?*\0'  # in the name of a collection


@dataclass(frozen=True)
class Address:
    """The servers of a cluster, any of which answers for all, and the name of a collection.

    >>> Address.parse("qdrant://one:6333,two/dogs")
    Address(servers=('http://one:6333', 'http://two:6333'), name='dogs')
    >>> Address.parse("qdrants://example.org/dogs").servers
    ('https://example.org:6333',)
    """

    servers: tuple[str, ...]
    name: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """An address from its text; `qdrants` is the same over an encrypted connection."""
        scheme, separator, rest = text.strip().partition("://")
        protocol = SCHEMES.get(scheme.lower())
        hosts, slash, name = rest.partition("/")
        name = unquote(name.rstrip("/"))
        if "@" in hosts:
            raise VizslaError("the address of a cluster has no user or password; give a key in QDRANT_API_KEY")
        if protocol is None or not separator or not slash or not name:
            raise VizslaError(f"{text!r} is not the address of a collection; expected one {_EXAMPLE}")
        check_name(name)
        servers = []
        for host in hosts.split(","):
            match = _HOST.fullmatch(host.strip())
            if match is None or not 0 < int(match[2] or PORT) < 1 << 16:
                raise VizslaError(f"{host!r} in {text!r} is not a host with a port; expected an address {_EXAMPLE}")
            servers.append(f"{protocol}://{match[1]}:{int(match[2] or PORT)}")
        return cls(tuple(dict.fromkeys(servers)), name)

    def __str__(self) -> str:
        scheme = "qdrants" if self.servers[0].startswith("https:") else "qdrant"
        hosts = ",".join(server.partition("://")[2] for server in self.servers)
        return f"{scheme}://{hosts}/{self.name}"


def check_name(name: str) -> None:
    """Refuse a name that a collection cannot have."""
    if not name or len(name) > 200 or any(c in _FORBIDDEN or ord(c) < 32 for c in name):
        raise VizslaError(f"{name!r} cannot be the name of a collection; use letters, digits, - and _")
