//! `ringfence plan`: what `run` would do, as text or JSON.

use crate::error::Fault;
use crate::options::{POLICY, parse};
use crate::{help, request};
use ringfence_policy::{NetworkMode, Source, shown};
use ringfence_sandbox::dbus;
use ringfence_sandbox::facts::{Facts, HostPaths};
use ringfence_sandbox::inputs::Inputs;
use ringfence_sandbox::plan::{
    CallRule, EnvironmentStep, Found, LimitStep, MountOp, MountStep, Plan, Rights, Test, Verdict,
    shown as shown_plan,
};
use ringfence_sandbox::{planner, text};
use std::ffi::OsString;
use std::io::Write;

/// `ringfence plan [OPTIONS] [-- CMD]`
///
/// # Errors
/// Bad input, or a missing layer, as for `run`.
pub fn plan(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&POLICY, arguments, true)?;
    if let Some(done) = help::asked("plan", &parsed) {
        return done;
    }
    let command = parsed.rest.first().map(OsString::as_os_str);
    let mut policy = request::policy(&request::request(&parsed, command))?;
    crate::vm::check(&policy, &parsed)?;
    crate::monitor::check(&mut policy, &parsed)?;
    let mut facts = Facts::probed();
    crate::libraries::find(&policy, &parsed.rest, &mut facts, &Inputs::new());
    dbus::look(&policy, &mut facts, &Inputs::new());
    crate::vm::look(&policy, &mut facts);
    let plan = planner::plan(&policy, &facts, &HostPaths).map_err(Fault::of)?;
    let mut out = std::io::stdout().lock();
    let written = if parsed.has("json") {
        let mut json = shown_plan(&plan).map_err(Fault::of)?;
        // The mechanism of the bridge's sandbox is the namespace tier's; the user's tier is this.
        json["tier"] = plan.tier_name().into();
        writeln!(out, "{}", shown::json(&format!("{json:#}")))
    } else {
        print(&plan, &mut out)
    };
    // A closed pipe (`| head`) is no failure.
    written.or_else(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Fault::of(error)),
    })?;
    if let Some(why) = crate::run::nowhere(&policy, &parsed.rest) {
        ringfence_sys::say!("ringfence: {} (run ends with 127)", shown::message(&why));
    }
    Ok(0)
}

fn print(plan: &Plan, out: &mut impl Write) -> std::io::Result<()> {
    let (user, group) = plan.user;
    writeln!(out, "tier          {} (user {user}, group {group})", plan.tier_name())?;
    if let Some(machine) = &plan.machine {
        writeln!(out, "machine       {}", shown::line(&text::machine(machine)))?;
    }
    writeln!(out, "profiles      {}", shown::line(&plan.profiles.join(", ")))?;
    writeln!(out, "namespaces    {}", list(&plan.namespaces))?;
    writeln!(out, "network       {}", network(plan.network))?;
    writeln!(out, "starts in     {}", shown::path(&plan.workdir))?;
    section(out, "mounts, in order", plan.mounts.iter().map(|step| (mount(step), &step.rule)))?;
    if let Some(landlock) = &plan.landlock {
        let scopes =
            if landlock.scoped { "; abstract sockets and signals stay inside" } else { "" };
        let rules = landlock.files.iter().map(|rule| {
            let rights = match rule.rights {
                Rights::List => "list",
                Rights::Read => "read",
                Rights::Use => "use",
                Rights::Write => "write",
            };
            (format!("{rights:<6} {}", rule.path.display()), &rule.rule)
        });
        section(out, &format!("Landlock, version {}{scopes}", landlock.abi), rules)?;
    }
    if let Some(allowed) = &plan.allowed_calls {
        let others = match allowed.otherwise {
            Verdict::Kill => "kills",
            Verdict::Ask => "waits for your answer",
            _ => "is refused",
        };
        writeln!(out, "\nsystem calls allowed; any other {others}")?;
        for line in allowed.calls.chunks(6) {
            writeln!(out, "  {}", line.join(" "))?;
        }
    }
    let whose = match plan.machine {
        Some(_) => " (of the bridge: a guest's calls are its own kernel's)",
        None => "",
    };
    writeln!(out, "\nsystem calls refused or supervised{whose}")?;
    for rule in &plan.seccomp {
        writeln!(out, "  {:<44} {}", call(rule), rule.reason)?;
    }
    if let Some(bus) = &plan.bus {
        let grants = bus.grants.iter().map(|grant| (grant.argument.clone(), &grant.rule));
        section(out, &format!("session bus, through {}", bus.program.display()), grants)?;
    }
    writeln!(out, "\nenvironment")?;
    for step in &plan.environment {
        let (what, rule) = match step {
            EnvironmentStep::Set { name, value, rule } => (format!("set    {name}={value}"), rule),
            EnvironmentStep::Hide { name, rule } => (format!("hide   {name}"), rule),
            EnvironmentStep::Pass { name, rule } => (format!("pass   {name}"), rule),
            EnvironmentStep::Clean { rule } => ("start empty".to_owned(), rule),
        };
        row(out, &what, rule)?;
    }
    if !plan.limits.is_empty() {
        writeln!(out, "\nlimits")?;
        for step in &plan.limits {
            writeln!(out, "  {}", shown::line(&limit(step)))?;
        }
    }
    let guards = plan.guards.iter().map(|guard| {
        let found = match guard.found {
            Found::Absent => "absent ",
            Found::Symlink => "link   ",
            Found::Present => "present",
        };
        (format!("{found} {}", guard.path.display()), &guard.rule)
    });
    section(out, "put right at the end", guards)?;
    for degraded in &plan.degraded {
        writeln!(
            out,
            "\nwithout {}: {}",
            text::layer(degraded.layer),
            shown::line(&degraded.what)
        )?;
    }
    for warning in &plan.warnings {
        writeln!(out, "\nnote: {}", shown::line(warning))?;
    }
    Ok(())
}

fn section<'a>(
    out: &mut impl Write,
    title: &str,
    rows: impl Iterator<Item = (String, &'a Source)>,
) -> std::io::Result<()> {
    let mut rows = rows.peekable();
    if rows.peek().is_some() {
        writeln!(out, "\n{title}")?;
    }
    for (what, rule) in rows {
        row(out, &what, rule)?;
    }
    Ok(())
}

/// What is done, and the rule that it comes from: names in it are their makers' words.
fn row(out: &mut impl Write, what: &str, rule: &Source) -> std::io::Result<()> {
    writeln!(out, "  {:<44} {}", shown::line(what), shown::line(&text::source(rule)))
}

fn list(words: &[impl std::borrow::Borrow<str>]) -> String {
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn network(mode: NetworkMode) -> &'static str {
    match mode {
        NetworkMode::None => "none",
        NetworkMode::Filtered => "filtered",
        NetworkMode::Host => "host",
    }
}

fn mount(step: &MountStep) -> String {
    let path = step.path.display();
    match &step.op {
        MountOp::Root { size: None } => format!("root     {path}"),
        MountOp::Root { size: Some(size) } => format!("root     {path} of {size} bytes"),
        MountOp::HostRoot { .. } => format!("read     {path}"),
        MountOp::Private { mode } => format!("private  {path} mode {mode:o}"),
        MountOp::Symlink { target } => format!("link     {path} -> {}", target.display()),
        MountOp::Bind { read_only: true, .. } => format!("read     {path}"),
        MountOp::Bind { read_only: false, .. } => format!("write    {path}"),
        MountOp::Library => format!("read     {path}"),
        MountOp::Skeleton => format!("skeleton {path}"),
        MountOp::Cover => format!("cover    {path}"),
        MountOp::Proc => format!("proc     {path}"),
        MountOp::Terminals => format!("devpts   {path}"),
        MountOp::Console { from } => format!("terminal {path} = {}", from.display()),
        MountOp::NamedHome { from, apart } => {
            let kind = if apart.is_some() { "overlay " } else { "home    " };
            format!("{kind} {path} = {}", from.display())
        }
        MountOp::Overlay { .. } => format!("overlay  {path}"),
        MountOp::Pin | MountOp::PinLink => format!("pin      {path}"),
        MountOp::Protect => format!("protect  {path}"),
        MountOp::Emptied => format!("empty    {path}"),
        MountOp::Mask { .. } | MountOp::MaskLink => format!("mask     {path}"),
        MountOp::Data { .. } => format!("trust    {path}"),
        MountOp::Besides(besides) => {
            let names = besides.files.iter().map(|(name, _)| step.path.join(name));
            let names: Vec<String> = names.map(|name| name.display().to_string()).collect();
            format!("settings {}", names.join(", "))
        }
        MountOp::Gateway => format!("gateway  {path}"),
        MountOp::Bus => format!("bus      {path}"),
    }
}

fn call(rule: &CallRule) -> String {
    let verdict = match rule.verdict {
        Verdict::Refuse => "EPERM",
        Verdict::NotImplemented => "ENOSYS",
        Verdict::FamilyNotSupported => "EAFNOSUPPORT",
        Verdict::AccessDenied => "EACCES",
        Verdict::Supervise => "supervised",
        Verdict::Kill => "killed",
        Verdict::Observe => "noted",
        Verdict::Ask => "asked",
    };
    let test = |(index, test): &(u8, Test)| match test {
        Test::Equals(value) => format!("arg{index} == {value:#x}"),
        Test::Differs(value) => format!("arg{index} != {value:#x}"),
        Test::AnyBit(mask) => format!("arg{index} & {mask:#x}"),
        Test::Masked(mask, value) => format!("arg{index} & {mask:#x} == {value:#x}"),
        Test::MaskDiffers(mask, value) => format!("arg{index} & {mask:#x} != {value:#x}"),
    };
    let tests: Vec<String> = rule.tests.iter().map(test).collect();
    let tests = if tests.is_empty() { String::new() } else { format!(" if {}", tests.join(", ")) };
    format!("{} {verdict}{tests}", rule.call)
}

fn limit(step: &LimitStep) -> String {
    let settings = |settings: &[(String, String)]| {
        let shown: Vec<String> =
            settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        shown.join(", ")
    };
    match step {
        LimitStep::Cgroup { parent, settings: s } => {
            format!("control group below {}: {}", parent.display(), settings(s))
        }
        LimitStep::CgroupV1 { parent, settings: s } => {
            format!("control group (version 1) below {}: {}", parent.display(), settings(s))
        }
        LimitStep::OpenFiles { count } => {
            format!("{count} open files for each process (RLIMIT_NOFILE)")
        }
        LimitStep::Processes { count } => {
            format!("{count} processes, counted in the user namespace (RLIMIT_NPROC)")
        }
        LimitStep::Processors { count } => format!("{count} processors (sched_setaffinity)"),
        LimitStep::PrivateSize { bytes } => {
            format!("{bytes} bytes in private directories (tmpfs size)")
        }
        LimitStep::CoreFiles => "no core files (RLIMIT_CORE)".to_owned(),
        LimitStep::Timeout { milliseconds } => format!("ended after {milliseconds} ms"),
    }
}
