// The live overview: all of it at first, then the sections that changed. The browser reconnects by itself.
import { whoAmI } from "./api.js";

const SILENT_MS = 5000;

export const live = $state({ overview: null, isLive: false, seenAt: 0 });
export const session = $state({ name: "anonymous", role: null, account: null });
let source = null;

export function connect() {
  source?.close();
  source = new EventSource("/v1/live");
  source.addEventListener("overview", (event) => {
    live.overview = { ...(live.overview ?? {}), ...JSON.parse(event.data) };
    live.seenAt = Date.now();
    live.isLive = true;
  });
  source.addEventListener("open", () => {
    live.isLive = true;
    live.seenAt = Date.now();
  });
  source.addEventListener("error", () => {
    live.isLive = false;
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  });
}

export async function refreshSession() {
  Object.assign(session, await whoAmI());
}

export const isOperator = () => session.role === "operator";
export const isSilent = () => !live.isLive && Date.now() - live.seenAt > SILENT_MS;
