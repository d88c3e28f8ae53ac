package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"lockkeeper/client"
)

func fromEnv() *client.Client {
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// writeReport is work under a lock: it stops when its context ends, and what it writes to refuses a fencing token that is lower than
// the highest that it has seen.
func writeReport(ctx context.Context, _ uint64) error {
	for part := 1; part <= 2; part++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fmt.Println("part", part)
	}
	return nil
}

// The work runs while the lock is held. It looks at its context, and sends the fencing token with what it writes.
func ExampleClient_Do() {
	c, err := client.FromEnv() // LOCKKEEPER_URL, LOCKKEEPER_TOKEN
	if err != nil {
		log.Fatal(err)
	}
	err = c.Do(context.Background(), "report", func(ctx context.Context, lease *client.Lease) error {
		return writeReport(ctx, lease.Fence())
	})
	fmt.Println(err)
	// Output:
	// part 1
	// part 2
	// <nil>
}

// An administrator breaks the lease: the work is cancelled, and Do says who ended it.
func ExampleLeaseLost() {
	c := fromEnv()
	err := c.Do(context.Background(), "import", func(ctx context.Context, lease *client.Lease) error {
		request := client.Request{Method: "POST", Path: "/v1/leases/" + lease.ID() + "/break?reason=maintenance"}
		if err := c.Call(ctx, request, nil); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	var lost *client.LeaseLost
	if errors.As(err, &lost) {
		fmt.Println(lost.Reason, "by", lost.By)
	}
	// Output: revoked by 127.0.0.1
}

// The lock is taken if it is free.
func ExampleClient_TryAcquire() {
	c, ctx := fromEnv(), context.Background()
	lease, err := c.TryAcquire(ctx, "migration", client.Owner("deploy-7"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.TryAcquire(ctx, "migration", client.Owner("deploy-8"))
	var taken *client.NotAcquired
	if errors.As(err, &taken) {
		fmt.Println("held by", taken.Holders[0].Owner)
	}
	fmt.Println(lease.Release(ctx))
	// Output:
	// held by deploy-7
	// <nil>
}

// Readers hold a lock together. A writer takes it without Shared, and waits for all of them.
func ExampleShared() {
	c, ctx := fromEnv(), context.Background()
	one, err := c.TryAcquire(ctx, "catalogue", client.Shared())
	if err != nil {
		log.Fatal(err)
	}
	two, err := c.TryAcquire(ctx, "catalogue", client.Shared())
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.TryAcquire(ctx, "catalogue")
	fmt.Println(one.Held(), two.Held(), err != nil)
	_, _ = one.Release(ctx), two.Release(ctx)
	// Output: true true true
}

// At most two at once.
func ExamplePermits() {
	c := fromEnv()
	var mu sync.Mutex
	var running, most int
	var workers sync.WaitGroup
	for range 5 {
		workers.Go(func() {
			_ = c.Do(context.Background(), "converter", func(context.Context, *client.Lease) error {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
				mu.Lock()
				running--
				mu.Unlock()
				return nil
			}, client.Permits(1, 2))
		})
	}
	workers.Wait()
	fmt.Println(most <= 2)
	// Output: true
}

// Both accounts or none. Another program that names them in the other order does not block this one for good.
func ExampleClient_AcquireAll() {
	c, ctx := fromEnv(), context.Background()
	lease, err := c.AcquireAll(ctx, []client.Lock{{Name: "account:7"}, {Name: "account:8"}, {Name: "rates", Shared: true}}, client.Wait(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lease.FenceOf("default", "account:8") > 0, lease.Release(ctx))
	// Output: true <nil>
}

// The leader works until it resigns. One that loses its lease is a candidate again.
func ExampleClient_Elect() {
	c := fromEnv()
	err := c.Elect(context.Background(), "scheduler", func(ctx context.Context, lease *client.Lease) error {
		fmt.Println("leading, in a term with a number:", lease.Fence() > 0)
		return nil // resigns
	}, client.Metadata("10.0.0.7:8080"))
	fmt.Println(err)
	// Output:
	// leading, in a term with a number: true
	// <nil>
}

// A library that takes a sync.Locker. It cannot be told that its lock is lost, so the process ends then.
func ExampleClient_Locker() {
	locker := fromEnv().Locker("cache", func(err error) { log.Fatal(err) })
	locker.Lock()
	fmt.Println("one process at a time")
	locker.Unlock()
	// Output: one process at a time
}

// A holder that is asked to release its lease finishes what it has begun.
func ExampleOnRevoke() {
	c := fromEnv()
	finish := make(chan client.Revocation, 1)
	err := c.Do(context.Background(), "batch", func(ctx context.Context, _ *client.Lease) error {
		if err := c.Call(ctx, client.Request{Method: "POST", Path: "/v1/locks/batch/revoke?reason=deploy"}, nil); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case asked := <-finish:
			fmt.Printf("asked by %s: %s\n", asked.By, asked.Reason)
			return nil
		}
	}, client.OnRevoke(func(asked client.Revocation) { finish <- asked }))
	fmt.Println(err)
	// Output:
	// asked by 127.0.0.1: deploy
	// <nil>
}
