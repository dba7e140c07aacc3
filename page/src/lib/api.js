// The public API as this page uses it: JSON-RPC, the session, and nothing else.

export class RpcError extends Error {
  constructor(error) {
    super(error.message);
    this.name = error.data?.name ?? "Error";
    this.rule = error.data?.rule ?? "";
    this.hint = error.data?.hint ?? "";
  }
}

let lastId = 0;

export async function rpc(method, params = {}) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: ++lastId, method, params });
  const response = await fetch("/rpc", { method: "POST", headers: { "content-type": "application/json" }, body });
  const answer = await response.json();
  if (answer.error) throw new RpcError(answer.error);
  return answer.result;
}

export async function whoAmI() {
  const response = await fetch("/v1/session");
  return response.ok ? response.json() : { name: "anonymous", role: null, account: null };
}

export async function signIn(token) {
  const response = await fetch("/v1/session", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  });
  const answer = await response.json();
  if (!response.ok) throw new RpcError(answer.error ?? { message: "sign-in failed" });
  return answer;
}

export async function signOut() {
  await fetch("/v1/session", { method: "DELETE" });
}
