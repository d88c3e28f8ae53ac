import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/**
 * A proxy before the server, to connect through. The test that runs this program holds it; orders are lines: cut, stall,
 * reset, heal, fail-reply OP; and restart, for the server itself.
 */
final class Weather implements AutoCloseable {
    final String addr;
    private final Socket socket;
    private final BufferedReader answers;

    Weather(String control) throws Exception {
        int colon = control.lastIndexOf(':');
        socket = new Socket(control.substring(0, colon), Integer.parseInt(control.substring(colon + 1)));
        answers = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
        addr = answers.readLine();
    }

    synchronized void order(String order) throws Exception {
        socket.getOutputStream().write((order + "\n").getBytes(StandardCharsets.US_ASCII));
        String answer = answers.readLine();
        World.check("ok".equals(answer), order + ": " + answer);
    }

    @Override
    public void close() throws Exception {
        socket.close();
    }
}
