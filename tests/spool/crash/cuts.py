"""What a power cut may leave of a simulated disk: every subset of names, every part of bytes that no sync covers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from math import prod

from tests.spool.crash.disk import Change, Content, Fate, Inode, Naming, SimulatedDisk

SUBSETS_MAX = 6
"""Of more uncertain changes than this only prefixes, single ones and all but one are tried."""
PRODUCT_MAX = 256


def contents(disk: SimulatedDisk, tears: int) -> Iterator[Content]:
    """Every content that a power cut at this moment may leave. `tears` is at how many places a write is torn."""
    if not disk.is_named:
        yield ()
        if not disk.is_there:
            return
    variants: dict[int, list[bytes]] = {}
    for names in _namings(disk):
        for inode in names.values():
            if id(inode) not in variants:
                variants[id(inode)] = versions(inode, tears)
        order = sorted(names)
        for chosen in _combined([variants[id(names[name])] for name in order]):
            yield tuple(zip(order, chosen, strict=True))


def _namings(disk: SimulatedDisk) -> Iterator[dict[str, Inode]]:
    """The folder with every choice of the changes that are not certain."""
    if not disk.changes:
        yield disk.base
        return
    unsure = [change for change in disk.changes if change.fate is not Fate.CERTAIN]
    for taken in _subsets(len(unsure)):
        kept: set[int] = {id(unsure[index]) for index in taken}
        names = dict(disk.base)
        for change in disk.changes:
            if change.fate is Fate.CERTAIN or id(change) in kept:
                change.on(names)
        yield names


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    if count <= SUBSETS_MAX:
        for size in range(count + 1):
            yield from combinations(range(count), size)
        return
    for index in range(count + 1):
        yield tuple(range(index))
    for index in range(count):
        yield (index,)
        yield tuple(other for other in range(count) if other != index)


def _combined(lists: list[list[bytes]]) -> Iterator[tuple[bytes, ...]]:
    """All combinations, or where they are too many: each file in every version, the others without and with all."""
    if prod(map(len, lists)) <= PRODUCT_MAX:
        yield from product(*lists)
        return
    least, most = [one[0] for one in lists], [one[-1] for one in lists]
    for index, versions_ in enumerate(lists):
        for version in versions_:
            for others in (least, most):
                yield (*others[:index], version, *others[index + 1 :])


def versions(inode: Inode, tears: int) -> list[bytes]:
    """A file's possible contents: first without anything uncertain, last with all of it, in between all else."""
    if not inode.changes:
        return [inode.base]
    unsure = [index for index, change in enumerate(inode.changes) if change.fate is not Fate.CERTAIN]
    found = [_made(inode, set(taken), -1, b"", 0) for taken in _subsets(len(unsure)) for taken in [_at(unsure, taken)]]
    every = set(unsure)
    for index in unsure:
        change = inode.changes[index]
        for data, at in _torn(inode, index, change, tears):
            found.append(_made(inode, every, index, data, at))
            if len(unsure) > 1:
                found.append(_made(inode, {index}, index, data, at))
    last = found[len(list(_subsets(len(unsure)))) - 1] if len(unsure) <= SUBSETS_MAX else _made(inode, every, -1, b"", 0)
    return [*dict.fromkeys(one for one in found if one != last), last]


def _at(unsure: list[int], taken: tuple[int, ...]) -> list[int]:
    return [unsure[index] for index in taken]


def _made(inode: Inode, taken: set[int], torn: int, data: bytes, at: int) -> bytes:
    """The base with the certain and the taken changes, one of which is replaced by its torn version."""
    content = inode.base
    for index, change in enumerate(inode.changes):
        if index == torn:
            content = Change("write" if change.verb == "write" else change.verb, at, data).on(content)
        elif change.fate is Fate.CERTAIN or index in taken:
            content = change.on(content)
    return content


def _torn(inode: Inode, index: int, change: Change, tears: int) -> Iterator[tuple[bytes, int]]:
    """The parts of one change: beginnings, beginnings with zeros behind, ends with old bytes before, a hole inside."""
    if change.verb == "preallocate":
        yield b"", max(1, change.at // 2)
        return
    if change.verb != "write" or not change.data:
        return
    data, at = change.data, change.at
    before = _made(inode, set(range(index)), -1, b"", 0) if index else inode.base
    old = before[at : at + len(data)].ljust(len(data), b"\0")
    for cut in boundaries(data, tears):
        yield data[:cut], at
        yield data[:cut] + bytes(len(data) - cut), at
        yield old[:cut] + data[cut:], at
        behind = min(len(data), cut + max(1, len(data) // 3))
        yield data[:cut] + old[cut:behind] + data[behind:], at


def boundaries(data: bytes, tears: int) -> list[int]:
    """Where a write may be torn: at the ends of its lines and around, and evenly spread in between."""
    length = len(data)
    if tears >= length:
        return list(range(1, length))
    found = {1, length - 1, length - 2, *(length * part // (tears + 1) for part in range(1, tears + 1))}
    end = data.find(b"\n")
    while 0 <= end < length - 1 and len(found) < 4 * tears + 8:
        found |= {end, end + 1, end + 2}
        end = data.find(b"\n", end + 1)
    return sorted(cut for cut in found if 0 < cut < length)
