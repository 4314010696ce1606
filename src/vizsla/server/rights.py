"""Who may do what: the keys of a server, and what each allows."""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

from vizsla.server.asgi import Scope
from vizsla.server.errors import RequestError
from vizsla.server.settings import Keys, is_loopback


class Rights(NamedTuple):
    """What the sender of a request may do besides reading."""

    write: bool = False
    judge: bool = False
    needs_key: bool = False
    """Whether a key of the server is what is missing: none was sent, or one that is not known."""
    problem: str = ""
    """Why a key is needed, as a sentence."""

    @property
    def may_judge_later(self) -> bool:
        """Whether judging is possible, perhaps with a key that is asked for."""
        return self.judge or self.needs_key


def check_write(scope: Scope) -> None:
    """Refuse a request whose sender may not change an index."""
    rights: Rights = scope["vizsla.rights"]
    if not rights.write:
        raise _no_right(rights, "this key may not write; use the key of a line 'write KEY'")


def check_judge(scope: Scope) -> None:
    """Refuse a request whose sender may not write judgements."""
    rights: Rights = scope["vizsla.rights"]
    if not rights.judge:
        raise _no_right(rights, "this key may not judge; use the key of a line 'judge KEY' or 'write KEY'")


def _no_right(rights: Rights, sentence: str) -> RequestError:
    return _needs_key(rights.problem) if rights.needs_key else RequestError(rights.problem or sentence, 403)


def _needs_key(sentence: str) -> RequestError:
    return RequestError(sentence, 401, {"WWW-Authenticate": "Bearer"})


class Doors:
    """Who may do what. Keys are kept as hashes, which are compared in the same time whatever they are."""

    def __init__(self, keys: Keys, host: str) -> None:
        kinds = {"read": keys.read, "judge": keys.judge, "write": keys.write}
        self._hashes = {kind: [_hash(key.encode()) for key in given] for kind, given in kinds.items()}
        self._has_keys = bool(keys)
        self._without_keys = Rights(write=True, judge=True)
        if not is_loopback(host):
            self._without_keys = Rights(
                write=True,
                problem="judgements need a key where other machines reach the server; start it with --keys FILE and a "
                "line 'judge KEY'",
            )

    def rights(self, headers: dict[bytes, bytes]) -> Rights:
        """What a request may do; 401 if it may not even read."""
        if not self._has_keys:
            return self._without_keys
        sent = _key_of(headers)
        given = _hash(sent)
        known = {
            kind: sum(hmac.compare_digest(given, one) for one in hashes) > 0 for kind, hashes in self._hashes.items()
        }
        if any(known.values()):
            return Rights(known["write"], known["write"] or known["judge"])
        problem = "the key that was sent is not known here; send one that is, as" if sent else "a key is needed: send"
        problem += " Authorization: Bearer KEY or X-API-Key: KEY"
        if self._hashes["read"]:
            raise _needs_key(problem)
        return Rights(needs_key=True, problem=problem)


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _key_of(headers: dict[bytes, bytes]) -> bytes:
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
