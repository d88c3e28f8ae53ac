// Package netfault is a TCP proxy for tests that can do to a connection what a network does: cut it, go silent, swallow
// bytes, be slow; and that knows enough of ZooKeeper's framing to do it at one exact request or reply. Only tests and
// test support may import it.
//
// # Faults
//
// Each state of the world after a fault has its own means, because "the write failed" and "the write was done and its
// answer lost" differ for a test, and are the same for the client:
//
//	failed                  the request never reaches the server    FailRequest, DropRequests
//	failed but persisted    it is executed, its reply is lost        FailReply, StallReplies then Cut
//	failed, persisted late  it is executed after the client has      HoldRequest, CutClients, then Heal
//	                        gone and come back
//	silence                 nothing gets through, nothing ends       Stall (a pulled cable)
//	refusal                 connections end, new ones end at once    Cut
//
// A refused connection is accepted and reset, for the listener keeps its port. Bytes that are stalled are held, first
// here (up to queueUnits reads or frames for each direction of a connection), then by the kernel, and are delivered by
// Heal, in order. Bytes that are swallowed leave a hole; a connection with a hole is reset by Heal.
//
// A call takes effect for everything that has not yet been passed on: one frame that is being written at that moment may
// still get through. Where a test needs it exact, an Observer decides; it is called in order, just before each frame is
// passed on.
//
// # Ownership
//
// One goroutine accepts. Each connection has one goroutine that dials and waits, and for each direction one that reads
// into a bounded queue and one that writes from it. Close ends them all and waits for them; it must not be called from
// an Observer. All else may be called from anywhere.
package netfault
