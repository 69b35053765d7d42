"""A headless Chromium of the system, for tests of the pages that a person sees."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

_DRIVER = shutil.which("chromedriver")
_BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

MISSING = next(
    (
        f"{what} is missing"
        for what, there in (
            ("selenium", find_spec("selenium")),
            ("chromium", _BROWSER),
            ("chromedriver", _DRIVER),
        )
        if not there
    ),
    "",
)
"""What a test in a browser lacks here; empty if it can run."""


@contextmanager
def browser(width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """A browser with a page of this size, which may prefer the dark theme."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = _BROWSER or ""
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{flag}")
    driver = Chrome(options=options, service=Service(_DRIVER))
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})
        # The page has the focus whatever other windows there are.
        driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
        yield driver
    finally:
        driver.quit()
