"""A headless Chromium, controlled through a pipe with the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0  # seconds for one answer on a busy machine


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page. noises: errors and console output of the page. asked_for: URLs that the page
    requested."""

    def __init__(self, program: str, folder: Path) -> None:
        to_read, write = os.pipe()
        read, to_write = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4. Shells other than bash do not support descriptors above 9.
        command = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        self.log = (folder / "chromium.log").open("wb")
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", command, program, *flags, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        os.close(to_read)
        os.close(to_write)
        self.read, self.write = read, write
        self.buffer = b""
        self.number = 0
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = ""
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for the answer; other messages are added to `events`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", ""):
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self.read, 1 << 20) if ready else b""
            assert part, "Chromium has exited or does not respond"
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def open(self, page: Path, *, width: int = 1280, height: int = 900, scheme: str = "light", media: str = "") -> None:
        """Open a file with this screen size and colour scheme."""
        self.go(page.as_uri(), width=width, height=height, scheme=scheme, media=media)

    def go(self, address: str, *, width: int = 1280, height: int = 900, scheme: str = "light", media: str = "") -> None:
        """Open an address with this screen size and colour scheme."""
        phone = width < 600
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1 + phone, mobile=phone
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)
        self.events = []
        self.ask("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.next())

    def value(self, expression: str) -> Any:
        """Evaluate JavaScript on the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int, *, shift: bool = False) -> None:
        """Press a key. code: its virtual key code."""
        for kind in ("rawKeyDown", "keyUp"):
            about = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 * shift}
            self.ask("Input.dispatchKeyEvent", type=kind, **about)

    @property
    def noises(self) -> list[str]:
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    @property
    def asked_for(self) -> list[str]:
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [str(event["request"]["url"]) for event in sent]

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Save a screenshot. whole: capture the whole page instead of only its visible part."""
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))

    def print(self, path: Path) -> None:
        """Print the page to a PDF (A4)."""
        data = self.ask("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        with suppress(OSError):
            os.write(self.write, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for descriptor in (self.read, self.write):
            os.close(descriptor)
        self.log.close()
