// The live overview: all of it at first, then the sections that changed.
import { whoAmI } from "./api.js";

const SILENT_MS = 8000; // the node says something every two seconds
const RETRY_MS = 2000;

export const live = $state({ overview: null, isLive: false, seenAt: 0, fault: "" });
export const session = $state({ name: "anonymous", role: null, account: null, is_cookie: false });
let source = null;
let retry = 0;

function heard(fault = "") {
  live.seenAt = Date.now();
  live.isLive = true;
  live.fault = fault;
}

export function connect() {
  clearTimeout(retry);
  source?.close();
  const own = (source = new EventSource("/v1/live"));
  own.addEventListener("overview", (event) => {
    live.overview = { ...(live.overview ?? {}), ...JSON.parse(event.data) };
    heard();
  });
  own.addEventListener("still", (event) => heard(JSON.parse(event.data).fault ?? ""));
  own.addEventListener("open", () => heard());
  own.addEventListener("error", () => {
    if (own !== source) return;
    live.isLive = false;
    own.close(); // a browser gives up after some answers and not after others: here it never does
    retry = setTimeout(connect, RETRY_MS);
  });
}

// A node that hangs closes nothing: its silence says so.
setInterval(() => {
  if (live.isLive && Date.now() - live.seenAt > SILENT_MS) {
    live.isLive = false;
    connect();
  }
}, 1000);

export async function refreshSession() {
  Object.assign(session, await whoAmI());
}

export const isOperator = () => session.role === "operator";
export const canSubmit = () => session.role === "operator" || session.role === "requester";
