// What only Node.js has: the environment, files, Unix sockets, a process that has to end.
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";

import { Client, LeaseLost } from "../src/lockkeeper.js";
import { Gateway } from "./client.js";
import { aborted, rejection } from "./gateway.js";

let dir = "";
before(async () => {
  dir = await mkdtemp(join(tmpdir(), "lockkeeper-"));
});
after(() => rm(dir, { recursive: true }));

/** Serves the fake gateway over a Unix socket. */
async function serve(gateway: Gateway, path: string): Promise<() => void> {
  const listener: RequestListener = async (request, response) => {
    const gone = new AbortController();
    response.on("close", () => gone.abort());
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const headers = Object.entries(request.headers).map(([name, value]): [string, string] => [name, String(value)]);
    const body = chunks.length > 0 ? Buffer.concat(chunks).toString() : null;
    const answer = await gateway.fetch(`http://unix${request.url}`, { method: request.method!, headers, body, signal: gone.signal }).catch(() => undefined);
    if (answer) response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(await answer.text());
  };
  const server = createServer((request, response) => void listener(request, response)).listen(path);
  await new Promise((resolve) => server.once("listening", resolve));
  return () => server.close();
}

describe("in Node.js", () => {
  it("a Unix socket is asked like any gateway", async () => {
    const gateway = new Gateway();
    const stop = await serve(gateway, join(dir, "gateway.sock"));
    const lost = await rejection(new Client({ urls: `unix:${join(dir, "gateway.sock")}`, token: "t" }).withLock("report", async (lease, signal) => {
      assert.equal(lease.fence, 7);
      gateway.end();
      await aborted(signal);
    }), LeaseLost);
    assert.equal(lost.reason, "revoked");
    assert.equal(gateway.seen[0]?.headers.get("Authorization"), "Bearer t");
    stop();
  });

  it("a gateway that is not there leads to the next one", async () => {
    const gateway = new Gateway();
    const stop = await serve(gateway, join(dir, "second.sock"));
    const urls = [`unix:${join(dir, "none.sock")}`, "http://127.0.0.1:1", `unix:${join(dir, "second.sock")}`];
    await new Client({ urls }).withLock("report", () => {});
    assert.equal(gateway.of("DELETE /v1/leases/self").length, 1);
    stop();
  });

  it("the token file is read for each acquire, and one that cannot be read is told at once", async () => {
    const gateway = new Gateway();
    const tokenFile = join(dir, "token");
    const client = gateway.client({ tokenFile });
    await assert.rejects(client.acquire("report"), { code: "ENOENT" });
    for (const token of ["one", "two"]) {
      await writeFile(tokenFile, `${token}\n`);
      await client.withLock("report", () => {});
    }
    const sent = gateway.of("POST /v1/locks/report/leases").map(({ headers }) => headers.get("Authorization"));
    assert.deepEqual(sent, ["Bearer one", "Bearer two"]);
  });

  it("the environment says which gateways there are, and which token they want", async () => {
    const { LOCKKEEPER_URL, LOCKKEEPER_TOKEN, LOCKKEEPER_TOKEN_FILE } = process.env;
    const gateway = new Gateway();
    const stop = await serve(gateway, join(dir, "env.sock"));
    try {
      process.env["LOCKKEEPER_URL"] = `http://127.0.0.1:1, unix:${join(dir, "env.sock")}`;
      process.env["LOCKKEEPER_TOKEN"] = "from-env";
      process.env["LOCKKEEPER_TOKEN_FILE"] = "";
      await Client.fromEnv().withLock("report", () => {});
      assert.equal(gateway.seen[0]?.headers.get("Authorization"), "Bearer from-env");
      process.env["LOCKKEEPER_TOKEN_FILE"] = join(dir, "token");
      assert.throws(() => Client.fromEnv(), /leave one out/);
    } finally {
      stop();
      for (const [name, value] of Object.entries({ LOCKKEEPER_URL, LOCKKEEPER_TOKEN, LOCKKEEPER_TOKEN_FILE })) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    }
  });

  it("a lease that was released keeps the process alive with nothing", async () => {
    const before = process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
    const gateway = new Gateway();
    for (let i = 0; i < 20; i++) await gateway.client().withLock("report", () => {});
    assert.equal(process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length, before);
  });

  it("many acquires may share one signal without a warning, and leave no listener on it", async () => {
    const warnings: Error[] = [];
    const note = (warning: Error) => warnings.push(warning);
    process.on("warning", note);
    const caller = new AbortController();
    const gateway = new Gateway();
    await Promise.all(Array.from({ length: 20 }, () => gateway.client().withLock("report", () => {}, { signal: caller.signal })));
    for (let i = 0; i < 20; i++) await gateway.client().withLock("report", () => {}, { signal: caller.signal });
    await new Promise((resolve) => setImmediate(resolve));
    process.off("warning", note);
    assert.deepEqual(warnings, []);
    assert.equal(getEventListeners(caller.signal, "abort").length, 0);
  });
});
