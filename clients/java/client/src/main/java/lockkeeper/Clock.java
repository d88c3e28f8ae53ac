package lockkeeper;

import static java.nio.charset.StandardCharsets.US_ASCII;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.util.function.LongSupplier;

/**
 * A clock that never goes back, and goes on while the machine sleeps, which System.nanoTime may not do. What another clock gained on nanoTime
 * between two looks is added: that of /proc/uptime on Linux, and the time of day elsewhere. The latter also jumps when it is set: forward ends
 * leases early, back changes nothing.
 */
final class Clock {
    /** What the other clock gains in steps below this is how coarse it is. No sleep of a machine is as short. */
    private static final long COARSE = 30_000_000;

    private final LongSupplier nanos, other;
    private long lastNanos, lastOther, slept;

    Clock() {
        this(System::nanoTime, other());
    }

    /** For tests: the two clocks, in nanoseconds. */
    Clock(LongSupplier nanos, LongSupplier other) {
        this.nanos = nanos;
        this.other = other;
        lastNanos = nanos.getAsLong();
        lastOther = other.getAsLong();
    }

    /** Nanoseconds since some time in the past. */
    synchronized long now() {
        long before = nanos.getAsLong(), at = other.getAsLong(), after = nanos.getAsLong();
        long gained = at - lastOther - (after - lastNanos); // after: a pause between the two looks is no sleep
        if (gained > COARSE) {
            slept += gained;
        }
        lastNanos = before;
        lastOther = at;
        return after + slept;
    }

    private static LongSupplier other() {
        LongSupplier day = () -> System.currentTimeMillis() * 1_000_000;
        RandomAccessFile uptime;
        try {
            uptime = new RandomAccessFile("/proc/uptime", "r");
        } catch (IOException e) {
            return day;
        }
        byte[] text = new byte[32];
        return () -> {
            try {
                uptime.seek(0);
                int n = uptime.read(text);
                return (long) (Double.parseDouble(new String(text, 0, n, US_ASCII).split(" ")[0]) * 100 + 0.5) * 10_000_000;
            } catch (IOException | RuntimeException e) {
                return day.getAsLong(); // looks like a sleep of decades: what is held is lost
            }
        };
    }
}
