// What servers do in JavaScript: classes, closures, maps, strings, JSON, typed arrays, promises.
"use strict";
const crypto = require("crypto");

class Random {
    constructor(seed) { this.state = seed; }
    below(n) {
        this.state ^= this.state << 13;
        this.state ^= this.state >>> 17;
        this.state ^= this.state << 5;
        return (this.state >>> 0) % n;
    }
}

class Node {
    constructor(key) { this.key = key; this.left = null; this.right = null; }
}

class Tree {
    constructor() { this.root = null; this.size = 0; }
    add(key) {
        let at = this.root;
        if (!at) { this.root = new Node(key); this.size++; return; }
        for (;;) {
            if (key === at.key) return;
            const side = key < at.key ? "left" : "right";
            if (!at[side]) { at[side] = new Node(key); this.size++; return; }
            at = at[side];
        }
    }
    *keys(node = this.root) {
        if (!node) return;
        yield* this.keys(node.left);
        yield node.key;
        yield* this.keys(node.right);
    }
}

function trees(r) {
    const tree = new Tree();
    for (let i = 0; i < 60000; i++) tree.add(r.below(1 << 20));
    let sum = 0, n = 0;
    for (const key of tree.keys()) sum = (sum * 31 + key * ++n) % 1000003;
    return `${tree.size} ${sum}`;
}

function orders(r) {
    const people = new Map();
    for (let i = 0; i < 120000; i++) {
        const name = `customer-${r.below(5000)}`;
        if (!people.has(name)) people.set(name, []);
        people.get(name).push({item: r.below(300), price: r.below(10000) / 100, tags: ["a" + i % 7, "b" + i % 11]});
    }
    const totals = [...people].map(([name, list]) => ({
        name, total: list.reduce((sum, o) => sum + o.price, 0),
        tags: [...new Set(list.flatMap(o => o.tags))].sort().join(),
    }));
    totals.sort((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1));
    const text = JSON.stringify(totals);
    return crypto.createHash("sha256").update(JSON.stringify(JSON.parse(text))).digest("hex");
}

function words(r) {
    let text = "";
    for (let i = 0; i < 100000; i++) text += r.below(100000).toString(36) + (i % 13 ? " " : ".\n");
    const count = {};
    for (const word of text.match(/[a-z]+\d?[a-z]*/g)) count[word] = (count[word] || 0) + 1;
    const most = Object.entries(count).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 20);
    return most.join(" ") + text.replace(/(\w+) (\w+)/g, "$2 $1").split("\n").length;
}

function pixels() {
    const size = 512, a = new Float64Array(size * size), b = new Uint8Array(size * size);
    for (let i = 0; i < a.length; i++) a[i] = Math.sin(i / 97) * (i % size);
    for (let round = 0; round < 20; round++)
        for (let y = 1; y < size - 1; y++)
            for (let x = 1; x < size - 1; x++) {
                const i = y * size + x;
                a[i] = (a[i - 1] + a[i + 1] + a[i - size] + a[i + size]) / 4;
                b[i] = a[i] | 0;
            }
    return crypto.createHash("sha256").update(b).digest("hex");
}

async function chain(n) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum = (sum + await Promise.resolve(i)) % 1000003;
    return sum;
}

async function main() {
    const r = new Random(14);
    console.log(trees(r), orders(r), words(r), pixels(), await chain(200000));
}

main();
