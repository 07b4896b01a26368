"""Streams of GPU commands, drawn: driving a renderer, and the verbs of `reprise gpu` that do."""
from suite.harness import test


def renderer(t):
    """The renderer of this build; skips where this host cannot render."""
    program = t.build / "reprise-gpu"
    probe = t.run(program, "--check", code=None)
    if probe.code:
        t.skip((probe.error.strip() or probe.text.strip() or "no renderer").splitlines()[-1])
    return program


@test("gpu-play/drive", cost=2)
def drive(t):
    """Commands as a device takes them: 2D resources and 3D ones, orientation, uploads, replies."""
    t.run(t.build / "tests" / "tools" / "gpu_drive", renderer(t))
