// What an address answers in JSON, or an error for people.

/** What went wrong, and what fixes it; both for people and untrusted. */
export class ApiError extends Error {
  constructor(message, fix = "", status = 0) {
    super(message);
    this.fix = fix;
    this.status = status;
  }
}

/** The JSON at an address. gone: {error, fix}, where it does not answer at all. Raises ApiError, AbortError. */
export async function fetched(address, signal, gone) {
  let answer;
  try {
    answer = await fetch(address, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(gone.error, gone.fix);
  }
  let found = null;
  try {
    found = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!answer.ok) throw new ApiError(found?.error ?? `The server answered ${answer.status}.`, found?.fix ?? "", answer.status);
  if (found === null) throw new ApiError("The answer is no JSON.", "Is this address that of `distrl view`?");
  return found;
}
