"""Bodies that attract each other: floating point, lists, an interpreter's loop."""

STEPS = 150_000


def start():
    bodies = []
    for n in range(5):
        angle = 1.0 + n * 1.3
        bodies.append([4.0 * n + angle, angle * angle - n, 0.1 * n,
                       0.3 * n - 0.2, 0.5 - 0.1 * n, 0.01 * n, 40.0 if n == 0 else 0.01 / n])
    return bodies


def energy(bodies):
    total = 0.0
    for i, (x, y, z, vx, vy, vz, mass) in enumerate(bodies):
        total += 0.5 * mass * (vx * vx + vy * vy + vz * vz)
        for a, b, c, _, _, _, other in bodies[i + 1:]:
            total -= mass * other / ((x - a) ** 2 + (y - b) ** 2 + (z - c) ** 2) ** 0.5
    return total


def advance(pairs, bodies, dt):
    for p, q in pairs:
        dx, dy, dz = p[0] - q[0], p[1] - q[1], p[2] - q[2]
        force = dt / (dx * dx + dy * dy + dz * dz + 0.01) ** 1.5
        pull, push = q[6] * force, p[6] * force
        p[3] -= dx * pull
        p[4] -= dy * pull
        p[5] -= dz * pull
        q[3] += dx * push
        q[4] += dy * push
        q[5] += dz * push
    for body in bodies:
        body[0] += dt * body[3]
        body[1] += dt * body[4]
        body[2] += dt * body[5]


def main():
    bodies = start()
    pairs = [(p, q) for i, p in enumerate(bodies) for q in bodies[i + 1:]]
    print(energy(bodies).hex())
    for _ in range(STEPS):
        advance(pairs, bodies, 0.001)
    print(energy(bodies).hex())


main()
