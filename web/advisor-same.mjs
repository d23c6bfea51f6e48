// Compares the advisor's figures in WebAssembly with what `bentpipe sim run` prints of the scenarios that it shows, all presets, to
// the last bit: `node web/advisor-same.mjs FOLDER PROGRAM`.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const [folder, program] = process.argv.slice(2).map((path) => resolve(path));
const advisor = await import(join(folder, "bentpipe_advisor_wasm.js"));
advisor.initSync({ module: readFileSync(join(folder, "bentpipe_advisor_wasm_bg.wasm")) });
const { presets, alternatives } = JSON.parse(advisor.choices());
const scratch = mkdtempSync(join(tmpdir(), "bentpipe-advisor-"));
try {
  let compared = 0;
  for (const { name: preset, sliders } of presets) {
    const question = JSON.stringify(sliders);
    for (const { name: measure } of JSON.parse(advisor.measures(question))) {
      for (const { name: alternative } of alternatives) {
        const figure = JSON.parse(advisor.figure(question, alternative, measure));
        const file = join(scratch, "advisor.toml");
        writeFileSync(file, advisor.scenario_text(question, alternative, measure, figure.seed));
        const run = JSON.parse(execFileSync(program, ["sim", "run", file, "--json", "-"], { maxBuffer: 1 << 28 }));
        const flow = run.flows.find(({ name }) => name === figure.flow);
        // Numbers are written with as many digits as tell them from their neighbours.
        assert.equal(figure.seconds, flow.completion_s, `${preset}, ${alternative}, ${measure}, seed ${figure.seed}`);
        const bytes = run.flows.reduce((sum, { received_bytes: bytes }) => sum + bytes, 0);
        assert.equal(figure.goodput_mbps, (bytes * 8) / run.measures.completion.value / 1e6);
        compared += 1;
      }
    }
  }
  console.log(`${compared} figures in WebAssembly and by ${program}: the same`);
} finally {
  rmSync(scratch, { recursive: true });
}
