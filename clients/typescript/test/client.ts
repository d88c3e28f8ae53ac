import { Client, type ClientOptions } from "../src/lockkeeper.js";
import { FakeGateway } from "./gateway.js";

/** A gateway that makes its clients. */
export class Gateway extends FakeGateway {
  client(options: ClientOptions = {}): Client {
    return new Client({ urls: "http://one", fetch: this.fetch, ...options });
  }
}
