package lockkeeper;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads and writes JSON: objects are maps, arrays are lists, numbers are Long or Double. */
final class Json {
    private static final int DEEPEST = 32;
    private final String text;
    private int at, depth;

    private Json(String text) {
        this.text = text;
    }

    /** Reads a text that is one object; anything else is an IOException. */
    @SuppressWarnings("unchecked")
    static Map<String, Object> object(String text) throws IOException {
        try {
            Json json = new Json(text);
            Object value = json.value();
            if (value instanceof Map && json.peek() == 0) {
                return (Map<String, Object>) value;
            }
        } catch (RuntimeException e) { // the text ends early, or a number is none
        }
        throw new IOException("the answer is not a JSON object");
    }

    private Object value() {
        char c = peek();
        switch (c) {
            case '{':
            case '[':
                return collection(c == '{' ? new LinkedHashMap<>() : null, new ArrayList<>());
            case '"':
                return string();
            default:
                int from = at;
                while (at < text.length() && "+-.".indexOf(text.charAt(at)) >= 0 || Character.isLetterOrDigit(text.charAt(at))) {
                    at++;
                }
                String word = text.substring(from, at);
                if (word.equals("true") || word.equals("false") || word.equals("null")) {
                    return word.equals("null") ? null : (Object) word.equals("true");
                }
                return word.matches("-?[0-9]+") ? (Object) Long.valueOf(word) : Double.valueOf(word);
        }
    }

    private Object collection(Map<String, Object> map, List<Object> list) {
        char end = map == null ? ']' : '}';
        require(++depth < DEEPEST);
        at++;
        for (boolean first = true; peek() != end; first = false) {
            require(first || text.charAt(at++) == ',');
            String key = map == null || peek() != '"' ? null : string();
            require(map == null || key != null && peek() == ':' && at++ > 0);
            Object value = value();
            if (map == null) {
                list.add(value);
            } else {
                map.put(key, value);
            }
        }
        at++;
        depth--;
        return map == null ? list : map;
    }

    private String string() {
        StringBuilder s = new StringBuilder();
        for (at++;; ) {
            char c = text.charAt(at++);
            if (c == '"') {
                return s.toString();
            } else if (c == '\\') {
                c = text.charAt(at++);
                if (c == 'u') {
                    c = (char) Integer.parseInt(text.substring(at, at += 4), 16);
                } else {
                    int escape = "\"\\/bfnrt".indexOf(c);
                    c = "\"\\/\b\f\n\r\t".charAt(escape);
                }
            }
            s.append(c);
        }
    }

    /** The next character that is not white, which is not taken; 0 at the end. */
    private char peek() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private static void require(boolean ok) {
        if (!ok) {
            throw new IllegalArgumentException();
        }
    }

    /** Writes maps, lists, texts, numbers and booleans. Members that are null are left out. */
    static String write(Object value) {
        StringBuilder s = new StringBuilder();
        if (value instanceof Map) {
            ((Map<?, ?>) value).forEach((k, v) -> s.append(v == null ? "" : (s.length() == 0 ? "" : ",") + write(k) + ":" + write(v)));
            return "{" + s + "}";
        } else if (value instanceof List) {
            ((List<?>) value).forEach(v -> s.append(s.length() == 0 ? "" : ",").append(write(v)));
            return "[" + s + "]";
        } else if (!(value instanceof String)) {
            return String.valueOf(value);
        }
        for (char c : ((String) value).toCharArray()) {
            s.append(c == '"' || c == '\\' ? "\\" + c : c < ' ' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return "\"" + s + "\"";
    }

    static String text(Map<String, Object> object, String key) {
        Object value = object.get(key);
        return value instanceof String ? (String) value : "";
    }

    static long number(Map<String, Object> object, String key) {
        Object value = object.get(key);
        return value instanceof Number ? ((Number) value).longValue() : 0;
    }

    /** The objects in the array at key; none when it is no array. */
    @SuppressWarnings("unchecked")
    static List<Map<String, Object>> objects(Map<String, Object> object, String key) {
        List<Map<String, Object>> found = new ArrayList<>();
        Object value = object.get(key);
        for (Object element : value instanceof List ? (List<?>) value : List.of()) {
            if (element instanceof Map) {
                found.add((Map<String, Object>) element);
            }
        }
        return found;
    }
}
