// Providers by the name people gave them: asked once for each id.
import { rpc } from "./api.js";
import { short } from "./format.js";
import { live } from "./live.svelte.js";

const known = $state({});
const asked = new Set();

export function providerName(id) {
  const seen = live.overview?.providers.find((each) => each.id === id);
  if (seen?.name) return seen.name;
  if (known[id] === undefined && !asked.has(id) && /^[0-9a-f]{64}$/.test(id)) {
    asked.add(id);
    rpc("aicf.getProvider", { provider_id: id }).then((view) => (known[id] = view.provider.name), () => {});
  }
  return known[id] || short(id);
}
