"""Draw docs/page.png, the picture of the search page, from the index of the demo.

    vizsla demo -o /tmp/python.index
    python docs/page_picture.py /tmp/python.index

It needs playwright and a Chromium (`--chromium PATH` if it is not found).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parent / "page.png"
SEEN = {"q": "cache the results of a function", "compare": 1, "b.model": "bm25(k1=1.2, b=0.75)"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    options = parser.parse_args()
    command = [sys.executable, "-m", "vizsla", "serve", f"python={options.index}", "--port", "0", "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stderr is not None
        url = next(m[1] for line in server.stderr if (m := re.match(r"Serving (http\S+)", line)))
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 860}, device_scale_factor=1)
        page.goto(f"{url}/?{urlencode(SEEN)}")
        page.get_by_text("overlap@10").wait_for()
        page.locator("#count").get_by_text(re.compile(" of .* results")).wait_for()  # counted after the results
        page.wait_for_timeout(500)
        page.screenshot(path=PICTURE)
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main()
