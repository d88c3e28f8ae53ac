// Each line with an error that is expected must have one: the types are no `any`.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

const client = createClient<paths>({ baseUrl: "http://localhost:8080" });

export async function wrong(): Promise<void> {
  const { data } = await client.POST("/v1/locks/{lock}/leases", {
    params: { path: { lock: "deploy" } },
    // @ts-expect-error a number is no duration
    body: { ttl: 30 },
  });
  // @ts-expect-error an answer may be an error
  data.token.length;
  if (data) {
    // @ts-expect-error a ticket has no fencing token for certain
    const token: number = data.fencing_token;
    // @ts-expect-error a member that there is not
    data.surprise;
  }
  // @ts-expect-error the limit must be given
  await client.PUT("/v1/locks/{lock}", { params: { path: { lock: "deploy" } }, body: {} });
  // @ts-expect-error the token must be given
  await client.DELETE("/v1/leases/{id}", { params: { path: { id: "self" } } });
}
