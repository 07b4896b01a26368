#!/usr/bin/env python3
"""generate.py c|sql|git: what `bench.py --part real` compiles, what it feeds to SQLite, perl, xz, ripgrep and gojq,
and a history that git imports; the same bytes everywhere, so of a generator of our own."""
import sys

FUNCTIONS = 185  # some 3,000 lines
ROWS = 100_000
FILES, COMMITS = 150, 900
WORDS = ("amber bolt cedar delta ember fjord grain harbor inlet jasper kettle lumen marble nectar "
         "orchid pewter quartz ridge saddle timber umbra velvet willow yonder zephyr").split()


class Random:
    """xorshift64*: no Python's own, whose sequences are not promised."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        x = self.state
        x ^= x >> 12
        x = (x ^ x << 25) & (1 << 64) - 1
        x ^= x >> 27
        self.state = x
        return (x * 0x2545F4914F6CDD1D >> 32 & 0xffffffff) % n

    def of(self, things):
        return things[self.below(len(things))]


def operand(r):
    return r.of(("a", "b", "c", "s", "i", "t->key", "t->weight", f"{1 + r.below(999)}u"))


def expression(r, depth=2):
    if depth == 0 or r.below(5) == 0:
        return operand(r)
    left, right = expression(r, depth - 1), expression(r, depth - 1)
    operator = r.of(("+", "-", "*", "^", "|", "&", "/", ">>"))
    if operator == "/":
        right = f"(({right}) | 1)"
    if operator == ">>":
        right = str(1 + r.below(15))
    return f"({left} {operator} {right})"


def arithmetic(r, n):
    yield f"    s += {expression(r)};"
    yield f"    for (i = 0; i < {4 + r.below(60)}; i++) {{"
    yield f"        a += {expression(r)};"
    yield f"        if ((a ^ s) & {1 << r.below(12)}u)"
    yield f"            b ^= {expression(r)};"
    yield "        else"
    yield f"            s = s * {r.below(1000) * 2 + 3}u + c;"
    yield f"        table[(a + i) % {r.of((61, 127, 251))}] += s;"
    yield "    }"
    yield "    return a ^ b ^ s;"


def cases(r, n):
    yield f"    s ^= {expression(r)};"
    yield f"    switch ((a + s) % {8 + r.below(4)}) {{"
    for case in range(6):
        yield f"    case {case}: s += {expression(r)}; {r.of(('break;', 'a ^= s; break;', '/* on */'))}"
    yield f"    default: s ^= table[(b + i) % {r.of((61, 127, 251))}];"
    yield "    }"
    yield f"    return s + f{r.below(n)}(t->next, s, a, i);" if n else "    return s;"


def walk(r, n):
    yield "    for (struct item *p = t; p && i < 64; p = p->next, i++) {"
    yield f"        if (p->weight < {expression(r, 1)})"
    yield f"            p->sum += (double)p->key * {1 + r.below(9)}.{r.below(90) + 10} + {r.below(100)}.5;"
    yield "        else if (p->left)"
    yield f"            s += p->left->key ^ {expression(r, 1)};"
    yield f"        p->name[i & 15] = (char)(s >> {r.below(12)});"
    yield "    }"
    yield "    u32 found = (u32)(t->sum / 3.0) + (u32)strlen(t->name + (s & 7));"
    yield f"    return found + (a > b ? f{r.below(n)}(t, s, b, c) : c);" if n else "    return found + a + b + c;"


def floating(r, n):
    yield "    double m[4][4], v[4] = {a, b, c, t->sum};"
    yield "    for (i = 0; i < 4; i++)"
    yield "        for (u32 j = 0; j < 4; j++)"
    yield f"            m[i][j] = (double)((i * {1 + r.below(9)} + j) ^ (a & 15u)) / {1 + r.below(7)}.25;"
    yield f"    for (int round = 0; round < {1 + r.below(6)}; round++)"
    yield "        for (i = 0; i < 4; i++) {"
    yield "            double x = m[i][0] * v[0] + m[i][1] * v[1] + m[i][2] * v[2] + m[i][3] * v[3];"
    yield f"            v[i] = x > {r.below(9000)}.0 ? x * 0.125 : x + {expression(r, 1)};"
    yield "            s += (u32)(long)v[i];"
    yield "        }"
    yield "    return s;"


def c_file():
    r = Random(14)
    out = ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>", "",
           "typedef unsigned int u32;", "struct item {", "    struct item *next, *left;",
           "    u32 key, weight;", "    double sum;", "    char name[24];", "};",
           "static u32 table[251];", ""]
    for n in range(FUNCTIONS):
        # Some can be inlined, most cannot.
        out.append(f"{r.of(('static ', '', ''))}u32 f{n}(struct item *t, u32 a, u32 b, u32 c)")
        out += ["{", "    u32 s = a ^ c, i = b & 7;", *r.of((arithmetic, cases, walk, floating))(r, n), "}", ""]
    out += ["int main(int argc, char **argv)", "{", "    struct item *first = NULL;", "    u32 sum = 0;",
            "    for (int i = 0; i < 1000; i++) {",
            "        struct item *t = calloc(1, sizeof(*t));", "        if (!t)", "            return 1;",
            "        *t = (struct item){.next = first, .left = first, .key = (u32)i * 7919u};",
            "        first = t;", "    }"]
    out += [f"    sum ^= f{n}(first, sum, {r.below(1000)}u, (u32)argc);" for n in range(FUNCTIONS)]
    return out + ['    printf("%u\\n", sum);', "    return 0;", "}"]


def sql_file():
    r = Random(100_000)
    yield "CREATE TABLE rows(id INTEGER PRIMARY KEY, name TEXT, place INTEGER, price REAL);"
    yield "CREATE INDEX by_name ON rows(name, place);"
    for n in range(ROWS):
        if n % 1000 == 0:
            yield "BEGIN;"
        name = " ".join(r.of(WORDS) for _ in range(2 + r.below(3)))
        yield (f"INSERT INTO rows VALUES({n}, '{name}', {r.below(5000)}, "
               f"{r.below(100_000)}.{r.below(90) + 10});")
        if n % 1000 == 999:
            yield "COMMIT;"
    yield ("SELECT name, count(*), printf('%.2f', sum(price)) FROM rows WHERE place % 7 = 3 "
           "GROUP BY name ORDER BY 2 DESC, 1 LIMIT 50;")
    yield "SELECT count(*), sum(length(name)), sum(place) FROM rows;"
    yield "PRAGMA integrity_check;"


def git_stream():
    """For git fast-import: files of 20 to 200 lines, of which each commit changes some in one to four files."""
    r = Random(2005)

    def line():
        return " ".join(r.of(WORDS) for _ in range(3 + r.below(9)))

    files = [[line() for _ in range(20 + r.below(180))] for _ in range(FILES)]
    for n in range(COMMITS):
        changed = range(FILES) if n == 0 else sorted({r.below(FILES) for _ in range(1 + r.below(4))})
        text = f"{line()}\n\n{line()}"
        yield "commit refs/heads/main"
        yield f"committer {r.of(WORDS)} <nobody@example.org> {1_100_000_000 + n * 3600} +0000"
        yield f"data {len(text)}"
        yield text
        for k in changed:
            for _ in range(1 + r.below(6)):
                at = r.below(len(files[k]))
                files[k][at:at + r.below(3)] = [line() for _ in range(r.below(3))]
            text = "\n".join([*files[k], "end"])
            yield f"M 100644 inline {WORDS[k % 12]}/{WORDS[k % 23]}{k}"
            yield f"data {len(text)}"
            yield text


sys.stdout.writelines(line + "\n" for line in {"c": c_file, "sql": sql_file, "git": git_stream}[sys.argv[1]]())
