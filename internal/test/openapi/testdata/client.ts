// What a newcomer writes with the types that openapi-typescript makes of openapi.yaml. It must type-check without a cast.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const client = createClient<paths>({ baseUrl: "http://localhost:8080" });

export async function whileHeld(lock: string, work: (fencingToken: number, until: number) => Promise<void>): Promise<string> {
  const sent = performance.now();
  const { data, error, response } = await client.POST("/v1/locks/{lock}/leases", {
    params: { path: { lock }, header: { "Idempotency-Key": crypto.randomUUID() } },
    body: { ttl: "30s", wait: "10s", metadata: { job: 7 } },
  });
  if (error) {
    const after: number | undefined = error.retry_after_ms;
    return `${error.code} (${response.status}), again in ${after ?? 0} ms, held by ${error.holders?.[0]?.owner ?? "nothing"}`;
  }
  if ("done" in data) {
    return `done in ${data.period}, by ${data.by ?? "?"}`; // with once_per alone
  }
  const token: string = data.token;
  const self = { params: { path: { id: "self" }, header: { "Lease-Token": token } } };
  if (data.state === "waiting") {
    const length: number = data.queue_length;
    await client.DELETE("/v1/leases/{id}", self);
    return `waiting, one of ${length}`;
  }
  await work(data.fencing_token, sent + (data.waited_ms ?? 0) + data.ttl_ms);
  const beat = await client.POST("/v1/leases/{id}/heartbeat", self);
  const left: number = beat.data?.expires_in_ms ?? 0;
  await client.DELETE("/v1/leases/{id}", self);
  return `held, ${left} ms were left`;
}

export async function look(lock: string): Promise<string[]> {
  const { data } = await client.GET("/v1/locks/{lock}", { params: { path: { lock }, query: { wait: "5s", until: "free" } } });
  const preview = await client.GET("/v1/locks/{lock}/preview", { params: { path: { lock }, query: { mode: "shared" } } });
  const free: boolean = preview.data !== undefined && "state" in preview.data && preview.data.state === "held";
  return free ? [] : (data?.holders ?? []).map((holder) => `${holder.owner ?? "?"} ${holder.mode}`);
}

// A message of a webhook.
export function received(message: components["schemas"]["WebhookMessage"]): string {
  return `${message.type}: ${message.data.lock}`;
}
