"""What a reader needs of a page, checked in Chromium: in light and dark, on a wide and a narrow screen."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

SCHEMES = ("light", "dark")
WIDTHS = (1280, 390)
VIEWS = [(scheme, width) for scheme in SCHEMES for width in WIDTHS]
MIN_CONTRAST = 4.5

FIND_FAINT_TEXT = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgba = (color) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
};
const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
const behind = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
};
const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const luminance = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => sum + weight * linear(c[i] / 255), 0);
const faint = [];
for (const element of document.body.querySelectorAll("*")) {
  const own = [...element.childNodes].filter((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own.length || !element.checkVisibility() || element.matches("script, style, .chart *")) continue;
  const back = behind(element);
  const front = over(rgba(getComputedStyle(element).color), back);
  const [dark, light] = [luminance(front), luminance(back)].sort((a, b) => a - b);
  const contrast = (light + 0.05) / (dark + 0.05);
  if (contrast < arguments[0]) faint.push(`${own[0].textContent.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
}
return faint;
"""
COUNT_EMPTY_CHARTS = """
const copy = document.createElement("canvas");
const context = copy.getContext("2d", { willReadFrequently: true });
return [...document.querySelectorAll(".chart")].filter((chart) => {
  const canvas = chart.querySelector("canvas");
  if (!canvas) return true;
  Object.assign(copy, { width: canvas.width, height: canvas.height });
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  return !data.some((value, i) => i % 4 === 3 && value > 0);
}).length;
"""
OWN_FOCUS = """
const style = getComputedStyle(document.activeElement);
return [document.activeElement.tagName, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1];
"""


@dataclass(frozen=True)
class View:
    """A page at one width and in one color scheme."""

    browser: Any
    scheme: str
    width: int

    def open(self, url: str) -> None:
        """Open a page, and wait until its charts have been drawn."""
        self.browser.get("about:blank")
        self.browser.get_log("browser")
        media = [{"name": "prefers-color-scheme", "value": self.scheme}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        self._resize(900)
        self.browser.get(url)
        self._resize(self.browser.execute_script("return document.documentElement.scrollHeight"))
        WebDriverWait(self.browser, 60).until(lambda page: page.execute_script(COUNT_EMPTY_CHARTS) == 0)

    def assert_readable(self, allowed: str = "") -> None:
        """Assert that the page fits, that its text has contrast, and that it fetches only from `allowed` addresses."""
        run = self.browser.execute_script
        scroll, inner = run("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert scroll <= inner == self.width, "nothing is wider than the page"
        faint = run(FIND_FAINT_TEXT, MIN_CONTRAST)
        assert faint == [], faint
        fetched = run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        foreign = [address for address in fetched if not allowed or not address.startswith((allowed, "data:"))]
        assert foreign == [], foreign
        assert run("return [...document.querySelectorAll('.chart:not([aria-label])')].length") == 0
        log = self.browser.get_log("browser")
        assert log == [], log

    def assert_focus_visible(self, stops: int = 6) -> None:
        """Assert that the first elements that Tab reaches show that they have the focus."""
        for _ in range(stops):
            self.browser.switch_to.active_element.send_keys(Keys.TAB)
            name, visible = self.browser.execute_script(OWN_FOCUS)
            assert visible, name

    def save(self, name: str, folder: Path) -> None:
        """Save a screenshot in `folder`, or where the variable TRAINYARD_VIEWS names."""
        folder = Path(os.environ.get("TRAINYARD_VIEWS", folder))
        assert self.browser.save_screenshot(str(folder / f"{name}-{self.scheme}-{self.width}.png"))

    def focus(self, selector: str) -> Any:
        """Focus an element, and return it."""
        element = self.browser.find_element(By.CSS_SELECTOR, selector)
        self.browser.execute_script("arguments[0].focus()", element)
        return element

    def _resize(self, height: int) -> None:
        size = {"width": self.width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
