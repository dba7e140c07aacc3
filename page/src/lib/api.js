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
  const response = await fetch("/rpc", { method: "POST", headers: { "content-type": "application/json" }, body }).catch(() => {
    throw new RpcError({ message: "the node does not answer", data: { hint: "it is tried again when it is back" } });
  });
  const answer = await response.json().catch(() => ({ error: { message: `the node answers ${response.status}` } }));
  if (answer.error) throw new RpcError(answer.error);
  return answer.result;
}

export async function whoAmI() {
  const nobody = { name: "anonymous", role: null, account: null, is_cookie: false };
  const response = await fetch("/v1/session").catch(() => null);
  return response?.ok ? { ...nobody, ...(await response.json()) } : nobody;
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
