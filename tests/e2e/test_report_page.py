"""The report's page in a real browser: loads from a file, plays rollouts, follows the theme, fits a phone, prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, find_chromium
from made_up_study import MAIN, write_study

from steprs.report.write import write_report

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="no Chromium here; on Debian: apt install chromium")

ARMS = [arm for arm in MAIN if arm.label in {"base", "centred GRPO", "StepRS decreasing"}]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_study(tmp_path_factory.mktemp("study"), {"": ARMS}, seeds=3)
    return write_report(root).page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


@pytest.fixture
def page(browser: Browser, file: Path) -> Browser:
    browser.problems.clear()
    browser.requests.clear()
    browser.look(width=1280)
    browser.open(file)
    return browser


def colour(page: Browser, selector: str, name: str = "backgroundColor") -> tuple[float, ...]:
    """Red, green, blue as the browser computed them."""
    text = page.evaluate(f"getComputedStyle(document.querySelector({selector!r})).{name}")
    return tuple(float(number) for number in re.findall(r"[\d.]+", text)[:3])


def masked(page: Browser) -> int:
    return page.evaluate("document.querySelectorAll('.token.masked').length")


def choose(page: Browser, name: str, index: int) -> None:
    page.evaluate(
        f"(() => {{ const s = document.querySelector('select[name={name}]'); s.value = {index}; "
        "s.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def slide_to(page: Browser, step: int) -> None:
    page.evaluate(
        f"(() => {{ const s = document.querySelector('.player input'); s.value = {step}; "
        "s.dispatchEvent(new Event('input')); })()"
    )


def test_loads_from_a_file_and_asks_for_nothing_else(page, file):
    assert page.problems == []
    assert page.requests == [file.resolve().as_uri()]
    assert page.evaluate("document.title") == "A made-up study"


def test_the_policy_forbids_requests_and_foreign_scripts(page):
    page.evaluate("fetch('data:text/plain,x').catch(() => 0)")
    page.evaluate(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; "
        "document.body.append(s); })()"
    )
    assert page.evaluate("window.ran") is None
    refused = [problem for problem in page.problems if "Content Security Policy" in problem]
    assert any("connecting" in text.lower() for text in refused) and any("inline script" in text for text in refused)


class TestViewer:
    def test_the_slider_reveals_tokens_step_by_step(self, page):
        tokens = page.evaluate("document.querySelectorAll('.token').length")
        assert tokens == 16 * 12 and masked(page) == 0, "it begins with finished texts"
        slide_to(page, 0)
        assert masked(page) == tokens
        slide_to(page, 4)
        assert masked(page) == tokens - 16 * 4, "each rollout reveals one token a step"
        assert page.evaluate("document.querySelectorAll('.token.fresh').length") == 16
        assert page.evaluate("document.querySelector('.player output').textContent") == "step 4 of 12"

    def test_arrow_keys_and_buttons_step(self, page):
        page.evaluate("document.querySelector('.player .back').click()")
        assert masked(page) == 16
        page.evaluate("document.querySelector('.player .play').focus()")
        page.press("ArrowLeft")
        assert masked(page) == 32
        page.press("ArrowRight")
        page.press("ArrowRight")
        assert masked(page) == 0

    def test_play_runs_to_the_end_and_stops(self, page):
        page.evaluate("document.querySelector('.player .play').click()")
        assert page.evaluate("document.querySelector('.play').textContent") == "Pause"
        assert masked(page) == 16 * 12, "from the beginning, if it stood at the end"
        page.evaluate("new Promise(done => setTimeout(done, 1600))")
        assert 0 < masked(page) < 16 * 12
        page.evaluate("document.querySelector('.player .play').click()")
        stopped = masked(page)
        page.evaluate("new Promise(done => setTimeout(done, 700))")
        assert masked(page) == stopped

    def test_an_arm_and_a_problem_can_be_chosen_and_the_step_stays(self, page):
        page.evaluate("document.querySelector('.player .back').click()")
        before = page.evaluate("document.querySelector('.sides').textContent")
        choose(page, "arm", 2)
        assert page.evaluate("document.querySelector('.sides').textContent") != before
        assert page.evaluate("document.querySelector('.player output').textContent") == "step 11 of 12"
        choose(page, "problem", 3)
        assert page.evaluate("document.querySelector('select[name=problem]').selectedOptions[0].text").startswith(
            "countdown/003"
        )
        assert masked(page) == 0

    def test_right_and_wrong_stand_beside_each_other_by_answer(self, page):
        titles = page.evaluate("[...document.querySelectorAll('.sides h3')].map(h => h.firstChild.textContent)")
        assert titles == ["Right", "Wrong"]
        left, right = page.evaluate("[...document.querySelectorAll('.sides section')].map(s => s.offsetLeft)")
        assert left < right
        counts = page.evaluate("[...document.querySelectorAll('.sides h3 span')].map(s => Number(s.textContent))")
        assert sum(counts) == 16
        answers = page.evaluate(
            "[...document.querySelectorAll('.sides section:first-child h4 bdi')].map(b => b.textContent)"
        )
        assert answers == ["24"], "one right answer in this study"

    def test_colours_show_the_advantage(self, page):
        choose(page, "colour", 0)
        page.evaluate("document.querySelector('select[name=colour]').value = 'advantage'")
        page.evaluate("document.querySelector('select[name=colour]').dispatchEvent(new Event('change'))")
        ends = page.evaluate("[...document.querySelectorAll('.scale span')].map(s => Number(s.textContent))")
        assert ends[0] == -ends[1] < 0
        number = page.evaluate("document.querySelector('.sides section:first-child .token small').textContent")
        assert number.startswith("+"), "the right side's advantages are positive"
        red, _, blue = colour(page, ".sides section:first-child .token")
        assert red > blue, "orange"

    def test_hostile_text_is_only_text(self, page):
        text = page.evaluate("document.querySelector('.sides').textContent")
        assert "<script>document.title='owned'</script>" in text and "\u202e" not in text and "\x1b" not in text
        assert page.evaluate("document.querySelectorAll('.sides script, .sides img').length") == 0
        assert "(99880 more)" in text
        assert page.evaluate("document.title") == "A made-up study"


class TestTheme:
    def test_follows_the_system(self, page):
        assert min(colour(page, "body")) > 240
        page.look(width=1280, dark=True)
        assert max(colour(page, "body")) < 40 and min(colour(page, "body", "color")) > 200
        axis = page.evaluate("getComputedStyle(document.querySelector('.panels svg text')).fill")
        assert min(float(n) for n in re.findall(r"[\d.]+", axis)[:3]) > 120, "figures change with it"

    def test_the_button_overrides_it(self, page):
        page.evaluate("document.querySelector('.theme').click()")
        assert max(colour(page, "body")) < 40
        assert page.evaluate("document.querySelector('.theme').textContent") == "Light"
        page.look(width=1280, dark=True)
        page.evaluate("document.querySelector('.theme').click()")
        assert min(colour(page, "body")) > 240


@pytest.mark.parametrize("width", [390, 768, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window(browser, file, width, dark):
    browser.look(width=width, dark=dark)
    browser.open(file)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    too_wide = (
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.wide, svg') "
        "&& e.getBoundingClientRect().right > innerWidth + 1).map(e => e.className || e.tagName)"
    )
    assert browser.evaluate(too_wide) == []


def test_on_a_phone_tables_scroll_and_keep_their_first_column(browser, file):
    browser.look(width=390)
    browser.open(file)
    scrolled = browser.evaluate(
        "(() => { const box = document.querySelector('.wide'), cell = box.querySelector('tbody th'); "
        "const before = cell.getBoundingClientRect().left; box.scrollLeft = 150; "
        "return [box.scrollLeft, cell.getBoundingClientRect().left - before]; })()"
    )
    assert scrolled == [150, 0]


def test_nothing_moves_while_it_loads_or_plays(page):
    heights = [page.evaluate("document.documentElement.scrollHeight")]
    for _ in range(3):
        page.evaluate("document.querySelector('.player .back').click()")
        heights.append(page.evaluate("document.documentElement.scrollHeight"))
    assert len(set(heights)) == 1


def test_a_legend_entry_lights_its_arm(page):
    page.evaluate("document.querySelector('.legend button[data-arm=\"arm-1\"]').click()")
    lit, dim = (
        page.evaluate(f"getComputedStyle(document.querySelector('figure.dimmed .{arm}')).opacity")
        for arm in ("arm-1", "arm-0")
    )
    assert float(lit) == 1 and float(dim) < 0.5


def test_everything_is_reached_by_keyboard(page):
    unnamed = (
        "[...document.querySelectorAll('button, select, input, [tabindex]')].filter(e => "
        "!(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).length"
    )
    assert page.evaluate(unnamed) == 0
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


def test_prints_without_controls_and_with_what_is_folded(page, tmp_path):
    page.call("Emulation.setEmulatedMedia", media="print")
    hidden = page.evaluate(
        "['.player', '.choices', '.theme', '.contents'].map(s => getComputedStyle(document.querySelector(s)).display)"
    )
    assert set(hidden) == {"none"}
    page.call("Emulation.setEmulatedMedia", media="")
    page.print_to(tmp_path / "page.pdf")
    content = (tmp_path / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF") and len(content) > 50_000
