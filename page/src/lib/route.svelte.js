// The address is the state: `#/jobs?status=FAILED` shows the same to whoever opens it.

export const route = $state({ page: "overview", id: "", query: {} });

function read() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, ...rest] = path.split("/");
  route.page = page || (location.pathname === "/docs" && !location.hash ? "docs" : "overview");
  route.id = decodeURIComponent(rest.join("/"));
  route.query = Object.fromEntries(new URLSearchParams(search));
}

export function link(page, id = "", query = {}) {
  const set = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const search = new URLSearchParams(set).toString();
  return `#/${page}${id ? `/${encodeURIComponent(id)}` : ""}${search ? `?${search}` : ""}`;
}

export function go(...to) {
  location.hash = link(...to);
}

addEventListener("hashchange", read);
read();
