"""The site in a browser, as a person uses it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.browser import MISSING, browser
from kit.command import derive
from kit.pages import SPECS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: Any) -> str:
    """The address of a small site, of files."""
    folder: Path = tmp_path_factory.mktemp("site")
    (folder / "own.derive").write_text(SPECS)
    done = derive("site", folder / "out", "--specs", folder / "own.derive")
    assert done.returncode == 0, done.stderr
    return (folder / "out").as_uri()


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as driver:
        yield driver


@pytest.fixture
def page(started: Any, site: str) -> Any:
    """A browser at the front page, in the theme that the system prefers, light."""
    started.get(f"{site}/index.html")
    started.execute_script("localStorage.clear()")
    visit(started, f"{site}/index.html")  # keys that are pressed before reach nothing
    return started


def css(page: Any, selector: str) -> Any:
    return page.find_element("css selector", selector)


def all_css(page: Any, selector: str) -> list[Any]:
    found: list[Any] = page.find_elements("css selector", selector)
    return found


def visit(page: Any, address: str) -> None:
    """Open a page, and wait until it is the one that is shown."""
    page.get(address)
    arrive(page, address.rpartition("/")[2])


def line_with(page: Any, text: str) -> Any:
    """The first line of the generated code that has a text, once it stands on the page."""
    from selenium.webdriver.support.ui import WebDriverWait

    def found(_: Any) -> Any:
        lines = all_css(page, ".codes .line")
        return next((e for e in lines if text in e.get_property("textContent")), None)

    return WebDriverWait(page, 20).until(found, f"{page.current_url} has no line with {text!r}")


def background(page: Any, selector: str = "body") -> str:
    return str(css(page, selector).value_of_css_property("background-color"))


def press(page: Any, *keys: str) -> None:
    """Press keys where the focus is."""
    from selenium.webdriver import ActionChains

    for key in keys:
        ActionChains(page).send_keys(key).perform()


def arrive(page: Any, end: str) -> None:
    """Wait until the address of the page ends so, and the page is drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 20).until(lambda driver: driver.current_url.endswith(end))
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def test_search_an_operation_and_read_a_step(page):
    css(page, "#q").send_keys("soft", "\ue007")
    arrive(page, "catalog.html?q=soft")
    assert [
        row.text.split("\n")[0] for row in all_css(page, ".family li") if row.is_displayed()
    ] == ["softmax"]
    assert css(page, "#found").text == "1 of 2"
    css(page, "#q").send_keys("max", "\ue007")
    arrive(page, "op/softmax.html")
    step = css(page, ".derivation[data-steps=grad_A] .steps li")
    assert not step.is_displayed()
    css(page, ".derivation[data-steps=grad_A] summary").click()
    assert step.is_displayed()
    assert step.text.startswith("partial derivative of S")
    assert "checked by value" in step.text


def test_a_formula_lights_its_lines_and_leads_to_them(page, site):
    from selenium.webdriver import ActionChains

    visit(page, f"{site}/op/softmax.html")
    lit = ".codes .line.lit"
    assert not all_css(page, lit)
    ActionChains(page).move_to_element(css(page, "#formula-grad_A mfrac")).perform()
    assert ["grad_A =" in line.text for line in all_css(page, lit)] == [True]
    ActionChains(page).move_to_element(css(page, "h1")).perform()
    assert not all_css(page, lit)
    link = css(page, "#formula-grad_A a")
    link.click()
    target = page.current_url.rpartition("#")[2]
    assert "grad_A =" in css(page, f"#{target}").text
    css(page, f"#{target} a").click()
    assert page.current_url.endswith("#formula-grad_A")
    assert (
        css(page, "#formula-grad_A").value_of_css_property("background-color") != "rgba(0, 0, 0, 0)"
    )


def test_a_line_lights_its_formula(page, site):
    from selenium.webdriver import ActionChains

    visit(page, f"{site}/op/worst.html")
    line = line_with(page, " d = ")
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", line)
    ActionChains(page).move_to_element(line).perform()
    assert "lit" in css(page, "#formula-d").get_attribute("class")
    assert not all_css(page, "#formula-w.lit")


def test_the_theme_is_switched_and_kept(page, site):
    light = background(page)
    button = css(page, "#theme")
    assert button.text == "Dark"
    button.click()
    dark = background(page)
    assert dark != light and button.text == "Light"
    visit(page, f"{site}/op/softmax.html")
    assert background(page) == dark
    css(page, "#theme").click()
    assert background(page) == light


def test_the_theme_of_the_system_counts_first(site):
    with browser(dark=True) as page:
        visit(page, f"{site}/index.html")
        dark = background(page)
        assert css(page, "#theme").text == "Light"
        css(page, "#theme").click()
        assert background(page) != dark


def test_the_keyboard_alone(page, site):
    tab, enter = "\ue004", "\ue007"
    press(page, tab)
    assert page.switch_to.active_element.text == "Skip to the content"
    press(page, tab, tab)
    assert page.switch_to.active_element.text == "Catalog"
    press(page, enter)
    arrive(page, "catalog.html")
    css(page, "#q").send_keys("softmax")
    press(page, tab, enter)
    arrive(page, "op/softmax.html")
    for _ in range(40):
        press(page, tab)
        if all_css(page, "#formula-grad_A.lit"):
            break
    assert all_css(page, ".codes .line.lit")
    press(page, enter)
    arrive(page, css(page, "#formula-grad_A a").get_attribute("href").rpartition("/")[2])
    details = css(page, ".derivation[data-steps=grad_A]")
    for _ in range(40):
        press(page, tab)
        if page.switch_to.active_element == details.find_element("tag name", "summary"):
            break
    press(page, enter)
    assert details.get_attribute("open")


def test_every_page_fits_a_phone(site):
    with browser(390, 844) as page:
        for address in "index catalog mistakes op/worst guide/notation guide/speed".split():
            visit(page, f"{site}/{address}.html")
            width = page.execute_script("return document.documentElement.scrollWidth")
            assert width <= 390, address


def test_without_script_all_is_readable(site):
    with browser() as page:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        page.get(f"{site}/op/softmax.html")
        assert not css(page, "#theme").is_displayed()
        assert css(page, "#formula-grad_A").is_displayed()
        css(page, "#formula-grad_A a").click()
        target = page.current_url.rpartition("#")[2]
        assert background(page, f"#{target}") != "rgba(0, 0, 0, 0)"
        page.get(f"{site}/catalog.html")
        assert not css(page, "#search").is_displayed()
        assert len([e for e in all_css(page, ".family li") if e.is_displayed()]) == 2


def test_the_page_asks_no_other_machine_and_says_no_error(site):
    with browser() as page:
        for address in ("index", "catalog", "op/worst", "guide/index", "mistakes"):
            visit(page, f"{site}/{address}.html")
            loaded = page.execute_script(
                "return performance.getEntriesByType('resource').map(e => e.name)"
            )
            assert all(name.startswith("file:") for name in loaded)
        assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []
