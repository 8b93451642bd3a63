"""Draws the README's pictures from recorded machines: python benchmarks/pictures.py.

What the console prints becomes SVG through rich, of this machine's fonts only; the page becomes PNG through Chromium
without a window, where one is installed. `docs/pictures/page.sha256` says of which page those were taken.
"""

import hashlib
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile

from rich.console import Console
from rich.text import Text

from fi_doctor import knowledge, pipeline
from fi_doctor.knowledge import examples
from fi_doctor.probing import catalog
from fi_doctor.reports import console, document, render

PICTURES = pathlib.Path(__file__).parents[1] / "docs" / "pictures"
MACHINE = "h200-nvcc-12.6"
WIDE = 120  # columns of the matrix
PAGE_SIZE = "900,620"
SCHEMES = {"dark": 0, "light": 1}  # what Chromium calls them
DIGEST = "page.sha256"
# rich's own frame loads its font from elsewhere.
SVG = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def report():
    kb, specs = knowledge.load(), catalog.discover()
    recorded = document.read(examples.data(MACHINE), MACHINE)
    return pipeline.rejudge(recorded, recorded.request, kb=kb, specs=specs)


def drawings(judged):
    """Name of a file -> its text."""
    answer, _, _ = printed(judged, 80).partition("\n\nfeature ")
    _, heading, rest = printed(judged, WIDE).partition("feature ")
    matrix = (heading + rest).partition("\n\n")[0]
    return {
        "answer.svg": drawn(answer, 80, f"fi-doctor check --example {MACHINE}"),
        "matrix.svg": drawn(matrix, WIDE, f"fi-doctor check --example {MACHINE} ({WIDE} columns)"),
        DIGEST: f"{hashlib.sha256(seen(render(judged, 'html')).encode()).hexdigest()}\n",
    }


def seen(page):
    """What of the page is in its picture, with the style."""
    return page.partition('<section id="findings"')[0]


def printed(judged, width):
    """What a terminal with colour gets, but the heading of the matrix plain, so that it can be found."""
    plain, colored = (console.render(judged, width=width, color=color).splitlines() for color in (False, True))
    lines = zip(plain, colored, strict=True)
    return "\n".join(bare if bare.startswith("feature ") else line for bare, line in lines)


def drawn(text, columns, title):
    screen = Console(
        file=io.StringIO(), record=True, width=columns, color_system="standard", force_terminal=True, _environ={}
    )
    screen.print(Text.from_ansi(text), soft_wrap=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:8]
    return screen.export_svg(title=title, code_format=SVG, unique_id=f"fi-{name}")


def photographs(page, chromium):
    """The page as it is seen in light and in dark, beside the drawings."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "page.html")
        path.write_text(page, encoding="utf-8")
        for scheme, number in SCHEMES.items():
            argv = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            argv += [f"--blink-settings=preferredColorScheme={number}", f"--window-size={PAGE_SIZE}"]
            argv += [f"--user-data-dir={folder}/profile", f"--screenshot={PICTURES / f'page-{scheme}.png'}"]
            subprocess.run([*argv, path.as_uri()], check=True, capture_output=True)


def main():
    PICTURES.mkdir(exist_ok=True)
    judged = report()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    for name, text in drawings(judged).items():
        if name != DIGEST or chromium:
            (PICTURES / name).write_text(text, encoding="utf-8")
    if chromium is None:
        sys.exit("the page was not photographed: there is no chromium on PATH")
    photographs(render(judged, "html"), chromium)


if __name__ == "__main__":
    main()
