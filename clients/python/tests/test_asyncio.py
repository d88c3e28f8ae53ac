"""The end of a lease stops the task of its block, and cancellation from outside stays cancellation."""

import asyncio
import random
import sys
import threading
import time
import unittest

from fake import Gateway, lockkeeper, until
from test_block import ROUNDS


class Async(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.gateway = Gateway()
        self.client = self.gateway.client()
        self.addCleanup(self.gateway.close)

    def end_later(self, lease, after=0.1):
        timer = threading.Timer(after, self.gateway.end, (lease.id,))
        timer.daemon = True
        timer.start()

    async def test_a_block_runs_while_the_lock_is_held_and_releases_it(self):
        async with self.client.lock("report") as lease:
            self.assertTrue(lease.held)
            await asyncio.sleep(0.01)
        self.assertEqual(self.gateway.released, [lease.id])

    async def test_the_end_of_the_lease_cancels_the_task_and_leaves_the_block_as_LeaseLost(self):
        begun = time.monotonic()
        with self.assertRaises(lockkeeper.LeaseLost) as lost:
            async with self.client.lock("report") as lease:
                self.end_later(lease)
                await asyncio.sleep(20)
        self.assertEqual((lost.exception.reason, lost.exception.by), ("revoked", "token:ops"))
        self.assertLess(time.monotonic() - begun, 5)
        await asyncio.sleep(0.01)  # the task is not cancelled any more
        if hasattr(asyncio.current_task(), "cancelling"):
            self.assertEqual(asyncio.current_task().cancelling(), 0)

    async def test_a_block_that_swallowed_the_cancellation_ends_with_LeaseLost(self):
        with self.assertRaises(lockkeeper.LeaseLost):
            async with self.client.lock("report") as lease:
                self.end_later(lease)
                try:
                    await asyncio.sleep(20)
                except asyncio.CancelledError:
                    pass
        await asyncio.sleep(0.01)

    async def test_cancellation_from_outside_stays_cancellation_and_releases_the_lock(self):
        entered = asyncio.Event()

        async def work():
            async with self.client.lock("report"):
                entered.set()
                await asyncio.sleep(20)
        task = asyncio.ensure_future(work())
        await entered.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(len(self.gateway.released), 1)

    async def test_cancellation_from_outside_stays_cancellation_also_when_the_lease_is_lost(self):
        entered, lost = asyncio.Event(), asyncio.Event()

        async def work():
            async with self.client.lock("report") as lease:
                entered.set()
                self.gateway.end(lease.id)
                try:
                    await asyncio.sleep(20)
                finally:
                    lost.set()
                    await asyncio.sleep(20)
        task = asyncio.ensure_future(work())
        await lost.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task

    async def test_a_timeout_around_the_block_stays_a_timeout(self):
        with self.assertRaises(asyncio.TimeoutError):
            async def work():
                async with self.client.lock("report"):
                    await asyncio.sleep(20)
            await asyncio.wait_for(work(), 0.3)
        self.assertEqual(len(self.gateway.released), 1)

    async def test_a_task_that_is_cancelled_while_it_waits_leaves_the_queue(self):
        self.gateway.waiting = 3
        places = []

        async def work():
            async with self.client.lock("report", on_queued=places.append):
                self.fail("the lock is held by others")
        task = asyncio.ensure_future(work())
        while not places:
            await asyncio.sleep(0.01)
        begun = time.monotonic()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertLess(time.monotonic() - begun, 2)
        self.assertEqual((places, len(self.gateway.released)), ([3], 1))

    async def test_many_tasks_wait_at_once_and_do_not_stop_each_other(self):
        self.gateway.waiting = 1

        async def work():
            async with self.client.lock("report"):
                return 1
        tasks = [asyncio.ensure_future(work()) for _ in range(60)]
        while len(self.gateway.keys) < 60:
            await asyncio.sleep(0.01)
        with self.gateway.mutex:
            self.gateway.waiting = 0
            self.gateway.mutex.notify_all()
        self.assertEqual(sum(await asyncio.gather(*tasks)), 60)

    async def test_heartbeats_go_on_while_the_loop_is_blocked_and_the_loss_comes_afterwards(self):
        self.gateway.ttl_ms = 1500
        with self.assertRaises(lockkeeper.LeaseLost):
            async with self.client.lock("report") as lease:
                time.sleep(2)
                self.assertTrue(lease.held)
                self.gateway.end(lease.id)
                until(lambda: not lease.held)
                await asyncio.sleep(20)

    async def test_a_block_without_async_is_refused_in_an_event_loop(self):
        with self.assertRaisesRegex(RuntimeError, "async with"):
            with self.client.lock("report"):
                pass
        self.assertEqual(self.gateway.keys, [])

    async def test_an_election_begins_again_when_the_lease_is_lost(self):
        terms = []

        async def lead(lease):
            terms.append(lease.id)
            if len(terms) == 1:
                self.gateway.end(lease.id)
                await asyncio.sleep(20)
            return "done"
        self.assertEqual(await self.client.aelect("leader", lead), "done")
        self.assertEqual(len(terms), 2)

    async def test_the_loss_of_another_lease_ends_an_election(self):
        terms, others = [], []

        async def lead(lease):
            terms.append(lease.id)
            self.assertEqual(len(terms), 1)
            async with self.client.lock("other") as other:
                others.append(other.id)
                self.gateway.end(other.id)
                await asyncio.sleep(20)
        with self.assertRaises(lockkeeper.LeaseLost) as lost:
            await self.client.aelect("leader", lead)
        self.assertEqual([lost.exception.lease_id], others)
        self.assertEqual(self.gateway.released, terms)

    async def test_the_loss_at_any_moment_around_the_end_of_the_block_is_in_the_block_or_not_at_all(self):
        dice, lost = random.Random(4), 0
        for _ in range(ROUNDS):
            try:
                async with self.client.lock("report") as lease:
                    timer = threading.Timer(dice.uniform(0, 0.02), lease._lose, ("revoked",))
                    timer.daemon = True
                    timer.start()
                    await asyncio.sleep(dice.uniform(0, 0.02))
            except lockkeeper.LeaseLost:
                lost += 1
            for _ in range(3):
                await asyncio.sleep(0)
            timer.join()
            self.gateway.end(lease.id)
        self.assertTrue(0 < lost < ROUNDS, lost)


if __name__ == "__main__":
    sys.exit(unittest.main())
