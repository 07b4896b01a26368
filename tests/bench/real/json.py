"""Documents to JSON and back: strings, dictionaries, C code under an interpreter."""
import sys

sys.path.pop(0)  # this folder: the library has a module of this file's name
import hashlib
import json
import re

ROUNDS = 16


def document(n):
    return {"id": n, "name": f"item {n} \u00e4\u20ac\u6f22", "tags": [f"tag{(n * k) % 97}" for k in range(6)],
            "size": {"width": n / 7, "height": n * 1.5, "deep": [[n, None], [True, n % 3 == 0]]},
            "text": "a line with \"quotes\" and a \\ in it\n" * (n % 4)}


def main():
    documents = [document(n) for n in range(4000)]
    sums = hashlib.sha256()
    for turn in range(ROUNDS):
        compact = json.dumps(documents, separators=(",", ":"))
        pretty = json.dumps(documents[turn::ROUNDS], indent=1, sort_keys=True, ensure_ascii=False)
        if json.loads(compact) != documents:
            raise SystemExit("json: what came back differs")
        words = re.sub(r'"tag(\d+)"', lambda m: str(int(m.group(1)) + turn), pretty)
        sums.update(compact.encode() + pretty.encode() + words.encode())
    print(sums.hexdigest())


main()
