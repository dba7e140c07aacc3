// What a person types into the search: a height, an id or its beginning, a digest or hash, a provider's name.
import { rpc } from "./api.js";
import { live } from "./live.svelte.js";

const LOOKED_AT = 500;
const tried = (method, params) => rpc(method, params).catch(() => null);

export async function find(text) {
  if (/^\d{1,15}$/.test(text) && Number(text) <= (live.overview?.chain.head ?? 0)) return ["block", text];
  const word = text.toLowerCase();
  const isHex = /^[0-9a-f]{4,64}$/.test(word);
  const provider = await tried("aicf.findProvider", { text });
  if (provider) return ["provider", provider.provider_id];
  const job = isHex ? await tried("cap.findJob", { text: word }) : null;
  if (job) return ["job", job.task_id];
  return isHex && word.length >= 8 ? byDigest(word) : null;
}

// Digests have no index: the newest results, blocks and blobs are looked through.
async function byDigest(word) {
  const head = live.overview?.chain.head ?? 0;
  const results = await tried("cap.listResults", { from_height: Math.max(1, head - LOOKED_AT), limit: LOOKED_AT });
  const result = results?.rows.find((row) => [row.result_digest, row.proof_nullifier].some((each) => each?.startsWith(word)));
  if (result) return ["job", result.task_id];
  const blocks = await tried("chain.listBlocks", { newest_first: true, limit: LOOKED_AT });
  const block = blocks?.rows.find((row) => [row.hash, row.tx_root, row.result_root].some((each) => each.startsWith(word)));
  if (block) return ["block", String(block.height)];
  const blobs = await tried("blob.listBlobs", { limit: LOOKED_AT });
  const blob = blobs?.rows.find((row) => [row.versioned_hash, row.commitment, row.keccak].some((each) => each?.startsWith(word)));
  return blob ? ["block", String(blob.height)] : null;
}
