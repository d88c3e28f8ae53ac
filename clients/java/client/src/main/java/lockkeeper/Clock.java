package lockkeeper;

import static java.nio.charset.StandardCharsets.US_ASCII;

import java.io.*;

/**
 * A clock that never goes back, and goes on while the machine sleeps, which System.nanoTime may not do. What another
 * clock gains on nanoTime between two looks is added: /proc/uptime on Linux, the time of day elsewhere. The latter also
 * jumps when it is set: forward ends leases early, back changes nothing.
 */
class Clock {
    /**
     * The other clock is coarse: what it gains below this is nothing. No machine sleeps for so short a time. In
     * nanoseconds.
     */
    private static final long COARSE = 30_000_000;
    private final RandomAccessFile uptime = open();
    private long last = nanos(), lastOther = other(), slept;

    /** Nanoseconds since some time in the past. */
    synchronized long now() {
        long before = nanos(), at = other(), after = nanos();
        long gained = at - lastOther - (after - last); // from before the last look to after this one: a slow look is no sleep
        slept += gained > COARSE ? gained : 0;
        last = before;
        lastOther = at;
        return after + slept;
    }

    /** For tests to replace, as other is. */
    long nanos() { return System.nanoTime(); }

    /** What the platform has beside nanoTime. */
    long other() {
        byte[] text = new byte[32]; // such as "350735.47 234388.90\n"
        try {
            uptime.seek(0);
            return (long) (Double.parseDouble(new String(text, 0, uptime.read(text), US_ASCII).split(" ")[0]) * 1e9);
        } catch (IOException | RuntimeException e) { // where this worked before, it looks like a sleep of decades: every lease is lost
            return System.currentTimeMillis() * 1_000_000;
        }
    }

    private static RandomAccessFile open() {
        try { return new RandomAccessFile("/proc/uptime", "r"); } catch (IOException e) { return null; }
    }
}
