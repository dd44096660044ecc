"""What a person sees and does in the web UI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

__all__ = ["ARTIFACTS", "Page"]

ARTIFACTS = Path(__file__).parent / "artifacts"
R = TypeVar("R")


class Page:
    """One tab of a browser on one server."""

    def __init__(self, browser: WebDriver, address: str) -> None:
        self._browser = browser
        self._address = address

    def open(self, path: str) -> None:
        self._browser.get(f"{self._address}{path}")

    def until(self, look: Callable[[], R], seconds: float = 60) -> R:
        """What is seen as soon as it is something; the page may redraw itself meanwhile."""
        passing = (StaleElementReferenceException, ElementClickInterceptedException)
        return WebDriverWait(self._browser, seconds, ignored_exceptions=passing).until(lambda _: look())

    def click(self, label: str, *, inside: str = "") -> None:
        """Press the button with this label, as soon as it can be pressed."""

        def press() -> bool:
            for button in self._seen(f"{inside}//button[normalize-space()='{label}']"):
                if button.is_enabled():
                    button.click()
                    return True
            return False

        self.until(press)

    def click_in_dialog(self, label: str) -> None:
        self.click(label, inside="//*[@role='dialog']")

    def texts(self, path: str) -> list[str]:
        """The texts of the elements that are seen."""
        return [element.text for element in self._seen(path)]

    def metadata(self, key: str) -> str:
        """The value of one entry of the metadata table."""
        return self.until(lambda: next(iter(self.texts(_value(key))), ""))

    def show(self, key: str) -> None:
        """Scroll to one entry of the metadata table."""
        self.until(lambda: not self._seen("//*[starts-with(normalize-space(text()), 'Loading')]"))
        self._browser.execute_script("arguments[0].scrollIntoView({block: 'end'})", self._seen(_value(key))[0])

    def keep(self, name: str) -> None:
        """A screenshot for people."""
        ARTIFACTS.mkdir(exist_ok=True)
        self._browser.save_screenshot(str(ARTIFACTS / f"{name}.png"))

    def _seen(self, path: str) -> list[WebElement]:
        return [element for element in self._browser.find_elements(By.XPATH, path) if element.is_displayed()]


def _value(key: str) -> str:
    return f"//tr[td[1][normalize-space()='{key}']]/td[2]"
