"""Operations, transactions, ACLs, sizes, four-letter words."""

import threading

from kazoo import exceptions as e
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_acl, make_digest_acl

from world import scenarios, together


def refused(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind:
        return
    raise AssertionError("%s was expected" % kind.__name__)


def operations(w):
    a, b = w.clients(2)
    assert a.create("/n", b"1") == "/n"
    path, stat = a.create("/m", b"12", include_data=True)
    assert path == "/m" and stat.dataLength == 2 and stat.version == 0 and stat.czxid == stat.mzxid == stat.pzxid
    refused(e.NodeExistsError, a.create, "/n")
    refused(e.NoNodeError, a.create, "/x/y")
    assert a.create("/x/y", makepath=True) == "/x/y"
    refused(e.NotEmptyError, a.delete, "/x")
    stat = a.set("/n", b"22", version=0)
    assert stat.version == 1 and stat.dataLength == 2
    refused(e.BadVersionError, a.set, "/n", b"3", version=0)
    refused(e.BadVersionError, a.delete, "/n", version=0)
    data, got = b.get("/n")
    assert data == b"22" and got == stat
    assert b.exists("/n") == stat and b.exists("/nowhere") is None
    refused(e.NoNodeError, b.get, "/nowhere")
    refused(e.NoNodeError, b.get_children, "/nowhere")
    assert sorted(b.get_children("/")) == ["m", "n", "x"]
    children, stat = b.get_children("/", include_data=True)
    assert sorted(children) == ["m", "n", "x"] and stat.numChildren == 3 and stat.cversion == 3
    assert [a.create("/x/s-", sequence=True) for _ in range(3)] == ["/x/s-%010d" % i for i in (1, 2, 3)]
    own = a.create("/x/e-", ephemeral=True, sequence=True)
    assert own == "/x/e-0000000004" and b.exists(own).ephemeralOwner == a.client_id[0]
    refused(e.NoChildrenForEphemeralsError, b.create, own + "/child")
    a.delete("/n", version=1)
    refused(e.NoNodeError, b.delete, "/n")
    assert a.sync("/")
    a.delete("/x", recursive=True)
    assert b.get_children("/") == ["m"]


def many_requests(w):
    """Thousands of requests at once on one connection: replies in order, each to its own."""
    a, b = w.clients(2)
    n = 500 * w.rounds
    created = [a.create_async("/n-", b"%d" % i, sequence=True) for i in range(n)]
    paths = [c.get(30) for c in created]
    assert paths == ["/n-%010d" % i for i in range(n)]
    got = [(i, c.get_async(p)) for i, p in enumerate(paths) for c in (a, b)]
    for i, reply in got:
        assert reply.get(30)[0] == b"%d" % i
    for reply in [a.delete_async(p) for p in paths]:
        reply.get(30)
    assert b.get_children("/") == []


def transactions(w):
    a, b = w.clients(2)
    t = a.transaction()
    t.create("/n", b"1")
    t.create("/n/s-", b"", sequence=True)
    t.create("/n/e", b"", ephemeral=True)
    t.set_data("/n", b"2", version=0)
    t.check("/n", version=1)
    t.create("/gone")
    t.delete("/gone")
    results = t.commit()
    assert results[0] == "/n" and results[1] == "/n/s-0000000000" and results[2] == "/n/e", results
    assert results[3].version == 1 and results[4:] == [True, "/gone", True], results
    assert b.get("/n")[0] == b"2" and b.exists("/n/e").ephemeralOwner == a.client_id[0]
    assert b.exists("/n").czxid == b.exists("/n").mzxid == b.exists("/n/e").czxid, "one zxid for all"

    t = a.transaction()
    t.create("/m")
    t.set_data("/n", b"3")
    t.check("/n", version=7)
    t.delete("/n")
    results = t.commit()
    assert [type(r) for r in results] == [
        e.RolledBackError, e.RolledBackError, e.BadVersionError, e.RuntimeInconsistency], results
    assert b.exists("/m") is None and b.get("/n")[0] == b"2"

    t = a.transaction()
    t.create("/n")
    assert isinstance(t.commit()[0], e.NodeExistsError)
    assert a.transaction().commit() == []

    # Money moves, none is made: each transfer checks both versions.
    a.create("/x", b"100")
    a.create("/y", b"100")

    def transfer(c, amount):
        done = 0
        while done < 5 * w.rounds:
            (x, sx), (y, sy) = c.get("/x"), c.get("/y")
            t = c.transaction()
            t.set_data("/x", b"%d" % (int(x) - amount), version=sx.version)
            t.set_data("/y", b"%d" % (int(y) + amount), version=sy.version)
            done += not any(isinstance(r, Exception) for r in t.commit())

    together(lambda: transfer(a, 1), lambda: transfer(b, 2))
    assert int(a.get("/x")[0]) + int(a.get("/y")[0]) == 200
    assert int(a.get("/x")[0]) == 100 - 15 * w.rounds
    assert a.exists("/x").version == a.exists("/y").version == 10 * w.rounds


def acls(w):
    nobody, owner, other = w.clients(3)
    owner.add_auth("digest", "owner:secret")
    other.add_auth("digest", "other:secret")
    owner.create("/mine", b"1", acl=CREATOR_ALL_ACL)
    acl, stat = owner.get_acls("/mine")
    assert stat.aversion == 0 and [x.id.scheme for x in acl] == ["digest"] and acl[0].perms == 31
    assert acl == [make_digest_acl("owner", "secret", all=True)], acl
    for c in (nobody, other):
        refused(e.NoAuthError, c.get, "/mine")
        refused(e.NoAuthError, c.set, "/mine", b"2")
        refused(e.NoAuthError, c.get_children, "/mine")
        refused(e.NoAuthError, c.create, "/mine/child")
        refused(e.NoAuthError, c.set_acls, "/mine", OPEN_ACL_UNSAFE)
        assert c.exists("/mine").dataLength == 1
    owner.create("/mine/child", acl=OPEN_ACL_UNSAFE)
    assert other.get("/mine/child")[0] == b""
    refused(e.NoAuthError, other.delete, "/mine/child")
    stat = owner.set_acls("/mine", [
        make_digest_acl("owner", "secret", all=True), make_digest_acl("other", "secret", read=True, delete=True),
        make_acl("world", "anyone", create=True)])
    assert stat.aversion == 1
    assert other.get("/mine")[0] == b"1"
    other.delete("/mine/child")
    nobody.create("/mine/by-nobody")
    refused(e.NoAuthError, nobody.get_children, "/mine")
    refused(e.BadVersionError, owner.set_acls, "/mine", OPEN_ACL_UNSAFE, version=0)
    refused(e.InvalidACLError, nobody.create, "/x", acl=CREATOR_ALL_ACL)
    refused(e.InvalidACLError, nobody.create, "/x", acl=[make_acl("unknown", "id", all=True)])
    nobody.create("/public", b"", acl=READ_ACL_UNSAFE)
    refused(e.NoAuthError, owner.set, "/public", b"")
    assert owner.get("/public")[0] == b""
    refused(e.AuthFailedError, w.client().add_auth, "unknown", "x:y")

    # A client that is given its credentials at the start.
    at_start = w.client(auth_data=[("digest", "owner:secret")], default_acl=CREATOR_ALL_ACL)
    at_start.create("/mine/too")
    assert at_start.get_acls("/mine/too")[0] == [make_digest_acl("owner", "secret", all=True)]
    # A watch is set by one who may not read: it hears of nothing but what it may.
    seen, end = [], threading.Event()
    nobody.exists("/mine", watch=lambda event: seen.append(event.type))
    nobody.exists("/end", watch=lambda event: end.set())
    owner.set("/mine", b"9")
    owner.create("/end")
    assert end.wait(30)
    assert seen == [], seen


def sizes(w):
    a, b = w.clients(2)
    big = bytes(range(256)) * 4000
    a.create("/big", big)
    assert b.get("/big")[0] == big
    a.set("/big", b"")
    assert b.get("/big")[0] == b""
    # A frame above jute.maxbuffer costs its connection, and only that.
    refused(e.ConnectionLoss, a.set, "/big", b"x" * (1 << 20))
    assert b.set("/big", b"still here").version == 2
    assert a.retry(a.get, "/big")[0] == b"still here"
    name = "ä€ - a name"
    a.create("/" + name, name.encode())
    assert [b.get("/" + c)[0].decode() for c in b.get_children("/") if c != "big"] == [name]
    refused(e.BadArgumentsError, a.create, "/𝄞")  # beyond what a Java char holds
    # Many children: the list comes whole.
    for reply in [a.create_async("/big/child-%04d" % i) for i in range(2000)]:
        reply.get(30)
    assert len(b.get_children("/big")) == 2000


def four_letter_words(w):
    a = w.client()
    assert a.command(b"ruok") == "imok"
    stat = a.command(b"stat")
    assert "Zookeeper version: " in stat and "Clients:" in stat and "Mode: standalone" in stat, stat
    assert "Mode: standalone" in a.command(b"srvr")
    mntr = dict(line.split("\t", 1) for line in a.command(b"mntr").splitlines() if "\t" in line)
    assert a.server_version() == (3, 8, 0)
    assert mntr["zk_server_state"] == "standalone" and int(mntr["zk_znode_count"]) > 4, mntr


def read_only_client(w):
    """A client that would put up with a read-only server gets this one, which is none."""
    a = w.client(read_only=True)
    assert a.create("/n") == "/n"


SCENARIOS = scenarios([
    operations, many_requests, transactions, acls, sizes, four_letter_words, read_only_client,
])
