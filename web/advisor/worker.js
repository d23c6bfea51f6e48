// Runs the simulator beside the page: one request, one answer, in order.
import init, * as advisor from "./bentpipe_advisor_wasm.js";

const loaded = init({ module_or_path: new URL("./bentpipe_advisor_wasm_bg.wasm", import.meta.url) });

/** `{ id, call, args }` asks for what the function `call` says; the answer has the same `id` and a `result` or an `error`. */
addEventListener("message", async ({ data: { id, call, args } }) => {
  try {
    await loaded;
    postMessage({ id, result: advisor[call](...args) });
  } catch (error) {
    // What the crate refuses comes as its own words; anything else is ours.
    postMessage({ id, error: typeof error === "string" ? error : `the simulator stopped: ${error.message ?? error}` });
  }
});
