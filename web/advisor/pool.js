// Workers that run the simulator: each takes one request at a time.

/** What became of a request that nobody waits for any more. */
export class Superseded extends Error {}

export class Pool {
  #waiting = [];
  #idle = [];
  #next = 0;

  constructor(size) {
    for (let i = 0; i < size; i++) {
      const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
      const one = { worker, request: null };
      worker.addEventListener("message", ({ data }) => {
        const request = one.request;
        one.request = null;
        this.#idle.push(one);
        this.#turn();
        if (data.error === undefined) request.resolve(data.result);
        else request.reject(new Error(data.error));
      });
      // A worker that did not even load answers nothing.
      worker.addEventListener("error", (event) => one.request?.reject(new Error(event.message || "the simulator could not be loaded")));
      this.#idle.push(one);
    }
  }

  /** What the simulator's function `call` says, once those before it are done. */
  call(call, ...args) {
    return this.#ask(call, args, (request) => this.#waiting.push(request));
  }

  /** The same, before all that wait. */
  urgent(call, ...args) {
    return this.#ask(call, args, (request) => this.#waiting.unshift(request));
  }

  /** Gives up what waits; what runs goes on to its end. */
  clear() {
    for (const request of this.#waiting.splice(0)) request.reject(new Superseded());
  }

  #ask(call, args, queue) {
    return new Promise((resolve, reject) => {
      queue({ call, args, resolve, reject });
      this.#turn();
    });
  }

  #turn() {
    while (this.#idle.length && this.#waiting.length) {
      const one = this.#idle.pop();
      one.request = this.#waiting.shift();
      one.worker.postMessage({ id: this.#next++, call: one.request.call, args: one.request.args });
    }
  }
}
