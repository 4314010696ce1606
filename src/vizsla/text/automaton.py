"""Regular expressions over classes of characters, compiled to a table-driven automaton.

The word rules of Unicode are regular expressions over a few dozen classes ("letter", "digit", "apostrophe").
Written with the operators below they stay readable, and as a table they run at a few nanoseconds a character.
The construction is Glushkov's: one automaton position per symbol, then sets of positions as states.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

DEAD, START = 0, 1


class Expression:
    """A regular expression; `+` is "then", `|` is "or"."""

    def __add__(self, other: Expression) -> Expression:
        return _Then(self, other)

    def __or__(self, other: Expression) -> Expression:
        return _Or(self, other)

    def star(self) -> Expression:
        """Any number of times, none included."""
        return _Repeat(self)

    def plus(self) -> Expression:
        """Once or more."""
        return self + self.star()

    def maybe(self) -> Expression:
        """Once or not at all."""
        return _Or(self, _Empty())


@dataclass(frozen=True, eq=False)
class Symbol(Expression):
    """One character of any of these classes."""

    classes: frozenset[int]


@dataclass(frozen=True, eq=False)
class _Empty(Expression):
    pass


@dataclass(frozen=True, eq=False)
class _Then(Expression):
    left: Expression
    right: Expression


@dataclass(frozen=True, eq=False)
class _Or(Expression):
    left: Expression
    right: Expression


@dataclass(frozen=True, eq=False)
class _Repeat(Expression):
    inner: Expression


@dataclass(frozen=True)
class Automaton:
    """`transitions[state, class]` is the next state (0: dead, 1: start); `accepting[state]` says a match may end."""

    transitions: np.ndarray
    accepting: np.ndarray


@dataclass
class _Shape:
    nullable: bool
    first: frozenset[int]
    last: frozenset[int]


class _Positions:
    """Numbers the symbols of an expression and collects which may follow which."""

    def __init__(self) -> None:
        self.classes: list[frozenset[int]] = []
        self.follow: list[set[int]] = []

    def visit(self, e: Expression) -> _Shape:
        if isinstance(e, Symbol):
            self.classes.append(e.classes)
            self.follow.append(set())
            here = frozenset([len(self.classes) - 1])
            return _Shape(False, here, here)
        if isinstance(e, _Then):
            a, b = self.visit(e.left), self.visit(e.right)
            self._link(a.last, b.first)
            return _Shape(
                a.nullable and b.nullable,
                a.first | b.first if a.nullable else a.first,
                a.last | b.last if b.nullable else b.last,
            )
        if isinstance(e, _Or):
            a, b = self.visit(e.left), self.visit(e.right)
            return _Shape(a.nullable or b.nullable, a.first | b.first, a.last | b.last)
        if isinstance(e, _Repeat):
            a = self.visit(e.inner)
            self._link(a.last, a.first)
            return _Shape(True, a.first, a.last)
        return _Shape(True, frozenset(), frozenset())

    def _link(self, before: frozenset[int], after: frozenset[int]) -> None:
        for p, q in product(before, after):
            self.follow[p].add(q)


def compile_expression(expression: Expression, class_count: int) -> Automaton:
    """The deterministic automaton of an expression over classes 0 .. class_count - 1.

    >>> letter, dot = Symbol(frozenset([0])), Symbol(frozenset([1]))
    >>> a = compile_expression(letter.plus() + (dot + letter.plus()).star(), 3)
    >>> a.transitions.shape[1], bool(a.accepting[START])
    (3, False)
    """
    positions = _Positions()
    shape = positions.visit(expression)
    start = frozenset([-1])  # a position before all others
    numbers: dict[frozenset[int], int] = {frozenset(): DEAD, start: START}
    waiting, rows = [start], {DEAD: [DEAD] * class_count}
    while waiting:
        state = waiting.pop()
        reachable: set[int] = set()
        for p in state:
            reachable |= shape.first if p < 0 else positions.follow[p]
        targets: list[list[int]] = [[] for _ in range(class_count)]
        for q in reachable:
            for c in positions.classes[q]:
                targets[c].append(q)
        row = []
        for target in map(frozenset, targets):
            if target not in numbers:
                numbers[target] = len(numbers)
                waiting.append(target)
            row.append(numbers[target])
        rows[numbers[state]] = row
    transitions = np.array([rows[i] for i in range(len(numbers))])
    accepting = np.zeros(len(numbers), dtype=np.bool_)
    for state, number in numbers.items():
        accepting[number] = bool(state & shape.last)
    return _smallest(transitions, accepting)


def _smallest(transitions: np.ndarray, accepting: np.ndarray) -> Automaton:
    """The minimal automaton for the same language, by partition refinement (Moore)."""
    group = np.where(accepting, 2, 0)
    group[START] = 1 + 2 * accepting[START]
    count = 0
    while len(set(group.tolist())) > count:
        count = len(set(group.tolist()))
        numbers: dict[bytes, int] = {}  # DEAD and START are states 0 and 1 and so keep their places
        signatures = np.column_stack([group, group[transitions]])
        group = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in signatures])
    member = np.array([np.flatnonzero(group == g)[0] for g in range(count)])
    return Automaton(group[transitions[member]].astype(np.uint8), accepting[member])
