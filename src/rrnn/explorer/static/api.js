// Requests to the server. Of each kind only one is under way: a newer request cancels the older one.

const pending = new Map();

export class Problem extends Error {
  constructor(message, line) {
    super(message);
    this.line = line;
  }
}

/** Returns the result of a job; null if a newer request has replaced it. */
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
    throw new Problem("The server does not respond. Is `rrnn explore` still running?");
  }
}

/** Returns a function that calls `run` once there has been no call for a moment. */
export function later(run, pause = 180) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(run, pause);
  };
}
