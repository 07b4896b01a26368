import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Started from its source, so the compiler is a part of the work: classes loaded, code compiled just in time. */
public class Java {
    interface Shape {
        double area();
    }

    record Circle(double radius) implements Shape {
        public double area() {
            return Math.PI * radius * radius;
        }
    }

    record Box(double width, double height) implements Shape {
        public double area() {
            return width * height;
        }
    }

    static int state = 14;

    static int below(int n) {
        state ^= state << 13;
        state ^= state >>> 17;
        state ^= state << 5;
        return Integer.remainderUnsigned(state, n);
    }

    static long shapes() {
        List<Shape> all = new ArrayList<>();
        for (int i = 0; i < 200_000; i++)
            all.add(i % 3 == 0 ? new Circle(below(100)) : new Box(below(100), below(50)));
        double sum = 0;
        for (int round = 0; round < 20; round++)
            for (Shape shape : all)
                sum += shape.area();
        return (long) sum;
    }

    static String maps() {
        Map<String, List<Integer>> groups = new HashMap<>();
        for (int i = 0; i < 300_000; i++)
            groups.computeIfAbsent("key" + below(20_000), k -> new ArrayList<>()).add(i);
        TreeMap<Integer, Integer> sizes = new TreeMap<>();
        for (List<Integer> group : groups.values()) {
            Collections.reverse(group);
            sizes.merge(group.size(), group.get(0) % 1000, Integer::sum);
        }
        return sizes.toString();
    }

    static long streams() {
        String text = IntStream.range(0, 100_000).mapToObj(i -> Integer.toString(below(1 << 20), 36))
            .collect(Collectors.joining(" "));
        Map<Integer, Long> lengths = text.chars().boxed().collect(Collectors.groupingBy(c -> c, Collectors.counting()));
        return lengths.entrySet().stream().mapToLong(e -> e.getKey() * e.getValue()).sum() + text.split(" ").length;
    }

    static long matrix(int n) {
        double[][] a = new double[n][n], b = new double[n][n], c = new double[n][n];
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                a[i][j] = i + 2.0 * j;
                b[i][j] = i - 3.0 * j;
            }
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++)
                for (int j = 0; j < n; j++)
                    c[i][j] += a[i][k] * b[k][j];
        double sum = 0;
        for (int i = 0; i < n; i++)
            sum += c[i][n - 1 - i];
        return (long) sum;
    }

    public static void main(String[] args) {
        System.out.println(shapes());
        System.out.println(maps());
        System.out.println(streams());
        System.out.println(matrix(300));
    }
}
