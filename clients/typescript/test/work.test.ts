// How work is run under a lease, and stopped.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { inspect } from "node:util";

import { Client, LeaseLost, NotAcquired, Problem, type Lease } from "../src/lockkeeper.js";
import { Gateway } from "./client.js";
import { aborted, pause, rejection } from "./gateway.js";

const released = "DELETE /v1/leases/self";
const heartbeats = "POST /v1/leases/self/heartbeat";

describe("withLock", { concurrency: true }, () => {
  it("gives what the work gives, and releases the lock", async () => {
    const gateway = new Gateway();
    const value = await gateway.client().withLock("report", async (lease, signal) => {
      assert.equal(lease.fence, 7);
      assert.equal(lease.id, "lk7");
      assert.equal(lease.held, true);
      assert.equal(signal.aborted, false);
      return "written";
    });
    assert.equal(value, "written");
    assert.equal(gateway.of(released).length, 1);
  });

  it("releases the lock when the work fails, also when it throws at once", async () => {
    for (const work of [async () => Promise.reject(new Error("boom")), () => { throw new Error("boom"); }]) {
      const gateway = new Gateway();
      const error = await rejection(gateway.client().withLock("report", work), Error);
      assert.equal(error.message, "boom");
      assert.equal(gateway.of(released).length, 1);
    }
  });

  it("aborts the signal of the work at once when the lease is broken, and tells who broke it", async () => {
    const gateway = new Gateway();
    let late = Infinity;
    const lost = await rejection(gateway.client().withLock("report", async (lease, signal) => {
      await pause(20);
      const broken = performance.now();
      gateway.end();
      assert.ok((await aborted(signal)) instanceof LeaseLost);
      late = performance.now() - broken;
      assert.equal(lease.held, false);
      assert.throws(() => lease.throwIfLost(), LeaseLost);
      signal.throwIfAborted();
    }), LeaseLost);
    assert.ok(late < 250, `${late} ms`);
    assert.deepEqual([lost.leaseId, lost.reason, lost.by, lost.detail, lost.cause], ["lk7", "revoked", "alice", "maintenance", undefined]);
    assert.equal(gateway.of(released).length, 0); // there is nothing to release
  });

  it("tells that the lease was lost also when the work did not notice, and what the work threw", async () => {
    for (const failure of [undefined, new Error("boom")]) {
      const gateway = new Gateway();
      const lost = await rejection(gateway.client().withLock("report", async () => {
        gateway.end();
        await pause(20);
        if (failure) throw failure;
        return "done";
      }), LeaseLost);
      assert.equal(lost.cause, failure);
    }
  });

  // The best of some tries counts: a machine that has more to do than it can is late.
  it("stops the work the margin before the time is over when no gateway answers", async () => {
    let ran = Infinity;
    for (let tries = 0; ran >= 1000 && tries < 5; tries++) {
      const gateway = new Gateway();
      gateway.ttl = 1000;
      const sent = performance.now();
      const lost = await rejection(gateway.client().withLock("report", async (_, signal) => {
        gateway.silent = true;
        await aborted(signal);
        ran = performance.now() - sent;
      }), LeaseLost);
      assert.equal(lost.reason, "deadline");
      assert.ok(ran > 700, `${ran} ms`);
    }
    assert.ok(ran < 1000, `${ran} ms`);
  });

  it("waits for the work when the caller gives up, and keeps the lease until then", async () => {
    const gateway = new Gateway();
    gateway.ttl = 1500;
    const caller = new AbortController();
    const reason = new Error("enough");
    const error = await rejection(gateway.client().withLock("report", async (lease, signal) => {
      caller.abort(reason);
      assert.equal(signal.aborted, true);
      assert.equal(lease.signal.aborted, false);
      await pause(2000); // longer than the TTL
      assert.equal(lease.held, true);
      signal.throwIfAborted();
    }, { signal: caller.signal }), Error);
    assert.equal(error, reason);
    assert.equal(gateway.of(released).length, 1);
  });

  it("does not begin work under a grant that came too late", async () => {
    const gateway = new Gateway();
    gateway.ttl = 200;
    const { fetch } = gateway;
    const late = new Client({ urls: "http://one", fetch: async (url, init) => (await pause(init?.body ? 250 : 0), fetch(url as string, init)) });
    let began = false;
    const lost = await rejection(late.withLock("report", () => void (began = true)), LeaseLost);
    assert.deepEqual([lost.reason, began], ["deadline", false]);
  });

  it("aborts what the work has left running", async () => {
    let left: AbortSignal | undefined;
    await new Gateway().client().withLock("report", (_, signal) => void (left = signal));
    assert.equal(left?.aborted, true);
  });

  it("asks for several locks at once", async () => {
    const gateway = new Gateway();
    gateway.instead = ({ method, url }) => method === "POST" && url.pathname === "/v1/leases" ? {
      status: 201,
      body: {
        lease_id: "lk7", token: "t", state: "held", ttl_ms: 30_000, waited_ms: 0, fencing_token: 9,
        locks: [{ lock: "a", ns: "default", fencing_token: 8 }, { lock: "b", ns: "other", fencing_token: 9 }],
      },
    } : undefined;
    await gateway.client().withLock(["a", { name: "b", namespace: "other", shared: true }], (lease) => {
      assert.deepEqual([lease.fence, lease.fenceOf("a"), lease.fenceOf("b", "other"), lease.fenceOf("b")], [9, 8, 9, undefined]);
    });
    assert.deepEqual(gateway.seen[0]?.body["locks"], [{ lock: "a" }, { lock: "b", ns: "other", mode: "shared" }]);
  });

  it("shows the lease token in no output", async () => {
    const gateway = new Gateway();
    const client = gateway.client({ token: "secret-of-the-api" });
    const shown: string[] = [];
    const show = (value: unknown) => shown.push(inspect(value, { depth: 20, showHidden: true, getters: true }), String(JSON.stringify(value)), String(value));
    show(client);
    show(await rejection(client.withLock("report", async (lease, signal) => {
      show(lease);
      gateway.end();
      show(await aborted(signal));
    }), LeaseLost));
    gateway.instead = () => ({ status: 401, body: { code: "unauthenticated" } });
    show(await rejection(client.acquire("report"), Problem));
    assert.ok(!shown.join().includes("secret-of"), shown.join("\n"));
  });
});

describe("a lease", { concurrency: true }, () => {
  it("is released at the end of a block, and loses nothing when it is released twice", async () => {
    const gateway = new Gateway();
    let kept: Lease;
    {
      await using lease = await gateway.client().acquire("report");
      kept = lease;
      assert.equal(lease.held, true);
    }
    assert.equal(kept.held, false);
    kept.throwIfLost(); // it was not
    assert.equal(await kept.release(), true);
    assert.equal(gateway.of(released).length, 1);
  });

  it("that is lost in a block is told at its end", async () => {
    const gateway = new Gateway();
    await rejection((async () => {
      await using lease = await gateway.client().acquire("report");
      gateway.end();
      await aborted(lease.signal);
    })(), LeaseLost);
  });

  it("says that no gateway answered its release", async () => {
    const gateway = new Gateway();
    const lease = await gateway.client().acquire("report");
    gateway.instead = () => new Response("<html>", { status: 404 });
    assert.equal(await lease.release(), false);
  });

  it("tells its holder once that it is asked to release", async () => {
    const gateway = new Gateway();
    gateway.ttl = 300;
    const asked: unknown[] = [];
    gateway.instead = ({ url }) => url.pathname.endsWith("/heartbeat") ? {
      status: 200, body: { lease_id: "lk7", state: "held", ttl_ms: 300, revoke_requested: { reason: "deploy", by: "ops", force_in_ms: 60_000 } },
    } : undefined;
    await gateway.client().withLock("report", () => pause(400), { onRevoke: (revocation) => asked.push(revocation) });
    assert.deepEqual(asked, [{ reason: "deploy", by: "ops", forceInMs: 60_000 }]);
  });

  it("makes no busy loop of heartbeats that are answered at once", async () => {
    const gateway = new Gateway();
    gateway.instead = ({ url }) => url.pathname.endsWith("/heartbeat") ? { status: 200, body: { lease_id: "lk7", state: "held", ttl_ms: 30_000 } } : undefined;
    await gateway.client().withLock("report", () => pause(1000));
    assert.ok(gateway.of(heartbeats).length <= 8, `${gateway.of(heartbeats).length} heartbeats in a second`);
  });

  it("asks for no longer hold than the gateway gives", async () => {
    const gateway = new Gateway();
    gateway.ttl = 86_400_000;
    await gateway.client().withLock("report", () => pause(10));
    assert.equal(gateway.of(heartbeats)[0]?.url.searchParams.get("wait"), "240000ms");
  });

  it("is kept also with a margin of nearly half of its TTL", async () => {
    const gateway = new Gateway();
    gateway.ttl = 2000;
    await gateway.client().withLock("report", () => pause(4500), { marginMs: 990 });
  });

  it("with a fencing token that a number cannot hold is refused, and given back", async () => {
    const gateway = new Gateway();
    gateway.fence = 2 ** 53;
    await rejection(gateway.client().acquire("report"), RangeError);
    assert.equal(gateway.of(released).length, 1);
  });

  it("of a gateway that says no sensible time is not believed in", async () => {
    for (const ttl of [undefined, null, "soon", "30000", [30_000], 0, -1, 1e300]) {
      const gateway = new Gateway();
      let refused = 0;
      gateway.instead = ({ method, url }) => method === "POST" && refused++ < 1 && !url.pathname.endsWith("/heartbeat")
        ? { status: 201, body: { lease_id: "lk7", token: "t", state: "held", waited_ms: 0, fencing_token: 1, ttl_ms: ttl } } : undefined;
      await gateway.client().withLock("report", () => {});
      assert.equal(gateway.of("POST /v1/locks/report/leases").length, 2);
    }
  });
});

describe("elect", { concurrency: true }, () => {
  it("leads again after a lease is lost, and ends when the leader resigns", async () => {
    const gateway = new Gateway();
    let terms = 0;
    const outcome = await gateway.client().elect("leader", async (_, signal) => {
      if (++terms === 3) return "resigned";
      gateway.end();
      await aborted(signal);
      gateway.over = undefined;
      return "lost";
    });
    assert.deepEqual([outcome, terms], ["resigned", 3]);
  });

  it("ends with an error of the leader's own, also when that is the loss of another lease", async () => {
    for (const failure of [new Error("boom"), new LeaseLost("another", "expired")]) {
      const error = await rejection(new Gateway().client().elect("leader", () => Promise.reject(failure)), Error);
      assert.equal(error, failure);
    }
  });

  it("ends when the caller gives up", async () => {
    const gateway = new Gateway();
    const caller = new AbortController();
    const error = await rejection(gateway.client().elect("leader", async (_, signal) => {
      caller.abort(new Error("enough"));
      gateway.end();
      await pause(20);
      signal.throwIfAborted();
    }, { signal: caller.signal }), Error);
    assert.ok(error instanceof LeaseLost || error.message === "enough");
  });
});

describe("an acquire", { concurrency: true }, () => {
  it("tells its place, and that it was not acquired, with the holders", async () => {
    const gateway = new Gateway();
    gateway.queued = 1000;
    const places: number[] = [];
    const error = await rejection(gateway.client().acquire("report", { waitMs: 200, onQueued: (position) => places.push(position) }), NotAcquired);
    assert.deepEqual(error.holders, [{ owner: "other", leaseId: "lk1", fencingToken: 3 }]);
    assert.equal(error.queueLength, 2);
    assert.ok(places[0] === 1000 && places.length > 1 && places.length < 8, String(places)); // no busy loop
    assert.equal(gateway.of(released).length, 1);
  });

  it("that is aborted while it waits leaves the queue at once, and rejects with the reason", async () => {
    const gateway = new Gateway();
    gateway.queued = 1000;
    const caller = new AbortController();
    const reason = { no: "error" };
    setTimeout(() => caller.abort(reason), 50);
    const began = performance.now();
    await assert.rejects(gateway.client().acquire("report", { signal: caller.signal }), (error) => error === reason);
    assert.ok(performance.now() - began < 1000);
    assert.equal(gateway.of(released)[0]?.headers.get("Lease-Token"), "secret-of-the-lease");
  });

  it("that is aborted before its request is answered gives back what that took", async () => {
    const gateway = new Gateway();
    const caller = new AbortController();
    gateway.silent = true;
    setTimeout(() => {
      gateway.silent = false;
      caller.abort();
    }, 50);
    await assert.rejects(gateway.client().acquire("report", { signal: caller.signal }), { name: "AbortError" });
    const [first, again] = gateway.of("POST /v1/locks/report/leases").map(({ headers }) => headers.get("Idempotency-Key"));
    assert.ok(first && first === again && /^[0-9a-f]{32}$/.test(first));
    assert.equal(gateway.of(released).length, 1);
  });

  it("begins anew when a lease that it took has ended before its answer came", async () => {
    for (const waitMs of [0, undefined]) {
      const gateway = new Gateway();
      gateway.instead = ({ url }) => url.pathname.endsWith("/leases") && gateway.seen.length === 1
        ? { status: 410, body: { code: "lease_ended", reason: "expired" } } : undefined;
      await gateway.client().withLock("report", () => {}, { waitMs });
      const [first, second] = gateway.of("POST /v1/locks/report/leases").map(({ headers }) => headers.get("Idempotency-Key"));
      assert.ok(first && second && first !== second);
    }
  });

  it("with a signal that has aborted sends nothing", async () => {
    const gateway = new Gateway();
    await assert.rejects(gateway.client().acquire("report", { signal: AbortSignal.abort() }), { name: "AbortError" });
    assert.equal(gateway.seen.length, 0);
  });

  it("that no gateway answers says so when the wait is over", async () => {
    const gateway = new Gateway();
    gateway.instead = () => { throw new TypeError("fetch failed"); };
    const error = await rejection(gateway.client().acquire("report", { waitMs: 100 }), Error);
    assert.match(error.message, /http:\/\/one does not answer/);
  });

  it("reads no answer that is longer than any of a gateway", async () => {
    const gateway = new Gateway();
    let chunks = 0, first = true;
    gateway.instead = () => {
      if (!first) return undefined;
      first = false;
      return new Response(new ReadableStream({ pull: (stream) => (chunks++, stream.enqueue(new Uint8Array(1 << 16))) }));
    };
    await gateway.client().withLock("report", () => {});
    assert.ok(chunks < 32, `${chunks} chunks of 64 KiB were read`);
  });

  it("takes what it is given as the API has it", async () => {
    const gateway = new Gateway();
    await gateway.client().withLock({ name: "a b", namespace: "n", permits: 2, limit: 3 }, () => {}, {
      ttlMs: 30_000.9, lockDelayMs: 1500, owner: "me", metadata: "here", waitMs: 2 ** 40,
    });
    const [seen] = gateway.seen;
    assert.equal(seen?.url.pathname, "/v1/locks/a%20b/leases");
    assert.deepEqual(seen?.body, { ns: "n", mode: "semaphore", permits: 2, limit: 3, ttl: "30000ms", lock_delay: "1500ms", owner: "me", metadata: "here", async: true });
  });

  it("waits for longer than a timer can", async () => {
    const gateway = new Gateway();
    gateway.queued = 5;
    await gateway.client().withLock("report", () => {}, { waitMs: 2 ** 40 });
  });

  it("refuses what cannot be right, and sends nothing", async () => {
    const gateway = new Gateway();
    const client = gateway.client();
    for (const [locks, options] of [
      ["", {}], ["..", {}], [".", {}], [{ name: "x", shared: true, permits: 1 }, {}], [["a", ""], {}],
      ["x", { marginMs: -1 }], ["x", { marginMs: NaN }], ["x", { ttlMs: 3000, marginMs: 1500 }], ["x", { waitMs: -1 }], ["x", { waitMs: NaN }],
    ] as const) {
      const error = await rejection(client.acquire(locks, { ttlMs: 3000, ...options }), Error);
      assert.ok(error instanceof TypeError || error instanceof RangeError, inspect(error));
    }
    assert.equal(gateway.seen.length, 0);
  });
});

describe("a client", { concurrency: true }, () => {
  it("is not made of what cannot be right", () => {
    const wrong = ["", "localhost:8080", "ftp://x", "http://", "http://u:p@x", "http://x?y", "http://x#y", "unix:", "http://x,nonsense"];
    for (const urls of wrong.slice(1)) assert.throws(() => new Client({ urls }), TypeError, urls);
    assert.throws(() => new Client({ urls: [] }), TypeError);
    assert.throws(() => new Client({ urls: ["http://x", ""] }), TypeError);
    assert.throws(() => new Client({ token: "a", tokenFile: "b" }), TypeError);
  });

  it("keeps a path before the API, and tells no secret in an error", async () => {
    const gateway = new Gateway();
    await gateway.client({ urls: "https://locks.example.com/team/" }).withLock("x", () => {});
    assert.equal(gateway.seen[0]?.url.href, "https://locks.example.com/team/v1/locks/x/leases");
    for (const make of [() => new Client({ urls: "http://user:secret@x" }), () => gateway.client({ token: "secret\n x" }).acquire("x")]) {
      const error = await rejection((async () => make())(), TypeError);
      assert.ok(!error.message.includes("secret"), error.message);
    }
  });
});
