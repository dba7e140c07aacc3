// The chain of custody of a job, from the answers of cap.getJob and blob.status: who passed what to whom, what proves it, which rule.
import { bytes, count, duration, plural, short } from "./format.js";

export const isLost = (lease) => lease.status === "CANCELLED" || lease.status === "EXPIRED";

export function custody(view, blobs, nameOf) {
  const { job, result } = view;
  const steps = [];
  const add = (at, state, title, way, text, ...proofs) => steps.push({ at, state, title, way, text, proofs: proofs.filter(Boolean) });
  const fee = job.max_fee == null ? "" : `, ${count(job.max_fee)} reserved`;
  add(job.enqueue_ms ?? 0, "confirmed", "Job held by the queue", "requester → queue", `Admitted at height ${count(job.height)}${fee}`,
    job.event ? `receipt, event ${count(job.event)}` : "", "JOB-006");
  for (const lease of view.attempts ?? []) attempt(lease, nameOf(lease.provider_id), add);
  for (const replica of view.replicas ?? []) {
    if (!replica.provider_id) continue;
    add(null, replica.digest ? "confirmed" : "flight", `Replica ${replica.index} with ${nameOf(replica.provider_id)}`, "queue → provider",
      `${replica.state}${replica.reason ? `: ${replica.reason}` : ""}`, replica.digest ? `digest ${short(replica.digest)}` : "", "LEA-009");
  }
  ending(job, result, add);
  if (result && result.status !== "UNLINKED" && blobs?.blobs?.length) archived(job, blobs, add);
  return steps.sort((a, b) => (a.at ?? Infinity) - (b.at ?? Infinity));
}

function attempt(lease, name, add) {
  const lost = isLost(lease);
  const acked = lease.acked_ms ? `Acknowledged after ${duration(lease.acked_ms - lease.t_start_ms)}` : "";
  const renewed = lease.renewals ? `, renewed ${plural(lease.renewals, "time")}` : "";
  const back = lost ? `${lease.detail || lease.reason || lease.status} after ${duration(lease.ended_ms - lease.t_start_ms)}. The job went back to the queue.` : "";
  add(lease.t_start_ms, lost ? "stuck" : lease.status === "COMPLETED" ? "confirmed" : "flight", `Work leased to ${name}`, `attempt ${lease.attempt}`,
    back || (acked ? `${acked}${renewed}` : "Waiting for its acknowledgement"), `lease ${short(lease.id)}`, lost ? "RTY-001" : "LEA-001");
  if (lease.submitted) {
    add(lease.submitted_ms, "confirmed", "Output held by the node", "provider → node", `${bytes(lease.submitted_size)}, durable before it was accepted`,
      `digest ${short(lease.submitted)}`, "RCV-001");
  }
}

function ending(job, result, add) {
  if (result?.status === "UNLINKED") {
    add(job.ended_ms, "flight", "Proof waits for a block", "provider → ledger", "Its block was replaced; the next one has it again",
      `nullifier ${short(result.proof_nullifier)}`, "RES-006");
  } else if (result) {
    add(job.ended_ms ?? null, "confirmed", `Result resolved in block ${count(result.height_resolved)}`, "provider → ledger",
      `Readable since block ${count(result.height_resolved + 1)}`, result.leaf_index == null ? "" : `leaf ${count(result.leaf_index)} of the log`, "PRF-003");
  } else if (job.ended_ms) {
    add(job.ended_ms, job.state === "CANCELLED" ? "gone" : "stuck", `Job ${job.state.toLowerCase()}`, "", job.reason || "Its reservation was refunded", "", "JOB-007");
  }
}

function archived(job, { blobs }, add) {
  const all = blobs.length, done = blobs.filter((blob) => blob.status === "ARCHIVED");
  const failed = blobs.find((blob) => blob.attempts && blob.status !== "ARCHIVED");
  const at = done.length === all ? Math.max(...done.map((blob) => blob.archived_at ?? 0)) * 1000 : null;
  if (done.length === all) {
    const gone = blobs.every((blob) => blob.is_pruned);
    add(at || null, gone ? "gone" : "confirmed", gone ? "Bytes archived, deleted here" : "Bytes archived", "node → archive",
      `${plural(all, "blob")} of its block, each with the archive's receipt`, done[0].locator ? short(done[0].locator) : "", "ARC-002");
  } else {
    add(null, failed ? "stuck" : "flight", failed ? "Archive refuses the bytes" : "Bytes here, archive uploading", "node → archive",
      failed ? `${failed.reason || "The upload failed"}; nothing is deleted before a receipt` : `${done.length} of ${plural(all, "blob")} archived; deleted here only after the receipt`, "", "ARC-002");
  }
}

export function verdict(view) {
  const { job } = view;
  const lost = (view.attempts ?? []).filter(isLost).length;
  const after = [lost ? `${count(lost)} lost ${lost === 1 ? "lease" : "leases"}` : "", job.requeues ? plural(job.requeues, "requeue") : ""].filter(Boolean).join(" and ");
  const words = { QUEUED: "Waiting in the queue", ASSIGNED: "Being worked on", COMPLETED: "Completed", EXPIRED: "Expired", FAILED: "Failed", CANCELLED: "Cancelled" };
  const reason = job.reason && job.state !== "COMPLETED" ? `: ${job.reason}` : "";
  return `${words[job.state] ?? job.state}${after ? ` after ${after}` : ""}${reason}.`;
}
