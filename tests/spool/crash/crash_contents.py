"""What a power cut may leave of a simulated disk: every subset of names, every part of bytes that no sync covers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from math import prod

from tests.spool.crash.simulated_disk import Change, Content, Fate, Inode, SimulatedDisk

SUBSETS_MAX = 8
PRODUCT_MAX = 4_096
"""Nothing is left out in silence: a history that leaves more than this is too long to be walked through."""


def crash_contents(disk: SimulatedDisk, tears: int) -> Iterator[Content]:
    """Every content that a power cut at this moment may leave. `tears` is at how many places a write is torn."""
    if not disk.is_named:
        yield ()
        if not disk.is_there:
            return
    variants: dict[int, list[bytes]] = {}
    for names in _possible_names(disk):
        for inode in names.values():
            if id(inode) not in variants:
                variants[id(inode)] = versions(inode, tears)
        order = sorted(names)
        for chosen in _combined([variants[id(names[name])] for name in order]):
            yield tuple(zip(order, chosen, strict=True))


def _possible_names(disk: SimulatedDisk) -> Iterator[dict[str, Inode]]:
    """The folder with every choice of the changes that are not certain."""
    for taken in _subsets(len(disk.changes)):
        names = dict(disk.base)
        for index in taken:
            disk.changes[index].on(names)
        yield names


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    """Any of so many changes: none, one, …, all."""
    assert count <= SUBSETS_MAX, f"{count} changes are uncertain at once"
    for size in range(count + 1):
        yield from combinations(range(count), size)


def _combined(lists: list[list[bytes]]) -> Iterator[tuple[bytes, ...]]:
    """Each file in every version, with every version of the others."""
    assert (count := prod(map(len, lists))) <= PRODUCT_MAX, f"{count} combinations of what the files may hold"
    return product(*lists)


def versions(inode: Inode, tears: int) -> list[bytes]:
    """A file's possible contents: first without anything uncertain, last with all of it, in between all else."""
    if not inode.changes:
        return [inode.base]
    unsure = [index for index, change in enumerate(inode.changes) if change.fate is not Fate.CERTAIN]
    every = set(unsure)
    found = [_content_of(inode, {unsure[index] for index in taken}) for taken in _subsets(len(unsure))]
    for index in unsure:
        for part in _torn(inode, index, tears):
            found.append(_content_of(inode, every, index, part))
            if len(unsure) > 1:
                found.append(_content_of(inode, {index}, index, part))
    last = _content_of(inode, every)
    return [*dict.fromkeys(one for one in found if one != last), last]


def _content_of(inode: Inode, taken: set[int], torn: int = -1, part: Change | None = None) -> bytes:
    """The base with the certain and the taken changes, of which one may be there in part only."""
    content = inode.base
    for index, change in enumerate(inode.changes):
        if index == torn and part is not None:
            content = part.on(content)
        elif change.fate is Fate.CERTAIN or index in taken:
            content = change.on(content)
    return content


def _torn(inode: Inode, index: int, tears: int) -> Iterator[Change]:
    """The parts of one change: beginnings, ends, both without what is between; the rest is as before, or zeros."""
    change = inode.changes[index]
    data, at = change.data, change.at
    if change.verb == "preallocate":
        yield Change(change.verb, max(1, at // 2), b"")
    if change.verb != "write" or not data:
        return
    before = _content_of(inode, set(range(index)))
    old = before[at : at + len(data)].ljust(len(data), b"\0")
    for cut in boundaries(data, tears):
        behind = min(len(data), cut + max(1, len(data) // 3))
        yield Change("write", at, data[:cut])
        yield Change("write", at, data[:cut] + old[cut:])
        yield Change("write", at, old[:cut] + data[cut:])
        yield Change("write", at, data[:cut] + old[cut:behind] + data[behind:])


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
