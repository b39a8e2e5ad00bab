"""Outliving the sandbox, breaking its supervisor, exhausting it, changing its mind."""

import signal
import time

from harness import plant
from harness.checks import absent, no_survivors, unchanged
from harness.model import (DENIED, HIDDEN, NO_PROCESS, TIERS, Attack, Session, bare, granted, no_control)
from harness.process import Run, write_program

FIELD = "field survey §4, lifecycle"
RULE8 = "DESIGN.md rule 8: everything dies together"
RULE1 = "DESIGN.md rule 1: fail closed"
RULE2 = "DESIGN.md rule 2: policy never comes from inside"
STARTED = frozenset({"started"})
LEFT = bare("started", detects=True)
GONE = (no_survivors,)
WRITE_ALL = 'extends = ["default"]\n[filesystem]\nread = ["/"]\nwrite = ["/", "{out}"]\n'
NEST = "{ws}/rf run {more} -w {out} -- {P} append {out}/victim.txt || echo ATTEMPT result=refused"


def kill_launcher(number: int):
    def on_ready(_world, run) -> None:
        run.kill(number)

    return on_ready


def ended(name: str, what: str, act, **more) -> Attack:
    """Leaves a daemon, and is ended in some way: nothing may be left."""
    return Attack(f"lifecycle/{name}", what, act, more.pop("refusals", STARTED),
                  source=more.pop("source", RULE8), checks=more.pop("checks", GONE),
                  control=more.pop("control", LEFT), **more)


def own_binary(world) -> None:
    """A ringfence inside the workspace."""
    write_program(world.ws / "rf", world.ringfence.read_bytes())


def nested(name: str, what: str, more: str = "") -> Attack:
    return Attack(f"lifecycle/nested-{name}", what, NEST.replace("{more}", more),
                  HIDDEN | {"refused"}, source="INTERFACE.md: a sandbox inside a sandbox",
                  setup=(own_binary,), ringfence_only=True)


def without(layer: str, what: str) -> Attack:
    """On a kernel that lacks a layer: refusing to start is right, and so is holding without it."""
    return Attack(f"lifecycle/without-{layer}", what,
                  "{P} append {out}/victim.txt; {P} io_uring; {P} bpf_map",
                  HIDDEN | DENIED, source=RULE1, before=("{P}", "without", layer),
                  may_refuse=TIERS, ringfence_only=True, control=bare())


def killed_while_starting(world, sandbox, tier) -> list[str]:
    """SIGKILL to the launcher at twelve moments of a start. What is left, the runner then finds."""
    for step in range(12):
        command = sandbox.command(world, tier, (), world.command(("daemon_and_stay", "{id}")))
        run = Run(command, world.user, str(world.ws), world.env({}))
        moment = time.monotonic() + step * 0.0007
        while time.monotonic() < moment:
            pass
        run.kill(signal.SIGKILL)
        run.finish()
    return []


ATTACKS = (
    ended("daemon", "forks twice, leaves the session, and lets the command end",
          ("daemon", "{id}")),
    ended("sibling", "makes a child of its parent, whom nobody expects", ("sibling", "{id}"),
          refusals=STARTED | {"EINVAL", "EPERM"}, control=LEFT),
    ended("daemon-launcher-killed", "outlives the SIGKILL of the launcher",
          ("daemon_and_stay", "{id}"), on_ready=kill_launcher(signal.SIGKILL)),
    ended("daemon-launcher-terminated", "outlives the end of the launcher by SIGTERM",
          ("daemon_and_stay", "{id}", "polite"), on_ready=kill_launcher(signal.SIGTERM)),
    ended("daemon-launcher-hung-up", "outlives the end of the launcher by SIGHUP",
          ("daemon_and_stay", "{id}", "polite"), on_ready=kill_launcher(signal.SIGHUP)),
    ended("daemon-timeout", "outlives the timeout by setsid", ("daemon_and_stay", "{id}"),
          flags=("--timeout", "1s"), expect_code=124,
          source="sandlock survey §4, by reading 8: setsid escapes timeout",
          control=bare("started", detects=True, act=("daemon", "{id}"))),
    ended("stopped-timeout", "stops itself, for the timeout to wait on",
          "{P} daemon {id}; kill -STOP $$", flags=("--timeout", "1s"), expect_code=124,
          control=bare("started", detects=True, act=("daemon", "{id}")),
          bare_unsafe="it would wait for ever"),
    Attack("lifecycle/killed-while-starting", "is killed at any moment of its start",
           ("stay", "{id}"), STARTED, source=RULE8, drive=killed_while_starting,
           control=no_control("nothing is attempted but the launch itself"),
           bare_unsafe="there is no launcher"),
    Attack("lifecycle/killed-leaves-created", "has made a protected name when the launcher is killed",
           "{P} plant .husky/pre-commit evil; {P} daemon_and_stay {id}", STARTED | HIDDEN,
           source=RULE8, on_ready=kill_launcher(signal.SIGKILL),
           may_succeed=("namespace", "process"), checks=(absent("{ws}/.husky"),)),
    Attack("lifecycle/killed-leaves-changed", "has changed a protected file when the launcher is killed",
           "{P} plant .git/hooks/pre-push evil; {P} plant .vscode/settings.json evil; "
           "{P} daemon_and_stay {id}", STARTED | HIDDEN, source=RULE8,
           on_ready=kill_launcher(signal.SIGKILL), may_succeed=("process",),
           checks=(unchanged(".git/hooks", ".vscode"),)),
    Attack("lifecycle/timeout-leaves-created", "has made a protected name when the time is up",
           "{P} plant .husky/pre-commit evil; {P} daemon_and_stay {id}", STARTED | HIDDEN,
           source=RULE8, flags=("--timeout", "1s"), expect_code=124,
           may_succeed=("namespace", "process"), checks=(absent("{ws}/.husky"),),
           control=bare(act="{P} plant .husky/pre-commit evil")),
    Attack("lifecycle/signal-launcher", "signals the process that started it", ("signal_parent",),
           NO_PROCESS | {"absent"}, source=FIELD, control=bare(user="root")),
    Attack("lifecycle/trace-launcher", "traces the process that started it", ("ptrace_parent",),
           NO_PROCESS, source=FIELD, control=bare(user="root")),
    Attack("lifecycle/launcher-memory", "writes the memory of the process that started it",
           "{P} openw /proc/$PPID/mem /proc/1/mem", HIDDEN, source=FIELD,
           control=bare(user="root")),
    Attack("lifecycle/kill-init", "ends, stops and terminates PID 1", ("kill_init",),
           frozenset({"alive", "EPERM"}), source=FIELD,
           not_in={"process": "without a PID namespace, PID 1 is the machine's own"},
           control=no_control("to kill the machine's PID 1 is no control one wants to see work"),
           bare_unsafe="PID 1 is the machine's own"),
    Attack("lifecycle/fork-bomb", "forks without end", ("fork_many", "64", "400"),
           frozenset({"EAGAIN"}), source=FIELD, flags=("--pids", "64"), may_refuse=("process",),
           control=granted("--pids", "2000")),
    Attack("lifecycle/descriptors", "opens without end", ("open_many", "64"),
           frozenset({"EMFILE"}), source=FIELD, flags=("--open-files", "64"),
           control=granted("--open-files", "4000")),
    Attack("lifecycle/orphans", "leaves three hundred orphans, with room for sixty-four",
           ("orphans", "300"), frozenset({"reaped"}), source="issue 2, item 4: PID 1 reaps",
           flags=("--pids", "64"), may_refuse=("process",), control=bare("reaped")),
    nested("plain", "starts a sandbox of its own that grants more"),
    nested("namespace", "the same in the namespace tier", "--tier namespace"),
    nested("process", "the same in the process tier",
           "--tier process --allow-degraded deny"),
    nested("home", "the same with the host's home", "--home host"),
    Attack("lifecycle/nested-unmarked", "hides that it is inside, and starts one",
           "unset RINGFENCE RINGFENCE_SESSION; " + NEST.replace("{more}", ""),
           HIDDEN | {"refused"}, source="INTERFACE.md: a sandbox inside a sandbox",
           setup=(own_binary,), ringfence_only=True),
    Attack("lifecycle/false-marker", "is started as if it were inside already",
           ("append", "{out}/victim.txt"), HIDDEN, source=FIELD, may_refuse=TIERS,
           env={"RINGFENCE": "1", "RINGFENCE_SESSION": "x"}, ringfence_only=True,
           control=granted("-w", "{out}")),
    Attack("lifecycle/policy-in-workspace", "a policy file came with the project",
           ("append", "{out}/victim.txt"), HIDDEN, source=RULE2, ringfence_only=True,
           setup=(plant.file("{ws}/ringfence.toml", WRITE_ALL),
                  plant.file("{ws}/.ringfence.toml", WRITE_ALL)),
           control=granted("-w", "{out}")),
    Attack("lifecycle/policy-left-behind", "an earlier session left policies wherever it could",
           ("append", "{out}/victim.txt"), HIDDEN, source=RULE2, ringfence_only=True,
           setup=(plant.file("{ws}/policy", WRITE_ALL),),
           sessions=(Session(
               "for d in . {home}/.config/ringfence/profiles /etc/ringfence/profiles "
               "{home}/.local/share/ringfence; do mkdir -p $d; "
               "for n in ringfence default mine; do cp policy $d/$n.toml; done; done 2>/dev/null"),),
           control=granted("-w", "{out}")),
    Attack("lifecycle/temporary-link", "an earlier session left a link where the next one keeps its temporary files",
           ("append", "{out}/victim.txt"), HIDDEN, source=RULE2, ringfence_only=True,
           env={"TMPDIR": "{ws}/tmp"}, setup=(plant.file("{out}/2147483647-old/kept"), plant.file("{ws}/tmp/there")),
           sessions=(Session("mv tmp/ringfence-{uid} tmp/was 2>/dev/null; ln -s {out} tmp/ringfence-{uid}"),),
           control=granted("-w", "{out}")),
    Attack("lifecycle/policy-trusted-inside", "an earlier session trusted its own policy file",
           ("append", "{out}/victim.txt"), HIDDEN, source=RULE2, ringfence_only=True,
           setup=(own_binary, plant.file("{ws}/policy", WRITE_ALL)),
           sessions=(Session("cp policy ringfence.toml; ./rf trust ringfence.toml || true"),),
           control=granted("-w", "{out}")),
    Attack("lifecycle/policy-mid-run", "changes the user's profile while it runs, then tries again",
           "mkdir -p {home}/.config/ringfence/profiles; "
           "cp policy {home}/.config/ringfence/profiles/default.toml; {P} append {out}/victim.txt",
           HIDDEN, source="field survey §4: edit policy mid-run", ringfence_only=True,
           setup=(plant.file("{ws}/policy", WRITE_ALL),), control=granted("-w", "{out}")),
    without("landlock", "starts on a kernel without Landlock"),
    without("seccomp", "starts where no filter can be installed"),
    without("namespaces", "starts where namespaces are closed, as in Docker"),
    without("mount-api", "starts on a kernel without the new mount calls"),
    without("pidfd", "starts on a kernel without pidfds"),
    Attack("lifecycle/argv-joined", "has its arguments read as a shell's",
           ("say", "ATTEMPT", "result=absent", ";", "touch", "{ws}/joined", "$(touch", "{ws}/joined)",
            "`touch {ws}/joined`", "\n touch {ws}/joined"), frozenset({"absent"}),
           source="fence survey §4 row 25", checks=(absent("{ws}/joined"),),
           control=bare("absent", act="echo ATTEMPT result=absent; touch {ws}/joined")),
)
