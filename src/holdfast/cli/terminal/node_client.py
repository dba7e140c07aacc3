"""The node that a verb calls: the one of this folder over its socket, or any node over HTTP with a key (RPC-001)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from holdfast.adapters.keys.secret_file import read_secret
from holdfast.cli.terminal.abbreviations import WHOLE_ID
from holdfast.cli.terminal.key_files import KEYS_FOLDER
from holdfast.cli.terminal.options import NodeAddress
from holdfast.cli.terminal.reporting import load_settings, report_errors
from holdfast.client.errors import NodeUnreachable
from holdfast.client.node_socket import NodeSocket
from holdfast.client.node_url import NodeUrl, checked_token, find_node

if TYPE_CHECKING:
    from holdfast.client import AsyncClient, Client

T = TypeVar("T")
TIMEOUT_S: Final = 5.0
"""How long a node is waited for that does not answer."""
STARTING_S: Final = 15.0
"""The same for a folder that `init` has made: its node may be starting, which takes seconds on a busy machine."""
NOTICE_S: Final = 2.0
"""After this time a person at a terminal is told what is waited for."""
ANSWER_TIMEOUT_S: Final = 10.0
FETCH_TIMEOUT_S: Final = 600.0
"""Without a byte: a node may have to fetch an output from its archive first."""
PATIENCE_S: Final = 60.0
"""How long a verb that waits for a job does without its node."""


class NodeSession(Protocol):
    """A node that answers calls."""

    async def call(self, method: str, **params: object) -> Any: ...


@asynccontextmanager
async def connect(address: NodeAddress) -> AsyncIterator[NodeSession]:
    """The socket of the folder answers a verb sooner than an HTTP library is loaded."""
    if address.url is not None:
        async with async_client(address) as client:
            yield AbbreviatedIds(client)
        return
    folder = load_settings(None, {"data": address.data}).data
    if not folder.is_dir():
        raise NodeUnreachable(f"there is no folder {folder}")
    is_made = (folder / KEYS_FOLDER).exists()
    async with NodeSocket(folder, STARTING_S if is_made else TIMEOUT_S) as node:
        notice = asyncio.get_running_loop().call_later(NOTICE_S, _say_waiting, folder)
        try:
            yield AbbreviatedIds(node)
        finally:
            notice.cancel()


def _say_waiting(folder: Path) -> None:
    if sys.stderr.isatty():
        print(f"holdfast: waiting for the node of {folder}; Ctrl-C stops", file=sys.stderr)


class AbbreviatedIds:
    """A session in which the ids of jobs and providers can be abbreviated, and providers named, in every verb."""

    def __init__(self, node: NodeSession) -> None:
        self._node = node

    async def call(self, method: str, **params: object) -> Any:
        for name, (finder, given) in FINDERS.items():
            text = params.get(name)
            if isinstance(text, str) and text and not WHOLE_ID.fullmatch(text):
                params[name] = (await self._node.call(finder, text=text))[given]
        return await self._node.call(method, **params)


FINDERS: Final = {
    "task_id": ("cap.findJob", "task_id"),
    "provider_id": ("aicf.findProvider", "provider_id"),
}


def node_url(address: NodeAddress) -> NodeUrl:
    """Where this node answers HTTP: its URL, or the socket of its folder."""
    return find_node(_where(address), _read_token(address), address.ca)


def find_job(address: NodeAddress, text: str) -> str:
    """The whole id of a job, of which the beginning suffices."""
    if WHOLE_ID.fullmatch(text):
        return text
    return str(call_node(address, "cap.findJob", text=text)["task_id"])


def async_client(address: NodeAddress) -> AsyncClient:
    """A requester's client of this node (RPC-001)."""
    from holdfast.client import AsyncClient  # noqa: PLC0415 - loading an HTTP library takes longer than most verbs

    return AsyncClient(_where(address), _read_token(address), ca=address.ca, timeout_s=TIMEOUT_S)


def blocking_client(
    address: NodeAddress, timeout_s: float | None = None, answer_timeout_s: float = ANSWER_TIMEOUT_S
) -> Client:
    """The same without asyncio."""
    from holdfast.client import Client  # noqa: PLC0415

    token, patience_s = _read_token(address), TIMEOUT_S if timeout_s is None else timeout_s
    return Client(_where(address), token, ca=address.ca, timeout_s=patience_s, answer_timeout_s=answer_timeout_s)


def patient_client(address: NodeAddress) -> Client:
    """For verbs that wait: a node that restarts meanwhile is waited for, but it must be there at first."""
    call_node(address, "node.getStatus")
    return blocking_client(address, PATIENCE_S)


def _where(address: NodeAddress) -> str | Path:
    return address.url if address.url is not None else load_settings(None, {"data": address.data}).data


def run_on_node(address: NodeAddress, work: Callable[[NodeSession], Awaitable[T]]) -> T:
    """Run `work` with a connection; an error becomes one sentence and its exit code."""

    async def connected() -> T:
        async with connect(address) as node:
            return await work(node)

    with report_errors():
        return asyncio.run(connected())
    raise AssertionError("report_errors() exits after an error")


def call_node(address: NodeAddress, method: str, **params: object) -> Any:
    """One call, one answer."""
    return run_on_node(address, lambda node: node.call(method, **params))


def _read_token(address: NodeAddress) -> str | None:
    """SEC-001: from a file or the environment, never from an option, which every user of the machine can read."""
    if address.token_file is None:
        return None
    return checked_token(read_secret(address.token_file).decode("latin-1"), str(address.token_file))
