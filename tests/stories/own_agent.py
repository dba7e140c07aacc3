"""An agent with work of its own: a shell program, a Python function and a server in the shape of OpenAI's."""

from __future__ import annotations

import asyncio
import stat
from contextlib import closing, suppress

from tests.stories.agent_process import AgentProcess

PROGRAM = """#!/bin/sh
echo progress 10 begun >&2
case "$1" in
  once*) mkdir "$MARKS/$1" 2> /dev/null && kill -9 $$ ;;
  wait) touch "$MARKS/waiting"; while ! [ -e "$MARKS/go" ]; do sleep 0.05; done ;;
  talk) for n in 1 2 3 4 5 6; do echo "before $n" >&2; done; touch "$MARKS/waiting"
        while ! [ -e "$MARKS/go" ]; do sleep 0.05; done; for n in 1 2 3; do echo "after $n" >&2; done ;;
  fork) setsid sleep 600 & ;;
  bad) echo "no such thing" >&2; exit 65 ;;
esac
tr a-z A-Z
"""
"""Shouts its input; its first argument may want something else first. `MARKS` is a folder of the test."""


class OwnAgent(AgentProcess):
    """Described in its settings file: `shout`, `double`, `chat`, and circuits where they are wanted."""

    def describe(self, server: str, *, circuits: bool = False) -> None:
        program = self.data.parent / "shout.sh"
        program.write_text(PROGRAM)
        program.chmod(stat.S_IRWXU)
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.data / "agent.toml").write_text(
            f"circuits = {str(circuits).lower()}\n"
            f'[[executors]]\nsource = "exec"\nname = "shout"\ntarget = "{program}"\nenv = ["MARKS"]\n'
            '[[executors]]\nsource = "python"\nname = "double"\ntarget = "tests.agent.programs.own_functions:double"\n'
            f'[[executors]]\nsource = "http"\nkind = "AI"\nname = "chat"\ntarget = "{server}"\n'
        )


async def answer_chat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server in the shape of OpenAI's: streams the request back."""
    with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"content-length"))
        body = await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        writer.write(b"data: " + body + b"\n\n")
        await writer.drain()
