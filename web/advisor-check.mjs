// Tries the advisor in Debian's Chromium and prints what it measured: `node web/advisor-check.mjs FOLDER [--quick] [--shots FOLDER]`.
// What is wrong ends it with 1; how long something took never does.
import assert from "node:assert/strict";
import { readFileSync, mkdirSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, join, normalize } from "node:path";
import { chromium } from "playwright-core";

const [folder, ...options] = process.argv.slice(2);
const quick = options.includes("--quick");
const shots = options.includes("--shots") ? options[options.indexOf("--shots") + 1] : null;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };

/** Any web server will do: this one knows the folder and four types. */
const server = createServer((request, response) => {
  const path = normalize(decodeURIComponent(new URL(request.url, "http://localhost").pathname));
  try {
    const body = readFileSync(join(folder, path.endsWith("/") ? `${path}index.html` : path));
    response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "text/html" }).end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const origin = `http://127.0.0.1:${server.address().port}`;

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const wrong = [];
/** A page that tells of every word on its console and every request that leaves the folder. */
async function open(settings = {}, hash = "") {
  const context = await browser.newContext({ viewport: { width: 1300, height: 900 }, ...settings });
  const page = await context.newPage();
  page.on("console", (message) => wrong.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("request", (request) => {
    const { protocol } = new URL(request.url());
    if (!request.url().startsWith(`${origin}/`) && protocol !== "data:" && protocol !== "blob:") wrong.push(`request: ${request.url()}`);
  });
  await page.goto(`${origin}/${hash}`);
  return page;
}
/** Waits until what the sliders say is answered, and says how long the page took. */
const answered = (page) => page.waitForFunction(() => document.documentElement.dataset.answered && document.documentElement.dataset.took,
  null, { timeout: 120_000, polling: 20 }).then((handle) => handle.jsonValue()).then(Number);
const text = (page, id) => page.locator(`#${id}`).innerText();
const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

try {
  const since = performance.now();
  const page = await open();
  await page.waitForFunction(() => document.querySelector("#table td:not(.pending)"), null, { polling: 20 });
  const first = performance.now() - since;
  await answered(page);
  console.log(`first figure ${first.toFixed(0)} ms after the page was asked for, all ${(performance.now() - since).toFixed(0)} ms`);
  assert.equal(await page.locator("#table tbody tr").count(), 7);
  assert.equal(await page.locator("#table td.pending").count(), 0);
  assert.match(await text(page, "helps"), /instead of/);
  assert.match(await text(page, "gateway"), /\[sat\]/);
  assert.match(await text(page, "scenario"), /name = "advisor"/);
  assert.equal(await page.locator("#chart canvas").count(), 1);

  // Each preset, and a slider moved on it.
  const took = [];
  const worded = [];
  const names = await page.locator("#presets button").allInnerTexts();
  for (const name of names) {
    await page.locator("#presets button", { hasText: name }).click();
    const whole = await answered(page);
    const moved = [];
    const words = [];
    for (const key of quick ? ["ArrowRight"] : ["ArrowRight", "ArrowLeft", "ArrowRight"]) {
      await page.locator("input[type=range][aria-label='Rate to the users']").press(key);
      moved.push(await answered(page));
      words.push(Number(await page.evaluate(() => document.documentElement.dataset.worded)));
    }
    took.push(median(moved));
    worded.push(median(words));
    console.log(`${name}: ${whole.toFixed(0)} ms; a slider moved: ${moved.map((ms, i) => `${words[i]} and ${ms}`).join(", ")} ms. ${await text(page, "helps")}`);
  }
  for (const [what, times] of [["words", worded], ["all figures", took]]) {
    console.log(`a slider moved, ${what}: median over the presets ${median(times)} ms, most ${Math.max(...times)} ms`);
  }

  // By the keyboard alone: to the first slider, then a row of the table, the measure of its proof.
  const keys = await open({}, "#down_mbps=10&up_mbps=2&users=1&activity=download");
  await answered(keys);
  assert.equal(await keys.locator("#down_mbps").inputValue(), "10");
  const focus = () => keys.evaluate(() => document.activeElement.id || document.activeElement.name || document.activeElement.ariaLabel || document.activeElement.textContent);
  let tabs = 0;
  while ((await focus()) !== "Rate to the users" && tabs++ < 30) await keys.keyboard.press("Tab");
  assert.equal(await focus(), "Rate to the users", "the slider is reached by Tab");
  await keys.keyboard.press("ArrowRight");
  await answered(keys);
  assert.notEqual(await keys.locator("#down_mbps").inputValue(), "10");
  while ((await focus()) !== "alternative" && tabs++ < 60) await keys.keyboard.press("Tab");
  assert.equal(await focus(), "alternative", "the rows are reached by Tab");
  await keys.keyboard.press("End").catch(() => {});
  for (let i = 0; i < 7 && (await keys.locator("tr.chosen").getAttribute("data-name")) !== "snoop"; i++) await keys.keyboard.press("ArrowDown");
  assert.equal(await keys.locator("tr.chosen").getAttribute("data-name"), "snoop");
  await keys.waitForFunction(() => document.getElementById("gateway").textContent.includes("snoop"));
  await keys.locator("#measure").selectOption("small");
  await keys.waitForFunction(() => document.getElementById("scenario").textContent.includes("100kB") || document.getElementById("scenario").textContent.includes("100000B"));
  // A number out of range is marked, and asks nothing.
  await keys.locator("#down_mbps").fill("1e9");
  assert.equal(await keys.locator("#down_mbps").getAttribute("aria-invalid"), "true");
  const saved = keys.waitForEvent("download");
  await keys.locator("#save-scenario").click();
  assert.equal((await saved).suggestedFilename(), "advisor.toml");

  // What a screen reader and weak eyes meet, in light and dark; and how it stands on narrow screens.
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [360, 768, 1300]) {
      const look = await open({ colorScheme, viewport: { width, height: 900 }, reducedMotion: "reduce" });
      await answered(look);
      const wide = await look.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${width} px, ${colorScheme}: ${wide} px wider than the screen`);
      if (width === 768 || !quick) {
        await look.evaluate(axe);
        const { violations } = await look.evaluate(() => window.axe.run(document));
        for (const { id, impact, nodes } of violations) {
          const line = `axe, ${colorScheme}, ${width} px: ${impact} ${id}: ${nodes.map((node) => node.target).join(", ")}`;
          if (["serious", "critical"].includes(impact)) wrong.push(line);
          else console.log(line);
        }
      }
      if (shots) {
        mkdirSync(shots, { recursive: true });
        await look.screenshot({ path: join(shots, `${width}-${colorScheme}.png`), fullPage: true });
      }
      await look.context().close();
    }
  }
  assert.deepEqual(wrong, []);
  console.log("the advisor is well");
} finally {
  await browser.close();
  server.close();
}
