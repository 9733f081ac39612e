// One request of a kind at a time: a newer one makes the older one's answer worthless.

const pending = new Map();

export class Problem extends Error {
  constructor(message, line) {
    super(message);
    this.line = line;
  }
}

/** The answer of a job; null when a newer request has taken its place. */
export async function ask(job, body) {
  pending.get(job)?.abort();
  const mine = new AbortController();
  pending.set(job, mine);
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  try {
    const answer = await fetch(`/api/${job}`, { ...options, signal: mine.signal });
    const found = await answer.json();
    if (pending.get(job) !== mine) return null;
    if (!answer.ok) throw new Problem(found.error, found.line);
    return found;
  } catch (error) {
    if (error.name === "AbortError" || pending.get(job) !== mine) return null;
    if (error instanceof Problem) throw error;
    throw new Problem("The page’s server does not answer. Is `rrnn explore` still running?");
  }
}

/** Calls `run` once nothing has happened for a moment. */
export function later(run, pause = 180) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(run, pause);
  };
}
