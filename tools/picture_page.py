"""Takes docs/pictures/page-*.png: `make picture`, with Chromium (make browser) and the built page (make page).

A network of this machine does some work, one of its three providers is killed, and the page is photographed, in light
and in dark. Nothing leaves the loopback address.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, async_playwright

from holdfast import Client

FOLDER: Final = Path(__file__).parent.parent / "docs" / "pictures"
HOLDFAST: Final = Path(sys.executable).parent / "holdfast"
HTTP, GRPC = 18_451, 18_452
NAMES: Final = ("oak", "ash", "fir")
JOBS, LONG_JOBS = 40, 9
QUICK: Final = {
    "HOLDFAST_POLICY__CHAIN__BLOCK_MS": "1000",
    "HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": "2",
    "HOLDFAST_POLICY__ARCHIVE__BLOB_WAIT_BLOCKS": "2",
    "HOLDFAST_POLICY__LEASE__AI_MS": "20000",
}
PATIENCE_S: Final = 240.0


class Network:
    """A node and its agents in a folder; all of them end with it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._processes = folder, dict[str, subprocess.Popen[bytes]]()

    def start(self, name: str, *arguments: str) -> None:
        log = (self.folder / f"{name}.log").open("wb")
        self._processes[name] = subprocess.Popen(  # noqa: S603 - our own program
            [HOLDFAST, *arguments], cwd=self.folder, env=os.environ | QUICK, stdout=log, stderr=log
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - our own program
            [HOLDFAST, *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )

    def until(self, *arguments: str, says: str = "") -> None:
        """Run a command until it succeeds and says what is expected."""
        deadline = time.monotonic() + PATIENCE_S
        while (done := self.run(*arguments)).returncode != 0 or says not in done.stdout:
            if time.monotonic() > deadline:
                sys.exit(f"holdfast {' '.join(arguments)}: {done.stdout}{done.stderr}")
            time.sleep(0.3)

    def kill(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGKILL)

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            process.wait()


def work(network: Network) -> None:
    """Jobs are done, one provider dies over its own, some wait for a model that no provider has."""
    network.run("init", "--http", str(HTTP), "--grpc", str(GRPC))
    network.start("node", "up")
    network.until("account", "mint", "alice", "1000000")
    for name in NAMES:
        place = ("--node", f"127.0.0.1:{GRPC}", "--data", name, "--name", name, "--account", name)
        network.start(name, "agent", *place, "--model", "echo", "--model", "sleep")
        network.until("provider", "stake", name, "10000", "--mint")
    with Client(network.folder / "holdfast-data") as client:
        done = client.enqueue_many([_job("echo", number) for number in range(JOBS)], max_fee=100, caller="alice")
        for outcome in client.as_completed(done):
            client.result(outcome.unwrap())
        long = [_job("sleep", number, ms=600_000) for number in range(LONG_JOBS)]
        unserved = [_job("no-one-has-it", number) for number in range(3)]
        client.enqueue_many([*long, *unserved], max_fee=100, caller="alice")
    network.until("queue", "show", says=str(LONG_JOBS))
    network.kill("ash")
    time.sleep(12)  # some points on the curve, and blobs on their way


def _job(model: str, number: int, **params: int) -> dict[str, object]:
    return {"kind": "AI", "spec": {"model": model, "prompt": f"{number}", "params": params}}


async def photograph(browser: Browser, scheme: str) -> None:
    context = await browser.new_context(viewport={"width": 1_440, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    page = await context.new_page()
    await page.goto(f"http://127.0.0.1:{HTTP}/")
    await page.get_by_text("oak").first.wait_for()
    await page.wait_for_timeout(3_000)
    await page.screenshot(path=FOLDER / f"page-{scheme}.png")
    await context.close()


async def photograph_both() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or sys.exit("no Chromium: make browser")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            await photograph(browser, scheme)
        await browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        network = Network(Path(folder))
        try:
            work(network)
            asyncio.run(photograph_both())
        finally:
            network.stop()


if __name__ == "__main__":
    main()
