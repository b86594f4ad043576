// Looks at the pages of the site with a browser. Standard input: JSON with the folder, the program of the browser, the
// pages, and words to search. Standard output: JSON with what was seen.
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const { folder, program, pages, words } = JSON.parse(readFileSync(0, "utf8"));
const DESK = { width: 1366, height: 900 };
const PHONE = { width: 390, height: 844 };
const AT_ONCE = 3;
const SECONDS = 60_000;
const MENU_SECONDS = 5_000;
const browser = await chromium.launch({ executablePath: program, chromiumSandbox: process.getuid() !== 0 });

async function opened(context, name, problems) {
  const page = await context.newPage();
  page.setDefaultTimeout(SECONDS);
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(`file://${folder}/`) && !/^(data|blob):/.test(request.url())) {
      problems.push(`requests ${request.url()}`);
    }
  });
  await page.goto(`file://${folder}/${name}`);
  await page.waitForFunction(
    () =>
      !document.querySelector("pre.diagram") &&
      [...document.querySelectorAll("div.diagram")].every((box) => box.querySelector("svg")),
  );
  return page;
}

// Runs in the page.
function seen() {
  const size = (text) => {
    const matrix = text.getScreenCTM?.() ?? text.closest("foreignObject")?.getScreenCTM();
    return parseFloat(getComputedStyle(text).fontSize) * (matrix ? Math.hypot(matrix.a, matrix.b) : 1);
  };
  const written = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const diagrams = [...document.querySelectorAll("div.diagram")].map((box) => ({
    letters: Math.min(...[...box.querySelectorAll("svg *:not(style)")].filter(written).map(size)),
    wider: box.scrollWidth - box.clientWidth,
  }));
  const broken = [...document.images].filter((image) => !image.complete || image.naturalWidth === 0);
  return {
    overflow: document.documentElement.scrollWidth - innerWidth,
    diagrams,
    broken: broken.map((image) => image.src),
    neighbors: document.querySelectorAll(".md-footer__link").length,
  };
}

// Runs in the page, with the menu of the phone open: whether the reader sees the page that is open.
function isWhereOneIs() {
  const links = [...document.querySelectorAll(".md-nav--primary .md-nav__link--active")];
  return links.some((link) => {
    const { left, top, width, height } = link.getBoundingClientRect();
    const at = document.elementFromPoint(left + width / 2, top + height / 2);
    return at !== null && (link.contains(at) || at.contains(link));
  });
}

async function looked(context, name, viewport) {
  const problems = [];
  const page = await opened(context, name, problems);
  const found = await page.evaluate(seen);
  if (viewport === PHONE) {
    await page.click("label.md-header__button[for=__drawer]");
    const menu = page.waitForFunction(isWhereOneIs, undefined, { timeout: MENU_SECONDS }); // it slides in
    found.menu = await menu.then(() => true, () => false);
  }
  await page.close();
  return { ...found, problems };
}

async function lookedAtAll(viewport) {
  const context = await browser.newContext({ viewport });
  const found = {};
  const waiting = [...pages];
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
        found[name] = await looked(context, name, viewport);
      }
    }),
  );
  await context.close();
  return found;
}

async function searched() {
  const context = await browser.newContext({ viewport: DESK });
  const found = {};
  for (const word of words) {
    const problems = [];
    const page = await opened(context, "index.html", problems);
    const input = page.locator(".md-search__input");
    await input.click();
    await input.fill(word); // at once: the results of half a word would be read as those of the word
    await input.press("End"); // the site looks at keys
    await page.waitForFunction(() => /\d|No /.test(document.querySelector(".md-search-result__meta").textContent));
    const links = await page.$$eval(".md-search-result__item > a", (all) => all.map((link) => link.href));
    found[word] = { links: links.map((link) => link.replace(`file://${folder}/`, "").replace(/[?#].*/, "")), problems };
    await page.close();
  }
  return found;
}

// The color of text and of what is behind it, in both schemes: [red, green, blue] each.
async function colors(name, selector) {
  const found = {};
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({ viewport: DESK, colorScheme });
    const page = await opened(context, name, []);
    found[colorScheme] = await page.evaluate((selector) => {
      const parts = (color) => color.match(/[\d.]+/g).map(Number);
      const bar = document.querySelector(selector);
      const behind = parts(getComputedStyle(document.body).backgroundColor);
      const [red, green, blue, alpha = 1] = parts(getComputedStyle(bar).color);
      const mixed = [red, green, blue].map((part, index) => part * alpha + behind[index] * (1 - alpha));
      return [mixed, behind.slice(0, 3)];
    }, selector);
    await context.close();
  }
  return found;
}

const report = {
  desk: await lookedAtAll(DESK),
  phone: await lookedAtAll(PHONE),
  searches: await searched(),
  bars: await colors("docs/benchmarks.html", "td:last-child"),
};
await browser.close();
console.log(JSON.stringify(report));
