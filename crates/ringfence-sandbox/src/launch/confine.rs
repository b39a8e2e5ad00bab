//! Landlock, the filter and everything else that happens to the process that becomes the
//! command, as system calls.
//!
//! The order matters: what needs a right comes before the step that gives the right up. What needs nothing of
//! the view comes first, since it is done beside it ([`ringfence_start::beside`]): the filter too, which allows
//! the few calls that are left, unless it is a list of allowed calls or tells of calls.

use super::script::{Arg, CWD, Part, Script};
use crate::ask::asks;
use crate::filter::told;
use crate::plan::{
    AllowedCalls, CallRule, Landlock, LimitStep, MARKS, Plan, Rights, Tier, Verdict,
};
use ringfence_start::Sysno;
use ringfence_start::image::{Op, register, special};
use ringfence_sys::landlock::{self, access};
use ringfence_sys::seccomp::Program;
use std::path::Path;

const EINVAL: u8 = 22;
const ENOENT: u8 = 2;
const ELOOP: u8 = 40;
const EBUSY: u8 = 16;

const RLIMIT_CORE: u32 = 4;
const RLIMIT_NPROC: u32 = 6;
const RLIMIT_NOFILE: u32 = 7;

/// The Landlock rights that a group stands for.
fn rights(rights: Rights, abi: u32) -> u64 {
    let known = access::known(abi);
    known
        & match rights {
            Rights::List => access::READ_DIR,
            Rights::Read => access::EXECUTE | access::READ_FILE | access::READ_DIR,
            Rights::Use => access::WRITE_FILE | access::TRUNCATE | access::IOCTL_DEV,
            Rights::Write => !0,
        }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Makes an empty ruleset.
pub(super) fn write_new_ruleset(script: &mut Script, plan: &Landlock) {
    script.note("make a Landlock ruleset", None);
    let scopes =
        if plan.scoped { landlock::SCOPE_ABSTRACT_SOCKETS | landlock::SCOPE_SIGNALS } else { 0 };
    let network = if plan.ports.is_some() { landlock::BIND_TCP | landlock::CONNECT_TCP } else { 0 };
    // An older kernel takes a longer structure as long as the rest is zero.
    let handled = words(&[access::known(plan.abi), network, scopes]);
    let size = handled.len().into();
    let handled = Arg::Data(script.constant(&handled));
    script.call(Sysno::landlock_create_ruleset, &[handled, size, 0_u32.into()]).result =
        register::RULESET;
}

/// Fills the ruleset, in the child, once the view is the sandbox's own. `private` holds the process tier's
/// directory: in that tier there is no view to wait for, and often there are hundreds of rules, so that the
/// process that becomes the command makes some of them. `bridge`: it is that of a virtual machine, which makes the files
/// of the guest's sockets (mknod(2)). Those are the guest's kernel's own: nobody meets over them who holds one of the
/// host's, and what the bridge itself binds its launcher judges all the same.
pub(super) fn write_rules(script: &mut Script, plan: &Landlock, private: Option<u8>, bridge: bool) {
    let sockets = if plan.no_sockets && !bridge { access::MAKE_SOCK } else { 0 };
    let chunks: Vec<_> = plan.files.chunk_by(|a, b| a.path == b.path && a.file == b.file).collect();
    let aside = if private.is_some() { chunks.len() * 2 / 5 } else { 0 };
    for (number, same) in chunks.into_iter().enumerate() {
        script.part(if number < aside { Part::Confine } else { Part::Build });
        let all = same.iter().fold(0, |all, rule| all | rights(rule.rights, plan.abi));
        script.note("grant by Landlock", Some(&same[0].path));
        let path = script.path(&same[0].path);
        write_rule(script, path, all & !sockets, same[0].file);
    }
    script.part(Part::Build);
    if let Some(private) = private {
        script.note("grant by Landlock", Some(Path::new("the private directory")));
        write_grant(script, private, rights(Rights::Write, plan.abi));
    }
    script.note("grant ports by Landlock", None);
    for rule in plan.ports.iter().flatten() {
        let right = if rule.bind { landlock::BIND_TCP } else { landlock::CONNECT_TCP };
        let port = Arg::Data(script.constant(&words(&[right, u64::from(rule.port)])));
        const NET_PORT: u32 = 2;
        let ruleset = Arg::Register(register::RULESET);
        script.call(Sysno::landlock_add_rule, &[ruleset, NET_PORT.into(), port]);
    }
}

/// `file`: it is known to be none of a directory's; there are hundreds of these at times.
fn write_rule(script: &mut Script, path: Arg, allowed: u64, file: bool) {
    const O_PATH_CLOEXEC: u64 = 0o12_000_000;
    const NO_LINKS: u64 = 0x2 | 0x4; // RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS
    let how = Arg::Data(script.constant(&words(&[O_PATH_CLOEXEC, 0, NO_LINKS])));
    let handle = script.open(Sysno::openat2, &[CWD, path, how, 24_u32.into()]);
    let opened = script.length();
    // A file takes no rights of directories: the kernel's word for that is EINVAL.
    let tries = [(allowed, EINVAL, 2), (allowed & access::FILE, 0, 0)];
    for &(rights, tolerated, then) in &tries[usize::from(file)..] {
        let op = write_grant(script, handle, rights);
        op.tolerated[0] = tolerated;
        op.then = then;
    }
    script.close(handle);
    let skipped = (script.length() - opened) as u32;
    // A path of the planner's own (/dev/shm, a home that does not exist): nothing to grant.
    let open = &mut script.steps().ops[opened - 1];
    open.tolerated = [ENOENT, ELOOP];
    open.otherwise = skipped;
}

/// A rule for what a register holds open.
fn write_grant(script: &mut Script, handle: u8, allowed: u64) -> &mut Op {
    const PATH_BENEATH: u32 = 1;
    // struct landlock_path_beneath_attr, packed: rights, descriptor.
    let rule = script.bytes(&[&allowed.to_ne_bytes()[..], &[0; 4]].concat());
    script.store(rule + 8, Arg::Register(handle), 4);
    let arguments = [Arg::Register(register::RULESET), PATH_BENEATH.into(), Arg::Data(rule)];
    script.call(Sysno::landlock_add_rule, &arguments)
}

/// The steps between `clone` and `execve`.
pub(super) fn write_confinement(script: &mut Script, plan: &Plan) {
    const PR_SET_NO_NEW_PRIVS: u32 = 38;
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    const SIG_SETMASK: u32 = 2;
    script.part(Part::Confine);
    script.aside = script.length();
    script.note("confine the command", None);
    script.call(Sysno::umask, &[Arg::Register(register::UMASK)]);
    script.note("set its limits", None);
    for limit in &plan.limits {
        let (resource, value) = match limit {
            LimitStep::CoreFiles => (RLIMIT_CORE, 0),
            LimitStep::OpenFiles { count } => (RLIMIT_NOFILE, *count),
            LimitStep::Processes { count } => (RLIMIT_NPROC, *count),
            _ => continue,
        };
        script.step(special::LIMIT, &[resource.into(), value.into()]);
    }
    script.note("confine the command", None);
    script.call(Sysno::prctl, &[PR_SET_NO_NEW_PRIVS.into(), 1_u32.into()]);
    // In the process tier there is no view to wait for, and root may start where only its capabilities lead.
    if plan.tier == Tier::Process {
        write_start(script, plan);
    }
    script.note("take the command's capabilities", None);
    script.step(special::DROP_CAPABILITIES, &[]);
    let in_the_way = |rule: &CallRule| {
        observed(rule) || (rule.tests.is_empty() && AFTER_THE_FILTER.contains(&rule.call))
    };
    let early = plan.allowed_calls.is_none() && !plan.seccomp.iter().any(in_the_way);
    if early {
        write_filter(script, plan);
    }
    // After the filter, whose listener takes a number of the open files that are shared with the warden at the moment.
    script.step(special::INHERIT, &[Arg::Register(register::INHERITED)]);
    script.early = script.length();
    if plan.tier != Tier::Process {
        write_start(script, plan);
    }
    script.note("confine the command", None);
    // Nothing that the caller had open is inherited.
    let all = u32::MAX.into();
    script.call(Sysno::close_range, &[3_u32.into(), all, CLOSE_RANGE_CLOEXEC.into()]);
    if let Some(landlock) = &plan.landlock {
        script.note("confine the command by Landlock", None);
        let known = Arg::Number(access::known(landlock.abi));
        script.step(special::STREAMS, &[Arg::Register(register::RULESET), known]);
        script.call(Sysno::landlock_restrict_self, &[Arg::Register(register::RULESET)]);
    }
    script.held = script.length();
    script.note("confine the command", None);
    let mask = Arg::Register(register::SIGNAL_MASK);
    script.call(Sysno::rt_sigprocmask, &[SIG_SETMASK.into(), mask, 0_u32.into(), 8_u32.into()]);
    if !early {
        write_filter(script, plan);
    }
    script.part(Part::Build);
}

/// Enters the directory to start in.
fn write_start(script: &mut Script, plan: &Plan) {
    script.note("start in", Some(&plan.workdir));
    script.call(Sysno::chdir, &[Arg::Register(register::WORKDIR)]);
}

/// What is called after an early filter, and so must be allowed by it.
const AFTER_THE_FILTER: [&str; 17] = [
    "chdir",
    "close_range",
    "execve",
    "exit_group",
    "faccessat",
    "fcntl",
    "futex",
    "landlock_add_rule",
    "landlock_restrict_self",
    "prctl",
    "prlimit64",
    "recvfrom",
    "rt_sigaction",
    "rt_sigprocmask",
    "sched_yield",
    "sendmsg",
    "statx",
];

/// Whether somebody waits for the call to be told of.
fn observed(rule: &CallRule) -> bool {
    rule.verdict == Verdict::Observe
}

/// Installs the filter; where calls are supervised, hands its listener to the launcher. That
/// takes calls that a list may not allow: then the list is a filter of its own, after it.
fn write_filter(script: &mut Script, plan: &Plan) {
    if plan.seccomp.is_empty() {
        return;
    }
    script.note("filter the command's system calls", None);
    let supervised = plan.seccomp.iter().any(told);
    if let Some(list) = plan.allowed_calls.as_ref().filter(|list| asks(list)) {
        let program = write_program(script, &plan.seccomp, Some(list));
        write_listener(script, &plan.seccomp, Some(list), program);
        return;
    }
    let (with_rules, after) = match &plan.allowed_calls {
        Some(list) if supervised => (None, Some(list)),
        list => (list.as_ref(), None),
    };
    let program = write_program(script, &plan.seccomp, with_rules);
    if supervised {
        write_listener(script, &plan.seccomp, None, program);
    } else {
        script.call(Sysno::seccomp, &install(0, program));
    }
    if let Some(list) = after {
        let program = write_program(script, &[], Some(list));
        script.call(Sysno::seccomp, &install(0, program));
    }
}

/// Installs a filter with a listener, which goes to the launcher.
fn write_listener(
    script: &mut Script,
    rules: &[CallRule],
    list: Option<&AllowedCalls>,
    program: Arg,
) {
    const NEW_LISTENER: u32 = 1 << 3;
    /// A supervised caller is not woken by signals that do not kill it (Linux 5.19).
    const WAIT_KILLABLE: u32 = 1 << 5;
    // What a file tells of is the launcher's around this one to set, which has the rule too: nobody could carry it out
    // here, and servers do not start without it. So is who has the terminal, which shells give to their jobs.
    let is_heard = |rule: &&CallRule| {
        rule.verdict != Verdict::Observe
            && !crate::told_of_input::is_ruled_by(rule)
            && !crate::foreground::is_ruled_by(rule)
    };
    let deaf: Vec<CallRule> = rules.iter().filter(is_heard).cloned().collect();
    // Who cannot be asked has not allowed it.
    let list = list.map(|list| AllowedCalls { otherwise: Verdict::Refuse, ..list.clone() });
    let deaf = match (&list, deaf.len() == rules.len()) {
        (None, true) => program,
        (list, _) => write_program(script, &deaf, list.as_ref()),
    };
    let listener = script.register();
    // With the flag of Linux 5.19; without it; and inside another sandbox, whose launcher
    // listens already, not at all: supervised calls fail with ENOSYS then, and what is only
    // noted is noted by the launcher around this one.
    let op = script.call(Sysno::seccomp, &install(NEW_LISTENER | WAIT_KILLABLE, program));
    op.result = listener;
    op.tolerated = [EINVAL, EBUSY];
    op.then = 2;
    let op = script.call(Sysno::seccomp, &install(NEW_LISTENER, program));
    op.result = listener;
    op.tolerated[0] = EBUSY;
    op.then = 1;
    script.call(Sysno::seccomp, &install(0, deaf)).then = 2;
    let tag = u64::from(ringfence_sys::process::LISTENER).into();
    script.step(special::HAND_OUT, &[tag, Arg::Register(listener)]);
    // Descriptors are the warden's too, and only the launcher is to have this one.
    script.close(listener);
}

/// Writes the filter of some rules into the data; returns its `struct sock_fprog`.
fn write_program(script: &mut Script, rules: &[CallRule], list: Option<&AllowedCalls>) -> Arg {
    let filter = crate::filter::compile(rules, list);
    let code: Vec<u8> = filter.0.iter().flat_map(instruction).collect();
    let code = script.bytes(&code);
    if rules.iter().any(observed) {
        write_marks(script, &filter, code);
    }
    // Length, pointer.
    let program = script.bytes(&words(&[filter.0.len() as u64, 0]));
    script.store(program + 8, Arg::Data(code), 8);
    Arg::Data(program)
}

/// Makes the two numbers by which the filter knows the session's own `execve`, and writes them
/// into its code: nobody inside can know them.
fn write_marks(script: &mut Script, filter: &Program, code: u32) {
    let random = script.bytes(&[0; 8]);
    script.call(Sysno::getrandom, &[Arg::Data(random), 8_u32.into(), 0_u32.into()]);
    for (number, (mark, register)) in MARKS.into_iter().zip(register::MARKS).enumerate() {
        let at = u64::from(random) + 4 * number as u64;
        script.step(special::LOAD, &[at.into()]).result = register;
        for place in crate::filter::comparisons(filter, mark) {
            script.store(code + place as u32, Arg::Register(register), 4);
        }
    }
}

/// Arguments that install a filter.
fn install(flags: u32, program: Arg) -> [Arg; 3] {
    const SET_MODE_FILTER: u32 = 1;
    [SET_MODE_FILTER.into(), flags.into(), program]
}

fn instruction(one: &ringfence_sys::seccomp::Instruction) -> [u8; 8] {
    let [a, b] = one.code.to_ne_bytes();
    let [e, f, g, h] = one.operand.to_ne_bytes();
    [a, b, one.jump_true, one.jump_false, e, f, g, h]
}
