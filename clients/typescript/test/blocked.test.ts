// Work that blocks the event loop: no timer fires in its time. These tests run one after the other, because each blocks all.
import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { LeaseLost, type Lease } from "../src/lockkeeper.js";
import { Gateway } from "./client.js";
import { block, rejection } from "./gateway.js";

describe("a client whose event loop is blocked", () => {
  it("goes by the clock where the event loop is blocked: held and throwIfLost are right before any timer", async () => {
    const gateway = new Gateway();
    gateway.ttl = 500;
    for (const look of [(lease: Lease) => assert.equal(lease.held, false), (lease: Lease) => assert.throws(() => lease.throwIfLost(), LeaseLost)]) {
      const lost = await rejection(gateway.client().withLock("report", (lease, signal) => {
        block(450);
        assert.equal(signal.aborted, false);
        look(lease);
        assert.equal(signal.aborted, true);
      }), LeaseLost);
      assert.equal(lost.reason, "deadline");
    }
  });

  it("lets the gateway say what became of a lease under which the event loop was blocked until after its time", async () => {
    for (const [answer, reason] of [[undefined, undefined], ["expired", "expired"], ["none", "deadline"]]) {
      const gateway = new Gateway();
      gateway.ttl = 300;
      const call = gateway.client().withLock("report", () => {
        if (answer === "expired") gateway.over = { status: 410, body: { code: "lease_ended", reason: "expired" } };
        if (answer === "none") gateway.instead = () => new Response("<html>", { status: 502 });
        block(350);
        return "done";
      });
      if (reason === undefined) assert.equal(await call, "done");
      else assert.equal((await rejection(call, LeaseLost)).reason, reason);
    }
  });
});
