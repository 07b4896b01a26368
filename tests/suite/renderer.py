"""The GPU renderer, reprise-gpu, through its client: pixels, completion, errors, its sandbox, its death."""
import os
import pathlib
import time

from suite.harness import rnd, test

FUZZ = 5000  # messages


def tool(t, name):
    return str(t.build / "tests" / "tools" / name)


def gpu(t):
    return str(t.build / "reprise-gpu")


def draw(t, *arguments, driver="llvmpipe", code=0, **more):
    """renderer_draw; skips where this host cannot render."""
    if not hasattr(t, "renders"):
        probe = t.run(tool(t, "renderer_draw"), "-p", gpu(t), "about", code=None)
        if probe.code and "install" in probe.error:
            t.skip(probe.error.strip().splitlines()[-1])
        t.renders = True
    options = ("-l",) if driver == "softpipe" else ()
    return t.run(tool(t, "renderer_draw"), "-p", gpu(t), "-d", driver, *options, *arguments,
                 code=code, **more)


def without_driver(t):
    """What hides Mesa's drivers: files of their own (22), a library of its EGL (25)."""
    empty = t.dir / "empty"
    empty.mkdir(exist_ok=True)
    for library in pathlib.Path("/usr/lib/x86_64-linux-gnu").glob("libgallium-*.so"):
        (empty / library.name).write_text("no library\n")
    return {"LIBGL_DRIVERS_PATH": empty, "LD_LIBRARY_PATH": empty}


@test("renderer/model", cost=2)
def model(t):
    """The capabilities are a constant: the same on every driver, and never changed."""
    for driver in ("llvmpipe", "softpipe"):
        out = draw(t, "about", driver=driver).text
        t.has(out, "^capset 1 version 1: 308 bytes f0beb7b64f48b3c1$")
        t.has(out, f"^driver: {driver}")
    t.has(out, "^missing: 1 samples: 4, has 1$")
    strict = t.run(tool(t, "renderer_draw"), "-p", gpu(t), "-d", "softpipe", "about", code=1)
    t.has(strict.error, "lacks what capability model 2 .*samples: 4, has 1")


@test("renderer/triangle", cost=4)
def triangle(t):
    """Known pixels; the same picture in every process, and on any number of threads."""
    first = draw(t, "triangle", 5).text
    t.equal(len(set(first.split()[2::3])), 5, "the number of different frames")
    t.equal(draw(t, "triangle", 5).text, first, "a second run")
    t.equal(t.run("taskset", "-c", str(min(os.sched_getaffinity(0))),
                  tool(t, "renderer_draw"), "-p", gpu(t), "triangle", 5).text, first,
            "a run on one CPU")
    # What is in the caller's environment must not reach the pixels.
    t.equal(draw(t, "triangle", 5, env={"LP_NATIVE_VECTOR_WIDTH": 128, "GALLIUM_DRIVER": "softpipe",
                                        "MESA_GL_VERSION_OVERRIDE": "3.3"}).text, first,
            "a run in another environment")
    draw(t, "triangle", driver="softpipe")


@test("renderer/transfers", cost=6)
def transfers(t):
    """Every shape and format comes back as it went up, where it belongs."""
    for driver in ("llvmpipe", "softpipe"):
        draw(t, "upload", driver=driver)
        t.has(draw(t, "formats", driver=driver).text, "^1(09|1[0-9]) formats come back$")
    draw(t, "pipeline")


@test("renderer/fences", cost=4)
def fences(t):
    """A fence comes when everything before is done, with results, and with what was written."""
    for driver in ("llvmpipe", "softpipe"):
        draw(t, "fences", driver=driver)
        t.has(draw(t, "query", driver=driver).text, "^queries: 16384 samples$")
        draw(t, "pushed", driver=driver)


@test("renderer/errors", cost=4)
def errors(t):
    """Wrong commands latch their context, are reported, and harm nobody else."""
    picture = draw(t, "triangle", 1).text.strip()
    latched = draw(t, "latch").text
    t.equal(latched.count("context error reported"), 5, "the number of errors reported")
    t.equal(latched.strip().splitlines()[-1], picture, "the picture of another context")
    t.equal(draw(t, "wrong").text.strip(), picture, "the picture after wrong requests and a reset")


@test("renderer/death", cost=8)
def death(t):
    """Killed at random moments, stopped, orphaned: always noticed, always ended."""
    draw(t, "about")
    seed = rnd.randrange(1 << 31)
    draw(t, "kill", 8, env={"SEED": seed})
    hung = draw(t, "-h", 1500, "hang").text
    t.has(hung, "^hangs: nothing came from it for [12] s$")
    pid = int(draw(t, "orphan", code=-9).text.splitlines()[-1])
    for _ in range(100):
        if not pathlib.Path(f"/proc/{pid}").exists():
            return
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[0]
        if state == "Z":  # nobody reaps it here
            return
        time.sleep(0.1)
    t.check(False, f"renderer {pid} lives on without its machine")


@test("renderer/sandbox", cost=2)
def sandbox(t):
    """Once it renders it can open, connect to, start nothing."""
    draw(t, "about")
    out = t.run(gpu(t), "--check").text
    t.has(out, "^sandbox: holds$")
    t.has(out, "^missing from capability model 2: nothing$")


@test("renderer/host", cost=2)
def host(t):
    """A host without a driver, without EGL, without the program: says what to install."""
    broken = t.dir / "lib"
    broken.mkdir()
    (broken / "libEGL.so.1").write_text("no library\n")
    program = (tool(t, "renderer_draw"), "-p", gpu(t))
    none = t.run(*program, "about", code=1, env=without_driver(t))
    t.has(none.error, "finds no driver for 'llvmpipe'.*install .*libgl1-mesa-dri")
    none = t.run(*program, "about", code=1, env={"LD_LIBRARY_PATH": broken})
    t.has(none.error, "no EGL on this host .*install libegl1")
    none = t.run(*program, "-d", "voodoo", "about", code=1)
    t.has(none.error, "no driver 'voodoo': give llvmpipe, softpipe or device:PATH")
    none = t.run(*program, "-d", "device:/nonexistent", "about", code=1)
    t.has(none.error, "cannot open the render node '/nonexistent': No such file")
    none = t.run(program[0], "-p", t.dir / "none", "about", code=1)
    t.has(none.error, "cannot start the renderer '.*/none': No such file")
    none = t.run(program[0], "-p", "/bin/false", "about", code=1)
    t.has(none.error, "the renderer did not start: ended with status 1")
    none = t.run(program[0], "-p", "/bin/echo", "about", code=1)
    t.has(none.error, "the renderer did not start: ended with status 0")
    none = t.run(gpu(t), code=2)
    t.has(none.error, "started by reprise, not by hand")
    t.run(gpu(t), "--driver", code=(1, 2, 64))


@test("renderer/nonsense", cost=15)
def nonsense(t):
    """Requests that no client sends, mutated commands, a renderer that lies."""
    draw(t, "about")
    seed = rnd.randrange(1 << 31)
    fuzz = (tool(t, "renderer_fuzz"), "-p", gpu(t))
    t.run(*fuzz, seed, FUZZ // t.slow, timeout=300)
    t.run(*fuzz, "-c", seed, 100 // t.slow, timeout=300)
    t.run(*fuzz, "-r", seed, 40, timeout=300)
