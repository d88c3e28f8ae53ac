import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Runs scenarios of Curator's recipes against one ZooKeeper: java Main HOST:PORT CONTROL ROUNDS.
 *
 * The first line on stdout is "scenarios" and the names of all. Those that shall run come on stdin, one on a line, and run at
 * the same time. Each ends with one line on stdout: "ok NAME", or "fail NAME TRACE" with the trace as a JSON string. Exit
 * code: 0 when all went well, 1 when one failed. CONTROL is where a proxy for bad weather can be had (Weather); ROUNDS
 * multiplies the work of scenarios that contend.
 */
final class Main {
    interface Scenario {
        void run(World w) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        Basics.addTo(scenarios);
        Locks.addTo(scenarios);
        Leaders.addTo(scenarios);
        Nodes.addTo(scenarios);
        Watches.addTo(scenarios);
        Caches.addTo(scenarios);
        Shared.addTo(scenarios);
        Sessions.addTo(scenarios);
        System.out.println("scenarios " + String.join(" ", scenarios.keySet()));

        AtomicBoolean failed = new AtomicBoolean();
        List<Thread> running = new ArrayList<>();
        BufferedReader names = new BufferedReader(new InputStreamReader(System.in));
        for (String line = names.readLine(); line != null; line = names.readLine()) {
            String name = line.trim();
            Thread t = new Thread(() -> {
                String said = "ok " + name;
                try (World w = new World(name, args[0], args[1], Integer.parseInt(args[2]))) {
                    scenarios.get(name).run(w);
                } catch (Throwable e) {
                    failed.set(true);
                    StringWriter trace = new StringWriter();
                    e.printStackTrace(new PrintWriter(trace));
                    said = "fail " + name + " " + json(trace.toString());
                }
                System.out.println(said);
            }, name);
            t.setDaemon(true);
            t.start();
            running.add(t);
        }
        for (Thread t : running) {
            t.join();
        }
        System.exit(failed.get() ? 1 : 0);
    }

    private static String json(String s) {
        StringBuilder b = new StringBuilder("\"");
        for (char c : s.toCharArray()) {
            if (c < ' ' || c == '"' || c == '\\' || c > '~') {
                b.append(String.format("\\u%04x", (int) c));
            } else {
                b.append(c);
            }
        }
        return b.append('"').toString();
    }
}
