// The testbed in a browser: node web/web-check.mjs BENTPIPE [--quick] [--shots FOLDER]. Starts `bentpipe web` on a port of its own and does in
// Chromium what a researcher does: picks, edits, runs, watches, compares, downloads, follows a study; then by the keyboard alone; axe-core and
// overflow in light and dark at 360, 768 and 1300 px, and on paper. Run as root it runs the lab, too, and leads a gateway between two hosts. Any
// word on the console, and any request that leaves this server, is a failure.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import * as gatewayStage from "./gateway-stage.mjs";

const [program, ...rest] = process.argv.slice(2);
const option = (name) => (rest.includes(name) ? rest[rest.indexOf(name) + 1] : null);
const quick = rest.includes("--quick");
const shots = option("--shots");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const root = process.getuid() === 0;

const results = mkdtempSync(join(tmpdir(), "bentpipe-web-"));
const control = join(results, ".gateway.sock");
const server = spawn(program, ["web", "--listen", "127.0.0.1:0", "--results", results, "--control", control], { stdio: ["ignore", "pipe", "inherit"] });
const address = await new Promise((resolve, reject) => {
  server.stdout.once("data", (data) => resolve(`${data}`.trim().split("\n")[0]));
  server.once("exit", (code) => reject(new Error(`bentpipe web ended with ${code}`)));
});
const { origin } = new URL(address);

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const wrong = [];
let stage;
async function context(settings = {}) {
  const made = await browser.newContext({ viewport: { width: 1300, height: 900 }, ...settings });
  made.on("page", (page) => {
    page.on("console", (message) => wrong.push(`console: ${message.text()} (${message.location().url})`));
    page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
    page.on("request", (request) => {
      const { protocol } = new URL(request.url());
      if (!request.url().startsWith(`${origin}/`) && !["data:", "blob:"].includes(protocol)) wrong.push(`request: ${request.url()}`);
    });
  });
  return made;
}
const told = (page, key, value) => page.waitForFunction(([key, value]) => {
  const is = document.documentElement.dataset[key];
  return value === null ? is !== undefined : is === value;
}, [key, value], { timeout: 120_000, polling: 30 });
const go = async (page, hash) => {
  await page.evaluate((hash) => (location.hash = hash), hash);
  await told(page, "shown", `#${hash}`);
};
/** Presses Tab until what is called `wanted` has the focus; `is` may ask for more. */
const tab = async (page, wanted, is = () => true) => {
  for (let i = 0; i < 250; i++) {
    const on = await page.evaluate(() => {
      const on = document.activeElement;
      return { tagName: on.tagName, words: on.id || on.name || on.ariaLabel || on.textContent.trim() };
    });
    if (wanted.test(on.words) && is(on)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`${wanted} is not reached by Tab`);
};
const saved = async (page, click) => {
  const [download] = await Promise.all([page.waitForEvent("download"), click()]);
  return { name: download.suggestedFilename(), text: readFileSync(await download.path(), "utf8") };
};

try {
  // Without the token there is a page that asks for it, which takes the whole address.
  const fresh = await context();
  const page = await fresh.newPage();
  await page.goto(`${origin}/`).catch(() => {});
  assert.match(await page.locator("h1").innerText(), /token/);
  // That answer is a 401, which browsers put on the console.
  wrong.splice(0, wrong.length, ...wrong.filter((line) => !line.includes("401")));
  await page.locator("input[name=token]").fill(address);
  await page.locator("button[type=submit]").click();
  await told(page, "checked", null);
  assert.equal(new URL(page.url()).search, "", "the token is not left in the address");

  // Of two scenarios that are chosen the last counts, also where the first comes later.
  const slow = "**/api/scenarios/scenarios/geo.toml";
  await page.route(slow, async (route) => {
    await new Promise((resolve) => setTimeout(resolve, 500));
    await route.continue();
  });
  const late = page.waitForResponse(slow);
  await page.locator("#scenario").selectOption("scenarios/geo.toml");
  await page.locator("#scenario").selectOption("scenarios/split.toml");
  await (await late).finished();
  await page.waitForTimeout(100);
  assert.match(await page.locator("#text").inputValue(), /bentpipe_rate/);
  await page.unroute(slow);

  // A mistake is told at its line, and is found by a click.
  await page.locator("#scenario").selectOption("scenarios/split.toml");
  const text = page.locator("#text");
  await page.waitForFunction(() => document.getElementById("text").value.includes("bentpipe_rate"));
  const right = await text.inputValue();
  await text.fill(right.replace("delay", "dealy"));
  await page.locator("#problems button").waitFor();
  assert.match(await page.locator("#problems").innerText(), /did you mean `delay`/);
  assert.ok(await page.locator("#start").isDisabled());
  await page.locator("#problems button").first().click();
  assert.equal(await page.evaluate(() => document.activeElement.id), "text");
  // So is a text that is far too large: the browser comes to read the answer. It puts the 413 on the console.
  await page.evaluate(() => {
    const area = document.getElementById("text");
    area.value = "#".repeat(10_000_000);
    area.dispatchEvent(new Event("input"));
  });
  await page.waitForFunction(() => /this is too much: at most/.test(document.getElementById("status").textContent));
  wrong.splice(0, wrong.length, ...wrong.filter((line) => !line.includes("413")));
  await text.fill(right);
  await page.locator("#problems .right").waitFor();

  // The form sets a value over the text; two controls and no PEP beside the split make four runs.
  const rate = page.locator("input[data-key='links.space.rate']");
  await rate.fill("5Mbit/s");
  await rate.press("Tab");
  await page.locator("#problems .right").waitFor();
  // A queue and an amount are set in the form, too; what is wrong there is told at its field.
  const checkedAfter = async (change) => {
    const before = await page.evaluate(() => document.documentElement.dataset.checked);
    await change();
    await page.waitForFunction((before) => document.documentElement.dataset.checked !== before, before);
    return page.locator("#problems .right").count();
  };
  const kind = page.locator("select[data-key='links.space.queue']");
  const size = page.locator("input[data-key='links.space.queue'][data-part='size']");
  const resize = (value) => checkedAfter(async () => {
    await size.fill(value);
    await size.press("Tab");
  });
  assert.equal(await checkedAfter(() => kind.selectOption("red-linux")), 1);
  assert.match(await page.locator("input[data-key='links.space.queue'][data-part='keys']").inputValue(), /min_threshold = /);
  assert.equal(await size.inputValue(), "500 packets");
  assert.equal(await checkedAfter(() => kind.selectOption("drop-tail")), 1);
  assert.equal(await resize("many"), 0);
  assert.equal(await size.getAttribute("aria-invalid"), "true");
  assert.equal(await resize("300 packets"), 1);
  const amount = page.getByLabel("amount of download", { exact: true });
  const by = page.getByLabel("download: amount by");
  const amounts = (value) => checkedAfter(async () => {
    await amount.fill(value);
    await amount.press("Tab");
  });
  // What it is measured in is chosen; then it is a time again. Several values are a run each, and each of them is checked.
  assert.equal(await checkedAfter(() => by.selectOption("bytes")), 1);
  assert.equal(await amounts("3MB, 4MX"), 0);
  assert.match(await page.locator("#problems").innerText(), /flows\.download\.bytes/);
  assert.equal(await amount.getAttribute("aria-invalid"), "true");
  assert.equal(await amounts("3MB, 4MB"), 1);
  assert.match(await page.locator("#start").innerText(), /2/);
  assert.equal(await amount.inputValue(), "3MB, 4MB");
  assert.equal(await checkedAfter(() => by.selectOption("duration")), 1);
  assert.equal(await amounts("12s"), 1);
  // A key of the way back, which the text has not; emptied, it is taken out again.
  const back = page.locator("input[data-key='links.space.reverse.rate']");
  for (const [value, shown] of [["64kbit/s", "64kbit/s"], ["", "5Mbit/s"]]) {
    assert.equal(await checkedAfter(async () => {
      await back.fill(value);
      await back.press("Tab");
    }), 1);
    await page.waitForFunction((shown) => document.querySelector("input[data-key='links.space.reverse.rate']").value === shown, shown);
  }
  await page.locator("input[name='control-reno']").check();
  await page.locator("input[name='pep-none']").check();
  assert.match(await page.locator("#start").innerText(), /4/);
  await page.locator("#start").click();
  await page.waitForFunction(() => document.documentElement.dataset.compared, null, { timeout: 120_000 });
  assert.equal(await page.locator("main thead th").count(), 5);
  assert.match(await page.locator("main table").first().innerText(), /goodput/);
  assert.match(await page.locator("main table").first().innerText(), /[+−]\d|×/);
  assert.ok((await page.locator("canvas").count()) >= 4);
  const csv = await saved(page, () => page.getByRole("button", { name: "Save as CSV" }).click());
  assert.match(csv.text, /^"measure","unit","split/);
  const json = await saved(page, () => page.getByRole("button", { name: "Save as JSON" }).click());
  assert.equal(JSON.parse(json.text).length, 4);
  assert.equal(JSON.parse(json.text)[0].result.engine, "simulator");
  assert.match(await (await fresh.request.get(`${origin}/api/runs/${JSON.parse(json.text)[0].id}/files/asked.toml`)).text(), /packets = 300[^]*duration = "12s"/);
  const svg = await saved(page, () => page.getByRole("button", { name: "Throughput: save as SVG" }).click());
  assert.match(svg.text, /<svg[^>]*>.*polyline/s);
  // The link is permanent: another page of the same browser opens it.
  const link = page.url();
  const other = await fresh.newPage();
  await other.goto(link);
  await told(other, "compared", null);
  await other.close();

  // What is ticked stays where the text is edited; a gateway that it gets can be ticked.
  await go(page, "run");
  await page.locator("#scenario").selectOption("scenarios/geo.toml");
  await page.waitForFunction(() => document.getElementById("text").value.includes('name = "geo"'));
  await page.locator("#problems .right").waitFor();
  assert.match(await page.locator("fieldset", { hasText: "PEPs" }).innerText(), /This scenario has none/);
  await page.locator("input[name='control-reno']").check();
  assert.equal(await checkedAfter(() => page.evaluate(() => {
    const area = document.getElementById("text");
    area.value = `${area.value.replace("[routers.hub]", "")}\n[gateways.hub]\nsat = "space"\nlan = "ground"\n[gateways.hub.split.sat]\ncongestion_control = "bentpipe_hybla"\n`;
    area.dispatchEvent(new Event("input"));
  })), 1);
  await page.locator("input[name='pep-none']").check();
  assert.match(await page.locator("#start").innerText(), /4/);

  // A run is watched while it goes on, and stopped.
  await go(page, "run");
  await page.locator("#scenario").selectOption("scenarios/geo.toml");
  await page.waitForFunction(() => document.getElementById("text").value.includes('name = "geo"'));
  const geo = await text.inputValue();
  await text.fill(geo.replace('"60s"', '"86400s"').replace('"30s"', '"86000s"').replace("10Mbit/s", "1Gbit/s").replace('packet_error_rate = "1%"', ""));
  await page.locator("#problems .right").waitFor();
  await page.locator("#start").click();
  await page.waitForFunction(() => Number(document.documentElement.dataset.looks) > 20);
  await page.waitForFunction(() => /at most .* left/.test(document.querySelector(".lead").textContent));
  assert.equal(await page.locator("canvas").count(), 4);
  await page.getByRole("button", { name: "Stop" }).click();
  await told(page, "state", "stopped");

  // A run with captures: its figures, its files, the time-sequence page.
  await go(page, "run");
  await page.locator("#scenario").selectOption("scenarios/geo.toml");
  await page.waitForFunction(() => document.getElementById("text").value.includes('name = "geo"'));
  await text.fill(geo.replace('duration = "30s"', 'bytes = "300kB"'));
  await page.locator("#problems .right").waitFor();
  await page.getByLabel("capture each end").check();
  await page.locator("#start").click();
  await told(page, "over", null);
  await page.locator("h2", { hasText: "Captures" }).waitFor();
  const result = await saved(page, () => page.getByRole("link", { name: /^result.json/ }).click());
  assert.equal(JSON.parse(result.text).flows[0].outcome, "finished");
  const capture = await saved(page, () => page.getByRole("link", { name: /^pcapng/ }).first().click());
  assert.match(capture.name, /pcapng$/);
  assert.match(await page.locator("pre").innerText(), /bentpipe sim run asked.toml --pcap captures/);
  const [trace] = await Promise.all([fresh.waitForEvent("page"), page.getByRole("link", { name: /time and sequence/ }).first().click()]);
  await trace.waitForSelector("canvas");
  assert.match(await trace.title(), /trace/);
  await trace.close();

  // A link of the advisor, each row a run.
  await go(page, "run");
  await page.locator("#scenario").selectOption("presets/GEO/medium");
  await page.waitForFunction(() => document.getElementById("text").value.includes('name = "advisor"'));
  for (const row of [1, 4]) await page.locator(`input[name='row-${row}']`).check();
  await page.locator("#start").click();
  await page.waitForFunction(() => document.documentElement.dataset.compared?.split(",").length === 3, null, { timeout: 120_000 });

  // On real TCP, where that can be.
  if (root && !quick) {
    await go(page, "run");
    await page.locator("#scenario").selectOption("scenarios/geo.toml");
    await page.waitForFunction(() => document.getElementById("text").value.includes('name = "geo"'));
    await text.fill(geo.replace('duration = "30s"', 'duration = "5s"'));
    await page.locator("#problems .right").waitFor();
    await page.getByLabel(/^lab/).check();
    await page.locator("#start").click();
    await page.waitForFunction(() => Number(document.documentElement.dataset.looks) > 10, null, { timeout: 60_000 });
    await told(page, "state", "done");
  }

  // History has them all; what the server was told is there after it was started anew, too (crates/cli/tests/web.rs).
  await go(page, "history");
  assert.ok((await page.locator("tbody tr").count()) >= 9);
  await page.getByLabel("Find").fill("reno, no pep");
  assert.equal(await page.locator("tbody tr").count(), 1);
  for (const name of ["studies", "gateway", "watch", "compare"]) await go(page, name);

  // Behind a split the gateway's own TCP is watched beside the source's.
  const split = JSON.parse(json.text)[0].id;
  await go(page, `watch/${split}`);
  await told(page, "over", null);
  assert.match(await page.locator("section[aria-label='Window'] .note").last().innerText(), /download, at hub \d/);

  // A study is started and followed while it fills; stopped, it goes on from there.
  await go(page, "studies");
  const study = "sing-soh-2005/scenario.toml";
  await page.getByRole("button", { name: `Start: ${study}`, exact: true }).click();
  const followed = `studies/all/${encodeURIComponent(study)}`;
  await page.waitForFunction((path) => document.querySelector(`a[href="#${path}"]`), followed, { timeout: 120_000 });
  await go(page, followed);
  const points = () => page.evaluate(() => Number(document.documentElement.dataset.points));
  await page.waitForFunction(() => Number(document.documentElement.dataset.points) > 0, null, { timeout: 120_000 });
  const some = await points();
  assert.match(await page.locator("main table.cells").last().innerText(), /\d\.?\d* ?±?/);
  await page.waitForFunction((some) => Number(document.documentElement.dataset.points) > some, some, { timeout: 120_000 });
  await go(page, "studies");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: `Go on: ${study}`, exact: true }).waitFor({ timeout: 60_000 });

  // A gateway: first there is none; then one between two hosts, with a download that stands.
  await go(page, "gateway");
  assert.match(await page.locator("main").innerText(), /No gateway is here/);
  if (root) {
    stage = await gatewayStage.start(program, results, control);
    const said = (words) => page.waitForFunction((words) => document.querySelector("main").innerText.includes(words), words, { timeout: 30_000 });
    for (const words of ["Well: new connections are split.", "established", "10.77.2.2:5001", "cubic", "bytes to lan"]) await said(words);
    const before = await page.evaluate(() => document.querySelector("main").innerText.match(/bytes to lan\s+([\d.]+ [kMG]?B)/)[1]);
    await page.waitForFunction((before) => document.querySelector("main").innerText.match(/bytes to lan\s+([\d.]+ [kMG]?B)/)?.[1] !== before, before);
    if (shots) await page.screenshot({ path: join(shots, "gateway-serving.png"), fullPage: true });
    await page.getByRole("button", { name: /^Bypass/ }).click();
    await said("Bypassed");
    await stage.download();
    await tab(page, /^Split again$/);
    await page.keyboard.press("Enter");
    await said("Well:");
    stage.configure("[limits]\nflows = 777\n");
    await page.getByRole("button", { name: /^Reload/ }).click();
    await said("777");
    stage.configure("[limits]\nflows = \"many\"\n");
    await page.getByRole("button", { name: /^Reload/ }).click();
    await page.waitForFunction(() => /gateway.toml:\d+/.test(document.getElementById("status").textContent));
    // A refusal is a 502, which browsers put on the console.
    wrong.splice(0, wrong.length, ...wrong.filter((line) => !line.includes("502")));
    await stage.end();
    stage = undefined;
    await page.waitForFunction(() => document.querySelector(".actions").hidden, null, { timeout: 30_000 });
  }

  // The advisor, where it was built.
  if (await page.getByRole("link", { name: "Advisor" }).count()) {
    await page.goto(`${origin}/advisor/`);
    await page.waitForFunction(() => document.querySelector("#table td:not(.pending)"), null, { timeout: 60_000 });
  } else {
    console.log("the advisor is not built (make advisor): not tried at /advisor/");
  }

  // By the keyboard alone: sign in, choose, change a value, run, go to the file.
  const keys = await (await context({ reducedMotion: "reduce" })).newPage();
  await keys.goto(`${origin}/`).catch(() => {});
  wrong.splice(0, wrong.length, ...wrong.filter((line) => !line.includes("401")));
  await tab(keys, /^token$/);
  await keys.keyboard.insertText(address);
  await keys.keyboard.press("Enter");
  await told(keys, "checked", null);
  await tab(keys, /^scenario$/);
  await keys.keyboard.type("geo.toml");
  await tab(keys, /^Seed$/);
  await keys.keyboard.press("Control+A");
  await keys.keyboard.type("7");
  await tab(keys, /^capture$/);
  await keys.keyboard.press("Space");
  await tab(keys, /^start$/);
  await keys.keyboard.press("Enter");
  await told(keys, "over", null);
  await tab(keys, /^result.json/);
  const [own] = await Promise.all([keys.waitForEvent("download"), keys.keyboard.press("Enter")]);
  assert.equal(JSON.parse(readFileSync(await own.path(), "utf8")).seed, 7);
  // The time-sequence page of a capture.
  await tab(keys, /time and sequence$/, (on) => on.tagName === "A");
  const [shown] = await Promise.all([keys.context().waitForEvent("page"), keys.keyboard.press("Enter")]);
  await shown.waitForSelector("canvas");
  await shown.close();
  // Two runs of the past are compared, and their table is saved.
  await tab(keys, /^History$/);
  await keys.keyboard.press("Enter");
  await told(keys, "shown", "#history");
  for (const label of [/^compare geo$/, /^compare split, reno$/]) {
    await tab(keys, label);
    await keys.keyboard.press("Space");
  }
  await tab(keys, /^Compare$/, (on) => on.tagName === "BUTTON");
  await keys.keyboard.press("Enter");
  await told(keys, "compared", null);
  await tab(keys, /^Save as CSV$/);
  const [table] = await Promise.all([keys.waitForEvent("download"), keys.keyboard.press("Enter")]);
  assert.match(readFileSync(await table.path(), "utf8"), /^"measure","unit","geo","split, reno"/);
  // A run without an end is stopped.
  await tab(keys, /^Run$/);
  await keys.keyboard.press("Enter");
  await told(keys, "checked", null);
  for (const [label, value] of [[/^Time limit$/, "86400s"], [/^amount of download$/, "86000s"], [/^space, hub to terminal: loss$/, "0"]]) {
    await tab(keys, label);
    await keys.keyboard.press("Control+A");
    await keys.keyboard.type(value);
  }
  await tab(keys, /^start$/);
  await keys.keyboard.press("Enter");
  await keys.waitForFunction(() => Number(document.documentElement.dataset.looks) > 0);
  await tab(keys, /^Stop$/);
  await keys.keyboard.press("Enter");
  await told(keys, "state", "stopped");
  // A study goes on, is stopped, and tells what it has found so far.
  await tab(keys, /^Studies$/);
  await keys.keyboard.press("Enter");
  await told(keys, "shown", "#studies");
  await tab(keys, /^Go on: sing-soh-2005.scenario.toml$/);
  await keys.keyboard.press("Enter");
  await keys.getByRole("button", { name: "Stop" }).waitFor();
  await tab(keys, /^Stop$/);
  await keys.keyboard.press("Enter");
  await keys.getByRole("button", { name: "Stop" }).waitFor({ state: "detached", timeout: 60_000 });
  await tab(keys, /what sing-soh-2005.scenario.toml has found so far$/);
  await keys.keyboard.press("Enter");
  await told(keys, "points", null);
  await keys.close();

  // What a screen reader and weak eyes meet, in light and dark; and how it stands on narrow screens.
  const compared = new URL(link).hash.slice(1);
  const watched = `watch/${compared.split("/")[1].split(",")[0]}`;
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [360, 768, 1300]) {
      const looking = await context({ colorScheme, viewport: { width, height: 900 }, reducedMotion: "reduce" });
      const look = await looking.newPage();
      await look.goto(address);
      await told(look, "checked", null);
      for (const name of ["run", watched, compared, "history", "studies", followed, "gateway"]) {
        await go(look, name);
        if (name === compared) await told(look, "compared", null);
        if (name === watched) await told(look, "over", null);
        if (name === followed) await told(look, "points", null);
        await look.waitForTimeout(150);
        const file = name === followed ? "study" : name.split("/")[0];
        const place = `${file}, ${width} px, ${colorScheme}`;
        const wide = await look.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${place}: ${wide} px wider than the screen`);
        if (width === 768 || !quick) {
          await look.evaluate(axe);
          const { violations } = await look.evaluate(() => window.axe.run(document));
          for (const { id, impact, nodes } of violations) {
            const line = `axe, ${place}: ${impact} ${id}: ${nodes.slice(0, 4).map((node) => node.target).join(", ")}`;
            if (["serious", "critical"].includes(impact)) wrong.push(line);
            else console.log(line);
          }
        }
        // Paper is light, whatever the screen is.
        if (name === compared && colorScheme === "dark" && width === 768) {
          await look.evaluate(() => addEventListener("beforeprint", () => (document.documentElement.dataset.printed = document.documentElement.dataset.theme)));
          const paper = await look.pdf();
          if (shots) writeFileSync(join(shots, "compare.pdf"), paper);
          assert.deepEqual(await look.evaluate(() => [document.documentElement.dataset.printed, document.documentElement.dataset.theme]), ["light", "dark"]);
        }
        if (shots) {
          mkdirSync(shots, { recursive: true });
          await look.screenshot({ path: join(shots, `${file}-${width}-${colorScheme}.png`), fullPage: true });
        }
      }
      await looking.close();
    }
  }
  assert.deepEqual(wrong, []);
  console.log("the testbed is well");
} finally {
  await browser.close();
  await stage?.end();
  server.kill();
  await new Promise((resolve) => server.once("exit", resolve));
  rmSync(results, { recursive: true });
}
