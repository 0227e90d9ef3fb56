"""The page in a real browser: silent, offline, readable on a telephone, accessible, valid.

Needs Chromium, and npm for axe-core and html-validate. Without them the tests skip; with
ADVISOR_REQUIRE_CHROMIUM=1, as CI sets it, they fail instead.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.report.browser import Browser, find_chromium
from tests.report.pages import NAMES, write_pages
from tests.support.marks import long

pytestmark = pytest.mark.chromium

_PACKAGES = {"axe-core": "4.14.1", "html-validate": "8.29.0"}


def _missing(what: str) -> None:
    if os.environ.get("ADVISOR_REQUIRE_CHROMIUM") == "1":
        pytest.fail(f"{what} is required here (ADVISOR_REQUIRE_CHROMIUM=1)")
    pytest.skip(what)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = find_chromium()
    if executable is None:
        _missing("no Chromium on this machine (apt-get install chromium)")
        raise AssertionError
    with Browser(executable) as started:
        yield started


@pytest.fixture(scope="module")
def packages() -> Path:
    """node_modules with the two checkers, installed once into the user's cache."""
    npm = shutil.which("npm")
    if npm is None:
        _missing("no npm on this machine to fetch axe-core and html-validate")
        raise AssertionError
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    names = [f"{name}@{version}" for name, version in _PACKAGES.items()]
    folder = base / "nccl-advisor-tests" / "-".join(names).replace("@", "-")
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]
        done = subprocess.run(
            [*command, str(folder), *names], capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            _missing(f"npm cannot fetch {', '.join(names)}: {done.stderr[-300:]}")
        (folder / "done").touch()
    return folder / "node_modules"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Written once, whichever of the workers comes first."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "browser-pages"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        if not (folder / "done").exists():
            write_pages(folder)
            (folder / "done").touch()
    return {name: folder / f"{name}.html" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dark", [False, *long(True)])
def test_page_is_silent_and_asks_for_nothing(
    browser: Browser, pages: dict[str, Path], name: str, dark: bool
) -> None:
    browser.open(pages[name], width=1400, dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    complaints = [
        event
        for event in browser.events
        if event.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")
        or event.get("method") == "Runtime.consoleAPICalled"
    ]
    assert complaints == []
    asked = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event.get("method") == "Network.requestWillBeSent"
    ]
    assert asked == [pages[name].resolve().as_uri()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [360, *long(768), 1400])
def test_page_never_scrolls_sideways(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    browser.open(pages[name], width=width)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


_CLASHES = """(() => {
  const clashes = [];
  for (const svg of document.querySelectorAll('.chart svg')) {
    const texts = [...svg.querySelectorAll('text')]
      .map(text => [text.textContent, text.getBoundingClientRect()])
      .filter(([, box]) => box.width > 0);
    for (const [words, box] of texts)
      if (box.left < 0 || box.right > document.documentElement.clientWidth)
        clashes.push(`${words} leaves the page`);
    texts.forEach(([words, one], index) => {
      for (const [others, other] of texts.slice(index + 1)) {
        const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (wide > 1 && high > 6) clashes.push(`${words} lies over ${others}`);
      }
    });
  }
  return clashes;
})()"""


@pytest.mark.parametrize("width", [360, 1280])
def test_words_in_pictures_neither_overlap_nor_leave_the_page(
    browser: Browser, pages: dict[str, Path], width: int
) -> None:
    for path in pages.values():
        browser.open(path, width=width)
        clashes = browser.evaluate(_CLASHES)
        assert not clashes, f"{path.stem}: {'; '.join(clashes)}"


@pytest.mark.parametrize("name", NAMES)
def test_paper_takes_two_pages_and_cuts_nothing(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    # 184 mm, what A4 leaves between its margins, at 96 pixels an inch.
    browser.open(pages[name], width=695)
    printed = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    if name != "many":  # names of 330 characters
        assert len(re.findall(rb"/Type\s*/Page[^s]", printed)) <= 2
    browser.call("Emulation.setEmulatedMedia", media="print")
    wide = browser.evaluate(
        "[...document.querySelectorAll('.chart, table, pre, .row')]"
        ".filter(part => part.getBoundingClientRect().right > innerWidth + 1).length"
    )
    browser.call("Emulation.setEmulatedMedia", media="")
    assert wide == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("many", "logs")])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_holds_verdict_step_and_first_finding(
    browser: Browser, pages: dict[str, Path], name: str, width: int, height: int
) -> None:
    browser.open(pages[name], width=width, height=height)
    bottoms = browser.evaluate(
        "['.verdict', '#average-step', '.findings .finding']"
        ".filter(s => document.querySelector(s)).map(s => "
        "document.querySelector(s).getBoundingClientRect().bottom)"
    )
    assert bottoms == sorted(bottoms)
    assert bottoms[-1] <= height, bottoms


@pytest.mark.parametrize("name", NAMES)
def test_links_to_sections_are_whole_on_a_telephone(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name], width=390, height=844)
    ends = "[...document.querySelectorAll('nav a')].map(a => a.getBoundingClientRect().right)"
    assert max(browser.evaluate(ends)) <= 390


@pytest.mark.parametrize("name", NAMES)
def test_no_row_is_cut_on_a_telephone(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], width=390, height=844)
    cut = browser.evaluate(
        "[...document.querySelectorAll('.row *')].filter(part => part.clientHeight > 0 && "
        "getComputedStyle(part).overflow === 'hidden' && part.tagName !== 'svg' && "
        "part.scrollHeight > part.clientHeight + 1).map(part => part.textContent)"
    )
    assert cut == []


@pytest.mark.parametrize("name", NAMES)
def test_no_number_in_a_cell_is_broken_on_a_telephone(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name], width=390, height=844)
    broken = browser.evaluate(
        "document.querySelectorAll('details').forEach(part => part.open = true),"
        "[...document.querySelectorAll('td')].filter(cell => /^[+-]?[0-9][^ ]*$/.test("
        "cell.textContent)).filter(cell => {"
        "const range = document.createRange(); range.selectNodeContents(cell);"
        "return new Set([...range.getClientRects()].map(line => Math.round(line.top))).size > 1"
        "}).map(cell => cell.textContent)"
    )
    assert broken == []


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
@pytest.mark.parametrize(("name", "rows"), [("link", 2), ("three", 5), ("logs", 5)])
def test_five_findings_fit_on_the_first_screen(
    browser: Browser, pages: dict[str, Path], name: str, rows: int, width: int, height: int
) -> None:
    browser.open(pages[name], width=width, height=height)
    bottoms = browser.evaluate(
        "[...document.querySelectorAll('.findings .row:not(.head)')]"
        ".map(row => row.getBoundingClientRect().bottom)"
    )
    assert len(bottoms) >= rows
    assert bottoms[rows - 1] <= height


@pytest.mark.parametrize("name", ["many", "three", "link", "compared"])
def test_every_row_says_where_on_a_telephone(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name], width=390, height=844)
    hidden = browser.evaluate(
        "[...document.querySelectorAll('.findings .row .where > span')].filter(part => "
        "part.textContent.trim() && part.closest('.row').clientHeight && "
        "!part.getClientRects().length).map(part => part.textContent)"
    )
    assert hidden == []


def test_three_recordings_make_no_longer_page_than_one(pages: dict[str, Path]) -> None:
    assert len(pages["three"].read_bytes()) < 210_000


def test_a_link_opens_what_is_folded_and_commands_can_be_copied(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["broken"], width=1280)
    browser.evaluate("void (location.hash = '#small-buckets-dp')")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")
    assert browser.evaluate("document.getElementById('small-buckets-dp').open")
    copies = browser.evaluate("document.querySelectorAll('code.copy + button').length")
    assert copies == browser.evaluate("document.querySelectorAll('code.copy').length") > 0


def test_style_sheet_is_applied_under_its_own_policy(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["broken"], width=1400)
    fill = "getComputedStyle(document.querySelector('rect.compute')).fill"
    light = browser.evaluate(fill)
    browser.open(pages["broken"], width=1400, dark=True)
    assert {light, browser.evaluate(fill)} == {"rgb(10, 99, 168)", "rgb(99, 176, 242)"}


def test_policy_stops_a_script_that_slipped_in(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    text = pages["broken"].read_text(encoding="utf-8")
    planted = tmp_path / "planted.html"
    planted.write_text(
        text.replace("</main>", "<script>document.title = 'taken over'</script></main>"),
        encoding="utf-8",
    )
    browser.open(planted, width=800)
    assert browser.evaluate("document.title") != "taken over"


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [
        ("broken", 360, False),
        *long(("broken", 360, True), ("broken", 1400, False), ("healthy", 1400, False)),
        ("broken", 1400, True),
        ("many", 360, True),
        *long(("two", 1400, False), ("logs", 360, False)),
    ],
)
def test_page_passes_axe(
    browser: Browser, pages: dict[str, Path], packages: Path, name: str, width: int, dark: bool
) -> None:
    browser.open(pages[name], width=width, dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.evaluate((packages / "axe-core" / "axe.min.js").read_text(encoding="utf-8") + ";0")
    found = browser.evaluate(
        "axe.run(document).then(r => r.violations.map(v => "
        "[v.id, v.help, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))]))"
    )
    assert found == []


def test_labels_in_pictures_have_contrast(browser: Browser, pages: dict[str, Path]) -> None:
    """WCAG contrast of every kind's fill against the page, in both schemes: at least 4.5."""
    script = """
    (() => {
      const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
      const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
      const probe = document.createElement('span');
      document.body.append(probe);
      const colour = name => {
        probe.className = '';
        const value = getComputedStyle(document.documentElement).getPropertyValue('--' + name);
        return value.trim().match(/[0-9a-f]{2}/gi).map(h => parseInt(h, 16));
      };
      const ratio = (a, b) => {
        const [x, y] = [light(colour(a)), light(colour(b))].sort((m, n) => n - m);
        return (x + 0.05) / (y + 0.05);
      };
      const found = {};
      for (const kind of ['compute', 'transfer', 'wait', 'memory', 'other', 'idle', 'accent',
                          'critical', 'warning', 'info', 'good', 'quiet', 'text'])
        found[kind] = Math.min(ratio(kind, 'ground'),
          ['quiet', 'text', 'critical', 'warning', 'info', 'good'].includes(kind)
            ? ratio(kind, 'panel') : 99);
      found['idle label'] = ratio('text', 'idle-pale');
      found['wait label'] = ratio('text', 'wait-pale');
      return found;
    })()
    """
    for dark in (False, True):
        browser.open(pages["broken"], width=800, dark=dark)
        low = {kind: value for kind, value in browser.evaluate(script).items() if value < 4.5}
        assert low == {}


def test_pages_are_valid_html(pages: dict[str, Path], packages: Path) -> None:
    node = shutil.which("node")
    if node is None:
        _missing("no node on this machine to run html-validate")
        raise AssertionError
    folder = pages["broken"].parent
    rules = {
        "extends": ["html-validate:standard"],
        "rules": {
            # Style, not validity; the template engine decides how markup is spaced.
            "no-trailing-whitespace": "off",
            # Titles of runs and findings may be long.
            "long-title": "off",
            "void-style": "off",
            # SVG's own elements close themselves.
            "no-self-closing": "off",
        },
    }
    (folder / ".htmlvalidate.json").write_text(json.dumps({"root": True, **rules}))
    done = subprocess.run(
        [node, str(packages / ".bin" / "html-validate"), "--formatter=text",
         *map(str, pages.values())],
        capture_output=True, text=True, timeout=120, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
