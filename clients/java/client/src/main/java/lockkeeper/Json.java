package lockkeeper;

import static java.util.stream.Collectors.joining;

import java.util.*;
import java.util.regex.*;
import java.util.stream.Stream;

/** A JSON object, as a gateway answers it: arrays are lists, numbers are Long or Double. */
final class Json {
    private static final int DEEPEST = 32;
    /**
     * A text (1), or a word or bracket (2). Commas and colons are read as space. Possessive, so that the length of a
     * text takes no stack.
     */
    private static final Pattern TOKEN = Pattern.compile("\\G[\\s,:]*+(?:\"((?:[^\"\\\\]++|\\\\.)*+)\"|([-+.\\w]++|[{}\\[\\]]))");
    private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u(\\p{XDigit}{4})|(.))"), ESCAPED = Pattern.compile("[\"\\\\\\p{Cntrl}]");
    private static final Object END = new Object();

    final Map<String, Object> members = new LinkedHashMap<>();
    long sent; // when the request was sent that this answers, by the clock

    /** Reads a text that is one object; an empty one of anything else, such as the page of a proxy. */
    static Json read(String text) {
        try {
            Matcher in = TOKEN.matcher(text);
            Object value = value(in, 0);
            if (value instanceof Json && text.substring(in.end()).isBlank()) { return (Json) value; }
        } catch (RuntimeException e) { // it is cut off, or has a number that is none
        }
        return new Json();
    }

    private static Object value(Matcher in, int depth) {
        if (depth > DEEPEST || !in.find()) { throw new IllegalArgumentException("JSON must be whole and no deeper than " + DEEPEST); }
        if (in.group(1) != null) { return ESCAPE.matcher(in.group(1)).replaceAll(Json::unescaped); }
        switch (in.group(2)) {
            case "}": case "]": return END;
            case "true": case "false": return in.group(2).equals("true");
            case "null": return null;
            case "[":
                List<Object> list = new ArrayList<>();
                for (Object v = value(in, depth + 1); v != END; v = value(in, depth + 1)) { list.add(v); }
                return list;
            case "{":
                Json object = new Json();
                for (Object k = value(in, depth + 1); k != END; k = value(in, depth + 1)) {
                    object.members.put((String) k, value(in, depth + 1));
                }
                return object;
            default: return in.group(2).matches("-?\\d+") ? (Object) Long.valueOf(in.group(2)) : Double.valueOf(in.group(2));
        }
    }

    private static String unescaped(MatchResult escape) {
        char c = escape.group(1) != null ? (char) Integer.parseInt(escape.group(1), 16)
                : "\"\\/\b\f\n\r\t".charAt("\"\\/bfnrt".indexOf(escape.group(2)));
        return Matcher.quoteReplacement(String.valueOf(c));
    }

    /** Writes maps, lists, texts, numbers and booleans. Members that are null are left out. */
    static String write(Object value) {
        if (value instanceof Map) {
            return ((Map<?, ?>) value).entrySet().stream().filter(e -> e.getValue() != null)
                    .map(e -> write(e.getKey()) + ":" + write(e.getValue())).collect(joining(",", "{", "}"));
        }
        if (value instanceof List) { return ((List<?>) value).stream().map(Json::write).collect(joining(",", "[", "]")); }
        if (!(value instanceof String)) { return String.valueOf(value); }
        return '"' + ESCAPED.matcher((String) value).replaceAll(m -> String.format("\\\\u%04x", (int) m.group().charAt(0))) + '"';
    }

    boolean has(String key) { return members.containsKey(key); }

    String text(String key) { return members.get(key) instanceof String ? (String) members.get(key) : ""; }

    /** It says since when the work of a period is done. */
    boolean done() { return Boolean.TRUE.equals(members.get("done")) && !text("at").isEmpty(); }

    long number(String key) { return members.get(key) instanceof Long ? (Long) members.get(key) : 0; }

    /** The objects in an array; none when there is no array. */
    Stream<Json> objects(String key) {
        Object value = members.get(key);
        return value instanceof List ? ((List<?>) value).stream().filter(Json.class::isInstance).map(Json.class::cast) : Stream.empty();
    }
}
