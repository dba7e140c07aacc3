// The chain of custody of a job, from the answer of cap.getJob: who passed what to whom, what proves it, which rule.
import { count, duration, short } from "./format.js";

export function custody(view) {
  const { job, result } = view;
  const steps = [];
  const add = (at, state, title, giver, text, proof, rule) => steps.push({ at, state, title, giver, text, proof, rule });
  const fee = job.max_fee == null ? "" : `, ${count(job.max_fee)} reserved`;
  add(job.enqueue_ms, "confirmed", "Job held by the queue", "requester → queue", `Admitted at height ${job.height}${fee}`,
    `event ${job.event ?? ""}`, "JOB-006");
  for (const lease of view.attempts ?? []) {
    const lost = lease.status === "CANCELLED" || lease.status === "EXPIRED";
    add(lease.t_start_ms, lost ? "stuck" : lease.status === "COMPLETED" ? "confirmed" : "flight",
      `Work leased to ${short(lease.provider_id)}`, `attempt ${lease.attempt}`,
      lost ? `${lease.status}: ${lease.detail || lease.reason}` : lease.acked_ms ? `Acknowledged after ${duration(lease.acked_ms - lease.t_start_ms)}` : "Waiting for the ACK",
      `lease ${short(lease.id)}`, lost ? "RTY-001" : "LEA-001");
    if (lease.submitted) {
      add(lease.submitted_ms, "confirmed", "Output held by the node", "provider → node", `${count(lease.submitted_size)} bytes, durable`,
        `digest ${short(lease.submitted)}`, "RCV-001");
    }
  }
  if (result?.status === "UNLINKED") {
    add(job.ended_ms, "flight", "The proof waits for a block", "provider → ledger", "Its block was rolled back; the next one has it again",
      `nullifier ${short(result.proof_nullifier)}`, "RES-006");
  } else if (result) {
    add(job.ended_ms, "confirmed", `Result resolved in block ${count(result.height_resolved)}`, "provider → ledger",
      `Readable since block ${count(result.height_resolved + 1)}`, `leaf ${result.leaf_index} of the log`, "PRF-003");
  } else if (job.ended_ms) {
    add(job.ended_ms, job.state === "CANCELLED" ? "gone" : "stuck", `The job is ${job.state}`, "", job.reason, "", "JOB-007");
  }
  return steps.sort((a, b) => (a.at ?? Infinity) - (b.at ?? Infinity));
}

export function verdict(view) {
  const { job } = view;
  const lost = (view.attempts ?? []).filter((lease) => lease.status === "CANCELLED" || lease.status === "EXPIRED").length;
  const after = lost ? ` after ${lost} lost ${lost === 1 ? "lease" : "leases"}` : "";
  const words = { QUEUED: "Waiting in the queue", ASSIGNED: "Being worked on", COMPLETED: "Completed", EXPIRED: "Expired", FAILED: "Failed", CANCELLED: "Cancelled" };
  const reason = job.reason && job.state !== "COMPLETED" ? `: ${job.reason}` : "";
  return `${words[job.state] ?? job.state}${after}${reason}.`;
}
