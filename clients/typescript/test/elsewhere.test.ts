// A runtime that is not Node.js, such as a browser: without its process object, and with clocks that the test turns. The client is imported
// when that is so.
import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { FakeGateway, rejection } from "./gateway.js";

Reflect.deleteProperty(globalThis, "process");
Reflect.set(globalThis, "location", { origin: "http://page.example.com" });
let sleeps = 0; // for how long the machine has slept: the monotonic clock stood still
const dayTime = Date.now;
Date.now = () => dayTime() + sleeps;
const { Client, LeaseLost } = await import("../src/lockkeeper.js");

describe("outside Node.js", () => {
  it("the page's own origin is the gateway, and a token file or a Unix socket is an error", async () => {
    const gateway = new FakeGateway();
    for (const client of [new Client({ fetch: gateway.fetch }), new Client({ fetch: gateway.fetch, urls: "" })]) await client.withLock("report", () => {});
    assert.equal(gateway.seen[0]?.url.origin, "http://page.example.com");
    assert.equal(gateway.seen[0]?.headers.has("User-Agent"), false);
    assert.throws(() => new Client({ tokenFile: "token" }), /a browser cannot read/);
    assert.throws(() => new Client({ urls: "unix:/run/x.sock" }), TypeError);
    assert.ok(Client.fromEnv() instanceof Client);
  });

  it("the time counts that the machine sleeps", async () => {
    const gateway = new FakeGateway();
    const lost = await rejection(new Client({ fetch: gateway.fetch }).withLock("report", (lease) => {
      sleeps += 20_000;
      assert.equal(lease.held, true);
      sleeps += 9_500;
      assert.equal(lease.held, false);
    }), LeaseLost);
    assert.equal(lost.reason, "deadline");
  });

  it("a time of day that is set back gives no time, and hides no sleep", async () => {
    const gateway = new FakeGateway();
    await rejection(new Client({ fetch: gateway.fetch }).withLock("report", (lease) => {
      sleeps += 20_000;
      assert.equal(lease.held, true);
      sleeps -= 3_600_000;
      assert.equal(lease.held, true);
      sleeps += 9_500;
      assert.equal(lease.held, false);
    }), LeaseLost);
  });
});
