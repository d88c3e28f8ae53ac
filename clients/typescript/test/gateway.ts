import { setMaxListeners } from "node:events";

/** A request as it came. */
export interface Seen {
  method: string;
  url: URL;
  headers: Headers;
  body: Record<string, unknown>;
}

type Answer = { status: number; body?: object; headers?: Record<string, string> };

/** Answers requests as a gateway does that has one lock, by being the client's fetch. */
export class FakeGateway {
  readonly seen: Seen[] = [];
  ttl = 30_000;
  fence: number | string = 7;
  /** Looks at the ticket that still wait. */
  queued = 0;
  /** What heartbeats and releases are answered with once the lease is over. */
  over: Answer | undefined;
  /** Requests are not answered. */
  silent = false;
  /** Answers in place of the gateway. */
  instead: ((request: Seen) => Answer | Response | undefined) | undefined;

  readonly #changes = new EventTarget();

  constructor() {
    setMaxListeners(1000, this.#changes);
  }

  /** Ends the lease: heartbeats that are held are answered, too. */
  end(over: Answer = { status: 410, body: { code: "lease_ended", reason: "revoked", by: "alice", detail: "maintenance" } }): void {
    this.over = over;
    this.#changes.dispatchEvent(new Event("over"));
  }

  /** Those of one kind, such as "POST /v1/leases/self/heartbeat". */
  of(kind: string): Seen[] {
    return this.seen.filter(({ method, url }) => `${method} ${url.pathname}` === kind);
  }

  readonly fetch = async (input: string | URL | Request, init: RequestInit = {}): Promise<Response> => {
    const signal = init.signal!;
    signal.throwIfAborted();
    const request: Seen = {
      method: init.method ?? "GET",
      url: new URL(String(input)),
      headers: new Headers(init.headers),
      body: init.body ? (JSON.parse(String(init.body)) as Record<string, unknown>) : {},
    };
    this.seen.push(request);
    if (this.silent) await this.#hold(Infinity, signal);
    const other = this.instead?.(request);
    if (other instanceof Response) return other;
    const { status, body, headers } = other ?? (await this.#answer(request, signal));
    return new Response(body ? JSON.stringify(body) : null, { status, headers: { "Content-Type": "application/json", ...headers } });
  };

  async #answer({ method, url }: Seen, signal: AbortSignal): Promise<Answer> {
    const lease = { lease_id: "lk7", token: "secret-of-the-lease", ttl_ms: this.ttl, rev: "1" };
    const held = { ...lease, state: "held", fencing_token: this.fence };
    const waits = { ...lease, state: "waiting", position: this.queued };
    if (url.pathname.endsWith("/heartbeat")) {
      const wait = parseInt(url.searchParams.get("wait") ?? "0");
      if (!this.over) await this.#hold(wait, signal);
      return this.over ?? { status: 200, body: held };
    }
    if (method === "DELETE") return this.over ?? { status: 204 };
    if (method === "POST") return this.queued > 0 ? { status: 202, body: waits } : { status: 201, body: { ...held, waited_ms: 0 } };
    if (url.pathname.startsWith("/v1/locks/")) return { status: 200, body: { holders: [{ owner: "other", lease_id: "lk1", fencing_token: 3 }], queue_length: 2 } };
    await this.#hold(20, signal);
    return { status: 200, body: --this.queued > 0 ? { ...waits, position: this.queued } : held };
  }

  /** Waits for so long, for the end of the lease, or for the end of the request. */
  #hold(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const done = () => {
        clearTimeout(timer);
        this.#changes.removeEventListener("over", done);
        signal.removeEventListener("abort", done);
        if (signal.aborted) reject(signal.reason);
        else resolve();
      };
      const timer = ms < Infinity ? setTimeout(done, ms) : undefined;
      this.#changes.addEventListener("over", done);
      signal.addEventListener("abort", done);
    });
  }
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Lets nothing else happen in this process for so long, as work does that computes. */
export function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** Resolves when the signal aborts, with its reason. */
export const aborted = (signal: AbortSignal): Promise<unknown> =>
  new Promise((resolve) => (signal.aborted ? resolve(signal.reason) : signal.addEventListener("abort", () => resolve(signal.reason))));

/** The error that the promise rejects with. */
export async function rejection<E extends Error>(promise: Promise<unknown>, kind: abstract new (...args: never[]) => E): Promise<E> {
  const error: unknown = await promise.then(
    (value) => new Error(`it resolved with ${String(value)}`),
    (reason: unknown) => reason,
  );
  if (error instanceof kind) return error;
  throw error;
}
