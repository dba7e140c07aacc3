// How numbers, times and ids look to people.

const GROUPS = new Intl.NumberFormat("en-US");
export const count = (value) => (value == null ? "–" : GROUPS.format(value));
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
export const short = (id) => (id && id.length > 14 ? `${id.slice(0, 8)}…${id.slice(-4)}` : (id ?? ""));
export const time = (ms) => (ms ? new Date(ms).toISOString().slice(11, 23) : "");
export const dateTime = (ms) => (ms ? new Date(ms).toISOString().replace("T", " ").slice(0, 19) : "–");
export const signed = (value) => (value > 0 ? `−${count(value)}` : "0");
export const perSecond = (value) => (value >= 10 ? Math.round(value) : value >= 0.1 ? value.toFixed(1) : value > 0 ? "<0.1" : "0");

export function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (ms < 950) return `${Math.max(0, Math.round(ms))} ms`;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} m`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

// Whole seconds, for what changes while one looks.
export const age = (ms) => (ms < 1000 ? "0 s" : duration(ms));

export function minutes(ms) {
  const seconds = Math.floor(Math.abs(ms) / 1000);
  return seconds < 3600 ? `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}` : duration(Math.abs(ms));
}

export function bytes(value) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; value >= 1000 && at < units.length - 1; at++) value /= 1000;
  return `${at ? value.toFixed(1) : count(value)} ${units[at]}`;
}

// One language for all hand-offs: every state has a colour and a glyph.
export const GLYPH = { held: "●", flight: "◐", confirmed: "✔", gone: "○", stuck: "▲", absent: "▨" };
export const STATE = {
  QUEUED: "held", ASSIGNED: "flight", COMPLETED: "confirmed", EXPIRED: "stuck", FAILED: "stuck", CANCELLED: "gone",
  ACTIVE: "confirmed", REGISTERED: "held", SUSPENDED: "stuck", JAILED: "stuck", RETIRED: "gone", RENEWED: "flight", ACTIVE_LEASE: "flight",
  SEALED: "confirmed", ORPHANED: "stuck", PENDING: "flight", ARCHIVED: "confirmed", SUSPECT: "stuck",
};
