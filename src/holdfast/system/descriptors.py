"""The file descriptors of this process: how many it may have open, and more of them where the system allows it."""

from __future__ import annotations

import resource


def raise_descriptor_limit(wanted: int) -> int:
    """Raise the soft limit to what is wanted, or to the hard limit; never lower it. The limit that counts now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if reachable > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    return max(soft, reachable)


def descriptor_limit() -> int:
    """The soft limit of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
