// Asks the server, and says what it said.

/** What the server answers to `path`; a refusal is an error with its words. */
export async function ask(path, body) {
  const order = body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  let response;
  try {
    response = await fetch(path, order);
  } catch {
    throw new Error("the server does not answer: is `bentpipe web` still running?");
  }
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw Object.assign(new Error(answer.error), { problems: answer.problems, status: response.status });
  return answer;
}

/** Says `words` to whoever sees or hears the page. */
let forgetting;
export function say(words) {
  const status = document.getElementById("status");
  status.textContent = words;
  clearTimeout(forgetting);
  forgetting = setTimeout(() => (status.textContent = ""), 8000);
}

/** Does `work`, and says what went wrong. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    say(error.message);
    return undefined;
  }
}

/** A handler of events that cannot be undone twice at once: its button waits meanwhile. */
export const once = (work) => async (event) => {
  const button = event.currentTarget;
  button.disabled = true;
  await attempt(() => work(event));
  button.disabled = false;
};

export const clock = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 16).replace("T", " ");

export function duration(seconds) {
  if (seconds >= 7200) return `${(seconds / 3600).toFixed(1)} h`;
  if (seconds >= 120) return `${(seconds / 60).toFixed(1)} min`;
  return `${seconds < 10 ? seconds.toFixed(1) : seconds.toFixed(0)} s`;
}

/** Offers `text` as the file `name`. */
export function save(name, kind, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
