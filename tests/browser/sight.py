"""What a person would see wrong with a page: text that is cut, and text too faint to read.

Contrast is judged as WCAG 2.2 does at level AA: 4.5 to 1, and 3 to 1 for large text.

Source: https://www.w3.org/TR/WCAG22/#contrast-minimum
"""

from playwright.async_api import Page

_CUT = """
() => [...document.querySelectorAll("#content *")]
  .filter((e) => ["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(e).overflowX))
  .filter((e) => e.clientWidth > 5 && e.scrollWidth > e.clientWidth + 1)
  .filter((e) => !e.matches("input, select, textarea, pre"))
  .map((e) => `${e.tagName} .${e.className} is ${e.scrollWidth} wide on ${e.clientWidth}`)
"""

_FAINT = """
() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[0-9.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = (top, below) =>
    [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      layers.push(parse(getComputedStyle(e).backgroundColor));
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [dim, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dim + 0.05);
  };
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const text = texts.currentNode.textContent.trim();
    if (!text || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })
        || element.closest("option, script, style, .visually-hidden")) {
      continue;
    }
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ground = behind(element);
    const ratio = contrast(over(parse(style.color), ground), ground);
    if (ratio < (isLarge ? 3 : 4.5)) {
      found.add(`${ratio.toFixed(1)} to 1: ${element.tagName} "${text.slice(0, 40)}"`);
    }
  }
  return [...found];
}
"""


async def cut_parts(page: Page) -> list[str]:
    """Return the parts of a page whose content is wider than they are."""
    found: list[str] = await page.evaluate(_CUT)
    return found


async def faint_texts(page: Page) -> list[str]:
    """Return the texts of a page whose colour is too near to what is behind them."""
    found: list[str] = await page.evaluate(_FAINT)
    return found
