"""Build the site from README.md, docs/ and the code: python docs/site/build.py (make docs does it).

The pages are gathered under build/site/pages, zensical makes build/site/html of them, and the result is checked: every
link inside of it has a target, and nothing is fetched from another host. llms.txt and llms-full.txt lie beside.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the files beside this one are no package

import check
import llms
import pages as site
import reference

ROOT = Path(__file__).resolve().parents[2]
PAGES, HTML = ROOT / "build" / "site" / "pages", ROOT / "build" / "site" / "html"


def gather() -> dict[str, str]:
    """Write all pages and what they show; returns the Markdown by place."""
    shutil.rmtree(PAGES, ignore_errors=True)
    sources = site.sources()
    files = {ROOT / "docs" / "site" / "style.css": "style.css"}
    texts = {place: site.converted(file, sources, files) for file, place in sources.items()}
    texts |= {"reference/commands.md": reference.commands_page(), **dict(reference.api_pages())}
    site.check_navigation(set(texts))
    for place, text in texts.items():
        (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / place).write_text(text)
    for file, place in files.items():
        (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, PAGES / place)
    (PAGES / "llms.txt").write_text(llms.llms(texts))
    (PAGES / "llms-full.txt").write_text(llms.llms_full(texts))
    return texts


def main() -> None:
    """Build the site, or say in a sentence why not."""
    try:
        texts = gather()
    except site.Broken as e:
        sys.exit(str(e))
    shutil.rmtree(HTML, ignore_errors=True)
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--clean", "--strict"]
    if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(code)
    for place, text in texts.items():
        if not llms.is_generated(text):  # llms.txt names the Markdown of all others
            shutil.copyfile(PAGES / place, HTML / place)
    if found := check.problems(HTML):
        sys.exit("\n".join([*found, f"{len(found)} problems"]))
    print(f"{len(texts)} pages: {HTML / 'index.html'}")


if __name__ == "__main__":
    main()
