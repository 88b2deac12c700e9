import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one process, which starts once instead of once a tool.
 *
 * A line of standard input is what the tool shall read, a class and its arguments, each in base64, separated by
 * spaces. The answer is one line: the exit code and, in base64, all that the tool printed. End of input ends the
 * process.
 */
public final class ToolBox {
    /** Ends a tool that asks to exit. Tools catch it and ask again, so only the first time counts. */
    private static final class Exited extends RuntimeException { }

    private static final ByteArrayOutputStream printed = new ByteArrayOutputStream();
    private static final List<Runnable> hooks = new ArrayList<>();
    private static Integer exitCode;
    private static int printedAtExit;

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        PrintStream screen = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(screen);
        System.setErr(screen);
        Exit.setExitProcedure((code, message) -> {
            if (exitCode == null) {
                if (message != null)
                    screen.println(message);
                exitCode = code;
                printedAtExit = printed.size();
            }
            throw new Exited();
        });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = Arrays.stream(line.split(" ")).map(ToolBox::decoded).toArray(String[]::new);
            printed.reset();
            exitCode = null;
            System.setIn(new ByteArrayInputStream(words[0].getBytes(StandardCharsets.UTF_8)));
            int code = run(words[1], Arrays.copyOfRange(words, 2, words.length));
            hooks.forEach(Runnable::run);
            hooks.clear();
            byte[] output = exitCode == null ? printed.toByteArray() : Arrays.copyOf(printed.toByteArray(), printedAtExit);
            answers.println((exitCode == null ? code : exitCode) + " " + Base64.getEncoder().encodeToString(output));
            answers.flush();
        }
        System.exit(0);
    }

    private static int run(String tool, String[] arguments) throws Exception {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException raised) {
            if (exitCode == null)
                raised.getCause().printStackTrace();
            return 70;
        }
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
