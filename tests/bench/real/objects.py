"""A net of constraints that is changed and settled again: objects, method calls, generators, sets."""

ROUNDS = 320


class Cell:
    def __init__(self, value):
        self.value, self.readers, self.writer = value, [], None


class Rule:
    """One cell follows from others."""

    def __init__(self, target, sources):
        self.target, self.sources, self.rank = target, sources, 0
        target.writer = self
        for source in sources:
            source.readers.append(self)

    def settle(self):
        value = self.compute()
        changed = value != self.target.value
        self.target.value = value
        return changed


class Sum(Rule):
    def compute(self):
        return sum(source.value for source in self.sources) % 1_000_003


class Scale(Rule):
    factor = 7

    def compute(self):
        return self.sources[0].value * self.factor % 65_521


class Largest(Rule):
    def compute(self):
        return max(source.value for source in self.sources)


class Net:
    def __init__(self, inputs, layers):
        self.inputs = [Cell(n) for n in range(inputs)]
        self.cells, kinds = list(self.inputs), (Sum, Scale, Largest)
        for layer in range(layers):
            before = self.cells[-inputs:]
            for n in range(inputs):
                cell = Cell(0)
                rule = kinds[(n + layer) % 3](cell, [before[(n * k + layer) % inputs] for k in (1, 3, 5)])
                rule.rank = layer
                self.cells.append(cell)

    def affected(self, cells):
        seen, stack = set(), list(cells)
        while stack:
            for rule in stack.pop().readers:
                if rule not in seen:
                    seen.add(rule)
                    stack.append(rule.target)
        return sorted(seen, key=lambda rule: rule.rank)

    def change(self, changes):
        for cell, value in changes:
            cell.value = value
        return sum(rule.settle() for rule in self.affected(cell for cell, _ in changes))


def main():
    net, settled = Net(60, 40), 0
    for turn in range(ROUNDS):
        settled += net.change([(net.inputs[(turn * 17 + k) % 60], turn * 31 + k) for k in range(4)])
    print(settled, *(cell.value for cell in net.cells[-60:]))


main()
