"""A headless Chromium, driven over its debugging protocol: as much of it as a test of a page needs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ANSWER_SECONDS_MAX = 20.0
KEY_CODES = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Home": 36,
    "End": 35,
    "Enter": 13,
}


def browser_path() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


WORDS_MAX = 30
"""Letters of a word that may be broken where a page is narrow: a long name."""
MISPLACED = f"""(() => {{
  const found = [], range = document.createRange();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {{
    const inside = text.parentElement;
    if (inside.closest('script, style, svg, code, footer') || !inside.checkVisibility()) continue;
    for (const word of text.data.matchAll(/[^\\s\\/-]+/g)) {{
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const places = [...range.getClientRects()];
      const isBroken = places.some((one) => one.top >= places[0].bottom - 1);
      const isOutside = places.some((one) => one.right > innerWidth + 1);
      if (isBroken && word[0].length <= {WORDS_MAX}) found.push('broken: ' + word[0]);
      if (isOutside) found.push('outside: ' + word[0]);
    }}
  }}
  return found;
}})()"""
"""A script that lists words of a page that are broken, or that lie outside the window."""


class Tab:
    """One page in a browser; what went wrong in it stands in `complaints`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._count = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())
        self.complaints: list[str] = []
        self.requests: list[str] = []

    async def _read(self) -> None:
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif said["method"] == "Runtime.exceptionThrown":
                details = said["params"]["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description") or details["text"])
            elif said["method"] == "Runtime.consoleAPICalled":
                self.complaints.append(str(said["params"]["args"]))
            elif said["method"] == "Log.entryAdded":
                self.complaints.append(said["params"]["entry"]["text"])
            elif said["method"] == "Network.requestWillBeSent":
                self.requests.append(said["params"]["request"]["url"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        answer = self._answers[self._count] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._count, "method": method, "params": params})
        said = await asyncio.wait_for(answer, ANSWER_SECONDS_MAX)
        assert "error" not in said, said["error"]
        result: dict[str, Any] = said["result"]
        return result

    async def show(self, file: Path, fragment: str = "") -> None:
        """Loads a file and waits until it is drawn."""
        await self.visit(file.resolve().as_uri() + fragment)

    async def visit(self, url: str) -> None:
        """Loads an address and waits until it is drawn."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), ANSWER_SECONDS_MAX)
        await self.drawn()

    async def look(self, *, width: int, height: int = 1000, dark: bool = False, ratio: float = 1) -> None:
        """The size of the window and the reader's choice of colours."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=ratio,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def drawn(self) -> None:
        """Two frames later, what was asked for is on the screen."""
        await self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    async def evaluate(self, expression: str) -> Any:
        said = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    async def press(self, key: str, *, shift: bool = False) -> None:
        """One key, down and up."""
        event: dict[str, Any] = {"key": key, "modifiers": 8 if shift else 0}
        if key in KEY_CODES:
            event |= {"code": key, "windowsVirtualKeyCode": KEY_CODES[key]}
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)
        await self.drawn()

    async def write(self, text: str) -> None:
        await self.call("Input.insertText", text=text)
        await self.drawn()

    async def mouse(self, kind: str, x: float, y: float, *, held: bool = False) -> None:
        """``mousePressed``, ``mouseMoved`` or ``mouseReleased`` at a place of the window."""
        await self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button="none" if kind == "mouseMoved" and not held else "left",
            buttons=1 if held else 0,
            clickCount=1,
        )
        await self.drawn()

    async def picture(self, *, whole: bool = True) -> bytes:
        """A PNG of the page, with ``whole`` also of what is below the window."""
        params: dict[str, Any] = {}
        if whole:
            size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            params = {"clip": clip, "captureBeyondViewport": True}
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png", **params))["data"])

    async def close(self) -> None:
        self._reader.cancel()
        await self._socket.close()


@contextlib.asynccontextmanager
async def opened(home: Path, browser: str) -> AsyncIterator[Tab]:
    """A browser of its own with one empty tab; it is gone at the end. ``home`` is an empty directory."""
    # Everything runs as whoever runs the tests, so the browser's own sandbox may be not to be had.
    process = await asyncio.create_subprocess_exec(
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        "--hide-scrollbars",
        "--remote-debugging-port=0",
        f"--user-data-dir={home}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        address = await asyncio.wait_for(_address(process.stderr), ANSWER_SECONDS_MAX)
        drain = asyncio.ensure_future(process.stderr.read())
        origin = address.split("/devtools")[0].replace("ws:", "http:")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{origin}/json/list") as reply:
                pages = [one for one in await reply.json() if one["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await tab.call(f"{domain}.enable")
                yield tab
                await tab.close()
        drain.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _address(lines: asyncio.StreamReader) -> str:
    async for line in lines:
        said = line.decode(errors="replace")
        if "DevTools listening on " in said:
            return said.split("listening on ")[1].strip()
    raise AssertionError("the browser ended before it listened")
