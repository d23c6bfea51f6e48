// What watching costs: node web/web-bench.mjs BENTPIPE [--rounds N]. As root. Lab runs of scenarios/geo.toml, in turn unwatched and watched by
// 20 connections that read its events: the processor time of `bentpipe web` while each goes on, and how late the emulators were (99th
// percentile). The scenario loses nothing here: with its errors it has so few packets that one moment in which the machine had no processor decides
// the percentile. Fails where watching costs a tenth of a processor or more, and where each watched run was later than every other: which
// of five rounds without any difference one in 252 does. The readers are in this process, on the same machine.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { get, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [program, ...rest] = process.argv.slice(2);
const rounds = Number(rest[rest.indexOf("--rounds") + 1]) || 5;
const WATCHERS = 20;
/** Linux counts the time of processes in these (USER_HZ). */
const TICKS_A_SECOND = 100;

assert.equal(process.getuid(), 0, "the lab needs root: sudo make bench-web");
const results = mkdtempSync(join(tmpdir(), "bentpipe-web-bench-"));
const server = spawn(program, ["web", "--listen", "127.0.0.1:0", "--results", results], { stdio: ["ignore", "pipe", "inherit"] });
const address = new URL(await new Promise((resolve, reject) => {
  server.stdout.once("data", (data) => resolve(`${data}`.trim().split("\n")[0]));
  server.once("exit", (code) => reject(new Error(`bentpipe web ended with ${code}`)));
}));
const headers = { authorization: `Bearer ${address.searchParams.get("token")}` };

const ask = (path, body) => new Promise((resolve, reject) => {
  const asking = request(new URL(path, address), { method: body ? "POST" : "GET", headers }, (answer) => {
    let text = "";
    answer.on("data", (data) => (text += data)).on("end", () => {
      if (answer.statusCode === 200) resolve(JSON.parse(text));
      else reject(new Error(`${path}: ${answer.statusCode} ${text}`));
    });
  });
  asking.on("error", reject).end(body && JSON.stringify(body));
});
/** Seconds of a processor that the server has had, its runs not counted. */
const used = () => {
  const fields = readFileSync(`/proc/${server.pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND;
};
/** What all processors did so far, of which `steal` is what the host of a virtual machine kept. */
const processors = () => {
  const times = readFileSync("/proc/stat", "utf8").split("\n")[0].split(/ +/).slice(1, 9).map(Number);
  return { all: times.reduce((sum, it) => sum + it), idle: times[3], steal: times[7] };
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

/** A run with so many watchers: the server's share of a processor, lateness, and the events that each watcher had. */
async function run(watchers) {
  const text = readFileSync(new URL("../scenarios/geo.toml", import.meta.url), "utf8");
  const settings = [["links.space.packet_error_rate", "0"], ["flows.download.duration", JSON.stringify("20s")]];
  const [{ id }] = await ask("/api/runs", { lab: true, variants: [{ label: `${watchers} watchers`, text, settings }] });
  while ((await ask(`/api/runs/${id}`)).state === "queued") await pause(50);
  const events = await Promise.all(Array.from({ length: watchers }, () => new Promise((resolve, reject) => {
    const seen = { count: 0, over: null };
    get(new URL(`/api/runs/${id}/events`, address), { headers, agent: false }, (answer) => {
      seen.over = new Promise((ended) => answer.on("end", ended));
      answer.on("data", (data) => (seen.count += `${data}`.split("\n\n").length - 1));
      resolve(seen);
    }).on("error", reject);
  })));
  await pause(2000);
  const [before, began, earlier] = [used(), performance.now(), processors()];
  await pause(15_000);
  const share = (used() - before) / ((performance.now() - began) / 1000);
  const later = processors();
  const part = (of) => `${((100 * (later[of] - earlier[of])) / (later.all - earlier.all)).toFixed(1)}%`;
  await Promise.all(events.map(({ over }) => over));
  let note = await ask(`/api/runs/${id}`);
  while (note.state === "running") {
    await pause(100);
    note = await ask(`/api/runs/${id}`);
  }
  const lateness = note.result?.lateness_ms;
  assert.ok(lateness > 0, `a run without a result: ${note.why}`);
  console.log(`${String(watchers).padStart(2)} watchers: ${(100 * share).toFixed(2)}% of a processor, lateness p99 ${lateness.toFixed(3)} ms, processors ${part("idle")} idle, ${part("steal")} stolen${watchers ? `, ${Math.min(...events.map(({ count }) => count))} events each at least` : ""}`);
  return { share, lateness };
}

try {
  const all = { alone: [], watched: [] };
  for (let round = 0; round < rounds; round++) {
    all.alone.push(await run(0));
    all.watched.push(await run(WATCHERS));
  }
  const shares = (of) => median(of.map(({ share }) => share));
  const late = (of) => of.map(({ lateness }) => lateness).toSorted((a, b) => a - b);
  const [alone, watched] = [late(all.alone), late(all.watched)];
  const range = (of) => `${median(of).toFixed(3)} ms (${of[0].toFixed(3)} to ${of.at(-1).toFixed(3)})`;
  console.log(`medians of ${rounds}: ${(100 * shares(all.watched)).toFixed(2)}% of a processor watched by ${WATCHERS}, ${(100 * shares(all.alone)).toFixed(2)}% by none; lateness p99 ${range(watched)} watched, ${range(alone)} not`);
  assert.ok(shares(all.watched) < 0.1, `watching by ${WATCHERS} costs ${(100 * shares(all.watched)).toFixed(1)}% of a processor: expected less than 10%`);
  assert.ok(watched[0] <= alone.at(-1), "each watched run was later than every other: watching makes emulators late");
} finally {
  server.kill();
  await new Promise((resolve) => server.once("exit", resolve));
  rmSync(results, { recursive: true });
}
